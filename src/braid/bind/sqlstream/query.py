"""SELECT STREAM, and what is made of it: a view, a pump, rows for whoever asked.

In: a query as written and what it is for. Out: a logical `Query`, and what CREATE VIEW declares.
Rule: a result's time is its rowtime, whether it is selected or not. Where it is written to a stream or read under a
name, a selected ROWTIME is that time and no column; a query on its own shows it as a column too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from braid.bind.bound import Declared, DeclaredColumn, Filled, QueryBound, SourceDeclared, TablesAsked
from braid.bind.env import PUSH, Env, check_cycle
from braid.bind.expressions import bind_expr, bind_predicate
from braid.bind.insert import fits
from braid.bind.select.items import Item, Result, listed, unique_names
from braid.bind.select.partners import parted
from braid.bind.select.scope import Scope, of_table
from braid.bind.select.tree import Joined
from braid.bind.sources import check_topic_name, miswritten, refuse
from braid.bind.sqlstream import partners, promotion, tables
from braid.bind.sqlstream.analytic import Analytics
from braid.bind.sqlstream.grouping import Rows, bind_groups, bind_order, is_grouped
from braid.bind.sqlstream.relation import (
    Context,
    OfTables,
    Operand,
    Tree,
    bind_relation,
    built,
    check,
    kind_of,
    only_stream,
    times_of,
    with_where,
)
from braid.bind.sqlstream.scope import QUOTE, ROWTIME, as_timestamp, assigned, column, rules, table_of, timed
from braid.bind.sqlstream.sources import JSON, check_column, check_free, declared, full_name, insert_columns
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr
from braid.plan import sliding
from braid.plan.logical import Filter, Kind, Output, Project, Query, Sink
from braid.plan.names import own
from braid.sql import ast
from braid.sql.dialects.sqlstream import SQLSTREAM
from braid.sql.parser import parse
from braid.types import Scalar, Type, is_numeric

# ------------------------------------------------------------------ statements


def bind_select(s: ast.Ask, env: Env) -> QueryBound | TablesAsked:
    result = _result(s.query, env, "")
    _check_names(result)
    if isinstance(result, OfTables):
        return tables.asked(result, tuple(Output(i.name, i.expr) for i in result.items), env, s.span)
    outputs = tuple(Output(i.name, i.expr) for i in result.items)
    return QueryBound(_query(PUSH, s.span, result, _sink(PUSH, PUSH, outputs), env), None, transient=True)


def bind_view(s: ast.CreateStreamView, env: Env) -> QueryBound | SourceDeclared:
    """A stream view runs, so that its rows can be read; a query that reads it puts its SQL in its place."""
    name = full_name(s.name, env)
    replaced = check_free(name, "view", s.or_replace, s.name.span, env)
    check_topic_name(name, s.name.span, "; a column or a stream may have others", "view")
    result = _named(_result(s.query, _within(name, env), ""), s.columns, s.query.span)
    columns = tuple(DeclaredColumn(i.name, i.expr.type, "value") for i in result.columns)
    written = env.text[s.span.start : s.span.end]
    if name in result.over:
        raise SqlError(f"the view {name} reads itself", s.query.span, "give it another name")
    over = tuple(sorted(result.over))
    made = Declared(name, result.kind, name, columns, JSON, sql=written, view=True, over=over)
    if replaced and env.catalog.sources[name].kind != result.kind:
        hint = f"DROP VIEW {name} first"
        raise SqlError("a view of streams and one of tables cannot replace each other", s.name.span, hint)
    if isinstance(result, OfTables):
        if result.order:
            hint = "leave ORDER BY out; a query that reads the view sorts its rows"
            raise SqlError("the rows of a view of tables have no order", s.query.order_by[0].span, hint)
        return SourceDeclared(made, replaced)
    refuse(miswritten(made, env.catalog, {i.name: i.span for i in result.columns}, s.name.span))
    outputs = tuple(Output(i.name, i.expr) for i in result.columns)
    query = _query(name, s.span, result, _sink(name, name, outputs), env)
    return QueryBound(query, replace(made, created_by=name), replaces=replaced, over=over)


def bind_pump(s: ast.CreatePump, env: Env) -> QueryBound:
    name = full_name(s.name, env)
    check_topic_name(name, s.name.span, "; a column or a stream may have others", "pump")
    if name in env.catalog.queries:
        raise SqlError(f"pump {name} exists already", s.name.span, f"DROP PUMP {name} first")
    made = bind_insert_query(s.insert, env, name, s.span)
    if isinstance(made, Filled):
        hint = "write INSERT INTO … SELECT …, which is done at once"
        raise SqlError("a pump reads streams; a query over tables alone ends", s.insert.query.span, hint)
    notices = [f"pump {name} starts at once"] if s.state is None else []
    if s.options:
        notices.append(f"options of pump {name} change nothing here: {', '.join(o.name for o in s.options)}")
    made = replace(made, query=replace(made.query, notices=(*made.query.notices, *notices)))
    return replace(made, stopped=s.state == "STOPPED")


def bind_insert_query(
    s: ast.InsertSelect, env: Env, name: str | None = None, whole: Span | None = None
) -> QueryBound | Filled:
    target = declared(s.target, env)
    if target.view:
        raise SqlError(f"{target.name} is a view; a query writes into streams", s.target.span, "CREATE STREAM first")
    result = _result(promotion.filled(s), env, "", written=True)
    if isinstance(result, OfTables):
        asked = tables.asked(result, _fitted(result, target, s), env, s.query.span)
        return Filled(target, asked, s.query.span)
    sink = _sink(target.name, target.topic, _fitted(result, target, s), target.partitions)
    check_cycle(result.node, sink, env.catalog, s.target.span)
    query = _query(name or env.catalog.next_insert(target.name), whole or s.span, result, sink, env)
    return QueryBound(query, over=tuple(sorted(result.over)))


def _query(name: str, span: Span, result: Result, sink: Sink, env: Env) -> Query:
    return Query(name, SQLSTREAM.name, env.text[span.start : span.end], result.node, sink)


def _sink(name: str, topic: str, outputs: tuple[Output, ...], partitions: int | None = None) -> Sink:
    return Sink(name, topic, "stream", (), outputs, JSON, (), partitions, columns=tuple(o.name for o in outputs))


def _within(name: str, env: Env) -> Env:
    """A view's names are looked up in its own schema first, whoever reads it."""
    schema = name.rpartition(".")[0] or None
    settings = replace(env.settings, sqlstream=replace(env.settings.sqlstream, schema=schema))
    return replace(env, settings=settings)


