"""Sub-queries that give one value (scalar sub-queries), and LATERAL queries over groups, in views: as they are written.

In: a SELECT; a query of LATERAL and what names mean before it. Out: the SELECT with its sub-queries in FROM; the groups
of a LATERAL query without what ties them to the rows before it, and that.
Rule: RW-107: the value of a sub-query is the column of a LEFT JOIN LATERAL that `*` does not show. What ties a group
to a row is a key more of GROUP BY. Aggregates without GROUP BY always give a row: where a row has no group they are
NULL, and counts 0, so expressions over them are computed above the join.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from braid.bind.changing import changed
from braid.bind.expressions import conjuncts, names
from braid.bind.risingwave import grouping
from braid.bind.risingwave.constants import one_row
from braid.bind.risingwave.over import has_over
from braid.bind.risingwave.placing import VALUE_OF
from braid.bind.risingwave.scope import default_name
from braid.bind.select.partners import parted, shared_with
from braid.bind.select.scope import Scope
from braid.errors import SqlError
from braid.sql import ast
from braid.types import Scalar

VALUE = "value"
_COUNTS = ("COUNT", "APPROX_COUNT_DISTINCT", "REGR_COUNT")


def in_from(s: ast.Select) -> ast.Select:
    """A SELECT with the sub-queries of its WHERE, and of its items where it has no groups, in FROM."""
    found = list[ast.Subquery]()

    def lifted(x: Any) -> Any:
        match x:
            case ast.Subquery(kind="scalar"):
                found.append(x)
                return ast.Name((f"{VALUE_OF} {len(found)}", VALUE), x.span)
            case ast.Subquery(kind="array") if (one := _listed(x)) is not None:
                nothing = ast.Literal("{}", Scalar.VARCHAR, x.span)
                return ast.Call("COALESCE", (lifted(one), nothing), x.span)
            case ast.Subquery(kind="exists") if (one := _counted(x)) is not None:
                some = ast.Binary(">", lifted(one), ast.Literal(0, Scalar.INT, x.span), x.span)
                return ast.Unary("NOT", some, x.span) if x.negated else some
            case ast.Subquery(arg=arg):
                return x if arg is None else replace(x, arg=lifted(arg))
            case ast.SelectItem(alias=None, expr=e):
                made = lifted(e)
                return x if made is e else replace(x, expr=made, alias=default_name(e))
        return changed(x, lifted)

    def stays(e: ast.Expr) -> bool:
        return any(x.of.kind == "exists" for x in parted(e)[1])

    where = None if s.where is None else _all([e if stays(e) else lifted(e) for e in conjuncts(s.where)])
    items = s.items if has_groups(s) else lifted(s.items)
    if not found:
        return s
    source = s.source or _one_row(s)
    for n, of in enumerate(found, 1):
        right = ast.Derived(of.query, f"{VALUE_OF} {n}", of.span, lateral=True)
        source = ast.Join(source, right, "left", source.span, of.span)
    return replace(s, items=items, where=where, source=source)


def _one_row(s: ast.Select) -> ast.Derived:
    """What a SELECT without FROM is over."""
    for i in s.items:
        if isinstance(i.expr, ast.Star):
            raise SqlError("SELECT * needs FROM", i.span, "name a table: SELECT * FROM t")
    row = one_row(s.span)
    return ast.Derived(ast.Query((), row, (), None, None, None, row.span), "nothing", row.span)


def _listed(x: ast.Subquery) -> ast.Subquery | None:
    """ARRAY(SELECT …) of rows as they are, as a sub-query that gives one value: NULL where there is no row."""
    query, s = x.query, x.query.body
    if not isinstance(s, ast.Select) or len(s.items) != 1 or query.ctes or s.distinct is not None or has_groups(s):
        return None
    item, cut = s.items[0], query.limit is not None or query.offset is not None
    if cut or isinstance(item.expr, ast.Star) or has_over(item.expr):
        return None

    def shown(by: ast.Expr) -> ast.Expr:
        alias = isinstance(by, ast.Name) and by.parts == (item.alias,)
        return item.expr if alias or (isinstance(by, ast.Literal) and by.value == 1) else by

    order = tuple(replace(o, expr=shown(o.expr)) for o in query.order_by)
    call = ast.LongCall(ast.Call("ARRAY_AGG", (item.expr,), x.span), order, (), None, None, x.span)
    body = replace(s, items=(replace(item, expr=call),))
    return replace(x, kind="scalar", query=replace(query, body=body, order_by=()))


def _counted(x: ast.Subquery) -> ast.Subquery | None:
    """How many rows a query of EXISTS has, as a sub-query that gives one value; None: that cannot be said so."""
    query, s = x.query, x.query.body
    if not isinstance(s, ast.Select) or query.ctes or has_groups(s) or not _keeps_one(query):
        return None
    named = [i.expr for i in s.items if isinstance(i.expr, ast.Name)]
    if s.source is None or not all(isinstance(i.expr, ast.Star | ast.Literal | ast.Name) for i in s.items):
        return None
    every: ast.Expr = ast.Star((), x.span)
    if named:  # which count all rows, too; so each is a column
        every = _all([ast.IsNull(e, False, e.span) for e in named]) or every
    count = ast.SelectItem(ast.Call("COUNT", (every,), x.span), None, x.span)
    body = replace(s, items=(count,), distinct=None)
    return ast.Subquery("scalar", replace(query, body=body, order_by=(), limit=None, ties=None), x.span)


def kept(r: ast.Relation) -> ast.Relation:
    """FROM, where a LATERAL query that always gives a row is LEFT JOINed: a row before it may have no group.
    `t, (LATERAL x JOIN u)` is `(t, LATERAL x) JOIN u`."""
    if not isinstance(r, ast.Join):
        return r
    spine, first = list[ast.Join](), r.right
    while (
        isinstance(first, ast.Join) and first.how in ("inner", "cross", "left") and not (first.using or first.natural)
    ):
        spine.insert(0, first)
        first = first.left
    if spine and _is_cross(r) and isinstance(first, ast.Derived) and first.lateral:
        made = replace(r, right=first)
        for x in spine:
            made = replace(x, left=made)
        return kept(made)
    one = _is_cross(r) and isinstance(r.right, ast.Derived) and r.right.lateral and always_one(r.right.query)
    made = replace(r, left=kept(r.left), right=kept(r.right))
    return replace(made, how="left", on=None, comma=False) if one else made


def _is_cross(r: ast.Join) -> bool:
    is_true = r.on is None or (isinstance(r.on, ast.Literal) and r.on.value is True)
    return r.how in ("inner", "cross") and not r.using and not r.natural and is_true


def has_groups(s: ast.Select) -> bool:
    return bool(s.group_by) or s.having is not None or grouping.has_aggregates(s)


def always_one(query: ast.Select | ast.Query) -> bool:
    """Whether it gives one row whatever there is: aggregates without GROUP BY."""
    s = query.body if isinstance(query, ast.Query) else query
    one = isinstance(s, ast.Select) and not s.group_by and s.having is None and grouping.has_aggregates(s)
    return one and (isinstance(query, ast.Select) or _keeps_one(query))


def _keeps_one(query: ast.Query) -> bool:
    """Whether LIMIT leaves one row where there is one."""
    limit = query.limit
    some = isinstance(limit, ast.Literal) and isinstance(limit.value, int) and limit.value > 0
    return query.offset is None and (limit is None or some)


def check_one(query: ast.Query) -> None:
    """Refuses what may give several values."""
    one = isinstance(query.limit, ast.Literal) and query.limit.value == 1
    if not one:
        hint = "take one of them: (SELECT max(x) …), ORDER BY … LIMIT 1, or compare a whole key"
        raise SqlError("a sub-query here may give several values, which a view cannot have", query.span, hint)


@dataclass(frozen=True, slots=True)
class Tied:
    """Groups of a LATERAL query. `query`: they, with what ties each of them behind its items, and without LIMIT;
    `outer`: what that must be equal to, of what is before it. `values`: where there is always a row, the items over
    the aggregates, which `query` gives."""

    query: ast.Query
    outer: tuple[ast.Expr, ...]
    values: tuple[ast.SelectItem, ...] | None


def tied(query: ast.Query, own: Scope, before: Scope) -> Tied | None:
    """A query of LATERAL over groups; None: it reads nothing of what is before it in its WHERE. `own`: of its FROM."""
    s = query.body
    assert isinstance(s, ast.Select)
    stays, asks, _ = shared_with(s.where, own, before)
    if not asks:
        return None
    _check(s, query)
    pairs = [_sides(e, own, before) for e in asks]
    ties = [ast.SelectItem(e, f"tie {n}", e.span) for n, (e, _) in enumerate(pairs, 1)]
    items, values = s.items, None
    if always_one(query):
        items, values = _apart(s.items)
    by = (*s.group_by, *(e for e, _ in pairs))
    made = replace(s, items=(*items, *ties), where=_all(stays), group_by=by)
    whole = replace(query, body=made, order_by=(), limit=None, offset=None, ties=None)
    return Tied(whole, tuple(e for _, e in pairs), values)


def _check(s: ast.Select, query: ast.Query) -> None:
    if s.distinct is not None or any(has_over(i.expr) for i in s.items):
        hint = "write it in a sub-query of its FROM"
        raise SqlError("DISTINCT or OVER over groups of a LATERAL query is not supported yet", query.span, hint)
    if not s.group_by and not always_one(query):
        hint = "write GROUP BY, or filter outside: … LATERAL (SELECT max(x) AS m …) y WHERE y.m > 3"
        raise SqlError("HAVING or LIMIT over one group of a LATERAL query is not supported yet", query.span, hint)


def _sides(e: ast.Expr, own: Scope, before: Scope) -> tuple[ast.Expr, ast.Expr]:
    """Of an equality what is of the query itself, and what is of the rows before it."""
    if isinstance(e, ast.Binary) and e.op == "=":
        for mine, other in ((e.left, e.right), (e.right, e.left)):
            of_both = [*names(mine)], [*names(other)]
            if all(of_both) and all(map(own.knows, of_both[0])) and not any(map(own.knows, of_both[1])):
                return mine, other
    hint = "compare a column of it with one of what is before it: WHERE t.x = outer.x"
    what = "a sub-query over groups (EXISTS in an expression is one) that asks more than equalities of the row"
    raise SqlError(f"{what} is not supported yet", e.span, hint)


def _apart(items: tuple[ast.SelectItem, ...]) -> tuple[tuple[ast.SelectItem, ...], tuple[ast.SelectItem, ...]]:
    """The aggregates of items, each as an item; and the items over these."""
    calls = list[ast.SelectItem]()

    def over(x: Any) -> Any:
        call = grouping.aggregate_of(x)
        if call is None:
            return x if isinstance(x, ast.Subquery) else changed(x, over)
        name = f"aggregate {len(calls) + 1}"
        calls.append(ast.SelectItem(x, name, x.span))
        column = ast.Name((name,), x.span)
        return _or_none(column) if call.name in _COUNTS else column

    values = tuple(replace(i, expr=over(i.expr), alias=i.alias or default_name(i.expr)) for i in items)
    return tuple(calls), values


def _or_none(count: ast.Name) -> ast.Expr:
    """A count, or 0."""
    return ast.Call("COALESCE", (count, ast.Literal(0, Scalar.INT, count.span)), count.span)


def _all(terms: list[ast.Expr]) -> ast.Expr | None:
    made: ast.Expr | None = None
    for e in terms:
        made = e if made is None else ast.Binary("AND", made, e, e.span)
    return made
