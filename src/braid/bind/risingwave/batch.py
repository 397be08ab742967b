"""Batch queries, from what is written to a text that DuckDB answers; and INSERT, UPDATE, DELETE, which one decides.

In: a query or a statement as read, the names around it. Out: `BatchQuery`; `RowsChanged`, one epoch.
Rule: every name is bound here, and the text is made anew from what is bound: DuckDB sees names that `duck_text.token`
makes, functions and types of our lists, and constants that it quotes; nothing else. Each column of a result gets a name
that no other has, so `*`, ORDER BY and sub-queries never mean another one. What a statement writes is decided from the
snapshot before it; which rows are late is decided where they enter the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import assert_never

from braid.batch_sql.duck_text import name, token
from braid.bind.bound import BatchQuery, Bound, Declared, Read, Returning, RowsChanged
from braid.bind.changing import NOWHERE, placed
from braid.bind.expressions import with_span
from braid.bind.names import repeated
from braid.bind.risingwave.batch_values import NOTHING, Batch, BatchColumn, Rows, Values, column_token, ordered
from braid.bind.risingwave.duck import called, policy, printed
from braid.bind.risingwave.expressions import constant, with_fields
from braid.bind.risingwave.over import named_windows
from braid.bind.risingwave.scope import QUOTE, Context, default_name
from braid.bind.risingwave.set_operations import corresponding
from braid.bind.select.items import Item, listed, place_of
from braid.bind.select.scope import Column, Scope, Table, of_table
from braid.bind.select.tree import bind_from
from braid.errors import Span, SqlError
from braid.expr.nodes import Col, Expr, Lit, substituted
from braid.expr.postgres import typing
from braid.sql import ast
from braid.types import Decimal, Scalar, Type

_MANY = 100  # rows of constants that DuckDB gets column by column: it reads them in a fifth of the time


def batch_query(query: ast.Query, context: Context) -> BatchQuery:
    """A query as DuckDB reads it, with all it reads."""
    batch = Batch(context, rows_of)
    rows = rows_of(query, batch)
    return batch.query(rows.sql, rows.columns, query.span)


def rows_of(q: ast.Query, batch: Batch) -> Rows:
    """A whole query."""
    if q.emit is not None:
        hint = "write it in a view: CREATE MATERIALIZED VIEW v AS … EMIT ON WINDOW CLOSE"
        raise SqlError("EMIT ON WINDOW CLOSE waits for a clock; a batch query has none", q.emit, hint)
    written: list[str] = []
    names = [cte.name for cte in q.ctes]
    for n, cte in enumerate(q.ctes):
        if cte.name in names[:n]:
            raise SqlError(f"{cte.name} is defined twice in WITH", cte.span, "give one of them another name")
        inner = rows_of(cte.query, batch)
        token = batch.token("q", cte.name)
        written.append(f"{token} AS ({inner.sql})")
        columns = called(inner.columns, cte.columns, cte.span)
        batch = replace(batch, ctes={**batch.ctes, cte.name: (token, columns)})
    body, order_by = _body(q.body, q.order_by, batch)
    sql = body.sql
    if written:
        sql = f"WITH {', '.join(written)} {sql}"
    if order_by:
        sql += f" ORDER BY {', '.join(order_by)}"
    if q.ties is not None:
        hint = "write rank() OVER (ORDER BY x) AS r in a sub-query, and WHERE r <= 3; a view may have it"
        raise SqlError("WITH TIES in a batch query is not supported yet", q.ties, hint)
    bounds = Values(batch, NOTHING, "LIMIT")
    if q.limit is not None:
        sql += f" LIMIT {bounds.sql(q.limit)}"
    if q.offset is not None:
        sql += f" OFFSET {bounds.sql(q.offset)}"
    return Rows(sql, body.columns)


def _body(body: ast.Body, order_by: tuple[ast.OrderItem, ...], batch: Batch) -> tuple[Rows, list[str]]:
    """The text of a query without its end, and the items of ORDER BY."""
    match body:
        case ast.Select():
            return _select(body, order_by, batch)
        case ast.Values():
            rows = _values(body, batch)
        case ast.Query():
            inner = rows_of(body, batch)
            rows = Rows(f"({inner.sql})", inner.columns)
        case ast.SetOperation(left=left, right=right):
            a, b = (_body(x, (), batch)[0] for x in (left, right))
            if body.corresponding is not None:
                a, b = _corresponding(a, b, body, batch)
            if len(a.columns) != len(b.columns):
                message = f"{len(a.columns)} columns before {body.op}, {len(b.columns)} behind it"
                raise SqlError(message, right.span, "select the same number of columns on both sides")
            rows = _both(a, b, body, batch)
        case _:
            assert_never(body)
    return rows, [_of_columns(i, rows.columns) for i in order_by]


def _corresponding(a: Rows, b: Rows, body: ast.SetOperation, batch: Batch) -> tuple[Rows, Rows]:
    """Both sides with the columns by whose names they meet."""
    wanted = corresponding(body, [n for n, _, _ in a.columns], [n for n, _, _ in b.columns])
    made: list[Rows] = []
    for rows in (a, b):
        columns = tuple(next(c for c in rows.columns if c[0] == n) for n in wanted)
        picked = ", ".join(t for _, t, _ in columns)
        made.append(Rows(f"SELECT {picked} FROM ({rows.sql}) AS {batch.token('t', 'side')}", columns))
    return made[0], made[1]


def _both(a: Rows, b: Rows, body: ast.SetOperation, batch: Batch) -> Rows:
    """UNION, INTERSECT, EXCEPT: columns have the type that both sides become."""
    types: list[Type] = []
    with with_span(body.right.span):
        for (_, _, t), (_, _, u) in zip(a.columns, b.columns, strict=True):
            types.append(typing.alike(f"the columns of {body.op}", [Col("a", t), Col("b", u)])[0])
    columns = tuple((n, t, wide) for (n, t, _), wide in zip(a.columns, types, strict=True))
    sides = [_converted(x, types, body.right.span, batch) for x in (a, b)]
    return Rows(f"({sides[0]}) {body.op} {'ALL ' if body.all else ''}({sides[1]})", columns)


def _converted(rows: Rows, types: Sequence[Type], span: Span, batch: Batch) -> str:
    """The text of a query whose columns have these types."""
    if [t for _, _, t in rows.columns] == list(types):
        return rows.sql
    pairs = zip(rows.columns, types, strict=True)
    made = [f"{batch.text(typing.coerced(Col(n, t), wide), span)} AS {n}" for (_, n, t), wide in pairs]
    return f"SELECT {', '.join(made)} FROM ({rows.sql}) AS {batch.token('t', 'side')}"


def _of_columns(item: ast.OrderItem, columns: tuple[BatchColumn, ...]) -> str:
    """An item of ORDER BY behind UNION or VALUES: a column of the result."""
    found = _output(item.expr, columns)
    if found is None:
        hint = f"the columns are {', '.join(n for n, _, _ in columns)}; or ORDER BY in a query around this one"
        raise SqlError("ORDER BY takes a column of the result here", item.expr.span, hint)
    return ordered(found, item)


def _output(e: ast.Expr, columns: tuple[BatchColumn, ...]) -> str | None:
    """The column of a result that a place or a name means."""
    place = place_of(e, [n for n, _, _ in columns])
    return None if place is None else columns[place][1]


def _values(v: ast.Values, batch: Batch) -> Rows:
    """VALUES; its columns are column1, column2 …, of the type that all their values become."""
    values = Values(batch, NOTHING, "VALUES")
    rows = _rows(v, values)
    columns: list[list[Expr]] = []
    for n, column in enumerate(zip(*rows, strict=True)):
        with with_span(v.rows[0][n].span):
            columns.append(typing.alike("the values of a column", column)[1])
    return _listed(v, [list(r) for r in zip(*columns, strict=True)], batch)


def _rows(v: ast.Values, values: Values) -> list[list[Expr]]:
    """Rows of VALUES, each as long as the first."""
    width = len(v.rows[0])
    rows: list[list[Expr]] = []
    for row in v.rows:
        if len(row) != width:
            hint = "give each row of VALUES the same number of values"
            raise SqlError(f"{len(row)} values, but {width} in the first row", row[-1].span, hint)
        rows.append([constant(e) if isinstance(e, ast.Literal) else values.expr(e) for e in row])
    return rows


def _listed(v: ast.Values, rows: list[list[Expr]], batch: Batch) -> Rows:
    """The text of VALUES."""
    width = len(v.rows[0])
    types = [typing.finished(e).type for e in rows[0]]
    columns = tuple((f"column{i + 1}", batch.token("c", f"column{i + 1}"), types[i]) for i in range(width))
    if len(rows) >= _MANY and all(isinstance(e, Lit) and isinstance(e.type, Scalar | Decimal) for r in rows for e in r):
        lists = [batch.constants(x, t) for x, t in zip(zip(*rows, strict=True), types, strict=True)]
        items = ", ".join(f"unnest({x}) AS {t}" for x, (_, t, _) in zip(lists, columns, strict=True))
        return Rows(f"SELECT {items}", columns)
    both = zip(rows, v.rows, strict=True)
    texts = [[batch.text(e, x.span) for e, x in zip(row, written, strict=True)] for row, written in both]
    table = batch.token("t", "values")
    names = ", ".join(t for _, t, _ in columns)
    written = ", ".join(f"({', '.join(row)})" for row in texts)
    return Rows(f"SELECT {names} FROM (VALUES {written}) AS {table}({names})", columns)


# --------------------------------------------------------------------- SELECT


def outputs(items: tuple[ast.SelectItem, ...], values: Values) -> list[tuple[str, Item]]:
    """The columns that items give, by their names in the text."""

    def value(item: ast.SelectItem) -> Item:
        made = typing.finished(values.expr(item.expr, of_rows=True))
        return Item(item.alias or default_name(item.expr), made, item.expr.span, item.expr)

    return [(values.batch.token("c", i.name), i) for i in listed(with_fields(items, values.expr), values.scope, value)]


def _select(s: ast.Select, order_by: tuple[ast.OrderItem, ...], batch: Batch) -> tuple[Rows, list[str]]:
    source = bind_from(s.source, policy(batch)) if s.source is not None else None
    scope = NOTHING if source is None else source.scope
    windows = named_windows(s)
    plain = Values(batch, scope, "SELECT", windows)
    grouped = _groups(s, plain)
    select = replace(plain, groups=grouped)
    items = outputs(s.items, select)
    columns = tuple((i.name, token, i.expr.type) for token, i in items)
    written = {token: select.text(i.expr, i.span) for token, i in items}
    distinct = ""
    if s.distinct is not None:
        on = [written.get(_output(e, columns) or "") or select.sql(e) for e in s.distinct]
        distinct = f"DISTINCT ON ({', '.join(on)}) " if on else "DISTINCT "
    sql = f"SELECT {distinct}{', '.join(f'{e} AS {t}' for t, e in written.items())}"
    if source is not None:
        sql += f" FROM {printed(source, batch)}"
    if s.where is not None:
        sql += f" WHERE {Values(batch, scope, 'WHERE').condition(s.where)}"
    if s.group_by:
        group = Values(batch, scope, "GROUP BY")
        sql += f" GROUP BY {', '.join(_grouped(e, columns, group) for e in s.group_by)}"
    if s.having is not None:
        sql += f" HAVING {Values(batch, scope, 'HAVING', groups=grouped).condition(s.having)}"
    order = Values(batch, scope, "ORDER BY", windows, grouped)
    made = [ordered(_ordering(i.expr, columns, order), i) for i in order_by]
    return Rows(sql, columns), made


def _groups(s: ast.Select, values: Values) -> dict[Expr, Expr]:
    """The expressions of GROUP BY that DuckDB knows by their text alone."""
    found: dict[Expr, Expr] = {}
    sets = (x for e in s.group_by for x in (chain(*e.sets) if isinstance(e, ast.GroupingSets) else (e,)))
    for e in sets:
        place = e.value if isinstance(e, ast.Literal) else None
        alias = next(
            (i.expr for i in s.items if isinstance(e, ast.Name) and not values.knows(e) and (i.alias,) == e.parts), None
        )
        if isinstance(place, int) and 1 <= place <= len(s.items):
            alias = s.items[place - 1].expr
        written = e if alias is None else alias
        if isinstance(written, ast.Name | ast.Literal | ast.Star):
            continue
        made = typing.finished(values.expr(written))
        if not isinstance(made, Col):
            found[made] = Col(values.text(made, written.span), made.type)
    return found


def _ordering(e: ast.Expr, columns: tuple[BatchColumn, ...], values: Values) -> str:
    """PostgreSQL's rule: a place or a name is one of the result, anything else is over the rows of FROM."""
    if isinstance(e, ast.Literal) and not isinstance(e.value, int):
        raise SqlError("ORDER BY a constant orders nothing", e.span, "name a column, or its place")
    return _output(e, columns) or values.sql(e)


