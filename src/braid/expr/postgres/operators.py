"""Arithmetic, comparison and bits as PostgreSQL has them.

In: typed calls and the Polars expressions of their arguments. Out: `OPERATORS`, rows of `ROWS`.
Rule: a whole number that does not fit its type fails, as does a division by zero and a float beyond its range. The
digits of a NUMERIC result are those of the table below; a value with more whole digits than it holds fails.

| a (p, s), b (q, t) | scale | digits in front of the point, as far as 38 digits leave room |
|---|---|---|
| a + b, a - b | max(s, t) | one more than either has |
| a * b | s + t, at most 20 unless s or t is larger; rounded half away from zero | those of both |
| a / b | max(16, s, t), rounded half away from zero | those of a, and t |
| a % b | max(s, t) | those of the one with fewer |
"""

from __future__ import annotations

import decimal as py
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from braid.expr.casts import as_decimal, fit
from braid.expr.nodes import Call, Expr
from braid.expr.postgres.base import digits, parts
from braid.expr.signatures import Builder, Function, Refused, Resolver, Signature, null_fails
from braid.types import FLOATS, WHOLE_NUMBERS, Decimal, Scalar, Type, is_numeric, polars_type

S = Scalar
DIGITS = 38
PRODUCT = 20  # digits behind the point that a product keeps
QUOTIENT = 16  # that a quotient has at least
_EXACT = py.Context(prec=160, rounding=py.ROUND_HALF_UP, Emax=py.MAX_EMAX, Emin=py.MIN_EMIN)
_WIDE: dict[Type, pl.DataType] = {S.SMALLINT: pl.Int32(), S.INT: pl.Int64(), S.BIGINT: pl.Int128()}
OUT_OF_RANGE = "out of range"
TOO_MANY = "more digits than NUMERIC holds here"
ZERO = "division by zero"

# ---------------------------------------------------------------------- types


def result_of(name: str, a: Decimal, b: Decimal) -> Decimal:
    """The digits of a result."""
    whole_a, whole_b, scale = a.precision - a.scale, b.precision - b.scale, max(a.scale, b.scale)
    match name:
        case "add" | "sub":
            return digits(max(whole_a, whole_b) + 1, scale)
        case "mul":
            return digits(whole_a + whole_b, min(a.scale + b.scale, max(PRODUCT, scale)))
        case "quotient":
            return digits(whole_a + b.scale, max(QUOTIENT, scale))
        case _:
            return digits(min(whole_a, whole_b), scale)


def operated(a: Type, b: Type) -> Type | None:
    """The type in which two numbers meet; None if one is none."""
    a, b = (b if a is S.NULL else a), (a if b is S.NULL else b)
    if not is_numeric(a) or not is_numeric(b):
        return None
    if a == b and a in FLOATS:
        return a
    if a in FLOATS or b in FLOATS:
        return S.DOUBLE
    if isinstance(a, Decimal) or isinstance(b, Decimal):
        return Decimal(DIGITS, 0)
    return max(a, b, key=WHOLE_NUMBERS.index)


def _arithmetic(name: str) -> Resolver:
    def resolve(args: Sequence[Expr]) -> Signature | Refused:
        a, b = (x.type for x in args)
        wide = operated(a, b)
        if wide is None or (name == "remainder" and wide in FLOATS):
            sign = {"add": "+", "sub": "-", "mul": "*", "quotient": "/", "remainder": "%"}[name]
            return Refused(f"{a} {sign} {b} has no meaning", _hint(name, a, b))
        if not isinstance(wide, Decimal):
            return Signature((wide, wide), wide)
        a, b = (b if a is S.NULL else a), (a if b is S.NULL else b)
        x, y = as_decimal(a), as_decimal(b)
        return Signature((x, y), result_of(name, x, y))

    return resolve


def _hint(name: str, a: Type, b: Type) -> str:
    if S.VARCHAR in (a, b):
        return "use || for text" if name == "add" else "CAST one side to a number"
    return (
        "convert one side: x::double precision" if name != "remainder" else "CAST to numeric: x::numeric % y::numeric"
    )


