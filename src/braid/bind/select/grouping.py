"""Groups: what GROUP BY and DISTINCT make of the rows, and what the clauses above them may say.

In: grouping expressions; what SELECT and HAVING ask, as written. Out: columns over the groups, and aggregations.
Rule: an expression that is grouped by is its key, also as a part of another. A column that is in no key is refused, or
what the dialect makes of it. Aggregates are over the rows; each stands once. DISTINCT is groups without aggregates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal as PyDecimal

from braid.bind.expressions import Aggregations, aggregates
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr, Lit
from braid.plan.groups import Aggregate
from braid.plan.logical import Node
from braid.sql import ast
from braid.types import TIMESTAMPS, Decimal, Scalar, Struct, Type

_ZEROS: dict[Type, object] = {
    Scalar.BOOLEAN: False,
    Scalar.SMALLINT: 0,
    Scalar.INT: 0,
    Scalar.BIGINT: 0,
    Scalar.REAL: 0.0,
    Scalar.DOUBLE: 0.0,
    Scalar.VARCHAR: "",
    Scalar.BYTES: b"",
    Scalar.DATE: date(1970, 1, 1),
    Scalar.TIME: time_of_day(),
    **dict.fromkeys(TIMESTAMPS, datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)),
}


@dataclass(slots=True)
class Groups:
    """`below`: binds an expression over the rows, for a clause. `keys`: the columns that tell groups apart, with what
    each is of a row; `shown`: what a grouping expression is above the groups. `aggregations` are collected as clauses
    are bound."""

    below: Callable[[ast.Expr, str], Expr]
    aggregations: Aggregations
    keys: list[tuple[Col, Expr]] = field(default_factory=list)
    shown: dict[Expr, Expr] = field(default_factory=dict)

    def group_by(self, e: ast.Expr, column: str) -> Col:
        """One more key, under this name."""
        bound = self.below(e, "GROUP BY")
        if bound in self.shown:
            raise SqlError("GROUP BY has this expression twice", e.span, "keep one of them")
        key = Col(column, bound.type)
        self.keys.append((key, bound))
        self.shown[bound] = key
        return key

    def column(self, n: ast.Name) -> Expr:
        """What a name means above the groups."""
        return self.lifted(self.below(n, "SELECT"), str(n))

    def lifted(self, e: Expr, name: str) -> Expr:
        """What an expression over the rows is above the groups; `name`: as it is written."""
        return self.shown[e] if e in self.shown else self.bare(e, name)

    def bare(self, e: Expr, name: str) -> Expr:
        """What is in no key."""
        raise SqlError(f"{name} is neither grouped nor aggregated", hint=self.instead(name))

    def instead(self, name: str) -> str:
        return f"add {name} to GROUP BY"

    def known(self, e: ast.Expr) -> Expr | None:
        """The key that `e` is as a whole, if it is a grouping expression."""
        if isinstance(e, ast.Name | ast.Star) or self.has_aggregates(e):
            return None
        try:
            return self.shown.get(self.below(e, "SELECT"))
        except SqlError:
            return None  # the same error comes again, with its place, when `e` is bound part by part

    def has_aggregates(self, e: ast.Expr) -> bool:
        return next(aggregates(e), None) is not None

    def arguments(self, call: ast.Call) -> list[Expr] | None:
        """Those of an aggregate, over the rows; None: `*`."""
        if len(call.args) == 1 and isinstance(call.args[0], ast.Star):
            return None
        return [self.below(x, f"the aggregate {call.name}") for x in call.args]

    def grouped(self, rows: Node) -> Aggregate:
        return Aggregate(rows, tuple(self.keys), tuple(self.aggregations.made))


def nullable(name: str, e: Expr) -> tuple[tuple[Col, Expr], tuple[Col, Expr]]:
    """Two columns of a key for a value that may be NULL: whether it is, and another value in its place."""
    missing = Col(f"{name}_is_null", Scalar.BOOLEAN), typing.call("is_null", [e])
    return missing, (Col(name, e.type), typing.call("COALESCE", [e, Lit(_zero(e.type), e.type)]))


def _zero(t: Type) -> object:
    """A value that stands in the key for NULL."""
    if isinstance(t, Decimal):
        return PyDecimal(0)
    if t not in _ZEROS:
        hint = "group by its fields: (x).a" if isinstance(t, Struct) else "group by a text of it: x::varchar"
        raise SqlError(f"GROUP BY takes no {t}", hint=hint)
    return _ZEROS[t]