def _grouped(e: ast.Expr, columns: tuple[BatchColumn, ...], values: Values) -> str:
    """A name is a column of FROM first, then one of the result; a number is a place."""
    if isinstance(e, ast.GroupingSets):
        sets = ", ".join(f"({', '.join(_grouped(x, columns, values) for x in s)})" for s in e.sets)
        return f"{e.kind} ({sets})"
    own = isinstance(e, ast.Name) and values.knows(e)
    place = None if own else place_of(e, [n for n, _, _ in columns])
    return values.sql(e) if place is None else str(place + 1)


# ------------------------------------------------------------ over the rows of one table


def changed_rows(
    target: Declared, sets: Sequence[tuple[str, ast.Expr]], where: ast.Expr | None, span: Span, context: Context
) -> BatchQuery:
    """The rows of a table that meet a condition, hidden columns too, and behind them new values."""
    batch = Batch(context, rows_of)
    alias = batch.token("t", target.name)
    values = Values(batch, _scope(target, alias), "WHERE")
    types = {c.name: c.type for c in target.columns}
    items = [f"{alias}.{column_token(c.name)}" for c in target.columns]
    columns = [(c.name, column_token(c.name), c.type) for c in target.columns]
    for column, e in sets:
        token = batch.token("n", "new")
        with with_span(e.span):
            new = typing.assigned(values.expr(e), types[column], column)
        items.append(f"{values.text(new, e.span)} AS {token}")
        columns.append(("new", token, new.type))
    sql = f"SELECT {', '.join(items)} FROM {batch.read(target)} AS {alias}"
    if where is not None:
        sql += f" WHERE {values.condition(where)}"
    return batch.query(sql, tuple(columns), span)


