"""Functions of dates, times and intervals: cut off, taken apart, made, told apart, moved to zones.

In: typed calls over columns. Out: `TIMES`, rows.
Rule: PostgreSQL 15's: `extract` gives NUMERIC with the digits of its field, `date_part` DOUBLE; a field has all of
PostgreSQL's names. With a zone as last argument, which RisingWave has, the fields are those of the clock there.
`extract`'s field is a constant, since the type of the result comes from it.
"""

from __future__ import annotations

import datetime as py
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from braid.expr.nodes import Call, Expr
from braid.expr.postgres.base import takes
from braid.expr.postgres.calendar import (
    DAY,
    FIRST_US,
    HOUR,
    JULIAN,
    LAST_US,
    MINUTE,
    MOMENTS,
    NO_TIMESTAMP,
    SECOND,
    Flags,
    Ints,
    Kernel,
    Run,
    civil,
    civil_of,
    cut,
    day_number,
    days_of,
    iso_week,
    month_length,
    row,
    slow,
    valid_day,
    valid_moment,
    valid_time,
    vectors,
)
from braid.expr.postgres.interval_text import UNITS
from braid.expr.postgres.zones import Zone, displacement, zone
from braid.expr.signatures import Function, Refused, Resolver, Signature, constant, fails, refusal
from braid.types import Decimal, Scalar, Type

S = Scalar
_TEXT = S.VARCHAR
_SIZES = {"microseconds": 1, "milliseconds": 1000, "second": SECOND, "minute": MINUTE, "hour": HOUR}
_YEARS = {"decade": 10, "century": 100, "millennium": 1000}
_OF_DATE = ("day", "week", "month", "quarter", "year", *_YEARS, "isoyear", "dow", "isodow", "doy", "julian")
_OF_TIME = tuple(_SIZES)
_OF_INTERVAL = (*_OF_TIME, "day", "month", "quarter", "year", *_YEARS)
_ZONED = ("timezone", "timezone_hour", "timezone_minute")
_HAVE: dict[Type, tuple[str, ...]] = {
    S.DATE: (*_OF_DATE, "epoch"),
    S.TIME: (*_OF_TIME, "epoch"),
    S.TIMESTAMP: (*_OF_DATE, *_OF_TIME, "epoch"),
    S.TIMESTAMPTZ: (*_OF_DATE, *_OF_TIME, "epoch", *_ZONED),
    S.INTERVAL: (*_OF_INTERVAL, "epoch"),
}
_FIELDS = {
    **UNITS,
    **{name: name for name in ("isoyear", "dow", "isodow", "doy", "julian", "epoch", "timezone")},
    "j": "julian", "jd": "julian", "timezone_h": "timezone_hour", "timezone_m": "timezone_minute",
}  # fmt: skip
_JULIAN_SCALE = 20
_2000 = 946_684_800  # seconds to the year that PostgreSQL counts from
_NAMES: dict[Type, str] = {
    S.TIMESTAMP: "timestamp without time zone",
    S.TIMESTAMPTZ: "timestamp with time zone",
    S.TIME: "time without time zone",
}


def field_of(text: str, t: Type) -> str:
    """The field of a type that a name is."""
    found = _FIELDS.get(text.lower()[:10])
    if found not in _HAVE[t]:
        name = _NAMES.get(t, str(t).lower())
        raise ValueError(f'unit "{text}" {"not supported" if found else "not recognized"} for type {name}')
    return found


# --------------------------------------------------------------------- date_trunc


