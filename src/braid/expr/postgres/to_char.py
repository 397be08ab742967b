"""TO_CHAR, and the patterns that it shares with TO_DATE and TO_TIMESTAMP.

In: a time or an interval, and a pattern such as 'YYYY-MM-DD HH24:MI:SS'. Out: text; the row.
Rule: PostgreSQL's patterns, each in the letters that it has; anything else stands for itself, as does text in double
quotes. TO_CHAR of numbers is none of RisingWave's (docs.risingwave.com/sql/functions/datetime). The zone is UTC. An
empty pattern gives null, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import polars as pl

from braid.expr.nodes import Call
from braid.expr.postgres.base import takes
from braid.expr.postgres.calendar import DAY, JULIAN, SECOND, Interval, civil, clock, each, row
from braid.expr.postgres.moments import DAYS, MONTHS
from braid.expr.signatures import Function, constant
from braid.types import Scalar, Type

S = Scalar
_UPPER = set(
    """A.D. A.M. AD AM B.C. BC CC DAY DDD DD DY D FF1 FF2 FF3 FF4 FF5 FF6 FX HH24 HH12 HH IDDD ID IW IYYY IYY IY I J MI
    MM MONTH MON MS OF P.M. PM Q RM SSSSS SSSS SS TZH TZM TZ US WW W Y,YYY YYYY YYY YY Y""".split()  # noqa: SIM905
)
_KEYS = sorted({*_UPPER, *(k.lower() for k in _UPPER), "Day", "Dy", "Month", "Mon"}, key=len, reverse=True)
_SEPARATORS = frozenset(map(chr, range(33, 127))) - frozenset(c for c in map(chr, range(128)) if c.isalnum())
ROMAN = ("xii", "xi", "x", "ix", "viii", "vii", "vi", "v", "iv", "iii", "ii", "i")
LONGEST = 10_000  # characters of a pattern


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a pattern: a key in upper case, or one character. `text`: as it is written; `th`: TH or th."""

    key: str
    text: str
    fill: bool = False
    th: str = ""
    kind: str = "key"


@lru_cache(maxsize=1000)
def parts(pattern: str) -> tuple[Part, ...]:
    """The pattern, taken apart."""
    if len(pattern) > LONGEST:
        raise ValueError(f"the pattern has more than {LONGEST} characters")
    found: list[Part] = []
    at = 0
    while at < len(pattern):
        prefix = pattern[at : at + 2] if pattern[at : at + 2] in ("FM", "fm", "TM", "tm", "SP") else ""
        at += len(prefix)
        key = next((k for k in _KEYS if pattern.startswith(k, at)), None)
        if key is not None:
            at += len(key)
            th = pattern[at : at + 2] if pattern[at : at + 2] in ("TH", "th", "SP") else ""
            at += len(th)
            fill = prefix in ("FM", "fm") or (prefix != "" and key.upper() in ("DAY", "MONTH"))
            found.append(Part(key.upper(), key, fill, th.replace("SP", "")))
        elif pattern.startswith('"', at):
            at = _quoted(pattern, at + 1, found)
        elif at < len(pattern):
            at += pattern.startswith('\\"', at)
            c = pattern[at]
            kind = "separator" if c in _SEPARATORS else "space" if c.isspace() else "character"
            found.append(Part("", c, kind=kind))
            at += 1
    return tuple(found)


def _quoted(pattern: str, at: int, found: list[Part]) -> int:
    while at < len(pattern):
        if pattern[at] == '"':
            return at + 1
        at += pattern[at] == "\\" and at + 1 < len(pattern)
        found.append(Part("", pattern[at], kind="character"))
        at += 1
    return at


# ------------------------------------------------------------------ of the calendar


