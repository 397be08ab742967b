"""Aggregates and windows over rows of batch queries: which there are, and what they give.

In: the name of one, its typed arguments. Out: the type of its result; what DuckDB's gives, in PostgreSQL's type.
Rule: DuckDB computes them; one that stands in no list here reaches it never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from braid.batch_sql.duck_expr import duck_name
from braid.bind.select.aggregates import bucket_at, object_of
from braid.errors import SqlError
from braid.expr import user
from braid.expr.aggregates import is_aggregate
from braid.expr.nodes import Call, Col, Expr, Lit
from braid.expr.postgres import typing
from braid.expr.postgres.base import sum_type
from braid.expr.postgres.operators import result_of
from braid.sql import ast
from braid.types import Array, Decimal, Scalar, Type

S = Scalar


def is_known(name: str) -> bool:
    """Whether it is an aggregate: one that views have, one that only batch queries have, or one of a user."""
    return is_aggregate(name) or (name in (*AGGREGATES, *EXTREMES) and not user.overloads(name))


EXTREMES = ("ARG_MAX", "ARG_MIN")


def plain(e: ast.Expr) -> ast.Expr:
    """`arg_min(x, y)` as the first x in the order of y, among those that are both there; all else as it is."""
    long = e if isinstance(e, ast.LongCall) else None
    call = e if long is None else long.call
    if not isinstance(call, ast.Call) or call.name not in EXTREMES or user.overloads(call.name):
        return e
    shown = call.name.lower()
    if len(call.args) != 2 or (long is not None and (long.over or long.order_by or long.within_group)):
        raise SqlError(f"{shown} takes a value and what it is found by", call.span, f"write {shown}(x, y)")
    value, by = call.args
    there = [ast.IsNull(x, True, x.span) for x in (value, by)]
    where: ast.Expr = ast.Binary("AND", there[0], there[1], call.span)
    if long is not None and long.where is not None:
        where = ast.Binary("AND", long.where, where, call.span)
    order = tuple(ast.OrderItem(x, x is by and call.name == "ARG_MAX", None, x.span) for x in (by, value))
    return ast.LongCall(ast.Call("FIRST_VALUE", (value,), call.span), order, (), where, None, call.span)


def exactly(call: ast.Call) -> ast.Call:
    """What is asked for approximately is counted."""
    return replace(call, name="COUNT", distinct=True) if call.name == "APPROX_COUNT_DISTINCT" else call


def computed(
    name: str, args: list[Expr], t: Type, called: Callable[[str], str], buckets: tuple[float, float] = (0, 0)
) -> Expr:
    """What DuckDB's aggregate gives, in PostgreSQL's type. The average of exact numbers is exact, too. `buckets`: of
    approx_percentile."""
    if name == "AVG" and isinstance(t, Decimal):
        sum_of = Decimal(38, args[0].type.scale if isinstance(args[0].type, Decimal) else 0)
        total = Col(f"CAST({called('sum')} AS {duck_name(sum_of)})", sum_of)
        count = typing.coerced(Col(called("count"), S.BIGINT), Decimal(19, 0))
        some = typing.compare("=", Col(called("count"), S.BIGINT), Lit(0, S.INT))
        return typing.case(
            [(some, Lit(None, S.NULL))],
            Call("pg.quotient", (total, count), result_of("quotient", sum_of, Decimal(19, 0))),
        )
    if name == "JSONB_AGG":
        array = Col(called("array_agg"), Array(args[0].type))
        none = Call("is_null", (array,), S.BOOLEAN)
        return typing.case([(none, Lit("[]", S.JSONB))], typing.document(array))
    if name == "JSONB_OBJECT_AGG":
        pairs = Col(called("array_agg"), Array(S.VARCHAR))
        return typing.case([(Call("is_null", (pairs,), S.BOOLEAN), Lit("{}", S.JSONB))], object_of(pairs))
    if name == "APPROX_PERCENTILE":
        return bucket_at(Col(called("array_agg"), Array(S.DOUBLE)), buckets)
    made = called(RENAMED.get(name, name.lower()))
    exact = t in (S.VARCHAR, S.BOOLEAN) or isinstance(t, Array) or (name in ("MIN", "MAX", "ANY_VALUE"))
    return Col(made if exact else f"CAST({made} AS {duck_name(t)})", t)


def _fixed(t: Type, most: int = 9) -> Callable[[str, list[Expr]], Type]:
    """An aggregate with one type of result."""

    def result(name: str, args: list[Expr]) -> Type:
        if not args or len(args) > most:
            raise SqlError(f"{name} takes {'a value' if most == 1 else 'values'}", hint=f"write {name}(x)")
        return t

    return result


def _same(name: str, args: list[Expr]) -> Type:
    if not args:
        raise SqlError(f"{name} takes a value", hint=f"write {name}(x)")
    if name in ("min", "max") and args[0].type is S.JSONB:
        raise SqlError(f"{name} of JSONB is not possible", hint=f"take a part of it: {name}(doc ->> 'a')")
    if name in ("min", "max") and args[0].type is S.BOOLEAN:
        raise SqlError(f"{name} of BOOLEAN is not possible", hint="write bool_and(x) or bool_or(x)")
    return args[0].type


def _number(name: str, args: list[Expr]) -> Type:
    t = args[0].type if len(args) == 1 else None
    match t:
        case S.SMALLINT | S.INT | S.BIGINT | S.REAL | S.DOUBLE | Decimal():
            return t
    raise SqlError(f"{name} takes a number", hint=f"convert it: {name}(x::numeric)")


def _sum(name: str, args: list[Expr]) -> Type:
    return sum_type(_number(name, args))


def _average(name: str, args: list[Expr]) -> Type:
    match _number(name, args):
        case S.REAL | S.DOUBLE:
            return S.DOUBLE
        case Decimal(scale=scale):
            return Decimal(38, max(16, scale))
        case _:
            return Decimal(38, 16)


def _spread(name: str, args: list[Expr]) -> Type:
    for a in args:
        _number(name, [a])
    return _fixed(S.DOUBLE, 2)(name, args)


def _array(name: str, args: list[Expr]) -> Type:
    return Array(_same(name, args))


Typed = Mapping[str, Callable[[str, list[Expr]], Type]]
_SPREADS = [
    "CORR",
    "COVAR_POP",
    "COVAR_SAMP",
    "MEDIAN",
    "PERCENTILE_CONT",
    "REGR_AVGX",
    "REGR_AVGY",
    "REGR_INTERCEPT",
    "REGR_R2",
    "REGR_SLOPE",
    "REGR_SXX",
    "REGR_SXY",
    "REGR_SYY",
    "STDDEV",
    "STDDEV_POP",
    "STDDEV_SAMP",
    "VARIANCE",
    "VAR_POP",
    "VAR_SAMP",
]
_BIGINT = _fixed(S.BIGINT, 2)
AGGREGATES: Typed = {
    **dict.fromkeys(
        ("ANY_VALUE", "BIT_AND", "BIT_OR", "BIT_XOR", "FIRST_VALUE", "LAST_VALUE", "MAX", "MIN", "MODE"), _same
    ),
    **dict.fromkeys(("BOOL_AND", "BOOL_OR", "EVERY"), _fixed(S.BOOLEAN, 1)),
    **dict.fromkeys(("APPROX_COUNT_DISTINCT", "COUNT", "REGR_COUNT"), _BIGINT),
    **dict.fromkeys(_SPREADS, _spread),
    "ARRAY_AGG": _array,
    "AVG": _average,
    "JSONB_AGG": _fixed(S.JSONB, 1),
    "JSONB_OBJECT_AGG": _fixed(S.JSONB, 2),
    "APPROX_PERCENTILE": lambda name, args: _fixed(S.DOUBLE)(name, [Lit(None, _number(name, args))]),
    "GROUPING": _fixed(S.INT),
    "PERCENTILE_DISC": _same,
    "STRING_AGG": _fixed(S.VARCHAR, 2),
    "SUM": _sum,
}
WINDOWS: Typed = {
    **dict.fromkeys(("FIRST_VALUE", "LAST_VALUE", "LAG", "LEAD", "NTH_VALUE"), _same),
    **dict.fromkeys(("DENSE_RANK", "RANK", "ROW_NUMBER"), lambda name, args: S.BIGINT),
    **dict.fromkeys(("CUME_DIST", "PERCENT_RANK"), lambda name, args: S.DOUBLE),
    "NTILE": lambda name, args: S.INT,
}
RENAMED = {"EVERY": "bool_and", "FIRST_VALUE": "first", "LAST_VALUE": "last"}