# --------------------------------------------------------------------- values

Columns = tuple[pl.Series, pl.Series]  # values, and where they fail


def _none(like: pl.Series) -> pl.Series:
    return pl.Series([False]).new_from_index(0, len(like))


def _calculated(name: str) -> Callable[[Call, Sequence[pl.Series]], Columns]:
    def run(call: Call, args: Sequence[pl.Series]) -> Columns:
        a, b = args
        if call.type in WHOLE_NUMBERS:
            return _wholes(name, call.type, a, b)
        if isinstance(call.type, Decimal):
            return _numerics(name, call.type, a, b)
        return _floats(name, call.type, a, b)

    return run


# Whole numbers: where the smallest and the largest of the batch leave room, in their own type.


def _wholes(name: str, t: Type, a: pl.Series, b: pl.Series) -> Columns:
    if name in _NATIVE and _fits(name, t, a, b):
        return _NATIVE[name](a, b), _none(a)
    wide, dtype = _WIDE[t], polars_type(t)
    x, y = pl.col("a").cast(wide), pl.col("b").cast(wide)
    both = pl.DataFrame([a.alias("a"), b.alias("b")])
    made = both.select(_WIDELY[name](x, y).cast(dtype, strict=False)).to_series()
    return made, made.is_null() & a.is_not_null() & b.is_not_null()


def _fits(name: str, t: Type, a: pl.Series, b: pl.Series) -> bool:
    """Whether no result can be outside of the type. Quotients of what is not negative are as Polars has them."""
    x, y = _ends(a), _ends(b)
    if name in ("quotient", "remainder"):
        return x[0] >= 0 and y[0] > 0
    ends = [_PYTHON[name](i, j) for i in x for j in y]
    bits = {S.SMALLINT: 15, S.INT: 31, S.BIGINT: 63}[t]  # type: ignore[index]
    return bool(-(2**bits) <= min(ends) and max(ends) < 2**bits)


def _ends(s: pl.Series) -> tuple[int, int]:
    low, high = s.min(), s.max()
    return (low, high) if isinstance(low, int) and isinstance(high, int) else (1, 1)


