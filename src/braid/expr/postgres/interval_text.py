"""Text of intervals: how PostgreSQL reads it and writes it (IntervalStyle postgres).

In: texts, and intervals as (months, days, microseconds). Out: the other.
Rule: `1 year 2 mons -3 days 04:05:06.5`, `1-2`, `@ 1 hour ago`, ISO 8601's `P1Y2M3DT4H5M6S`. What is broken of a year
is months, of a month or week days, of a day or less microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from braid.expr.postgres.calendar import DAY, HOUR, LONG, MINUTE, SECOND, Interval, clock, valid_interval
from braid.expr.postgres.moments import Outside, Unreadable, fraction, split

_FIELD_OUT = 'interval field value out of range: "{}"'

# Names of units, of which PostgreSQL reads ten characters.
UNITS: dict[str, str] = {
    word: unit
    for unit, words in {
        "microseconds": "us usec usecs usecond useconds microsecon",
        "milliseconds": "ms msec msecs msecond mseconds millisecon",
        "second": "s sec secs second seconds",
        "minute": "m min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "d day days",
        "week": "w week weeks",
        "month": "mon mons month months",
        "quarter": "qtr quarter",
        "year": "y yr yrs year years",
        "decade": "dec decs decade decades",
        "century": "c cent century centuries",
        "millennium": "mil mils millennium millennia",
    }.items()
    for word in words.split()
}
_US = {"microseconds": 1, "milliseconds": 1000, "second": SECOND, "minute": MINUTE, "hour": HOUR}
_SECONDS = ("second", "milliseconds", "microseconds")
_YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}
_CLOCK = re.compile(r"([0-9]+):([0-9]*)(?::([0-9]*)(\.[0-9]*)?|(\.[0-9]*))?")
_NUMBER = re.compile(r"([+-]?[0-9]*)(?:(\.[0-9]*)|-([0-9]+))?")
_ISO_NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ISO_UNITS = ({"Y": "year", "M": "month", "W": "week", "D": "day"}, {"H": "hour", "M": "minute", "S": "second"})
_ISO_DATE = re.compile(r"P([0-9]+)(?:-([0-9]+)(?:-([0-9]+))?)?(?=T|$)")
_ISO_TIME = re.compile(
    r"T(?:([0-9]{2})([0-9]{2})([0-9]{2}(?:\.[0-9]*)?)|([0-9]+)(?::([0-9]+)(?::([0-9]+(?:\.[0-9]*)?))?)?)$"
)


class _Sum:
    """The parts that were read so far."""

    def __init__(self) -> None:
        self.months = self.days = self.us = self.years = 0
        self.seen: set[str] = set()

    def add(self, value: int, broken: float, unit: str) -> None:
        if unit in _US:
            self.us += value * _US[unit]
            self._add_time(broken * _US[unit])
        elif unit == "day":
            self.days += value
            self._add_time(broken * DAY)
        elif unit in ("week", "month"):
            if unit == "week":
                self.days += value * 7
            else:
                self.months += value
            days = broken * (7 if unit == "week" else 30)
            self.days += int(days)
            self._add_time((days - int(days)) * DAY)
        elif unit in _YEARS:
            self.years += value * _YEARS[unit]
            self.months += round(broken * _YEARS[unit] * 12)
        else:
            raise Unreadable
        self._check()

    def _add_time(self, us: float) -> None:
        whole = int(us)
        left = us - whole
        self.us += whole + (left > 0.5) - (left < -0.5)

    def _check(self) -> None:
        whole = 1 << 31
        inside = all(-whole <= n < whole for n in (self.months, self.days, self.years))
        if not inside or not -LONG <= self.us < LONG:
            raise Outside

    def once(self, *parts: str) -> None:
        """Each part of an interval stands once."""
        if self.seen & set(parts):
            raise Unreadable
        self.seen |= set(parts)

    def interval(self, sign: int) -> Interval:
        return valid_interval((self.years * 12 + self.months) * sign, self.days * sign, self.us * sign)


def interval_of_text(text: str) -> Interval:
    """Months, days and microseconds."""
    try:
        try:
            return _plain(text)
        except Unreadable:
            return _iso(text)
    except Unreadable:
        raise ValueError(f'invalid input syntax for type interval: "{text}"') from None
    except Outside:
        raise ValueError(_FIELD_OUT.format(text)) from None


def _plain(text: str) -> Interval:
    """From its end on, since a unit stands behind its number."""
    total, unit, sign = _Sum(), "", 1
    for kind, field in reversed(split(text)):
        if kind == "time":
            _add_clock(total, field, 1)
            unit = "day"
        elif kind == "zone" and ":" in field and _CLOCK.fullmatch(field[1:].lstrip()):
            _add_clock(total, field[1:].lstrip(), -1 if field[0] == "-" else 1)
            unit = "day"
        elif kind in ("zone", "date", "number"):
            unit = _add_number(total, field[0] + field[1:].lstrip(), unit or "second")
        elif kind == "word" and field == "ago":
            sign = -1
        elif kind == "word" and field[:10] in UNITS:
            unit = UNITS[field[:10]]
        else:
            raise Unreadable
    if not total.seen:
        raise Unreadable
    return total.interval(sign)


def _add_clock(total: _Sum, text: str, sign: int) -> None:
    m = _CLOCK.fullmatch(text)
    if m is None:
        raise Unreadable
    hour, minute, second = int(m[1]), int(m[2] or 0), int(m[3] or 0)
    if m[5] is not None:
        hour, minute, second = 0, hour, minute
    if minute > 59 or second > 60 or hour >= LONG:
        raise Outside
    total.once("hour", "minute", *_SECONDS)
    us = sign * (hour * HOUR + minute * MINUTE + second * SECOND + fraction(m[4] or m[5] or ""))
    if not -LONG <= us < LONG:
        raise Outside
    total.us = us


def _add_number(total: _Sum, text: str, unit: str) -> str:
    """Adds it; the unit of a number before that has none."""
    m = _NUMBER.fullmatch(text)
    if m is None or not re.search("[0-9]", text):
        raise Unreadable
    value = int(m[1]) if m[1] not in ("", "+", "-") else 0
    if not -LONG <= value < LONG:
        raise Outside
    sign = -1 if text[0] == "-" else 1
    broken = sign * float(f"0{m[2]}") if m[2] and len(m[2]) > 1 else 0.0
    if m[3] is not None:  # 1-2: years and months
        if int(m[3]) > 11:
            raise Outside
        unit, value = "month", value * 12 + sign * int(m[3])
    total.add(value, broken, unit)
    total.once(*(_SECONDS if unit == "second" and broken else (unit,)))
    return "day" if unit == "hour" else unit


def _iso(text: str) -> Interval:
    if len(text) < 2 or text[0] != "P":
        raise Unreadable
    total = _Sum()
    rest, of_time = text[1:], 0
    if m := _ISO_DATE.match(text):  # P0001-02-03T04:05:06
        _add_all(total, zip(("year", "month", "day"), _date_parts(m), strict=True))
        rest = text[m.end() :]
    while rest:
        if m := _ISO_TIME.match(rest):
            parts = m.groups()
            _add_all(total, zip(("hour", "minute", "second"), parts[:3] if parts[0] else parts[3:], strict=True))
            break
        if rest[0] == "T":
            rest, of_time = rest[1:], 1
            continue
        found = _ISO_NUMBER.match(rest)
        if found is None or rest[found.end() : found.end() + 1] not in _ISO_UNITS[of_time]:
            raise Unreadable
        _add_all(total, [(_ISO_UNITS[of_time][rest[found.end()]], found[0])])
        rest = rest[found.end() + 1 :]
    return total.interval(1)


def _date_parts(m: re.Match[str]) -> tuple[str | None, ...]:
    if len(m[1]) == 8 and m[2] is None:  # P00010203
        return m[1][:4], m[1][4:6], m[1][6:]
    return m.groups()


def _add_all(total: _Sum, parts: Iterable[tuple[str, str | None]]) -> None:
    for unit, text in parts:
        value = float(text or 0)
        if abs(value) >= LONG:
            raise Outside
        total.add(int(value), value - int(value), unit)


# --------------------------------------------------------------------- written


def text_of_interval(x: Interval) -> str:
    """`1 year 2 mons 3 days 04:05:06.5`; a plus stands after a part that is negative."""
    months, days, us = x
    years = months // 12 if months >= 0 else -(-months // 12)
    parts: list[str] = []
    before = False
    for value, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if value:
            parts.append(f"{'+' if before and value > 0 else ''}{value} {unit}{'' if value == 1 else 's'}")
            before = value < 0
    if us or not parts:
        sign = "-" if us < 0 else "+" if before else ""
        hour, minute, second, micro = (abs(n) for n in clock(us))
        broken = f".{micro:06}".rstrip("0") if micro else ""
        parts.append(f"{sign}{hour:02}:{minute:02}:{second:02}{broken}")
    return " ".join(parts)
