"""Aggregates of SQLstream: what each is made of.

In: a call with its typed arguments, who collects the aggregations of a group. Out: the value, over their columns.
Rule: a function costs one row here; those that RisingWave's views have are made as there. A sum of whole numbers is a
BIGINT and does not wrap; their AVG is a DOUBLE, that of a DECIMAL is exact. Of nothing an aggregate is NULL, and COUNT
is 0. (docs/rules/sqlstream.md, "Groups")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braid.bind.expressions import Aggregations
from braid.bind.select import aggregates as shared
from braid.bind.select.aggregates import Asked
from braid.errors import SqlError
from braid.expr import typing, user
from braid.expr.aggregates import shaped
from braid.expr.nodes import Expr, Lit
from braid.sql import ast
from braid.types import WHOLE_NUMBERS, Decimal, Scalar, is_numeric

Made = Callable[[Asked], Expr]


def _sum(a: Asked) -> Expr:
    """Added up exactly, so that the sum is known not to fit."""
    found = shared.value(a)
    return typing.call("sql.bigint", [found]) if a.one().type in WHOLE_NUMBERS and _is_decimal(found) else found


def _mean(a: Asked) -> Expr:
    found = shared.value(a)
    return typing.cast(found, Scalar.DOUBLE) if a.one().type in WHOLE_NUMBERS else found


def _is_decimal(e: Expr) -> bool:
    return isinstance(e.type, Decimal)


def _by_arrival(function: str) -> Made:
    """A NULL is a value, too."""

    def made(a: Asked) -> Expr:
        shape = shaped(function, [a.one(), Lit(False, Scalar.BOOLEAN)], False, False, over_table=False)
        return a.into.column(function, shape.arg, shape.type, shape.options)

    return made


FUNCTIONS: Mapping[str, Made] = {
    "COUNT": shared.value,
    "SUM": _sum,
    "AVG": _mean,
    "MIN": shared.value,
    "MAX": shared.value,
    "FIRST_VALUE": _by_arrival("EARLIEST_BY_OFFSET"),
    "LAST_VALUE": _by_arrival("LATEST_BY_OFFSET"),
    "STDDEV": shared.value,
    "STDDEV_POP": shared.value,
    "STDDEV_SAMP": shared.value,
    "VARIANCE": shared.value,
    "VAR_POP": shared.value,
    "VAR_SAMP": shared.value,
}
OF_NUMBERS = tuple(name for name in FUNCTIONS if name in ("SUM", "AVG") or name.startswith(("STDDEV", "VAR")))


def is_aggregate(name: str) -> bool:
    return name in FUNCTIONS or bool(user.overloads(name, "aggregate"))


def _check(name: str, args: list[Expr]) -> None:
    if len(args) != 1 and (args or name != "COUNT"):
        raise SqlError(f"{name} takes one value", hint=f"write {name}(x)")
    if name in OF_NUMBERS and not is_numeric(args[0].type):
        raise SqlError(f"{name} takes a number, not {args[0].type}", hint="CAST it")
    if name in ("MIN", "MAX") and args[0].type is Scalar.BOOLEAN:
        raise SqlError(f"{name} of BOOLEAN is not possible", hint=f"write {name}(CASE WHEN x THEN 1 ELSE 0 END)")


def value(call: ast.Call, args: list[Expr], into: Aggregations) -> Expr:
    """What a call gives. `args` empty: of rows."""
    asked = Asked(call.name, tuple(args), into, over_table=False)
    own = bool(user.overloads(call.name, "aggregate"))
    if not own:
        _check(call.name, args)
    if not call.distinct or own or call.name in ("MIN", "MAX"):
        return shared.value(asked) if own else FUNCTIONS[call.name](asked)
    if call.name != "COUNT":
        hint = "SELECT STREAM DISTINCT it with the period in a sub-query, and aggregate that"
        raise SqlError(f"{call.name}(DISTINCT …) is not supported yet", call.span, hint)
    shape = shaped("COUNT_DISTINCT", [asked.one()], False, False, over_table=False)
    return into.column("COUNT_DISTINCT", shape.arg, shape.type)
