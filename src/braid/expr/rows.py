"""The slow path: a Python function over each row, for the few meanings Polars cannot express.

In: Polars expressions and a function of plain values. Out: a Polars expression.
Rule: null in, null out; used only where a caller says why no columnar form gives the exact meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

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
