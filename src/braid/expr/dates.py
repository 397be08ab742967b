"""Dates and times as text: ISO forms for CAST, Java's DateTimeFormatter patterns for the date functions.

In: patterns, Polars expressions. Out: Polars expressions (text, or Datetime of microseconds in UTC).
Rule: all columnar; what a pattern cannot do here is refused when the query is bound, never guessed at run time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

import polars as pl

from braid.errors import SqlError
from braid.expr.plain_times import plain_times
from braid.types import MAX_DAY, MAX_TIME, TIMESTAMPS, Scalar, Type

DATETIME = pl.Datetime("us")
DAY_US = 86_400_000_000
_TEXT = "_text"  # the column that is read

_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
]  # fmt: skip
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

# One part of a compiled pattern: a letter with its count, or literal text (letter '').
_Part = tuple[str, int, str]


def day(days: pl.Expr) -> pl.Expr:
    """A DATE of days since 1970; null where there is none so late, or so early."""
    return pl.when(days.is_between(-MAX_DAY, MAX_DAY - 1)).then(days).cast(pl.Int32).cast(pl.Date)


def instant(ms: pl.Expr) -> pl.Expr:
    """The same, a TIMESTAMP of milliseconds since 1970."""
    return pl.when(ms.is_between(-MAX_TIME, MAX_TIME - 1)).then(ms * 1000).cast(DATETIME)


def time_of_day(ms: pl.Expr) -> pl.Expr:
    """A TIME of milliseconds since midnight; null where the day has none."""
    return pl.when(ms.is_between(0, 86_400_000 - 1)).then(ms * 1_000_000).cast(pl.Time)


OF_NUMBER = {Scalar.DATE: day, Scalar.TIME: time_of_day, **dict.fromkeys(TIMESTAMPS, instant)}


def _read(s: pl.Expr, regex: str, steps: Sequence[Mapping[str, pl.Expr]], dtype: pl.DataType) -> pl.Expr:
    """The last column of `steps`. Their columns are made of those before them, the first of the groups of `regex` in
    `s`: step by step, since what an expression names twice is computed twice."""
    named = "(?P<" in regex

    def read(texts: pl.Series) -> pl.Series:
        frame = texts.to_frame(_TEXT)
        if named:
            frame = frame.with_columns(pl.col(_TEXT).str.extract_groups(regex).alias("_groups")).unnest("_groups")
        for step in steps:
            frame = frame.with_columns(**step)
        return frame.to_series(-1)

    return s.map_batches(read, return_dtype=dtype, is_elementwise=True)


def _micros(*, clamp: bool) -> list[dict[str, pl.Expr]]:
    """Steps to `us`, microseconds since 1970 of the columns `year`, `month` … `micro`; null where one is out of its
    range.

    With `clamp` day 29 to 31 of a shorter month is its last day, as Java's SMART resolver has it.
    """
    year, month, day = pl.col("year"), pl.col("month"), pl.col("day")
    hour, minute, second = pl.col("hour"), pl.col("minute"), pl.col("second")
    first = pl.date(year.clip(-9999, 99999), month.clip(1, 12), 1)
    length = pl.col("length").cast(pl.Int64)
    ok = year.is_between(-9999, 99999) & month.is_between(1, 12) & day.is_between(1, 31 if clamp else length)
    ok = ok & hour.is_between(0, 23) & minute.is_between(0, 59) & second.is_between(0, 59)
    days = pl.col("first").cast(pl.Int32).cast(pl.Int64) + (pl.min_horizontal(day, length) if clamp else day) - 1
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    return [
        {"first": first},
        {"length": pl.col("first").dt.month_end().dt.day()},
        {"us": pl.when(ok).then(seconds * 1_000_000 + pl.col("micro"))},
    ]


def _whole(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.Int64, strict=False)


def _int(x: pl.Expr, default: int) -> pl.Expr:
    return x.cast(pl.Int64, strict=False).fill_null(default)


def _fraction(x: pl.Expr) -> pl.Expr:
    """Digits after the point, as microseconds of whole milliseconds."""
    return x.fill_null("0").str.pad_end(3, "0").str.slice(0, 3).cast(pl.Int64, strict=False) * 1000


def _offset_us(x: pl.Expr) -> pl.Expr:
    """`Z`, `+02`, `+0200`, `+02:00`, `GMT+02:00` as microseconds."""
    digits = x.str.replace_all("(?i)GMT|:", "")
    sign = pl.when(digits.str.starts_with("-")).then(-1).otherwise(1)
    hours = digits.str.slice(1, 2).cast(pl.Int64, strict=False).fill_null(0)
    minutes = digits.str.slice(3, 2).cast(pl.Int64, strict=False).fill_null(0)
    return (sign * (hours * 3600 + minutes * 60)).cast(pl.Int64).fill_null(0) * 1_000_000


# ------------------------------------------------------------------ ISO text

_ISO = (
    r"^(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2}))?)?"
    r"(?:T(?:(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,9}))?)?)?)?"
    r"(?P<zone>Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)


_ISO_DATE = r"^(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?$"
_ISO_TIME = r"^(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?$"
_PLAIN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,3})?")


def plain_timestamp(text: str) -> datetime | None:
    """One text as `parse_timestamp` reads it; None for all but the common form of a time that exists."""
    try:
        return datetime.fromisoformat(text) if _PLAIN.fullmatch(text) else None
    except ValueError:
        return None


def parse_timestamp(s: pl.Expr) -> pl.Expr:
    """`2020`, `2020-05`, `2020-05-26T23:59:58.000+0200` …: what is left out is zero (or 1), the zone is UTC."""
    made = (pl.col("us") - _offset_us(pl.col("zone"))).cast(DATETIME)
    return _read(s, _ISO, [_fields(_ISO), *_micros(clamp=True), {"made": made}], DATETIME)


def parse_date(s: pl.Expr) -> pl.Expr:
    """`2020-05-26` (also `2020-05` and `2020`); a day that the month lacks is an error."""
    made = pl.col("us").cast(DATETIME).dt.date()
    return _read(s, _ISO_DATE, [_fields(_ISO_DATE), *_micros(clamp=False), {"made": made}], pl.Date())


def _fields(regex: str) -> dict[str, pl.Expr]:
    """What `_micros` needs, of the groups of `regex`; only a year must be there."""
    rest = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}
    found = {n: _int(pl.col(n), x) if f"<{n}>" in regex else pl.lit(x, pl.Int64) for n, x in rest.items()}
    micro = _fraction(pl.col("fraction")) if "<fraction>" in regex else pl.lit(0, pl.Int64)
    return {"year": _whole("year"), **found, "micro": micro}


def parse_time(s: pl.Expr) -> pl.Expr:
    """`23:59`, `23:59:58`, `23:59:58.123`."""
    hour, minute, second = pl.col("hour"), pl.col("minute"), pl.col("second")
    fields = {"hour": _whole("hour"), "minute": _int(minute, 0), "second": _int(second, 0)}
    ok = (hour <= 23) & (minute <= 59) & (second <= 59)
    us = (hour * 3600 + minute * 60 + second) * 1_000_000 + _fraction(pl.col("fraction"))
    return _read(s, _ISO_TIME, [fields, {"made": pl.when(ok).then(us * 1000).cast(pl.Time)}], pl.Time())


PARSE = {Scalar.DATE: parse_date, Scalar.TIME: parse_time, **dict.fromkeys(TIMESTAMPS, parse_timestamp)}


def parse_iso(x: pl.Expr, t: Scalar) -> pl.Expr:
    """A DATE, TIME or TIMESTAMP from text; between date and time of day may stand a blank."""
    if t not in TIMESTAMPS:
        return PARSE[t](x)
    blank = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) "
    any_form = parse_timestamp(pl.col(_TEXT).str.replace(blank, "${1}T")).alias("made")

    def other(texts: pl.Series) -> pl.Series:
        return texts.to_frame(_TEXT).select(any_form).to_series().alias(texts.name)

    def read(texts: pl.Series) -> pl.Series:
        made = plain_times(texts)
        if made is None:
            return other(texts)
        rest = made.is_null().arg_true()
        return made.scatter(rest, other(texts.gather(rest))) if len(rest) else made

    return x.map_batches(read, return_dtype=DATETIME, is_elementwise=True)


def format_time(x: pl.Expr) -> pl.Expr:
    """As Java's LocalTime prints: `HH:MM`, with seconds and milliseconds where they are not zero."""
    ns = x.cast(pl.Int64)
    seconds = pl.when(ns % 1_000_000_000 == 0).then(x.dt.strftime("%H:%M:%S")).otherwise(x.dt.strftime("%H:%M:%S%.3f"))
    return pl.when(ns % 60_000_000_000 == 0).then(x.dt.strftime("%H:%M")).otherwise(seconds)


