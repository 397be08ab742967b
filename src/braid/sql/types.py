"""The grammar of types.

In: a cursor at a type. Out: the type, with the cursor behind it.
Rule: a name that CREATE TYPE gave stands for its type, and for all of it: what is read holds no such name.
"""

from __future__ import annotations

from braid.guess import suggested
from braid.sql.constants import MAX_PRECISION
from braid.sql.cursor import Cursor, closest
from braid.sql.dialects.base import Words
from braid.sql.tokens import TokenKind
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

OF_TYPES = ("ARRAY", "MAP", "STRUCT", "DECIMAL")  # the types with parameters


def is_type(words: Words, name: str) -> bool:
    """Whether the dialect has a type of this name, in upper case."""
    return name in words.types or name in OF_TYPES


def sql_type(c: Cursor) -> Type:
    """A type as the dialect spells it."""
    c.enter()
    start = c.index
    found = _sql_type(c, start)
    c.leave()
    return found


def _sql_type(c: Cursor, start: int) -> Type:
    word, scalars = c.word(), c.dialect.types
    if c.dialect.own_type is not None and (found := c.dialect.own_type(c)) is not None:
        return found
    if not is_type(c.dialect, word) and (made := _made(c)) is not None:
        return made
    match word:
        case "ARRAY":
            c.advance()
            opened = c.expect_symbol("<", "'<' and the element type: ARRAY<INT>")
            element = sql_type(c)
            c.close(opened, ">")
            return Array(element)
        case "MAP":
            c.advance()
            opened = c.expect_symbol("<", "'<', key and value type: MAP<VARCHAR, INT>")
            key = sql_type(c)
            c.expect_symbol(",", "',' and the type of the values")
            value = sql_type(c)
            c.close(opened, ">")
            return Map(key, value)
        case "STRUCT":
            return _struct_type(c)
        case "DECIMAL":
            return decimal_type(c)
    if word in scalars:
        c.advance()
        if scalars[word] is Scalar.VARCHAR:
            length(c)
        return scalars[word]
    if not word:
        raise c.unexpected("a type")
    known = [*scalars, *OF_TYPES, *c.types]
    meant = c.dialect.type_advice.get(word) or closest(word, known)
    hint = suggested([meant], f"types are {', '.join(known)}")
    if word in c.dialect.reserved:
        raise c.unexpected("a type", hint=hint)
    raise c.error(f"unknown type {c.now.text}", c.now, hint)


def _made(c: Cursor) -> Type | None:
    """The type that CREATE TYPE gave the name at the cursor."""
    token = c.now
    name = token.value if token.kind is TokenKind.NAME else c.dialect.fold(token.text)
    found = c.types.get(name) if token.kind in (TokenKind.WORD, TokenKind.NAME) else None
    if found is None:
        return None
    c.advance()
    size, depth = _size(found)
    c.grow(size, depth)
    return found


def _size(t: Type) -> tuple[int, int]:
    """How many types a type is made of, and on how many levels."""
    match t:
        case Array(element):
            inner = [_size(element)]
        case Map(key, value):
            inner = [_size(key), _size(value)]
        case Struct(fields):
            inner = [_size(f.type) for f in fields]
        case _:
            return 1, 1
    return 1 + sum(n for n, _ in inner), 1 + max(d for _, d in inner)


def _struct_type(c: Cursor) -> Type:
    c.advance()
    if c.at_symbol("<>"):
        raise c.error("a STRUCT has at least one field", c.now, "write STRUCT<name TYPE, ...>")
    opened = c.expect_symbol("<", "'<' and the fields: STRUCT<a INT, b VARCHAR>")
    fields: list[Column] = []
    names: set[str] = set()
    while True:
        at = c.now
        name = c.name("a field name")
        if name in names:
            raise c.error(f"field {name} is written twice", at)
        names.add(name)
        if c.at_symbol(":="):
            raise c.error("a field of a STRUCT type is written name TYPE", c.now)
        fields.append(Column(name, sql_type(c)))
        if not c.accept_symbol(","):
            break
    c.close(opened, ">", "',' or '>'")
    return Struct(tuple(fields))


def length(c: Cursor) -> None:
    """`(n)`, if it is there."""
    if c.at_symbol("("):
        opened = c.advance()
        _count(c, "the length")
        c.close(opened, ")")


def decimal_type(c: Cursor, plain: Decimal | None = None) -> Type:
    """`plain`: what it is without digits, where they may be left out."""
    start, hint = c.index, "write DECIMAL(precision, scale), such as DECIMAL(10, 2)"
    c.advance()
    if not c.at_symbol("("):
        if plain is not None:
            return plain
        raise c.unexpected("'(' and precision and scale", hint=hint)
    opened = c.advance()
    precision = _count(c, "the precision")
    scale = 0
    if c.accept_symbol(","):
        scale = _count(c, "the scale")
    elif plain is None:
        raise c.unexpected("',' and the scale", hint=hint)
    c.close(opened, ")")
    if not 1 <= precision <= MAX_PRECISION or scale > precision:
        limits = f"the precision is 1 to {MAX_PRECISION}, the scale 0 to the precision"
        raise c.error_from(start, f"DECIMAL({precision}, {scale}) is out of range", limits)
    return Decimal(precision, scale)


def _count(c: Cursor, what: str) -> int:
    text = c.now.text
    if c.now.kind is not TokenKind.NUMBER or not text.isdigit() or len(text) > 9:
        raise c.unexpected(f"{what}, a whole number")
    return int(c.advance().text)