def _divided(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Towards zero, where Polars floors; null for a divisor of zero."""
    by = pl.when(b != 0).then(b)
    rest = a % by
    return a.floordiv(by) + ((rest != 0) & ((a < 0) != (by < 0))).cast(pl.Int8)


def _rest(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """With the sign of the dividend."""
    by = pl.when(b != 0).then(b)
    rest = a % by
    return pl.when((rest != 0) & ((rest < 0) != (a < 0))).then(rest - by).otherwise(rest)


_PYTHON: dict[str, Callable[[int, int], int]] = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}
_NATIVE: dict[str, Callable[[pl.Series, pl.Series], pl.Series]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "quotient": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
}
_WIDELY: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "quotient": _divided,
    "remainder": _rest,
}

# Floats, as NumPy has them.

_UFUNCS: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "quotient": np.divide}


def _floats(name: str, t: Type, a: pl.Series, b: pl.Series) -> Columns:
    x, y = a.fill_null(1.0).to_numpy(), b.fill_null(1.0).to_numpy()
    with np.errstate(all="ignore"):
        out = _UFUNCS[name](x, y)
        bad = np.isinf(out) & ~np.isinf(x) & ~np.isinf(y)
        if name == "quotient":
            bad |= ((y == 0) & ~np.isnan(x)) | ((out == 0) & (x != 0) & ~np.isinf(y))
        if name == "mul":
            bad |= (out == 0) & (x != 0) & (y != 0)
    there = a.is_not_null() & b.is_not_null()
    failed = pl.Series(bad) & there
    return pl.Series("", out, dtype=polars_type(t)).set(failed | ~there, None), failed


# NUMERIC: columnar where the largest values of the batch leave room in 38 digits; else in Python's decimals.

_EXACTLY: dict[str, Callable[[py.Decimal, py.Decimal], py.Decimal]] = {
    "add": _EXACT.add,
    "sub": _EXACT.subtract,
    "mul": _EXACT.multiply,
    "quotient": _EXACT.divide,
    "remainder": _EXACT.remainder,
}


def _numerics(name: str, t: Decimal, a: pl.Series, b: pl.Series) -> Columns:
    made = _columnar(name, t, a, b)
    if made is None:
        divides, op = name in ("quotient", "remainder"), _EXACTLY[name]
        pairs = zip(a.to_list(), b.to_list(), strict=True)
        values = [None if u is None or v is None or (divides and not v) else fit(op(u, v), t) for u, v in pairs]
        made = pl.Series("", values, dtype=polars_type(t))
    return made, made.is_null() & a.is_not_null() & b.is_not_null()


def _columnar(name: str, t: Decimal, a: pl.Series, b: pl.Series) -> pl.Series | None:
    x, y = _largest(a), _largest(b)
    most, bound = py.Decimal(10) ** (DIGITS - t.scale), py.Decimal(10) ** (t.precision - t.scale)
    if name == "quotient":
        return _quotients(t, a, b, x)
    exact = name != "mul" or sum(_scale(s) for s in (a, b)) <= t.scale
    made = _EXACT.multiply(x, y) if name == "mul" else _EXACT.add(x, y)
    if name == "remainder" or not exact or x >= most or y >= most or made >= bound:
        return None
    wide = pl.Decimal(DIGITS, t.scale)
    return _NATIVE[name](a.cast(wide), b.cast(wide)).cast(polars_type(t))


def _quotients(t: Decimal, a: pl.Series, b: pl.Series, largest: py.Decimal) -> pl.Series | None:
    """Whole numbers divided, with as many digits more as the result has behind its point."""
    more = t.scale - _scale(a) + _scale(b)
    if more < 0 or largest.scaleb(_scale(a) + more) >= 10**37:
        return None
    both = pl.DataFrame([a.to_physical().cast(pl.Int128).alias("a"), b.to_physical().cast(pl.Int128).alias("b")])
    x, y = pl.col("a").abs() * 10**more, pl.when(pl.col("b") != 0).then(pl.col("b").abs())
    whole = x.floordiv(y)
    up = (2 * (x - whole * y) >= y).cast(pl.Int8)
    made = both.select(pl.when((pl.col("a") < 0) != (pl.col("b") < 0)).then(-1).otherwise(1) * (whole + up)).to_series()
    if (made.abs() >= 10**t.precision).any():
        return None
    held = made.cast(pl.Decimal(DIGITS, 0)).to_arrow()
    found = pl.from_arrow(pa.Array.from_buffers(pa.decimal128(DIGITS, t.scale), len(held), held.buffers()))
    assert isinstance(found, pl.Series)
    return found.cast(polars_type(t))


def _scale(s: pl.Series) -> int:
    assert isinstance(s.dtype, pl.Decimal)
    return s.dtype.scale


def _largest(s: pl.Series) -> py.Decimal:
    return max((v.copy_abs() for v in (s.min(), s.max()) if isinstance(v, py.Decimal)), default=py.Decimal(0))


def _why(a: Any, b: Any) -> str:
    return ZERO if b == 0 else _too_large(a, b)


def _too_large(a: Any, b: Any) -> str:
    return TOO_MANY if isinstance(a, py.Decimal) else OUT_OF_RANGE


def _resolve_sign(args: Sequence[Expr]) -> Signature | Refused:
    (a,) = args
    t = S.DOUBLE if a.type is S.NULL else a.type
    if is_numeric(t):
        return Signature((t,), t)
    return Refused(f"-{t} has no meaning", "only numbers have a sign")


def _negative(call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.type in WHOLE_NUMBERS:
        return (0 - args[0].cast(_WIDE[call.type])).cast(polars_type(call.type), strict=False)
    return -args[0]


# ------------------------------------------------------------------ comparison


def _resolve_place(args: Sequence[Expr]) -> Signature | Refused:
    (a,) = args
    t = a.type
    return Signature((t,), S.BIGINT) if t in (*FLOATS, S.BOOLEAN) else Refused("it takes a float or a BOOLEAN")


def _place(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """A whole number for each value, in PostgreSQL's order: one zero, NaN is the largest and equal to itself. So the
    comparisons and keys of all dialects do for these types, too."""
    if call.args[0].type is S.BOOLEAN:
        return args[0].cast(pl.Int64)
    return args[0].map_batches(_places, return_dtype=pl.Int64, is_elementwise=True)


def _places(s: pl.Series) -> pl.Series:
    values = s.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    made = np.where(bits < 0, np.int64(-(2**63)) - bits - 1, bits)
    made = np.where(np.isnan(values), np.int64(2**63 - 1), made)
    return pl.Series(s.name, made, dtype=pl.Int64).set(s.is_null(), None)


# ----------------------------------------------------------------------- bits


def _resolve_bit_not(args: Sequence[Expr]) -> Signature | Refused:
    (a,) = args
    t = S.INT if a.type is S.NULL else a.type
    return Signature((t,), t) if t in WHOLE_NUMBERS else Refused("it takes a whole number", "convert it: ~ x::bigint")


def _resolve_bits(args: Sequence[Expr]) -> Signature | Refused:
    a, b = (x.type for x in args)
    wide = operated(a, b)
    if wide in WHOLE_NUMBERS:
        return Signature((wide, wide), wide)
    return Refused("it takes whole numbers", "convert them: x::bigint")


def _resolve_shift(args: Sequence[Expr]) -> Signature | Refused:
    a, b = (x.type for x in args)
    if (a in WHOLE_NUMBERS or a is S.NULL) and (b in (S.SMALLINT, S.INT, S.NULL)):
        t = S.INT if a is S.NULL else a
        return Signature((t, S.INT), t)
    return Refused("it takes a whole number, and an integer of places", "convert them: x::bigint << n::integer")


def _shifted(left: bool) -> Builder:
    """Bits that leave are gone. So many places as the processor takes for a number of 32 or 64 bits: the last five bits
    of their count, or six."""

    def build(call: Call, args: list[pl.Expr]) -> pl.Expr:
        bits = 16 if call.type is S.SMALLINT else 32 if call.type is S.INT else 64
        places = (args[1] & (63 if bits == 64 else 31)).cast(pl.UInt32)
        by = pl.lit(2, pl.Int128).pow(places).cast(pl.Int128)
        x = args[0].cast(pl.Int128)
        if not left:
            return x.floordiv(by).cast(polars_type(call.type))
        size = pl.lit(2**bits, pl.Int128)
        low = x * by % size  # Polars' rest has the divisor's sign
        return pl.when(low >= 2 ** (bits - 1)).then(low - size).otherwise(low).cast(polars_type(call.type))

    return build


def _row(name: str) -> Function:
    why = _why if name in ("quotient", "remainder") else _too_large
    return Function(f"pg.{name}", _arithmetic(name), parts(_calculated(name), why))


OPERATORS: dict[str, Function] = {
    f.name: f
    for f in (
        *(_row(name) for name in ("add", "sub", "mul", "quotient", "remainder")),
        Function("pg.neg", _resolve_sign, null_fails(_negative, OUT_OF_RANGE)),
        Function("pg.place", _resolve_place, _place),
        Function("pg.bit_and", _resolve_bits, lambda call, args: args[0] & args[1]),
        Function("pg.bit_or", _resolve_bits, lambda call, args: args[0] | args[1]),
        Function("pg.bit_xor", _resolve_bits, lambda call, args: args[0] ^ args[1]),
        Function("pg.bit_not", _resolve_bit_not, lambda call, args: args[0] ^ pl.lit(-1, polars_type(call.type))),
        Function("pg.shift_left", _resolve_shift, _shifted(True)),
        Function("pg.shift_right", _resolve_shift, _shifted(False)),
    )
}