def _quotient(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


def julian_day(year: int, month: int, day: int) -> int:
    """As PostgreSQL counts it, of intervals' parts too, whose months may be negative or zero."""
    late = month > 2
    m, y = month + (1 if late else 13), year + (4800 if late else 4799)
    century = _quotient(y, 100)
    leap = _quotient(y, 4) - century + _quotient(century, 4)
    return _int(y * 365 - 32_167 + leap + _quotient(7834 * m, 256) + day)


def _int(n: int) -> int:
    """In 32 bits, in which PostgreSQL counts, round and round."""
    return (n + (1 << 31)) % (1 << 32) - (1 << 31)


def week_start(year: int, week: int = 1) -> int:
    """The Julian day on which an ISO week begins."""
    fourth = julian_day(year, 1, 4)
    return fourth - fourth % 7 + (week - 1) * 7


def _iso(year: int, month: int, day: int) -> tuple[int, int, int]:
    """ISO year, its week, and the day in that year. Beyond what 32 bits count PostgreSQL's is no number of any."""
    if abs(year) > 5_000_000 or abs(day) > 1 << 30:
        raise ValueError("interval out of range")
    at = julian_day(year, month, day)
    of_year, start = year, week_start(year)
    if at < start:
        of_year, start = year - 1, week_start(year - 1)
    week = _quotient(at - start, 7) + 1
    if week >= 52 and at >= week_start(year + 1):
        of_year, start = year + 1, week_start(year + 1)
        week = _quotient(at - start, 7) + 1
    return of_year, week, _int(at - start + 1)


@dataclass(frozen=True, slots=True)
class _Fields:
    """What is written. `zone`: its name; None of a TIMESTAMP."""

    year: int
    month: int
    day: int
    day_of_year: int
    us: int
    zone: str | None
    interval: bool = False

    @property
    def clock(self) -> tuple[int, int, int, int]:
        return clock(self.us)

    @property
    def weekday(self) -> int:
        """From Sunday, 0."""
        return (julian_day(self.year, self.month, self.day) + 1) % 7

    def counted(self, year: int) -> int:
        """The year as it is written: 1 BC is 1."""
        return year if self.interval or year > 0 else 1 - year


def _of_moment(us: int, zone: str | None) -> _Fields:
    days = us // DAY
    year, month, day = civil(days)
    return _Fields(year, month, day, days + JULIAN - julian_day(year, 1, 1) + 1, us % DAY, zone)


def _of_interval(x: Interval) -> _Fields:
    months, days, us = x
    year = _quotient(months, 12)
    return _Fields(year, months - year * 12, days, _int(months * 30 + days), us, None, interval=True)


# --------------------------------------------------------------------------- keys


def _number(value: int, width: int, part: Part, grow: bool = True) -> str:
    """With zeros before it, and room for a minus where the pattern `grow`s."""
    return f"{value:0{0 if part.fill else width + (grow and value < 0)}}"


def _name(name: str, part: Part, width: int) -> str:
    cased = name.upper() if part.text.isupper() else name.lower() if part.text.islower() else name
    return cased if part.fill else cased.ljust(width)


def _half(f: _Fields, p: Part) -> str:
    after_noon = abs(f.clock[0]) % 24 >= 12 and f.us > 0
    text = ("P.M." if after_noon else "A.M.") if "." in p.key else ("PM" if after_noon else "AM")
    return text if p.text[0].isupper() else text.lower()


def _era(f: _Fields, p: Part) -> str:
    before = f.year <= 0
    text = ("B.C." if before else "A.D.") if "." in p.key else ("BC" if before else "AD")
    return text if p.text[0].isupper() else text.lower()


def _hour12(f: _Fields, p: Part) -> str:
    hour = f.clock[0]
    shown = (abs(hour) % 12) * (-1 if hour < 0 else 1) or 12
    return f"{shown:0{0 if p.fill else 3 if hour < 0 else 2}}"


def _century(f: _Fields, p: Part) -> str:
    if f.interval:
        found = _quotient(f.year, 100)
    else:
        found = (f.year - 1) // 100 + 1 if f.year > 0 else _quotient(f.year, 100) - 1
    return _number(found, 2, p) if abs(found) <= 99 else str(found)


def _year(f: _Fields, p: Part, width: int, iso: bool) -> str:
    year = f.counted(_iso(f.year, f.month, f.day)[0] if iso else f.year)
    shown = year if width == 4 else year - _quotient(year, 10**width) * 10**width
    if width == 1:
        return str(shown)
    return f"{shown:0{0 if p.fill else width + (f.counted(f.year) < 0)}}"


def _year_with_comma(f: _Fields, p: Part) -> str:
    year = f.counted(f.year)
    thousands = _quotient(year, 1000)
    return f"{thousands},{year - thousands * 1000:03}"


def _roman(f: _Fields, p: Part) -> str:
    if not f.month and not f.year:
        return ""
    if f.month == 0:
        at = 0 if f.year >= 0 else 11
    else:
        at = -1 - f.month if f.month < 0 else 12 - f.month
    return _name(ROMAN[at], p, 4)


def _fraction(digits: int, f: _Fields, p: Part) -> str:
    return f"{_quotient(f.clock[3], 10 ** (6 - digits)):0{digits}}"


_Key = Callable[[_Fields, Part], str]
_KEY: dict[str, _Key] = {
    **dict.fromkeys(("AM", "PM", "A.M.", "P.M."), _half),
    **dict.fromkeys(("AD", "BC", "A.D.", "B.C."), _era),
    **dict.fromkeys(("HH", "HH12"), _hour12),
    "HH24": lambda f, p: f"{f.clock[0]:0{0 if p.fill else 3 if f.clock[0] < 0 else 2}}",
    "MI": lambda f, p: _number(f.clock[1], 2, p),
    "SS": lambda f, p: _number(f.clock[2], 2, p),
    **{f"FF{n}": partial(_fraction, n) for n in range(1, 7)},
    "MS": partial(_fraction, 3),
    "US": partial(_fraction, 6),
    **dict.fromkeys(("SSSS", "SSSSS"), lambda f, p: str(_quotient(f.us, SECOND))),
    "TZ": lambda f, p: (f.zone or "") if p.text.isupper() else (f.zone or "").lower(),
    "TZH": lambda f, p: "+00",
    "TZM": lambda f, p: "00",
    "OF": lambda f, p: "+0" if p.fill else "+00",
    "MONTH": lambda f, p: _name(MONTHS[f.month - 1], p, 9),
    "MON": lambda f, p: _name(MONTHS[f.month - 1][:3], p, 3),
    "MM": lambda f, p: _number(f.month, 2, p),
    "DAY": lambda f, p: _name(DAYS[f.weekday - 1], p, 9),
    "DY": lambda f, p: _name(DAYS[f.weekday - 1][:3], p, 3),
    "DDD": lambda f, p: _number(f.day_of_year, 3, p, grow=False),
    "IDDD": lambda f, p: _number(_iso(f.year, f.month, f.day)[2], 3, p, grow=False),
    "DD": lambda f, p: _number(f.day, 2, p, grow=False),
    "D": lambda f, p: str(f.weekday + 1),
    "ID": lambda f, p: str(f.weekday or 7),
    "WW": lambda f, p: _number(_quotient(_int(f.day_of_year - 1), 7) + 1, 2, p, grow=False),
    "IW": lambda f, p: _number(_iso(f.year, f.month, f.day)[1], 2, p, grow=False),
    "Q": lambda f, p: str(_quotient(f.month - 1, 3) + 1) if f.month else "",
    "CC": _century,
    "Y,YYY": _year_with_comma,
    **{"Y" * n: partial(_year, width=n, iso=False) for n in range(1, 5)},
    **{"I" + "Y" * (n - 1): partial(_year, width=n, iso=True) for n in range(1, 5)},
    "RM": _roman,
    "W": lambda f, p: str(_quotient(_int(f.day - 1), 7) + 1),
    "J": lambda f, p: str(julian_day(f.year, f.month, f.day)),
    "FX": lambda f, p: "",
}
_DATED = {"AD", "BC", "A.D.", "B.C.", "TZ", "TZH", "TZM", "OF", "MONTH", "MON", "DAY", "DY", "D", "ID"}
_NO_TH = {*_DATED - {"D", "ID"}, "AM", "PM", "A.M.", "P.M.", "RM", "FX"}


def _ordinal(digits: str, th: str) -> str:
    teen = len(digits) > 1 and digits[-2] == "1"
    found = "th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1], "th")
    return found.upper() if th == "TH" else found


def _written(fields: _Fields, pattern: str) -> str | None:
    if not pattern:
        return None
    found = []
    for p in parts(pattern):
        if p.kind != "key":
            found.append(p.text)
            continue
        if fields.interval and p.key in _DATED:
            raise ValueError("invalid format specification for an interval value")
        text = _KEY[p.key](fields, p)
        found.append(text + _ordinal(text, p.th) if p.th and text and p.key not in _NO_TH else text)
    return "".join(found)


def text_of_timestamp(us: int, pattern: str) -> str | None:
    return _written(_of_moment(us, None), pattern)


def text_of_timestamptz(us: int, pattern: str) -> str | None:
    return _written(_of_moment(us, "UTC"), pattern)


def text_of_interval(x: Interval, pattern: str) -> str | None:
    return _written(_of_interval(x), pattern)


_WRITERS: dict[Type, Callable[..., str | None]] = {
    S.TIMESTAMPTZ: text_of_timestamptz,
    S.TIMESTAMP: text_of_timestamp,
    S.INTERVAL: text_of_interval,
}


# What Polars writes alike, of the years 1 to 9999.
_COLUMNAR = {
    "YYYY": "%Y", "yyyy": "%Y", "IYYY": "%G", "iyyy": "%G", "MM": "%m", "mm": "%m", "Mon": "%b", "DD": "%d",
    "dd": "%d", "DDD": "%j", "ddd": "%j", "IW": "%V", "iw": "%V", "Dy": "%a", "HH24": "%H", "hh24": "%H", "HH12": "%I",
    "hh12": "%I", "HH": "%I", "hh": "%I", "MI": "%M", "mi": "%M", "SS": "%S", "ss": "%S", "MS": "%3f", "ms": "%3f",
    "US": "%6f", "us": "%6f", "AM": "%p", "PM": "%p", "am": "%P", "pm": "%P",
}  # fmt: skip


def _polars_pattern(pattern: str) -> str | None:
    found = [_COLUMNAR.get(p.text) if p.kind == "key" else p.text.replace("%", "%%") for p in parts(pattern)]
    if not pattern or None in found or any(p.fill or p.th for p in parts(pattern)):
        return None
    return "".join(text or "" for text in found)


def _run(call: Call, columns: list[pl.Series]) -> tuple[pl.Series, pl.Series]:
    pattern, source = constant(call.args[1]), call.args[0].type
    plain = _polars_pattern(pattern) if isinstance(pattern, str) and source is not S.INTERVAL else None
    if plain is None:
        return each(_WRITERS[source], call, columns)
    moments = columns[0]
    texts = moments.dt.strftime(plain)
    odd = ~moments.dt.year().is_between(1, 9998) & moments.is_not_null()  # of the last day the week has five digits
    if odd.any():
        at = odd.arg_true()
        texts = texts.scatter(at, each(_WRITERS[source], call, [c.gather(at) for c in columns])[0])
    return texts, pl.Series([False]).new_from_index(0, len(texts))


TO_CHAR: Function = row(
    "TO_CHAR",
    takes("a time or an INTERVAL, and a pattern", *(((t, S.VARCHAR), S.VARCHAR) for t in _WRITERS)),
    _run,
    "invalid format specification for an interval value",
)
