"""GROUP BY, DISTINCT and ORDER BY over periods of ROWTIME.

In: clauses as written, the node below them with its rowtime. Out: nodes whose rows go out when their period is over,
and what names mean over them.
Rule: a stream has no end, so rows are grouped and sorted by periods of its time. A period is ROWTIME, or FLOOR, CEIL or
STEP of it, maybe moved by an interval: what changes with ROWTIME and never falls. The time of a result is the first
instant after its period; where ROWTIME itself is grouped by, or sorted by, it stays. (docs/rules/sqlstream.md,
"Groups")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from braid.bind.expressions import Aggregations, bind_expr, bind_predicate, children, with_span
from braid.bind.select.grouping import Groups
from braid.bind.select.items import Item, listed, places_of
from braid.bind.select.scope import Scope
from braid.bind.sqlstream import aggregates
from braid.bind.sqlstream.analytic import Analytics, has_window
from braid.bind.sqlstream.scope import ROWTIME, as_timestamp, column, rules
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Call, Col, Expr, Lit, substituted
from braid.plan.analytic import OPENED, Analytic, Analyzed
from braid.plan.groups import Aggregate, Aggregation, Closed, Order
from braid.plan.logical import Filter, Node, Project
from braid.plan.sliding import Bound, RangeFrame
from braid.sql import ast
from braid.types import Scalar

EXAMPLE = "FLOOR(ROWTIME TO MINUTE), or STEP(ROWTIME BY INTERVAL '10' SECOND)"
_MS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
_MONTHS = {"MONTH": 1, "YEAR": 12}


# --------------------------------------------------------------------- periods


def period_end(e: Expr, rowtime: Col) -> Expr | None:
    """The first instant (ms) at which an expression has another value than at the rowtime, where it never falls; None:
    it is not known that it does not."""
    match e:
        case Call(function="sql.floor_to" | "sql.ceil_to" | "sql.step_by", args=(time, Lit(value=by))):
            moved = _moved(time, rowtime)
            return None if moved is None else _less(_rounded_end(e, by), moved, rowtime)
        case Call(function="sql.unix_timestamp" | "shift", args=(time, *_)):
            return period_end(time, rowtime)
        case _ if e == as_timestamp(rowtime):
            return _plus(rowtime, 1)
        case _:
            return None


def _rounded_end(e: Call, by: object) -> Expr:
    """The first instant that is rounded to another value than `e`."""
    if by in _MONTHS:
        if e.function == "sql.floor_to":
            return _ms(typing.call("sql.shift_months", [e, Lit(_MONTHS[str(by)], Scalar.INT)]))
        return _plus(_ms(e), 1)
    match e.function:
        case "sql.ceil_to":
            return _plus(_ms(e), 1)
        case "sql.floor_to":
            return _plus(_ms(e), _MS[str(by)])
        case _:
            assert isinstance(by, int)
            return _plus(_ms(e), by)


def _moved(time: Expr, rowtime: Col) -> int | None:
    """By how much (ms) a time is ahead of the rowtime."""
    match time:
        case Call(function="shift", args=(inner, Lit(value=int(by)))):
            before = _moved(inner, rowtime)
            return None if before is None else before + by
        case _:
            return 0 if time == as_timestamp(rowtime) else None


def _less(end: Expr, moved: int, rowtime: Col) -> Expr:
    """A period that no TIMESTAMP ends is over at once."""
    return typing.call("COALESCE", [_plus(end, -moved), _plus(rowtime, 1)])


def _ms(time: Expr) -> Expr:
    return typing.call("sql.unix_timestamp", [time])


def _plus(ms: Expr, by: int) -> Expr:
    return ms if by == 0 else typing.call("add", [ms, Lit(by, Scalar.BIGINT)])


def _first(ends: Iterable[Expr]) -> Expr:
    """The earliest of several."""
    first, *others = ends
    for other in others:
        first = typing.case([(typing.call("lt", [other, first]), other)], first)
    return first


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a stream. `rowtime`: when they are; `early`: so long (ms) after that all of that time are there;
    `periods`: what, beside ROWTIME, is over with it; `times`: columns that are ROWTIME under another name."""

    node: Node
    rowtime: Col
    early: int = 1
    periods: tuple[Expr, ...] = ()
    times: frozenset[str] = frozenset()

    def end_of(self, e: Expr) -> tuple[Expr, int] | None:
        """When a period is over, and how long before that its rows are; None: it is no period of these rows."""
        if self.is_time(e) or e in self.periods:
            return _plus(self.rowtime, self.early), self.early
        end = period_end(substituted(e, dict.fromkeys(self.times, as_timestamp(self.rowtime))), self.rowtime)
        return None if end is None else (end, 0)

    def is_time(self, e: Expr) -> bool:
        return e == as_timestamp(self.rowtime) or (isinstance(e, Col) and e.name in self.times)


