"""Rewriting: logical plan to logical plan, meaning unchanged.

In: a bound query. Out: the query that `lower` and the reference get.
Rule: only what makes plans equal that mean the same; how it runs is the business of `lower`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from braid.expr.nodes import columns
from braid.plan import sliding
from braid.plan.epochs import (
    AsOfJoin,
    Changes,
    Clocked,
    Coalesce,
    EmitOnClose,
    RegularJoin,
    TemporalJoin,
    Windows,
)
from braid.plan.keyed import CombiningJoin, Lateral, Materialize, RememberingJoin, TwoClockJoin
from braid.plan.logical import (
    Aggregate,
    Filter,
    Node,
    Project,
    Query,
    Source,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    row_key,
)
from braid.plan.needed import needed_by, written
from braid.plan.sliding import SlidingJoin

PSEUDO_PLACES = ("rowtime", "rowpartition", "rowoffset")


def rewrite(query: Query) -> Query:
    return replace(query, root=_without_unread(query.root, written(query)))


def _without_unread(node: Node, above: frozenset[str]) -> Node:
    """Sources keep only those pseudo columns that are read: they are no columns of the record. Projections keep what is
    read, and the key of their rows; those that compute and rename nothing go. `above`: what is read above the node."""
    if isinstance(node, Project):
        return _read_part(node, above)
    read = above.union(needed_by(node))
    match node:
        case Source(columns=all_columns):
            return replace(
                node, columns=tuple(c for c in all_columns if c.place not in PSEUDO_PLACES or c.name in read)
            )
        case Filter(input=x) | Lateral(input=x) | Materialize(input=x) | Aggregate(input=x):
            return replace(node, input=_without_unread(x, read))
        case TwoClockJoin() | RememberingJoin() | CombiningJoin():
            return replace(node, left=_without_unread(node.left, read), right=_without_unread(node.right, read))
        case StreamStreamJoin() | StreamTableJoin() | TableTableJoin():
            return replace(node, left=_without_unread(node.left, read), right=_without_unread(node.right, read))
        case RegularJoin() | AsOfJoin() | TemporalJoin():
            return replace(node, left=_without_unread(node.left, read), right=_without_unread(node.right, read))
        case SlidingJoin():
            return sliding.with_inputs(node, lambda x: _without_unread(x, read))
        case Changes(input=x) | Windows(input=x) | Clocked(input=x) | EmitOnClose(input=x) | Coalesce(input=x):
            return replace(node, input=_without_unread(x, read))
    assert_never(node)


def _read_part(node: Project, above: frozenset[str]) -> Node:
    keys = row_key(node.input)
    kept = tuple((c, e) for c, e in node.outputs if c.name in above or e in keys) or node.outputs[:1]
    below = _without_unread(node.input, frozenset(c for _, e in kept for c in columns(e)))
    return below if all(c == e for c, e in kept) else replace(node, input=below, outputs=kept)