def _fitted(result: Result, target: Declared, s: ast.InsertSelect) -> tuple[Output, ...]:
    """The target's columns, filled by position. ROWTIME fills the column ROWTIME, or one where there is one for it."""
    wanted = insert_columns(target, s.columns)
    takes_time = any(c.name == ROWTIME for c in wanted)
    given = result.items if takes_time or len(wanted) == len(result.items) else result.columns
    if len(wanted) != len(given):
        named = ", ".join(c.name for c in wanted)
        raise SqlError(f"{len(given)} columns for {len(wanted)}: {named}", s.query.items[-1].span, f"select {named}")
    values: dict[str, Expr] = {}
    for c, item in zip(wanted, given, strict=True):
        if takes_time and (c.name == ROWTIME) != item.is_time:
            hint = "select ROWTIME, the time of the result, for the column ROWTIME, and only for it"
            raise SqlError(f"{c.name} cannot take {item.name}", item.span, hint)
        if c.name == ROWTIME:
            continue
        if not fits(item.expr.type, c.type) and not (is_numeric(item.expr.type) and is_numeric(c.type)):
            hint = f"write CAST({item.name} AS {c.type})"
            raise SqlError(f"{c.name} is {c.type}; {item.name} is {item.expr.type}", item.span, hint)
        values[c.name] = assigned(item.expr, c.type)
    nothing = typing.literal(None, Scalar.NULL)
    return tuple(Output(c.name, values.get(c.name, typing.cast(nothing, c.type))) for c in target.visible)


