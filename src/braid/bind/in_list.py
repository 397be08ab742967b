"""Items of IN (…): constants take the type of what they are compared with.

In: an item as written, the type on the left, how to bind any other expression. Out: a typed expression; None for an
item that equals no value of that type.
Rule: only constants are converted, and only here; a constant that cannot be is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal as PyDecimal
from decimal import InvalidOperation

from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.sql import ast
from braid.types import Array, Decimal, Map, Scalar, Struct, Type, is_numeric

Binder = Callable[[ast.Expr], Expr]


def bind_listed(e: ast.Expr, wanted: Type, bind: Binder) -> Expr | None:
    """The item as an expression that can be compared with a value of type `wanted`."""
    match e, wanted:
        case ast.Literal(value=str(text)), Scalar.BOOLEAN:
            return typing.literal(_boolean(text), Scalar.BOOLEAN)
        case ast.Literal(value=str(text)), _ if is_numeric(wanted):
            return _number(text, wanted)
        case ast.Literal(value=bool(value)), Scalar.VARCHAR:
            return typing.literal("true" if value else "false", Scalar.VARCHAR)
        case ast.Literal(value=int() | PyDecimal() as number), Scalar.VARCHAR:
            return typing.literal(str(number), Scalar.VARCHAR)
        case ast.ArrayLiteral(items=items), Array(element):
            made = [bind_listed(x, element, bind) for x in items]
            return typing.call("make_array", [x for x in made if x is not None]) if None not in made else None
        case ast.MapLiteral(items=pairs), Map(key, value):
            parts = [bind_listed(x, t, bind) for pair in pairs for x, t in zip(pair, (key, value), strict=True)]
            return typing.call("make_map", [x for x in parts if x is not None]) if None not in parts else None
        case ast.StructLiteral(items=given), Struct(fields):
            return _struct(dict(given), {f.name: f.type for f in fields}, bind)
    return bind(e)


def _struct(given: dict[str, ast.Expr], fields: dict[str, Type], bind: Binder) -> Expr | None:
    """A field that is not given is null; one that the type does not have makes it another value."""
    if not given.keys() <= fields.keys():
        return None
    made: list[tuple[str, Expr]] = []
    for name, t in fields.items():
        null = typing.literal(None, Scalar.NULL)
        x = bind_listed(given[name], t, bind) if name in given else null
        if x is None:
            return None
        made.append((name, typing.cast(x, t) if x.type is Scalar.NULL else x))
    return typing.struct(made)


def _boolean(text: str) -> bool:
    """true and yes, false and no, in any case, or what they begin with."""
    word = text.strip().lower()
    for value, names in ((True, ("true", "yes")), (False, ("false", "no"))):
        if word and any(name.startswith(word) for name in names):
            return value
    raise SqlError(f"{text!r} is not a BOOLEAN", hint="write true or false")


def _number(text: str, wanted: Type) -> Expr:
    """The number that a text holds, in the narrowest type that has it."""
    try:
        number = PyDecimal(text.strip())
    except InvalidOperation:
        number = PyDecimal("NaN")
    if not number.is_finite():
        raise SqlError(f"{text!r} is not of type {wanted}", hint="write a number")
    if wanted is Scalar.DOUBLE:
        return typing.literal(float(number), Scalar.DOUBLE)
    digits = number.as_tuple()
    exponent = int(digits.exponent)
    if exponent >= 0 and abs(number) < 2**63:
        whole = int(number)
        return typing.literal(whole, Scalar.INT if -(2**31) <= whole < 2**31 else Scalar.BIGINT)
    scale = max(-exponent, 0)
    return typing.literal(number, Decimal(max(len(digits.digits) + max(exponent, 0), scale), scale))
