"""The type INTERVAL, and what times, dates and intervals have to do with + - * / and comparisons.

In: typed calls over columns of times and intervals. Out: `INTERVALS`, rows; `TIME_OPERATORS`, which row an operator is.
Rule: months move the month (and the day to that month's last at most), then days the day, then microseconds the time;
each step stays within PostgreSQL's calendar. Intervals compare with months of 30 days and days of 24 hours. The zone of
a session is UTC, where each day has 24 hours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from braid.expr.postgres.base import takes
from braid.expr.postgres.calendar import (
    DAY,
    FIRST_DAY,
    FIRST_US,
    HOUR,
    LAST_DAY,
    LAST_ON_THE_WAY,
    LAST_US,
    MINUTE,
    MOMENTS,
    NO_DATE,
    NO_INTERVAL,
    NO_TIMESTAMP,
    Flags,
    Interval,
    Ints,
    civil_of,
    cut,
    days_of,
    month_length,
    row,
    slow,
    valid_interval,
    vectors,
)
from braid.expr.signatures import Builder, Function
from braid.types import Scalar, Type

S = Scalar
Three = tuple[Any, Any, Any]
_INT, _LONG = 1 << 31, float(1 << 63)


# ------------------------------------------------------------- moved by interval


def moved(us: Any, months: Any, days: Any, more: Any) -> tuple[Any, Flags]:
    """Microseconds since 1970, moved; and whether each step stayed in the calendar. Numbers or arrays."""
    day = us // DAY
    of_day = us - day * DAY
    first = months_later(day, months) if np.any(months) else day
    second = first + days
    ok = _on_the_way(first) & _on_the_way(second)
    start = np.where(ok, second, 0) * DAY + of_day
    end = start + more
    return end, ok & _no_overflow(start, more, end) & (end >= FIRST_US) & (end <= LAST_US)


def months_later(day: Any, months: Any) -> Any:
    """The same day of another month, or its last."""
    year, month, of_month = civil_of(day)
    count = year * 12 + month - 1 + months
    year, month = count // 12, count % 12 + 1
    return days_of(year, month, np.minimum(of_month, month_length(year, month)))


def _on_the_way(day: Any) -> Any:
    return (day >= FIRST_DAY) & (day <= LAST_ON_THE_WAY)


def _no_overflow(a: Any, b: Any, total: Any) -> Any:
    """Whether a + b, in 64 bits, is `total`."""
    return ((a ^ total) & (b ^ total)) >= 0


def _negative(months: Any, days: Any, us: Any) -> tuple[Three, Any]:
    ok = (months > -_INT) & (days > -_INT) & (us > np.iinfo(np.int64).min)
    return (-months, -days, -us), ok


def _add(us: Ints, months: Ints, days: Ints, more: Ints) -> tuple[Ints, Flags]:
    return moved(us, months, days, more)


def _subtract(us: Ints, months: Ints, days: Ints, more: Ints) -> tuple[Ints, Flags]:
    (months, days, more), ok = _negative(months, days, more)
    end, there = moved(us, months, days, more)
    return end, there & ok


def _date_add(day: Ints, months: Ints, days: Ints, more: Ints) -> tuple[Ints, Flags]:
    return moved(day * DAY, months, days, more)


def _date_subtract(day: Ints, months: Ints, days: Ints, more: Ints) -> tuple[Ints, Flags]:
    return _subtract(day * DAY, months, days, more)


def _days_later(day: Ints, by: Ints) -> tuple[Ints, Flags]:
    found = day + by
    return found, (found >= FIRST_DAY) & (found <= LAST_DAY)


def _at_time(day: Ints, time: Ints) -> tuple[Ints, Flags]:
    return day * DAY + time, (day >= FIRST_DAY) & (day <= LAST_DAY)


def _time_add(time: Ints, months: Ints, days: Ints, us: Ints) -> tuple[Ints, bool]:
    return (time + us) % DAY, True  # beyond 64 bits it goes round, as PostgreSQL's does


def _time_subtract(time: Ints, months: Ints, days: Ints, us: Ints) -> tuple[Ints, bool]:
    return (time - us) % DAY, True


# ----------------------------------------------------------------- differences


def _between(later: Ints, earlier: Ints) -> tuple[Three, Flags]:
    """Whole days and the rest, both with the sign of the difference."""
    us = later - earlier
    days = cut(us, DAY)
    inside = (later >= FIRST_US) & (earlier >= FIRST_US)
    return (np.zeros_like(us), days, us - days * DAY), inside


def _days_between(later: Ints, earlier: Ints) -> tuple[Ints, bool]:
    return later - earlier, True


def _time_between(later: Ints, earlier: Ints) -> tuple[Three, bool]:
    us = later - earlier
    return (np.zeros_like(us), np.zeros_like(us), us), True


# --------------------------------------------------------- arithmetic of intervals


def _sum(m: Ints, d: Ints, u: Ints, months: Ints, days: Ints, us: Ints) -> tuple[Three, Flags]:
    total = m + months, d + days, u + us
    ok = (abs(total[0] + 0.5) < _INT) & (abs(total[1] + 0.5) < _INT) & _no_overflow(u, us, total[2])
    return total, ok


def _difference(m: Ints, d: Ints, u: Ints, months: Ints, days: Ints, us: Ints) -> tuple[Three, Flags]:
    total = m - months, d - days, u - us
    ok = (abs(total[0] + 0.5) < _INT) & (abs(total[1] + 0.5) < _INT) & (((u ^ us) & (u ^ total[2])) >= 0)
    return total, ok


def _rounded(x: Any) -> Any:
    """To six digits after the point."""
    return np.rint(x * 1e6) / 1e6


def _scaled(months: Any, days: Any, us: Any) -> tuple[Three, Flags]:
    """The interval of these broken numbers: what is left of a month makes days of 30 to a month, what is left of a day
    makes seconds; each cut towards zero, in double precision, as PostgreSQL has it."""
    whole_months, whole_days = np.trunc(months), np.trunc(days)
    ok = (abs(whole_months + 0.5) < _INT) & (abs(whole_days + 0.5) < _INT)
    days_left = _rounded((months - whole_months) * 30)
    seconds = _rounded((days - whole_days + days_left - np.trunc(days_left)) * 86_400)
    more = np.where(abs(seconds) >= 86_400, np.trunc(seconds / 86_400), 0)
    seconds = seconds - more * 86_400
    day = whole_days + more + np.trunc(days_left)
    time = np.rint(us + seconds * 1e6)
    ok = ok & (abs(day + 0.5) < _INT) & (time >= -_LONG) & (time < _LONG)
    values = [np.where(ok, x, 0).astype(np.int64) for x in (whole_months, day, time)]
    return (values[0], values[1], values[2]), ok


def _times(months: Ints, days: Ints, us: Ints, factor: Any) -> tuple[Three, Flags]:
    return _scaled(months * factor, days * factor, us * factor)


def _times_swapped(factor: Any, months: Ints, days: Ints, us: Ints) -> tuple[Three, Flags]:
    return _times(months, days, us, factor)


def _divided(months: Ints, days: Ints, us: Ints, by: Any) -> tuple[Three, Flags]:
    value, ok = _scaled(months / by, days / by, us / by)
    return value, ok & (by != 0)


def _why_divided(interval: object, by: object) -> str:
    return NO_INTERVAL if by else "division by zero"


# ------------------------------------------------------------------ comparisons


def length(x: pl.Expr) -> pl.Expr:
    """What intervals are compared by: microseconds, of months of 30 days."""
    months, days, us = (x.struct.field(n).cast(pl.Int128) for n in ("months", "days", "us"))
    return (months * 30 + days) * DAY + us


_COMPARED: dict[str, Builder] = {
    "eq": lambda call, args: length(args[0]) == length(args[1]),
    "ne": lambda call, args: length(args[0]) != length(args[1]),
    "lt": lambda call, args: length(args[0]) < length(args[1]),
    "le": lambda call, args: length(args[0]) <= length(args[1]),
    "gt": lambda call, args: length(args[0]) > length(args[1]),
    "ge": lambda call, args: length(args[0]) >= length(args[1]),
}


# ----------------------------------------------------------- made and justified


def _one_sign(small: int, great: int, size: int) -> tuple[int, int]:
    """The same length, with one sign."""
    if great > 0 > small:
        return small + size, great - 1
    return (small - size, great + 1) if great < 0 < small else (small, great)


def _quotient(a: int, b: int) -> int:
    return -(-a // b) if a < 0 else a // b


def justify_hours(x: Interval) -> Interval:
    """24 hours are a day."""
    months, days, us = x
    whole = _quotient(us, DAY)
    us, days = _one_sign(us - whole * DAY, days + whole, DAY)
    return valid_interval(months, days, us)


def justify_days(x: Interval) -> Interval:
    """30 days are a month."""
    months, days, us = x
    whole = _quotient(days, 30)
    days, months = _one_sign(days - whole * 30, months + whole, 30)
    return valid_interval(months, days, us)


def justify_interval(x: Interval) -> Interval:
    """Both, and all parts with one sign."""
    months, days, us = x
    whole = _quotient(us, DAY)
    us, days = us - whole * DAY, days + whole
    whole = _quotient(days, 30)
    days, months = days - whole * 30, months + whole
    if months > 0 and (days, us) < (0, 0):
        days, months = days + 30, months - 1
    elif months < 0 and (days, us) > (0, 0):
        days, months = days - 30, months + 1
    us, days = _one_sign(us, days, DAY)
    return valid_interval(months, days, us)


def make_interval(years: int = 0, months: int = 0, weeks: int = 0, days: int = 0, hours: int = 0, minutes: int = 0,
                  seconds: float = 0.0) -> Interval:  # fmt: skip
    """PostgreSQL and RisingWave count the time in doubles of seconds."""
    if not np.isfinite(seconds):
        raise ValueError(NO_INTERVAL)
    us = round(seconds * 1e6)
    return valid_interval(years * 12 + months, weeks * 7 + days, hours * HOUR + minutes * MINUTE + us)


def _made_with(count: int) -> tuple[tuple[Type, ...], Type]:
    return ((S.INT,) * 6 + (S.DOUBLE,))[:count], S.INTERVAL


# ----------------------------------------------------------------------- table

_I = S.INTERVAL
_MOVED = tuple(((t, _I), t) for t in MOMENTS)
_OF_INTERVAL = takes("an INTERVAL", ((_I,), _I))
_TWO = takes("two INTERVAL", ((_I, _I), S.BOOLEAN))


def _compared(name: str, build: Builder) -> Function:
    return Function(f"pg.interval_{name}", _TWO, build)


_ROWS = (
    row("add_interval", takes("a time and an INTERVAL", *_MOVED), vectors(_add), NO_TIMESTAMP),
    row("sub_interval", takes("a time and an INTERVAL", *_MOVED), vectors(_subtract), NO_TIMESTAMP),
    row("interval_add_moment", takes("an INTERVAL and a time", *(((_I, t), t) for t in MOMENTS)),
        vectors(lambda months, days, more, us: moved(us, months, days, more)), NO_TIMESTAMP),
    row("date_add_interval", takes("a DATE and an INTERVAL", ((S.DATE, _I), S.TIMESTAMP)), vectors(_date_add),
        NO_TIMESTAMP),
    row("date_sub_interval", takes("a DATE and an INTERVAL", ((S.DATE, _I), S.TIMESTAMP)), vectors(_date_subtract),
        NO_TIMESTAMP),
    row("interval_add_date", takes("an INTERVAL and a DATE", ((_I, S.DATE), S.TIMESTAMP)),
        vectors(lambda months, days, more, day: moved(day * DAY, months, days, more)), NO_TIMESTAMP),
    row("time_add_interval", takes("a TIME and an INTERVAL", ((S.TIME, _I), S.TIME)), vectors(_time_add), ""),
    row("time_sub_interval", takes("a TIME and an INTERVAL", ((S.TIME, _I), S.TIME)), vectors(_time_subtract), ""),
    row("interval_add_time", takes("an INTERVAL and a TIME", ((_I, S.TIME), S.TIME)),
        vectors(lambda months, days, us, time: _time_add(time, months, days, us)), ""),
    row("date_add_days", takes("a DATE and an INTEGER", ((S.DATE, S.INT), S.DATE)), vectors(_days_later), NO_DATE),
    row("date_sub_days", takes("a DATE and an INTEGER", ((S.DATE, S.INT), S.DATE)),
        vectors(lambda day, by: _days_later(day, -by)), NO_DATE),
    row("days_add_date", takes("an INTEGER and a DATE", ((S.INT, S.DATE), S.DATE)),
        vectors(lambda by, day: _days_later(day, by)), NO_DATE),
    row("date_add_time", takes("a DATE and a TIME", ((S.DATE, S.TIME), S.TIMESTAMP)), vectors(_at_time), NO_TIMESTAMP),
    row("time_add_date", takes("a TIME and a DATE", ((S.TIME, S.DATE), S.TIMESTAMP)),
        vectors(lambda time, day: _at_time(day, time)), NO_TIMESTAMP),
    row("sub_moments", takes("two times", *(((t, t), _I) for t in MOMENTS)), vectors(_between), NO_TIMESTAMP),
    row("sub_dates", takes("two DATE", ((S.DATE, S.DATE), S.INT)), vectors(_days_between), ""),
    row("sub_times", takes("two TIME", ((S.TIME, S.TIME), _I)), vectors(_time_between), ""),
    row("add_intervals", takes("two INTERVAL", ((_I, _I), _I)), vectors(_sum), NO_INTERVAL),
    row("sub_intervals", takes("two INTERVAL", ((_I, _I), _I)), vectors(_difference), NO_INTERVAL),
    row("mul_interval", takes("an INTERVAL and a number", ((_I, S.DOUBLE), _I)), vectors(_times), NO_INTERVAL),
    row("interval_mul", takes("a number and an INTERVAL", ((S.DOUBLE, _I), _I)), vectors(_times_swapped), NO_INTERVAL),
    row("div_interval", takes("an INTERVAL and a number", ((_I, S.DOUBLE), _I)), vectors(_divided), _why_divided),
    row("neg_interval", _OF_INTERVAL, vectors(_negative), NO_INTERVAL),
    *(_compared(name, build) for name, build in _COMPARED.items()),
    slow("JUSTIFY_HOURS", _OF_INTERVAL, justify_hours),
    slow("JUSTIFY_DAYS", _OF_INTERVAL, justify_days),
    slow("JUSTIFY_INTERVAL", _OF_INTERVAL, justify_interval),
    slow("MAKE_INTERVAL", takes("years, months, weeks, days, hours and minutes as INTEGER, seconds as DOUBLE; the first"
         " of these or more", *map(_made_with, range(1, 8))), make_interval),
)  # fmt: skip
INTERVALS: dict[str, Function] = {f.name: f for f in _ROWS}

_NUMBERS = (S.SMALLINT, S.INT, S.BIGINT, S.REAL, S.DOUBLE)
TIME_OPERATORS: dict[tuple[str | Type, ...], tuple[str, Type]] = {
    **{("add", t, _I): ("pg.add_interval", t) for t in MOMENTS},
    **{("add", _I, t): ("pg.interval_add_moment", t) for t in MOMENTS},
    **{("sub", t, _I): ("pg.sub_interval", t) for t in MOMENTS},
    ("add", S.DATE, _I): ("pg.date_add_interval", S.TIMESTAMP),
    ("add", _I, S.DATE): ("pg.interval_add_date", S.TIMESTAMP),
    ("sub", S.DATE, _I): ("pg.date_sub_interval", S.TIMESTAMP),
    ("add", S.TIME, _I): ("pg.time_add_interval", S.TIME),
    ("add", _I, S.TIME): ("pg.interval_add_time", S.TIME),
    ("sub", S.TIME, _I): ("pg.time_sub_interval", S.TIME),
    **{("add", S.DATE, t): ("pg.date_add_days", S.DATE) for t in (S.SMALLINT, S.INT)},
    **{("sub", S.DATE, t): ("pg.date_sub_days", S.DATE) for t in (S.SMALLINT, S.INT)},
    **{("add", t, S.DATE): ("pg.days_add_date", S.DATE) for t in (S.SMALLINT, S.INT)},
    ("add", S.DATE, S.TIME): ("pg.date_add_time", S.TIMESTAMP),
    ("add", S.TIME, S.DATE): ("pg.time_add_date", S.TIMESTAMP),
    **{("sub", a, b): ("pg.sub_moments", _I) for a in (*MOMENTS, S.DATE) for b in (*MOMENTS, S.DATE)},
    ("sub", S.DATE, S.DATE): ("pg.sub_dates", S.INT),
    ("sub", S.TIME, S.TIME): ("pg.sub_times", _I),
    ("add", _I, _I): ("pg.add_intervals", _I),
    ("sub", _I, _I): ("pg.sub_intervals", _I),
    **{("mul", _I, t): ("pg.mul_interval", _I) for t in _NUMBERS},
    **{("mul", t, _I): ("pg.interval_mul", _I) for t in _NUMBERS},
    **{("div", _I, t): ("pg.div_interval", _I) for t in _NUMBERS},
    ("neg", _I): ("pg.neg_interval", _I),
    **{(name, _I, _I): (f"pg.interval_{name}", S.BOOLEAN) for name in _COMPARED},
}
"""(operator, types) → (row, type of the result). A NUMERIC counts as DOUBLE. `DATE - INTEGER` is a DATE; a BIGINT is
none of PostgreSQL's days."""


def operator(name: str, *types: Type) -> tuple[str, Type] | None:
    """The row for an operator of these types; None where PostgreSQL has none of times."""
    return TIME_OPERATORS.get((name, *(t if isinstance(t, Scalar) else S.DOUBLE for t in types)))
