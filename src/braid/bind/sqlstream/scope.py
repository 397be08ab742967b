"""Names and expressions of a query: what is SQLstream's own.

In: the operands of FROM; the name of a clause. Out: what names mean; the `Rules` of `bind_expr`.
Rule: ROWTIME alone is the time of the result, `a.ROWTIME` that of operand a. SQL writes a timestamp with a
blank: CAST('2019-03-30 05:03:30.000' AS TIMESTAMP).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from braid.bind import expressions
from braid.bind.expressions import Rules, bind_expr
from braid.bind.select.scope import Column, Scope, Table
from braid.errors import SqlError
from braid.expr import dates, typing
from braid.expr.functions import by_name
from braid.expr.nodes import Col, Expr, Lit
from braid.sql import ast
from braid.sql.declare import quoted
from braid.sql.dialects.sqlstream import SQLSTREAM
from braid.types import Decimal, Scalar

ROWTIME = "ROWTIME"


QUOTE = partial(quoted, SQLSTREAM)


def table_of(alias: str, columns: tuple[tuple[str, Expr], ...], rowtime: Col | None) -> Table:
    """An operand as a query sees it; `rowtime` None: a table."""
    return Table(alias, tuple(Column(n, e) for n, e in columns), _pseudo(rowtime))


def timed(scope: Scope, rowtime: Col, single: bool) -> Scope:
    """The scope behind FROM, where the time of a result is known; `single`: it is that of the one stream, too."""
    tables = tuple(replace(t, pseudo=_pseudo(rowtime)) for t in scope.tables) if single else scope.tables
    return replace(scope, tables=tables, pseudo=_pseudo(rowtime))


def column(scope: Scope) -> Callable[[ast.Name], Expr]:
    """What a name means in a scope."""

    def found(name: ast.Name) -> Expr:
        if len(name.parts) > 1 and name.parts[-1] == ROWTIME and not scope.table(name.parts[0], name.span).pseudo:
            message = f"{name.parts[0]} is a table: it has no ROWTIME"
            raise SqlError(message, name.span, "write ROWTIME, the time of the result")
        return scope.expr(name)

    return found


def _pseudo(rowtime: Col | None) -> tuple[Column, ...]:
    return () if rowtime is None else (Column(ROWTIME, as_timestamp(rowtime)),)


def as_timestamp(rowtime: Col) -> Expr:
    """A rowtime, which plans hold in milliseconds, as SQL sees it."""
    return typing.call("FROM_UNIXTIME", [rowtime])


# ------------------------------------------------------------------ expressions


OPERATORS = {
    **expressions.OPERATORS, "-x": "sql.neg", "+": "sql.add", "-": "sql.sub", "*": "sql.mul", "/": "sql.div",
    "||": "sql.concat",
}  # fmt: skip


TIMES = {"FLOOR TO": "sql.floor_to", "CEIL TO": "sql.ceil_to", "STEP BY": "sql.step_by"}


def rules(clause: str, column: Callable[[ast.Name], Expr]) -> Rules:
    known = by_name("sqlstream")
    made = Rules(
        clause, column, None, lambda e: _own(e, made), known, (), OPERATORS, groups=False, widens=True, unknown=True
    )
    return made


def _own(e: ast.Expr, r: Rules) -> Expr | None:
    match e:
        case ast.Cast(type=Scalar.TIMESTAMP):
            return _timestamp(e, r)
        case ast.Binary(op="+" | "-" as op, left=time, right=ast.Interval() as by):
            return _moved(bind_expr(time, r), by, 1 if op == "+" else -1)
        case ast.Binary(op="+", left=ast.Interval() as by, right=time):
            return _moved(bind_expr(time, r), by, 1)
        case ast.Call(name=name, args=(time, to)) if name in TIMES:
            ms = typing.literal(to.ms, Scalar.BIGINT) if isinstance(to, ast.Interval) else bind_expr(to, r)
            return typing.call(TIMES[name], [bind_expr(time, r), ms], name.split()[0])
        case ast.Cast(arg=arg, type=Scalar.INT | Scalar.BIGINT as whole):
            made = bind_expr(arg, r)
            if isinstance(made.type, Decimal) or (
                made.type in (Scalar.BIGINT, Scalar.DOUBLE) and made.type is not whole
            ):
                return typing.call("sql.int" if whole is Scalar.INT else "sql.bigint", [made])
            return typing.cast(made, whole)
    return None


def _moved(time: Expr, by: ast.Interval, sign: int) -> Expr:
    """A time, so much later or earlier; a DATE stays one."""
    if by.months:
        if time.type is Scalar.DATE:
            moved = _moved(typing.cast(time, Scalar.TIMESTAMP), by, sign)
            return typing.cast(moved, Scalar.DATE)
        return typing.call("sql.shift_months", [time, typing.literal(sign * by.months, Scalar.INT)])
    ms = typing.literal(sign * by.ms, Scalar.BIGINT)
    return typing.call("sql.shift_days" if time.type is Scalar.DATE else "shift", [time, ms])


def _timestamp(e: ast.Cast, r: Rules) -> Expr | None:
    arg = bind_expr(e.arg, r)
    if arg.type is not Scalar.VARCHAR:
        return None
    if isinstance(arg, Lit) and (at := dates.plain_timestamp(str(arg.value).replace(" ", "T"))) is not None:
        return Lit(at, Scalar.TIMESTAMP)  # at once: an INSERT may have thousands of them
    blank, t = (typing.literal(text, Scalar.VARCHAR) for text in (" ", "T"))
    return typing.cast(typing.call("REPLACE", [typing.call("TRIM", [arg]), blank, t]), Scalar.TIMESTAMP)
