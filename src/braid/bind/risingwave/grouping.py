"""GROUP BY, DISTINCT and aggregates in views.

In: a SELECT with groups, the node it reads. Out: the changes of its groups, and the items over them.
Rule: NULLs make one group; a group without rows is gone; an aggregate of nothing is NULL, COUNT is 0. Without GROUP BY
there is one group, which always has its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from braid.bind.expressions import Aggregations, children, with_span
from braid.bind.risingwave.batch_aggregates import exactly, is_known, plain
from braid.bind.risingwave.different import (
    Different,
    either,
    finally_picked,
    grouped,
    is_one,
    multiplied,
    over_values,
    told_apart,
)
from braid.bind.risingwave.expressions import Names, bind, bind_condition, bound, condition, usual_name
from braid.bind.risingwave.over import Overs
from braid.bind.risingwave.scope import default_name
from braid.bind.select.aggregates import WITH_NULLS, WITHIN, Asked, OrderedBy, ignores_distinct, is_rounded, value
from braid.bind.select.grouping import Groups, nullable
from braid.bind.select.items import Item, listed, place_of
from braid.bind.select.scope import Scope
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.postgres.typing import finished
from braid.plan.logical import Filter, Node
from braid.plan.names import own
from braid.sql import ast
from braid.types import Scalar

MOST_SETS = 64


@dataclass(frozen=True, slots=True)
class Grouped:
    """`node`: asked once all expressions over the groups are bound, by `below`; `final`: what one is over its columns.
    `types`: of the key's columns."""

    node: Callable[[], Node]
    items: list[Item]
    types: dict[Expr, str]
    below: Callable[[ast.Expr], Expr]
    final: Callable[[Expr], Expr]

    def made(self) -> tuple[Node, list[Item]]:
        """Its node, and the items over that."""
        node = self.node()
        return node, [replace(i, expr=self.final(i.expr)) for i in self.items]


@dataclass(slots=True, kw_only=True)
class _Groups(Groups):
    """Over the rows `read`. `distinct`: what is asked of different values, by what they are of (and, where a sum is
    rounded, by condition); `aggregations`: of all rows."""

    read: Node
    scope: Scope
    alias: str
    distinct: dict[tuple[Expr, Expr | None], Different] = field(default_factory=dict)
    sets: _Sets | None = None

    @property
    def over_table(self) -> bool:
        return self.read.mode != "append"

    def add_key(self, e: Expr) -> None:
        """Each is nullable: a table's key behind an outer join, too, and a view's key columns."""
        if e in self.shown:
            return
        n = len(self.shown)
        by = told_apart(e)
        value = by if self.sets is None else self.sets.value(by, e)
        missing, key = nullable(f"{self.alias}.group_{n}", value)
        self.keys += [missing, key]
        self.shown[e] = either(missing[0], key[0], e.type)

    def ask(self, e: ast.Expr) -> Expr | None:
        """What an aggregate gives that only this dialect has, or the key that `e` is, if it is a grouping
        expression."""
        e = plain(e)
        match e:
            case ast.LongCall(call=call, where=where, over=None) if is_known(call.name):
                _check_order(e)
                return self.aggregate(call, where, (*e.order_by, *e.within_group))
            case ast.Call(name="GROUPING", args=args) if self.sets is not None:
                return self.sets.grouping([self.below(x, "GROUPING") for x in args])
            case ast.Call(name=name) if is_known(name):
                return self.aggregate(e)
            case ast.Literal():
                return None
        return self.known(e)

    def has_aggregates(self, e: ast.Expr) -> bool:
        return _has_aggregates(e)

    def aggregate(
        self, call: ast.Call, where: ast.Expr | None = None, order_by: tuple[ast.OrderItem, ...] = ()
    ) -> Expr:
        call = exactly(call)
        args, order = self.arguments(call) or [], tuple(map(self._ordered, order_by))
        passes = None if where is None else condition(where, "FILTER", self.scope.expr)
        if not call.distinct or ignores_distinct(call.name):
            return value(Asked(call.name, tuple(args), self.aggregations, self.over_table, passes, order))
        if len(args) != 1 and (call.name != "STRING_AGG" or not isinstance(args[1], Lit)):
            raise SqlError(f"DISTINCT in {call.name.lower()} takes one value", call.span, "name one")
        if any(o.by != args[0] for o in order):
            hint = "order by the value itself, or GROUP BY it in a sub-query"
            raise SqlError(f"{call.name.lower()} with DISTINCT is ordered by its value only", call.span, hint)
        by = args[0], passes if is_rounded(call.name, args[0].type) else None
        into = Aggregations(f"{self.alias}.distinct_{len(self.distinct)}_")
        of = self.distinct.setdefault(by, Different(args[0], into))
        of.nulls |= call.name in WITH_NULLS
        order = tuple(replace(o, by=of.value) for o in order)
        return value(Asked(call.name, (of.value, *args[1:]), of.into, True, of.passes(passes), order))

    def _ordered(self, i: ast.OrderItem) -> OrderedBy:
        first = i.descending if i.nulls_first is None else i.nulls_first
        return OrderedBy(self.below(i.expr, "ORDER BY"), i.descending, first)

    def node(self) -> Node:
        """The changes of the groups. One that has no rows any more is gone."""
        if self.distinct:
            different = [*self.distinct.values()]
            return over_values(self.read, self.alias, self.keys, bool(self.shown), different, self.aggregations)
        rows = self.aggregations.column("COUNT", None, Scalar.BIGINT) if self.shown and self.over_table else None
        return grouped(self.read, self.keys, self.aggregations.made, rows)

    def final(self, e: Expr) -> Expr:
        """An item over the columns of `node`."""
        return finally_picked(e, self.aggregations) if self.distinct else e