def returning(items: tuple[ast.SelectItem, ...], target: Declared, context: Context) -> Returning | None:
    """RETURNING, over the rows that were written."""
    if not items:
        return None
    batch = Batch(context, rows_of)
    alias = batch.token("t", target.name)
    written = Read(token("w", target.name), target)
    values = Values(batch, _scope(target, alias), "RETURNING")
    found = outputs(items, values)
    shown = ", ".join(f"{values.text(i.expr, i.span)} AS {token}" for token, i in found)
    if batch.reads:
        hint = "leave the query out, and read the table afterwards"
        raise SqlError("RETURNING reads the rows that were written, no others", items[0].span, hint)
    sql = f"SELECT {shown} FROM {name(written.name)} AS {alias}"
    return Returning(sql, tuple(i.name for _, i in found), written, tuple(batch.asked.values()))


def _scope(target: Declared, alias: str) -> Scope:
    given: dict[str, Expr] = {c.name: Col(f"{alias}.{column_token(c.name)}", c.type) for c in target.columns}
    columns: tuple[Column, ...] = tuple(Column(n, substituted(e, given), "") for n, e, _ in target.seen)
    return of_table(Table(target.name, columns), QUOTE)


# ------------------------------------------------------- INSERT, UPDATE, DELETE


def insert(s: ast.Insert, context: Context) -> Bound:
    target = context.table(s.target, "insert into")
    columns = tuple(_column(n, target) for n in s.columns) or tuple(c.name for c in target.visible)
    if (twice := repeated(s.columns)) is not None:
        raise SqlError(f"column {twice} is named twice", twice.span, "name it once")
    if isinstance(s.rows.body, ast.Values):
        columns = _check_values(s.rows.body, columns, bool(s.columns))
    query, columns = _assigned(s.rows, columns, target, context, bool(s.columns))
    missing = [k for k in _key(target) if k not in columns]
    if missing:
        hint = f"name it: INSERT INTO {target.name} ({', '.join((*missing, *columns))})"
        raise SqlError(f"the primary key {', '.join(missing)} gets no value", s.target.span, hint)
    return RowsChanged("insert", target, query, columns, returning(s.returning, target, context))


