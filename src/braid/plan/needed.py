"""Which columns a query reads.

In: a logical query. Out: the names of the plan columns that some expression above their node reads, or that tell the
rows of a table apart.
Rule: what is not here need not be read, computed, moved or kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from braid.expr.nodes import columns
from braid.plan.logical import Node, Query


def needed(query: Query) -> frozenset[str]:
    """The names of the plan columns that are read."""
    return written(query) | frozenset(c for x in query.root.walk() for c in needed_by(x))


def written(query: Query) -> frozenset[str]:
    """Those that the result is made of."""
    sink = query.sink
    written = (*sink.written_key, *(o.expr for o in (*sink.key, *sink.values)), *(sink.window or ()))
    return frozenset(c for e in written for c in columns(e))


def needed_by(node: Node) -> Iterable[str]:
    """Those that a node reads of its inputs."""
    return (c for e in node.reads() for c in columns(e))
