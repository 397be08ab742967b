"""Text of dates and times: how PostgreSQL reads it (DateStyle ISO, MDY; in UTC).

In: texts. Out: days or microseconds since 1970, or of a day.
Rule: what PostgreSQL reads is read alike or fails; 'infinity', 24:00:00 as a time of day, and 'now', 'today' and the
like, which other runs would read otherwise, fail. A text is cut into fields, and each finds its place by what is known
when its turn comes: 1/5/2024, 2024-01-05, 5 January 2024, 20240105T101500.
"""

from __future__ import annotations

import re
from functools import partial

from braid.expr.postgres.calendar import (
    DAY,
    FIRST_DAY,
    FIRST_US,
    HOUR,
    JULIAN,
    LAST_DAY,
    LAST_US,
    MINUTE,
    SECOND,
    civil,
    day_number,
)
from braid.expr.postgres.zones import Zone, abbreviation, displacement, named

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTH = {
    **{m.lower(): i for i, m in enumerate(MONTHS, 1)},
    **{m[:3].lower(): i for i, m in enumerate(MONTHS, 1)},
    "sept": 9,
}
_DAY_NAMES = {*(d.lower() for d in DAYS), *(d[:3].lower() for d in DAYS), "tues", "thur", "thurs", "weds"}
_IGNORED = {"at", "on"}
_CHANGING = ("now", "today", "tomorrow", "yesterday")
_YEAR, _MON, _DAY, _TIME, _ZONE, _ERA, _HALF = 1, 2, 4, 8, 16, 32, 64
_DATE = _YEAR | _MON | _DAY

# One field at the start of the rest: a time, a number or a date, a word, a signed zone.
_FIELDS = (
    ("time", re.compile(r"[0-9]+:[0-9:.]*")),
    ("date", re.compile(r"[0-9]+(?:([-/])(?:[0-9]+(?:\1(?:[0-9]|\1)*)?|(?:[a-z0-9]|\1)*)"
                        r"|\.(?:[0-9]+\.[0-9.]*|(?![0-9])[a-z0-9.]*))")),
    ("number", re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]*")),
    ("word", re.compile(r"[a-z]+")),
    ("zone", re.compile(r"[+-]\s*[0-9][0-9:.\-]*")),
    ("special", re.compile(r"[+-]\s*[a-z]+")),
)  # fmt: skip
_NAMED = re.compile(r"[a-z0-9+\-/_.:]+")
_KNOWN = {*_MONTH, *_IGNORED, *_DAY_NAMES, *_CHANGING, "ad", "bc", "am", "pm", "t", "j", "jd", "epoch", "infinity",
          "allballs", "d", "h", "m", "mm", "s", "y", "dow", "doy", "dst", "isodow", "isoyear"}  # fmt: skip
_CLOCK = re.compile(r"([0-9]+):([0-9]*)(?::([0-9]*)(\.[0-9]*)?|(\.[0-9]*))?")
_PUNCTUATION = "!\"#$%&'()*,/:;<=>?@[\\]^_`{|}~"
_LONGEST = 127  # characters of a text that may be one


class Unreadable(ValueError):
    """No form of a date or time."""


class Outside(ValueError):
    """The form of one, with a number that is not possible."""


def split(text: str) -> list[tuple[str, str]]:
    """The fields of a text, each with its kind."""
    rest = text.lower().strip()
    found: list[tuple[str, str]] = []
    while rest:
        kind, size = _field(rest)
        if kind:
            found.append((kind, rest[:size]))
        rest = rest[size:].lstrip()
    return found


def _field(rest: str) -> tuple[str, int]:
    for kind, form in _FIELDS:
        if m := form.match(rest):
            after = rest[m.end() : m.end() + 1]
            if (
                kind == "word"
                and after
                and (after in "-/." or ((after in "+" or after.isdigit()) and m[0] not in _KNOWN))
            ):
                longer = _NAMED.match(rest)
                assert longer is not None
                return "date", longer.end()
            return kind, m.end()
    if rest[0] in _PUNCTUATION:
        return "", 1
    raise Unreadable


