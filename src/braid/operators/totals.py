"""Sums of DECIMAL that are exact beyond its 38 digits: of values that come and go again the right sum must be left.

In: values group by group, the sums that stood before. Out: running sums, and what they are worth as a type.
Rule: a sum is two columns of one sign: digits, and how often 10^38 of the last digit's unit comes on top. The second is
0 wherever the sum is a DECIMAL; one that is none is NULL. A mean is rounded half away from zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from braid.operators.accumulation import Groups, Parts
from braid.types import Decimal, Type, polars_type

DIGITS = 38
TOP, HALF = 10**38, 10**19
SAFE = 0.9e38  # sums of sizes below this one stay below 10^38, whatever their floats are rounded to
UNITS = pl.Int128()


def columns(t: Decimal) -> tuple[pl.DataType, ...]:
    return (pl.Decimal(DIGITS, t.scale), pl.Int64())


def running(groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
    """After each row, from the values and what stood before."""
    taken_back = pl.Series(groups.diffs < 0)
    wide = value.cast(held[0].dtype)
    signed = wide if not taken_back.any() else (-wide).zip_with(taken_back, wide)
    return scanned(groups, [signed, pl.zeros(len(signed), dtype=pl.Int64, eager=True)], held)


def scanned(groups: Groups, values: Sequence[pl.Series], held: Sequence[pl.Series]) -> list[pl.Series]:
    """The same of values that are sums themselves."""
    scale = _scale(held[0])
    digits = groups.spread(held[0].fill_null(0), values[0].fill_null(0)).to_physical()
    times = groups.spread(held[1].fill_null(0), values[1].fill_null(0))
    if not (times != 0).any() and (digits.cast(pl.Float64).abs().sum() or 0) < SAFE:
        return [decimal_of(groups.over(pl.col("v").cum_sum(), digits), scale), times]
    parts = digits.to_frame("d").select(high=pl.col("d") // _units(HALF), low=pl.col("d") % _units(HALF))
    high = groups.over(pl.col("v").cum_sum(), parts["high"] + times.cast(UNITS) * pl.Series([HALF], dtype=UNITS))
    low = groups.over(pl.col("v").cum_sum(), parts["low"])
    return _carried(high, low, scale)


def folded(parts: Parts, value: pl.Series) -> list[pl.Series]:
    """The sums of parts of the rows, where they fit (`fits`)."""
    scale = _scale(value)
    units = parts.of(value.to_physical().fill_null(0) * pl.Series(parts.diff).cast(UNITS), pl.Expr.sum)
    return [decimal_of(units, scale), pl.zeros(len(units), dtype=pl.Int64, eager=True)]


def fits(value: pl.Series, held: Sequence[pl.Series], t: Type) -> bool:
    """Whether all sums of some values on top of what stood, and their means, are DECIMALs of this type."""
    assert isinstance(t, Decimal)
    if (held[1] != 0).any():
        return False
    size = sum(
        float(np.abs(x.to_physical().cast(pl.Float64).fill_null(0.0).to_numpy()).sum()) for x in (value, held[0])
    )
    return size * max(1.0, 2 * 10.0 ** (t.scale - _scale(value))) < SAFE / 10.0 ** (DIGITS - t.precision)


def _carried(high: pl.Series, low: pl.Series, scale: int) -> list[pl.Series]:
    """high * 10^19 + low as digits and times, of one sign."""
    d, t, all_ = pl.col("d"), pl.col("t"), pl.col("h") + pl.col("l") // _units(HALF)
    frame = pl.DataFrame([high.alias("h"), low.alias("l")]).select(
        t=all_ // _units(HALF), d=all_ % _units(HALF) * _units(HALF) + pl.col("l") % _units(HALF)
    )
    borrows = (t < 0) & (d > 0)
    frame = frame.select(
        d=pl.when(borrows).then(d - _units(TOP)).otherwise(d), t=pl.when(borrows).then(t + 1).otherwise(t)
    )
    return [decimal_of(frame["d"], scale), frame["t"].cast(pl.Int64)]


def total(held: Sequence[pl.Series], t: Type) -> pl.Series:
    """The sum, where the type has so many digits."""
    return held[0].set(held[1] != 0, None).cast(polars_type(t), strict=False)


def mean(held: Sequence[pl.Series], t: Type) -> pl.Series:
    """The sum through the number of values."""
    assert isinstance(t, Decimal)
    shift = 10 ** (t.scale - _scale(held[0]))
    count = held[2].fill_null(0)
    units = held[0].to_physical()
    plain = (held[1] == 0) & (units.cast(pl.Float64).abs() * float(2 * shift) < SAFE) & (count > 0)
    frame = pl.DataFrame([units.set(~plain, 0).alias("u"), count.set(~plain, 1).cast(UNITS).alias("n")])
    twice = (pl.col("u").abs() * _units(2 * shift) + pl.col("n")) // (pl.col("n") * 2)
    made = frame.select(q=twice * pl.col("u").sign())["q"]
    if (odd := np.flatnonzero(~plain.to_numpy())).size:
        places = pl.Series(odd)
        rows = zip(
            units.gather(places).to_list(),
            held[1].gather(places).to_list(),
            count.gather(places).to_list(),
            strict=True,
        )
        made = made.scatter(places, pl.Series([_mean(u, n, m, shift) for u, n, m in rows], dtype=UNITS))
    return decimal_of(made, t.scale).cast(polars_type(t), strict=False)


def _mean(units: int, times: int, count: int, shift: int) -> int | None:
    """Slow path (Python integers)."""
    if not count:
        return None
    whole = (units + times * TOP) * shift
    made = (2 * abs(whole) + count) // (2 * count)
    return None if made >= TOP else made if whole > 0 else -made


def decimal_of(units: pl.Series, scale: int) -> pl.Series:
    """Whole numbers of units as a DECIMAL of so many digits behind the point."""
    plain = units.cast(pl.Decimal(DIGITS, 0)).to_arrow()
    made = pa.Array.from_buffers(
        pa.decimal128(DIGITS, scale), len(plain), plain.buffers(), plain.null_count, plain.offset
    )
    found = pl.from_arrow(made)
    assert isinstance(found, pl.Series)
    return found


def _scale(held: pl.Series) -> int:
    assert isinstance(held.dtype, pl.Decimal)
    return held.dtype.scale


def _units(n: int) -> pl.Expr:
    return pl.lit(n, dtype=UNITS)
