"""A query that runs: FROM and its relations under their names, SELECT over them, as logical nodes.

In: a query as read. Out: a `Result`: a projection, its columns, and their SQL types.
Rule: names are bound first, then the parts of WHERE and ON are placed where they may stand (`placing`); the projection
keeps the columns of the rows' key, selected or not. A table is read as its changes (`Changes`), an append-only one as
its rows; a view is its query, read in place. RW-44: with EMIT ON WINDOW CLOSE rows wait for the first column that has a
watermark; without one there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from braid.bind.bound import Declared, Index, View
from braid.bind.expressions import with_span
from braid.bind.names import free_name
from braid.bind.risingwave import (
    constants,
    generated,
    grouping,
    over_groups,
    row_sets,
    set_operations,
    subqueries,
    temporal,
    values,
    windows,
)
from braid.bind.risingwave.expressions import (
    ROW_SETS,
    Names,
    bind,
    bind_condition,
    bound,
    condition,
    either,
    usual_name,
    with_fields,
)
from braid.bind.risingwave.over import Overs, first_rows, has_over, named_windows, orderable
from braid.bind.risingwave.placing import Relation, Tree, is_value, place
from braid.bind.risingwave.scope import QUOTE, Context, check_not_sink, default_name
from braid.bind.risingwave.sinks import rules_of
from braid.bind.select import partners
from braid.bind.select.aggregates import row_count
from braid.bind.select.items import Item, Result, listed, place_of
from braid.bind.select.scope import Column, Scope, Table, of_table, renamed
from braid.bind.select.tree import Policy, bind_from, leaves
from braid.errors import Span, SqlError
from braid.expr.nodes import Call, Col, Expr, columns, substituted
from braid.expr.postgres import typing
from braid.expr.typing import all_of, conjuncts
from braid.plan.epochs import Changes, Clean, EmitOnClose, OnTime, RegularJoin, Union, Windows
from braid.plan.logical import Filter, Node, Project, Source, SourceColumn
from braid.plan.names import level_of, own
from braid.plan.over import Over
from braid.plan.watermarks import base, clocked, closing, progress
from braid.sql import ast
from braid.sql.windows import CALLS
from braid.types import Column as TypedColumn
from braid.types import Scalar


def bind_query(query: ast.Query, context: Context, names: tuple[str, ...] = ()) -> Result:
    """The query of a view. `names`: of its columns, where they are listed."""
    result = bind_inner(query, context, context.alias("result"))
    if names and len(names) != len(result.items):
        message = f"{len(names)} names for {len(result.items)} columns"
        raise SqlError(message, query.span, f"name each column, or none: {', '.join(i.name for i in result.items)}")
    items = zip(names, result.items, strict=True) if names else ()
    return replace(result, items=tuple(replace(item, name=name) for name, item in items) or result.items)


def bind_inner(query: ast.Query, context: Context, alias: str) -> Result:
    """A query anywhere in a plan; its columns get plan names under `alias`."""
    for cte in query.ctes:
        context = replace(context, ctes={**context.ctes, cte.name: (cte, context)})
    result = _body(query.body, query, context, alias)
    if query.emit is not None:
        return replace(result, node=emit_on_close(result.node, [i.col for i in result.items], query.emit))
    return result


def _body(body: ast.Body, query: ast.Query, context: Context, alias: str) -> Result:
    """`query`: what stands around it."""
    match body:
        case ast.SetOperation():
            alone = ast.Query((), body, (), None, None, None, body.span)
            made = set_operations.bind_sides(body, context, alias, lambda side, at: _body(side, alone, context, at))
            is_named = isinstance(made.node, Union)
            made = made if is_named else projected(made.node, made.items, alias, made.types)
            return _of_result(query, made, alias)
        case ast.Values():
            return _of_result(query, _constant(body, constants.column_names(len(body.rows[0])), context, alias), alias)
        case ast.Query():
            return _of_result(query, bind_inner(body, context, alias), alias)
        case ast.Select():
            return _select(body, query, context, alias)
    assert_never(body)


def _select(s: ast.Select, query: ast.Query, context: Context, alias: str) -> Result:
    """`query`: what stands around it; of its rows those that ORDER BY and LIMIT say."""
    s, query = over_groups.apart(s, query)
    s = values.in_from(row_sets.in_from(s))
    if s.source is None:
        names = [i.alias or default_name(i.expr) for i in s.items]
        return _of_result(query, _constant(s, names, context, alias), alias)
    different, over = s.distinct == (), any(has_over(i.expr) for i in s.items)
    if different and (values.has_groups(s) or over):
        return _of_result(query, _different(s, context, alias), alias)
    node, scope = _rows(s.source, s.where, context)
    s = replace(s, items=with_fields(s.items, lambda e: bound(e, "SELECT", scope.expr)))
    if s.distinct and not values.has_groups(s) and not over:
        s = _one_of_each(s, s.distinct, node, scope, context)
    overs = Overs(named_windows(s), own(alias), lambda e: bound(e, "OVER", scope.expr))
    on = s.distinct or ()
    if different or values.has_groups(s):
        made = grouping.bind_grouped(s, node, scope, alias, overs)
        first = _First() if different else _first(made.items, query, on, made.below)
        node, items = made.made()
        if different:
            return _of_result(query, projected(node, items, alias, made.types), alias)
        return projected(first.over(made.final).of(node, own(alias)), items, alias, made.types)

    def value(item: ast.SelectItem) -> Item:
        e = typing.finished(bind(item.expr, Names("SELECT", scope.expr, overs.ask)))
        return Item(item.alias or default_name(item.expr), e, item.span, item.expr, usual_name(e.type))

    items = listed(s.items, scope, value)
    first = _first(items, query, on, lambda e: bound(e, "ORDER BY", scope.expr))
    return projected(first.of(overs.node(node), own(alias)), items, alias, key_types(scope))


def _constant(body: ast.Values | ast.Select, names: Sequence[str], context: Context, alias: str) -> Result:
    """Rows that hang on nothing: those of a table that holds them."""
    leaf = _read_constant(constants.table_of(body, len(names), context), body.span, context)
    items = [Item(n, c.expr, body.span, None, c.type) for n, c in zip(names, leaf.scope.columns, strict=True)]
    return projected(leaf.node, items, alias, key_types(leaf.scope))


def _read_constant(table: Declared, span: Span, context: Context) -> Relation:
    return _read(table, "values", ast.Table(ast.Name((table.name,), span), None, span), context)


def _of_result(query: ast.Query, result: Result, alias: str) -> Result:
    """LIMIT by columns of the result alone."""

    def below(e: ast.Expr) -> Expr:
        hint = f"the columns are {', '.join(i.name for i in result.items)}; or ORDER BY in a query around this one"
        raise SqlError("ORDER BY takes a column of the result here", e.span, hint)

    first = _first(result.items, query, (), below)
    return replace(result, node=first.of(result.node, f"{own(alias)}.of_result"))


@dataclass(frozen=True, slots=True)
class _First:
    """The rows that DISTINCT ON (`on`), LIMIT and OFFSET leave, in an order; without one by the rows' key. `ties`: and
    those that are equal in the order to the last of them."""

    on: tuple[Expr, ...] = ()
    order: tuple[tuple[Expr, ast.OrderItem], ...] = ()
    offset: int | None = None
    limit: int | None = None
    ties: bool = False
    within: tuple[Expr, ...] = ()  # LIMIT counts among the rows that are equal in these

    def by(self, within: tuple[Expr, ...]) -> _First:
        return replace(self, within=within)

    def over(self, final: Callable[[Expr], Expr]) -> _First:
        order = tuple((final(e), i) for e, i in self.order)
        return replace(self, on=tuple(map(final, self.on)), order=order)

    def of(self, node: Node, name: str) -> Node:
        if self.on:
            node = first_rows(node, f"{name}.distinct", self.on, self.order[len(self.on) :], (0, 1))
        if self.offset is None and self.limit is None:
            return node
        return first_rows(node, f"{name}.limit", self.within, self.order, (self.offset or 0, self.limit), self.ties)


def _first(
    items: Sequence[Item], query: ast.Query, on: tuple[ast.Expr, ...], below: Callable[[ast.Expr], Expr]
) -> _First:
    offset, limit = (_count(word, e) for word, e in (("OFFSET", query.offset), ("LIMIT", query.limit)))
    if not on and offset is None and limit is None:
        return _First()

    if query.ties is not None and (offset or not query.order_by):
        what = "takes no OFFSET" if query.order_by else "needs an ORDER BY"
        hint = "leave OFFSET out" if query.order_by else "write ORDER BY x FETCH FIRST 3 ROWS WITH TIES"
        raise SqlError(f"WITH TIES {what}", query.ties, hint)

    def meant(e: ast.Expr) -> Expr:
        place = place_of(e, [i.name for i in items])
        return below(e) if place is None else items[place].expr

    order = tuple((orderable(meant(i.expr), "ORDER BY", i.span), i) for i in query.order_by)
    partition = tuple(dict.fromkeys(orderable(meant(e), "DISTINCT ON", e.span) for e in on))
    if on and order and {e for e, _ in order[: len(partition)]} != {*partition}:
        hint = "ORDER BY begins with what DISTINCT ON has: DISTINCT ON (a) … ORDER BY a, b"
        raise SqlError("ORDER BY has something else before what DISTINCT ON has", query.order_by[0].span, hint)
    return _First(partition, order, offset, limit, query.ties is not None)


def _count(word: str, e: ast.Expr | None) -> int | None:
    def column(name: ast.Name) -> Expr:
        raise SqlError(f"{word} takes a constant", name.span, "write a whole number")

    if e is None:
        return None
    with with_span(e.span):
        return row_count(word, bound(e, word, column))


def _one_of_each(s: ast.Select, on: tuple[ast.Expr, ...], node: Node, scope: Scope, context: Context) -> ast.Select:
    """DISTINCT ON where it need not choose: each row is the only one of its kind, or all of a kind show the same."""
    by = [bound(grouping.meant_by(e, s.items, scope), "DISTINCT ON", scope.expr) for e in on]
    known = [e.name for e in by if isinstance(e, Col)]
    key = [c for k in node.row_key for c in columns(k)]
    if key and rules_of(node, context).suffices(known, key):
        return replace(s, distinct=None)
    shown = listed(s.items, scope, lambda i: Item("", bound(i.expr, "SELECT", scope.expr), i.span, i.expr))
    same = {c for i in shown for c in columns(i.expr)} <= {*known}
    return replace(s, distinct=None, group_by=on) if same else s


def _different(s: ast.Select, context: Context, alias: str) -> Result:
    """DISTINCT over groups: the different rows of what is without it."""
    plain = replace(s, distinct=None)
    made = _select(plain, ast.Query((), plain, (), None, None, None, s.span), context, context.level("distinct"))
    found = set_operations.different(made, alias, s.span)
    return projected(found.node, found.items, alias, found.types)


def _rows(source: ast.Relation, where: ast.Expr | None, context: Context) -> tuple[Node, Scope]:
    """The rows of FROM that pass WHERE, and what names mean over them."""
    tree = _tree(source, context)
    return _passing(tree, () if where is None else (where,), context), tree.scope


def _tree(source: ast.Relation, context: Context) -> Tree:
    return bind_from(values.kept(source), policy(context))


def _passing(tree: Tree, where: Sequence[ast.Expr], context: Context) -> Node:
    """The rows of a tree that pass conditions, and have the partners that these ask for."""
    pool: list[Expr] = []
    timed: list[temporal.Timed] = []
    asked: list[partners.Asked] = []
    for e in where:
        plain, more = partners.parted(e)
        for x in plain:
            others, terms = temporal.parted(x, bind_condition(x, Names("WHERE", tree.scope.expr, present=True)))
            pool, timed = [*pool, *others], [*timed, *terms]
        asked += more
    node, left_over = place(tree, pool, context)
    rest = all_of(left_over)
    node = temporal.filtered(node if rest is None else Filter(node, rest), timed, context)
    for one in asked:
        node = subqueries.partnered(node, tree.scope, one, context, _BINDING)
    return node


def _whole(query: ast.Query, context: Context) -> Result:
    return bind_inner(query, context, context.level("partner"))


_BINDING = subqueries.Binding(_tree, _passing, _whole)


def projected(node: Node, made: Sequence[Item], alias: str, types: Mapping[Expr, str]) -> Result:
    """The projection of named expressions, with the key of the rows behind them."""
    taken: set[str] = set()
    items: list[Item] = []
    for item in made:
        unique = free_name(f"{alias}.{item.name}", taken, 2)
        taken.add(unique)
        items.append(replace(item, expr=Col(unique, item.expr.type)))
    outputs = [(i.col, m.expr) for i, m in zip(items, made, strict=True)]
    shown = {e for _, e in outputs}
    found: dict[Expr, str] = {i.col: i.type for i in items}
    for key in node.row_key:
        if key not in shown:
            assert isinstance(key, Col)
            outputs.append((key, key))
            found[key] = types.get(key) or usual_name(key.type)
    return Result(Project(node, tuple(outputs)), tuple(items), types=found)


def key_types(scope: Scope) -> dict[Expr, str]:
    """The SQL types of plan columns as far as the scope shows them."""
    return {c.expr: c.type for t in scope.tables for c in t.columns}


def emit_on_close(node: Node, columns: Sequence[Col], span: Span) -> Node:
    """Rows wait for the first column that has a watermark; those that a join pads, for the time of their side."""
    known = progress(node)
    for column in columns:
        padded = _of_outer(node, column, lambda c, times, how: c.value in times and how in (_OTHER[c.side], "full"))
        if padded is not None:
            return padded
        if column.name in known:
            return EmitOnClose(node, column, known[column.name])
    for column in columns:
        padded = _of_outer(node, column, lambda c, times, how: base(c.value) in times and how in (c.side, "full"))
        if padded is not None:
            return padded
    known = closing(node)
    for column in columns:
        if column.name in known:
            return EmitOnClose(node, column, known[column.name])
    below = node
    while isinstance(below, Project | Filter | Over):
        if isinstance(below, Over) and not all(c.ends_with_peers for c in below.calls) and closing(below.input):
            message = "EMIT ON WINDOW CLOSE over calls that read rows behind theirs is not supported yet"
            raise SqlError(message, span, "leave it out, or read rows before them: lag(x), ROWS 1 PRECEDING")
        below = below.input
    hint = "declare WATERMARK FOR on each table, and select the column it is for, or window_start"
    raise SqlError("EMIT ON WINDOW CLOSE needs a column with a watermark, and this view has none", span, hint)


_OTHER = {"left": "right", "right": "left"}


def _of_outer(node: Node, column: Col, fits: Callable[[Clean, tuple[Expr, ...], str], bool]) -> Node | None:
    """The rows of an outer join that is cleaned on both sides, where a column, or one of several (COALESCE), is what
    cleans one of them: they wait until their side, or the other one where it is missing, can meet nothing any more."""
    below = node.input if isinstance(node, Project) else node
    while isinstance(below, Filter):
        below = below.input
    if not isinstance(node, Project) or not isinstance(below, RegularJoin) or len(below.clean) < 2:
        return None
    given = next(e for c, e in node.outputs if c == column)
    times = given.args if isinstance(given, Call) and given.function == "COALESCE" else (given,)
    mine = next((c for c in below.clean if fits(c, times, below.how)), None)
    if mine is None:
        return None
    cleans = sorted(below.clean, key=lambda c: c is not mine)
    closes = Col(f"{own(level_of(column.name))}.closes", mine.value.type)
    value = typing.function("COALESCE", [c.value for c in cleans])
    made = replace(node, outputs=(*node.outputs, (closes, value)))
    return EmitOnClose(made, closes, tuple(dict.fromkeys(b for c in cleans for b in c.bounds)))


# ----------------------------------------------------------------------- FROM


def policy(context: Context) -> Policy[Relation]:
    return Policy(
        lambda relation, before: _leaf(relation, before, context),
        _check,
        lambda on, scope: conjuncts(condition(on, "ON", scope.expr)),
        lambda a, b: typing.compare("=", a, b),
        either,
        context.merged_order,
        lambda leaf: leaf.ties,
    )


def _check(j: ast.Join, left: Tree, right: Tree) -> None:
    if isinstance(j.right, ast.Derived) and j.right.lateral and j.how in ("right", "full"):
        hint = "write LEFT JOIN LATERAL, or leave LATERAL out and put what it reads into ON"
        raise SqlError(f"LATERAL does not go with {j.how.upper()} JOIN", j.right.span, hint)
    if leaves(right)[0].always and j.how != "left":
        hint = "write CROSS JOIN LATERAL (…) x, and the condition in WHERE"
        raise SqlError("a LATERAL query of aggregates is joined without a condition", j.right.span, hint)
    if not j.asof:
        return
    if isinstance(right, Relation) and right.as_of is not None:
        hint = "write ASOF JOIN, or JOIN … FOR SYSTEM_TIME AS OF PROCTIME()"
        raise SqlError("an ASOF JOIN reads no FOR SYSTEM_TIME", right.as_of.span, hint)
    if j.using or j.natural:
        hint, word = "write ON a.x = b.x AND a.t >= b.t", "NATURAL" if j.natural else "USING"
        raise SqlError(f"an ASOF JOIN takes no {word}", j.how_span, hint)


def _leaf(relation: ast.Relation, before: Scope | None, context: Context) -> Relation:
    match relation:
        case ast.Table():
            return _table(relation, context)
        case ast.TableFunction():
            if relation.call.name in ROW_SETS:
                if before is None:
                    return _constant_calls(relation, context)
                return row_sets.relation(relation, before, context)
            if relation.ordinality:
                what = relation.call.name.lower()
                raise SqlError(f"WITH ORDINALITY of {what} is not possible", relation.span, "leave it out")
            return _window(relation, context)
        case ast.Derived():
            assert isinstance(relation.query, ast.Query)
            alias = relation.alias or context.alias("subquery")
            if relation.lateral and before is not None:
                return _lateral(relation.query, before, alias, relation, context)
            return _query(relation.query, alias, relation.columns, relation.span, context)
    raise AssertionError(relation)


def _constant_calls(f: ast.TableFunction, context: Context) -> Relation:
    """What a function gives that stands before all tables: its rows hang on none of them."""
    leaf = _read_constant(constants.table_of(f, 1 + f.ordinality, context), f.span, context)
    name = f.alias or f.call.name.lower()
    given = zip(leaf.scope.columns, (name, "ordinality"), strict=False)
    columns = renamed([replace(c, name=n) for c, n in given], f.columns, f.span)
    return replace(leaf, scope=of_table(Table(name, columns), QUOTE))


def _lateral(query: ast.Query, before: Scope, alias: str, r: ast.Derived, context: Context) -> Relation:
    """A query that reads columns of what is before it: equalities with them are the join's; ORDER BY and LIMIT are of
    the rows that have the same values there."""
    made = _tied_groups(query, before, alias, r, context) or _tied_rows(query, before, alias, r, context)
    if made is None:  # it reads nothing of it, or is refused where it does
        made = _query(query, alias, r.columns, r.span, context)
        if is_value(alias) and not values.always_one(query):
            values.check_one(query)
    return _as_value(made) if is_value(alias) else made


def _as_value(r: Relation) -> Relation:
    """The one column of a sub-query, where only its name means it."""
    columns = r.scope.columns
    if len(columns) != 1:
        raise SqlError(f"a sub-query gives {len(columns)} columns here, not one", r.span, "select one value")
    table = Table(r.alias, (), (replace(columns[0], name=values.VALUE),))
    return replace(r, scope=of_table(table, QUOTE))


def _tied_groups(query: ast.Query, before: Scope, alias: str, r: ast.Derived, context: Context) -> Relation | None:
    s = query.body
    if not isinstance(s, ast.Select) or s.source is None or not values.has_groups(s):
        return None
    inner = context
    for cte in query.ctes:
        inner = replace(inner, ctes={**inner.ctes, cte.name: (cte, inner)})
    found = values.tied(query, _tree(s.source, inner).scope, before)
    if found is None:
        return None
    if is_value(alias) and found.values is None:
        values.check_one(query)
    level = context.level(alias)
    made = bind_inner(found.query, context, level)
    items, ties = made.items[: -len(found.outer)], [i.col for i in made.items[-len(found.outer) :]]

    def below(e: ast.Expr) -> Expr:
        hint = f"the columns are {', '.join(i.name for i in items)}"
        raise SqlError("ORDER BY over groups of a LATERAL query takes a column of the result", e.span, hint)

    node, seen = made.node, tuple(Column(i.name, i.col, i.type) for i in items)
    if found.values is None:
        node = _first(items, query, (), below).by(tuple(ties)).of(node, own(level))
    else:
        scope = of_table(Table(alias, seen), QUOTE)
        given = ((i.alias or "", bound(i.expr, "SELECT", scope.expr)) for i in found.values)
        seen = tuple(Column(name, e, usual_name(e.type)) for name, e in given)
    outer = (bound(e, "WHERE", before.expr) for e in found.outer)
    equal = tuple(typing.compare("=", a, c) for a, c in zip(outer, ties, strict=True))
    scope = of_table(Table(alias, renamed(seen, r.columns, r.span)), QUOTE)
    return Relation(node, scope, r.span, ties=equal, always=found.values is not None)


def _tied_rows(query: ast.Query, before: Scope, alias: str, r: ast.Derived, context: Context) -> Relation | None:
    found = subqueries.bound_apart(query, before, context, _BINDING)
    if found is None:
        return None
    level = context.level(alias)
    first = _first(found.items, query, (), found.column)
    if is_value(alias) and first.limit != 1:
        known = [e.name for e in found.inner if isinstance(e, Col)]
        key = [c for k in found.node.row_key for c in columns(k)]
        if not key or not rules_of(found.node, context).suffices(known, key):
            values.check_one(query)
    node = first.by(tuple(found.inner)).of(found.node, own(level))
    made = projected(node, found.items, level, {})
    assert isinstance(made.node, Project)
    hidden = [(Col(f"{own(level)}.tie_{i}", e.type), e) for i, e in enumerate(found.inner)]
    rows = replace(made.node, outputs=(*made.node.outputs, *hidden))
    ties = tuple(typing.compare("=", a, c) for a, (c, _) in zip(found.outer, hidden, strict=True))
    seen = tuple(Column(i.name, i.col, i.type) for i in made.items)
    scope = of_table(Table(alias, renamed(seen, r.columns, r.span)), QUOTE)
    return Relation(rows, scope, r.span, ties=ties)


def _table(t: ast.Table, context: Context) -> Relation:
    name = t.name.parts[-1]
    alias = t.alias or name
    if t.as_of is not None and t.as_of.kind != "proctime":
        hint = "write FOR SYSTEM_TIME AS OF PROCTIME() for the rows at the time of processing"
        raise SqlError("a view cannot read the past", t.as_of.span, hint)
    if t.name.parts in {(n,) for n in context.ctes}:
        cte, outer = context.ctes[name]
        _no_as_of(t, "a WITH query")
        leaf = _query(cte.query, alias, cte.columns, t.span, outer)
        return _renamed(leaf, alias, t)
    found = context.relation(t.name)
    if not isinstance(found, Declared):
        context.over.add(found.name)
    match found:
        case View():
            _no_as_of(t, "a view")
            try:
                leaf = _query(found.written, alias, found.columns, t.span, context.inner(found))
            except SqlError as e:
                raise e.with_text(found.text) from None
            return _renamed(leaf, alias, t)
        case Index():
            table = context.catalog.sources[found.table]
            leaf = _read(table, alias, t, context)
            columns = tuple(c for n in found.all_columns for c in leaf.scope.columns if c.name == n)
            return _renamed(replace(leaf, scope=of_table(Table(alias, columns), QUOTE), index=found), alias, t)
        case Declared():
            return _renamed(_read(found, alias, t, context), alias, t)


def _no_as_of(t: ast.Table, what: str) -> None:
    if t.as_of is not None:
        hint = "make it a materialized view, and read that"
        raise SqlError(f"a temporal join cannot look into {what}", t.as_of.span, hint)


def _renamed(leaf: Relation, alias: str, t: ast.Table) -> Relation:
    columns = renamed(leaf.scope.columns, t.columns, t.span)
    return replace(leaf, scope=of_table(Table(alias, columns), QUOTE))


def _read(declared: Declared, alias: str, t: ast.Table, context: Context) -> Relation:
    """The changes of a table, or the rows of an append-only one."""
    relation = declared.relation
    if relation is None:
        raise SqlError(f"{declared.name} cannot be read here", t.name.span, "declare it with CREATE TABLE")
    check_not_sink(declared, t.name.span)
    name = context.alias(alias)
    by_name = {c.name: c for c in declared.columns}
    ordered = [by_name[k] for k in relation.key] + [c for c in declared.columns if c.name not in relation.key]
    columns = tuple(SourceColumn(f"{name}.{c.name}", c.name, TypedColumn(c.name, c.type), c.place) for c in ordered)
    watermark = None
    if relation.watermark is not None:
        if relation.what == "table":  # which INSERT writes; no column of a user has such a name
            written = TypedColumn("", Scalar.BOOLEAN)
            columns = (*columns, SourceColumn(f"{name}.", "", written, "statement"))
        watermark = substituted(relation.watermark.expr, {c.field: c.col for c in columns})
    source = Source(name, declared.name, declared.topic, declared.kind, columns, declared.encoding, None, None,
                    declared.partitions, "lift", watermark, begin=declared.begin)  # fmt: skip
    own: dict[str, Expr] = {c.field: c.col for c in columns}
    seen = tuple(Column(n, substituted(e, own), shown) for n, e, shown in declared.seen)
    node: Node = generated.on_time(source, seen, relation.watermark) if declared.kind == "stream" else Changes(source)
    if isinstance(node, OnTime) and not isinstance(node.value, Col):
        node, seen = generated.as_columns(node, seen, name)
    node = clocked(node, name, relation.inherited)
    return Relation(node, of_table(Table(alias, seen), QUOTE), t.span, declared, as_of=t.as_of)


def _query(query: ast.Query, alias: str, names: tuple[str, ...], span: Span, context: Context) -> Relation:
    result = bind_inner(query, context, context.level(alias))
    seen = tuple(Column(i.name, i.col, i.type) for i in result.items)
    columns = renamed(seen, names, span)
    return Relation(result.node, of_table(Table(alias, columns), QUOTE), span)


# -------------------------------------------------------------------- windows


def _window(f: ast.TableFunction, context: Context) -> Relation:
    """A table in windows: its name, a time, lengths, and perhaps an offset."""
    call, what = f.call, f.call.name
    if what not in CALLS:
        *others, last = (f"{name}(…)" for name in CALLS)
        hint = f"a view reads tables, sources, views, {', '.join(others)} and {last}"
        raise SqlError(f"table function {what.lower()} in a view is not supported yet", call.span, hint)
    asked = windows.of_call(f)
    leaf = _table(asked.table, context)
    alias = f.alias or asked.table.name.parts[-1]
    time = asked.time(leaf.scope).expr
    if not isinstance(time, Col):
        node, seen = generated.as_columns(leaf.node, leaf.scope.columns, level_of(next(iter(columns(time)))))
        leaf = replace(leaf, node=node, scope=of_table(Table(alias, seen), QUOTE))
        time = asked.time(leaf.scope).expr
        assert isinstance(time, Col)
    unique, type_ = own(level_of(time.name)), windows.bound_type(time.type)
    start, end = (Col(f"{unique}.{name}", type_) for name in windows.BOUNDS)
    node = Windows(leaf.node, time, asked.windows, start, end, "keep" if asked.keeps_null else "drop")
    written = usual_name(type_)
    bounds = tuple(Column(name, c, written) for name, c in zip(windows.BOUNDS, (start, end), strict=True))
    shown = renamed((*leaf.scope.columns, *bounds), f.columns, f.span)
    scope = of_table(Table(alias, shown), QUOTE)
    return replace(leaf, node=node, scope=scope, span=f.span, window=f"{what} {asked.windows}", declared=None)
