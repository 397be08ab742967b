"""Every function and operator that risingwave accepts, with each combination of types that it takes.

In: the rows of functions, the operators of the grammar. Out: forms: a text with places for arguments, and their types.
Rule: what is accepted is asked of the binder, so that a new row or overload is judged without a word here; only
constants that a function takes (fields, formats, patterns) are listed.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from braid.bind.risingwave.expressions import Names, bind
from braid.errors import BraidError
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.postgres import typing
from braid.expr.signatures import Refused
from braid.sql.dialects.risingwave import RISINGWAVE
from braid.sql.parser import parse
from braid.types import Decimal, Scalar, Type
from postgres.values import FREE, NAMES, TYPES

S = Scalar


@dataclass(frozen=True, slots=True)
class Form:
    """`name`: of the function or operator; `text`: with `{0}`, `{1}` for its arguments."""

    name: str
    text: str
    types: tuple[Type, ...]
    result: Type

    def over(self, *args: str) -> str:
        return "(" + self.text.format(*args) + ")"

    def __str__(self) -> str:
        return self.text.format(*(NAMES[t] for t in self.types))


BINARY = ("+", "-", "*", "/", "%", "^", "&", "|", "#", "<<", ">>", "||", "=", "<>", "<", "<=", ">", ">=",
          "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "^@", "@>", "<@", "&&", "->", "->>", "#>", "#>>", "#-", "?", "?|",
          "?&")  # fmt: skip
PREFIX = {"-x": "- {0}", "~x": "~ {0}", "@x": "@ {0}"}
PATTERNS = ("LIKE", "ILIKE", "NOT LIKE", "~~", "~~*", "!~~", "!~~*", "~", "~*", "!~", "!~*", "SIMILAR TO")
LIKES = ("'a%'", "'%b%'", "'_b_'", "'a\\%c'", "'%'", "''", "'%😀_'")
REGEXES = ("'b+'", "'(a)(b)?'", "'[[:digit:]]+'", "'x(?=y)'", "'(y)x\\1'")  # in which PostgreSQL and RisingWave agree
PLACED = ("'^a'", "''", "'a$'")  # where a search does not go on
FIELDS = ("century", "day", "decade", "dow", "doy", "epoch", "hour", "isodow", "isoyear", "microseconds", "millennium",
          "milliseconds", "minute", "month", "quarter", "second", "week", "year")  # fmt: skip
UNITS = ("microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year",
         "decade", "century", "millennium")  # fmt: skip
CHARS = ("YYYY-MM-DD HH24:MI:SS", "YY MON Dy D DDD", "FMMonth FMDay FMDD", "HH12:MI:SS.MS AM", "IYYY-IW-ID",
         "Q CC J WW W", "MM/DD/YYYY BC", "\"on\" DD Mon")  # fmt: skip
SIZED = ("LEFT", "RIGHT", "LPAD", "RPAD", "SUBSTR", "SUBSTRING", "REPEAT", "ROUND", "TRUNC")
# Constants that a function takes in some places: (name, place) -> texts.
TAKEN: dict[tuple[str, int], tuple[str, ...]] = {
    ("DATE_PART", 0): tuple(f"'{f}'" for f in FIELDS),
    ("DATE_TRUNC", 0): tuple(f"'{f}'" for f in UNITS),
    ("DATE_TRUNC", 2): ("'UTC'", "'Europe/Paris'", "'America/New_York'"),
    ("TO_CHAR", 1): tuple("'" + c.replace("'", "''") + "'" for c in CHARS),
    ("TO_DATE", 1): ("'YYYY-MM-DD'", "'DD Mon YYYY'"),
    ("TO_TIMESTAMP", 1): ("'YYYY-MM-DD HH24:MI:SS'",),
    ("ENCODE", 1): ("'hex'", "'base64'", "'escape'"),
    ("DECODE", 1): ("'hex'", "'base64'", "'escape'"),
    ("TIMEZONE", 0): ("'UTC'", "'Europe/Paris'", "'America/New_York'", "'+03'"),
    ("DATE_BIN", 0): ("INTERVAL '15 minutes'", "INTERVAL '3 days'"),
    ("FORMAT", 0): ("'%s'", "'%s-%s'", "'%I %L'", "'100%%'"),
    **{(f"REGEXP_{n}", 1): REGEXES for n in ("REPLACE", "COUNT", "SPLIT_TO_ARRAY")},
    ("REGEXP_MATCH", 1): (*REGEXES, *PLACED),
    **{(n, 1): ("-3", "-1", "0", "1", "2", "5", "12") for n in SIZED},
    **{(n, 2): ("-1", "0", "1", "2", "9") for n in ("SUBSTR", "SUBSTRING", "SPLIT_PART", "OVERLAY")},
    ("SPLIT_PART", 1): ("','", "'b'", "''", "'xy'"),
    **{("MAKE_INTERVAL", i): ("1", "-2", "14") for i in range(3)},
    **{(n, 1): ("'UTF8'",) for n in ("CONVERT_FROM", "CONVERT_TO")},
    ("CHR", 0): ("65", "8364", "128512", "0"),
}  # fmt: skip


def bound(text: str, types: tuple[Type, ...]) -> Expr | None:
    """The expression over columns `a0`, `a1` … of these types; None where it is refused."""
    columns = {f"a{i}": Col(f"a{i}", t) for i, t in enumerate(types)}
    try:
        (statement,) = parse(f"SELECT {text};", RISINGWAVE).statements
        written = statement.rows.body.items[0].expr  # type: ignore[union-attr]
        return typing.finished(bind(written, Names("SELECT", lambda n: columns[n.parts[0]])))
    except BraidError:
        return None


def _form(name: str, text: str, types: tuple[Type, ...]) -> Iterator[Form]:
    made = bound(text.format(*(f"a{i}" for i in range(len(types)))), types)
    if made is not None:
        yield Form(name, text, types, made.type)


def functions() -> Iterator[Form]:
    """Of each function, with each combination of types that needs no conversion."""
    for name in sorted(typing.known()):
        yield from _extracts() if name == "EXTRACT" else _of_function(name)


def _of_function(name: str) -> Iterator[Form]:
    types = list(TYPES.values())
    for arity in range(4):
        places = [TAKEN.get((name, i)) for i in range(arity)]
        fixed = [p is not None for p in places]
        free = arity - sum(fixed)
        if free > 2 and arity > 3:
            continue
        for combination in itertools.product(types, repeat=free):
            rest = iter(range(free))
            holes = ["?" if f else f"{{{next(rest)}}}" for f in fixed]
            if not _accepts(name, combination, places) or (name == "SCALE" and FREE in combination):
                continue  # the scale of NUMERIC without digits is that of its type
            for constants in itertools.zip_longest(*(p for p in places if p is not None)) if any(fixed) else [()]:
                given = iter(constants)
                args = [_constant(next(given), places[i]) if h == "?" else h for i, h in enumerate(holes)]
                yield from _form(name, f"{name.lower()}({', '.join(args)})", combination)


def _extracts() -> Iterator[Form]:
    for field in FIELDS:
        for t in (S.DATE, S.TIME, S.TIMESTAMP, S.TIMESTAMPTZ):
            yield from _form("EXTRACT", f"extract({field} FROM {{0}})", (t,))


def _constant(value: str | None, place: tuple[str, ...] | None) -> str:
    assert place is not None
    return (place[0] if value is None else value).replace("{", "{{").replace("}", "}}")


def _accepts(name: str, types: tuple[Type, ...], places: list[tuple[str, ...] | None]) -> bool:
    """Whether the row takes these types as they are."""
    rest = iter(types)
    args: list[Expr] = []
    for p in places:
        if p is None:
            t = next(rest)
            args.append(Col(f"a{len(args)}", t))
        else:
            known = bound(p[0].replace("{", "{{").replace("}", "}}"), ())
            args.append(known if known is not None else Lit(None, S.NULL))
    try:
        signature = typing.known()[name].resolve(args)
    except (ValueError, IndexError):
        return False
    if isinstance(signature, Refused):
        return False
    return all(not isinstance(a, Col) or a.type == t for a, t in zip(args, signature.args, strict=False))


def operators() -> Iterator[Form]:
    types = list(TYPES.values())
    for op in BINARY:
        for a, b in itertools.product(types, repeat=2):
            yield from _form(op, f"{{0}} {op} {{1}}", (a, b))
    for op in PATTERNS:
        likes, similar = "LIKE" in op or "~~" in op, op == "SIMILAR TO"
        for p in LIKES if likes else ("'a(b|c)%'", "'%b_'") if similar else (*REGEXES, *PLACED):
            yield from _form(op, f"{{0}} {op} {p}", (S.VARCHAR,))
        if likes:
            yield from _form(op, f"{{0}} {op} {{1}}", (S.VARCHAR, S.VARCHAR))
    for op, pattern in (("LIKE", "'a$_b%'"), ("NOT ILIKE", "'%$%B'"), ("SIMILAR TO", "'a$(b|c)%'")):
        for escape in ("$", ""):
            yield from _form(f"{op} ESCAPE", f"{{0}} {op} {pattern} ESCAPE '{escape}'", (S.VARCHAR,))
    for t in types:
        for op, text in PREFIX.items():
            yield from _form(op, text, (t,))
        yield from _form("IN", "{0} IN ({1}, {2}, NULL)", (t, t, t))
        yield from _form("NOT IN", "{0} NOT IN ({1}, {2})", (t, t, t))
        yield from _form("BETWEEN", "{0} BETWEEN {1} AND {2}", (t, t, t))
        yield from _form("IS NULL", "{0} IS NULL", (t,))
        yield from _form("CASE", "CASE WHEN {0} = {1} THEN {1} ELSE {2} END", (t, t, t))
        yield from _form("subscript", "{0}[{1}]", (t, S.INT))
        for op in ("=", "<>", "<"):
            yield from _form("ANY", f"{{1}} {op} ANY ({{0}})", (t, S.INT))
            yield from _form("ANY", f"{{1}} {op} SOME ({{0}})", (t, S.VARCHAR))
            yield from _form("ALL", f"{{1}} {op} ALL ({{0}})", (t, S.INT))
    for word in ("AND", "OR"):
        yield from _form(word, f"{{0}} {word} {{1}}", (S.BOOLEAN, S.BOOLEAN))
    yield from _form("NOT", "NOT {0}", (S.BOOLEAN,))
    for length in ("1 day", "-3 hours", "1 month", "2 years 1 day 01:00:00.5", "-1 month"):
        for t in (S.DATE, S.TIME, S.TIMESTAMP, S.TIMESTAMPTZ):
            yield from _form("+ INTERVAL", f"{{0}} + INTERVAL '{length}'", (t,))
            yield from _form("- INTERVAL", f"{{0}} - INTERVAL '{length}'", (t,))


LENGTHS = ("({0} - {1})", "age({0}, {1})")  # of two TIMESTAMPs: days and a time; months, too
OTHERS = ("({1} - {2})", "age({1}, {2})")
OF_LENGTH = {
    **{f"JUSTIFY_{of}": f"justify_{of.lower()}({{x}})" for of in ("DAYS", "HOURS", "INTERVAL")},
    "-x": "- {x}",
    "interval::": "{x}::varchar",
    "GREATEST": "greatest({x}, - {x})",
    "AT TIME ZONE": "{2} AT TIME ZONE {x}",
}
OF_LENGTHS = ("{x} + {y}", "{x} - {y}", "{x} = {y}", "{x} < {y}", "{x} >= {y}", "{x} IS DISTINCT FROM {y}",
              "coalesce({x}, {y})", "least({x}, {y})", "nullif({x}, {y})", "{x} IN ({y})")  # fmt: skip


def intervals() -> Iterator[Form]:
    """No column is an INTERVAL: lengths of time are made of two others."""
    three = (S.TIMESTAMP,) * 3
    for x, y in zip(LENGTHS, OTHERS, strict=True):
        for name, text in OF_LENGTH.items():
            yield from _form(name, text.replace("{x}", x), three if "{2}" in text else three[:2])
        for text in OF_LENGTHS:
            yield from _form("of INTERVAL", text.replace("{x}", x).replace("{y}", y), three)
        for field in FIELDS:
            yield from _form("EXTRACT", f"extract({field} FROM {x})", three[:2])
            yield from _form("DATE_PART", f"date_part('{field}', {x})", three[:2])
        for unit in UNITS:
            yield from _form("DATE_TRUNC", f"date_trunc('{unit}', {x})", three[:2])
        for pattern in CHARS:
            yield from _form("TO_CHAR", f"to_char({x}, '{pattern}')", three[:2])
        for t in (S.SMALLINT, S.INT, S.REAL, S.DOUBLE):
            for op in ("*", "/"):
                yield from _form(f"INTERVAL {op}", f"{x} {op} {{2}}", (*three[:2], t))
        for t in (S.DATE, S.TIME, S.TIMESTAMP, S.TIMESTAMPTZ):
            for op in ("+", "-"):
                yield from _form(f"{op} INTERVAL", f"{{2}} {op} {x}", (*three[:2], t))


def of_many() -> Iterator[Form]:
    """Functions of more arguments than are tried."""
    for kind, more in (("", ""), ("tz", ""), ("tz", ", 'Europe/Paris'"), ("tz", ", {6}")):
        types = (*(S.INT,) * 3, *(S.SMALLINT,) * 2, S.DOUBLE, *([S.VARCHAR] if "{6}" in more else []))
        for year, month, day in (("{0}", "{1}", "{2}"), ("{0} % 3000", "{1} % 12 + 1", "{2} % 28 + 1")):
            parts = f"{year}, {month}, {day}, {{3}} % 24, {{4}} % 60, {{5}}{more}"
            yield from _form(f"MAKE_TIMESTAMP{kind.upper()}", f"make_timestamp{kind}({parts})", types)


def casts() -> Iterator[Form]:
    for (a, t), b in itertools.product(TYPES.items(), TYPES):
        yield from _form(f"{a.partition('(')[0]}::{b.partition('(')[0]}", f"{{0}}::{b}", (t,))


@functools.cache
def all_forms() -> list[Form]:
    return list(dict.fromkeys((*casts(), *operators(), *intervals(), *functions(), *of_many())))


OWN = frozenset((  # functions that PostgreSQL does not have
    "ARRAY_CONTAINED", "ARRAY_CONTAINS", "ARRAY_DISTINCT", "ARRAY_FLATTEN", "ARRAY_JOIN", "ARRAY_MAX", "ARRAY_MIN",
    "ARRAY_REVERSE", "ARRAY_SORT", "ARRAY_SUM", "COTH", "JSONB_TO_ARRAY", "SHA1",
))  # fmt: skip
# NULL is a null in them; what is empty is written in one line
_DOCUMENTS = ("TO_JSONB", "JSONB_BUILD_ARRAY", "JSONB_BUILD_OBJECT", "JSONB_PRETTY")
BY_PATH = ("#-", "JSONB_DELETE_PATH", "JSONB_SET")  # of some paths the page's table tells
_ORDERED = ("<", "<=", ">", ">=", "BETWEEN", "GREATEST", "LEAST")


def is_own(form: Form) -> bool:
    """Whether PostgreSQL has no such form: RisingWave's pages judge it (tests/cases/risingwave/functions)."""
    match form.name, form.types:
        case ("ARRAY_LENGTH", (_,)) | ("DATE_PART", (S.TIMESTAMPTZ, S.VARCHAR)) | ("STRPOS", (S.BYTES, _)):
            return True
    return form.name in OWN


