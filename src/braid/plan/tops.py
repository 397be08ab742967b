"""Tops: of ranks that a filter bounds, those behind the bound need not be computed.

In: a bound query. Out: the query whose calls over rows (`over.Over`) know the highest rank that is read.
Rule: the filter stays; what reads the rows of a top is that filter alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from braid.expr.nodes import Call, Col, Expr, Lit
from braid.expr.typing import conjuncts
from braid.plan.logical import Filter, Node, Project, Query
from braid.plan.over import RANKS, Over, Top


def with_tops(query: Query) -> Query:
    return replace(query, root=_with_tops(query.root))


def _with_tops(node: Node) -> Node:
    node = node.over(_with_tops)
    if isinstance(node, Filter):
        for column, most in _bounded(node.predicate):
            node = replace(node, input=_topped(node.input, column, most))
    return node


def _bounded(predicate: Expr) -> Iterator[tuple[Col, int]]:
    """Columns and the whole numbers that they are not above."""
    for term in conjuncts(predicate):
        match term:
            case Call(function="le" | "eq", args=(Col() as column, Lit(value=int(most)))):
                yield column, most
            case Call(function="lt", args=(Col() as column, Lit(value=int(most)))):
                yield column, most - 1
            case Call(function="ge" | "eq", args=(Lit(value=int(most)), Col() as column)):
                yield column, most
            case Call(function="gt", args=(Lit(value=int(most)), Col() as column)):
                yield column, most - 1


def _topped(node: Node, column: Col, most: int) -> Node:
    match node:
        case Filter(input=x):
            return replace(node, input=_topped(x, column, most))
        case Project(input=x, outputs=outputs):
            e = dict(outputs).get(column)
            return replace(node, input=_topped(x, e, most)) if isinstance(e, Col) else node
        case Over(calls=calls, top=top) if any(c.aggregation.output == column and c.function in RANKS for c in calls):
            lower = top is None or most < top.most
            return replace(node, top=Top(column, most)) if lower and all(c.looks_back for c in calls) else node
        case _:
            return node
