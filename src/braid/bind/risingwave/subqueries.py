"""EXISTS and IN (SELECT …) in WHERE of a view: semi-joins and anti-joins.

In: rows, and what names mean over them; a sub-query as written. Out: the rows that have a partner in it, or none.
Rule: a name is first one of the sub-query's own FROM, then of the query around it. What of its WHERE reads both decides
what matches, an equality of both is a key; all else stays in the sub-query. `x IN (SELECT y …)` is an equality more.
NOT IN is the same without a partner, as RisingWave has it: NULL equals nothing, so a row whose x is NULL has none.
(docs/rules/risingwave.md, "Regular joins")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from braid.bind.risingwave import grouping, values
from braid.bind.risingwave.expressions import bound, condition, usual_name
from braid.bind.risingwave.over import has_over
from braid.bind.risingwave.placing import Tree, notice_kept
from braid.bind.risingwave.scope import Context, default_name
from braid.bind.select.items import Item, Result, listed
from braid.bind.select.partners import Asked, shared_with
from braid.bind.select.pushing import pair
from braid.bind.select.scope import Scope
from braid.errors import SqlError
from braid.expr.nodes import Expr, columns
from braid.expr.postgres import typing
from braid.expr.typing import all_of, conjuncts
from braid.plan.epochs import Equalities, RegularJoin
from braid.plan.logical import Node
from braid.plan.watermarks import cleaned
from braid.sql import ast


@dataclass(frozen=True, slots=True)
class Binding:
    """How a query is bound: its FROM; the rows of that which pass conditions; all of it."""

    tree: Callable[[ast.Relation, Context], Tree]
    rows: Callable[[Tree, Sequence[ast.Expr], Context], Node]
    whole: Callable[[ast.Query, Context], Result]


def partnered(node: Node, scope: Scope, asked: Asked, context: Context, binding: Binding) -> Node:
    """The rows of a node that have a partner, or none."""
    inner, values, terms = _inner(asked.of.query, scope, context, binding)
    if asked.of.kind == "in":
        terms = [*_equal(asked.of, scope, values), *terms]
    left, right = (frozenset(c.name for c in x.schema) for x in (node, inner))
    found = [(t, pair(t, left, right)) for t in terms]
    pairs = [p for _, p in found if p is not None]
    if not pairs and not context.settings.risingwave.any_join:
        hint = "write … WHERE inner.x = outer.x, or SET joins_without_equality = accept to run it in one bucket"
        raise SqlError(f"{asked.shown} without an equality in a view is not possible", asked.of.span, hint)
    on = Equalities(tuple(a for a, _, _ in pairs), tuple(b for _, b, _ in pairs), tuple(n for _, _, n in pairs))
    residual = all_of([t for t, p in found if p is None])
    gives: Literal["matched", "unmatched"] = "unmatched" if asked.negated else "matched"
    made = cleaned(RegularJoin(node, inner, "left", on, residual, gives=gives))
    notice_kept(made, context)
    return made


def _inner(
    query: ast.Query, scope: Scope, context: Context, binding: Binding
) -> tuple[Node, Sequence[Expr], list[Expr]]:
    """The rows of a sub-query, what it selects, and the conditions that read the query around it."""
    for cte in query.ctes:
        context = replace(context, ctes={**context.ctes, cte.name: (cte, context)})
    s = query.body if not isinstance(query.body, ast.Select) else values.in_from(query.body)
    if not isinstance(s, ast.Select) or not _is_plain(s, query) or s.source is None:
        whole = binding.whole(query, context)
        return whole.node, [i.expr for i in whole.items], []
    tree = binding.tree(s.source, context)
    stays, asks, column = _split(s.where, tree.scope, scope)

    def value(item: ast.SelectItem) -> Item:
        return Item("", bound(item.expr, "SELECT", column), item.span, item.expr)

    terms = [t for e in asks for t in conjuncts(condition(e, "WHERE", column))]
    node = binding.rows(tree, stays, context)
    return node, [i.expr for i in listed(s.items, tree.scope, value)], terms


def _split(
    where: ast.Expr | None, own: Scope, outer: Scope
) -> tuple[list[ast.Expr], list[ast.Expr], Callable[[ast.Name], Expr]]:
    """The parts of a sub-query's WHERE that stay in it, those that read the query around it, and what a name is."""
    stays, asks, of = shared_with(where, own, outer)
    return stays, asks, lambda name: of(name).expr(name)


@dataclass(frozen=True, slots=True)
class Apart:
    """A query whose rows are bound apart from what is before it. `inner[i]` must equal `outer[i]`, which is of what is
    before; `column`: what an expression is over its rows."""

    node: Node
    items: list[Item]
    inner: list[Expr]
    outer: list[Expr]
    column: Callable[[ast.Expr], Expr]


def bound_apart(query: ast.Query, scope: Scope, context: Context, binding: Binding) -> Apart | None:
    """A query of LATERAL; None of one that reads nothing of what is before it as far as that can be told."""
    s = query.body
    if not isinstance(s, ast.Select) or query.ctes or s.source is None:
        return None
    s = values.in_from(s)
    assert s.source is not None
    tree = binding.tree(s.source, context)
    own = tree.scope
    stays, asks, column = _split(s.where, own, scope)
    if not asks:
        return None
    if not _is_plain(s, replace(query, limit=None, offset=None)):
        hint = "write SELECT … FROM … WHERE t.x = outer.x ORDER BY … LIMIT …, and group around it"
        raise SqlError("a LATERAL query with groups or OVER in a view is not supported yet", query.span, hint)

    node = binding.rows(tree, stays, context)
    mine = frozenset(c.name for c in node.schema)
    inner, outer = list[Expr](), list[Expr]()
    for e in asks:
        for term in conjuncts(condition(e, "WHERE", column)):
            found = pair(term, frozenset(columns(term)) - mine, mine)
            if found is None or found[2]:
                hint = "compare a column of it with one of what is before it: WHERE t.x = outer.x"
                what = "a LATERAL query in a view that asks more than equalities"
                raise SqlError(f"{what} is not supported yet", e.span, hint)
            outer.append(found[0])
            inner.append(found[1])

    def over_rows(e: ast.Expr) -> Expr:
        return bound(e, "ORDER BY", own.expr)

    def value(i: ast.SelectItem) -> Item:
        e = bound(i.expr, "SELECT", own.expr)
        return Item(i.alias or default_name(i.expr), e, i.span, i.expr, usual_name(e.type))

    return Apart(node, listed(s.items, own, value), inner, outer, over_rows)


def _is_plain(s: ast.Select, query: ast.Query) -> bool:
    """Whether its rows are those of FROM that pass WHERE."""
    groups = s.group_by or s.having is not None or grouping.has_aggregates(s) or any(has_over(i.expr) for i in s.items)
    return not groups and not s.distinct and query.limit is None and query.offset is None


def _equal(q: ast.Subquery, scope: Scope, values: Sequence[Expr]) -> list[Expr]:
    """What IN compares."""
    assert q.arg is not None
    args = q.arg.args if isinstance(q.arg, ast.Call) and q.arg.name == "ROW" else (q.arg,)
    if len(args) != len(values):
        message = f"the query gives {len(values)} columns, not {len(args)}"
        raise SqlError(message, q.span, "select what is compared")
    return [typing.compare("=", bound(a, "WHERE", scope.expr), v) for a, v in zip(args, values, strict=True)]