# ---------------------------------------------------------------------- groups


@dataclass(slots=True, kw_only=True)
class _Groups(Groups):
    """`rows`: what is grouped; `closed`: the time of the groups; `exact`: the rows' own is grouped by."""

    rows: Rows
    closed: Col
    exact: bool = False
    clause: str = "GROUP BY"

    def add(self, e: Expr, name: str) -> None:
        """One more key. What the time of a group says is in its key anyway."""
        if e in self.shown:
            return
        if self.rows.is_time(e):
            self.exact = True
            self.shown[e] = as_timestamp(self.closed)
            return
        key = Col(name, e.type)
        self.keys.append((key, e))
        self.shown[e] = key

    def column(self, n: ast.Name) -> Expr:
        if n.parts == (ROWTIME,):
            return as_timestamp(self.closed)
        return self.lifted(self.below(n, "SELECT"), str(n))

    def bare(self, e: Expr, name: str) -> Expr:
        if self.rows.is_time(e):
            hint = "write ROWTIME, the time of the result, or what is grouped by"
            raise SqlError(f"{name} is neither grouped nor aggregated", hint=hint)
        return Groups.bare(self, e, name)

    def instead(self, name: str) -> str:
        return f"add {name} to {self.clause}"

    def ask(self, e: ast.Expr) -> Expr | None:
        """What an aggregate gives, or the key that `e` is, if it is a grouping expression."""
        if isinstance(e, ast.Call) and aggregates.is_aggregate(e.name):
            return aggregates.value(e, self.arguments(e) or [], self.aggregations)
        return None if isinstance(e, ast.Literal | ast.Interval) else self.known(e)

    def has_aggregates(self, e: ast.Expr) -> bool:
        return has_aggregates(e)


def has_aggregates(e: ast.Expr) -> bool:
    if isinstance(e, ast.Call) and aggregates.is_aggregate(e.name):
        return True
    return any(map(has_aggregates, children(e)))


@dataclass(frozen=True, slots=True)
class Grouped:
    """`value`: what an expression means over the groups, for a clause."""

    rows: Rows
    items: list[Item]
    value: Callable[[ast.Expr, str], Expr]


def is_grouped(q: ast.Select) -> bool:
    """Groups, or what needs some."""
    asked = [i.expr for i in q.items if not isinstance(i.expr, ast.Star)]
    return q.distinct is not None or bool(q.group_by) or q.having is not None or any(map(has_aggregates, asked))


