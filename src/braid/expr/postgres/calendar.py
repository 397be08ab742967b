"""Days and microseconds: the calendar, the limits, and rows of functions whose values are these numbers.

In: numbers since 1970, columns of dates and times. Out: their fields, and `Function` rows.
Rule: the Gregorian calendar in both directions, the year before 1 is 0. Nothing here is a datetime object, which has
the years 1 to 9999 only. A DATE is an int of days; a TIME, a TIMESTAMP and a TIMESTAMPTZ are one of microseconds; an
INTERVAL is (months, days, microseconds).
"""

from __future__ import annotations

import datetime as py
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from braid.expr.nodes import Call
from braid.expr.postgres.base import parts
from braid.expr.postgres.base import row as one_row
from braid.expr.rows import made
from braid.expr.signatures import Function, Resolver, constant, refusal
from braid.types import MAX_DAY, Decimal, Scalar, Type, polars_type

S = Scalar
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Interval = tuple[int, int, int]
Run = Callable[[Call, list[pl.Series]], tuple[pl.Series, pl.Series]]

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
JULIAN = 2_440_588  # the Julian day of 1970-01-01
FIRST_DAY, LAST_DAY = -JULIAN, MAX_DAY - 1  # PostgreSQL begins with Julian day 0, Braid's calendar ends first
FIRST_US, LAST_US = FIRST_DAY * DAY, MAX_DAY * DAY - 1
LAST_ON_THE_WAY = 106_751_982  # the last day that PostgreSQL's timestamps have, for what is between two steps
LONG = 1 << 63
MOMENTS = (S.TIMESTAMP, S.TIMESTAMPTZ)
NO_TIMESTAMP, NO_DATE, NO_INTERVAL = "timestamp out of range", "date out of range", "interval out of range"


# ---------------------------------------------------------------- the calendar


