"""Functions and operators as the SQL standard has them, which SQLstream follows: null in, null out, and no number that
is not the right one.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`, whose names in plans begin with
`sql.`.
Rule: a result that its type cannot hold is a failure, as is a division by zero or a negative length: null, and the row
is told (docs/rules/sqlstream.md, "Values").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from braid.expr.arithmetic import OPERATORS, resolve_concat
from braid.expr.nodes import Call, Expr
from braid.expr.signatures import (
    NEGATIVE,
    Builder,
    Fallible,
    Function,
    Refused,
    Signature,
    divided,
    forms,
    in_sql,
    null_fails,
    resolve_extreme,
)
from braid.types import Scalar, is_numeric, polars_type

S = Scalar
BEYOND = "out of range"
_TEXT = S.VARCHAR
_A_NUMBER = Refused("it takes a number")
_WIDER: dict[object, pl.DataType] = {S.INT: pl.Int64(), S.BIGINT: pl.Int128()}
_LEAST: dict[object, int] = {S.INT: -(2**31), S.BIGINT: -(2**63)}

# ------------------------------------------------------------------- numbers


def _beyond(value: object, divisor: object) -> str:
    return divided(value, divisor) or BEYOND


def _checked(f: Function) -> Function:
    """An operator of ksqlDB that does not wrap, nor become infinite."""

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        own = replace(call, function=f.name)
        wider = _WIDER.get(call.type)
        if wider is not None:
            return f.build(own, [a.cast(wider) for a in args]).cast(polars_type(call.type), strict=False)
        made = f.build(own, args)
        if call.type is not S.DOUBLE:
            return made
        finite = pl.all_horizontal([a.is_finite() for a in args])
        return pl.when(~(made.is_infinite() & finite)).then(made)

    return Function(f"sql.{f.name}", f.resolve, null_fails(build, _beyond if f.name == "div" else BEYOND))


def _signed(name: str, f: Callable[[pl.Expr], pl.Expr], **names: str) -> Function:
    """Of one number; the smallest whole one has no opposite."""

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        (x,) = args
        least = _LEAST.get(call.type)
        return f(x) if least is None else pl.when(x != pl.lit(least, polars_type(call.type))).then(f(x))

    return Function(f"sql.{name}", _resolve_signed, null_fails(build, BEYOND), names=in_sql(**names))


def _resolve_signed(args: Sequence[Expr]) -> Signature | Refused:
    return _A_NUMBER if len(args) != 1 else OPERATORS["neg"].resolve(args)


def _sqrt(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.when(~(args[0] < 0)).then(args[0].sqrt())


def _whole(name: str, t: Scalar) -> Function:
    """CAST of a number to a whole one: halves away from zero."""

    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        return Signature((args[0].type,), t) if [is_numeric(a.type) for a in args] == [True] else _A_NUMBER

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        (x,) = args
        if call.args[0].type is not S.BIGINT:
            x = x.round(0, mode="half_away_from_zero")
        return x.cast(polars_type(t), strict=False)

    return Function(f"sql.{name}", resolve, null_fails(build, BEYOND))


# ---------------------------------------------------------------------- text


def _concat(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.type is not S.BYTES:
        return pl.concat_str(args)
    out = args[0]
    for a in args[1:]:
        out = out + a
    return out


def _substring(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Of the positions from the first one on, as many as the length says, those that the value has: the first one may
    stand before it."""
    text, first = args[0], args[1].cast(pl.Int64)
    part = text.bin if call.type is S.BYTES else text.str
    start = pl.max_horizontal(first - 1, pl.lit(0, pl.Int64))
    if len(args) == 2:
        return pl.when(first.is_not_null()).then(part.slice(start))
    length = args[2].cast(pl.Int64)
    left = pl.max_horizontal(length - pl.max_horizontal(1 - first, pl.lit(0, pl.Int64)), pl.lit(0, pl.Int64))
    return pl.when(first.is_not_null() & (length >= 0)).then(part.slice(start, left))


def _substring_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if len(args) == 2:
        return pl.lit(False)
    return args[0].is_not_null() & args[1].is_not_null() & (args[2] < 0)


# ------------------------------------------------------------------ extremes


def _extreme(greatest: bool) -> Builder:
    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        made = pl.max_horizontal(args) if greatest else pl.min_horizontal(args)
        return pl.when(pl.all_horizontal([a.is_not_null() for a in args])).then(made)

    return build


# --------------------------------------------------------------------- table

_substrings = forms(
    "a VARCHAR or BYTES, an INTEGER position from 1, and maybe an INTEGER length",
    ((_TEXT, S.INT), _TEXT),
    ((_TEXT, S.INT, S.INT), _TEXT),
    ((S.BYTES, S.INT), S.BYTES),
    ((S.BYTES, S.INT, S.INT), S.BYTES),
)
STANDARD = {
    f.name: f
    for f in (
        *(_checked(OPERATORS[name]) for name in ("add", "sub", "mul", "div")),
        _signed("neg", lambda x: -x),
        _signed("abs", lambda x: x.abs(), sqlstream="ABS"),
        Function(
            "sql.sqrt",
            forms("a number", ((S.DOUBLE,), S.DOUBLE)),
            null_fails(_sqrt, NEGATIVE),
            names=in_sql(sqlstream="SQRT"),
        ),
        _whole("int", S.INT),
        _whole("bigint", S.BIGINT),
        Function("sql.concat", resolve_concat, _concat, names=in_sql(sqlstream="CONCAT")),
        Function(
            "sql.substring",
            _substrings,
            Fallible(_substring, _substring_failed, "the length is negative"),
            names=in_sql(sqlstream="SUBSTRING"),
        ),
        Function("sql.greatest", resolve_extreme, _extreme(True), names=in_sql(sqlstream="GREATEST")),
        Function("sql.least", resolve_extreme, _extreme(False), names=in_sql(sqlstream="LEAST")),
    )
}
