"""Typed expressions: the constructors `bind` uses.

In: names and typed operands. Out: nodes whose operands have exactly the types their function takes.
Rule: every conversion that is not written stands in the tree as a `Cast`; what has no meaning is a `SqlError` that says
what would have one. Errors have no place: the caller adds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from braid.errors import SqlError
from braid.expr import casts, dates, user
from braid.expr.compile import to_polars
from braid.expr.functions import FUNCTIONS, by_name
from braid.expr.nodes import Call, Case, Cast, Expr, Field, Lit, MakeStruct
from braid.expr.signatures import Refused, common_of, common_type
from braid.types import TIMESTAMPS, Array, Column, Decimal, Map, Scalar, Struct, Type

__all__ = [
    "all_of",
    "call",
    "case",
    "cast",
    "common_of",
    "common_type",
    "conjuncts",
    "field",
    "literal",
    "moment",
    "struct",
]

S = Scalar
_TIMES = (S.DATE, S.TIME, *TIMESTAMPS)
_FORMS = {S.DATE: "2020-05-26", S.TIME: "23:59:58", **dict.fromkeys(TIMESTAMPS, "2020-05-26T23:59:58.000")}


def call(name: str, args: Sequence[Expr], written: str = "") -> Expr:
    """A call of a row of `FUNCTIONS` with its arguments widened; `written`: as SQL calls it."""
    function = FUNCTIONS[name]
    if not written and any(name in names for names in function.names.values()):
        written = name
    try:
        signature = function.resolve(args)
    except ValueError as e:  # a resolver that unpacks a fixed number of arguments
        raise SqlError(f"wrong number of arguments for {written or name}: {len(args)}") from e
    if isinstance(signature, Refused):
        given = f"{written}({', '.join(str(a.type) for a in args)}): " if written else ""
        raise SqlError(f"{given}{signature.message}", hint=signature.hint)
    widened = tuple(_widen(a, t) for a, t in zip(args, signature.args, strict=True))
    return Call(signature.name or function.name, widened, signature.result)


def call_own(name: str, args: Sequence[Expr]) -> Expr:
    """A call of a user's function that gives a value."""
    return _own(name, user.overloads(name, "scalar"), args)


def _own(name: str, overloads: Sequence[user.Overload], args: Sequence[Expr]) -> Expr:
    """A call of a user's function."""
    found = user.resolved(name, overloads, args)
    if isinstance(found, Refused):
        given = ", ".join(str(a.type) for a in args)
        raise SqlError(f"{name}({given}): {found.message}", hint=found.hint)
    overload, signature = found
    widened = tuple(_widen(a, t) for a, t in zip(args, signature.args, strict=True))
    return Call(name, widened, signature.result, overload.code)


def is_table_function(name: str) -> bool:
    """Whether ksqlDB, or a user, calls something so that gives rows."""
    known = by_name("ksqldb").get(name)
    return (known is not None and known.kind == "table") or bool(user.overloads(name, "table"))


def rows(name: str, args: Sequence[Expr]) -> Expr:
    """The array of rows that a call of a table function gives for each row."""
    own = user.overloads(name, "table")
    if own:
        return _own(name.upper(), own, args)
    if len(args) != 1 or not isinstance(args[0].type, Array):
        given = ", ".join(str(a.type) for a in args) or "nothing"
        raise SqlError(f"{name} takes an ARRAY, not {given}", hint="ENTRIES makes one of a MAP")
    return call("cube", args) if name == "CUBE_EXPLODE" else args[0]


def case(whens: Sequence[tuple[Expr, Expr]], default: Expr | None = None) -> Expr:
    """CASE WHEN … THEN … ELSE …: conditions are BOOLEAN, results have one type."""
    otherwise = default if default is not None else Lit(None, S.NULL)
    results = [value for _, value in whens] + [otherwise]
    for condition, _ in whens:
        if condition.type not in (S.BOOLEAN, S.NULL):
            raise SqlError(f"WHEN takes a BOOLEAN, not {condition.type}", hint="CASE x WHEN 1 … compares x with values")
    type_ = common_of([r.type for r in results])
    if type_ is None:
        types = ", ".join(dict.fromkeys(str(r.type) for r in results))
        raise SqlError(f"the results of CASE have no common type: {types}", hint="CAST them to one type")
    pairs = tuple((_widen(c, S.BOOLEAN), _widen(v, type_)) for c, v in whens)
    return Case(pairs, _widen(otherwise, type_), type_)