def days_of(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970; of numbers, or of arrays of them."""
    y = year - (month <= 2)
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_of(days: Any) -> tuple[Any, Any, Any]:
    """Year, month and day of days since 1970; of a number, or of an array of them."""
    z = days + 719_468
    era = z // 146_097
    of_era = z - era * 146_097
    y = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * y + y // 4 - y // 100)
    m = (5 * of_year + 2) // 153
    month = m + np.where(m < 10, 3, -9)
    return y + era * 400 + (month <= 2), month, of_year - (153 * m + 2) // 5 + 1


def day_number(year: int, month: int, day: int) -> int:
    """`days_of`, of plain numbers."""
    y = year - (month <= 2)
    era, of_era = divmod(y, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil(days: int) -> tuple[int, int, int]:
    """`civil_of`, of a plain number."""
    era, of_era = divmod(days + 719_468, 146_097)
    y = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * y + y // 4 - y // 100)
    m = (5 * of_year + 2) // 153
    month = m + (3 if m < 10 else -9)
    return y + era * 400 + (month <= 2), month, of_year - (153 * m + 2) // 5 + 1


def month_length(year: Any, month: Any) -> Any:
    """Days of the month; of numbers, or of arrays of them."""
    return days_of(year + month // 12, month % 12 + 1, 1) - days_of(year, month, 1)


def iso_week(days: Any) -> tuple[Any, Any]:
    """The year and the week that ISO 8601 counts this day in; of a number, or of an array of them."""
    thursday = days - (days + 3) % 7 + 3
    year = civil_of(thursday)[0]
    return year, (thursday - days_of(year, 1, 1)) // 7 + 1


def clock(us: int) -> tuple[int, int, int, int]:
    """Hours, minutes, seconds and microseconds of a time of day or an interval's; all have its sign."""
    sign = -1 if us < 0 else 1
    minutes, rest = divmod(abs(us), MINUTE)
    return sign * (minutes // 60), sign * (minutes % 60), sign * (rest // SECOND), sign * (rest % SECOND)


def cut(a: Any, b: Any) -> Any:
    """a / b towards zero, which `//` is not; of arrays."""
    return (a - np.fmod(a, b)) // b


def valid_day(days: int) -> int:
    if not FIRST_DAY <= days <= LAST_DAY:
        raise ValueError(NO_DATE)
    return days


def valid_moment(us: int) -> int:
    if not FIRST_US <= us <= LAST_US:
        raise ValueError(NO_TIMESTAMP)
    return us


def valid_time(us: int) -> int:
    """PostgreSQL has 24:00:00, RisingWave's TIME and Braid's have not."""
    if not 0 <= us < DAY:
        raise ValueError("time field value out of range")
    return us


def valid_interval(months: int, days: int, us: int) -> Interval:
    whole = 1 << 31
    if not (-whole <= months < whole and -whole <= days < whole and -LONG <= us < LONG):
        raise ValueError(NO_INTERVAL)
    return months, days, us


# ------------------------------------------------------------- values as numbers


def number(value: object) -> object:
    """A value as the functions here take it: an object of Python's, or the number already."""
    match value:
        case py.datetime():
            return (value.replace(tzinfo=None) - py.datetime(1970, 1, 1)) // py.timedelta(microseconds=1)
        case py.date():
            return value.toordinal() - 719_163
        case py.time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * SECOND + value.microsecond
        case {"months": months, "days": days, "us": us}:
            return months, days, us
    return value


def physical(s: pl.Series, t: Type) -> pl.Series:
    """A column as numbers; an INTERVAL stays a structure of them."""
    match t:
        case S.DATE | S.TIMESTAMP | S.TIMESTAMPTZ:
            return s.to_physical().cast(pl.Int64)
        case S.TIME:
            return s.to_physical().cast(pl.Int64) // 1000
    return s


def listed(s: pl.Series, t: Type) -> list[Any]:
    """The values as the functions here take them."""
    if t is S.INTERVAL:
        return [None if v is None else (v["months"], v["days"], v["us"]) for v in s.to_list()]
    return physical(s, t).to_list()


def column(values: Sequence[Any], t: Type) -> pl.Series:
    """The inverse of `listed`."""
    match t:
        case S.INTERVAL:
            found = [None if v is None else dict(zip(("months", "days", "us"), v, strict=True)) for v in values]
            return made("", found, polars_type(t))
        case S.TIME:
            return pl.Series([None if v is None else v * 1000 for v in values], dtype=pl.Int64).cast(pl.Time)
        case S.DATE:
            return pl.Series(values, dtype=pl.Int32).cast(pl.Date)
        case S.TIMESTAMP | S.TIMESTAMPTZ:
            return pl.Series(values, dtype=pl.Int64).cast(pl.Datetime("us"))
    return pl.Series(values, dtype=polars_type(t))


# ------------------------------------------------------------------------- rows


def row(names: str, resolve: Resolver, run: Run, why: Callable[..., str] | str) -> Function:
    """A row of what gives values and failures at once (`base.row` says what `names` are)."""
    return one_row(names, resolve, parts(run, why))


def slow(names: str, resolve: Resolver, f: Callable[..., object]) -> Function:
    """A row of a Python function of numbers, called once for equal arguments; it raises `ValueError` with a reason."""
    why = refusal(lambda *values: f(*map(number, values)))
    return row(names, resolve, lambda call, columns: each(f, call, columns), why)


def each(f: Callable[..., object], call: Call, columns: list[pl.Series]) -> tuple[pl.Series, pl.Series]:
    """`f` of each row, and where it raises."""
    known: dict[tuple[Any, ...], tuple[object, bool]] = {}
    found: list[tuple[object, bool]] = []
    lists = [listed(c, a.type) for c, a in zip(columns, call.args, strict=True)]
    for args in zip(*lists, strict=True):
        if args not in known:
            try:
                known[args] = (None if any(v is None for v in args) else f(*args), False)
            except ValueError:
                known[args] = (None, True)
        found.append(known[args])
    return column([v for v, _ in found], call.type), pl.Series([bad for _, bad in found], dtype=pl.Boolean)


Kernel = Callable[..., tuple[Any, Flags | bool]]


def vectors(kernel: Kernel) -> Run:
    """Of a function of NumPy's arrays, which gives an array (three of an INTERVAL, which it gets as three) and where
    it is right. Before its arrays it gets the constant or otherwise each text, which stand first."""

    def run(call: Call, columns: list[pl.Series]) -> tuple[pl.Series, pl.Series]:
        texts = [i for i, a in enumerate(call.args) if a.type is S.VARCHAR]
        if all(isinstance(constant(call.args[i]), str) for i in texts):
            return _computed(kernel, [constant(call.args[i]) for i in texts], call, columns)
        frame = pl.DataFrame([c.alias(str(i)) for i, c in enumerate(columns)]).with_row_index("at")
        values = pl.Series([None], dtype=polars_type(call.type)).new_from_index(0, frame.height)
        failures = pl.Series([False]).new_from_index(0, frame.height)
        keys = [str(i) for i in texts]
        parts = []
        for some in frame.drop_nulls(keys).partition_by(keys, maintain_order=True):
            given = [some[k][0] for k in keys]
            value, bad = _computed(kernel, given, call, some.drop("at").get_columns())
            parts.append(pl.DataFrame([some["at"], value.alias("value"), bad.alias("bad")]))
        if not parts:
            return values, failures
        done = frame.select("at").join(pl.concat(parts), on="at", how="left", maintain_order="left")
        return done["value"], done["bad"].fill_null(False)

    return run


def _computed(kernel: Kernel, texts: list[Any], call: Call, columns: list[pl.Series]) -> tuple[pl.Series, pl.Series]:
    pairs = [(c, a.type) for c, a in zip(columns, call.args, strict=True) if a.type is not S.VARCHAR]
    height = len(columns[0])
    there = np.ones(height, dtype=np.bool_)
    for c, _ in pairs:
        there &= c.is_not_null().to_numpy()
    arrays: list[Any] = [array for c, t in pairs for array in _arrays(c, t)]
    try:
        with np.errstate(all="ignore"):
            value, ok = kernel(*texts, *arrays)
    except ValueError:  # what the texts say is wrong for all
        return column([None] * height, call.type), pl.Series(there)
    ok = np.broadcast_to(np.asarray(ok), (height,))
    return _column(value, there & ok, call.type), pl.Series(there & ~ok)


def _arrays(s: pl.Series, t: Type) -> list[npt.NDArray[Any]]:
    if t is S.INTERVAL:
        return [s.struct.field(n).cast(pl.Int64).fill_null(0).to_numpy() for n in ("months", "days", "us")]
    values = physical(s, t)
    return [(values if t is S.DOUBLE else values.cast(pl.Int64)).fill_null(0).to_numpy()]


def _decimals(units: npt.NDArray[Any], valid: Flags, t: Decimal) -> pl.Series:
    """Of whole numbers of the last digit. Arrow's form, 128 bits each, is filled directly."""
    halves = np.empty((len(units), 2), dtype=np.int64)
    halves[:, 0] = (
        units if units.dtype == np.int64 else (units & 0xFFFF_FFFF_FFFF_FFFF).astype(np.uint64).view(np.int64)
    )
    halves[:, 1] = (units >> 63 if units.dtype == np.int64 else units >> 64).astype(np.int64)
    buffers = [pa.array(valid).buffers()[1], pa.py_buffer(halves)]
    found = pl.from_arrow(pa.Array.from_buffers(pa.decimal128(t.precision, t.scale), len(units), buffers))
    assert isinstance(found, pl.Series)
    return found.cast(polars_type(t))


def _column(value: Any, valid: Flags, t: Type) -> pl.Series:
    def typed(array: Any, dtype: pl.DataType) -> pl.Series:
        return pl.Series(np.where(valid, array, 0)).cast(dtype)

    if isinstance(t, Decimal):
        return _decimals(np.where(valid, value, 0), valid, t)
    keep = pl.Series("valid", valid)
    if t is S.INTERVAL:
        months, days, us = value
        fields = [typed(months, pl.Int32()), typed(days, pl.Int32()), typed(us, pl.Int64())]
        parts = pl.struct([f.alias(n) for n, f in zip(("months", "days", "us"), fields, strict=True)], eager=True)
    elif t is S.TIME:
        parts = typed(value * 1000, pl.Int64()).cast(pl.Time)
    elif t in (S.DATE, *MOMENTS):
        parts = typed(value, pl.Int32() if t is S.DATE else pl.Int64()).cast(polars_type(t))
    else:
        parts = typed(value, polars_type(t))
    return pl.select(pl.when(keep).then(parts)).to_series()