def _cut_days(field: str, day: Ints) -> Any:
    """The first day of the week, month, … that a day is in."""
    if field == "day":
        return day
    if field == "week":
        return day - (day + 3) % 7
    year, month, _ = civil_of(day)
    match field:
        case "month":
            return days_of(year, month, 1)
        case "quarter":
            return days_of(year, (month - 1) // 3 * 3 + 1, 1)
        case "decade":
            year = year // 10 * 10
        case "century" | "millennium":
            year = (year - 1) // _YEARS[field] * _YEARS[field] + 1
    return days_of(year, 1, 1)


def _truncated(text: str, us: Ints) -> tuple[Ints, Flags]:
    field = _truncates(text, S.TIMESTAMP)
    found = us - us % _SIZES[field] if field in _SIZES else _cut_days(field, us // DAY) * DAY
    return found, (found >= FIRST_US) & (us >= FIRST_US)


def _truncates(text: str, t: Type) -> str:
    field = field_of(text, t)
    if field not in _SIZES and field not in ("day", "week", "month", "quarter", "year", *_YEARS):
        raise ValueError(f'unit "{text}" not supported for type {_NAMES.get(t, str(t).lower())}')
    return field


def _truncated_there(text: str, name: str, us: Ints) -> tuple[Ints, Flags]:
    there = zone(name)
    offsets = _offsets(there, us)
    local, _ = _truncated(text, us + offsets)
    if _truncates(text, S.TIMESTAMP) not in _SIZES:  # the clocks may have been moved since
        offsets = _offsets_of_local(there, local)
    found = local - offsets
    return found, (found >= FIRST_US) & (us >= FIRST_US)


def _truncated_interval(text: str, months: Ints, days: Ints, us: Ints) -> tuple[Any, bool]:
    if _FIELDS.get(text.lower()[:10]) == "week":
        raise ValueError('unit "week" not supported for type interval')
    field = _truncates(text, S.INTERVAL)
    if field in _SIZES:
        return (months, days, cut(us, _SIZES[field]) * _SIZES[field]), True
    zero = np.zeros_like(us)
    if field == "day":
        return (months, days, zero), True
    size = {"month": 1, "year": 12}.get(field, _YEARS.get(field, 0) * 12)
    if field == "quarter":
        years = cut(months, 12) * 12
        return (years + cut(months - years, 3) * 3, zero, zero), True
    return (cut(months, size) * size, zero, zero), True


# -------------------------------------------------------------------- zone by row


def _by_day(f: Callable[[int], int], us: Ints) -> Ints:
    """`f` of each, in microseconds; where it is the same at a day's two ends it is for the whole day."""
    days, places = np.unique(us // DAY, return_inverse=True)
    starts = np.array([f(int(d) * DAY) for d in days], dtype=np.int64)
    ends = np.array([f(int(d + 1) * DAY) for d in days], dtype=np.int64)
    found: Ints = starts[places]
    odd = np.flatnonzero((starts != ends)[places])
    found[odd] = [f(int(u)) for u in us[odd]]
    return found * SECOND


def _offsets(there: Zone, us: Ints) -> Any:
    return there.east * SECOND if there.name is None else _by_day(there.offset, us)


def _offsets_of_local(there: Zone, us: Ints) -> Any:
    return there.east * SECOND if there.name is None else _by_day(there.offset_of_local, us)


def _inside(us: Ints) -> tuple[Ints, Flags]:
    return us, (us >= FIRST_US) & (us <= LAST_US)


def _to_moment(name: str, local: Ints) -> tuple[Ints, Flags]:
    return _inside(local - _offsets_of_local(zone(name), local))


def _to_local(name: str, us: Ints) -> tuple[Ints, Flags]:
    return _inside(us + _offsets(zone(name), us))


def _by_interval(sign: int) -> Kernel:
    def moved(months: Ints, days: Ints, east: Ints, us: Ints) -> tuple[Ints, Flags]:
        ok = (months == 0) & (days == 0) & (abs(east // SECOND + 0.5) < 1 << 31)
        found, inside = _inside(us + sign * cut(np.where(ok, east, 0), SECOND) * SECOND)
        return found, ok & inside

    return moved


# ---------------------------------------------------------- date_part and extract


def _part_of_day(field: str, day: Ints) -> Any:
    """A whole number of a date; years before 1 count 1 BC as -1."""
    if field == "dow":
        return (day + 4) % 7
    if field == "isodow":
        return (day + 3) % 7 + 1
    if field == "julian":
        return day + JULIAN
    if field in ("week", "isoyear"):
        iso_year, week = iso_week(day)
        return week if field == "week" else np.where(iso_year > 0, iso_year, iso_year - 1)
    year, month, of_month = civil_of(day)
    match field:
        case "year":
            return np.where(year > 0, year, year - 1)
        case "decade":
            return year // 10
        case "century" | "millennium":
            found = (year - 1) // _YEARS[field] + 1
            return np.where(found > 0, found, found - 1)
        case "doy":
            return day - days_of(year, 1, 1) + 1
        case "quarter":
            return (month - 1) // 3 + 1
    return month if field == "month" else of_month


def _part_of_time(field: str, us: Ints) -> Any:
    """A whole number of the time of a day; seconds and less are microseconds."""
    if field == "hour":
        return cut(us, HOUR)
    minutes = cut(us, MINUTE)
    return minutes - cut(us, HOUR) * 60 if field == "minute" else us - minutes * MINUTE


def _part_of_interval(field: str, months: Ints, days: Ints, us: Ints) -> Any:
    if field in _SIZES:
        return _part_of_time(field, us)
    years = cut(months, 12)
    match field:
        case "day":
            return days
        case "month":
            return months - years * 12
        case "quarter":
            return cut(months - years * 12, 3) + 1
    return cut(years, {"year": 1}.get(field, 0) or _YEARS[field])


def _exact(t: Type) -> Kernel:
    """`extract`: whole numbers of the last digit of the result."""

    def part(text: str, *arrays: Ints) -> tuple[Any, bool]:
        field, us = field_of(text, t), arrays[-1]
        if field in _ZONED:
            return np.zeros_like(us), True
        if t is S.DATE:
            return (us * 86_400 if field == "epoch" else _part_of_day(field, us)), True
        if t is S.INTERVAL:
            return (_epoch(*arrays) if field == "epoch" else _part_of_interval(field, *arrays)), True
        if field == "epoch":
            return us, True
        if field == "julian":
            size, half = 10**_JULIAN_SCALE, DAY // 2
            return ((us.astype(object) + JULIAN * DAY) * size + half) // DAY, True
        return (_part_of_time(field, us % DAY) if field in _SIZES else _part_of_day(field, us // DAY)), True

    return part


def _epoch(months: Ints, days: Ints, us: Ints) -> Any:
    """Microseconds, of years of 365.25 days; more than 64 bits."""
    years = cut(months, 12)
    seconds = years * 31_557_600 + (months - years * 12) * 2_592_000 + days * 86_400
    return seconds.astype(object) * SECOND + us


def _digits(field: str, t: Type) -> Decimal:
    """What `extract` gives."""
    match field:
        case "second":
            return Decimal(8, 6)
        case "milliseconds":
            return Decimal(8, 3)
        case "epoch" if t is S.DATE:
            return Decimal(14, 0)
        case "epoch":
            return Decimal(22, 6)
        case "julian" if t in MOMENTS:
            return Decimal(8 + _JULIAN_SCALE, _JULIAN_SCALE)
    return Decimal(10, 0)


def _double(t: Type) -> Kernel:
    """`date_part`."""

    def part(text: str, *arrays: Ints) -> tuple[Any, Flags | bool]:
        if t is S.DATE:  # as a timestamp, which has hours
            return _double(S.TIMESTAMP)(text, arrays[0] * DAY)
        field, us = field_of(text, t), arrays[-1]
        if field == "epoch" and t is S.INTERVAL:
            months, days = arrays[0], arrays[1]
            years = cut(months, 12)
            return us / 1e6 + 31_557_600.0 * years + 2_592_000.0 * (months - years * 12) + 86_400.0 * days, True
        if field == "epoch":
            return us / 1e6, True
        if field == "julian":
            of_day = us % DAY
            return us // DAY + JULIAN + (of_day // SECOND + of_day % SECOND / 1e6) / 86_400.0, True
        value, _ = _exact(t)(text, *arrays)
        if field in ("second", "milliseconds"):
            seconds = cut(value, SECOND)
            scale = 1.0 if field == "second" else 1000.0
            return seconds * scale + (value - seconds * SECOND) / (1e6 / scale), True
        return value.astype(np.float64), True

    return part


def _double_there(text: str, name: str, us: Ints) -> tuple[Any, Flags | bool]:
    field, there = field_of(text, S.TIMESTAMPTZ), zone(name)
    if field == "epoch":
        return us / 1e6, True
    offsets = _offsets(there, us)
    if field in _ZONED:
        seconds = cut(offsets + np.zeros_like(us), SECOND)
        hours = cut(seconds, 3600)
        parts = {"timezone": seconds, "timezone_hour": hours, "timezone_minute": cut(seconds - hours * 3600, 60)}
        return parts[field].astype(np.float64), True
    return _double(S.TIMESTAMP)(text, us + offsets)


def _resolve_extract(args: Sequence[Expr]) -> Signature | Refused:
    usage = "it takes a field and a date, a time or an INTERVAL"
    text, source = (constant(args[0]), args[1].type) if len(args) == 2 else (None, S.NULL)
    if source not in _HAVE or args[0].type is not _TEXT:
        return Refused(usage)
    if not isinstance(text, str):
        return Refused("its field is a constant, which gives the result's type", "use date_part")
    try:
        return Signature((_TEXT, source), _digits(field_of(text, source), source))
    except ValueError as e:
        return Refused(str(e), f"its fields are {', '.join(_HAVE[source])}")


# ------------------------------------------------------------------ age, date_bin


def _age(first: Ints, second: Ints) -> tuple[Any, Flags]:
    """Years, months, days and time from the earlier to the later; a month of the earlier is lent to days."""
    sign = np.where(first < second, -1, 1)
    later, earlier = np.maximum(first, second), np.minimum(first, second)
    year, month, day = civil_of(earlier // DAY)
    to_year, to_month, to_day = civil_of(later // DAY)
    us = later % DAY - earlier % DAY
    days = to_day - day - (us < 0)
    lent = days < 0
    days = days + np.where(lent, month_length(year, month), 0)
    months = (to_year - year) * 12 + to_month - month - lent
    return (sign * months, sign * days, sign * (us % DAY)), earlier >= FIRST_US


def _bins(months: Ints, days: Ints, us: Ints, at: Ints, origin: Ints) -> tuple[Ints, Flags]:
    wide = abs(days) < 1 << 26
    stride = np.where(wide, days, 0) * DAY + us
    ok = (months == 0) & wide & ((stride > us) == (days > 0)) & (stride > 0)
    found, inside = _inside(at - (at - origin) % np.where(ok, stride, 1))
    return found, ok & inside


def _why_bin(stride: object, at: object, origin: object) -> str:
    if isinstance(stride, dict) and stride["months"]:
        return "timestamps cannot be binned into intervals containing months or years"
    return "stride must be greater than zero, and the timestamp in range"


# ------------------------------------------------------------------------- made


def make_date(year: int, month: int, day: int) -> int:
    """A negative year is before Christ."""
    of_calendar = year + 1 if year < 0 else year
    if year == 0 or abs(year) > 300_000 or not 1 <= month <= 12 or not 1 <= day <= 31:
        raise ValueError(f"date field value out of range: {year}-{month:02}-{day:02}")
    found = day_number(of_calendar, month, day)
    if civil(found)[2] != day:
        raise ValueError(f"date field value out of range: {year}-{month:02}-{day:02}")
    return valid_day(found)


def _clock(hour: int, minute: int, second: float) -> int:
    us = round(second * 1e6) if 0 <= second <= 60 else -1
    total = hour * HOUR + minute * MINUTE + us
    if hour < 0 or not 0 <= minute <= 59 or not 0 <= us <= MINUTE or total > DAY:
        raise ValueError(f"time field value out of range: {hour}:{minute:02}:{second:02g}")
    return total


def make_time(hour: int, minute: int, second: float) -> int:
    return valid_time(_clock(hour, minute, second))


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> int:
    return valid_moment(make_date(year, month, day) * DAY + _clock(hour, minute, second))


def make_timestamptz(year: int, month: int, day: int, hour: int, minute: int, second: float, name: str = "UTC") -> int:
    """The local time of a zone; `+2` is east here."""
    local = make_date(year, month, day) * DAY + _clock(hour, minute, second)
    east = displacement(name)
    if name[:1].isdigit():
        raise ValueError(f'invalid input syntax for type numeric time zone: "{name}"')
    return valid_moment((zone(name) if east is None else Zone(None, east)).moment(local))


def of_seconds(seconds: Any) -> tuple[Ints, Flags]:
    """Rounded as PostgreSQL's seconds since 2000 are."""
    us = np.rint((seconds - _2000) * 1e6) + _2000 * 1e6
    ok = (us >= FIRST_US) & (us <= LAST_US)
    since = np.rint((np.where(ok, seconds, 0) - _2000) * 1e6).astype(np.int64)
    return _inside(since + _2000 * SECOND)[0], ok


# ------------------------------------------------------------------------ table


def _chosen(choose: Callable[[Call], Kernel]) -> Run:
    """By the types of the arguments."""
    return lambda call, columns: vectors(choose(call))(call, columns)


def _trunc(call: Call) -> Kernel:
    if len(call.args) == 3:
        return _truncated_there
    return _truncated_interval if call.type is S.INTERVAL else _truncated


def _part(call: Call) -> Kernel:
    return _double_there if len(call.args) == 3 else _double(call.args[1].type)


def _zoned(call: Call) -> Kernel:
    local = call.args[1].type is S.TIMESTAMP
    if call.args[0].type is S.INTERVAL:
        return _by_interval(-1 if local else 1)
    return _to_moment if local else _to_local


def _why_field(f: Callable[[str, Type], object]) -> Callable[..., str]:
    def why(text: object, value: object, name: object = "UTC") -> str:
        return refusal(zone)(str(name)) or refusal(f)(str(text), _type_of(value)) or NO_TIMESTAMP

    return why


def _type_of(value: object) -> Type:
    match value:
        case py.time():
            return S.TIME
        case dict():
            return S.INTERVAL
        case py.datetime(tzinfo=None) | py.date():
            return S.TIMESTAMP
    return S.TIMESTAMPTZ


def _why_zone(name: object, value: object) -> str:
    return (refusal(zone)(name) if isinstance(name, str) else "") or NO_TIMESTAMP


def _of_fields(resolve: Resolver, check: Callable[[str, Type], object]) -> Resolver:
    """A constant field that a type has not is refused at once. A DATE has those of a TIMESTAMP, which it becomes."""

    def resolved(args: Sequence[Expr]) -> Signature | Refused:
        found = resolve(args)
        field = constant(args[0]) if args else None
        if isinstance(found, Signature) and isinstance(field, str):
            t = S.TIMESTAMP if found.args[1] is S.DATE else found.args[1]
            try:
                check(field, t)
            except ValueError as e:
                fields = [name for name in _HAVE[t] if not fails(check)(name, t)]
                return Refused(str(e), f"its fields are {', '.join(fields)}")
        return found

    return resolved


_AT = (S.TIMESTAMPTZ, S.TIMESTAMP)  # a DATE becomes the first
_OTHER = {S.TIMESTAMP: S.TIMESTAMPTZ, S.TIMESTAMPTZ: S.TIMESTAMP}
_INTS = (S.INT,) * 3
_CLOCK = (S.INT, S.INT, S.DOUBLE)
_ROWS = (
    row("DATE_TRUNC", _of_fields(takes("a field, a time or an INTERVAL, and of a TIMESTAMPTZ maybe a zone",
        *(((_TEXT, t), t) for t in (*_AT, S.INTERVAL)), ((_TEXT, S.TIMESTAMPTZ, _TEXT), S.TIMESTAMPTZ)), _truncates),
        _chosen(_trunc), _why_field(_truncates)),
    row("EXTRACT", _resolve_extract, _chosen(lambda call: _exact(call.args[1].type)), ""),
    row("DATE_PART", _of_fields(takes("a field, a date, a time or an INTERVAL, and of a TIMESTAMPTZ maybe a zone",
        *(((_TEXT, t), S.DOUBLE) for t in _HAVE), ((_TEXT, S.TIMESTAMPTZ, _TEXT), S.DOUBLE)), field_of),
        _chosen(_part), _why_field(field_of)),
    row("AGE", takes("two times", *(((t, t), S.INTERVAL) for t in _AT)), vectors(_age), NO_TIMESTAMP),
    row("DATE_BIN", takes("an INTERVAL and two times", *(((S.INTERVAL, t, t), t) for t in _AT)), vectors(_bins),
        _why_bin),
    row("TIMEZONE", takes("a zone and a time", *(((z, t), _OTHER[t]) for z in (_TEXT, S.INTERVAL) for t in _AT)),
        _chosen(_zoned), _why_zone),
    slow("MAKE_DATE", takes("a year, a month and a day", (_INTS, S.DATE)), make_date),
    slow("MAKE_TIME", takes("hours, minutes and seconds", (_CLOCK, S.TIME)), make_time),
    slow("MAKE_TIMESTAMP", takes("a year, a month, a day, hours, minutes and seconds",
         ((*_INTS, *_CLOCK), S.TIMESTAMP)), make_timestamp),
    slow("MAKE_TIMESTAMPTZ", takes("a year, a month, a day, hours, minutes and seconds, and maybe a zone",
         ((*_INTS, *_CLOCK), S.TIMESTAMPTZ), ((*_INTS, *_CLOCK, _TEXT), S.TIMESTAMPTZ)), make_timestamptz),
)  # fmt: skip
TIMES: dict[str, Function] = {f.name: f for f in _ROWS}
