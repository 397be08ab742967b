"""TO_DATE and TO_TIMESTAMP: text that a pattern takes apart; and TO_TIMESTAMP of seconds.

In: a text and a pattern. Out: days or microseconds since 1970; `READERS`, rows.
Rule: PostgreSQL's. Blanks before and after fields are skipped, a separator of the pattern stands for any one or none, a
letter of the pattern for any character; a number has as many digits as its key unless what follows is no number; text
that is left over is not looked at. After FX nothing is skipped. TZ and OF are written only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from braid.expr.nodes import Call
from braid.expr.postgres.base import takes
from braid.expr.postgres.calendar import (
    DAY,
    HOUR,
    JULIAN,
    MINUTE,
    SECOND,
    civil,
    day_number,
    each,
    month_length,
    number,
    row,
    slow,
    valid_day,
    valid_moment,
    vectors,
)
from braid.expr.postgres.moments import DAYS, MONTHS
from braid.expr.postgres.times import of_seconds
from braid.expr.postgres.to_char import ROMAN, Part, parts, week_start
from braid.expr.signatures import Function, refusal
from braid.types import Scalar

S = Scalar
_2000 = 946_684_800 * SECOND  # from which PostgreSQL rounds
_INTEGER = re.compile(r"\s*[+-]?[0-9]+")
_WORDS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("AM", "PM"), ("am", "pm")),
    **dict.fromkeys(("A.M.", "P.M."), ("a.m.", "p.m.")),
    **dict.fromkeys(("AD", "BC"), ("ad", "bc")),
    **dict.fromkeys(("A.D.", "B.C."), ("a.d.", "b.c.")),
    "MONTH": [m.lower() for m in MONTHS],
    "MON": [m[:3].lower() for m in MONTHS],
    "DAY": [d.lower() for d in (DAYS[6], *DAYS[:6])],
    "DY": [d[:3].lower() for d in (DAYS[6], *DAYS[:6])],
    "RM": ROMAN,
}
_NO_DIGITS = {*_WORDS, "FX", "OF", "TZ", "TZH"}
_YEARS = {**{"Y" * n: n for n in range(1, 5)}, **{"I" + "Y" * (n - 1): n for n in range(1, 5)}}
_NUMBERS = {  # key: (name of the field, digits)
    "HH": ("hh", 2), "HH12": ("hh", 2), "HH24": ("hh", 2), "MI": ("mi", 2), "SS": ("ss", 2), "SSSS": ("ssss", 4),
    "SSSSS": ("ssss", 5), "MM": ("mm", 2), "DDD": ("ddd", 3), "IDDD": ("ddd", 3), "DD": ("dd", 2), "D": ("d", 1),
    "WW": ("ww", 2), "IW": ("ww", 2), "Q": ("", 1), "CC": ("cc", 2), "W": ("w", 1), "J": ("j", 1), "ID": ("", 1),
    "TZM": ("tzm", 2), "MS": ("", 3), "US": ("", 6), **{f"FF{n}": ("", n) for n in range(1, 7)},
    **{k: ("year" if n == 4 else "", n) for k, n in _YEARS.items()},
}  # fmt: skip
_ISO = {"IDDD", "ID", "IW", "I", "IY", "IYY", "IYYY"}
_GREGORIAN = {"DDD", "DD", "D", "MM", "MONTH", "MON", "RM", "WW", "W", "Y,YYY", "Y", "YY", "YYY", "YYYY"}


def _is_separator(c: str) -> bool:
    return "!" <= c <= "~" and not c.isalnum()


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0
    skipped: int = 0  # blanks more than the pattern has
    fixed: bool = False
    mode: str = ""
    twelve: bool = False
    tzsign: int = 0
    yysz: int = 0
    digits: int = 6  # of the second's fraction, as FF1 to FF6 say
    found: dict[str, int] = field(default_factory=dict)

    def get(self, name: str) -> int:
        return self.found.get(name, 0)

    def put(self, name: str, value: int, p: Part) -> None:
        if self.get(name) not in (0, value):
            raise ValueError(f'conflicting values for "{p.text}" field in formatting string')
        if not -(1 << 31) <= value < 1 << 31:
            raise ValueError(f'value for "{p.text}" in source string is out of range')
        self.found[name] = value

    def blanks(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
            self.skipped += 1

    def read(self, pattern: str) -> None:
        found = parts(pattern)
        for i, p in enumerate(found):
            if self.at >= len(self.text):
                return
            if not self.fixed and p.key != "FX" and (p.kind == "key" or i == 0):
                self.blanks()
            if p.kind == "key":
                self.key(p, found[i + 1] if i + 1 < len(found) else None)
                if not self.fixed:
                    self.skipped = 0
                    self.blanks()
            elif self.fixed:
                self.at += 1
            elif p.kind == "character":
                if self.skipped > 0:
                    self.skipped -= 1
                else:
                    self.at += 1
            else:
                c = self.text[self.at : self.at + 1]
                self.skipped -= 1
                if c and (c.isspace() or _is_separator(c)):
                    self.at += 1
                    self.skipped += 1

    def key(self, p: Part, after: Part | None) -> None:
        mode = "iso" if p.key in _ISO else "gregorian" if p.key in _GREGORIAN else ""
        if mode and self.mode not in ("", mode):
            raise ValueError("invalid combination of date conventions")
        self.mode = self.mode or mode
        if p.key in _WORDS:
            self.word(p)
        elif p.key == "FX":
            self.fixed = True
        elif p.key in ("TZ", "OF"):
            raise ValueError(f'formatting field "{p.text}" is only supported in to_char')
        elif p.key == "TZH":
            self.zone(p, after)
        elif p.key == "Y,YYY":
            self.year_with_comma(p)
        else:
            self.number(p, after)
        if p.th and p.key not in ("TZH", "TZM", "FX", *_WORDS):
            self.at = min(self.at + 2, len(self.text))

    def word(self, p: Part) -> None:
        rest = self.text[self.at :].lower()
        at = next((i for i, w in enumerate(_WORDS[p.key]) if rest.startswith(w)), None)
        if at is None:
            raise ValueError(f'invalid value "{self.text[self.at : self.at + 12]}" for "{p.text}"')
        self.at += len(_WORDS[p.key][at])
        match p.key:
            case "AM" | "PM" | "A.M." | "P.M.":
                self.put("pm", at, p)
                self.twelve = True
            case "AD" | "BC" | "A.D." | "B.C.":
                self.put("bc", at, p)
            case "DAY" | "DY":
                self.put("d", at, p)
                self.found["d"] = at + 1
            case "RM":
                self.put("mm", 12 - at, p)
            case _:
                self.put("mm", at + 1, p)

    def integer(self, digits: int, p: Part, after: Part | None) -> tuple[int, int]:
        """A number, and how many characters it took."""
        start = self.at
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        if p.fill or p.th or _parted(after):
            m = _INTEGER.match(self.text, start)
            self.at = m.end() if m else start
            return self._checked(int(m[0]) if m else 0, p, start)
        copied = self.text[self.at : self.at + digits]
        if len(copied) < digits:
            raise ValueError(f'source string too short for "{p.text}" formatting field')
        m = _INTEGER.match(copied)
        if m is not None and m.end() < digits:
            raise ValueError(f'invalid value "{copied}" for "{p.text}"')
        self.at += m.end() if m else 0
        return self._checked(int(m[0]) if m else 0, p, start)

    def _checked(self, value: int, p: Part, start: int) -> tuple[int, int]:
        if self.at == start:
            raise ValueError(f'invalid value "{self.text[start : start + 4]}" for "{p.text}"')
        return value, self.at - start

    def number(self, p: Part, after: Part | None) -> None:
        name, digits = _NUMBERS[p.key]
        value, size = self.integer(digits, p, after)
        self.twelve = self.twelve or p.key in ("HH", "HH12")
        if p.key in _YEARS:
            self.yysz = _YEARS[p.key]
            self.put("year", value, p)
            if self.yysz < 4 and size < 4:
                self.found["year"] = _full_year(value)
            return
        if p.key == "MS":
            self.put("ms", value, p)
            self.found["ms"] = value * {1: 100, 2: 10}.get(size, 1)
        elif p.key in ("US", *(f"FF{n}" for n in range(1, 7))):
            self.put("us", value, p)
            self.found["us"] = value * 10 ** max(6 - size, 0)
            self.digits = digits if p.key != "US" else self.digits
        elif p.key == "ID":
            self.put("d", value, p)
            self.found["d"] = 1 if value + 1 > 7 else value + 1
        elif name:
            self.put(name, value, p)
            self.tzsign = self.tzsign or (p.key == "TZM")
        elif not -(1 << 31) <= value < 1 << 31:
            raise ValueError(f'value for "{p.text}" in source string is out of range')

    def zone(self, p: Part, after: Part | None) -> None:
        if self.text[self.at : self.at + 1] in ("+", "-", " "):
            self.tzsign = -1 if self.text[self.at] == "-" else 1
            self.at += 1
        else:  # a minus may have been taken for a separator
            self.tzsign = -1 if self.skipped > 0 and self.text[self.at - 1] == "-" else 1
        self.put("tzh", self.integer(2, p, after)[0], p)

    def year_with_comma(self, p: Part) -> None:
        m = re.compile(r"(\s*[+-]?[0-9]+),(\s*[+-]?[0-9]{1,3})").match(self.text, self.at)
        if m is None:
            raise ValueError('invalid input string for "Y,YYY"')
        self.put("year", int(m[1]) * 1000 + int(m[2]), p)
        self.yysz, self.at = 4, m.end()


def _parted(after: Part | None) -> bool:
    """Whether what comes next is no digit."""
    if after is None:
        return True
    return after.key in _NO_DIGITS if after.kind == "key" else not ("0" <= after.text <= "9")


def _full_year(year: int) -> int:
    """The year near 2020 that has these last digits."""
    if year < 70:
        return year + 2000
    if year < 100:
        return year + 1900
    if year < 520:
        return year + 2000
    return year + 1000 if year < 1000 else year


# -------------------------------------------------------------------- what was read


def _time(r: _Reader) -> int:
    hour, rest = divmod(r.get("ssss"), 3600)
    minute, second = divmod(rest, 60)
    second, minute, hour = r.get("ss") or second, r.get("mi") or minute, r.get("hh") or hour
    if r.twelve:
        if not 1 <= hour <= 12:
            raise ValueError(f'hour "{hour}" is invalid for the 12-hour clock')
        hour = hour % 12 + (12 if r.get("pm") else 0)
    us = r.get("ms") * 1000 + r.get("us")
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= us < SECOND):
        raise ValueError(f'date/time field value out of range: "{r.text}"')
    return hour * HOUR + minute * MINUTE + second * SECOND + us


def _year(r: _Reader) -> int | None:
    """None where nothing says it."""
    year, century = r.get("year"), r.get("cc") * (-1 if r.get("bc") else 1)
    if not year:
        if not century:
            return None
        return (century - 1) * 100 + 1 if century >= 0 else century * 100 + 1
    if century and r.yysz <= 2:
        short = year - 100 * (year // 100) if year >= 0 else -(-year % 100)
        if short:
            return short + (century - 1) * 100 if century >= 0 else (century + 1) * 100 - short + 1
        return century * 100 + (0 if century >= 0 else 1)
    if r.get("bc"):
        year = -year
    return year + 1 if year < 0 else year


def _days(r: _Reader) -> int:
    """Days since 1970; what is not said is the first."""
    said = _year(r)
    year, month, day = said or 0, 1, 1
    if r.get("j"):
        year, month, day = civil(r.get("j") - JULIAN)
    ddd, dd, d = r.get("ddd"), r.get("dd"), r.get("d")
    if r.get("ww"):
        if r.mode == "iso":
            start = week_start(year, r.get("ww"))
            year, month, day = civil(start + (d - 2 if d > 1 else 6 if d else 0) - JULIAN)
        else:
            ddd = (r.get("ww") - 1) * 7 + 1
    if r.get("w"):
        dd = (r.get("w") - 1) * 7 + 1
    day, month = dd or day, r.get("mm") or month
    if ddd and (month <= 1 or day <= 1):
        if not year and not r.get("bc"):
            raise ValueError("cannot calculate day of year without year information")
        year, month, day = _of_year_day(r.mode, year, month, day, ddd)
    if not 1 <= month <= 12 or not 1 <= day <= month_length(year, month):
        raise ValueError(f'date/time field value out of range: "{r.text}"')
    return day_number(year, month, day)


def _of_year_day(mode: str, year: int, month: int, day: int, ddd: int) -> tuple[int, int, int]:
    if mode == "iso":
        return civil(week_start(year) - 1 + ddd - JULIAN)
    before = [day_number(year, m, 1) - day_number(year, 1, 1) for m in range(1, 13)]
    found = max((m for m in range(1, 13) if before[m - 1] < ddd), default=1)
    if ddd > 365 + (month_length(year, 2) == 29):
        found = 13
        before.append(day_number(year + 1, 1, 1) - day_number(year, 1, 1))
    return year, found if month <= 1 else month, ddd - before[found - 1] if day <= 1 else day


def to_date(text: str, pattern: str) -> int:
    r = _Reader(text)
    r.read(pattern)
    _time(r)
    _east(r)
    return valid_day(_days(r))


def to_timestamp(text: str, pattern: str) -> int:
    r = _Reader(text)
    r.read(pattern)
    since = _days(r) * DAY + _time(r) - _east(r) * SECOND - _2000
    unit = 10 ** (6 - r.digits)
    rounded = (abs(since) + unit // 2) // unit * unit
    return valid_moment((rounded if since >= 0 else -rounded) + _2000)


def _east(r: _Reader) -> int:
    hours, minutes = r.get("tzh"), r.get("tzm")
    if r.tzsign and not (0 <= hours <= 15 and 0 <= minutes < 60):
        raise ValueError(f'time zone displacement out of range: "{r.text}"')
    return r.tzsign * (hours * 3600 + minutes * 60)


def _run(call: Call, columns: list[pl.Series]) -> tuple[pl.Series, pl.Series]:
    return vectors(of_seconds)(call, columns) if len(call.args) == 1 else each(to_timestamp, call, columns)


def _why(*values: object) -> str:
    return "timestamp out of range" if len(values) == 1 else refusal(to_timestamp)(*(str(number(v)) for v in values))


_TEXTS = (S.VARCHAR, S.VARCHAR)
_ROWS = (
    slow("TO_DATE", takes("a text and a pattern", (_TEXTS, S.DATE)), to_date),
    row("TO_TIMESTAMP", takes("a number of seconds, or a text and a pattern", ((S.DOUBLE,), S.TIMESTAMPTZ),
        (_TEXTS, S.TIMESTAMPTZ)), _run, _why),
)  # fmt: skip
READERS: dict[str, Function] = {f.name: f for f in _ROWS}
