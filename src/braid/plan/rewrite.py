"""Rewriting: logical plan to logical plan, meaning unchanged.

In: a bound query. Out: the query that `lower` and the reference get.
Rule: only what makes plans equal that mean the same; how it runs is the business of `lower`.
"""

from __future__ import annotations

from dataclasses import replace

from braid.expr.compile import can_fail
from braid.expr.nodes import Col, Expr, columns
from braid.plan.epochs import Union
from braid.plan.logical import Node, Project, Query, Source
from braid.plan.needed import needed_by, written

_Outputs = tuple[tuple[Col, Expr], ...]
PSEUDO_PLACES = ("rowtime", "rowpartition", "rowoffset", "rowkey")


def rewrite(query: Query) -> Query:
    return replace(query, root=_without_unread(query.root, written(query)))


def _without_unread(node: Node, above: frozenset[str]) -> Node:
    """Sources keep only those pseudo columns that are read: they are no columns of the record. Projections keep what is
    read, and the key of their rows; those that compute and rename nothing go. `above`: what is read above the node."""
    if isinstance(node, Project):
        return _read_part(node, above)
    read = above.union(needed_by(node))
    if isinstance(node, Source):
        read = read if node.watermark is None else read.union(columns(node.watermark))
        return replace(node, columns=tuple(c for c in node.columns if c.place not in PSEUDO_PLACES or c.name in read))
    return node.over(lambda x: _without_unread(x, read))


def _read_part(node: Project, above: frozenset[str]) -> Node:
    kept = _kept(node, above)
    below = _without_unread(node.input, _read_by(kept))
    return below if all(c == e for c, e in kept) else replace(node, input=below, outputs=kept)


def pruned(query: Query, more: frozenset[str] = frozenset()) -> Query:
    """The same with projections of what is read above them, or is `more`, of the key of their rows, and of what can
    fail, which is reported, alone. For how a query runs: its text and its fingerprint are those of all columns
    (`Plan.pruned`)."""
    return replace(query, root=_pruned(query.root, written(query), more))


def _pruned(node: Node, above: frozenset[str], more: frozenset[str]) -> Node:
    if isinstance(node, Project):
        kept = _kept(node, above.union(more, (c.name for c, e in node.outputs if can_fail(e))))
        return replace(node, input=_pruned(node.input, _read_by(kept), more), outputs=kept)
    read = above.union(needed_by(node))
    if isinstance(node, Union):  # its parts have the same columns, whatever their keys are
        read = read.union(c.name for c in node.schema)
    return node.over(lambda x: _pruned(x, read, more))


def _kept(node: Project, above: frozenset[str]) -> _Outputs:
    keys = node.input.row_key
    return tuple((c, e) for c, e in node.outputs if c.name in above or e in keys) or node.outputs[:1]


def _read_by(outputs: _Outputs) -> frozenset[str]:
    return frozenset(c for _, e in outputs for c in columns(e))
