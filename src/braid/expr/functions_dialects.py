"""Functions with the meaning of Lenses: text in UTF-16 units, positions from zero.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`.
Rule: null in, null out.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.expr.nodes import Call, Expr
from braid.expr.signatures import Function, Refused, Signature, forms, in_sql
from braid.types import Array, Scalar

S = Scalar
_ASTRAL = r"[\x{10000}-\x{10FFFF}]"  # characters of two UTF-16 units


def _length(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return (args[0].str.len_chars() + args[0].str.count_matches(_ASTRAL)).cast(pl.Int32)


def _substr(call: Call, args: list[pl.Expr]) -> pl.Expr:
    both = pl.struct(args[0].alias("text"), args[1].cast(pl.Int64).alias("start"))
    return both.map_batches(_from, return_dtype=pl.String(), is_elementwise=True)


def _from(both: pl.Series) -> pl.Series:
    """The texts from these units on; units and characters differ only where a text has astral characters."""
    frame = both.struct.unnest()
    cut = frame.select(pl.when(pl.col("start") >= 0).then(pl.col("text").str.slice(pl.col("start"))).alias("c"))["c"]
    astral = frame["text"].str.contains(_ASTRAL).fill_null(False) & cut.is_not_null()
    if astral.any():  # slow path: cut by units; half a pair has no form of its own
        units = [
            text.encode("utf-16-le")[2 * start :].decode("utf-16-le", "replace")
            for text, start in frame.filter(astral).iter_rows()
        ]
        cut = cut.scatter(astral.arg_true(), units)
    return cut.rename(both.name)


def _substr_failed(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].is_not_null() & (args[1] < 0)


def _resolve_concat(args: Sequence[Expr]) -> Signature | Refused:
    if not args or any(a.type not in (S.VARCHAR, S.NULL) for a in args):
        return Refused("it takes texts", "CAST the others AS STRING")
    return Signature((S.VARCHAR,) * len(args), S.VARCHAR)


def _resolve_flatten(args: Sequence[Expr]) -> Signature | Refused:
    t = args[0].type if len(args) == 1 else None
    if not isinstance(t, Array) or not isinstance(t.element, Array):
        return Refused("it takes an array of arrays", "an array alone needs no FLATTEN")
    return Signature((t,), t.element)


def _flatten(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """The inner arrays one after the other; null and empty ones give nothing."""
    inner = pl.element()
    return args[0].list.eval(inner.filter(inner.list.len() > 0).explode())


def _resolve_same(args: Sequence[Expr]) -> Signature | Refused:
    return Signature((args[0].type,), args[0].type) if len(args) == 1 else Refused("it takes one value")


_TEXT = forms("a text", ((S.VARCHAR,), S.INT))
LENSES = {
    f.name: f
    for f in (
        Function("utf16_length", _TEXT, _length, names=in_sql(lenses="LEN LENGTH")),
        Function(
            "utf16_from",
            forms("a text and the position to start from, counted from 0", ((S.VARCHAR, S.INT), S.VARCHAR)),
            _substr,
            _substr_failed,
            names=in_sql(lenses="SUBSTR"),
            why="the position is negative",
        ),
        Function("concat_all", _resolve_concat, lambda call, args: pl.concat_str(args), names=in_sql(lenses="CONCAT")),
        Function("flatten", _resolve_flatten, _flatten, names=in_sql(lenses="FLATTEN")),
        Function("as_nullable", _resolve_same, lambda call, args: args[0], names=in_sql(lenses="AS_NULLABLE")),
        Function("as_non_nullable", _resolve_same, lambda call, args: args[0], names=in_sql(lenses="AS_NON_NULLABLE")),
    )
}