def bind_groups(
    q: ast.Select,
    rows: Rows,
    scope: Scope,
    prefix: str,
    item: Callable[[ast.SelectItem, Expr, Col], Item],
    calls: Analytics,
) -> Grouped:
    """`item`: of SELECT, with what it is, and the time of the results; `calls`: those with OVER, of the groups."""

    def below(e: ast.Expr, clause: str) -> Expr:
        return bind_expr(e, rules(clause, column(scope)))

    if q.distinct is not None and (called := next((i for i in q.items if has_window(i.expr)), None)):
        hint = "compute the calls in a sub-query, and SELECT STREAM DISTINCT from that"
        raise SqlError("DISTINCT of calls with OVER is not supported yet", called.span, hint)
    closed = Col(f"{prefix}.CLOSED", Scalar.BIGINT)
    clause = "GROUP BY" if q.stagger is None else "PARTITION BY"
    groups = _Groups(below, Aggregations(f"{prefix}.AGG"), rows=rows, closed=closed, clause=clause)
    if q.distinct is not None and not q.group_by and not any(has_aggregates(i.expr) for i in q.items):
        by, at = _different([(i.expr, i.span) for i in _all(q, scope, below)], rows, groups), q.span
    else:
        by = [(below(e, clause), e.span) for e in q.group_by]
        asked = (i.span for i in q.items if has_aggregates(i.expr))
        at = q.group_by[0].span if q.group_by else q.having.span if q.having is not None else next(asked, q.span)
    rows, end = _staggered(q.stagger, by, rows, prefix) if q.stagger is not None else (rows, _end(q, by, at, rows))
    for n, (e, _) in enumerate(by):
        groups.add(e, f"{prefix}.GROUP{n}")

    def value(e: ast.Expr, clause: str) -> Expr:
        return bind_expr(e, rules(clause, groups.column, groups.ask))

    def selected(e: ast.Expr) -> Expr:
        return bind_expr(e, rules("SELECT", groups.column, lambda x: calls.ask(x) or groups.ask(x)))

    calls.below, calls.rowtime = value, closed
    items: list[Item] = []
    for i in listed(q.items, scope, lambda i: item(i, selected(i.expr), closed)):
        with with_span(i.span):
            e = i.expr if i.written is not None else groups.lifted(i.expr, scope.written(i.name, i.expr))
            items.append(replace(i, expr=e))
    having = bind_predicate(q.having, rules("HAVING", groups.column, groups.ask)) if q.having is not None else None
    until = Col(f"{prefix}.UNTIL", Scalar.BIGINT)
    made = Aggregate(rows.node, (*groups.keys, (until, end)), tuple(groups.aggregations.made), closes=True)
    node: Node = Closed(made, until, closed, int(groups.exact))
    if having is not None:
        node = Filter(node, having)
    times = () if q.stagger is not None else (e for e, _ in by if rows.end_of(e) is not None)
    periods = tuple(groups.shown[e] for e in times if e in groups.shown)
    again = q.distinct is not None and (bool(q.group_by) or bool(groups.aggregations.made))
    if again:
        check_distinct(q, items, groups)
    return Grouped(Rows(calls.node(node), closed, int(groups.exact), periods), items, value)


def _staggered(by_length: ast.Interval, by: list[tuple[Expr, Span]], rows: Rows, prefix: str) -> tuple[Rows, Expr]:
    """The rows, each with when its window was opened: by the first row of its partition, or the first after the window
    before. And when the window is over."""
    if (exact := next((span for e, span in by if rows.is_time(e)), None)) is not None:
        raise SqlError("rows of one ROWTIME make no window that staggers", exact, f"GROUP BY {EXAMPLE}")
    columns = [Col(f"{prefix}.PART{n}", e.type) for n, (e, _) in enumerate(by)]
    below = Project(rows.node, (*((c, c) for c in rows.node.schema), *zip(columns, (e for e, _ in by), strict=True)))
    opened, frame = Col(f"{prefix}.OPENED", Scalar.BIGINT), RangeFrame(Bound(ms=by_length.ms), Bound())
    call = Analyzed(Aggregation(opened, OPENED, None, (by_length.ms,)), frame)
    return replace(rows, node=Analytic(below, tuple(columns), rows.rowtime, (call,))), _plus(opened, by_length.ms)