def _named(result: Result, names: tuple[ast.Name, ...], span: Span) -> Result:
    """The result of a view: its own column names, if it gives some; each column once."""
    if not names:
        _check_names(result)
    columns = result.columns
    if names and len(names) != len(columns):
        message = f"the view names {len(names)} columns, its query gives {len(columns)}"
        raise SqlError(message, names[-1].span, f"the query gives {', '.join(i.name for i in columns)}")
    if not columns:
        raise SqlError("the view has no columns", span, "select a column besides ROWTIME")
    renamed = [replace(i, name=str(n), span=n.span) for i, n in zip(columns, names, strict=True)] if names else columns
    for n, item in enumerate(renamed):
        if item.name == ROWTIME:
            raise SqlError("a column of a view cannot be called ROWTIME", item.span, "write … AS another name")
        check_column(item.name, [i.name for i in renamed[:n]], item.span)
    return replace(result, items=tuple(renamed))


def _check_names(result: Result) -> None:
    """Of columns that are read by their names."""
    if (item := next((i for i in result.columns if i.name == ROWTIME), None)) is not None:
        hint = "ROWTIME alone is the time of the result; write … AS another name"
        raise SqlError("a column of the result cannot be called ROWTIME", item.span, hint)


# ---------------------------------------------------------------------- result


def _result(q: ast.Select, env: Env, prefix: str, written: bool = False) -> Result:
    """`prefix` not empty: a sub-query, or a view in a query. `written`: into a stream, which says what STREAM says."""
    windows = {n: w for n, w in q.windows if not isinstance(w, ast.Over)}

    def sub(inner: ast.Select, at: str) -> Result:
        return _named(_result(inner, env, at), (), inner.span)

    if q.union:
        return _united(q, env, prefix, written)
    context = Context(env, prefix, windows, sub, lambda name, at: _view(name, env, at))
    assert q.source is not None
    tree = promotion.promoted(q, bind_relation(q.source, context))
    kind, scope = kind_of(tree), tree.scope
    _check_stream(q, kind, written or bool(prefix))
    if isinstance(tree, Operand) and tree.frame is not None:
        hint = "leave OVER out; a window says how long a row waits for those that it joins"
        raise SqlError("a window is allowed only on a source of a join", tree.frame.span, hint)
    rowtime = None if kind == "table" else Col(f"{prefix}.ROWTIME", Scalar.BIGINT)
    if rowtime is not None:
        scope = timed(scope, rowtime, only_stream(tree))
    said = rules("WHERE", column(scope))
    plain, asked = parted(q.where)
    filled = _filled(tree)
    tree, where = with_where(tree, [bind_predicate(c, said) for c in plain])
    check(tree)
    node = built(tree, env.settings.sqlstream, rowtime)
    for condition in where:
        node = Filter(node, condition)
    node = partners.Rows(node, scope, kind == "stream", filled, context).partnered(asked)
    calls = Analytics(context, rowtime, _over_rows(scope))
    bare = Result(node, (), kind)
    if kind == "table":
        bare = OfTables(node, (), kind, tree=tree if isinstance(tree, Joined) and not (where or asked) else None)
    found = _over(q, scope, replace(bare, over=frozenset(context.over)), calls, times_of(tree))
    for name, window in windows.items():
        if name not in context.used:
            hint = f"write source OVER {name} in a join, or SUM(x) OVER {name}"
            raise SqlError(f"nothing uses window {name}", window.span, hint)
    return found


