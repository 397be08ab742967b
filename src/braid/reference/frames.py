"""Lives of rows in sliding windows, by the definition.

In: a frame and the time of a row (ms). Out: the first and the last millisecond of its life.
Rule: a RANGE row of time t lives at every T >= t with k(t) + upper <= k(T) <= k(t) + lower; k rises with T, so that is
one stretch. Calendars are those of UTC.
"""

from __future__ import annotations

import calendar
from datetime import datetime, timedelta
from typing import assert_never

from braid.plan.sliding import Bound, OrderKey, RangeFrame

EPOCH = datetime(1970, 1, 1)
MILLISECOND = timedelta(milliseconds=1)
UNITS = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}


def life(frame: RangeFrame, t: int) -> tuple[int, int]:
    """[enter, leave] of a row of time `t`."""
    order = frame.order
    k = _measured(order, t)
    return max(t, _first(order, _moved(k, frame.upper))), _last(order, _moved(k, frame.lower))


def hop_of(order: OrderKey, t: int) -> int:
    """The last instant of the hop that holds `t`."""
    return _last(order, _measured(order, t))


def _measured(order: OrderKey, t: int) -> int:
    match order.kind:
        case "rowtime":
            return t
        case "floor" | "step":
            return _down(order, t)
        case "ceil":
            return _up(order, t)
    assert_never(order.kind)


def _first(order: OrderKey, k: int) -> int:
    """The first T whose order key is at least `k`."""
    match order.kind:
        case "rowtime":
            return k
        case "floor" | "step":
            return _up(order, k)
        case "ceil":
            return _down(order, _up(order, k) - 1) + 1
    assert_never(order.kind)


def _last(order: OrderKey, k: int) -> int:
    """The last T whose order key is at most `k`."""
    match order.kind:
        case "rowtime":
            return k
        case "floor" | "step":
            return _up(order, _down(order, k) + 1) - 1
        case "ceil":
            return _down(order, k)
    assert_never(order.kind)


def _down(order: OrderKey, t: int) -> int:
    """The last boundary up to `t`."""
    size = order.step or UNITS.get(order.unit or "")
    if size is not None:
        return t // size * size
    at = EPOCH + t * MILLISECOND
    return (datetime(at.year, at.month if order.unit == "MONTH" else 1, 1) - EPOCH) // MILLISECOND


def _up(order: OrderKey, t: int) -> int:
    """The first boundary from `t` on."""
    down = _down(order, t)
    if down == t:
        return t
    size = order.step or UNITS.get(order.unit or "")
    if size is not None:
        return down + size
    return _moved(down, Bound(months=1 if order.unit == "MONTH" else 12))


def _moved(t: int, by: Bound) -> int:
    """`t`, later by calendar months (the day clamped to the month's end), then by milliseconds."""
    if by.months:
        at = EPOCH + t * MILLISECOND
        years, month = divmod(at.year * 12 + at.month - 1 + by.months, 12)
        day = min(at.day, calendar.monthrange(years, month + 1)[1])
        t = (at.replace(year=years, month=month + 1, day=day) - EPOCH) // MILLISECOND
    return t + by.ms