def is_judged(form: Form) -> bool:
    """Whether both mean the same by it."""
    return not is_own(form) and not differs(form)


def differs(form: Form) -> bool:
    """Whether PostgreSQL means something else by it: the page's table says what. (The scale of a NUMERIC without digits
    is here the type's; a document that is a single value has no parts.)"""
    match form.name, form.types:
        case "SCALE", (Decimal() as t,):
            return t == FREE
        case name, (S.JSONB, *_) if name in _ORDERED:
            return True
        case ("->" | "->>", (_, S.SMALLINT | S.INT)) | ("?&" | "JSONB_EXISTS_ALL", _):
            return True
    return form.name in _DOCUMENTS


def coverage() -> str:
    """What is judged, in numbers."""
    forms = [f for f in all_forms() if is_judged(f)]
    names = {f.name for f in forms}
    functions = names & set(typing.known())
    casts = {n for n in names if "::" in n}
    signs = names - functions - casts
    return (
        f"{len(forms)} forms: of {len(functions)} functions, {len(signs)} operators and predicates, and {len(casts)} "
        f"conversions between types."
    )


# ---------------------------------------------------------------------- nested

_INEXACT = {"/", "%", "SQRT", "LN", "LOG", "LOG10", "EXP", "POWER", "POW", "^", "DIV", "CBRT"}


