"""From the tree of a query to plan nodes.

In: a checked tree, the settings, the column of the result's rowtime. Out: the node below WHERE.
Rule: every policy that SQLstream decides is spelled out here.
"""

from __future__ import annotations

from braid.errors import BraidError
from braid.expr.nodes import Col
from braid.plan.logical import Filter, Node
from braid.plan.sqlstream.relation import Operand, Tree
from braid.plan.sqlstream.settings import SqlstreamSettings


def built(tree: Tree, settings: SqlstreamSettings, rowtime: Col | None) -> Node:
    if isinstance(tree, Operand):
        return _operand(tree)
    raise BraidError("joins of SQLstream are not built yet", "filter one stream, for now")


def _operand(tree: Operand) -> Node:
    node = tree.node
    for condition in tree.filters:
        node = Filter(node, condition)
    return node