def cast(expr: Expr, type_: Type) -> Expr:
    """CAST(expr AS type_). Constants are converted here."""
    if expr.type == type_:
        return expr
    if not casts.can_cast(expr.type, type_):
        raise SqlError(f"{expr.type} cannot be cast to {type_}", hint=_cast_hint(expr.type, type_))
    if isinstance(expr, Lit) and isinstance(type_, Scalar | Decimal) and isinstance(expr.type, Scalar | Decimal):
        value = _convert(expr, type_)
        if value is not None or expr.value is None:
            return Lit(value, type_)
    return Cast(expr, type_)


_NO_STRUCT = "-> takes a STRUCT; an element of an ARRAY or MAP is x[…]"


def field(expr: Expr, name: str, *, exact: bool = False, hint: str = _NO_STRUCT) -> Expr:
    """`expr->name`: names are matched without case, an exact match first; with `exact` that alone. `hint`: where it is
    no STRUCT."""
    t = expr.type
    if not isinstance(t, Struct):
        raise SqlError(f"{t} has no field {name}", hint=hint)
    found = next((f for f in t.fields if f.name == name), None)
    if found is None and not exact:
        found = next((f for f in t.fields if f.name.lower() == name.lower()), None)
    if found is None:
        raise SqlError(f"no field {name} in {t}", hint=f"its fields are {', '.join(f.name for f in t.fields)}")
    return Field(expr, found.name, found.type)


def struct(items: Sequence[tuple[str, Expr]]) -> Expr:
    """STRUCT(a := 1, …)."""
    names = [n for n, _ in items]
    if not items:
        raise SqlError("a STRUCT has at least one field")
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise SqlError(f"the field {twice} is twice in the STRUCT")
    untyped = next((n for n, e in items if e.type is S.NULL), None)
    if untyped is not None:
        raise SqlError(f"the type of the field {untyped} is not known", hint="write CAST(NULL AS …)")
    return MakeStruct(tuple(items), Struct(tuple(Column(n, e.type) for n, e in items)))


def literal(value: object, type_: Type) -> Expr:
    """A constant."""
    return Lit(value, type_)


def conjuncts(expr: Expr | None) -> Iterator[Expr]:
    """What AND joins, at any depth."""
    if isinstance(expr, Call) and expr.function == "and":
        for arg in expr.args:
            yield from conjuncts(arg)
    elif expr is not None:
        yield expr


def all_of(parts: Iterable[Expr]) -> Expr | None:
    """The parts joined by AND; None where there are none."""
    made: Expr | None = None
    for part in parts:
        made = part if made is None else call("and", [made, part])
    return made


def _widen(expr: Expr, type_: Type) -> Expr:
    """An implicit conversion; text that stands for a date or time is read here."""
    if expr.type == type_:
        return expr
    if isinstance(expr, Lit) and expr.type is S.VARCHAR and (type_ in _TIMES or type_ is S.BIGINT):
        assert isinstance(type_, Scalar)
        if type_ is S.BIGINT:
            return Lit(_milliseconds(moment(expr.value, S.TIMESTAMP)), S.BIGINT)
        return moment(expr.value, type_)
    if expr.type is S.VARCHAR and type_ is S.BIGINT:  # text against ROWTIME
        return Call("UNIX_TIMESTAMP", (Cast(expr, S.TIMESTAMP),), S.BIGINT)
    return cast(expr, type_)


def moment(text: object, t: Scalar) -> Lit:
    """The DATE, TIME or TIMESTAMP that a text stands for."""
    value = _convert(Lit(text, S.VARCHAR), t)
    if value is None:
        raise SqlError(f"{text!r} is not a {t}", hint=f"write it as '{_FORMS.get(t, '')}'")
    return Lit(value, t)


def _convert(expr: Lit, type_: Type) -> object:
    if type_ in TIMESTAMPS and isinstance(expr.value, str):  # at once: an INSERT may have thousands of them
        at = dates.plain_timestamp(expr.value)
        if at is not None:
            return at
    return pl.select(casts.cast(to_polars(expr), expr.type, type_).alias("v")).to_series().to_list()[0]


def _milliseconds(expr: Lit) -> object:
    return pl.select(to_polars(expr).dt.epoch("ms").alias("v")).to_series().to_list()[0]


def _cast_hint(source: Type, target: Type) -> str | None:
    match source, target:
        case (S.BIGINT | S.INT, S.TIMESTAMP):
            return "use FROM_UNIXTIME(milliseconds)"
        case (S.TIMESTAMP, S.BIGINT | S.INT):
            return "use UNIX_TIMESTAMP(timestamp)"
        case (_, S.BOOLEAN) if source in (S.INT, S.BIGINT, S.DOUBLE):
            return "write a comparison: x <> 0"
        case (S.BOOLEAN, _):
            return "write CASE WHEN x THEN 1 ELSE 0 END"
        case (Array() | Map() | Struct(), _):
            return "cast its elements one by one"
    return None
