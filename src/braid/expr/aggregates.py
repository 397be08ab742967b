"""Aggregate functions as the plan sees them: which exist, what they take, what they give.

In: a name and the types of arguments. Out: what is aggregated, with which constants, into which type; or a refusal.
Rule: ONE ROW per function; how it is computed is the operator's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from braid.errors import SqlError
from braid.expr import typing, user
from braid.expr.nodes import Code, Expr
from braid.expr.signatures import Refused, constant
from braid.types import FLOATS, TIMESTAMPS, WHOLE_NUMBERS, Array, Decimal, Map, Scalar, Type, is_numeric

ORDERED = (*WHOLE_NUMBERS, *FLOATS, Scalar.VARCHAR, Scalar.BYTES, Scalar.DATE, Scalar.TIME, *TIMESTAMPS)
MOST = 10_000  # values that an aggregate is asked to keep


@dataclass(frozen=True, slots=True)
class Shape:
    """What is aggregated, the constants that say how, and the type of the result."""

    arg: Expr | None
    type: Type
    options: tuple[int | bool | None, ...] = ()
    code: Code | None = None


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """`shape`: of the arguments, None if it takes no such ones. `star`: may be written f(*). `over_tables`: a row that
    changes can be taken out again. `common`: every dialect has it. `flat`: of a group one value is kept, no array,
    map or structure. `meaning`: since which number of `expr.meanings` it gives the values that it gives."""

    name: str
    takes: str
    shape: Callable[[Sequence[Expr]], Shape | None]
    star: bool = False
    over_tables: bool = False
    common: bool = False
    flat: bool = False
    meaning: int = 1


def _one(result: Callable[[Type], Type | None]) -> Callable[[Sequence[Expr]], Shape | None]:
    """One argument, whose type gives the result's."""

    def shape(args: Sequence[Expr]) -> Shape | None:
        t = result(args[0].type) if len(args) == 1 else None
        return None if t is None else Shape(args[0], t)

    return shape


def _same_if(accepts: Callable[[Type], bool]) -> Callable[[Type], Type | None]:
    return lambda t: t if accepts(t) else None


def _ordered(t: Type) -> bool:
    return t in ORDERED or isinstance(t, Decimal)


def _known(t: Type) -> bool:
    return t is not Scalar.NULL


def _by_offset(args: Sequence[Expr]) -> Shape | None:
    """A value, maybe how many, and maybe whether nulls are passed over."""
    rest = list(args[1:])
    n = _number(rest.pop(0)) if rest and rest[0].type is not Scalar.BOOLEAN else None
    ignored = constant(rest[0]) if rest else True
    if not args or not _known(args[0].type) or len(rest) > 1 or not isinstance(ignored, bool):
        return None
    if n is None and len(args) - len(rest) == 2:
        return None
    return Shape(args[0], args[0].type if n is None else Array(args[0].type), (n, not ignored))


def _latest(args: Sequence[Expr]) -> Shape | None:
    """The plain one keeps one value, which no option says."""
    shape = _by_offset(args)
    return Shape(shape.arg, shape.type) if shape is not None and shape.options == (None, False) else shape


def _number(e: Expr) -> int | None:
    n = constant(e)
    return n if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= MOST else None


def _largest(args: Sequence[Expr]) -> Shape | None:
    """A value, others that come with it, and how many."""
    n = _number(args[-1]) if len(args) >= 2 else None
    if n is None or not _ordered(args[0].type) or not all(_known(a.type) for a in args):
        return None
    if len(args) == 2:
        return Shape(args[0], Array(args[0].type), (n,))
    names = ["sort_col", *(f"col{i}" for i in range(len(args) - 2))]
    row = typing.struct(list(zip(names, args[:-1], strict=True)))
    return Shape(row, Array(row.type), (n,))


def _pair(args: Sequence[Expr]) -> Shape | None:
    if len(args) != 2 or not all(is_numeric(a.type) for a in args):
        return None
    x, y = (typing.cast(a, Scalar.DOUBLE) for a in args)
    return Shape(typing.struct([("X", x), ("Y", y)]), Scalar.DOUBLE)


def _spread(args: Sequence[Expr]) -> Shape | None:
    if len(args) != 1 or not is_numeric(args[0].type):
        return None
    exact = args[0].type in WHOLE_NUMBERS
    return Shape(args[0] if exact else typing.cast(args[0], Scalar.DOUBLE), Scalar.DOUBLE)


_BIG = Scalar.BIGINT
_OFFSET = "a value, maybe how many of them, and maybe whether nulls are passed over"

