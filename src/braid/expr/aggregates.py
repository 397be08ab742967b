"""Aggregate functions as the plan sees them: which exist, what they take, what they give.

In: a name and the types of arguments. Out: the result type, or a refusal.
Rule: ONE ROW per function; how it is computed is the operator's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from braid.errors import SqlError
from braid.expr.nodes import Expr
from braid.types import Decimal, Scalar, Type, is_numeric

ORDERED = (Scalar.INT, Scalar.BIGINT, Scalar.DOUBLE, Scalar.VARCHAR, Scalar.BYTES, Scalar.DATE, Scalar.TIME,
           Scalar.TIMESTAMP)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """`result`: the type for an argument's type, None if it takes no such argument. `star`: may be written f(*).
    `over_tables`: a row that changes can be taken out again."""

    name: str
    takes: str
    result: Callable[[Type], Type | None]
    star: bool = False
    over_tables: bool = False


def _same_if(accepts: Callable[[Type], bool]) -> Callable[[Type], Type | None]:
    return lambda t: t if accepts(t) else None


def _ordered(t: Type) -> bool:
    return t in ORDERED or isinstance(t, Decimal)


AGGREGATES: dict[str, AggregateFunction] = {
    f.name: f
    for f in (
        AggregateFunction("COUNT", "any value, or *", lambda _: Scalar.BIGINT, star=True, over_tables=True),
        AggregateFunction("SUM", "a number", _same_if(is_numeric), over_tables=True),
        AggregateFunction("AVG", "a number", lambda t: Scalar.DOUBLE if is_numeric(t) else None, over_tables=True),
        AggregateFunction("MIN", "a number, text or time", _same_if(_ordered)),
        AggregateFunction("MAX", "a number, text or time", _same_if(_ordered)),
        AggregateFunction("LATEST_BY_OFFSET", "any value", _same_if(lambda t: t is not Scalar.NULL)),
    )
}
# Known, and refused by name.
LATER = (
    "EARLIEST_BY_OFFSET", "COLLECT_LIST", "COLLECT_SET", "TOPK", "TOPKDISTINCT", "COUNT_DISTINCT", "HISTOGRAM",
    "STDDEV_SAMPLE", "STDDEV_SAMP", "CORRELATION", "ATTR",
)  # fmt: skip


def is_aggregate(name: str) -> bool:
    return name in AGGREGATES or name in LATER


def result_type(name: str, args: list[Expr], star: bool, distinct: bool, over_table: bool) -> Type:
    """The type of `name(args)`; `star`: of `name(*)`."""
    if name in LATER:
        hint = f"supported are {', '.join(AGGREGATES)}"
        raise SqlError(f"aggregate {name} is not supported yet", hint=hint)
    f = AGGREGATES[name]
    if distinct:
        raise SqlError(
            f"{name}(DISTINCT …) is not supported", hint="group by the value in a table of its own, then count it"
        )
    if star:
        if not f.star:
            raise SqlError(f"{name}(*) is not possible", hint=f"{name} takes {f.takes}")
        return Scalar.BIGINT
    if not args and f.star:  # COUNT() is COUNT(*)
        return Scalar.BIGINT
    if len(args) != 1:
        raise SqlError(f"{name} takes one argument, not {len(args)}", hint=f"{name} takes {f.takes}")
    if over_table and not f.over_tables:
        undoable = ", ".join(x.name for x in AGGREGATES.values() if x.over_tables)
        hint = f"over a table, whose rows change, use {undoable}"
        raise SqlError(f"{name} over a table is not possible: an old value cannot be taken out again", hint=hint)
    found = f.result(args[0].type)
    if found is None:
        raise SqlError(f"{name} takes {f.takes}, not {args[0].type}", hint="CAST it")
    return found
