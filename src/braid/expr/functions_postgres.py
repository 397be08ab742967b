"""Values as PostgreSQL writes them: what `x::varchar` gives in RisingWave.

In: typed calls and the Polars expressions of their arguments. Out: rows of `FUNCTIONS`, with lower-case names, as in
`functions_lenses`.
Rule: null in, null out. Batch queries give the same (`batch_sql/duck.py`).
"""

from __future__ import annotations

import polars as pl

from braid.expr.nodes import Call
from braid.expr.signatures import Function, forms
from braid.types import Scalar

S = Scalar
_ZEROS = r"\.?0+$"  # of a fraction


def _double(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].map_batches(_doubles, return_dtype=pl.String(), is_elementwise=True)


def _doubles(s: pl.Series) -> pl.Series:
    """`1`, `0.5`, `1e+15`, `1e-05`, `NaN`: Python rows only where an exponent is needed."""
    size = s.abs()
    odd = (((size < 1e-4) & (size > 0)) | (size >= 1e15)) & s.is_finite()
    text = s.cast(pl.String).str.strip_suffix(".0").replace({"inf": "Infinity", "-inf": "-Infinity"})
    where = odd.arg_true()
    return text.scatter(where, [_with_exponent(v) for v in s.gather(where).to_list()]) if len(where) else text


def _with_exponent(value: float) -> str:
    """In as few digits as give the value again."""
    return next(text for text in (f"{value:.{n}e}" for n in range(18)) if float(text) == value)


def _timestamp(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].dt.strftime("%Y-%m-%d %H:%M:%S%.3f").str.replace(_ZEROS, "")


def _timestamptz(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return _timestamp(call, args) + "+00:00"


def _time(call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].dt.strftime("%H:%M:%S%.3f").str.replace(_ZEROS, "")


POSTGRES = {
    f.name: f
    for f in (
        Function("double_text", forms("a DOUBLE", ((S.DOUBLE,), S.VARCHAR)), _double),
        Function("timestamp_text", forms("a TIMESTAMP", ((S.TIMESTAMP,), S.VARCHAR)), _timestamp),
        Function("timestamptz_text", forms("a TIMESTAMP", ((S.TIMESTAMP,), S.VARCHAR)), _timestamptz),
        Function("time_text", forms("a TIME", ((S.TIME,), S.VARCHAR)), _time),
    )
}