def with_defaults(declared: Declared, columns: Sequence[ast.ColumnDef], context: Context) -> Declared:
    """With what INSERT writes into columns that it leaves out."""
    relation, format = declared.relation, declared.encoding.value_format
    assert relation is not None
    made = [(d, d.default) for d in columns if d.default is not None]
    for d, default in made:
        if relation.what == "source" or declared.encoding.foreign:
            writer = format.name if format.foreign else "another program"
            what = "a source" if relation.what == "source" else f"a table that {writer} writes"
            hint = "leave it out: a field that a record lacks is NULL"
            raise SqlError(f"{what} takes no DEFAULT, for nothing is inserted", default.span, hint)
        with with_span(default.span):
            typing.assigned(Values(Batch(context, rows_of), NOTHING, "DEFAULT").expr(default), d.type, d.name)
    defaults = tuple((d.name, placed(e, NOWHERE)) for d, e in made)  # the same in other words says the same
    return replace(declared, relation=replace(relation, defaults=defaults))


def _default(column: str, target: Declared, span: Span) -> ast.Expr:
    """What is written where the word DEFAULT is."""
    assert target.relation is not None
    found = dict(target.relation.defaults).get(column)
    return ast.Literal(None, Scalar.NULL, span) if found is None else placed(found, span)


