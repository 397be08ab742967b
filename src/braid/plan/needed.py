"""Which columns a query reads.

In: a logical query. Out: the names of the plan columns that some expression above their node reads, or that tell the
rows of a table apart.
Rule: what is not here need not be read, computed, moved or kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from braid.expr.nodes import Expr, columns
from braid.plan import epochs, keyed, logical, sliding
from braid.plan.logical import Node, Query


def needed(query: Query) -> frozenset[str]:
    """The names of the plan columns that are read."""
    return written(query) | frozenset(_needed_below(query.root))


def written(query: Query) -> frozenset[str]:
    """Those that the result is made of."""
    outputs = (*query.sink.key, *query.sink.values)
    return frozenset(c for e in (*query.sink.written_key, *(o.expr for o in outputs)) for c in columns(e))


def _needed_below(node: Node) -> Iterable[str]:
    yield from needed_by(node)
    for x in logical.inputs(node):
        yield from _needed_below(x)


def needed_by(node: Node) -> Iterable[str]:
    """Those that a node reads of its inputs."""
    match node:
        case logical.Source():
            pass
        case logical.Filter(predicate=p):
            yield from columns(p)
        case logical.Project(outputs=outputs):
            for _, e in outputs:
                yield from columns(e)
        case logical.StreamStreamJoin() | logical.StreamTableJoin() | logical.TableTableJoin():
            yield from columns(node.left_key)
            yield from columns(node.right_key)
        case keyed.TwoClockJoin() | keyed.RememberingJoin() | keyed.CombiningJoin():
            for e in (*keyed.conditions(node), *_identity(node)):
                yield from columns(e)
        case keyed.Lateral(array=e):
            yield from columns(e)
        case keyed.Materialize():
            for e in logical.row_key(node):
                yield from columns(e)
        case logical.Aggregate(keys=keys, aggregations=aggregations):
            for _, e in keys:
                yield from columns(e)
            for a in aggregations:
                yield from columns(a.arg) if a.arg is not None else ()
            if any(a.function == "LATEST" for a in aggregations):
                for e in logical.row_key(node.input):
                    yield from columns(e)
        case epochs.InEpochs():
            for e in epochs.expressions(node):
                yield from columns(e)
        case sliding.SlidingJoin():
            for e in sliding.expressions(node):
                yield from columns(e)
        case _:
            assert_never(node)


def _identity(node: keyed.KeyedJoin) -> tuple[Expr, ...]:
    """What the rows of the tables that it keeps are known by."""
    tables = [x for x in (node.left, node.right) if logical.mode(x) != "append"]
    return tuple(e for x in tables for e in logical.row_key(x))
