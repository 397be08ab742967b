"""GROUP BY, DISTINCT and aggregates in views.

In: a SELECT with groups, the node it reads. Out: the changes of its groups, and the items over them.
Rule: NULLs make one group; a group without rows is gone; an aggregate of nothing is NULL, COUNT is 0. Without GROUP BY
there is one group, which always has its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal as PyDecimal
from itertools import combinations

from braid.bind.expressions import Aggregations, any_of, children, with_span
from braid.bind.risingwave.batch_aggregates import is_known
from braid.bind.risingwave.expressions import Names, bind, bind_condition, bound, condition, usual_name
from braid.bind.risingwave.over import Overs
from braid.bind.risingwave.scope import default_name
from braid.bind.select.aggregates import WITH_NULLS, WITHIN, Asked, OrderedBy, ignores_distinct, value
from braid.bind.select.grouping import Groups
from braid.bind.select.items import Item, listed, place_of
from braid.bind.select.scope import Scope
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Call, Col, Expr, Lit, MakeStruct, substituted
from braid.expr.postgres import typing as postgres
from braid.expr.postgres.typing import finished
from braid.plan.epochs import Changes
from braid.plan.groups import GATHER, PRESENT, Aggregate, Aggregation
from braid.plan.logical import Filter, Lateral, Node
from braid.plan.names import level_of, own
from braid.sql import ast
from braid.types import TIMESTAMPS, WHOLE_NUMBERS, Array, Decimal, Scalar, Type

_ZEROS: dict[Type, object] = {
    Scalar.BOOLEAN: False,
    Scalar.SMALLINT: 0,
    Scalar.INT: 0,
    Scalar.BIGINT: 0,
    Scalar.REAL: 0.0,
    Scalar.DOUBLE: 0.0,
    Scalar.VARCHAR: "",
    Scalar.BYTES: b"",
    Scalar.DATE: date(1970, 1, 1),
    Scalar.TIME: time_of_day(),
    **dict.fromkeys(TIMESTAMPS, datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)),
}
_WRITTEN_ONE_WAY = (*WHOLE_NUMBERS, Scalar.VARCHAR, Scalar.BOOLEAN, Scalar.DATE)
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
    """Over the rows `read`. `distinct`: what is asked of different values of an expression; `aggregations`: of all
    rows."""

    read: Node
    scope: Scope
    alias: str
    distinct: dict[Expr, Aggregations] = field(default_factory=dict)
    sets: _Sets | None = None

    @property
    def over_table(self) -> bool:
        return self.read.mode != "append"

    def add_key(self, e: Expr) -> None:
        """Each is nullable: a table's key behind an outer join, too, and a view's key columns."""
        if e in self.shown:
            return
        n = len(self.shown)
        by = _told_apart(e)
        value = by if self.sets is None else self.sets.value(by, e)
        missing, key = _nullable(f"{self.alias}.group_{n}", value)
        self.keys += [missing, key]
        self.shown[e] = typing.case([(missing[0], Lit(None, e.type))], postgres.cast(key[0], e.type))

    def ask(self, e: ast.Expr) -> Expr | None:
        """What an aggregate gives that only this dialect has, or the key that `e` is, if it is a grouping
        expression."""
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
        args, order = self.arguments(call) or [], tuple(map(self._ordered, order_by))
        passes = None if where is None else condition(where, "FILTER", self.scope.expr)
        if not call.distinct or ignores_distinct(call.name):
            return value(Asked(call.name, tuple(args), self.aggregations, self.over_table, passes, order))
        if len(args) != 1 and call.name != "STRING_AGG":
            raise SqlError(f"DISTINCT in {call.name.lower()} takes one value", call.span, "name one")
        if any(o.by != args[0] for o in order):
            hint = "order by the value itself, or GROUP BY it in a sub-query"
            raise SqlError(f"{call.name.lower()} with DISTINCT is ordered by its value only", call.span, hint)
        if passes is not None and call.name in WITH_NULLS:
            hint = "filter in a sub-query: FROM (SELECT … WHERE …)"
            raise SqlError(f"{call.name.lower()} with DISTINCT and FILTER is not supported yet", call.span, hint)
        of = args[0] if passes is None else typing.case([(passes, args[0])])
        n = len(self.distinct)
        into = self.distinct.setdefault(of, Aggregations(f"{self.alias}.distinct_{n}_"))
        one = Col(_value_of(into), of.type)
        order = tuple(replace(o, by=one) for o in order)
        return value(Asked(call.name, (one, *args[1:]), into, True, None, order))

    def _ordered(self, i: ast.OrderItem) -> OrderedBy:
        first = i.descending if i.nulls_first is None else i.nulls_first
        return OrderedBy(self.below(i.expr, "ORDER BY"), i.descending, first)

    def node(self) -> Node:
        """The changes of the groups. One that has no rows any more is gone."""
        if self.distinct:
            return self._of_different()
        rows = self.aggregations.column("COUNT", None, Scalar.BIGINT) if self.shown and self.over_table else None
        return _grouped(self.read, self.keys, self.aggregations.made, rows)

    def _of_different(self) -> Node:
        """Groups over groups. Below, each row counts once for each DISTINCT, by its value, and once for all others:
        `part` says for which."""
        alias, node = self.alias, self.read
        part, among = Col(f"{alias}.part", Scalar.INT), Col(f"{alias}.of_part", Scalar.INT)
        alone = len(self.distinct) == 1 and not self.aggregations.made

        def of(column: Col, n: int, e: Expr) -> Expr:
            return e if alone else typing.case([(typing.call("eq", [column, Lit(n, Scalar.INT)]), e)])

        fixed: list[tuple[Col, Expr]] = [(c, e) for c, e in self.keys if isinstance(e, Lit)]
        keys: list[tuple[Col, Expr]] = [
            (Col(f"{c.name}_below", c.type), e) for c, e in self.keys if not isinstance(e, Lit)
        ]
        above: list[tuple[Col, Expr]] = [
            *fixed,
            *((c, Col(f"{c.name}_below", c.type)) for c, e in self.keys if not isinstance(e, Lit)),
        ]
        if not alone:
            node = _multiplied(node, part, len(self.distinct) + 1)
            keys.append((among, part))
        given: dict[str, Expr] = {}
        for n, (e, into) in enumerate(self.distinct.items(), 1):
            missing, key = _nullable(f"{alias}.value_{n}", of(part, n, _told_apart(e)))
            keys += [missing, key]
            shown = typing.case([(missing[0], Lit(None, e.type))], postgres.cast(key[0], e.type))
            given[_value_of(into)] = of(among, n, shown)
        below = Aggregations(f"{alias}.below_")
        picked = [
            _picked(a, of(among, 0, below.column(a.function, of(part, 0, _what(a)), a.output.type, a.options, a.code)))
            for a in self.aggregations.made
        ]
        rows = below.column("COUNT", None, Scalar.BIGINT) if node.mode != "append" else None
        node = _grouped(node, keys, below.made, rows)
        parts = [(None if alone else typing.call("eq", [among, Lit(n, Scalar.INT)]), into.made)
                 for n, into in enumerate(self.distinct.values(), 1)]  # fmt: skip
        each = [a if mine is None else _of_part(a, mine) for mine, these in parts for a in these]
        made = [replace(a, arg=None if a.arg is None else substituted(a.arg, given)) for a in each]
        every = Aggregation(Col(f"{alias}.rows", Scalar.BIGINT), "COUNT", None)
        return _grouped(node, above, [*picked, *made, every], every.output if self.shown else None)

    def final(self, e: Expr) -> Expr:
        """An item over the columns of `node`. What was counted below another group is a pick: none of nothing."""
        if not self.distinct:
            return e
        above: dict[str, Expr] = {}
        for a in self.aggregations.made:
            if a.function == "COUNT":
                above[a.output.name] = typing.call("COALESCE", [a.output, Lit(0, Scalar.BIGINT)])
            if a.function == GATHER:
                one = _picked(a, a.output).output
                first = postgres.row("pg.subscript", [one, Lit(1, Scalar.BIGINT)])
                above[a.output.name] = typing.field(first, "V")
        return substituted(e, above)


def _picked(a: Aggregation, of: Expr) -> Aggregation:
    """What gives the one value of part 0; that of a count need not be kept beside its group. An array is in one."""
    if a.function != GATHER:
        return Aggregation(a.output, "SUM" if a.function == "COUNT" else "MAX", of)
    each = typing.struct([(PRESENT, typing.call("is_not_null", [of])), ("V", of)])
    return Aggregation(Col(f"{a.output.name}_picked", Array(each.type)), GATHER, each)


def _of_part(a: Aggregation, mine: Expr) -> Aggregation:
    """One that has NULLs, too: of its part alone, since the rows of others have no value."""
    match a.arg:
        case None:
            return replace(a, arg=typing.case([(mine, Lit(1, Scalar.INT))]))
        case MakeStruct(fields=((name, Lit(value=True)), *others)) if a.function == GATHER:
            return replace(a, arg=typing.struct([(name, mine), *others]))
        case _:
            return a


def _what(a: Aggregation) -> Expr:
    return Lit(1, Scalar.INT) if a.arg is None else a.arg


def _value_of(into: Aggregations) -> str:
    """Where a value stands whose different ones are aggregated."""
    return f"{into.name}value"


def _grouped(node: Node, keys: Sequence[tuple[Col, Expr]], made: Sequence[Aggregation], rows: Expr | None) -> Node:
    """The changes of groups. `rows`: how many a group has, where it may have none any more."""
    made, counted = list(made), None
    if node.mode != "append" and any(a.leaves for a in made):
        counted = next((a.output for a in made if a.function == "COUNT" and a.arg is None), None)
        if counted is None:
            counted = Col(f"{level_of(keys[0][0].name)}.rows", Scalar.BIGINT)
            made.append(Aggregation(counted, "COUNT", None))
    found: Node = Aggregate(node, tuple(keys), tuple(made), rows=counted)
    if rows is not None:
        found = Filter(found, typing.call("gt", [rows, Lit(0, Scalar.BIGINT)]))
    return Changes(found)


def _nullable(name: str, e: Expr) -> tuple[tuple[Col, Expr], tuple[Col, Expr]]:
    """Two columns of a key for a value that may be NULL: whether it is, and another value in its place."""
    missing = Col(f"{name}_is_null", Scalar.BOOLEAN), typing.call("is_null", [e])
    return missing, (Col(name, e.type), typing.call("COALESCE", [e, Lit(_zero(e.type), e.type)]))


def _multiplied(node: Node, number: Col, count: int) -> Node:
    """Each row so many times, with its number from 0."""
    numbers = tuple(Lit(n, Scalar.INT) for n in range(count))
    index = None if node.mode == "append" else Col(f"{number.name}_index", Scalar.INT)
    return Lateral(node, Call("make_array", numbers, Array(Scalar.INT)), number, index)


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
        return by if len(having) == len(self.sets) else typing.case([(self._is_one(self.number, having), by)])

    def grouping(self, args: Sequence[Expr]) -> Expr:
        """Which of the arguments are not grouped by: a bit each, the last one the lowest."""
        if not args or any(not any(a in s for s in self.sets) for a in args):
            raise SqlError("grouping takes what GROUP BY has", hint="write an expression of GROUP BY")
        bits = [sum(1 << len(args) - 1 - i for i, a in enumerate(args) if a not in s) for s in self.sets]
        whens = [(self._is_one(self.key, [n]), Lit(b, Scalar.INT)) for n, b in enumerate(bits)]
        return typing.case(whens)

    @staticmethod
    def _is_one(number: Col, of: Sequence[int]) -> Expr:
        return any_of([typing.call("eq", [number, Lit(n, Scalar.INT)]) for n in of], _or)


def _or(a: Expr, b: Expr) -> Expr:
    return typing.call("or", [a, b])


def has_aggregates(s: ast.Select) -> bool:
    return any(_has_aggregates(i.expr) for i in s.items)


def _check_order(e: ast.LongCall) -> None:
    shown = e.call.name.lower()
    if e.call.name in WITHIN and e.order_by:
        raise SqlError(f"{shown} takes its ORDER BY in WITHIN GROUP", e.span, "write … WITHIN GROUP (ORDER BY x)")
    if e.call.name not in WITHIN and e.within_group:
        raise SqlError(f"{shown} takes no WITHIN GROUP", e.span, f"write {shown}(x ORDER BY y)")


def _has_aggregates(e: ast.Expr) -> bool:
    match e:
        case ast.LongCall(call=call, over=None) | (ast.Call() as call) if is_known(call.name):
            return True
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
        groups.read = _multiplied(node, groups.sets.number, len(sets))
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


def _told_apart(e: Expr) -> Expr:
    """What values are grouped by: themselves; arrays by their text, where equal ones have the same."""
    t = e.type
    while isinstance(t, Array):
        t = t.element
    return postgres.cast(e, Scalar.VARCHAR) if t is not e.type and t in _WRITTEN_ONE_WAY else e


def _zero(t: Type) -> object:
    """A value that stands in the key for NULL."""
    if isinstance(t, Decimal):
        return PyDecimal(0)
    if t not in _ZEROS:
        raise SqlError(f"GROUP BY takes no {t}", hint="group by a text of it: x::varchar")
    return _ZEROS[t]