AGGREGATES: dict[str, AggregateFunction] = {
    f.name: f
    for f in (
        AggregateFunction(
            "COUNT", "any value, or *", _one(lambda _: _BIG), star=True, over_tables=True, common=True, flat=True
        ),
        AggregateFunction("SUM", "a number", _one(_same_if(is_numeric)), over_tables=True, common=True, flat=True),
        AggregateFunction(
            "AVG", "a number", _one(lambda t: Scalar.DOUBLE if is_numeric(t) else None), over_tables=True, common=True
        ),
        AggregateFunction("MIN", "a number, text or time", _one(_same_if(_ordered)), common=True, flat=True),
        AggregateFunction("MAX", "a number, text or time", _one(_same_if(_ordered)), common=True, flat=True),
        AggregateFunction("LATEST_BY_OFFSET", _OFFSET, _latest, common=True),
        AggregateFunction("EARLIEST_BY_OFFSET", _OFFSET, _by_offset),
        AggregateFunction(
            "COLLECT_LIST", "any value", _one(lambda t: Array(t) if _known(t) else None), over_tables=True
        ),
        AggregateFunction("COLLECT_SET", "any value", _one(lambda t: Array(t) if _known(t) else None)),
        AggregateFunction("COUNT_DISTINCT", "any value", _one(lambda t: _BIG if _known(t) else None)),
        AggregateFunction("TOPK", "a value, maybe others that come with it, and how many", _largest),
        AggregateFunction(
            "TOPKDISTINCT", "a value and how many", lambda args: _largest(args) if len(args) == 2 else None
        ),
        AggregateFunction(
            "HISTOGRAM", "a VARCHAR", _one(lambda t: Map(t, _BIG) if t is Scalar.VARCHAR else None), over_tables=True
        ),
        AggregateFunction("STDDEV_SAMP", "a number", _spread, over_tables=True),
        AggregateFunction("STDDEV_SAMPLE", "a number", _spread, over_tables=True),
        AggregateFunction("CORRELATION", "two numbers", _pair, over_tables=True),
        AggregateFunction("ATTR", "any value", _one(_same_if(_known)), over_tables=True),
    )
}


def is_aggregate(name: str) -> bool:
    return name in AGGREGATES or bool(user.overloads(name, "aggregate"))


def is_of_times(name: str) -> bool:
    """Is name(*), or name(), of the times of rows?"""
    return name in AGGREGATES and not AGGREGATES[name].star and not user.overloads(name, "aggregate")


def is_flat(name: str) -> bool:
    """Is what is kept of a group one value, which every format holds? A user's aggregate keeps what it likes."""
    return name not in AGGREGATES or AGGREGATES[name].flat or bool(user.overloads(name, "aggregate"))


def shaped(name: str, args: list[Expr], star: bool, distinct: bool, over_table: bool) -> Shape:
    """What `name(args)` aggregates; `star`: `name(*)`."""
    own = user.overloads(name, "aggregate")
    if own:
        return _own(name, own, args, star or distinct, over_table)
    f = AGGREGATES[name]
    if distinct:
        raise _distinct(name, name == "COUNT" and not over_table)
    if star or (not args and f.star):  # COUNT() is COUNT(*)
        if not f.star:
            raise SqlError(f"{name}(*) is not possible", hint=f"{name} takes {f.takes}")
        return Shape(None, Scalar.BIGINT)
    if over_table and not f.over_tables:
        undoable = ", ".join(x.name for x in AGGREGATES.values() if x.over_tables)
        hint = f"over a table, whose rows change, use {undoable}"
        raise SqlError(f"{name} over a table is not possible: an old value cannot be taken out again", hint=hint)
    shape = f.shape(args)
    if shape is None:
        given = ", ".join(str(a.type) for a in args) or "nothing"
        raise SqlError(f"{name} takes {f.takes}, not {given}", hint=_hint(name, args))
    return shape


def _distinct(name: str, counts: bool) -> SqlError:
    """`counts`: there is an aggregate that counts different values."""
    each = {"COUNT": "count the groups", "SUM": "add up the groups"}.get(name, "aggregate the groups")
    hint = "write COUNT_DISTINCT" if counts else f"GROUP BY the value in a query of its own, then {each}"
    return SqlError(f"{name}(DISTINCT …) is not supported", hint=hint)


def _own(name: str, overloads: Sequence[user.Overload], args: Sequence[Expr], odd: bool, over_table: bool) -> Shape:
    """One of a user: its arguments as a structure."""
    if odd:
        raise SqlError(f"{name} takes values", hint=f"it takes {user.takes(overloads)}")
    found = user.resolved(name, overloads, args)
    if isinstance(found, Refused):
        given = ", ".join(str(a.type) for a in args) or "nothing"
        raise SqlError(f"{name}({given}): {found.message}", hint=found.hint)
    overload, signature = found
    if over_table and not overload.shape.retracts:
        hint = f"write the method retract, which takes a row's values out again: {overload.place}"
        raise SqlError(f"{name} over a table is not possible: an old value cannot be taken out again", hint=hint)
    columns = [(f"A{i}", typing.cast(a, t)) for i, (a, t) in enumerate(zip(args, signature.args, strict=True))]
    return Shape(typing.struct(columns), signature.result, code=overload.code)


