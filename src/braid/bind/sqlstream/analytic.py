"""Analytic calls: aggregates and values of other rows over the windows of a stream's rows.

In: calls with OVER, as written; what expressions mean over the rows below. Out: columns that stand for them, and the
nodes that compute these.
Rule: each row goes out once, with what the calls give it of the rows of its partition that came before it. Calls with
one partition share a node. (docs/rules/sqlstream.md, "Analytic functions")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from braid.bind.expressions import Aggregations, children, with_span
from braid.bind.insert import fits
from braid.bind.select.aggregates import row_count
from braid.bind.sqlstream import aggregates
from braid.bind.sqlstream.relation import Context, life, time_of
from braid.bind.sqlstream.scope import as_timestamp, assigned
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr
from braid.plan.analytic import AGGREGATES, LAG, NTH, Analytic, Analyzed
from braid.plan.groups import Aggregation
from braid.plan.logical import Node, Project
from braid.plan.sliding import Frame
from braid.sql import ast
from braid.types import Scalar

OF_ROWS = ("FIRST_VALUE", "LAST_VALUE", NTH, LAG)


def has_window(e: ast.Expr) -> bool:
    """Whether a call with OVER stands in it."""
    return isinstance(e, ast.WindowCall) or any(map(has_window, children(e)))


@dataclass(slots=True)
class Analytics:
    """The calls of a SELECT, collected as they are bound. `below`: binds an expression over the rows, for a clause;
    `rowtime`: of these rows; None: of tables, which have no windows."""

    context: Context
    rowtime: Col | None
    below: Callable[[ast.Expr, str], Expr]
    _columns: dict[Expr, Col] = field(default_factory=dict)
    _parts: dict[tuple[Col, ...], list[Analyzed]] = field(default_factory=dict)

    def ask(self, e: ast.Expr) -> Expr | None:
        """What a call with OVER gives; None of anything else."""
        if not isinstance(e, ast.WindowCall):
            return None
        window = self.context.window(e.over)
        if self.rowtime is None:
            raise SqlError("the rows of tables have no windows", e.span, "read a stream")
        if any(map(has_window, (*e.call.args, *window.partition_by))):
            hint = "compute the inner one in a sub-query: FROM (SELECT STREAM *, … OVER (…) AS x FROM s) AS q"
            raise SqlError("calls with OVER are not nested", e.span, hint)
        time = time_of(window)
        if time is not None and self.below(time, "ORDER BY") != as_timestamp(self.rowtime):
            raise SqlError(f"{time} is not the time of these rows", time.span, "write ROWTIME, the time of the result")
        partition = tuple(self._column(self.below(x, "PARTITION BY")) for x in window.partition_by)
        calls = self._parts.setdefault(partition, [])
        with with_span(e.span):
            return self._value(e, life(window), calls)

    def node(self, below: Node) -> Node:
        """The rows with the columns of all calls."""
        if not self._parts:
            return below
        assert self.rowtime is not None
        made = [(c, x) for x, c in self._columns.items() if x != c]
        node: Node = Project(below, (*((c, c) for c in below.schema), *made)) if made else below
        for partition, calls in self._parts.items():
            node = Analytic(node, partition, self.rowtime, tuple(calls))
        return node

    # ---------------------------------------------------------------- calls

    def _value(self, e: ast.WindowCall, frame: Frame, calls: list[Analyzed]) -> Expr:
        name, star = e.call.name, len(e.call.args) == 1 and isinstance(e.call.args[0], ast.Star)
        args = [] if star else [self.below(x, f"the call {name}") for x in e.call.args]
        if e.call.distinct:
            raise SqlError(f"{name}(DISTINCT …) with OVER is not supported yet", hint="leave DISTINCT out")
        if name in OF_ROWS:
            return self._of_rows(e, args, frame, calls)
        if e.ignores_nulls:
            raise SqlError(f"{name} takes no IGNORE NULLS", hint="leave it out: aggregates pass NULLs over")
        into = Aggregations(f"{self.context.prefix}.OVER{self._count()}_")
        if not aggregates.is_aggregate(name):
            hint = f"those with OVER are {', '.join((*OF_ROWS, *aggregates.FUNCTIONS))}"
            raise SqlError(f"{name} is no call with OVER", hint=hint)
        found = aggregates.value(e.call, args, into)
        if any(a.function not in AGGREGATES or a.code is not None for a in into.made):
            raise SqlError(f"{name} with OVER is not supported yet", hint="GROUP BY a period of ROWTIME takes it")
        for a in into.made:
            arg = None if a.arg is None else self._column(a.arg)
            calls.append(Analyzed(Aggregation(a.output, a.function, arg, a.options), frame))
        return found

    def _of_rows(self, e: ast.WindowCall, args: list[Expr], frame: Frame, calls: list[Analyzed]) -> Expr:
        """The value of another row."""
        name, default = e.call.name, None
        fewest, most = {NTH: (2, 2), LAG: (1, 3)}.get(name, (1, 1))
        if not fewest <= len(args) <= most:
            usage = {NTH: "(x, 2)", LAG: "(x), LAG(x, 2) or LAG(x, 2, 0)"}.get(name, "(x)")
            what = "one value" if most == 1 else "a value and a number of rows"
            raise SqlError(f"{name} takes {what}", hint=f"write {name}{usage}")
        value, by = args[0], row_count(name, args[1]) if len(args) > 1 else 1
        if name == NTH and not by:
            raise SqlError("NTH_VALUE counts rows from 1", hint="write NTH_VALUE(x, 1)")
        if len(args) == 3:
            if not fits(args[2].type, value.type):
                message = f"LAG of {value.type} has no {args[2].type} in its place"
                raise SqlError(message, hint=f"CAST it AS {value.type}")
            default = self._column(assigned(args[2], value.type))
        from_last = name == "LAST_VALUE" or e.from_last
        options = (by, e.ignores_nulls) if name == LAG else (by, from_last, e.ignores_nulls)
        output = Col(f"{self.context.prefix}.OVER{self._count()}", value.type)
        made = Aggregation(output, LAG if name == LAG else NTH, self._column(value), options)
        calls.append(Analyzed(made, frame, default))
        return output

    def _count(self) -> int:
        return sum(map(len, self._parts.values()))

    def _column(self, e: Expr) -> Col:
        """The column of the rows below that has it."""
        if e.type is Scalar.NULL:
            e = typing.cast(e, Scalar.VARCHAR)
        if e not in self._columns:
            own = Col(f"{self.context.prefix}.OF_OVER{len(self._columns)}", e.type)
            self._columns[e] = e if isinstance(e, Col) else own
        return self._columns[e]