def _different(by: list[tuple[Expr, Span]], rows: Rows, groups: _Groups) -> list[tuple[Expr, Span]]:
    """What tells rows apart: ROWTIME does not where another period does."""
    others = [(e, span) for e, span in by if not rows.is_time(e)]
    if not any(rows.end_of(e) is not None for e, _ in others):
        return by
    groups.shown |= {e: as_timestamp(groups.closed) for e, _ in by if rows.is_time(e)}
    return others


def _all(q: ast.Select, scope: Scope, below: Callable[[ast.Expr, str], Expr]) -> list[Item]:
    return listed(q.items, scope, lambda i: Item("", below(i.expr, "SELECT"), i.span, i.expr))


def check_distinct(q: ast.Select, items: list[Item], groups: Groups) -> None:
    """DISTINCT of groups, which are different in their keys."""
    missing = next((e for e in groups.shown.values() if all(i.expr != e for i in items)), None)
    if missing is not None:
        hint = "select all of GROUP BY, and leave DISTINCT out; or SELECT STREAM DISTINCT from a sub-query"
        raise SqlError("DISTINCT over GROUP BY needs all that is grouped by", q.span, hint)


def _end(q: ast.Select, by: list[tuple[Expr, Span]], at: Span, rows: Rows) -> Expr:
    """When a group is over: the first of its periods."""
    ends = [end[0] for e, _ in by if (end := rows.end_of(e)) is not None]
    if ends:
        return _first(dict.fromkeys(ends))
    if any(map(_is_said_to_rise, (*q.group_by, *(i.expr for i in q.items)))):
        hint = "make the column the time below: FROM (SELECT STREAM x AS ROWTIME, * FROM s) AS t GROUP BY …"
        raise SqlError("MONOTONIC makes no period, since a row may still come late", at, hint)
    if q.distinct is not None:
        hint = f"select a period of ROWTIME, too: {EXAMPLE}"
        raise SqlError("DISTINCT of a stream without an end never gives a row", at, hint)
    if q.group_by:
        hint = f"group by a period of ROWTIME, too: {EXAMPLE}"
        raise SqlError("groups of a stream without an end are never complete", at, hint)
    what = "HAVING needs GROUP BY" if q.having is not None else "an aggregate of a stream needs GROUP BY"
    raise SqlError(what, at, f"write GROUP BY {EXAMPLE}")


def _is_said_to_rise(e: ast.Expr) -> bool:
    return (isinstance(e, ast.Call) and e.name == "MONOTONIC") or any(map(_is_said_to_rise, children(e)))


# ---------------------------------------------------------------------- sorting


def bind_order(
    order_by: tuple[ast.OrderItem, ...], rows: Rows, items: list[Item], value: Callable[[ast.Expr, str], Expr],
    prefix: str,
) -> Rows:  # fmt: skip
    """Rows that go out sorted, when the period that they are sorted by first is over."""
    found = [Order(sorted_by(o.expr, items, value), o.descending, o.nulls_first) for o in order_by]
    first = order_by[0]
    end = rows.end_of(found[0].by)
    if end is None:
        hint = f"begin with a period of ROWTIME: ORDER BY {EXAMPLE}"
        raise SqlError("a stream without an end is sorted within periods of its time", first.span, hint)
    if first.descending:
        raise SqlError("the time of a stream rises: it cannot be sorted against it", first.span, "leave DESC out")
    until, early = end
    sorted_ = Col(f"{prefix}.SORTED", Scalar.BIGINT)
    return Rows(Closed(rows.node, until, sorted_, early, tuple(found)), sorted_)


def sorted_by(e: ast.Expr, items: list[Item], value: Callable[[ast.Expr, str], Expr]) -> Expr:
    """An item by its number or its name, else an expression over the rows."""
    found = {items[n].expr for n in places_of(e, [None if i.is_time else i.name for i in items])}
    return found.pop() if len(found) == 1 else value(e, "ORDER BY")