@dataclass(slots=True)
class _Sets:
    """GROUPING SETS: each row counts once in each, and what a set does not group by is NULL there. `number`: of the
    set, below the groups; `key`: above them."""

    sets: list[tuple[Expr, ...]]
    number: Col
    key: Col

    def value(self, by: Expr, e: Expr) -> Expr:
        """What a grouping expression groups by, in the sets that have it."""
        having = [n for n, s in enumerate(self.sets) if e in s]
        return by if len(having) == len(self.sets) else typing.case([(is_one(self.number, having), by)])

    def grouping(self, args: Sequence[Expr]) -> Expr:
        """Which of the arguments are not grouped by: a bit each, the last one the lowest."""
        if not args or any(not any(a in s for s in self.sets) for a in args):
            raise SqlError("grouping takes what GROUP BY has", hint="write an expression of GROUP BY")
        bits = [sum(1 << len(args) - 1 - i for i, a in enumerate(args) if a not in s) for s in self.sets]
        whens = [(is_one(self.key, [n]), Lit(b, Scalar.INT)) for n, b in enumerate(bits)]
        return typing.case(whens)


def has_aggregates(s: ast.Select) -> bool:
    return any(_has_aggregates(i.expr) for i in s.items)


def _check_order(e: ast.LongCall) -> None:
    shown = e.call.name.lower()
    if e.call.name in WITHIN and e.order_by:
        raise SqlError(f"{shown} takes its ORDER BY in WITHIN GROUP", e.span, "write … WITHIN GROUP (ORDER BY x)")
    if e.call.name not in WITHIN and e.within_group:
        raise SqlError(f"{shown} takes no WITHIN GROUP", e.span, f"write {shown}(x ORDER BY y)")


def aggregate_of(e: object) -> ast.Call | None:
    """The call of an aggregate."""
    match e:
        case ast.LongCall(call=call, over=None) | (ast.Call() as call) if is_known(call.name):
            return call
    return None


def _has_aggregates(e: ast.Expr) -> bool:
    if aggregate_of(e) is not None:
        return True
    match e:
        case ast.LongCall(call=call, over=ast.Over() as over):
            below = (*call.args, *over.partition_by, *(i.expr for i in over.order_by))
            return any(map(_has_aggregates, below))
        case _:
            return any(map(_has_aggregates, children(e)))


