"""Lives of rows in sliding windows, in columns.

In: a frame and the times of rows (ms). Out: columns of the first and the last millisecond of their lives, and of the
time at which a row that met nothing goes out alone.
Rule: a RANGE row of time t lives at every T >= t with k(t) + upper <= k(T) <= k(t) + lower. Calendars are those of UTC.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np
import polars as pl

from braid.errors import BraidError
from braid.operators.ranges import Ints
from braid.plan.sliding import Bound, Frame, OrderKey, RangeFrame, RowsFrame

ENTER, LEAVE, EXPIRES = "_e", "_l", "_x"
OPEN = 2**62  # the end of a life that is not known yet; above every time
MOST_HOPS = 1_000_000  # that one batch reports on
_SHORTEST_MONTH = 28 * 86_400_000
SIZES = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}


def with_lives(rows: pl.DataFrame, frame: Frame, time: str, place: str) -> pl.DataFrame:
    """The rows with their lives. Those of a ROWS frame are put in their order, by time and place; `_e` is null where it
    is not known yet."""
    if isinstance(frame, RowsFrame):
        return _counted(rows.sort(time, place), frame, time)
    t, order = pl.col(time), frame.order
    k = _measured(order, t)
    enter = pl.max_horizontal(t, _first(order, _moved(k, frame.upper)))
    made = rows.with_columns(enter.alias(ENTER), _last(order, _moved(k, frame.lower)).alias(LEAVE))
    return made.with_columns((pl.col(LEAVE) + (0 if order.kind == "rowtime" else 1)).alias(EXPIRES))


def _counted(rows: pl.DataFrame, frame: RowsFrame, time: str) -> pl.DataFrame:
    """Row p lives from the time of row p + upper until just before that of row p + lower + 1."""
    evicted = pl.col(time).shift(-frame.lower - 1)
    return rows.with_columns(
        pl.col(time).shift(-frame.upper).alias(ENTER),
        (evicted - 1).fill_null(OPEN).alias(LEAVE),
        evicted.fill_null(OPEN).alias(EXPIRES),
    )


def hop_end(frame: RangeFrame, times: pl.Series) -> pl.Series:
    """The last instant of the hop that holds each time."""
    k = _measured(frame.order, pl.col("t"))
    return times.alias("t").to_frame().select(_last(frame.order, k).alias("end"))["end"]


def hop_ends(frame: RangeFrame, first: int, last: int, limit: int) -> Ints:
    """The ends of the hops from that of `first` to that of `last`, up to `limit`."""
    if first > last:
        return np.empty(0, dtype=np.int64)
    size, (begin, end) = _size(frame.order), hop_end(frame, pl.Series([first, last], dtype=pl.Int64)).to_list()
    if (end - begin) // (size or _SHORTEST_MONTH) >= MOST_HOPS:
        days = (last - first) // SIZES["DAY"]
        message = f"a stream's time goes on by {days:,} days at once: that is more than {MOST_HOPS:,} hops to report on"
        hint = "correct the record with that time; or SET 'braid.empty.buckets'='off', for hops with rows alone"
        raise BraidError(message, hint)
    if size is not None:
        return np.arange(begin, min(end, limit) + 1, size, dtype=np.int64)
    ends = []
    while begin <= min(end, limit):
        ends.append(begin)
        (begin,) = hop_end(frame, pl.Series([begin + 1], dtype=pl.Int64))
    return np.array(ends, dtype=np.int64)


def _measured(order: OrderKey, t: pl.Expr) -> pl.Expr:
    match order.kind:
        case "rowtime":
            return t
        case "floor" | "step":
            return _down(order, t)
        case "ceil":
            return _up(order, t)
    assert_never(order.kind)


def _first(order: OrderKey, k: pl.Expr) -> pl.Expr:
    """The first T whose order key is at least `k`."""
    match order.kind:
        case "rowtime":
            return k
        case "floor" | "step":
            return _up(order, k)
        case "ceil":
            return _down(order, _up(order, k) - 1) + 1
    assert_never(order.kind)


def _last(order: OrderKey, k: pl.Expr) -> pl.Expr:
    """The last T whose order key is at most `k`."""
    match order.kind:
        case "rowtime":
            return k
        case "floor" | "step":
            return _up(order, _down(order, k) + 1) - 1
        case "ceil":
            return _down(order, k)
    assert_never(order.kind)


def _size(order: OrderKey) -> int | None:
    """The distance of boundaries; None where it varies with the calendar."""
    return order.step if order.step is not None else SIZES.get(order.unit or "")


def _down(order: OrderKey, t: pl.Expr) -> pl.Expr:
    """The last boundary up to `t`."""
    size = _size(order)
    if size is not None:
        return t // size * size
    return _ms(_at(t).dt.truncate("1mo" if order.unit == "MONTH" else "1y"))


def _up(order: OrderKey, t: pl.Expr) -> pl.Expr:
    """The first boundary from `t` on."""
    down, size = _down(order, t), _size(order)
    up = down + size if size is not None else _moved(down, Bound(months=1 if order.unit == "MONTH" else 12))
    return pl.when(down == t).then(t).otherwise(up)


def _moved(t: pl.Expr, by: Bound) -> pl.Expr:
    """`t`, later by calendar months (the day clamped to the month's end), then by milliseconds."""
    later = _ms(_at(t).dt.offset_by(f"{by.months}mo")) if by.months else t
    return later + by.ms if by.ms else later


def _at(t: pl.Expr) -> pl.Expr:
    return pl.from_epoch(t, time_unit="ms")


def _ms(t: pl.Expr) -> pl.Expr:
    return t.dt.epoch("ms")