def _hint(name: str, args: Sequence[Expr]) -> str | None:
    if name.startswith("TOPK") or name.endswith("BY_OFFSET"):
        return f"how many is a constant from 1 to {MOST}: {name}(x, 3)"
    return "CAST it" if len(args) == 1 else None


def common(name: str, args: list[Expr], star: bool, distinct: bool, over_table: bool) -> Shape:
    """The same of one that every dialect has, or of a user's."""
    if name in AGGREGATES and not AGGREGATES[name].common:
        hint = f"supported are {', '.join(f.name for f in AGGREGATES.values() if f.common)}"
        raise SqlError(f"aggregate {name} is not supported yet", hint=hint)
    if distinct and not user.overloads(name, "aggregate"):
        raise _distinct(name, counts=False)
    shape = shaped(name, args, star, distinct, over_table)
    if shape.options:
        raise SqlError(f"{name} takes one argument, not {len(args)}", hint="leave the others out")
    return shape


# ---------------------------------------------------------------------- lenses


@dataclass(frozen=True, slots=True)
class LensesAggregate:
    """`function`: of the plan. `most`: it takes a value and how many to keep, which is this where it is not written;
    None: it takes a value. `options`: what stands there instead."""

    function: str
    takes: str
    result: Callable[[Type], Type | None]
    over_tables: bool = False
    most: int | None = None
    options: tuple[int | bool | None, ...] = ()

    def shape(self, args: Sequence[Expr]) -> Shape | None:
        n = self.most
        if n is not None and len(args) == 2:
            n = _number(args[1])
        t = self.result(args[0].type) if args else None
        if t is None or (n is None) != (self.most is None) or len(args) > 1 + (self.most is not None):
            return None
        return Shape(args[0], t, self.options if n is None else (n,))


def _array(t: Type) -> Type | None:
    return Array(t) if _known(t) else None


def _array_of_numbers(t: Type) -> Type | None:
    return Array(t) if is_numeric(t) else None


_VALUES, _NUMBERS = "a value, and maybe how many", "a number, and maybe how many"

LENSES: dict[str, LensesAggregate | None] = {
    **dict.fromkeys(("COUNT", "SUM", "AVG")),  # as in every dialect
    "FIRST": LensesAggregate("EARLIEST_BY_OFFSET", "a value", _same_if(_known), options=(None, True)),
    "LAST": LensesAggregate("LATEST", "a value", _same_if(_known), over_tables=True),
    "COLLECT": LensesAggregate("COLLECT_LIST", _VALUES, _array, over_tables=True, most=MOST),
    "COLLECT_UNIQUE": LensesAggregate("COLLECT_SET", _VALUES, _array, most=MOST),
    "MAXK": LensesAggregate("TOPK", _NUMBERS, _array_of_numbers, most=1),
    "MAXK_UNIQUE": LensesAggregate("TOPKDISTINCT", _NUMBERS, _array_of_numbers, most=1),
    "MINK": LensesAggregate("LOWESTK", _NUMBERS, _array_of_numbers, most=1),
    "MINK_UNIQUE": LensesAggregate("LOWESTKDISTINCT", _NUMBERS, _array_of_numbers, most=1),
    "TOPK": LensesAggregate("MOST_OFTEN", _VALUES, _array, over_tables=True, most=1),
    "BOTTOMK": LensesAggregate("LEAST_OFTEN", _VALUES, _array, over_tables=True, most=1),
}
"""The aggregates of Lenses, by name; None: it is that of every dialect."""


def of_lenses(name: str, args: list[Expr], star: bool, distinct: bool, over_table: bool) -> tuple[str, Shape]:
    """The plan's function for one of Lenses, or of a user, and what it aggregates."""
    own = LENSES.get(name)
    if own is None:
        return name, common(name, args, star, distinct, over_table)
    if distinct:
        unique = f"{name}_UNIQUE" in LENSES
        raise SqlError(
            f"{name}(DISTINCT …) is not supported", hint=f"write {name}_UNIQUE" if unique else "leave it out"
        )
    if over_table and not own.over_tables:
        undoable = ", ".join(n for n, x in LENSES.items() if x is None or x.over_tables)
        hint = f"over a table, whose rows change, use {undoable}"
        raise SqlError(f"{name} over a table is not possible: an old value cannot be taken out again", hint=hint)
    shape = None if star else own.shape(args)
    if shape is None:
        given = "*" if star else ", ".join(str(a.type) for a in args) or "nothing"
        many = f"{name}(field, 3): how many is a constant from 1 to {MOST}"
        raise SqlError(f"{name} takes {own.takes}, not {given}", hint=f"write {many if own.most else f'{name}(field)'}")
    return own.function, shape