class _Reader:
    """The fields of one text. `seen`: which parts are known."""

    def __init__(self, of_day: bool) -> None:
        self.of_day = of_day
        self.dated = False  # whether a date stood before a time that is wanted alone
        self.seen = 0
        self.year = self.month = self.day = 0
        self.us = 0
        self.hour = self.days = 0
        self.zone: Zone | None = None
        self.short_year = self.month_is_word = self.bc = self.julian = False
        self.day_of_year: int | None = None
        self.half = ""
        self.prefix = ""

    @property
    def known(self) -> int:
        """What of the date is there; where a time alone is wanted, numbers are none of a date."""
        return _DATE if self.of_day else self.seen & _DATE

    def mark(self, what: int) -> None:
        if self.seen & what:
            raise Unreadable
        self.seen |= what

    # ------------------------------------------------------------ one field

    def read(self, kind: str, text: str) -> None:
        if kind not in ("number", "time") and self.prefix == "j":
            raise Unreadable
        match kind:
            case "time":
                self.prefix = ""
                self.clock(text)
            case "date":
                self.date(text)
            case "number":
                self.number(text)
            case "zone":
                east = displacement(text[0] + text[1:].lstrip())
                if east is None:
                    raise Unreadable
                self.mark(_ZONE)
                self.zone = Zone(None, east)
            case "word":
                self.word(text)
            case _:
                raise Unreadable

    def clock(self, text: str) -> None:
        m = _CLOCK.fullmatch(text)
        if m is None:
            raise Unreadable
        hour, minute, second = int(m[1]), int(m[2] or 0), int(m[3] or 0)
        if m[5] is not None:  # 12:30.5 has no hours
            hour, minute, second = 0, hour, minute
        self.mark(_TIME)
        self.set_time(hour, minute, second, fraction(m[4] or m[5] or ""))

    def set_time(self, hour: int, minute: int, second: int, us: int) -> None:
        total = hour * HOUR + minute * MINUTE + second * SECOND + us
        if minute > 59 or second > 60 or total > DAY:
            raise Outside
        self.hour, self.us = hour, total

    def date(self, text: str) -> None:
        if self.prefix or self.of_day or self.seen & (_MON | _DAY) == _MON | _DAY:
            self.zone_or_run_together(text)
            return
        if self.seen & ~(_DATE | _ZONE):
            raise Unreadable
        words = _words(text)
        for w in words:
            if w.isalpha():
                self.month_word(w)
        for w in words:
            if w.isdigit():
                self.part(w)
        if self.seen & ~_ZONE != _DATE:
            raise Unreadable

    def month_word(self, word: str) -> None:
        if word in _IGNORED:
            return
        if word not in _MONTH:
            raise Unreadable
        self.mark(_MON)
        self.month, self.month_is_word = _MONTH[word], True

    def zone_or_run_together(self, text: str) -> None:
        """After a date: Europe/Paris, or 101500-08."""
        if text[0].isdigit() or self.prefix:
            if self.seen & _TIME or "-" not in text:
                raise Unreadable
            at = text.index("-")
            east = displacement(text[at:])
            if east is None:
                raise Unreadable
            self.zone, self.prefix = Zone(None, east), ""
            self.run_together(text[:at])
            self.mark(_ZONE)
            return
        self.set_zone(named(text))

    def set_zone(self, zone: Zone | None) -> None:
        if zone is None or (self.of_day and zone.name is not None and not self.dated):
            raise Unreadable
        self.mark(_ZONE)
        self.zone = zone

    def number(self, text: str) -> None:
        whole = text.split(".", maxsplit=1)[0]
        dotted = "." in text
        if self.prefix == "j":
            self.prefix = ""
            self.julian_day(text)
        elif self.prefix:
            self.prefix = ""
            if self.known != _DATE:
                raise Unreadable
            self.run_together(text)
        elif dotted and not self.known:
            self.date(text)
        elif (dotted and (len(whole) > 2 or self.known == _DATE)) or (
            len(text) >= 6 and (not self.known or not self.seen & _TIME)
        ):
            self.run_together(text)
        else:
            self.part(text)

    def julian_day(self, text: str) -> None:
        m = re.fullmatch(r"([0-9]+)(\.[0-9]*)?", text)
        if m is None or int(m[1]) > 1 << 31:
            raise Unreadable
        if m[2] is not None:
            self.mark(_TIME)
            self.us = round(float(f"0{m[2]}") * DAY)
            self.hour = self.us // HOUR
        self.mark(_DATE)
        self.year, self.month, self.day = civil(int(m[1]) - JULIAN)
        self.julian = self.dated = True

    def run_together(self, text: str) -> None:
        """20240105, 240105, 101500, 1015, 101500.25."""
        digits, dot, rest = text.partition(".")
        if not dot and self.known != _DATE and len(digits) >= 6:
            self.mark(_DATE)
            self.year, self.month, self.day = int(digits[:-4]), int(digits[-4:-2]), int(digits[-2:])
            self.short_year = len(digits) == 6
            return
        if self.seen & _TIME or len(digits) not in (4, 6):
            raise Unreadable
        self.mark(_TIME)
        hour, minute, second = int(digits[:2]), int(digits[2:4]), int(digits[4:] or 0)
        if self.of_day and (minute > 59 or second > 60):
            raise Outside
        self.hour, self.us = hour, hour * HOUR + minute * MINUTE + second * SECOND + fraction(dot + rest)

    def part(self, text: str) -> None:
        """One number of a date: which one says what is known."""
        known, size = self.known, len(text)
        if "." in text:  # the seconds' fraction of PostgreSQL, without seconds
            raise Unreadable
        value = int(text)
        if size == 3 and known == _YEAR and 1 <= value <= 366:
            self.mark(_MON | _DAY)
            self.day_of_year = value
            return
        long = size >= 3
        if known == 0:
            self.set_part(_YEAR if long else _MON, value, size)
        elif known in (_YEAR, _DAY):
            self.set_part(_MON, value, size)
        elif known == _MON:
            self.set_part(_YEAR if self.month_is_word and long else _DAY, value, size)
        elif known == _YEAR | _MON and self.month_is_word and long and self.short_year:
            self.day, self.year, self.short_year = self.year, value, False  # 05-Jan-2024: the year was the day
            self.mark(_DAY)
        elif known == _DATE:
            self.run_together(text)
        else:
            self.set_part(_DAY if known == _YEAR | _MON else _YEAR, value, size)

    def set_part(self, what: int, value: int, size: int) -> None:
        self.mark(what)
        if what == _YEAR:
            self.year, self.short_year = value, size <= 2
        elif what == _MON:
            self.month = value
        else:
            self.day = value

    def word(self, word: str) -> None:
        zone = abbreviation(word)
        if zone is not None:
            self.set_zone(zone)
        elif word in _MONTH and not self.of_day:
            if self.seen & _MON and not self.month_is_word and not self.seen & _DAY and 1 <= self.month <= 31:
                self.mark(_DAY)
                self.day, self.month = self.month, _MONTH[word]
                self.month_is_word = True
                return
            self.month_word(word)
        elif word in ("am", "pm"):
            self.mark(_HALF)
            self.half = word
        elif word in ("ad", "bc"):
            self.mark(_ERA)
            self.bc = word == "bc"
        elif word == "t" and self.known == _DATE:
            self.prefix = "t"
        elif word in ("j", "jd"):
            self.prefix = "j"
        elif word == "epoch" and not self.of_day:
            self.mark(_DATE | _TIME | _ZONE)
            self.year, self.month, self.day, self.zone = 1970, 1, 1, Zone(None)
        elif word == "allballs":
            self.mark(_TIME | _ZONE)
            self.zone = Zone(None)
        elif word in _CHANGING:
            raise Outside(f'"{word}" is another time in each run')
        elif word == "infinity":
            raise Outside("there is no infinite time")
        elif word not in _IGNORED and (self.of_day or word not in _DAY_NAMES):
            self.set_zone(named(word))

    # ------------------------------------------------------------ the whole

    def finish(self) -> None:
        if self.prefix:
            raise Unreadable
        if not self.of_day and self.seen & _DATE != _DATE:
            raise Unreadable
        if self.half:
            if self.hour > 12:
                raise Outside
            noon = self.half == "pm"
            self.us += 12 * HOUR * (noon - (self.hour == 12))
        if self.seen & _DATE == _DATE:
            self.days = self.day_count()

    def day_count(self) -> int:
        if self.julian:
            return day_number(self.year, self.month, self.day)
        if self.bc:
            if self.year <= 0:
                raise Outside
            self.year = 1 - self.year
        elif self.short_year:
            self.year += 2000 if self.year < 70 else 1900
        elif self.year <= 0:
            raise Outside
        if self.year > 10_000_000:
            raise Outside
        if self.day_of_year is not None:
            return day_number(self.year, 1, 1) + self.day_of_year - 1
        if not 1 <= self.month <= 12 or self.day < 1:
            raise Outside
        found = day_number(self.year, self.month, self.day)
        if civil(found) != (self.year, self.month, self.day):
            raise Outside
        return found