def _meant(column: str, e: ast.Expr, target: Declared) -> ast.Expr:
    """The value of a column, where it may be the word DEFAULT."""
    return _default(column, target, e.span) if isinstance(e, ast.Name) and e.parts == ("default",) else e


def _assigned(
    rows: ast.Query, columns: tuple[str, ...], target: Declared, context: Context, by_name: bool
) -> tuple[BatchQuery, tuple[str, ...]]:
    """The rows of an INSERT, each value as its column has it, and the columns: those that are left out and have a
    default are behind the others. Without a list of columns (`by_name`) the last may be missing."""
    assert target.relation is not None
    types, defaults = {c.name: c.type for c in target.columns}, [n for n, _ in target.relation.defaults]
    batch, body = Batch(context, rows_of), rows.body
    if isinstance(body, ast.Values):
        left = [n for n in defaults if n not in columns]
        more = [_default(n, target, body.span) for n in left]
        meant = ((*(_meant(c, e, target) for c, e in zip(columns, row, strict=False)), *row[len(columns) :])
                 for row in body.rows)  # fmt: skip
        body, columns = replace(body, rows=tuple((*row, *more) for row in meant)), (*columns, *left)
        rows = replace(rows, body=body)
        if not rows.ctes and not rows.order_by and rows.limit is None and rows.offset is None:
            found = _listed(body, _values_of(body, [(c, types[c]) for c in columns], batch), batch)
            return batch.query(found.sql, found.columns, rows.span), columns
        by_name = True
    found = rows_of(rows, batch)
    columns = columns if by_name else columns[: len(found.columns)]
    if len(found.columns) != len(columns):
        hint = f"the columns are {', '.join(columns)}"
        raise SqlError(f"{len(found.columns)} values for {len(columns)} columns", rows.span, hint)
    left = [n for n in defaults if n not in columns]
    values = Values(batch, NOTHING, "DEFAULT")
    given = [Col(n, t) for _, n, t in found.columns] + [values.expr(_default(n, target, rows.span)) for n in left]
    tokens, columns = [*(n for _, n, _ in found.columns), *(batch.token("c", n) for n in left)], (*columns, *left)
    with with_span(rows.span):
        news = [typing.assigned(e, types[c], c) for e, c in zip(given, columns, strict=True)]
    named = tuple((c, n, e.type) for c, n, e in zip(columns, tokens, news, strict=True))
    if all(isinstance(e, Col) for e in news):
        return batch.query(found.sql, named, rows.span), columns
    items = ", ".join(f"{batch.text(e, rows.span)} AS {n}" for e, n in zip(news, tokens, strict=True))
    return batch.query(f"SELECT {items} FROM ({found.sql}) AS {batch.token('t', 'rows')}", named, rows.span), columns