# ------------------------------------------------------------- Java patterns


_LONGEST, _WIDEST = 500, 19  # characters of a pattern; letters in a row, as in Java


@lru_cache(maxsize=1000)
def parts(pattern: str) -> tuple[_Part, ...]:
    """The parts of a Java DateTimeFormatter pattern. Brackets (optional sections) are parts '[' and ']'."""
    if len(pattern) > _LONGEST:
        raise SqlError(f"the date pattern has {len(pattern)} characters", hint=f"at most {_LONGEST} are possible")
    found: list[_Part] = []
    i = 0
    while i < len(pattern):
        c = pattern[i]
        if c == "'":
            end = i + 1
            text = ""
            while True:
                if end >= len(pattern):
                    raise SqlError(f"the date pattern {pattern!r} has a quote that does not end")
                if pattern[end] == "'":
                    if pattern[end : end + 2] != "''":
                        break
                    end += 1
                text += pattern[end]
                end += 1
            found.append(("", 0, text or "'"))
            i = end + 1
        elif c.isascii() and c.isalpha():
            count = len(pattern) - i - len(pattern[i:].lstrip(c))
            if count > _WIDEST:
                raise SqlError(f"the date pattern {pattern!r} has {count} times {c!r}", hint="it has too many letters")
            if c not in _LETTERS:
                raise SqlError(
                    f"the letter {c!r} of the date pattern {pattern!r} is not supported",
                    hint=f"use {' '.join(sorted(_LETTERS))}; put plain text into single quotes",
                )
            found.append((c, count, ""))
            i += count
        elif c in "[]":
            found.append((c, 0, ""))
            i += 1
        elif c in "{}#":
            raise SqlError(f"the character {c!r} is reserved in date patterns ({pattern!r})")
        else:
            found.append(("", 0, c))
            i += 1
    return tuple(found)


