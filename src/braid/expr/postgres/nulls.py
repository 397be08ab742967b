"""COALESCE, NULLIF, GREATEST and LEAST: values of one type, and nulls among them.

In: typed calls and the Polars expressions of their arguments. Out: `NULLS`, rows by the names that SQL's have.
Rule: PostgreSQL's common type (`base.common`); NaN is the largest number and equal to itself; of equal values the first
one stays. NUMERICs of which some have no room in the common type are cast here, so that such a value makes the whole
call fail: no other one takes its place. Where the value is that of the rows which all dialects have, a plan
names these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from braid.expr.casts import as_decimal, cast, may_fail
from braid.expr.nodes import Call, Expr
from braid.expr.postgres.base import TOO_LONG, common, each, row
from braid.expr.postgres.values import ordered, rank
from braid.expr.signatures import Fallible, Function, Refused, Resolver, Signature
from braid.types import FLOATS, WHOLE_NUMBERS, Array, Decimal, Scalar, Type, is_numeric

S = Scalar


def _resolve_coalesce(args: Sequence[Expr]) -> Signature | Refused:
    wide = common([a.type for a in args]) if args else None
    if wide is None:
        return Refused("it takes values of one type", "CAST them to one type")
    return _of_one_type(args, wide, "COALESCE")


def _resolve_extreme(name: str) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        wide = common([a.type for a in args]) if args else None
        if wide is None or not ordered(wide):
            return Refused("it takes values of one type that has an order", "CAST them to one type")
        return _of_one_type(args, wide, "" if wide in (S.REAL, S.DOUBLE) or _by_rows(wide) else name)

    return resolve


def _of_one_type(args: Sequence[Expr], wide: Type, name: str) -> Signature:
    """`name`: of the row of all dialects, which knows no NaN, and neither arrays nor intervals."""
    if isinstance(wide, Decimal) and any(may_fail(a.type, wide) for a in args):
        return Signature(tuple(wide if a.type is S.NULL else as_decimal(a.type) for a in args), wide)
    return Signature((wide,) * len(args), wide, name)


def _by_rows(t: Type) -> bool:
    return t is S.INTERVAL or isinstance(t, Array)


def _fitted(call: Call, args: list[pl.Expr]) -> list[pl.Expr]:
    return [cast(a, e.type, call.type) for a, e in zip(args, call.args, strict=True)]


def _coalesce(call: Call, args: list[pl.Expr]) -> pl.Expr:
    fitted = _fitted(call, args)
    made = fitted[-1]
    for a, value in list(zip(args, fitted, strict=True))[-2::-1]:
        made = pl.when(a.is_not_null()).then(value).otherwise(made)
    return made


def _coalesce_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.any_horizontal([a.is_not_null() for a in args]) & _coalesce(call, args).is_null()


# ------------------------------------------------------------ GREATEST and LEAST


def _extreme(largest: bool) -> Fallible:
    def one(*values: Any) -> Any:
        there = [v for v in values if v is not None]
        return (max if largest else min)(there, key=rank, default=None)

    slow = each(one, nulls=True)

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        if _by_rows(call.type):
            return slow(call, args)
        made, *others = _fitted(call, args)
        for a in others:  # Polars compares as PostgreSQL does, NaN too
            other = a > made if largest else a < made
            made = pl.when(made.is_null() | other).then(a).otherwise(made)
        without = _without_room(call, args, lambda a: a > 0 if largest else a < 0)
        return made if without is None else pl.when(~without).then(made)

    def failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
        without = _without_room(call, args, lambda a: a.is_not_null())
        return pl.lit(False) if without is None else without & build(call, args).is_null()

    return Fallible(build, failed, TOO_LONG)


def _without_room(call: Call, args: list[pl.Expr], which: Callable[[pl.Expr], pl.Expr]) -> pl.Expr | None:
    """Whether one of these arguments is too long for the call's type."""
    pairs = zip(args, _fitted(call, args), call.args, strict=True)
    found = [(which(a) & x.is_null()).fill_null(False) for a, x, e in pairs if may_fail(e.type, call.type)]
    return pl.any_horizontal(found) if found else None


# ---------------------------------------------------------------------- NULLIF

# What PostgreSQL compares without a cast: each with each.
_COMPARED: tuple[tuple[Type, ...], ...] = (WHOLE_NUMBERS, FLOATS, (S.DATE, S.TIMESTAMP, S.TIMESTAMPTZ))


def _resolve_nullif(args: Sequence[Expr]) -> Signature | Refused:
    """The type is that of the first value, as PostgreSQL compares it."""
    types = [a.type for a in args]
    wide = common(types) if len(types) == 2 else None
    if wide is None or not ordered(wide):
        return Refused("it takes two values that can be compared", "CAST one of them")
    a, b = types
    if S.NULL in types or a == b:
        return Signature((wide, wide), wide, "" if _by_rows(wide) else "NULLIF")
    if any(a in group and b in group for group in _COMPARED):
        return Signature((a, b), a, "NULLIF")
    if isinstance(wide, Decimal):
        return Signature((as_decimal(a), as_decimal(b)), as_decimal(a))
    if is_numeric(wide):  # REAL is compared with DOUBLE, and an exact number as that
        first = a if a is S.REAL else S.DOUBLE
        return Signature((first, b if b is S.REAL else S.DOUBLE), first, "NULLIF")
    return Signature((wide, wide), wide, "" if _by_rows(wide) else "NULLIF")


def _nullif(call: Call, args: list[pl.Expr]) -> pl.Expr:
    types = [a.type for a in call.args]
    wide = common(types)
    if wide is None or _by_rows(wide):
        return _NULLIF_ROWS(call, args)
    a, b = (cast(x, t, wide) for x, t in zip(args, types, strict=True))  # a value without room equals none
    return pl.when((a == b).fill_null(False).not_()).then(args[0])


def _differs(a: Any, b: Any) -> Any:
    return None if a is not None and b is not None and rank(a) == rank(b) else a


_NULLIF_ROWS = each(_differs, nulls=True)


NULLS: dict[str, Function] = {
    f.name: f
    for f in (
        row("COALESCE", _resolve_coalesce, Fallible(_coalesce, _coalesce_failed, TOO_LONG)),
        row("NULLIF", _resolve_nullif, _nullif),
        row("GREATEST", _resolve_extreme("GREATEST"), _extreme(True)),
        row("LEAST", _resolve_extreme("LEAST"), _extreme(False)),
    )
}