def _united(q: ast.Select, env: Env, prefix: str, written: bool) -> Result:
    """UNION ALL: the rows of all, in the order of their times. Its columns are called as those of the first."""
    parts = [replace(q, union=(), order_by=()), *q.union]
    levels = [own(f"{prefix}{n}") for n in range(len(parts))]
    results = [_result(part, env, f"{at}/") for part, at in zip(parts, levels, strict=True)]
    for part, result in zip(parts, results, strict=True):
        _check_stream(part, result.kind, written or bool(prefix))
        if result.kind != results[0].kind:
            hint = "join the table with a stream first"
            raise SqlError("UNION ALL of a stream and a table is not possible", part.span, hint)
        _check_alike(results[0], result, part.span)
    first, columns = results[0], [[r.columns[i].expr for r in results] for i in range(len(results[0].columns))]
    types = [_common(exprs, item) for exprs, item in zip(columns, first.columns, strict=True)]
    over = frozenset[str]().union(*(r.over for r in results))
    if first.kind == "table":
        fitting = [[assigned(e, t) for e in exprs] for exprs, t in zip(columns, types, strict=True)]
        whole = tables.united(results, fitting, own(f"{prefix}union"))
        scope = of_table(table_of("UNION", tuple((i.name, i.expr) for i in whole.items), None), QUOTE)
        return replace(whole, over=over, order=tables.bind_order(q, [*whole.items], _over_rows(scope)))
    cols = [[Col(f"{at}.{i}", t) for i, t in enumerate(types)] for at in levels]
    sides: list[sliding.Operand] = []
    for at, result, mine in zip(levels, results, cols, strict=True):
        values = [(c, assigned(i.expr, c.type)) for i, c in zip(result.columns, mine, strict=True)]
        assert result.rowtime is not None
        made = Project(result.node, (*values, (Col(f"{at}.ROWTIME", Scalar.BIGINT), result.rowtime)))
        sides.append(sliding.Operand(made, sliding.RangeFrame()))
    rowtime = Col(f"{prefix}.ROWTIME", Scalar.BIGINT)
    rows = Rows(sliding.SlidingJoin(sliding.Merged(tuple(sides)), rowtime), rowtime)
    merged = iter(typing.call("COALESCE", list(x)) for x in zip(*cols, strict=True))
    found = tuple(replace(i, expr=as_timestamp(rowtime) if i.is_time else next(merged)) for i in first.items)
    if q.order_by:
        promotion.check_union(q)
        named = tuple((i.name, i.expr) for i in found if not i.is_time)
        scope = of_table(table_of("UNION", named, rowtime), QUOTE)
        rows = bind_order(q.order_by, rows, list(found), _over_rows(scope), prefix)
        found = tuple(replace(i, expr=as_timestamp(rows.rowtime)) if i.is_time else i for i in found)
    return Result(rows.node, found, "stream", rows.rowtime, over)


def _check_alike(first: Result, other: Result, span: Span) -> None:
    """As many columns, and ROWTIME at the same place."""
    if len(first.items) != len(other.items):
        message = f"UNION ALL of {len(first.items)} and {len(other.items)} columns"
        raise SqlError(message, span, f"select {', '.join(i.name for i in first.items)}")
    for a, b in zip(first.items, other.items, strict=True):
        if a.is_time != b.is_time:
            hint = "select ROWTIME, the time of the result, in all of them at the same place, or in none"
            raise SqlError(f"UNION ALL cannot put {b.name} to {a.name}", b.span, hint)


def _common(exprs: list[Expr], item: Item) -> Type:
    found = typing.common_of([e.type for e in exprs])
    if found is None:
        types = " and ".join(dict.fromkeys(str(e.type) for e in exprs))
        raise SqlError(f"{item.name} is {types} in UNION ALL", item.span, f"CAST them, say AS {exprs[0].type}")
    return found


