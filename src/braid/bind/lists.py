"""Lists of expressions that have one type: what IN compares with, elements of ARRAY, keys and values of MAP.

In: the items as written, and how one is bound. Out: expressions of one type, or of types that widen to one.
Rule: constants take the type that is wanted, or are refused: that of what IN compares, else of the first item that is
not NULL. Texts are read as numbers, truth values and times, constants become texts, structures have the fields of all.
(docs/rules/ksqldb.md, KR-91)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal as PyDecimal
from decimal import InvalidOperation

from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Expr
from braid.sql import ast
from braid.types import TIMESTAMPS, Array, Column, Decimal, Map, Scalar, Struct, Type, is_numeric

_MOMENTS = (Scalar.DATE, Scalar.TIME, *TIMESTAMPS)
Binder = Callable[[ast.Expr], Expr]


def bind_array(items: Sequence[ast.Expr], bind: Binder) -> Expr:
    return typing.call("make_array", _with_all_fields(_alike(items, bind)))


def bind_map(pairs: Sequence[tuple[ast.Expr, ast.Expr]], bind: Binder) -> Expr:
    keys, values = (_with_all_fields(_alike([pair[i] for pair in pairs], bind)) for i in (0, 1))
    return typing.call("make_map", [x for pair in zip(keys, values, strict=True) for x in pair])


def _with_all_fields(items: list[Expr]) -> list[Expr]:
    """Structures, at any depth, with the fields of all; others as they are."""
    if typing.common_of([x.type for x in items]) is not None:
        return items
    t: Type | None = Scalar.NULL
    for x in items:
        t = None if t is None else _joint(t, x.type)
    if t is None:
        return items
    return [x if x.type is Scalar.NULL else typing.cast(x, t) for x in items]


def _joint(a: Type, b: Type) -> Type | None:
    """The type of the values of both, where structures have the fields of both."""
    match a, b:
        case (Struct(fields), Struct(others)):
            types = {f.name: f.type for f in fields}
            for f in others:
                t = _joint(types.get(f.name, Scalar.NULL), f.type)
                if t is None:
                    return None
                types[f.name] = t
            return Struct(tuple(Column(name, t) for name, t in types.items()))
        case (Array(x), Array(y)):
            element = _joint(x, y)
            return None if element is None else Array(element)
        case (Map(k, x), Map(kk, y)) if k == kk:
            value = _joint(x, y)
            return None if value is None else Map(k, value)
    return typing.common_type(a, b)


def _alike(items: Sequence[ast.Expr], bind: Binder) -> list[Expr]:
    """Items of one list. Constructors of one kind are taken apart: their parts are lists of their own."""
    given = [x for x in items if not _is_null(x)]
    if 0 < len(given) < len(items):  # a NULL has any type
        others = iter(_alike(given, bind))
        return [bind(x) if _is_null(x) else next(others) for x in items]
    if len(items) > 1 and all(isinstance(x, ast.ArrayLiteral) for x in items):
        return _arrays([x for x in items if isinstance(x, ast.ArrayLiteral)], bind)
    if len(items) > 1 and all(isinstance(x, ast.MapLiteral) for x in items):
        return _maps([x for x in items if isinstance(x, ast.MapLiteral)], bind)
    if len(items) > 1 and all(isinstance(x, ast.StructLiteral) for x in items):
        return _structs([x for x in items if isinstance(x, ast.StructLiteral)], bind)
    made: list[Expr] = []
    wanted: Type = Scalar.NULL
    for x in items:
        try:
            listed = bind_listed(x, wanted, bind)
        except SqlError as error:
            error.span = error.span or x.span
            raise
        made.append(bind(x) if listed is None else listed)
        wanted = made[-1].type if wanted is Scalar.NULL else wanted
    return made


def _is_null(e: ast.Expr) -> bool:
    return isinstance(e, ast.Literal) and e.value is None


def _arrays(items: Sequence[ast.ArrayLiteral], bind: Binder) -> list[Expr]:
    elements = iter(_alike([x for a in items for x in a.items], bind))
    return [typing.call("make_array", [next(elements) for _ in a.items]) for a in items]


def _maps(items: Sequence[ast.MapLiteral], bind: Binder) -> list[Expr]:
    keys, values = (iter(_alike([pair[i] for m in items for pair in m.items], bind)) for i in (0, 1))
    return [typing.call("make_map", [x for _ in m.items for x in (next(keys), next(values))]) for m in items]


def _structs(items: Sequence[ast.StructLiteral], bind: Binder) -> list[Expr]:
    """A field that one of them lacks is null."""
    given = [dict(x.items) for x in items]
    made: list[list[tuple[str, Expr]]] = [[] for _ in items]
    for name in dict.fromkeys(name for fields in given for name in fields):
        values = iter(_alike([fields[name] for fields in given if name in fields], bind))
        known = [next(values) if name in fields else typing.literal(None, Scalar.NULL) for fields in given]
        t = next((x.type for x in known if x.type is not Scalar.NULL), Scalar.NULL)
        for fields, x in zip(made, known, strict=True):
            fields.append((name, typing.cast(x, t) if x.type is Scalar.NULL and t is not Scalar.NULL else x))
    return [typing.struct(fields) for fields in made]


def bind_listed(e: ast.Expr, wanted: Type, bind: Binder) -> Expr | None:
    """The item as an expression that can be compared with a value of type `wanted`."""
    match e, wanted:
        case ast.Literal(value=str(text)), Scalar.BOOLEAN:
            return typing.literal(_boolean(text), Scalar.BOOLEAN)
        case ast.Literal(value=str(text)), _ if is_numeric(wanted):
            return _number(text, wanted)
        case ast.Literal(value=str(text)), Scalar() if wanted in _MOMENTS:
            return typing.moment(text, wanted)
        case ast.Literal(value=bool(value)), Scalar.VARCHAR:
            return typing.literal("true" if value else "false", Scalar.VARCHAR)
        case ast.Literal(value=int() | PyDecimal() as number), Scalar.VARCHAR:
            return typing.literal(str(number), Scalar.VARCHAR)
        case ast.Literal(value=float()), Scalar.VARCHAR:
            return typing.cast(bind(e), Scalar.VARCHAR)
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
