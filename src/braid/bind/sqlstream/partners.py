"""IN (SELECT …) and EXISTS in WHERE: rows that have a partner in tables, or none.

In: rows, and what names mean over them; sub-queries as written. Out: the rows that pass.
Rule: a sub-query is of tables alone; beside a stream they are captured when the query starts, as tables of joins are.
What its WHERE asks of both queries decides what matches. `x NOT IN (SELECT y …)` is true where no y equals x and none
of both is NULL, or there is no y at all. (docs/rules/sqlstream.md, S-149)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from braid.bind.expressions import bind_expr, bind_predicate, with_span
from braid.bind.select.items import Item, listed
from braid.bind.select.partners import Asked, parted, shared_with
from braid.bind.select.pushing import covered, names
from braid.bind.select.pushing import pair as equality
from braid.bind.select.scope import Scope, of_table
from braid.bind.sqlstream.grouping import is_grouped
from braid.bind.sqlstream.relation import (
    Context,
    Operand,
    Tree,
    bind_relation,
    built,
    check,
    check_beside,
    equalities,
    kind_of,
    sliding_tree,
    with_where,
)
from braid.bind.sqlstream.scope import QUOTE, column, rules, table_of
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.typing import all_of
from braid.plan import sliding
from braid.plan.epochs import RegularJoin
from braid.plan.logical import Node
from braid.plan.names import own
from braid.sql import ast
from braid.types import Scalar

Gives = Literal["matched", "unmatched"]
_ONE = Lit(0, Scalar.INT)
_COPIES = 3  # of a sub-query, at most


@dataclass(frozen=True, slots=True)
class Rows:
    """Those of a query: `stream` of a stream; `filled`: their columns that are never NULL; `within`: what binding its
    FROM needs."""

    node: Node
    scope: Scope
    stream: bool
    filled: frozenset[str]
    within: Context

    def partnered(self, asked: Sequence[Asked]) -> Node:
        """The rows that have a partner in each of some sub-queries, or none."""
        rows = self
        for n, one in enumerate(asked):
            *_, node = _meetings(rows, one, _COPIES * n)
            rows = replace(rows, node=node)
        return rows.node


@dataclass(frozen=True, slots=True)
class _Inner:
    """The rows of a sub-query: what it selects, and which terms read the query around it. `level`: of its names."""

    tree: Tree
    values: list[Expr]
    terms: list[Expr]
    level: str

    @property
    def never_null(self) -> bool:
        """Whether what is compared is never NULL."""
        (e,) = self.values
        return isinstance(self.tree, Operand) and isinstance(e, Col) and e.name in self.tree.filled


def _meetings(rows: Rows, asked: Asked, number: int) -> Iterator[Node]:
    """The rows that pass one condition after the other."""
    inner = _inner(rows, asked, number)
    if asked.of.kind == "exists":
        yield _met(rows, inner, (), asked.negated)
        return
    arg = _compared(rows, asked, inner)
    with with_span(asked.of.span):
        equal = typing.call("eq", [arg, inner.values[0]])
    yield (found := _met(rows, inner, [equal], asked.negated))
    if asked.negated and not inner.never_null:  # a NULL among them may be anything
        inner = _inner(rows, asked, number + 1)
        missing = typing.call("is_null", [inner.values[0]])
        yield (found := _met(replace(rows, node=found), inner, [missing], True))
    if asked.negated and not (isinstance(arg, Col) and arg.name in rows.filled):
        inner = _inner(rows, asked, number + 2)
        nothing = typing.case([(typing.call("is_null", [arg]), _ONE)])
        yield _met(replace(rows, node=found), inner, (), True, [(nothing, _ONE)])


def _compared(rows: Rows, asked: Asked, inner: _Inner) -> Expr:
    """What IN looks for."""
    assert asked.of.arg is not None
    if len(inner.values) != 1:
        message = f"the query gives {len(inner.values)} columns, not 1"
        raise SqlError(message, asked.of.span, "select what is compared")
    return bind_expr(asked.of.arg, rules("WHERE", column(rows.scope)))


def _inner(rows: Rows, asked: Asked, number: int) -> _Inner:
    s = asked.of.query.body
    assert isinstance(s, ast.Select)
    name = rows.within.prefix + own(f"{asked.of.kind.upper()}{number}")
    within = replace(rows.within, prefix=f"{name}/", windows={})
    if s.distinct is not None and not s.group_by:
        s = replace(s, distinct=None)  # which changes nothing here
    if s.union or s.order_by or is_grouped(s) or parted(s.where)[1]:
        return _whole(s, asked, within)
    assert s.source is not None
    tree = bind_relation(s.source, within)
    _check(tree, s, asked)
    stays, asks, of = shared_with(s.where, tree.scope, rows.scope)

    def meant(name: ast.Name) -> Expr:
        return column(of(name))(name)

    said = rules("WHERE", meant)
    tree, left_over = with_where(tree, [bind_predicate(e, said) for e in stays])
    check(tree)
    if left_over:
        hint = "CREATE VIEW it, and select from that"
        raise SqlError("WHERE over an outer join in a sub-query is not supported yet", asked.of.span, hint)
    items = listed(s.items, tree.scope, lambda i: Item("", bind_expr(i.expr, rules("SELECT", meant)), i.span, i.expr))
    return _Inner(tree, [i.expr for i in items], [bind_predicate(e, said) for e in asks], name)


def _whole(s: ast.Select, asked: Asked, within: Context) -> _Inner:
    """A sub-query that reads nothing of the one around it."""
    made = within.query(s, within.prefix)
    named = of_table(table_of(f"{asked.shown} (SELECT …)", (), None), QUOTE)
    operand = Operand(made.node, named, asked.of.span, made.kind, None)
    _check(operand, s, asked)
    return _Inner(operand, [i.expr for i in made.columns], [], within.prefix.removesuffix("/"))


def _check(tree: Tree, s: ast.Select, asked: Asked) -> None:
    if s.kind or kind_of(tree) == "stream":
        hint = "join the streams, with OVER on each"
        raise SqlError(f"{asked.shown} (SELECT …) is of tables alone", asked.of.span, hint)


def _met(
    rows: Rows, inner: _Inner, terms: Sequence[Expr], negated: bool, keys: Sequence[tuple[Expr, Expr]] = ()
) -> Node:
    """The rows that have a partner, or none, for which all terms are true."""
    mine, theirs = frozenset(c.name for c in rows.node.schema), names(inner.tree)
    alone, both = covered([*terms, *inner.terms], theirs)
    tree = inner.tree
    if isinstance(tree, Operand):
        tree, alone = replace(tree, filters=(*tree.filters, *alone)), []
    pairs = [(t, equality(t, mine, theirs)) for t in both]
    keys = [*keys, *((p[0], p[1]) for _, p in pairs if p is not None and not p[2])]
    residual = all_of([*(t for t, p in pairs if p is None or p[2]), *alone])
    gives: Gives = "unmatched" if negated else "matched"
    if not rows.stream:
        node = built(tree, rows.within.env.settings.sqlstream, None)
        return RegularJoin(rows.node, node, "left", equalities(keys), residual, gives=gives)
    check_beside(tree)
    stream = sliding.Operand(rows.node, sliding.RangeFrame())
    meeting = sliding.Meeting(stream, sliding_tree(tree), "left", tuple(keys), residual, gives)
    return sliding.SlidingJoin(meeting, Col(f"{inner.level}.ROWTIME", Scalar.BIGINT))
