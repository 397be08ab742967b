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
    InEpochs,
    RegularJoin,
    TemporalJoin,
    Windows,
    expressions,
)
from braid.plan.keyed import CombiningJoin, Lateral, Materialize, RememberingJoin, TwoClockJoin, conditions
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
    inputs,
)
from braid.plan.sliding import SlidingJoin

PSEUDO_PLACES = ("rowtime", "rowpartition", "rowoffset")


def rewrite(query: Query) -> Query:
    return replace(query, root=_without_pseudo(query.root, _read(query)))


def _read(query: Query) -> frozenset[str]:
    """The plan columns that some expression reads."""
    sink = query.sink
    exprs = [*sink.record_key, *(o.expr for o in (*sink.key, *sink.values))]
    return frozenset(c for e in exprs for c in columns(e)) | _read_by(query.root)


def _read_by(node: Node) -> frozenset[str]:
    match node:
        case Source():
            return frozenset()
        case Filter(input=x, predicate=p):
            return _read_by(x) | frozenset(columns(p))
        case Project(input=x, outputs=outputs):
            return _read_by(x) | frozenset(c for _, e in outputs for c in columns(e))
        case StreamStreamJoin() | StreamTableJoin() | TableTableJoin():
            here = frozenset((*columns(node.left_key), *columns(node.right_key)))
            return here | _read_by(node.left) | _read_by(node.right)
        case TwoClockJoin() | RememberingJoin() | CombiningJoin():
            return (
                frozenset(c for e in conditions(node) for c in columns(e)) | _read_by(node.left) | _read_by(node.right)
            )
        case Materialize(input=x):
            return _read_by(x)
        case Lateral(input=x, array=e):
            return _read_by(x) | frozenset(columns(e))
        case Aggregate(input=x, keys=keys, aggregations=aggregations):
            exprs = [e for _, e in keys] + [a.arg for a in aggregations if a.arg is not None]
            return _read_by(x) | frozenset(c for e in exprs for c in columns(e))
        case SlidingJoin():
            here = frozenset(c for e in sliding.expressions(node) for c in columns(e))
            return here.union(*(_read_by(x) for x in inputs(node)))
        case InEpochs():
            here = frozenset(c for e in expressions(node) for c in columns(e))
            return here.union(*(_read_by(x) for x in inputs(node)))
    assert_never(node)


def _without_pseudo(node: Node, read: frozenset[str]) -> Node:
    """Sources keep only those pseudo columns that are read: they are no columns of the record."""
    match node:
        case Source(columns=all_columns):
            return replace(
                node, columns=tuple(c for c in all_columns if c.place not in PSEUDO_PLACES or c.name in read)
            )
        case Filter(input=x) | Project(input=x) | Lateral(input=x) | Materialize(input=x) | Aggregate(input=x):
            return replace(node, input=_without_pseudo(x, read))
        case TwoClockJoin() | RememberingJoin() | CombiningJoin():
            return replace(node, left=_without_pseudo(node.left, read), right=_without_pseudo(node.right, read))
        case StreamStreamJoin() | StreamTableJoin() | TableTableJoin():
            return replace(node, left=_without_pseudo(node.left, read), right=_without_pseudo(node.right, read))
        case RegularJoin() | AsOfJoin() | TemporalJoin():
            return replace(node, left=_without_pseudo(node.left, read), right=_without_pseudo(node.right, read))
        case SlidingJoin():
            return sliding.with_inputs(node, lambda x: _without_pseudo(x, read))
        case Changes(input=x) | Windows(input=x) | Clocked(input=x) | EmitOnClose(input=x) | Coalesce(input=x):
            return replace(node, input=_without_pseudo(x, read))
    assert_never(node)
