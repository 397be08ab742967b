"""Table functions in SELECT: EXPLODE, CUBE_EXPLODE, and those of users.

In: the items of a query, its scope and its node. Out: a node with a row for each element, and what the calls mean.
Rule: several calls go side by side, row by row, until the longest array ends; the others are null then. They stand over
streams, and not with GROUP BY.
"""

from __future__ import annotations

from collections.abc import Sequence

from braid.bind.expressions import Rules, Whole, bind_expr, calls, with_span
from braid.bind.ksqldb.scope import Sources
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr
from braid.plan.logical import Lateral, Node
from braid.sql import ast
from braid.types import Array


def exploded(
    items: Sequence[ast.SelectItem], scope: Sources, node: Node, *, over_table: bool, grouped: bool
) -> tuple[Node, Whole | None]:
    """The node with the elements of what the items call, and each call's column."""
    made = [call for i in items for call in calls(i.expr, typing.is_table_function)]
    if not made:
        return node, None
    if grouped:
        hint = "explode into a stream of its own, then group that"
        raise SqlError(f"{made[0].name} and GROUP BY exclude each other", made[0].span, hint)
    if over_table:
        hint = "declare a stream over the topic, and explode that"
        raise SqlError(f"{made[0].name} over a table is not possible: a row would become several", made[0].span, hint)
    rules = Rules(made[0].name, scope.column)
    arrays = [_rows(call, rules) for call in made]
    array = arrays[0] if len(arrays) == 1 else typing.call("zip", arrays)
    assert isinstance(array.type, Array)
    element = Col(".EXPLODED", array.type.element)
    columns = [element] if len(arrays) == 1 else [typing.field(element, f"E{i}") for i in range(len(arrays))]
    found = list(zip(made, columns, strict=True))
    return Lateral(node, array, element), lambda e: next((c for x, c in found if x == e), None)


def _rows(call: ast.Call, rules: Rules) -> Expr:
    args = [bind_expr(x, rules) for x in call.args]
    with with_span(call.span):
        return typing.rows(call.name, args)
