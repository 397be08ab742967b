"""Expressions as PostgreSQL means them: names of functions, intervals, casts, NULL.

In: an expression as written, and what its names mean. Out: `Expr`, and the SQL name of its type.
Rule: what RisingWave calls in another way is renamed here; what it means in another way than the shared functions do is
bound here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from braid.bind.expressions import COMMON, OPERATORS, Rules, bind_expr, bind_predicate
from braid.errors import SqlError
from braid.expr import typing, user
from braid.expr.nodes import Expr, Lit
from braid.sql import ast
from braid.types import Array, Decimal, Scalar, Type

Column = Callable[[ast.Name], Expr]
Aggregate = Callable[[ast.Call], Expr]
Named = Callable[[ast.Name], str]

_FUNCTIONS = {
    "LOWER": "LCASE", "UPPER": "UCASE", "SUBSTR": "SUBSTRING", "LENGTH": "LEN", "CHAR_LENGTH": "LEN",
    "STRPOS": "INSTR", "CEILING": "CEIL", "REPLACE": "replace_found",
}  # fmt: skip
KNOWN = (*COMMON, *_FUNCTIONS)
_TEXTS: dict[Type, str] = {
    Scalar.DOUBLE: "double_text", Scalar.TIMESTAMP: "timestamp_text", Scalar.TIME: "time_text",
    Scalar.REAL: "real_text", Scalar.TIMESTAMPTZ: "timestamptz_text",
}  # fmt: skip
_SIGNS = {"+": 1, "-": -1}
_NAMES: dict[Type, str] = {
    Scalar.BOOLEAN: "boolean",
    Scalar.SMALLINT: "smallint",
    Scalar.INT: "integer",
    Scalar.BIGINT: "bigint",
    Scalar.REAL: "real",
    Scalar.DOUBLE: "double precision",
    Scalar.VARCHAR: "varchar",
    Scalar.BYTES: "bytea",
    Scalar.DATE: "date",
    Scalar.TIME: "time",
    Scalar.TIMESTAMP: "timestamp",
    Scalar.TIMESTAMPTZ: "timestamptz",
    Scalar.NULL: "varchar",
}


def bound(
    e: ast.Expr, clause: str, column: Column, aggregate: Aggregate | None = None, named: Named | None = None
) -> Expr:
    """The typed expression. `named`: the SQL name of a column's type, which tells times with a zone from others."""
    made = bind_expr(e, _rules(clause, column, aggregate, named))
    return typing.cast(made, Scalar.VARCHAR) if made.type is Scalar.NULL and clause == "SELECT" else made


def _rules(clause: str, column: Column, aggregate: Aggregate | None = None, named: Named | None = None) -> Rules:
    return Rules(clause, column, aggregate, whole(column, clause, aggregate, named), KNOWN, widens=True, unknown=True)


def condition(e: ast.Expr, clause: str, column: Column) -> Expr:
    """A condition: BOOLEAN."""
    return bind_predicate(e, _rules(clause, column))


def whole(
    column: Column, clause: str, aggregate: Aggregate | None, named: Named | None = None
) -> Callable[[ast.Expr], Expr | None]:
    """What the shared binder is to ask first about each node."""

    def bind(x: ast.Expr) -> Expr:
        return bind_expr(x, Rules(clause, column, aggregate, ask, KNOWN, widens=True, unknown=True))

    def ask(e: ast.Expr) -> Expr | None:
        match e:
            case ast.Binary(op="+" | "-" as op, left=left, right=ast.Interval() as interval):
                return _shifted(bind(left), _SIGNS[op], interval)
            case ast.Binary(op="+", left=ast.Interval() as interval, right=right):
                return _shifted(bind(right), 1, interval)
            case ast.Binary(op="=" | "!=" | "<" | "<=" | ">" | ">=", left=left, right=right) if _null(left, right):
                return Lit(None, Scalar.BOOLEAN)
            case ast.Call(name="NOW" | "CURRENT_TIMESTAMP" | "PROCTIME"):
                hint = "compare with a column of the row; a batch query may call it"
                raise SqlError(f"{e.name.lower()}() in a view is not supported yet", e.span, hint)
            case ast.Call(name=name, distinct=False) if name in _FUNCTIONS and not user.overloads(name):
                return typing.call(_FUNCTIONS[name], [bind(x) for x in e.args])
            case ast.Cast(arg=ast.Literal(value=str() as text), type=Scalar.TIMESTAMP | Scalar.TIMESTAMPTZ):
                return timestamp(text, e)
            case ast.Cast(arg=arg, type=Scalar.VARCHAR):
                return _text(bind(arg), arg, named)
            case ast.LongCall(call=call):
                hint = "leave it out; a batch query may have it"
                raise SqlError(f"{call.name.lower()} with OVER, FILTER or ORDER BY in a view is not supported yet",
                               e.span, hint)  # fmt: skip
            case ast.Quantified() | ast.GroupingSets():
                raise SqlError("this is not supported yet in views", e.span, "a batch query may have it")
            case ast.Binary(op=op) if op not in OPERATORS:
                raise SqlError(f"{op} in a view is not supported yet", e.span, "a batch query may have it")
            case ast.Subquery():
                hint = "join it: FROM a JOIN (SELECT DISTINCT …) b ON a.x = b.x; for NOT: LEFT JOIN … WHERE b.x IS NULL"
                raise SqlError(f"a sub-query in {clause} of a view is not supported yet", e.span, hint)
        return None

    return ask


def _text(made: Expr, e: ast.Expr, named: Named | None) -> Expr:
    """A value as PostgreSQL writes it."""
    text = _TEXTS.get(made.type)
    if text is None:
        return typing.cast(made, Scalar.VARCHAR)
    return typing.call(text, [made])


def _null(*sides: ast.Expr) -> bool:
    return any(isinstance(x, ast.Literal) and x.value is None for x in sides)


def _shifted(time: Expr, sign: int, interval: ast.Interval) -> Expr:
    if interval.months:
        hint = "write it in days: INTERVAL '30 days'"
        raise SqlError("intervals of months and years are not supported yet in views", interval.span, hint)
    return typing.call("shift", [time, Lit(sign * interval.ms, Scalar.BIGINT)])


def timestamp(text: str, e: ast.Expr) -> Expr:
    """A constant time, in PostgreSQL's form."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise SqlError(f"'{text}' is not a timestamp", e.span, "write it as '2024-01-01 00:00:00'") from None
    type_ = e.type if isinstance(e, ast.Cast) else Scalar.TIMESTAMP
    return Lit(at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at, type_)


def type_name(e: ast.Expr, made: Expr, column_type: Callable[[ast.Name], str]) -> str:
    """The SQL name of an expression's type: that of a column, of a cast, or the usual one of its type."""
    match e:
        case ast.Name():
            return column_type(e)
        case ast.Cast(written=written) if written:
            return written
    return usual_name(made.type)


def usual_name(t: Type) -> str:
    if isinstance(t, Decimal):
        return f"numeric({t.precision},{t.scale})"
    if isinstance(t, Array):
        return f"{usual_name(t.element)}[]"
    found = _NAMES.get(t)
    if found is None:
        raise SqlError(f"a column of type {t} is not supported yet", hint="convert it: x::varchar")
    return found
