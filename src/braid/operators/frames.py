"""Lives of rows in sliding windows, in columns, and which rows are alive together.

In: a frame and the times of rows (ms); two frames with lives, and the columns of their keys. Out: columns of the first
and the last millisecond of lives, and of the time at which a row that met nothing goes out alone; numbers of the rows
of each pair of one key whose lives overlap.
Rule: a RANGE row of time t lives at every T >= t with k(t) + upper <= k(T) <= k(t) + lower. Calendars are those of UTC.
Of two rows that meet one enters while the other is alive, so each pair is found from the one that was there first, in a
range of the other side's rows by (key, enter). What does not overlap is never looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import polars as pl

from braid.errors import BraidError
from braid.operators.changes import NEVER
from braid.operators.ranges import Crowded, Ints, expand, narrow
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


@dataclass(frozen=True, slots=True)
class _Side:
    """Rows that live and have a key, by (key, enter); `row`: their numbers, `first`: where each key begins."""

    row: Ints
    key: Ints
    enter: Ints
    leave: Ints
    first: Ints


class Together:
    """Two sides: all rows of each, and their key columns (none: all rows have one key). A NULL equals nothing."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: pl.DataFrame, right: pl.DataFrame, keys: tuple[pl.DataFrame, pl.DataFrame] | None) -> None:
        if keys is None:
            groups, count = [np.zeros(x.height, dtype=np.int64) for x in (left, right)], 1
        else:
            groups, count = _numbered(*keys)
        self._left, self._right = (_side(x, g, count) for x, g in zip((left, right), groups, strict=True))

    def pairs(self, since: int = NEVER, crowd: tuple[int, int] | None = None) -> tuple[Ints, Ints]:
        """The pairs that are together for the first time at `since` or later. `crowd`: (time, most): `Crowded` where
        more than so many are for the first time at that time or later."""
        if crowd is not None:
            count = sum(int((stop - start).sum()) for _, start, stop in self._ranges(crowd[0]))
            if count > crowd[1]:
                raise Crowded(count)
        (l, *from_left), (r, *from_right) = self._ranges(since)
        left, theirs = expand(*from_left)
        right, ours = expand(*from_right)
        lefts = np.concatenate([self._left.row[l[left]], self._left.row[ours]])
        rights = np.concatenate([self._right.row[theirs], self._right.row[r[right]]])
        return lefts, rights

    def _ranges(self, since: int) -> Sequence[tuple[Ints, Ints, Ints]]:
        """For rows of the left, then of the right side: their numbers by (key, enter), and the range of the others
        that enter while they are alive. Of two that enter at once the left one was there first."""
        return [_entering(self._left, self._right, since, 0), _entering(self._right, self._left, since, 1)]


def _side(rows: pl.DataFrame, group: Ints, count: int) -> _Side:
    enter, leave = rows[ENTER].to_numpy(), rows[LEAVE].to_numpy()
    at = np.flatnonzero((enter <= leave) & (group >= 0))
    at = at[np.lexsort((enter[at], group[at]))]
    key = group[at]
    return _Side(at, key, enter[at], leave[at], np.searchsorted(key, np.arange(count + 1)))


def _entering(there: _Side, others: _Side, since: int, later: int) -> tuple[Ints, Ints, Ints]:
    first, end = others.first[there.key], others.first[there.key + 1]
    at = np.flatnonzero((end > first) & (there.leave >= since))
    first, end = first[at], end[at]
    start = narrow(others.enter, first, end, np.maximum(there.enter[at] + later, since), right=False)
    return at, start, narrow(others.enter, start, end, there.leave[at], right=True)


def _numbered(left: pl.DataFrame, right: pl.DataFrame) -> tuple[list[Ints], int]:
    """A number for each key of both sides; -1 for rows that have a NULL in theirs."""
    both = pl.concat([left, right]).with_row_index("_i")
    first = both.select(pl.col("_i").min().over(left.columns))["_i"].to_numpy()
    distinct, number = np.unique(first, return_inverse=True)
    null = both.select(pl.any_horizontal(pl.col(c).is_null() for c in left.columns).alias("n"))["n"].to_numpy()
    number = np.where(null, -1, number.astype(np.int64))
    return [number[: left.height], number[left.height :]], len(distinct)
