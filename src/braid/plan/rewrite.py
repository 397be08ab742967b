"""Rewriting: logical plan to logical plan, meaning unchanged.

In: a bound query. Out: the query that `lower` and the reference get.
Rule: only what makes plans equal that mean the same; how it runs is the business of `lower`.
"""

from __future__ import annotations

from dataclasses import replace

from braid.expr.nodes import columns
from braid.plan.logical import Node, Project, Query, Source
from braid.plan.needed import needed_by, written

PSEUDO_PLACES = ("rowtime", "rowpartition", "rowoffset")


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
    keys = node.input.row_key
    kept = tuple((c, e) for c, e in node.outputs if c.name in above or e in keys) or node.outputs[:1]
    below = _without_unread(node.input, frozenset(c for _, e in kept for c in columns(e)))
    return below if all(c == e for c, e in kept) else replace(node, input=below, outputs=kept)
