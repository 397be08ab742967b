"""The grammar of RisingWave's types and constants: `::`, INTERVAL, PostgreSQL's type names.

In: a cursor at the first token. Out: types, and nodes of expressions.
Rule: a type is one of Braid's, with the name under which PostgreSQL knows it beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal as PyDecimal

from braid.guess import meant
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.expressions import LONGEST, UNARY, expression
from braid.sql.tokens import Token, TokenKind
from braid.types import Array, Column, Decimal, Scalar, Struct, Type

S = Scalar
NUMERIC = Decimal(38, 10)  # NUMERIC without precision
_NAMES: dict[str, tuple[Type, str]] = {
    **dict.fromkeys(("SMALLINT", "INT2"), (S.SMALLINT, "smallint")),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), (S.INT, "integer")),
    **dict.fromkeys(("BIGINT", "INT8"), (S.BIGINT, "bigint")),
    **dict.fromkeys(("REAL", "FLOAT4"), (S.REAL, "real")),
    **dict.fromkeys(("FLOAT", "FLOAT8", "DOUBLE"), (S.DOUBLE, "double precision")),
    **dict.fromkeys(("VARCHAR", "TEXT", "STRING", "CHARACTER", "CHAR"), (S.VARCHAR, "varchar")),
    **dict.fromkeys(("BOOLEAN", "BOOL"), (S.BOOLEAN, "boolean")),
    "DATE": (S.DATE, "date"),
    "TIME": (S.TIME, "time"),
    "TIMESTAMP": (S.TIMESTAMP, "timestamp"),
    "TIMESTAMPTZ": (S.TIMESTAMPTZ, "timestamptz"),
    "BYTEA": (S.BYTES, "bytea"),
    "JSONB": (S.JSONB, "jsonb"),
}
_NOT_YET = {
    "JSON": "write JSONB",
    "MAP": "keep it as JSONB, or as a STRUCT if its keys are always the same",
    "INTERVAL": "keep it as VARCHAR, and write x::interval where it is read",
}
_INSTEAD = {"UUID": "write VARCHAR", "SERIAL": "write BIGINT"}  # of types that RisingWave has not
TYPE_WORDS = (*_NAMES, "NUMERIC", "DECIMAL")
_MS = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000, "WEEK": 604_800_000}
_DAYS = {"DAY": 1, "WEEK": 7}
_SHORT = {"MS": "MILLISECOND", "S": "SECOND", "SEC": "SECOND", "MIN": "MINUTE", "H": "HOUR", "HR": "HOUR", "D": "DAY"}
_IN_QUOTES = {**_SHORT, "M": "MINUTE", "MON": "MONTH", "Y": "YEAR", "YR": "YEAR"}
_MONTHS = {"MONTH": 1, "YEAR": 12}
_CLOCK = re.compile(r"([+-]?)(\d+):(\d{1,2})(?::(\d{1,2})(\.\d{1,6})?)?")


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type, and the name under which PostgreSQL knows it."""

    type: Type
    name: str


def sql_type(c: Cursor) -> SqlType:
    """A type by any of its names."""
    found, open_ = _type(c)
    if open_:
        raise c.unexpected("a type without '>'")
    return found


def _type(c: Cursor) -> tuple[SqlType, bool]:
    """A type; whether the `>>` that ended it ends a STRUCT around it, too."""
    start, word = c.index, c.word()
    if word in _NOT_YET:
        raise c.error(f"type {word} is not supported yet", c.now, _NOT_YET[word])
    both = False
    if word == "STRUCT":
        found, both = _struct(c)
    elif word in ("NUMERIC", "DECIMAL"):
        c.advance()
        found = _numeric(c, start)
    elif word in _NAMES:
        c.advance()
        made, name = _NAMES[word]
        if word == "DOUBLE":
            c.accept("PRECISION")
        if word == "CHARACTER":
            c.accept("VARYING")
        if word in ("TIMESTAMP", "TIME") and c.word() in ("WITH", "WITHOUT"):
            zoned = c.advance().value == "WITH"
            c.expect("TIME", "ZONE")
            if zoned and word == "TIME":
                hint = "write TIME, or TIMESTAMPTZ for a moment"
                raise c.error_from(start, "a time of day has no zone, as in RisingWave", hint)
            if zoned:
                made, name = _NAMES["TIMESTAMPTZ"]
        if name == "varchar" and (c.at_symbol("(") or word == "CHAR"):
            hint = "write VARCHAR; left(x, 3) cuts a text, rpad(x, 3) fills it up"
            raise c.error_from(start, "a text has no length in its type, as in RisingWave", hint)
        found = SqlType(made, name)
    else:
        if not word:
            raise c.unexpected("a type")
        hint = meant(word, TYPE_WORDS, f"types are {', '.join(TYPE_WORDS).lower()}", ways=str.lower)
        raise c.error(f"unknown type {c.now.text}", c.now, _INSTEAD.get(word, hint))
    while c.at_symbol("[", "]") and not both:
        c.advance()
        c.advance()
        found = SqlType(Array(found.type), f"{found.name}[]")
    return found, both


