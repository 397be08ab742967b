"""Pushdown: conditions over one source run below the join, where they leave less to join.

In: a bound query. Out: the query with the parts of its filters that may move moved; rows, their order and their times
stay the same.
Rule: a filter is split at AND. A part that reads the left input only may go below a join that does not keep
unmatched right rows, and the mirror of it: what it drops there would have been dropped above, and no row of the other
side is padded for it. (docs/rules/lenses.md, "Filters before a join")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from braid.expr.nodes import Expr, columns
from braid.expr.typing import all_of, conjuncts
from braid.plan.groups import Aggregate
from braid.plan.joins import Join, OnKeys
from braid.plan.logical import Filter, Lateral, Node, Project, Query


def pushed(query: Query) -> Query:
    return replace(query, root=_pushed(query.root))


def _pushed(node: Node) -> Node:
    match node:
        case Filter(input=x, predicate=p):
            return _filtered(x, list(conjuncts(p)))
        case Project(input=x) | Lateral(input=x) | Aggregate(input=x):
            return replace(node, input=_pushed(x))
        case OnKeys() if not node.by_key:
            return replace(node, left=_pushed(node.left), right=_pushed(node.right))
        case _:
            return node


def _filtered(node: Node, parts: Sequence[Expr]) -> Node:
    """The node with these conditions over it, as far down as they may go."""
    match node:
        case Filter(input=x, predicate=p):
            return _filtered(x, [*conjuncts(p), *parts])
        case OnKeys() if not node.by_key:
            return _over_join(node, parts)
        case _:
            return _over(_pushed(node), parts)


def _over_join(node: Join, parts: Sequence[Expr]) -> Node:
    left = [p for p in parts if node.how in ("inner", "left") and _reads_only(p, node.left)]
    right = [p for p in parts if node.how in ("inner", "right") and _reads_only(p, node.right)]
    made = replace(node, left=_filtered(node.left, left), right=_filtered(node.right, right))
    return _over(made, [p for p in parts if p not in left and p not in right])


def _over(node: Node, parts: Sequence[Expr]) -> Node:
    condition = all_of(parts)
    return node if condition is None else Filter(node, condition)


def _reads_only(e: Expr, node: Node) -> bool:
    """Whether it reads columns, and all of them are of the node."""
    read = set(columns(e))
    return bool(read) and read <= {c.name for c in node.schema}