def _values_of(v: ast.Values, columns: Sequence[tuple[str, Type]], batch: Batch) -> list[list[Expr]]:
    made: list[list[Expr]] = []
    for row, written in zip(_rows(v, Values(batch, NOTHING, "VALUES")), v.rows, strict=True):
        out: list[Expr] = []
        for e, x, (column, t) in zip(row, written, columns, strict=True):
            with with_span(x.span):
                out.append(typing.assigned(e, t, column))
        made.append(out)
    return made


def _check_values(values: ast.Values, columns: tuple[str, ...], named: bool) -> tuple[str, ...]:
    """Rows of VALUES have a value for each column; without a list of columns the last may be missing."""
    width = len(values.rows[0])
    if width > len(columns) or (named and width < len(columns)):
        at = values.rows[0][min(width, len(columns)) - 1].span
        hint = f"the columns are {', '.join(columns)}"
        raise SqlError(f"{width} values for {len(columns)} columns", at, hint)
    return columns[:width]


def update(s: ast.Update, context: Context) -> Bound:
    target = context.table(s.target, "update")
    _changeable(target, "UPDATE", s.target.span)
    columns = tuple(_column(n, target) for n, _ in s.sets)
    if (twice := repeated(n for n, _ in s.sets)) is not None:
        raise SqlError(f"column {twice} is set twice", twice.span, "set it once")
    sets = [(c, _meant(c, e, target)) for c, (_, e) in zip(columns, s.sets, strict=True)]
    query = changed_rows(target, sets, s.where, s.span, context)
    return RowsChanged("update", target, query, columns, returning(s.returning, target, context))


def delete(s: ast.Delete, context: Context) -> Bound:
    target = context.table(s.target, "delete from")
    _changeable(target, "DELETE", s.target.span)
    query = changed_rows(target, (), s.where, s.span, context)
    return RowsChanged("delete", target, query, (), returning(s.returning, target, context))


def _changeable(target: Declared, what: str, span: Span) -> None:
    assert target.relation is not None
    if target.relation.append_only:
        hint = f"create {target.name} without APPEND ONLY"
        raise SqlError(f"{target.name} is append-only: {what} is not possible", span, hint)


def _key(target: Declared) -> tuple[str, ...]:
    assert target.relation is not None
    return () if target.relation.row_id else target.relation.key


def _column(n: ast.Name, target: Declared) -> str:
    known = [c.name for c in target.visible]
    if n.parts[0] not in known:
        raise SqlError(f"{target.name} has no column {n}", n.span, f"columns are {', '.join(known)}")
    return n.parts[0]