def _struct(c: Cursor) -> tuple[SqlType, bool]:
    """STRUCT<a INT, b STRUCT<c INT>>; as `_type`."""
    c.advance()
    c.expect_symbol("<", "'<' and the fields: STRUCT<a INT, b VARCHAR>")
    fields, names, both = list[Column](), list[str](), False
    while True:
        at, field = c.now, c.name("a field name")
        if any(f.name == field for f in fields):
            raise c.error(f"field {field} is written twice", at)
        c.enter()
        found, both = _type(c)
        c.leave()
        fields.append(Column(field, found.type))
        names.append(f"{field} {found.name}")
        if both or not c.accept_symbol(","):
            break
    made = SqlType(Struct(tuple(fields)), f"struct<{', '.join(names)}>")
    if both:
        return made, False
    if c.accept_symbol(">>"):
        return made, True
    if not c.accept_symbol(">"):
        raise c.unexpected("',' or '>'")
    return made, False


def type_named(t: Type) -> SqlType | None:
    """The type that values of another system have here, None where there is none."""
    if isinstance(t, Decimal):
        return SqlType(t, f"numeric({t.precision},{t.scale})")
    if isinstance(t, Array):
        inner = type_named(t.element)
        return None if inner is None else SqlType(Array(inner.type), f"{inner.name}[]")
    if isinstance(t, Struct):
        inside = [(f.name, type_named(f.type)) for f in t.fields]
        made = tuple(Column(name, x.type) for name, x in inside if x is not None)
        shown = ", ".join(f"{name} {x.name}" for name, x in inside if x is not None)
        return SqlType(Struct(made), f"struct<{shown}>") if len(made) == len(inside) else None
    if t is S.TIMESTAMP:  # a moment, as other systems have it
        t = S.TIMESTAMPTZ
    return next((SqlType(made, n) for made, n in _NAMES.values() if made == t), None)


def named_type(name: str) -> SqlType:
    """The type of a name that `sql_type` gave."""
    if name == "numeric":
        return SqlType(NUMERIC, name)
    return next(SqlType(made, n) for made, n in _NAMES.values() if n == name)


def _numeric(c: Cursor, start: int) -> SqlType:
    if not c.at_symbol("("):
        return SqlType(NUMERIC, "numeric")
    opened = c.advance()
    precision, scale = _count(c), 0
    if c.accept_symbol(","):
        scale = _count(c)
    c.close(opened, ")")
    if not 1 <= precision <= 38 or scale > precision:
        raise c.error_from(start, f"numeric({precision}, {scale}) is out of range", "the precision is 1 to 38")
    return SqlType(Decimal(precision, scale), f"numeric({precision},{scale})")


def _count(c: Cursor) -> int:
    if c.now.kind is not TokenKind.NUMBER or not c.now.text.isdigit() or len(c.now.text) > 4:
        raise c.unexpected("a whole number")
    return int(c.advance().text)


def suffix(c: Cursor, left: ast.Expr, start: int) -> ast.Expr | None:
    """`left::type`, `left AT TIME ZONE zone`, `(left).field`."""
    if c.at_symbol(".") and (isinstance(left, ast.Arrow) or c.ahead(-1).text in (")", "]")):
        c.advance()
        if c.accept_symbol("*"):
            return ast.Arrow(left, "*", c.span(start))
        return ast.Arrow(left, c.name("a field name after '.'"), c.span(start))
    if c.accept("AT", "TIME", "ZONE"):
        zone = expression(c, UNARY + 1)
        return ast.Binary("AT TIME ZONE", left, zone, c.span(start))
    if not c.accept_symbol("::"):
        return None
    return _to_type(c, left, start)


def _to_type(c: Cursor, left: ast.Expr, start: int) -> ast.Expr:
    """The cast of `left` to the type at the cursor."""
    if c.at("INTERVAL") and isinstance(left, ast.Literal) and isinstance(left.value, str):
        token = c.advance()
        return _interval(c, left.value, token, start)
    to = sql_type(c)
    return ast.Cast(left, to.type, c.span(start), to.name)


