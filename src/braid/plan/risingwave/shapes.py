"""What a query is made of: its SELECTs, its sources, and the columns that `*` stands for.

In: a query as read, the catalog. Out: nodes of the tree; names of columns; the pieces of text that `*` becomes.
Rule: RW-19 and RW-20: `*` gives merged columns first, those of the outermost join before the others; several columns
of one USING or NATURAL in reverse alphabetical order, or (merged_columns = postgres) as written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from braid.plan.bind_expr import children
from braid.plan.bound import Declared, Index, View
from braid.plan.risingwave.context import Context
from braid.sql import ast
from braid.sql import ast_risingwave as rw


def queries(query: rw.Query) -> Iterator[rw.Query]:
    """A query and those inside it."""
    yield query
    for cte in query.ctes:
        yield from queries(cte.query)
    for select in _of_body(query.body):
        for source in leaves(select.source) if select.source is not None else ():
            if isinstance(source, rw.Derived):
                yield from queries(source.query)


def selects(query: rw.Query) -> Iterator[rw.Select]:
    """All SELECTs of a query, those of its sub-queries too."""
    for cte in query.ctes:
        yield from selects(cte.query)
    yield from _of_body(query.body)


def _of_body(body: rw.Body) -> Iterator[rw.Select]:
    match body:
        case rw.SetOperation(left=left, right=right):
            yield from _of_body(left)
            yield from _of_body(right)
        case rw.Values(rows=rows):
            for row in rows:
                for e in row:
                    yield from _of_expr(e)
        case rw.Select():
            yield body
            for source in leaves(body.source) if body.source is not None else ():
                if isinstance(source, rw.Derived):
                    yield from selects(source.query)
            for x in (*(i.expr for i in body.items), body.where, body.having, *body.group_by):
                if x is not None:
                    yield from _of_expr(x)
        case _:
            assert_never(body)


def _of_expr(e: ast.Expr) -> Iterator[rw.Select]:
    if isinstance(e, ast.Subquery):
        yield from selects(e.query)
    for child in children(e):
        yield from _of_expr(child)


def leaves(relation: rw.Relation) -> Iterator[rw.TableName | rw.Derived | rw.TableFunction]:
    """The sources of a FROM, from left to right."""
    if isinstance(relation, rw.Join):
        yield from leaves(relation.left)
        yield from leaves(relation.right)
    else:
        yield relation


def joins(relation: rw.Relation) -> Iterator[rw.Join]:
    """The joins of a FROM, inner ones first."""
    if isinstance(relation, rw.Join):
        yield from joins(relation.left)
        yield from joins(relation.right)
        yield relation


def merged_order(names: Sequence[str], postgres: bool) -> tuple[str, ...]:
    """The order of the merged columns of one join."""
    return tuple(names) if postgres else tuple(sorted(names, reverse=True))


# -------------------------------------------------------------- * in batch queries


@dataclass(frozen=True, slots=True)
class _Shape:
    """The columns of a relation: those that are merged, then all in order as (source, name)."""

    merged: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


def star_edits(select: rw.Select, context: Context) -> Iterator[tuple[int, int, str]]:
    """`*` over merged columns, written out in RisingWave's order."""
    if select.source is None or not any(j.using or j.natural for j in joins(select.source)):
        return
    stars = [i for i in select.items if isinstance(i.expr, ast.Star) and i.expr.qualifier is None]
    shape = _shape(select.source, context) if stars else None
    if shape is None:
        return
    names = [f'"{n}"' for n in shape.merged]
    names += [f'"{source}"."{n}"' for source, n in shape.columns if n not in shape.merged]
    for item in stars:
        yield item.span.start, item.span.end, ", ".join(names)


def _shape(relation: rw.Relation, context: Context) -> _Shape | None:
    match relation:
        case rw.TableName(name=name, alias=alias):
            found = columns_of(name, context)
            if found is None:
                return None
            names = (*relation.columns, *found[len(relation.columns) :])
            return _Shape((), tuple((alias or name, n) for n in names))
        case rw.Join(left=left, right=right):
            a, b = _shape(left, context), _shape(right, context)
            if a is None or b is None:
                return None
            if not (relation.using or relation.natural):
                return _Shape((*a.merged, *b.merged), (*a.columns, *b.columns))
            own = [n.parts[0] for n in relation.using]
            if relation.natural:
                right_names = {n for _, n in b.columns}
                own = list(dict.fromkeys(n for _, n in a.columns if n in right_names))
            first = merged_order(own, context.settings.risingwave.postgres_order)
            rest = tuple(n for n in (*a.merged, *b.merged) if n not in first)
            return _Shape((*first, *rest), (*a.columns, *b.columns))
        case rw.Derived(query=query, alias=alias):
            names_of = output_names(query, context)
            if names_of is None or alias is None:
                return None
            renamed = (*relation.columns, *names_of[len(relation.columns) :])
            return _Shape((), tuple((alias, n) for n in renamed))
        case rw.TableFunction():
            return None
    assert_never(relation)


def columns_of(name: str, context: Context) -> tuple[str, ...] | None:
    """The columns of a table, view or index; None where they are not known here."""
    found = context.found(name)
    match found:
        case Declared():
            return tuple(c.name for c in found.visible)
        case Index():
            return found.all_columns
        case View(columns=columns):
            return columns or None
    return None


def output_names(query: rw.Query, context: Context) -> tuple[str, ...] | None:
    """The names of a query's columns, where each item has a plain one."""
    body = query.body
    while isinstance(body, rw.SetOperation):
        body = body.left
    if not isinstance(body, rw.Select) or query.ctes:
        return None
    found: list[str] = []
    for item in body.items:
        if isinstance(item.expr, ast.Star):
            if body.source is None or isinstance(body.source, rw.Join):
                return None
            shape = _shape(body.source, context)
            if shape is None:
                return None
            found += [n for _, n in shape.columns]
        else:
            found.append(item.alias or default_name(item.expr))
    return tuple(found)


def default_name(e: ast.Expr) -> str:
    """What PostgreSQL calls a column that has no name."""
    match e:
        case ast.Name(parts=parts):
            return parts[-1]
        case ast.Call(name=name):
            return name.lower()
        case ast.Cast(arg=arg):
            return default_name(arg)
        case ast.Case():
            return "case"
    return "?column?"