def fraction(text: str) -> int:
    """`.5` in microseconds."""
    return round(float(f"0{text}") * 1e6) if len(text) > 1 else 0


def _begins_with_date(fields: list[tuple[str, str]]) -> bool:
    """Whether a text whose time is wanted has a date before it, which must be one."""
    kinds = [kind for kind, _ in fields]
    if len(kinds) < 2:
        return False
    dotted = kinds[0] == "number" and "." in fields[0][1]
    return (kinds[0] == "date" and kinds[1] == "time") or (kinds[-1] == "date" and (kinds[0] == "date" or dotted))


def _words(text: str) -> list[str]:
    """The numbers and words of a date; behind each any one character parts it from the next."""
    found = []
    while text:
        text = text.lstrip("-/.+_:")
        m = re.match(r"[0-9]+|[a-z]+", text)
        if m is None:
            raise Unreadable
        found.append(m[0])
        text = text[m.end() + 1 :]
    return found


def _read(text: str, name: str, of_day: bool = False) -> _Reader:
    reader = _Reader(of_day)
    try:
        if len(text) > _LONGEST or not text.isascii():
            raise Unreadable
        fields = split(text)
        if not fields or len(fields) > 25:
            raise Unreadable
        if of_day and _begins_with_date(fields):
            before = _Reader(of_day=False)
            before.read(*fields.pop(0))
            before.finish()
            reader.dated = True
        for kind, field in fields:
            reader.read(kind, field)
        reader.finish()
    except Unreadable:
        raise ValueError(f'invalid input syntax for type {name}: "{text}"') from None
    except Outside as e:
        raise ValueError(str(e) or f'date/time field value out of range: "{text}"') from None
    return reader


def date_of_text(text: str) -> int:
    """Days since 1970."""
    found = _read(text, "date").days
    if not FIRST_DAY <= found <= LAST_DAY:
        raise ValueError(f'date out of range: "{text}"')
    return found


def timestamp_of_text(text: str, *, zoned: bool = False) -> int:
    """Microseconds since 1970; a zone says nothing unless `zoned`."""
    reader = _read(text, "timestamp with time zone" if zoned else "timestamp")
    found = reader.days * DAY + reader.us
    if zoned and reader.zone is not None:
        found = reader.zone.moment(found)
    if not FIRST_US <= found <= LAST_US:
        raise ValueError(f'timestamp out of range: "{text}"')
    return found


timestamptz_of_text = partial(timestamp_of_text, zoned=True)


def time_of_text(text: str) -> int:
    """Microseconds since midnight."""
    reader = _read(text, "time", of_day=True)
    if not reader.seen & _TIME:
        raise ValueError(f'invalid input syntax for type time: "{text}"')
    if reader.us >= DAY:
        raise ValueError(f'date/time field value out of range: "{text}"')
    return reader.us
