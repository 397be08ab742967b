"""The slow path: a Python function over each row, for the few meanings Polars cannot express; and lists of values.

In: Polars expressions and a function of plain values. Out: a Polars expression.
Rule: null in, null out; used only where a caller says why no columnar form gives the exact meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

LARGEST = 16 << 20  # bytes of a text that is made of others: a record has no more


def rows(f: Callable[..., object], args: Sequence[pl.Expr], dtype: pl.DataType, *, nulls: bool = False) -> pl.Expr:
    """`f` of the values of `args`, row by row. With `nulls` the function is called for null arguments too."""

    def one(s: pl.Series) -> pl.Series:
        return pl.Series(s.name, [None if v is None and not nulls else f(v) for v in s.to_list()], dtype=dtype)

    def many(s: pl.Series) -> pl.Series:
        columns: list[list[Any]] = [s.struct.field(str(i)).to_list() for i in range(len(args))]
        values = [None if not nulls and any(v is None for v in row) else f(*row) for row in zip(*columns, strict=True)]
        return pl.Series(s.name, values, dtype=dtype)

    if len(args) == 1:
        return args[0].map_batches(one, return_dtype=dtype, is_elementwise=True)
    packed = pl.struct([a.alias(str(i)) for i, a in enumerate(args)])
    return packed.map_batches(many, return_dtype=dtype, is_elementwise=True)


def distinct(f: Callable[..., object], args: Sequence[pl.Expr], dtype: pl.DataType, *, nulls: bool = False) -> pl.Expr:
    """The same, with `f` called once a batch for equal arguments, which are texts, whole numbers and the like."""

    def many(s: pl.Series) -> pl.Series:
        columns: list[list[Any]] = [s.struct.field(str(i)).to_list() for i in range(len(args))]
        known: dict[tuple[Any, ...], object] = {}
        values: list[object] = []
        for row in zip(*columns, strict=True):
            if row not in known:
                known[row] = None if not nulls and any(v is None for v in row) else f(*row)
            values.append(known[row])
        return pl.Series(s.name, values, dtype=dtype)

    packed = pl.struct([a.alias(str(i)) for i, a in enumerate(args)])
    return packed.map_batches(many, return_dtype=dtype, is_elementwise=True)


def lists(values: pl.Series, sizes: npt.NDArray[np.int64]) -> pl.Series:
    """The values, one after the other, as lists of these sizes."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    made = pl.from_arrow(pa.LargeListArray.from_arrays(offsets, values.to_arrow()))
    assert isinstance(made, pl.Series)
    return made.cast(pl.List(values.dtype))