_LETTERS = frozenset("GyuQqMLdDHhKkmsSaEnANZXxzVO")
_ONLY_PRINTED = frozenset("QqANO")


# Short names of zones; as in Java's patterns they name a region, so PST in summer is Pacific daylight time.
_ZONE_NAMES = {
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "MST": "America/Denver", "MDT": "America/Denver",
    "CST": "America/Chicago", "CDT": "America/Chicago", "EST": "America/New_York", "EDT": "America/New_York",
    "BST": "Europe/London", "CET": "Europe/Paris", "CEST": "Europe/Paris", "JST": "Asia/Tokyo",
}  # fmt: skip
_LONG_NAMES = {
    "PST": "Pacific Standard Time", "PDT": "Pacific Daylight Time", "MST": "Mountain Standard Time",
    "MDT": "Mountain Daylight Time", "CST": "Central Standard Time", "CDT": "Central Daylight Time",
    "EST": "Eastern Standard Time", "EDT": "Eastern Daylight Time", "BST": "British Summer Time",
    "CET": "Central European Standard Time", "CEST": "Central European Summer Time", "JST": "Japan Standard Time",
    "GMT": "Greenwich Mean Time", "UTC": "Coordinated Universal Time",
}  # fmt: skip
_QUARTERS = {
    3: ["Q1", "Q2", "Q3", "Q4"],
    4: ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"],
    5: ["1", "2", "3", "4"],
}
_ERAS = {4: ("Anno Domini", "Before Christ"), 5: ("A", "B")}


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone: a name of the tz database, or a fixed offset in microseconds."""

    name: str | None
    offset: int


def zone(text: str) -> Zone:
    """A java.util.TimeZone id: `UTC`, `Europe/London`, `+02:00`, `GMT+2`, `PDT`."""
    if text in ("UTC", "GMT", "Z", "UT", "Etc/UTC", "Etc/GMT"):
        return Zone(None, 0)
    m = re.fullmatch(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", text)
    if m:
        seconds = int(m[2]) * 3600 + int(m[3] or 0) * 60
        return Zone(None, (-seconds if m[1] == "-" else seconds) * 1_000_000)
    for name in (text, _ZONE_NAMES.get(text, "")):
        with suppress(Exception):  # the two libraries raise various errors for a name they do not know
            ZoneInfo(name)
            pl.Series([0]).cast(DATETIME).dt.replace_time_zone(name)
            return Zone(name, 0)
    raise SqlError(f"unknown time zone {text!r}", hint="write 'UTC', 'Europe/London' or '+02:00'")


def to_local(x: pl.Expr, z: Zone) -> pl.Expr:
    """The UTC instant `x` as wall-clock time of `z` (naive)."""
    if z.name is None:
        return x + pl.duration(microseconds=z.offset) if z.offset else x
    return x.dt.replace_time_zone("UTC").dt.convert_time_zone(z.name).dt.replace_time_zone(None)


def _from_local(x: pl.Expr, z: Zone) -> pl.Expr:
    """The UTC instant of wall-clock time `x`; in a gap the clock is moved on, an overlap takes the earlier offset."""
    if z.name is None:
        return x - pl.duration(microseconds=z.offset) if z.offset else x

    def utc(y: pl.Expr) -> pl.Expr:
        local = y.dt.replace_time_zone(z.name, ambiguous="earliest", non_existent="null")
        return local.dt.convert_time_zone("UTC").dt.replace_time_zone(None)

    day = pl.duration(hours=24)
    return utc(x).fill_null(utc(x - day) + day)


def check_format(pattern: str) -> None:
    """Refuse a pattern that cannot be printed."""
    parts(pattern)


def check_parse(pattern: str) -> None:
    """Refuse a pattern that cannot be read."""
    letters = [p[0] for p in parts(pattern)]
    if letters.count("[") != letters.count("]"):
        raise SqlError(f"the date pattern {pattern!r} has a bracket that does not close")
    printed = sorted(_ONLY_PRINTED.intersection(letters))
    if printed:
        raise SqlError(
            f"the letter {printed[0]!r} of the date pattern {pattern!r} is only written", hint="leave it out"
        )
    repeated = sorted({c for c in letters if c and c not in "[]" and letters.count(c) > 1})
    if repeated:
        raise SqlError(f"the date pattern {pattern!r} has {', '.join(repeated)} more than once")


_FIELDS: dict[Type, str] = {Scalar.DATE: "GyuQqMLdDE", Scalar.TIME: "HhKkmsSanAN"}


def check_fields(pattern: str, t: Type, *, reads: bool) -> None:
    """Refuse a pattern that asks for what the type has not: a DATE has no hours and no zone, a TIME no days. A zone may
    be read, and of a DATE hours that are midnight."""
    if t not in _FIELDS or (reads and t is Scalar.DATE):
        return
    asked = [letter for letter, count, _ in parts(pattern) if count]
    lacks = next((c for c in asked if (c in _FIELDS[Scalar.DATE] if reads else c not in _FIELDS[t])), None)
    if lacks is not None:
        hint = f"it has {' '.join(sorted(_FIELDS[t]))}; put plain text into single quotes"
        raise SqlError(f"a {t} has no {lacks}, which the date pattern {pattern!r} asks for", hint=hint)


def format_pattern(x: pl.Expr, pattern: str, z: Zone) -> pl.Expr:
    """The Datetime `x` (UTC) as text."""
    local = to_local(x, z)
    pieces: list[pl.Expr] = []
    chrono = ""
    for letter, count, text in parts(pattern):
        if letter in "[]" and letter:
            continue
        spec = text.replace("%", "%%") if not letter else _CHRONO.get(letter * count)
        if spec is not None:
            chrono += spec
            continue
        if chrono:
            pieces.append(local.dt.strftime(chrono))
            chrono = ""
        pieces.append(_print_part(x, local, z, letter, count))
    if chrono or not pieces:
        pieces.append(local.dt.strftime(chrono) if chrono else pl.when(x.is_not_null()).then(pl.lit("")))
    return pieces[0] if len(pieces) == 1 else pl.concat_str(pieces)


_CHRONO = {
    "yy": "%y", "yyy": "%Y", "yyyy": "%Y", "uu": "%y", "uuu": "%Y", "uuuu": "%Y",
    "M": "%-m", "MM": "%m", "MMM": "%b", "MMMM": "%B", "L": "%-m", "LL": "%m", "LLL": "%b", "LLLL": "%B",
    "d": "%-d", "dd": "%d", "D": "%-j", "DDD": "%j", "E": "%a", "EE": "%a", "EEE": "%a", "EEEE": "%A",
    "H": "%-H", "HH": "%H", "h": "%-I", "hh": "%I", "a": "%p", "m": "%-M", "mm": "%M", "s": "%-S", "ss": "%S",
    "SSS": "%3f", "SSSSSS": "%6f", "SSSSSSSSS": "%9f",
}  # fmt: skip


def _print_part(x: pl.Expr, local: pl.Expr, z: Zone, letter: str, count: int) -> pl.Expr:
    """Parts that chrono has no letter for."""
    match letter:
        case "G":
            after, before = _ERAS.get(count, ("AD", "BC"))
            return pl.when(local.dt.year() > 0).then(pl.lit(after)).when(x.is_not_null()).then(pl.lit(before))
        case "y" | "u":
            return local.dt.year().cast(pl.String).str.zfill(count)
        case "M" | "L" if count == 5:
            return local.dt.strftime("%b").str.slice(0, 1)
        case "E" if count == 5:
            return local.dt.strftime("%a").str.slice(0, 1)
        case "Q" | "q":
            texts = _QUARTERS.get(count, [f"{n:0{count % 5}}" for n in range(1, 5)])
            return local.dt.quarter().replace_strict(dict(enumerate(texts, 1)), return_dtype=pl.String)
        case "A" | "N":
            part = local.dt.time().cast(pl.Int64)
            return (part.floordiv(1_000_000) if letter == "A" else part).cast(pl.String).str.zfill(count)
        case "O":
            return _print_gmt((local - x).dt.total_minutes(), full=count == 4)
        case "Z" if count == 4:
            return _print_gmt((local - x).dt.total_minutes(), full=True)
        case "D":
            return local.dt.ordinal_day().cast(pl.String).str.zfill(count)
        case "K":
            return (local.dt.hour() % 12).cast(pl.String).str.zfill(count)
        case "k":
            return ((local.dt.hour().cast(pl.Int32) + 23) % 24 + 1).cast(pl.String).str.zfill(count)
        case "S":
            return local.dt.strftime("%9f").str.slice(0, count).str.pad_end(count, "0")
        case "n":
            return (local.dt.microsecond().cast(pl.Int64) * 1000).cast(pl.String).str.zfill(count)
        case "Z" | "X" | "x":
            return _print_offset((local - x).dt.total_minutes(), letter, count)
        case "z" | "V":
            if z.name is None:
                sign, minutes = ("-" if z.offset < 0 else "+"), abs(z.offset) // 60_000_000
                utc = "Z" if letter == "V" else _LONG_NAMES["UTC"] if count == 4 else "UTC"
                text = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if z.offset else utc
                return pl.when(x.is_not_null()).then(pl.lit(text))
            if letter == "V":
                return pl.when(x.is_not_null()).then(pl.lit(z.name))
            short = x.dt.replace_time_zone("UTC").dt.convert_time_zone(z.name).dt.strftime("%Z")
            return short.replace(_LONG_NAMES) if count == 4 else short
        case _:
            raise SqlError(f"{letter * count} in a date pattern is not supported")


def _print_gmt(minutes: pl.Expr, *, full: bool) -> pl.Expr:
    """`GMT+05:30`, `GMT`; short ones `GMT+5:30`, `GMT+5`."""
    size = minutes.abs()
    sign = pl.when(minutes < 0).then(pl.lit("GMT-")).otherwise(pl.lit("GMT+"))
    hours, rest = size.floordiv(60).cast(pl.String), (size % 60).cast(pl.String).str.zfill(2)
    text = pl.concat_str([sign, hours.str.zfill(2) if full else hours, pl.lit(":"), rest])
    if not full:
        text = pl.when(size % 60 == 0).then(pl.concat_str([sign, hours])).otherwise(text)
    return pl.when(minutes == 0).then(pl.lit("GMT")).when(minutes.is_not_null()).then(text)


def _print_offset(minutes: pl.Expr, letter: str, count: int) -> pl.Expr:
    size = minutes.abs()
    sign = pl.when(minutes < 0).then(pl.lit("-")).otherwise(pl.lit("+"))
    hh = (size.floordiv(60)).cast(pl.String).str.zfill(2)
    mm = (size % 60).cast(pl.String).str.zfill(2)
    colon = count in (3, 5) if letter != "Z" else count == 5
    text = pl.concat_str([sign, hh, pl.lit(":" if colon else ""), mm])
    if letter != "Z" and count == 1:
        text = pl.when(size % 60 == 0).then(pl.concat_str([sign, hh])).otherwise(text)
    if letter == "X" or (letter == "Z" and count == 5):
        text = pl.when(minutes == 0).then(pl.lit("Z")).otherwise(text)
    return pl.when(minutes.is_not_null()).then(text)


def parse_pattern(s: pl.Expr, pattern: str, z: Zone, *, whole: bool = True, loose: bool = False) -> pl.Expr:
    """The text `s` as a Datetime (UTC); null where it does not match (`whole`), or does not begin so. Fields left out
    are those of 1970-01-01. `loose`: as SimpleDateFormat reads: a month by its long or short name, numbers of any
    length but where another one follows at once."""
    end = "$" if whole else ""
    found = parts(pattern)
    behind = [*found[1:], None][: len(found)]  # of an empty pattern there is no part
    forms = [_loose(part, after) if loose else _regex(part) for part, after in zip(found, behind, strict=True)]
    have = {letter: count for letter, count, _ in found if letter}

    def number(letter: str, default: int) -> pl.Expr:
        return _int(pl.col(letter), default) if letter in have else pl.lit(default, pl.Int64)

    y = "y" if "y" in have else "u"
    year = number(y, 1970)
    if have.get(y) == 2:
        year = pl.when(year < 100).then(year + 2000).otherwise(year)
    if "G" in have:
        year = pl.when(pl.col("G").str.to_uppercase().str.starts_with("B")).then(1 - year).otherwise(year)
    month = _month("M", have) if "M" in have else _month("L", have) if "L" in have else pl.lit(1, pl.Int64)
    day, extra = number("d", 1), pl.lit(0, pl.Int64)
    if "D" in have:
        dayofyear = number("D", 1)
        month = pl.when(dayofyear.is_between(1, 366)).then(1).cast(pl.Int64)
        day, extra = pl.lit(1, pl.Int64), (dayofyear - 1) * DAY_US
    half = pl.lit(0, pl.Int64)
    if "a" in have:
        half = pl.when(pl.col("a").str.to_uppercase() == "PM").then(12).otherwise(0).cast(pl.Int64)
    if "H" in have:
        hour = number("H", 0)
    elif "k" in have:
        hour = number("k", 24) % 24
    elif "h" in have:
        twelve = number("h", 12)
        hour = pl.when(twelve.is_between(1, 12)).then(twelve % 12 + half).otherwise(99)
    elif "K" in have:
        hour = number("K", 0) + half
    else:
        hour = half
    micro = _fraction(pl.col("S")) if "S" in have else number("n", 0).floordiv(1_000_000) * 1000
    fields = {
        "year": year,
        "month": month,
        "day": day,
        "hour": hour,
        "minute": number("m", 0),
        "second": number("s", 0),
    }
    fields |= {"micro": micro, "extra": extra}
    # extract_groups gives a struct of nulls where the text does not match
    named = f"(?i)^{''.join(forms)}{end}"
    matches = pl.col(_TEXT).str.contains(re.sub(r"\(\?P<[a-zA-Z]>", "(?:", named))
    us = {"us": pl.when(matches).then(pl.col("us") + pl.col("extra"))}
    made = {"made": _in_zones() if "V" in have else _in_zone(have, z)}
    return _read(s, named, [fields, *_micros(clamp=True), us, made], DATETIME)


def _in_zone(have: Mapping[str, int], z: Zone) -> pl.Expr:
    """The Datetime of `us` in the zone that the text names, or in `z`."""
    us = pl.col("us")
    for letter in "XxZ":
        if letter in have:
            return (us - _offset_us(pl.col(letter))).cast(DATETIME)
    if "z" not in have:
        return _from_local(us.cast(DATETIME), z)
    name, made = pl.col("z").str.to_uppercase(), us.cast(DATETIME)
    for short, region in _ZONE_NAMES.items():
        named = name.is_in([short, _LONG_NAMES[short].upper()])
        made = pl.when(named).then(_from_local(us.cast(DATETIME), zone(region))).otherwise(made)
    return made


def _in_zones() -> pl.Expr:
    """The Datetime of `us` in the zone that each text names; null where there is no such zone."""

    def read(s: pl.Series) -> pl.Series:
        frame = s.struct.unnest().with_row_index("at")
        made = pl.Series(s.name, [None] * len(s), dtype=DATETIME)
        for some in frame.drop_nulls().partition_by("V"):
            with suppress(SqlError):
                local = _from_local(pl.col("us").cast(DATETIME), zone(some["V"][0]))
                made = made.scatter(some["at"], some.select(local).to_series())
        return made

    return pl.struct("us", "V").map_batches(read, return_dtype=DATETIME, is_elementwise=True)


def _month(letter: str, have: Mapping[str, int]) -> pl.Expr:
    text = pl.col(letter)
    if have[letter] <= 2:
        return _int(text, 1)
    names = {name.lower(): i + 1 for i, name in enumerate(_MONTHS)}
    names |= {name[:3].lower(): i + 1 for i, name in enumerate(_MONTHS)}
    return text.str.to_lowercase().replace_strict(names, default=None, return_dtype=pl.Int64).fill_null(1)


def _loose(part: _Part, after: _Part | None) -> str:
    letter, count, _ = part
    if letter in ("M", "L") and count >= 3:
        return f"(?P<{letter}>{'|'.join((*_MONTHS, *(m[:3] for m in _MONTHS)))})"
    alone = after is None or after[0] not in (*"yudHhKkmsMLS",)
    return f"(?P<{letter}>[0-9]{{1,9}})" if alone and letter in (*"yudHhKkmsML",) else _regex(part)


def _regex(part: _Part) -> str:
    letter, count, text = part
    match letter:
        case "":
            return re.escape(text)
        case "[":
            return "(?:"
        case "]":
            return ")?"
        case "y" | "u":
            body = r"[0-9]{2}" if count == 2 else rf"[0-9]{{{count}}}" if count > 2 else r"[0-9]{1,5}"
        case "M" | "L" if count >= 3:
            body = "|".join(m if count >= 4 else m[:3] for m in _MONTHS)
        case "E":
            body = "|".join(d if count >= 4 else d[:3] for d in _DAYS)
        case "a":
            body = "AM|PM"
        case "S":
            body = rf"[0-9]{{{count}}}"
        case "n":
            body = r"[0-9]{1,9}"
        case "D":
            body = r"[0-9]{3}" if count == 3 else r"[0-9]{1,3}"
        case "X":
            body = {1: r"Z|[+-][0-9]{2}(?:[0-9]{2})?", 2: r"Z|[+-][0-9]{4}"}.get(count, r"Z|[+-][0-9]{2}:[0-9]{2}")
        case "x":
            body = {1: r"[+-][0-9]{2}(?:[0-9]{2})?", 2: r"[+-][0-9]{4}"}.get(count, r"[+-][0-9]{2}:[0-9]{2}")
        case "Z" if count == 4:
            body = "GMT(?:[+-][0-9]{2}:[0-9]{2})?"
        case "Z":
            body = r"Z|[+-][0-9]{2}:[0-9]{2}" if count == 5 else r"[+-][0-9]{4}"
        case "G":
            body = "|".join(_ERAS.get(count, ("AD", "BC")))
        case "z":
            body = "|".join((*(_LONG_NAMES.values() if count == 4 else ()), "UTC", "GMT", "Z", *_ZONE_NAMES))
        case "V":
            body = r"[A-Za-z]+(?:[/_+-][A-Za-z0-9_+-]+)*(?::[0-9]{2})?|[+-][0-9]{2}:[0-9]{2}"
        case _:
            body = r"[0-9]{1,2}" if count == 1 else rf"[0-9]{{{count}}}"
    return f"(?P<{letter}>{body})"
