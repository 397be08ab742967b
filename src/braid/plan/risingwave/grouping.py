"""GROUP BY and DISTINCT in views.

In: a SELECT with groups, the node it reads. Out: an `Aggregate`, and the items over it.
Rule: a name outside an aggregate must be a grouping expression.
"""

from __future__ import annotations

from dataclasses import dataclass

from braid.errors import Span, SqlError
from braid.expr.nodes import Expr
from braid.plan.bind_expr import aggregates
from braid.plan.logical import Node
from braid.plan.risingwave.scope import Scope
from braid.sql import ast_risingwave as rw


@dataclass(frozen=True, slots=True)
class Grouped:
    node: Node
    items: list[tuple[str, Expr, str, Span]]
    types: dict[Expr, str]


def has_aggregates(s: rw.Select) -> bool:
    return any(next(aggregates(i.expr), None) is not None for i in s.items)


def bind_grouped(s: rw.Select, node: Node, scope: Scope) -> Grouped:
    raise SqlError("GROUP BY in a view is not built yet", s.span, "group in the query over the view")
