"""Calls over rows (OVER) in views, and LIMIT: which rows they read, in which order.

In: calls with their windows, as written; what expressions mean over the rows below. Out: columns that stand for them,
and the nodes that compute these.
Rule: PostgreSQL's: without a frame a call reads from the first row of its partition to the last peer of its row, and
without ORDER BY all of it; NULLs are above all values. Calls with one partition and order share a node. Rows that are
equal in their order stand by their key. (docs/rules/risingwave.md, "Calls over rows")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from braid.bind.expressions import Aggregations, children, with_span
from braid.bind.risingwave.batch_aggregates import WINDOWS, is_known
from braid.bind.select.aggregates import Asked, row_count, value
from braid.errors import Span, SqlError
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.expr.postgres import typing
from braid.plan.groups import Aggregation
from braid.plan.logical import Filter, Node, Project
from braid.plan.over import AGGREGATES, OTHERS, RANGE, RANKS, ROWS, Frame, Ordered, Over, Windowed
from braid.sql import ast
from braid.types import Array, Map, Scalar, Struct

S = Scalar
_Window = tuple[tuple[Col, ...], tuple[Ordered, ...]]
_WHOLE = Frame(RANGE, None, None)


def has_over(e: ast.Expr) -> bool:
    """Whether a call over rows stands in it."""
    return (isinstance(e, ast.LongCall) and e.over is not None) or any(map(has_over, children(e)))


def named_windows(s: ast.Select) -> dict[str, ast.Over]:
    """The WINDOW clause."""
    found: dict[str, ast.Over] = {}
    for name, over in s.windows:
        assert isinstance(over, ast.Over)
        if name in found:
            raise SqlError(f"window {name} is written twice", over.span, "give one of them another name")
        found[name] = over
    return found


@dataclass(slots=True)
class Overs:
    """The calls of a SELECT, collected as they are bound. `named`: its WINDOW clause; `alias`: of their columns;
    `below`: binds an expression over the rows; `final`: what that is over the columns of their node."""

    named: Mapping[str, ast.Over]
    alias: str
    below: Callable[[ast.Expr], Expr]
    final: Callable[[Expr], Expr] = lambda e: e
    _columns: dict[Expr, Col] = field(default_factory=dict)
    _windows: dict[_Window, list[Windowed]] = field(default_factory=dict)

    def ask(self, e: ast.Expr) -> Expr | None:
        """What a call over rows gives; None of anything else."""
        if not isinstance(e, ast.LongCall) or e.over is None:
            return None
        call, shown = e.call, e.call.name.lower()
        if e.order_by or e.within_group or call.distinct:
            what = "DISTINCT" if call.distinct else "an ORDER BY of its own"
            raise SqlError(f"{shown} with OVER takes no {what}", e.span, "leave it out")
        if any(map(has_over, (*call.args, *e.over.partition_by, *(i.expr for i in e.over.order_by)))):
            hint = "compute the inner one in a sub-query: FROM (SELECT *, … OVER (…) AS x FROM t)"
            raise SqlError("calls over rows are not nested", e.span, hint)
        over = self._resolved(e.over, ())
        partition = tuple(self._plain(x, "PARTITION BY") for x in over.partition_by)
        order = [(self._orderable(i.expr, "ORDER BY"), i) for i in over.order_by]
        frame, order = self._frame(over, order)
        window = partition, tuple(ordered(self._column(x), i) for x, i in order)
        with with_span(e.span):
            return self._call(e, window, frame)

    def node(self, below: Node) -> Node:
        """The rows with the columns of all calls."""
        if not self._windows:
            return below
        made = [(c, self.final(x)) for x, c in self._columns.items() if x != c]
        node: Node = Project(below, (*((c, c) for c in below.schema), *made)) if made else below
        for (partition, order), calls in self._windows.items():
            node = Over(node, partition, order, _key(node), tuple(calls))
        return node

    # ---------------------------------------------------------------- calls

    def _call(self, e: ast.LongCall, window: _Window, frame: Frame) -> Expr:
        call, where = e.call, e.where
        name, shown = call.name, call.name.lower()
        star = len(call.args) == 1 and isinstance(call.args[0], ast.Star)
        args = [] if star else [self.below(x) for x in call.args]
        if name in RANKS or name in OTHERS:
            if where is not None:
                raise SqlError(f"{shown} takes no FILTER", where.span, "filter its rows in a sub-query")
            return self._of_rows(name, args, window, frame, e.ignores_nulls)
        if not is_known(name):
            hint = f"those over rows are {', '.join(n.lower() for n in (*RANKS, *OTHERS))} and aggregates"
            if name in WINDOWS:
                raise SqlError(f"RisingWave has no {shown} over rows", hint=f"{hint}; a batch query may have it")
            raise SqlError(f"{shown} is no call over rows", hint=hint)
        into = Aggregations(f"{self.alias}.over_{self._count()}_")
        passes = None if where is None else typing.logic_value(self.below(where))
        made = value(Asked(name, tuple(args), into, True, passes))
        wrong = next((a for a in into.made if a.function not in AGGREGATES or a.code is not None), None)
        if wrong is not None:
            hint = "count, sum, avg, min, max, stddev, variance and logical ones may have it; in a batch query all may"
            raise SqlError(f"{shown} with OVER in a view is not supported yet", hint=hint)
        for a in into.made:
            self._add(window, a.output, a.function, a.arg, frame)
        return made

    def _of_rows(self, name: str, args: list[Expr], window: _Window, frame: Frame, ignores_nulls: bool = False) -> Expr:
        """A rank, or the value of another row."""
        shown, by = name.lower(), 1 if ignores_nulls else None
        if name in RANKS:
            if args:
                raise SqlError(f"{shown} takes nothing", hint=f"write {shown}() OVER (…)")
            return self._add(window, Col(f"{self.alias}.over_{self._count()}", S.BIGINT), name, None, _WHOLE)
        moves = name in ("LAG", "LEAD")
        if len(args) not in ((1, 2, 3) if moves else (1,)):
            usage = "a value, by how many rows, and what it is without such a row" if moves else "one value"
            raise SqlError(f"{shown} takes {usage}", hint=f"write {shown}(x) OVER (…)")
        if len(args) == 3:
            args, none = typing.alike(f"the value and the default of {shown}", [args[0], args[2]])[1], args[1]
            found = [self._of_rows(name, [x, none], window, frame) for x in (Lit(True, S.BOOLEAN), args[0])]
            return typing.case([(Call("is_null", (found[0],), S.BOOLEAN), self._column(args[1]))], found[1])
        if moves:
            frame, by = _WHOLE, row_count(shown, args[1]) if len(args) == 2 else 1
        output = Col(f"{self.alias}.over_{self._count()}", args[0].type)
        return self._add(window, output, name, args[0], frame, () if by is None else (by,))

    def _add(
        self, window: _Window, output: Col, name: str, arg: Expr | None, frame: Frame, options: tuple[int, ...] = ()
    ) -> Col:
        column = None if arg is None else self._column(arg)
        self._windows.setdefault(window, []).append(Windowed(Aggregation(output, name, column, options), frame))
        return output

    def _count(self) -> int:
        return sum(map(len, self._windows.values()))

    def _column(self, e: Expr) -> Col:
        """The column of the rows below that has it."""
        if e not in self._columns:
            self._columns[e] = e if isinstance(e, Col) else Col(f"{self.alias}.of_over_{len(self._columns)}", e.type)
        return self._columns[e]

    # -------------------------------------------------------------- windows

    def _resolved(self, over: ast.Over, seen: tuple[str, ...]) -> ast.Over:
        """With what it takes of the WINDOW clause."""
        if over.base is None:
            return over
        base = self.named.get(over.base)
        if base is None or over.base in seen:
            hint = f"windows are {', '.join(self.named)}" if self.named else "write WINDOW w AS (…) behind FROM"
            raise SqlError(f"there is no window {over.base}", over.span, hint)
        base = self._resolved(base, (*seen, over.base))
        if over.partition_by:
            raise SqlError(f"window {over.base} has its partition", over.span, "leave PARTITION BY out")
        if base.order_by and over.order_by:
            raise SqlError(f"window {over.base} has its order", over.span, "leave ORDER BY out")
        own = over.frame or base.frame
        return ast.Over(None, base.partition_by, over.order_by or base.order_by, own, over.span)

    def _plain(self, e: ast.Expr, clause: str) -> Col:
        return self._column(self._orderable(e, clause))

    def _orderable(self, e: ast.Expr, clause: str) -> Expr:
        return orderable(self.below(e), clause, e.span)

    def _frame(
        self, over: ast.Over, order: list[tuple[Expr, ast.OrderItem]]
    ) -> tuple[Frame, list[tuple[Expr, ast.OrderItem]]]:
        """The frame; and the order, of which the bounds of a range may need another type."""
        f = over.frame
        if f is None:
            return (Frame(RANGE, None, 0) if order else _WHOLE), order
        if f.unit not in (ROWS, RANGE) or f.exclude not in ("", "NO OTHERS"):
            what = f"EXCLUDE {f.exclude}" if f.unit in (ROWS, RANGE) else f.unit
            raise SqlError(f"{what} in a view is not supported yet", f.span, "write ROWS or RANGE BETWEEN … AND …")
        start, end = f.start, f.end or (None, "CURRENT ROW")
        _check_bounds(f, start[1], end[1])
        if f.unit == ROWS:
            return Frame(ROWS, _by_rows(self, start), _by_rows(self, end)), order
        if start[0] is None and end[0] is None:
            return Frame(RANGE, _outermost(start[1]), _outermost(end[1])), order
        if len(order) != 1:
            raise SqlError("RANGE with a distance needs one value to ORDER BY", f.span, "write ORDER BY x, or ROWS")
        (by, item), bounds = order[0], []
        for amount, word in (start, end):
            if amount is not None:
                back = (word == "PRECEDING") != item.descending
                with with_span(amount.span):
                    by, made = _distance(by, self.below(amount), "-" if back else "+")
                bounds.append(made)
        bounds = [typing.coerced(x, by.type) for x in bounds]
        low = self._column(bounds.pop(0)) if start[0] is not None else _outermost(start[1])
        high = self._column(bounds.pop(0)) if end[0] is not None else _outermost(end[1])
        return Frame(RANGE, low, high), [(by, item)]


def orderable(e: Expr, clause: str, span: Span) -> Expr:
    """What rows may be parted or ordered by."""
    if isinstance(e.type, Array | Map | Struct) or e.type is S.INTERVAL:
        raise SqlError(f"{clause} takes no {e.type} in a view yet", span, "take a plain value of it")
    return e


def ordered(column: Col, item: ast.OrderItem) -> Ordered:
    first = item.descending if item.nulls_first is None else item.nulls_first
    return Ordered(column, item.descending, first)


_PLACES = ("UNBOUNDED PRECEDING", "PRECEDING", "CURRENT ROW", "FOLLOWING", "UNBOUNDED FOLLOWING")


def _check_bounds(f: ast.Frame, start: str, end: str) -> None:
    if start == _PLACES[-1] or end == _PLACES[0] or _PLACES.index(start) > _PLACES.index(end):
        hint = "a frame begins before it ends: ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
        raise SqlError(f"a frame from {start} to {end} is not possible", f.span, hint)


def _outermost(word: str) -> int | None:
    return 0 if word == "CURRENT ROW" else None


def _by_rows(overs: Overs, bound: tuple[ast.Expr | None, str]) -> int | None:
    amount, word = bound
    if amount is None:
        return _outermost(word)
    with with_span(amount.span):
        return row_count("ROWS", overs.below(amount)) * (-1 if word == "PRECEDING" else 1)


def _distance(by: Expr, amount: Expr, sign: str) -> tuple[Expr, Expr]:
    """What rows are ordered by, and the value so far from it, of one type."""
    if not isinstance(amount, Lit):
        raise SqlError("a distance of RANGE is a constant", hint="write INTERVAL '10 minutes', or a number")
    if _is_negative(amount.value):
        raise SqlError("a distance is not below zero", hint="PRECEDING and FOLLOWING say in which direction it goes")
    made = typing.operator(sign, [by, amount])
    return (by if made.type == by.type else typing.coerced(by, made.type)), made


def _is_negative(value: object) -> bool:
    parts = value if isinstance(value, tuple) else (value,)
    return any(isinstance(x, bool) is False and x < 0 for x in cast("tuple[int, ...]", parts))


def _key(node: Node) -> tuple[Col, ...]:
    return tuple(e for e in node.row_key if isinstance(e, Col))


# ---------------------------------------------------------------------- LIMIT


def first_rows(
    node: Node,
    name: str,
    partition: Sequence[Expr],
    order: Sequence[tuple[Expr, ast.OrderItem]],
    rows: tuple[int, int | None],
    ties: bool = False,
) -> Node:
    """Of each partition, in this order, the rows behind so many, and up to so many of them; with `ties` those that are
    equal in the order to the last of these, too."""
    number, (before, most) = Col(f"{name}.number", S.BIGINT), rows
    given = dict.fromkeys((*partition, *(e for e, _ in order)))
    columns = {e: e if isinstance(e, Col) else Col(f"{name}.by_{i}", e.type) for i, e in enumerate(given)}
    made = [(c, e) for e, c in columns.items() if c != e]
    node = Project(node, (*((c, c) for c in node.schema), *made)) if made else node
    by = tuple(ordered(columns[e], item) for e, item in order)
    call = Windowed(Aggregation(number, "RANK" if ties else "ROW_NUMBER", None), _WHOLE)
    node = Over(node, tuple(columns[e] for e in partition), by, _key(node), (call,))
    for sign, bound in ((">", before or None), ("<=", None if most is None else before + most)):
        if bound is not None:
            node = Filter(node, typing.compare(sign, number, Lit(bound, S.BIGINT)))
    return node