def _over(q: ast.Select, scope: Scope, bare: Result, calls: Analytics, times: frozenset[str]) -> Result:
    """What SELECT, GROUP BY and ORDER BY make of the rows of FROM."""
    rowtime, prefix, value = calls.rowtime, calls.context.prefix, calls.below
    if isinstance(bare, OfTables):
        return _of_tables(q, scope, bare, calls)
    assert rowtime is not None
    if is_grouped(q):
        grouped = bind_groups(q, Rows(bare.node, rowtime, times=times), scope, prefix, _item(q), calls)
        rows, items, value = grouped.rows, grouped.items, grouped.value
        found = _unique(items)
    else:
        found = _items(q, scope, calls)
        rows = Rows(calls.node(bare.node), rowtime, times=times)
    if order_by := promotion.sorted_by(q):
        rows = bind_order(order_by, rows, list(found), value, prefix)
        found = tuple(replace(i, expr=as_timestamp(rows.rowtime)) if i.is_time else i for i in found)
    return replace(bare, node=rows.node, items=found, rowtime=rows.rowtime)


def _of_tables(q: ast.Select, scope: Scope, bare: OfTables, calls: Analytics) -> OfTables:
    """The same of tables alone."""
    items, value = [*_items(q, scope, calls)] if not is_grouped(q) else [], calls.below
    if is_grouped(q):
        grouped = tables.bind_groups(q, bare.node, scope, own(calls.context.prefix), _item(q))
        items, value = [*_unique(grouped.items)], grouped.value
        bare = replace(bare, node=grouped.node, tree=None)
    return replace(bare, items=tuple(items), order=tables.bind_order(q, items, value))


def _filled(tree: Tree) -> frozenset[str]:
    """The columns of FROM that are never NULL."""
    if isinstance(tree, Operand):
        return tree.filled
    return _filled(tree.left) | _filled(tree.right) if tree.how == "inner" else frozenset()


def _over_rows(scope: Scope) -> Callable[[ast.Expr, str], Expr]:
    return lambda e, clause: bind_expr(e, rules(clause, column(scope)))


def _check_stream(q: ast.Select, kind: Kind, may_lack: bool) -> None:
    if q.kind and kind == "table":
        raise SqlError("SELECT STREAM needs a stream; only tables are read here", q.span, "leave STREAM out")
    if not q.kind and kind == "stream" and not may_lack:
        raise SqlError("a query that reads a stream must say SELECT STREAM", q.span, "write SELECT STREAM …")


def _view(name: str, env: Env, prefix: str) -> Result:
    """The rows of a view, from its SQL: what it reads is read again under names of its own."""
    d = env.catalog.sources[name]
    statement = parse(d.sql, SQLSTREAM).statements[0]
    assert isinstance(statement, ast.CreateStreamView)
    result = _result(statement.query, replace(_within(name, env), text=d.sql), prefix)
    items = tuple(replace(i, name=c.name) for c, i in zip(d.visible, result.columns, strict=True))
    return replace(result, items=items, over=frozenset((name,)))


def _items(q: ast.Select, scope: Scope, calls: Analytics) -> tuple[Item, ...]:
    said, item = rules("SELECT", column(scope), calls.ask), _item(q)
    return _unique(listed(q.items, scope, lambda i: item(i, bind_expr(i.expr, said), calls.rowtime)))


def _unique(items: list[Item]) -> tuple[Item, ...]:
    names = unique_names([i.name for i in items])
    return tuple(replace(i, name=name) for i, name in zip(items, names, strict=True))


def _item(q: ast.Select) -> Callable[[ast.SelectItem, Expr, Col | None], Item]:
    """An item of SELECT, with what it is, and the time of the results."""
    places = {id(item): n for n, item in enumerate(q.items)}

    def made(item: ast.SelectItem, bound: Expr, rowtime: Col | None) -> Item:
        if bound.type is Scalar.NULL:
            raise SqlError("the type of this column is not known", item.span, "write CAST(NULL AS …)")
        if rowtime is not None and promotion.of_item(item):
            return Item(ROWTIME, as_timestamp(rowtime), item.span, item.expr, is_time=True)
        unnamed = item.expr.parts[-1] if isinstance(item.expr, ast.Name) else f"EXPR${places[id(item)]}"
        name = item.alias or unnamed
        time = name == ROWTIME and rowtime is not None and bound == as_timestamp(rowtime)
        return Item(name, bound, item.span, item.expr, is_time=time)

    return made
