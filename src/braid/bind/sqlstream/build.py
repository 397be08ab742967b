"""From the tree of a query to its plan node.

In: a checked tree, the settings, the column of the result's rowtime. Out: the node below WHERE.
Rule: every policy that SQLstream decides is spelled out in the node. A source without OVER lives for its own
millisecond; a table has no frame.
"""

from __future__ import annotations

from typing import Literal

from braid.bind.sqlstream.relation import Frame, Operand, Tree
from braid.bind.sqlstream.settings import SqlstreamSettings
from braid.expr import typing
from braid.expr.nodes import Col, Expr
from braid.plan import sliding
from braid.plan.logical import Filter, Node
from braid.sql import ast_sqlstream as sql

_KINDS: dict[str, Literal["rowtime", "floor", "ceil", "step"]] = {
    "ROWTIME": "rowtime",
    "FLOOR": "floor",
    "CEIL": "ceil",
    "STEP": "step",
}


def built(tree: Tree, settings: SqlstreamSettings, rowtime: Col | None) -> Node:
    """`rowtime` None: only tables are read, whose rows have no time."""
    if rowtime is None:
        assert isinstance(tree, Operand)
        return _filtered(tree)
    return sliding.SlidingJoin(_tree(tree), rowtime, settings.emission, settings.empty_buckets == "on")


def _tree(tree: Tree) -> sliding.Tree:
    if isinstance(tree, Operand):
        return sliding.Operand(_filtered(tree), None if tree.kind == "table" else _frame(tree.frame))
    return sliding.Meeting(_tree(tree.left), _tree(tree.right), tree.how, tree.keys, _all(tree.residual))


def _filtered(tree: Operand) -> Node:
    node = tree.node
    for condition in tree.filters:
        node = Filter(node, condition)
    return node


def _all(conditions: tuple[Expr, ...]) -> Expr | None:
    if not conditions:
        return None
    found = conditions[0]
    for condition in conditions[1:]:
        found = typing.call("and", [found, condition])
    return found


def _frame(frame: Frame | None) -> sliding.Frame:
    match frame:
        case None:
            return sliding.RangeFrame()
        case sql.RowsWindow(lower=lower, upper=upper):
            return sliding.RowsFrame(lower, upper)
        case sql.RangeWindow(order=order, lower=lower, upper=upper):
            return sliding.RangeFrame(_bound(lower), _bound(upper), _order(order))


def _bound(interval: sql.Interval | None) -> sliding.Bound:
    return sliding.Bound() if interval is None else sliding.Bound(interval.months, interval.ms)


def _order(order: sql.OrderKey | None) -> sliding.OrderKey:
    if order is None:
        return sliding.OrderKey()
    return sliding.OrderKey(_KINDS[order.kind], order.unit, None if order.step is None else order.step.ms)
