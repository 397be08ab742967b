"""SQLstream's functions of times, and of texts that are written with words: EXTRACT, FLOOR(x TO HOUR), OVERLAY.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: null in, null out; times are UTC; texts are measured in characters, positions count from 1. What has no value is a
failure (docs/rules/sqlstream.md, "Values").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import polars as pl

from braid.expr import dates, patterns
from braid.expr.functions_numbers import log10, power
from braid.expr.functions_standard import BEYOND
from braid.expr.functions_text import refused_pattern
from braid.expr.functions_times import by_template
from braid.expr.nodes import Call, Expr
from braid.expr.rows import distinct
from braid.expr.signatures import (
    NO_TIME,
    Function,
    Refused,
    Resolver,
    Signature,
    constant,
    forms,
    in_sql,
    null_fails,
    tried,
)
from braid.types import DAY_MS, Decimal, Scalar

S = Scalar
_D = S.DOUBLE
_TEXT = S.VARCHAR
NO_NUMBER = "it has no value, or is out of range"

# ------------------------------------------------------------------------ times

_TRUNCATED = {"YEAR": "1y", "MONTH": "1mo", "DAY": "1d", "HOUR": "1h", "MINUTE": "1m", "SECOND": "1s"}
_OF_DATES = ("YEAR", "MONTH", "DAY")
_OF_TIMES = ("HOUR", "MINUTE", "SECOND")
_SECONDS = Decimal(5, 3)


def _resolve_extract(args: Sequence[Expr]) -> Signature | Refused:
    unit = constant(args[0]) if len(args) == 2 else None
    if unit not in _TRUNCATED:
        return Refused("it takes a unit FROM a time", f"units are {', '.join(_TRUNCATED)}")
    t = args[1].type
    units = {S.DATE: _OF_DATES, S.TIME: _OF_TIMES}.get(t, tuple(_TRUNCATED)) if isinstance(t, Scalar) else ()
    if t not in (S.DATE, S.TIME, S.TIMESTAMP, S.NULL):
        return Refused(f"{unit} is part of a DATE, a TIME or a TIMESTAMP", "CAST(x AS TIMESTAMP) reads a text")
    if unit not in units:
        return Refused(f"a {t} has no {unit}", f"it has {', '.join(units)}")
    t = S.TIMESTAMP if t is S.NULL else t
    return Signature((_TEXT, t), _SECONDS if unit == "SECOND" else S.BIGINT)


def _extract(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Whole numbers, but of seconds, which have their milliseconds."""
    unit, x = constant(call.args[0]), args[1]
    if unit == "SECOND":
        us = x.cast(pl.Int64) // 1000 if call.args[1].type is S.TIME else x.cast(dates.DATETIME).cast(pl.Int64)
        return (us % 60_000_000 // 1000).cast(pl.Float64).truediv(1000).cast(pl.Decimal(5, 3))
    parts = {"YEAR": x.dt.year, "MONTH": x.dt.month, "DAY": x.dt.day, "HOUR": x.dt.hour, "MINUTE": x.dt.minute}
    return parts[str(unit)]().cast(pl.Int64)


def _resolve_rounded(args: Sequence[Expr]) -> Signature | Refused:
    if args[0].type not in (S.TIMESTAMP, S.NULL):
        return Refused("only a TIMESTAMP is rounded to a unit of time", "CAST(x AS TIMESTAMP), or leave the unit out")
    return Signature((S.TIMESTAMP, args[1].type), S.TIMESTAMP)


def _floor(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].dt.truncate(_TRUNCATED[str(constant(call.args[1]))])


def _ceil(call: Call, args: list[pl.Expr]) -> pl.Expr:
    unit = _TRUNCATED[str(constant(call.args[1]))]
    below = args[0].dt.truncate(unit)
    later = pl.when(below == args[0]).then(below).otherwise(below.dt.offset_by(unit))
    return _there(later)


def _step(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The last multiple since 1970."""
    us = args[1] * 1000
    return (args[0].cast(pl.Int64).floordiv(us) * us).cast(dates.DATETIME)


def _months(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Later by calendar months; a day that a month lacks is its last one."""
    months = constant(call.args[1])
    return _there(args[0].dt.offset_by(f"{months}mo"))


def _there(x: pl.Expr) -> pl.Expr:
    """Null where no TIMESTAMP is so late, or so early."""
    return pl.when(dates.instant(x.dt.epoch("ms")).is_not_null()).then(x)


def _resolve_days(args: Sequence[Expr]) -> Signature | Refused:
    by = constant(args[1])
    if not isinstance(by, int) or by % DAY_MS:
        return Refused("a DATE has no hours", "CAST(x AS TIMESTAMP) + INTERVAL …")
    return Signature((S.DATE, S.BIGINT), S.DATE)


def _days(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return dates.day(args[0].cast(pl.Int32).cast(pl.Int64) + args[1].floordiv(DAY_MS))


def _resolve_unix(args: Sequence[Expr]) -> Signature | Refused:
    if not args:
        return Refused(
            "without an argument it is the present time: a batch that is run again would give other rows",
            "UNIX_TIMESTAMP(ROWTIME) is that of the row",
        )
    return forms("a TIMESTAMP", ((S.TIMESTAMP,), S.BIGINT))(args)


def _tsdiff(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Milliseconds from the first to the second; null where there are too many."""
    ms = (x if a.type is S.BIGINT else x.dt.epoch("ms") for a, x in zip(call.args, args, strict=True))
    first, second = (x.cast(pl.Int128) for x in ms)
    return (second - first).cast(pl.Int64, strict=False)


# ---------------------------------------------------------------------- numbers


def _finite(name: str, f: Callable[..., pl.Expr], resolve: Resolver) -> Function:
    """Of numbers, with a result that is one."""

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        made = f(*args)
        given = pl.all_horizontal([a.is_finite() for a in args])
        return pl.when(made.is_finite() | ~given).then(made)

    names = in_sql(sqlstream=name)
    return Function(f"sql.{name.lower()}", resolve, null_fails(build, NO_NUMBER), names=names)


_number = forms("a number", ((_D,), _D))

# ------------------------------------------------------------------------ texts


def _position(part: str, text: str) -> int:
    return text.find(part) + 1


def _overlaid(text: str, new: str, start: int, length: int | None = None) -> str:
    if length is None:
        length = len(new)
    if length < 0:
        raise ValueError("the length is negative")
    return text[: max(start - 1, 0)] + new + text[max(start - 1 + length, 0) :]


_replaced = forms(
    "a VARCHAR, a pattern, what to put in its place, a position and an occurrence",
    ((_TEXT, _TEXT, _TEXT, S.INT, S.INT), _TEXT),
)


def _resolve_replaced(args: Sequence[Expr]) -> Signature | Refused:
    found = _replaced(args)
    return found if isinstance(found, Refused) else refused_pattern(args[1]) or found


def _regex_replaced(text: str, pattern: str, new: str, start: int, which: int) -> str:
    """From the character `start` on each match, or the one with that number."""
    if start < 1 or which < 0:
        raise ValueError("the position counts from 1, the occurrence from 1, 0 is all")
    return text[: start - 1] + patterns.replaced(pattern, text[start - 1 :], new, which)


_CLASSES = {"ALPHA": "Alpha", "UPPER": "Upper", "LOWER": "Lower", "DIGIT": "Digit", "ALNUM": "Alnum",
            "SPACE": " ", "WHITESPACE": "Space"}  # fmt: skip


@lru_cache(maxsize=256)
def _as_java(pattern: str, escape: str = "") -> str:
    """The pattern of java.util.regex that a pattern of SIMILAR TO means."""
    escaped = f"{re.escape(escape)}.?|" if escape else ""
    out, inside = list[str](), False
    for part in re.findall(rf"(?s){escaped}\[:[A-Za-z]+:\]|.", pattern):
        if escape and part[0] == escape:
            if len(part) == 1:
                raise patterns.BadPattern("it ends with its escape character")
            out.append(re.escape(part[1]))
        elif not inside:
            out.append({"%": ".*", "_": "."}.get(part) or (f"\\{part}" if part in "\\.^$" else part))
            inside = part == "["
        elif len(part) > 1:
            out.append(_class(part[2:-2]))
        else:
            out.append(f"\\{part}" if part in "\\&" else part)
            inside = part != "]"
    return f"(?s)(?:{''.join(out)})"


def _class(name: str) -> str:
    known = _CLASSES.get(name.upper())
    if known is None:
        raise patterns.BadPattern(f"there is no class [:{name}:]")
    return known if known == " " else f"\\p{{{known}}}"


def _similar(text: str, pattern: str, escape: str = "") -> bool:
    return patterns.compiled(_as_java(pattern, escape)).fullmatch(text) is not None


def _resolve_similar(args: Sequence[Expr]) -> Signature | Refused:
    usage = "a VARCHAR SIMILAR TO a pattern, and maybe ESCAPE a character"
    found = forms(usage, *(((_TEXT,) * n, S.BOOLEAN) for n in (2, 3)))(args)
    pattern, escape = constant(args[1]), constant(args[2]) if len(args) == 3 else ""
    if isinstance(pattern, str) and isinstance(escape, str):
        try:
            patterns.compiled(_as_java(pattern, escape))
        except patterns.BadPattern as bad:
            return Refused(f"{pattern!r} is no pattern of SIMILAR TO: {bad}", "write % _ | * + ? {2,3} ( ) [a-z]")
    return found


def _trimmed(text: str, char: str, side: str = "BOTH") -> str:
    if len(char) != 1:
        raise ValueError("what is taken away is one character")
    left = text if side == "TRAILING" else text.lstrip(char)
    return left if side == "LEADING" else left.rstrip(char)


def _resolve_trim(args: Sequence[Expr]) -> Signature | Refused:
    known = forms("a VARCHAR, or a character FROM a VARCHAR", *(((_TEXT,) * n, _TEXT) for n in (1, 2, 3)))(args)
    return known if isinstance(known, Refused) or len(args) == 1 else Signature(known.args, _TEXT, "sql.trim_of")


def _initcap(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


SQLSTREAM = {
    f.name: f
    for f in (
        Function("sql.extract", _resolve_extract, _extract, names=in_sql(sqlstream="EXTRACT")),
        Function("sql.floor_to", _resolve_rounded, _floor),
        Function("sql.ceil_to", _resolve_rounded, null_fails(_ceil, NO_TIME)),
        Function("sql.step_by", _resolve_rounded, _step),
        Function("sql.shift_months", _resolve_rounded, null_fails(_months, NO_TIME)),
        Function("sql.shift_days", _resolve_days, null_fails(_days, NO_TIME)),
        Function(
            "sql.unix_timestamp",
            _resolve_unix,
            lambda call, args: args[0].dt.epoch("ms"),
            names=in_sql(sqlstream="UNIX_TIMESTAMP"),
        ),
        Function(
            "sql.to_timestamp",
            forms("a number of milliseconds since 1970", ((S.BIGINT,), S.TIMESTAMP)),
            null_fails(lambda call, args: dates.instant(args[0]), NO_TIME),
            names=in_sql(sqlstream="TO_TIMESTAMP"),
        ),
        Function(
            "sql.tsdiff",
            forms("a start and an end", ((S.TIMESTAMP, S.TIMESTAMP), S.BIGINT), ((S.BIGINT, S.BIGINT), S.BIGINT)),
            null_fails(_tsdiff, BEYOND),
            names=in_sql(sqlstream="TSDIFF"),
        ),
        by_template("CHAR_TO_TIMESTAMP", "a pattern and a VARCHAR", _TEXT, S.TIMESTAMP),
        by_template("CHAR_TO_DATE", "a pattern and a VARCHAR", _TEXT, S.DATE),
        by_template("CHAR_TO_TIME", "a pattern and a VARCHAR", _TEXT, S.TIME),
        by_template("TIMESTAMP_TO_CHAR", "a pattern and a TIMESTAMP", S.TIMESTAMP, _TEXT, null="null"),
        by_template("DATE_TO_CHAR", "a pattern and a DATE", S.DATE, _TEXT),
        by_template("TIME_TO_CHAR", "a pattern and a TIME", S.TIME, _TEXT),
        _finite("POWER", power, forms("a number and an exponent", ((_D, _D), _D))),
        _finite("EXP", lambda x: x.exp(), _number),
        _finite("LN", lambda x: x.log(), _number),
        _finite("LOG10", log10, _number),
        Function(
            "sql.position",
            forms("a VARCHAR IN a VARCHAR", ((_TEXT, _TEXT), S.INT)),
            lambda call, args: distinct(_position, args, pl.Int32()),
            names=in_sql(sqlstream="POSITION"),
        ),
        Function(
            "sql.overlay",
            forms(
                "a VARCHAR PLACING a VARCHAR FROM an INTEGER, and maybe FOR an INTEGER",
                ((_TEXT, _TEXT, S.INT), _TEXT),
                ((_TEXT, _TEXT, S.INT, S.INT), _TEXT),
            ),
            tried(_overlaid, _TEXT),
            names=in_sql(sqlstream="OVERLAY"),
        ),
        Function(
            "sql.regex_replace",
            _resolve_replaced,
            tried(_regex_replaced, _TEXT),
            names=in_sql(sqlstream="REGEX_REPLACE"),
        ),
        Function("sql.similar", _resolve_similar, tried(_similar, S.BOOLEAN)),
        Function(
            "sql.trim",
            _resolve_trim,
            lambda call, args: args[0].str.strip_chars(" "),
            names=in_sql(sqlstream="TRIM"),
        ),
        Function("sql.trim_of", _resolve_trim, tried(_trimmed, _TEXT)),
        Function(
            "sql.initcap",
            forms("a VARCHAR", ((_TEXT,), _TEXT)),
            lambda call, args: distinct(_initcap, args, pl.String()),
            names=in_sql(sqlstream="INITCAP"),
        ),
    )
}
