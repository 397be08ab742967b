"""Queries of batch: SELECT, VALUES, UNION, WITH, ORDER BY, with every name bound.

In: a query as read, the names around it. Out: its text for DuckDB, and its columns.
Rule: each column of a result gets a name that no other has, so `*`, ORDER BY and sub-queries never mean another one.
"""

from __future__ import annotations

from typing import assert_never

from braid.bind.risingwave.batch import Env, Rows
from braid.bind.risingwave.batch_from import From, from_of
from braid.bind.risingwave.batch_values import Values, constant, ordered
from braid.bind.risingwave.scope import Scope, default_name
from braid.errors import Span, SqlError
from braid.sql import ast
from braid.sql import ast_risingwave as rw

_MANY = 100  # rows of constants that DuckDB gets column by column: it reads them in a fifth of the time
NOTHING: Scope[str] = Scope((), ())


def rows_of(q: rw.Query, env: Env) -> Rows:
    """A whole query."""
    if q.emit is not None:
        hint = "write it in a view: CREATE MATERIALIZED VIEW v AS … EMIT ON WINDOW CLOSE"
        raise SqlError("EMIT ON WINDOW CLOSE waits for a clock; a batch query has none", q.emit, hint)
    written: list[str] = []
    names = [cte.name for cte in q.ctes]
    for n, cte in enumerate(q.ctes):
        if cte.name in names[:n]:
            raise SqlError(f"{cte.name} stands twice in WITH", cte.span, "give one of them another name")
        inner = rows_of(cte.query, env)
        token = env.made.token("q", cte.name)
        written.append(f"{token} AS ({inner.sql})")
        columns = renamed(inner.columns, cte.columns, cte.span)
        env = Env(env.made, {**env.ctes, cte.name: (token, columns)}, env.outer)
    body, order_by = _body(q.body, q.order_by, env)
    sql = body.sql
    if written:
        sql = f"WITH {', '.join(written)} {sql}"
    if order_by:
        sql += f" ORDER BY {', '.join(order_by)}"
    bounds = Values(env, NOTHING, "LIMIT")
    if q.limit is not None:
        sql += f" LIMIT {bounds.sql(q.limit)}"
    if q.offset is not None:
        sql += f" OFFSET {bounds.sql(q.offset)}"
    return Rows(sql, body.columns)


def renamed(columns: tuple[tuple[str, str], ...], names: tuple[str, ...], span: Span) -> tuple[tuple[str, str], ...]:
    """Columns under the names of a list, the rest under their own."""
    if len(names) > len(columns):
        hint = f"the columns are {', '.join(n for n, _ in columns)}"
        raise SqlError(f"{len(names)} names for {len(columns)} columns", span, hint)
    return tuple((names[i] if i < len(names) else n, t) for i, (n, t) in enumerate(columns))


def _body(body: rw.Body, order_by: tuple[rw.OrderItem, ...], env: Env) -> tuple[Rows, list[str]]:
    """The text of a query without its end, and the items of ORDER BY."""
    match body:
        case rw.Select():
            return _select(body, order_by, env)
        case rw.Values():
            rows = _values(body, env)
        case rw.Query():
            inner = rows_of(body, env)
            rows = Rows(f"({inner.sql})", inner.columns)
        case rw.SetOperation(left=left, right=right):
            a, b = _body(left, (), env)[0], _body(right, (), env)[0]
            if len(a.columns) != len(b.columns):
                message = f"{len(a.columns)} columns before {body.op}, {len(b.columns)} behind it"
                raise SqlError(message, right.span, "select the same number of columns on both sides")
            rows = Rows(f"({a.sql}) {body.op} {'ALL ' if body.all else ''}({b.sql})", a.columns)
        case _:
            assert_never(body)
    return rows, [_of_columns(i, rows.columns) for i in order_by]


def _of_columns(item: rw.OrderItem, columns: tuple[tuple[str, str], ...]) -> str:
    """An item of ORDER BY behind UNION or VALUES: a column of the result."""
    found = _output(item.expr, columns)
    if found is None:
        hint = f"the columns are {', '.join(n for n, _ in columns)}; or ORDER BY in a query around this one"
        raise SqlError("ORDER BY takes a column of the result here", item.expr.span, hint)
    return ordered(found, item)


def _output(e: ast.Expr, columns: tuple[tuple[str, str], ...]) -> str | None:
    """The column of a result that a place or a name means."""
    match e:
        case ast.Literal(value=int(place)) if not isinstance(place, bool):
            if not 1 <= place <= len(columns):
                hint = f"it is from 1 to {len(columns)}"
                raise SqlError(f"there is no column number {place}", e.span, hint)
            return columns[place - 1][1]
        case ast.Name(parts=(name,)):
            found = [t for n, t in columns if n == name]
            if len(found) > 1:
                raise SqlError(f"{name} is ambiguous", e.span, "name the table before it, or write its place")
            return found[0] if found else None
    return None


