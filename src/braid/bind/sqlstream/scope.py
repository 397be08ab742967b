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
from braid.bind.sqlstream.aggregates import FUNCTIONS, is_aggregate
from braid.errors import SqlError
from braid.expr import dates, typing
from braid.expr.functions import by_name
from braid.expr.nodes import Col, Expr, Lit
from braid.sql import ast
from braid.sql.declare import quoted
from braid.sql.dialects.sqlstream import SQLSTREAM
from braid.sql.dialects.sqlstream_calls import DIFFERENCE
from braid.sql.dialects.sqlstream_windows import MS
from braid.types import Decimal, Scalar, Type

ROWTIME = "ROWTIME"


QUOTE = partial(quoted, SQLSTREAM)


def table_of(alias: str, columns: tuple[tuple[str, Expr], ...], rowtime: Col | None) -> Table:
    """An operand as a query sees it; `rowtime` None: a table."""
    return Table(alias, tuple(Column(n, e) for n, e in columns), _pseudo(rowtime))


def timed(scope: Scope, rowtime: Col, single: str | None) -> Scope:
    """The scope behind FROM, where the time of a result is known; `single`: the stream whose time it is, too."""
    tables = tuple(replace(t, pseudo=_pseudo(rowtime)) if t.alias == single else t for t in scope.tables)
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


def rules(
    clause: str, column: Callable[[ast.Name], Expr], ask: Callable[[ast.Expr], Expr | None] = lambda _: None
) -> Rules:
    """`ask`: what an expression is as a whole, over groups; asked first."""

    def whole(e: ast.Expr) -> Expr | None:
        known = ask(e)
        return _own(e, made) if known is None else known

    made = Rules(
        clause, column, None, whole, by_name("sqlstream"), FUNCTIONS, OPERATORS, widens=True, unknown=True
    )  # fmt: skip
    return made


def _own(e: ast.Expr, r: Rules) -> Expr | None:
    match e:
        case ast.Call(name=name) if is_aggregate(name):
            hint = "WHERE sees single rows; write HAVING behind GROUP BY" if r.clause == "WHERE" else "leave it out"
            raise SqlError(f"{name} is an aggregate; it is not allowed in {r.clause}", hint=hint)
        case ast.Subquery():
            hint = "write WHERE … AND x IN (SELECT …), or join it: FROM a JOIN (SELECT …) AS b ON a.x = b.x"
            what = "a sub-query elsewhere than beside AND in WHERE, with IN or EXISTS,"
            raise SqlError(f"{what} is not supported yet", hint=hint)
        case ast.Cast(type=Scalar.TIMESTAMP):
            return _timestamp(e, r)
        case ast.Binary(op="+" | "-" as op, left=time, right=ast.Interval() as by):
            return _moved(bind_expr(time, r), by, 1 if op == "+" else -1)
        case ast.Binary(op="+", left=ast.Interval() as by, right=time):
            return _moved(bind_expr(time, r), by, 1)
        case ast.Call(name=name, args=(time, to)) if name in TIMES:
            ms = typing.literal(to.ms, Scalar.BIGINT) if isinstance(to, ast.Interval) else bind_expr(to, r)
            return typing.call(TIMES[name], [bind_expr(time, r), ms], name.split()[0])
        case ast.Call(name="MONOTONIC", args=(x,)):
            return bind_expr(x, r)
        case ast.Call(name="SIMILAR TO" as name, args=args):
            return typing.call("sql.similar", [bind_expr(x, r) for x in args], name)
        case ast.Cast(arg=ast.Call(name="DIFFERENCE IN") as of, type=Scalar.INT | Scalar.BIGINT as whole):
            units = typing.literal(_unit_of(of), Scalar.BIGINT)
            return assigned(typing.call("sql.div", [_difference(of, r), units]), whole)
        case ast.Binary(op=op, left=a, right=b) if op in _COMPARISONS and (_is_length(a) and _is_length(b)):
            return typing.call(r.operators[op], [_length(x, r) for x in (a, b)])
        case ast.Between(arg=arg, low=low, high=high, negated=negated) if all(map(_is_length, (arg, low, high))):
            length, lowest, highest = (_length(x, r) for x in (arg, low, high))
            between = [typing.call(r.operators[op], [length, x]) for op, x in ((">=", lowest), ("<=", highest))]
            found = typing.call("and", between)
            return typing.call("not", [found]) if negated else found
        case ast.Call(name="DIFFERENCE IN"):
            hint = "write CAST((a - b) SECOND AS INTEGER), or compare it: (a - b) SECOND > INTERVAL '5' SECOND"
            raise SqlError("an interval is no value of a column", hint=hint)
        case ast.Cast(arg=arg, type=Scalar.INT | Scalar.BIGINT as whole):
            return assigned(bind_expr(arg, r), whole)
    return None


_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


def _is_length(e: ast.Expr) -> bool:
    return isinstance(e, ast.Interval) or (isinstance(e, ast.Call) and e.name == DIFFERENCE)


def _length(e: ast.Expr, r: Rules) -> Expr:
    """An interval in milliseconds."""
    if isinstance(e, ast.Call):
        return _difference(e, r)
    assert isinstance(e, ast.Interval)
    if e.months:
        raise SqlError("an interval of months has no length", hint="write it in days")
    return typing.literal(e.ms, Scalar.BIGINT)


def _difference(e: ast.Call, r: Rules) -> Expr:
    """`(a - b) unit` in milliseconds."""
    _unit_of(e)
    return typing.call("sql.tsdiff", [bind_expr(x, r) for x in (e.args[1], e.args[0])], "-")


def _unit_of(e: ast.Call) -> int:
    unit = e.args[2]
    assert isinstance(unit, ast.Literal)
    ms = MS.get(str(unit.value))
    if ms is None:
        raise SqlError(f"a difference in {unit.value}S is not supported yet", hint="write DAY, HOUR, MINUTE or SECOND")
    return ms


def assigned(e: Expr, t: Type) -> Expr:
    """A value as one of another type: a number that becomes whole is rounded."""
    rounded = isinstance(e.type, Decimal) or e.type in (Scalar.BIGINT, Scalar.DOUBLE)
    if t in (Scalar.INT, Scalar.BIGINT) and rounded and e.type is not t:
        return typing.call("sql.int" if t is Scalar.INT else "sql.bigint", [e])
    return typing.cast(e, t)


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
