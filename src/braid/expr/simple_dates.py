"""Writing times by patterns of Java's SimpleDateFormat, which SQLstream has.

In: patterns, Polars expressions. Out: Polars expressions (text).
Rule: most letters are those of DateTimeFormatter (`dates.py`). Others: u is the day of the week (1 is Monday), w the
week of the year, W that of the month, F how often the day of the week was in the month, Y the year of the week, S
milliseconds. Weeks begin on Sunday; the first one of a year or month has its first day, as in the US.
"""

from __future__ import annotations

import re

import polars as pl

from braid.errors import SqlError
from braid.expr import dates
from braid.types import Scalar, Type

_PIECES = re.compile(r"(?P<own>([uwWFYS])\2*)|(?P<others>(?:'(?:[^']|'')*'|[^'uwWFYS])+)|(?P<rest>.+)", re.DOTALL)
_OF_DAYS = "uwWFY"


def check_format(pattern: str, t: Type) -> None:
    """Refuse a pattern that cannot be written, or asks for what the type has not."""
    for letter, _, others in _pieces(pattern):
        if not letter:
            dates.check_format(others)
            dates.check_fields(others, t, reads=False)
            dates.format_pattern(pl.lit(None, dates.DATETIME), others, dates.zone("UTC"))
        elif (t is Scalar.TIME and letter in _OF_DAYS) or (t is Scalar.DATE and letter == "S"):
            raise SqlError(f"a {t} has no {letter}, which the date pattern {pattern!r} asks for", hint="leave it out")


def check_parse(pattern: str) -> None:
    """Refuse a letter that is written only: DateTimeFormatter reads another one in its place."""
    if any(letter == "u" for letter, _, _ in _pieces(pattern)):
        raise SqlError(f"the letter 'u' of the date pattern {pattern!r} is only written", hint="leave it out")


def format_pattern(x: pl.Expr, pattern: str, t: Type) -> pl.Expr:
    """The Datetime `x` as text."""
    check_format(pattern, t)
    utc, pieces = dates.zone("UTC"), _pieces(pattern)
    made = [_own(x, letter, n) if letter else dates.format_pattern(x, others, utc) for letter, n, others in pieces]
    return pl.concat_str(made) if made else dates.format_pattern(x, "", utc)


def _pieces(pattern: str) -> list[tuple[str, int, str]]:
    """(letter, how often, "") of those that are SimpleDateFormat's own, ("", 0, pattern) of what is between them."""
    found: list[tuple[str, int, str]] = []
    for m in _PIECES.finditer(pattern):
        own, others = m["own"], m["others"] or m["rest"] or ""
        found.append((own[0], len(own), "") if own else ("", 0, others))
    return found


def _own(x: pl.Expr, letter: str, count: int) -> pl.Expr:
    weekday = x.dt.weekday().cast(pl.Int32)
    since_sunday, of_year, of_month = weekday % 7, x.dt.ordinal_day().cast(pl.Int32), x.dt.day().cast(pl.Int32)
    days = pl.when(x.dt.is_leap_year()).then(366).otherwise(365)
    next_year = of_year + 6 - since_sunday > days
    match letter:
        case "u":
            found = weekday
        case "F":
            found = (of_month - 1) // 7 + 1
        case "W":
            found = _week(of_month, since_sunday)
        case "w":
            found = pl.when(next_year).then(1).otherwise(_week(of_year, since_sunday))
        case "Y":
            year = x.dt.year() + next_year.cast(pl.Int32)
            found = year % 100 if count == 2 else year
        case _:
            found = x.dt.millisecond()
    return found.cast(pl.String).str.zfill(count)


def _week(day: pl.Expr, since_sunday: pl.Expr) -> pl.Expr:
    """Which week a day of a period is in, by its number in the period."""
    return (day - 1 + (since_sunday - day + 1 + 371) % 7) // 7 + 1