def _values(v: rw.Values, env: Env) -> Rows:
    """VALUES; its columns are column1, column2 …"""
    width = len(v.rows[0])
    values = Values(env, NOTHING, "VALUES")
    rows: list[list[str]] = []
    for row in v.rows:
        if len(row) != width:
            hint = "give each row of VALUES the same number of values"
            raise SqlError(f"{len(row)} values, but {width} in the first row", row[-1].span, hint)
        rows.append([constant(e) if isinstance(e, ast.Literal) else values.sql(e) for e in row])
    columns = tuple((f"column{i + 1}", env.made.token("c", f"column{i + 1}")) for i in range(width))
    table = env.made.token("t", "values")
    if len(rows) >= _MANY and all(isinstance(e, ast.Literal) for row in v.rows for e in row):
        lists = [f"unnest([{', '.join(x)}]) AS {t}" for x, (_, t) in zip(zip(*rows, strict=True), columns, strict=True)]
        return Rows(f"SELECT {', '.join(lists)}", columns)
    names = ", ".join(t for _, t in columns)
    written = ", ".join(f"({', '.join(row)})" for row in rows)
    return Rows(f"SELECT {names} FROM (VALUES {written}) AS {table}({names})", columns)


# --------------------------------------------------------------------- SELECT


def outputs(items: tuple[ast.SelectItem, ...], scope: Scope[str], env: Env) -> list[tuple[str, str, str]]:
    """(name, name in the text, expression) of each column that items give."""
    return _outputs(items, Values(env, scope, "SELECT"))


def _outputs(items: tuple[ast.SelectItem, ...], values: Values) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for item in items:
        if isinstance(item.expr, ast.Star):
            columns = values.scope.columns
            if item.expr.qualifier is not None:
                columns = values.scope.table(item.expr.qualifier, item.span).columns
            elif not values.scope.tables:
                raise SqlError("* needs FROM", item.span, "name what to select")
            found += [(c.name, values.env.made.token("c", c.name), c.expr) for c in columns]
        else:
            called = item.alias or default_name(item.expr)
            found.append((called, values.env.made.token("c", called), values.sql(item.expr, of_rows=True)))
    return found


def _select(s: rw.Select, order_by: tuple[rw.OrderItem, ...], env: Env) -> tuple[Rows, list[str]]:
    source = from_of(s.source, env) if s.source is not None else From("", NOTHING)
    scope = source.scope
    windows: dict[str, rw.Over] = {}
    for name, over in s.windows:
        if name in windows:
            raise SqlError(f"window {name} is written twice", over.span, "give one of them another name")
        windows[name] = over
    select = Values(env, scope, "SELECT", windows)
    items = _outputs(s.items, select)
    columns = tuple((n, t) for n, t, _ in items)
    written = {t: sql for _, t, sql in items}
    distinct = ""
    if s.distinct is not None:
        on = [written.get(_output(e, columns) or "") or select.sql(e) for e in s.distinct]
        distinct = f"DISTINCT ON ({', '.join(on)}) " if on else "DISTINCT "
    sql = f"SELECT {distinct}{', '.join(f'{e} AS {t}' for _, t, e in items)}"
    if source.sql:
        sql += f" FROM {source.sql}"
    if s.where is not None:
        sql += f" WHERE {Values(env, scope, 'WHERE').sql(s.where)}"
    if s.group_by:
        group = Values(env, scope, "GROUP BY")
        sql += f" GROUP BY {', '.join(_grouped(e, columns, group) for e in s.group_by)}"
    if s.having is not None:
        sql += f" HAVING {Values(env, scope, 'HAVING').sql(s.having)}"
    order = Values(env, scope, "ORDER BY", windows)
    made = [ordered(_ordering(i.expr, columns, order), i) for i in order_by]
    return Rows(sql, columns), made


def _ordering(e: ast.Expr, columns: tuple[tuple[str, str], ...], values: Values) -> str:
    """PostgreSQL's rule: a place or a name is one of the result, anything else is over the rows of FROM."""
    if isinstance(e, ast.Literal) and not isinstance(e.value, int):
        raise SqlError("ORDER BY a constant orders nothing", e.span, "name a column, or its place")
    return _output(e, columns) or values.sql(e)


def _grouped(e: ast.Expr, columns: tuple[tuple[str, str], ...], values: Values) -> str:
    """A name is a column of FROM first, then one of the result; a number is a place."""
    match e:
        case rw.GroupingSets():
            sets = ", ".join(f"({', '.join(_grouped(x, columns, values) for x in s)})" for s in e.sets)
            return f"{e.kind} ({sets})"
        case ast.Name() if not values.knows(e):
            place = next((i for i, (n, _) in enumerate(columns) if (n,) == e.parts), None)
            return values.sql(e) if place is None else str(place + 1)
        case ast.Literal(value=int(place)) if not isinstance(place, bool):
            _output(e, columns)
            return str(place)
    return values.sql(e)
