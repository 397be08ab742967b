"""ASOF joins in batch queries, as look-ups that break ties as views do.

In: a query as read. Out: pieces of text in place of each ASOF join.
Rule: RW-30: DuckDB's own ASOF JOIN takes any of several nearest rows; RisingWave's views take the one with the smallest
key, and so do batch queries here. `strict` refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator

from braid.errors import SqlError
from braid.plan.bind_expr import children
from braid.plan.bound import Declared
from braid.plan.risingwave import shapes
from braid.plan.risingwave.context import Context
from braid.sql import ast
from braid.sql import ast_risingwave as rw

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def edits(query: rw.Query, context: Context) -> Iterator[tuple[int, int, str]]:
    """(start, end, replacement) of each ASOF join."""
    for select in shapes.selects(query):
        if select.source is not None:
            for join in shapes.joins(select.source):
                if join.asof:
                    yield _lookup(join, context)


def _lookup(join: rw.Join, context: Context) -> tuple[int, int, str]:
    if context.settings.risingwave.strict:
        hint = "write CREATE MATERIALIZED VIEW v AS SELECT …, or SET strict = false"
        raise SqlError("an ASOF JOIN needs a view", join.how_span, hint)
    if join.using or join.natural or join.on is None:
        hint = "write ON a.x = b.x AND a.t >= b.t"
        raise SqlError("an ASOF JOIN takes ON, with an equality and one inequality", join.how_span, hint)
    right = join.right
    if not isinstance(right, rw.TableName):
        raise SqlError("the right side of a batch ASOF JOIN is a table", right.span, "make it a view first")
    alias = right.alias or right.name
    terms = _terms(join.on)
    inequalities = [t for t in terms if isinstance(t, ast.Binary) and t.op in _TURNED]
    if len(inequalities) != 1:
        hint = "write ON a.x = b.x AND a.t >= b.t"
        raise SqlError("an ASOF JOIN takes exactly one inequality", join.on.span, hint)
    compare = inequalities[0]
    assert isinstance(compare, ast.Binary)
    on_left = _reads(compare.left, alias, right, context)
    nearest, op = (compare.left, _TURNED[compare.op]) if on_left else (compare.right, compare.op)
    direction = "ASC" if op in ("<", "<=") else "DESC"
    declared = context.relation(right.name, right.name_span)
    ties = ""
    if isinstance(declared, Declared) and declared.relation is not None:
        ties = "".join(f', "{alias}"."{k}"' for k in declared.relation.key)
    source = f'"_whole {right.name}" AS "{alias}"'
    near, on = context.quote(nearest.span), context.quote(join.on.span)
    visible = shapes.columns_of(right.name, context) or ()
    columns = ", ".join(f'"{alias}"."{c}"' for c in visible)
    inner = f"SELECT {columns} FROM {source} WHERE {on} ORDER BY {near} {direction}{ties} LIMIT 1"
    kind = "LEFT JOIN" if join.how == "left" else "JOIN"
    return join.how_span.start, join.span.end, f'{kind} LATERAL ({inner}) AS "{alias}" ON true'


def _terms(e: ast.Expr) -> list[ast.Expr]:
    if isinstance(e, ast.Binary) and e.op == "AND":
        return [*_terms(e.left), *_terms(e.right)]
    return [e]


def _reads(e: ast.Expr, alias: str, right: rw.TableName, context: Context) -> bool:
    """Does an operand read the right side?"""
    if isinstance(e, ast.Name):
        if len(e.parts) == 2:
            return e.parts[0] == alias
        return e.parts[0] in (shapes.columns_of(right.name, context) or ())
    return any(_reads(x, alias, right, context) for x in children(e))
