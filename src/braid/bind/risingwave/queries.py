"""A query that runs: SELECT over a tree of joins, as logical nodes.

In: a query as read. Out: a `Result`: a projection, its columns, and their SQL types.
Rule: names are bound first, then the parts of WHERE and ON are placed where they may stand (`placing`); the projection
keeps the columns of the rows' key, selected or not. RW-44: with EMIT ON WINDOW CLOSE rows wait for the first column
that has a watermark; without one there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braid.bind.names import free_name
from braid.bind.risingwave import grouping
from braid.bind.risingwave.expressions import bound, condition, type_name, usual_name
from braid.bind.risingwave.placing import place
from braid.bind.risingwave.scope import Context, Scope, default_name
from braid.bind.risingwave.sources import Env, bind_from
from braid.errors import Span, SqlError
from braid.expr.nodes import Col, Expr
from braid.expr.typing import all_of, conjuncts
from braid.plan.epochs import EmitOnClose
from braid.plan.logical import Filter, Node, Project
from braid.plan.watermarks import progress
from braid.sql import ast


@dataclass(frozen=True, slots=True)
class Item:
    """A column of a result: its name, its plan column, the SQL name of its type."""

    name: str
    col: Col
    type: str
    span: Span


@dataclass(frozen=True, slots=True)
class Result:
    """`types`: the SQL types of all columns, hidden ones too."""

    node: Node
    items: tuple[Item, ...]
    types: dict[Expr, str]


def bind_query(query: ast.Query, context: Context, names: tuple[str, ...] = ()) -> Result:
    """The query of a view. `names`: of its columns, where they are listed."""
    result = bind_inner(query, Env(context), context.alias("result"))
    if names and len(names) != len(result.items):
        message = f"{len(names)} names for {len(result.items)} columns"
        raise SqlError(message, query.span, f"name each column, or none: {', '.join(i.name for i in result.items)}")
    items = tuple(
        Item(names[i] if i < len(names) else item.name, item.col, item.type, item.span)
        for i, item in enumerate(result.items)
    )
    return Result(result.node, items, result.types)


def bind_inner(query: ast.Query, env: Env, alias: str) -> Result:
    """A query anywhere in a plan; its columns get plan names under `alias`."""
    for cte in query.ctes:
        env = Env(env.context, {**env.ctes, cte.name: (cte, env)})
    if query.limit is not None or query.offset is not None:
        what, at = ("LIMIT", query.limit) if query.limit is not None else ("OFFSET", query.offset)
        assert at is not None
        hint = f"leave it out, and write SELECT … FROM the view ORDER BY … {what} …"
        raise SqlError(f"{what} in a view is not supported yet", at.span, hint)
    body = query.body
    if isinstance(body, ast.SetOperation):
        hint = "make a view of each side, and query both"
        raise SqlError(f"{body.op} in a view is not supported yet", body.span, hint)
    if isinstance(body, ast.Values):
        raise SqlError("VALUES in a view is not supported yet", body.span, "CREATE TABLE, INSERT them, and read that")
    if isinstance(body, ast.Query):
        return bind_inner(body, env, alias)
    result = _select(body, env, alias)
    if query.emit is not None:
        return Result(emit_on_close(result.node, [i.col for i in result.items], query.emit), result.items, result.types)
    return result


def _select(s: ast.Select, env: Env, alias: str) -> Result:
    if s.source is None:
        raise SqlError("a view needs FROM", s.span, "select from a table, a source or a view")
    if s.distinct:
        hint = "write GROUP BY these columns, with MIN or MAX of the others; a batch query may have it"
        raise SqlError("DISTINCT ON in a view is not supported yet", s.distinct[0].span, hint)
    if s.windows:
        hint = "leave WINDOW out; a batch query may have it"
        raise SqlError("windows over rows in a view are not supported yet", s.windows[0][1].span, hint)
    source = s.source

    def read() -> tuple[Node, Scope[Expr]]:
        return _rows(source, s.where, env)

    if s.group_by or s.having is not None or grouping.has_aggregates(s) or s.distinct is not None:
        grouped = grouping.bind_grouped(s, read, alias)
        return projected(grouped.node, grouped.items, alias, grouped.types)
    node, scope = read()
    made: list[tuple[str, Expr, str, Span]] = []
    for item in s.items:
        if isinstance(item.expr, ast.Star):
            columns = scope.star(item.expr.qualifier, item.span)
            made += [(c.name, c.expr, c.type, item.span) for c in columns]
        else:
            e = bound(item.expr, "SELECT", scope.expr, None, scope.type)
            named = type_name(item.expr, e, scope.type)
            made.append((item.alias or default_name(item.expr), e, named, item.span))
    return projected(node, made, alias, key_types(scope))


def _rows(source: ast.Relation, where: ast.Expr | None, env: Env) -> tuple[Node, Scope[Expr]]:
    """The rows of FROM that pass WHERE, and what names mean over them."""
    tree = bind_from(source, env)
    scope = tree.scope
    pool = list(conjuncts(condition(where, "WHERE", scope.expr))) if where is not None else []
    node, left_over = place(tree, pool, env.context)
    rest = all_of(left_over)
    return (node if rest is None else Filter(node, rest)), scope


def projected(node: Node, made: list[tuple[str, Expr, str, Span]], alias: str, types: dict[Expr, str]) -> Result:
    """The projection of named expressions, with the key of the rows behind them."""
    taken: set[str] = set()
    items: list[Item] = []
    outputs: list[tuple[Col, Expr]] = []
    for name, e, type_, span in made:
        unique = free_name(f"{alias}.{name}", taken, 2)
        taken.add(unique)
        col = Col(unique, e.type)
        outputs.append((col, e))
        items.append(Item(name, col, type_, span))
    shown = {e for _, e in outputs}
    found: dict[Expr, str] = {i.col: i.type for i in items}
    for key in node.row_key:
        if key not in shown:
            assert isinstance(key, Col)
            outputs.append((key, key))
            found[key] = types.get(key) or usual_name(key.type)
    return Result(Project(node, tuple(outputs)), tuple(items), found)


def key_types(scope: Scope[Expr]) -> dict[Expr, str]:
    """The SQL types of plan columns as far as the scope shows them."""
    return {c.expr: c.type for t in scope.tables for c in t.columns}


def emit_on_close(node: Node, columns: Sequence[Col], span: Span) -> Node:
    known = progress(node)
    for column in columns:
        if column.name in known:
            return EmitOnClose(node, column, known[column.name])
    hint = "declare WATERMARK FOR on each table, and select the column it is for, or window_start"
    raise SqlError("EMIT ON WINDOW CLOSE needs a column with a watermark, and this view has none", span, hint)
