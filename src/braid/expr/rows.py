"""The slow path: a Python function over each row, for the few meanings Polars cannot express; lists, equal rows.

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
LONGEST = 1 << 20  # characters that a padding fills up to; a length can come from data, and records are not longer

_MANY, _FIRST = 8, 1024  # rows to equal ones that follow each other, on average; so many are looked at before all


def rows(f: Callable[..., object], args: Sequence[pl.Expr], dtype: pl.DataType, *, nulls: bool = False) -> pl.Expr:
    """`f` of the values of `args`, row by row. With `nulls` the function is called for null arguments too."""

    def one(s: pl.Series) -> pl.Series:
        return made(s.name, [None if v is None and not nulls else f(v) for v in s.to_list()], dtype)

    def many(s: pl.Series) -> pl.Series:
        columns: list[list[Any]] = [s.struct.field(str(i)).to_list() for i in range(len(args))]
        values = [None if not nulls and any(v is None for v in row) else f(*row) for row in zip(*columns, strict=True)]
        return made(s.name, values, dtype)

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
        return made(s.name, values, dtype)

    packed = pl.struct([a.alias(str(i)) for i, a in enumerate(args)])
    return packed.map_batches(many, return_dtype=dtype, is_elementwise=True)


def once(f: Callable[..., object], args: pl.DataFrame, dtype: pl.DataType) -> tuple[pl.Series, pl.Series]:
    """`f` of the rows of `args`, called once for equal ones; null where it raises a `ValueError`, and where it does."""
    known: dict[tuple[Any, ...], tuple[object, bool]] = {}
    found: list[tuple[object, bool]] = []
    for row in zip(*(c.to_list() for c in args.get_columns()), strict=True):
        if row not in known:
            try:
                known[row] = (None if any(v is None for v in row) else f(*row), False)
            except ValueError:
                known[row] = (None, True)
        found.append(known[row])
    return made("", [v for v, _ in found], dtype), pl.Series([bad for _, bad in found], dtype=pl.Boolean)


def runs(columns: Sequence[pl.Series]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Rows that are equal and follow each other: where such begin, and of each row the number of its run; None where
    these are of a few rows only, or hold what is not compared by its bytes."""
    if not columns or len(columns[0]) < _MANY or any(c.dtype.is_nested() or c.dtype.is_float() for c in columns):
        return None
    begins = np.zeros(0, dtype=np.bool_)
    for some in ([c.head(_FIRST) for c in columns], columns):
        begins = np.zeros(len(some[0]), dtype=np.bool_)
        begins[:1] = True
        for column in some:
            begins |= column.ne_missing(column.shift()).to_numpy()
            if np.count_nonzero(begins) * _MANY > len(begins):
                return None
    return np.flatnonzero(begins), np.cumsum(begins) - 1


def made(name: str, values: Sequence[object], dtype: pl.DataType) -> pl.Series:
    """The values as a column. Polars takes 5 to 40 times as long as Arrow where they are lists or structures."""
    if not dtype.is_nested():
        return pl.Series(name, values, dtype=dtype)
    found = pl.from_arrow(pa.array(values, type=pl.Series([], dtype=dtype).to_arrow().type))
    assert isinstance(found, pl.Series)
    return found.cast(dtype).alias(name)


def lists(values: pl.Series, sizes: npt.NDArray[np.int64]) -> pl.Series:
    """The values, one after the other, as lists of these sizes."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    made = pl.from_arrow(pa.LargeListArray.from_arrays(offsets, values.to_arrow()))
    assert isinstance(made, pl.Series)
    return made.cast(pl.List(values.dtype))