def bind_grouped(s: ast.Select, node: Node, scope: Scope, alias: str, overs: Overs | None = None) -> Grouped:
    """`overs`: calls over the groups, where there may be some."""
    overs = Overs({}, own(alias), lambda e: bound(e, "OVER", scope.expr)) if overs is None else overs
    groups = _keyed(s, node, scope, alias)
    of_groups = Names("SELECT", groups.column, groups.ask)
    overs.below, overs.final = lambda e: finished(bind(e, of_groups)), groups.final
    names = replace(of_groups, special=lambda e: overs.ask(e) or groups.ask(e))

    def value(i: ast.SelectItem) -> Item:
        return Item(i.alias or default_name(i.expr), finished(bind(i.expr, names)), i.span, i.expr)

    items: list[Item] = []
    for i in listed(s.items, scope, value):
        with with_span(i.span):
            e = i.expr if i.written is not None else groups.lifted(i.expr, scope.written(i.name, i.expr))
            items.append(replace(i, expr=e, type=usual_name(e.type)))
    having = bind_condition(s.having, replace(of_groups, clause="HAVING")) if s.having is not None else None

    def finished_node() -> Node:
        made = groups.node()
        return overs.node(made if having is None else Filter(made, groups.final(having)))

    types: dict[Expr, str] = {c: usual_name(c.type) for c, _ in groups.keys}
    return Grouped(finished_node, items, types, overs.below, groups.final)


def _keyed(s: ast.Select, node: Node, scope: Scope, alias: str) -> _Groups:
    """The groups of a SELECT over one reading of its FROM."""
    alias = own(alias)  # items may have any name

    def below(e: ast.Expr, clause: str) -> Expr:
        return bound(e, clause, scope.expr)

    groups = _Groups(below, Aggregations(f"{alias}.aggregate_"), read=node, scope=scope, alias=alias)
    sets = _sets(s, scope)
    if len(sets) > 1:
        groups.sets = _Sets(sets, Col(f"{alias}.set", Scalar.INT), Col(f"{alias}.of_set", Scalar.INT))
        groups.read = multiplied(node, groups.sets.number, len(sets))
        groups.keys.append((groups.sets.key, groups.sets.number))
    exprs = list(dict.fromkeys(e for x in sets for e in x))
    if s.distinct is not None:
        exprs = [i.expr for i in listed(s.items, scope, lambda i: Item("", below(i.expr, "SELECT"), i.span, i.expr))]
    for e in exprs:
        groups.add_key(e)
    if not groups.keys:
        groups.keys.append((Col(f"{alias}.group", Scalar.INT), Lit(0, Scalar.INT)))
    return groups


def _sets(s: ast.Select, scope: Scope) -> list[tuple[Expr, ...]]:
    """What GROUP BY groups by: the sets of its items, each with each. Without ROLLUP, CUBE and GROUPING SETS one."""
    found: list[tuple[Expr, ...]] = [()]
    for e in s.group_by:
        of = _expanded(e) if isinstance(e, ast.GroupingSets) else ((e,),)
        each = [tuple(bound(meant_by(x, s.items, scope), "GROUP BY", scope.expr) for x in one) for one in of]
        found = [(*before, *more) for before in found for more in each]
        if len(found) > MOST_SETS:
            raise SqlError(f"GROUP BY makes {len(found)} sets", e.span, f"take {MOST_SETS} at most")
    return found


def _expanded(e: ast.GroupingSets) -> Iterator[tuple[ast.Expr, ...]]:
    """The sets that ROLLUP and CUBE stand for."""
    if e.kind == "GROUPING SETS":
        yield from e.sets
        return
    if e.kind == "CUBE" and 1 << len(e.sets) > MOST_SETS:
        raise SqlError(f"CUBE makes {1 << len(e.sets)} sets", e.span, f"take {MOST_SETS} at most")
    parts = range(len(e.sets), -1, -1)
    chosen = combinations if e.kind == "CUBE" else lambda sets, n: [sets[:n]]
    for n in parts:
        for some in chosen(e.sets, n):
            yield tuple(x for part in some for x in part)


def meant_by(e: ast.Expr, items: tuple[ast.SelectItem, ...], scope: Scope) -> ast.Expr:
    """A grouping expression: also the number or the alias of an item."""
    if isinstance(e, ast.Name) and any(c.name == e.parts[0] for c in scope.columns):
        return e
    place = place_of(e, [i.alias for i in items])
    return e if place is None else items[place].expr