def cast(c: Cursor) -> ast.Expr | None:
    """CAST(x AS type)."""
    if c.ahead(1).text != "(":
        return None
    start = c.index
    c.advance()
    opened = c.advance()
    arg = expression(c)
    c.taller()
    c.expect("AS")
    made = _to_type(c, arg, start)
    c.close(opened, ")")
    return replace(made, span=c.span(start))


def typed_string(c: Cursor) -> ast.Expr | None:
    """`TIMESTAMP '2024-01-01 00:00:00'`, `TIMESTAMP WITH TIME ZONE '2024-01-01 00:00:00Z'`."""
    zoned = c.word() in ("TIMESTAMP", "TIME") and [c.ahead(n).value for n in (2, 3)] == ["TIME", "ZONE"]
    if c.ahead(4 if zoned else 1).kind is not TokenKind.STRING:
        return None
    start = c.index
    to = sql_type(c)
    span_start = c.index
    text = c.advance().value
    c.height = 2
    return ast.Cast(ast.Literal(text, S.VARCHAR, c.span(span_start)), to.type, c.span(start), to.name)


def interval_value(c: Cursor) -> ast.Expr | None:
    """`INTERVAL '1' MINUTE`, where INTERVAL is no name."""
    after = c.ahead(1)
    if after.kind is TokenKind.NUMBER:
        hint = f"write INTERVAL '{after.text}' {c.ahead(2).text if c.ahead(2).kind is TokenKind.WORD else 'MINUTE'}"
        raise c.error("the value of an interval is written in quotes", after, hint)
    return interval(c) if after.kind is TokenKind.STRING else None


def interval(c: Cursor, bare: bool = False) -> ast.Interval:
    """`INTERVAL '1' MINUTE`, `INTERVAL '1 day 2 hours'`; `bare`: INTERVAL may be missing."""
    start = c.index
    if not c.accept("INTERVAL") and not bare:
        raise c.unexpected("INTERVAL", "INTERVAL")
    if c.now.kind is not TokenKind.STRING:
        raise c.unexpected("a length of time, such as '1 minute'")
    token = c.advance()
    text = token.value.strip()
    unit = _unit(c.word())
    if unit is not None:
        c.advance()
        text = f"{text} {unit}"
    return _interval(c, text, token, start)


def length(c: Cursor, e: ast.Expr, start: int) -> ast.Expr:
    """A text in place of a length of time: `'6 hours'`."""
    return _interval(c, e.value, c.now, start) if isinstance(e, ast.Literal) and isinstance(e.value, str) else e


def _interval(c: Cursor, text: str, token: Token, start: int) -> ast.Interval:
    """The interval that `text` is; `token`: where an error shows."""
    months, days, ms, seen = 0, PyDecimal(0), PyDecimal(0), False
    rest = text.strip()
    while rest:
        if clock := _CLOCK.match(rest):
            sign, hours, minutes, seconds, part = clock.groups()
            length = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0) + PyDecimal(part or 0)
            ms += (-1 if sign == "-" else 1) * length * 1000
            rest, seen = rest[clock.end() :].lstrip(), True
            continue
        piece = re.match(r"([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)?", rest)
        name = _unit((piece[2] or "SECOND").upper(), _IN_QUOTES) if piece else None
        if piece is None or name is None:
            hint = "write INTERVAL '1' MINUTE, or '1 day 2 hours'"
            raise c.error(f"'{text}' is not an interval", token, hint)
        amount = PyDecimal(piece[1])
        if name in _MONTHS:
            if amount != int(amount):
                raise c.error(f"'{text}' has a part of a month", token, "write whole months and days")
            months += int(amount) * _MONTHS[name]
        elif name in _DAYS:
            days += amount * _DAYS[name]
        else:
            ms += amount * _MS[name]
        rest, seen = rest[piece.end() :].lstrip(), True
    ms += (days - int(days)) * _MS["DAY"]
    days = PyDecimal(int(days))
    whole = days * _MS["DAY"] + ms
    us = ms % 1 * 1000
    if not seen or us != int(us):
        raise c.error(f"'{text}' is not an interval", token, "the shortest one is 1 microsecond")
    if abs(whole) > LONGEST or abs(months) > 12 * 10_000:
        raise c.error(f"'{text}' is too long an interval", token, "write less than 10,000 years")
    c.height = 1
    return ast.Interval(months, int(whole - ms % 1), c.span(start), int(days), int(us))


def _unit(word: str, short: Mapping[str, str] = _SHORT) -> str | None:
    one = word.removesuffix("S")
    for name in (word, one, short.get(word, ""), short.get(one, "")):
        if name in _MS or name in _MONTHS:
            return name
    return None


PRIMARIES = {
    "CAST": cast,
    "INTERVAL": interval_value,
    **dict.fromkeys(_NAMES, typed_string),
}