def nested(forms: list[Form], count: int, r: random.Random) -> list[Form]:
    """Expressions of two and three levels. What has more digits in PostgreSQL than here, or another text (of a zone),
    stands at the top only. Flags of patterns are values as they come: one that is computed may be a flag that differs
    (the page's table has it)."""
    inner: dict[Type, list[Form]] = {}
    forms = [f for f in forms if f.name not in ("SCALE", *BY_PATH) and not differs(f)]
    for f in forms:
        zoned = S.TIMESTAMPTZ in f.types and f.result is S.VARCHAR
        if f.result is not S.INTERVAL and not _beyond(f) and not zoned:
            inner.setdefault(f.result, []).append(f)
    made: list[Form] = []
    tries = 0
    while len(made) < count and tries < 40 * count:
        tries += 1
        found = _nested(r.choice(forms), inner, r, 2)
        if found is not None and len(found.types) <= 6:
            made.append(found)
    return made


def _beyond(f: Form) -> bool:
    """Whether what it gives may be a value that Braid does not have: a date of a million years, NaN as NUMERIC, a
    NUMERIC of more than 38 digits, or with more of them behind the point."""
    if isinstance(f.result, Decimal):
        full = f.result.precision == FREE.precision and f.name in ("+", "-", "*", "LCM", "FACTORIAL")
        full |= f.name in ("ROUND", "TRUNC") and ", 12)" in str(f)
        return full or f.name in _INEXACT or re.fullmatch("(double precision|real)::numeric", f.name) is not None
    return f.result is S.DATE and f.name in ("+", "-")


def _nested(top: Form, inner: dict[Type, list[Form]], r: random.Random, depth: int) -> Form | None:
    texts: list[str] = []
    types: list[Type] = []
    for t in top.types:
        flags = top.name.startswith("REGEXP_") and texts
        under = None if flags else inner.get(t)
        if depth and under and r.random() < 0.6:
            below = _nested(r.choice(under), inner, r, depth - 1)
            if below is None:
                return None
            texts.append("(" + _moved(below.text, len(below.types), len(types)) + ")")
            types += below.types
        else:
            texts.append(f"{{{len(types)}}}")
            types.append(t)
    text = _put(top.text, texts)
    made = bound(text.format(*(f"a{i}" for i in range(len(types)))), tuple(types))
    return None if made is None else Form("nested", text, tuple(types), made.type)


def _moved(text: str, count: int, by: int) -> str:
    return _put(text, [f"{{{i + by}}}" for i in range(count)])


def _put(text: str, texts: list[str]) -> str:
    """`text` with these in its places, to be filled once more."""
    return text.replace("{{", "\x02").replace("}}", "\x03").format(*texts).replace("\x02", "{{").replace("\x03", "}}")
