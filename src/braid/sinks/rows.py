"""Rows of a result as a user's table.

In: frames of the last stage. Out: the same under the names of their columns.
Rule: the columns of the key come first, then the values; of a table `_op` says whether a row comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from braid.errors import escaped
from braid.operators.changes import DIFF, TIME
from braid.plan.logical import BOUNDS, Sink
from braid.records import codec
from braid.stage.emit import OF_WINDOW
from braid.types import Column, Scalar


def named(sink: Sink, frame: pl.DataFrame) -> pl.DataFrame:
    """A projected frame with the names of its columns, the bounds of its windows and `_rowtime`."""
    keys = [pl.col(f"_k{i}").alias(o.name) for i, o in enumerate(sink.key)]
    values = [pl.col(f"v{i}").alias(o.name) for i, o in enumerate(sink.values)]
    bounds = () if sink.window is None else (pl.col(b).alias(n) for b, n in zip(OF_WINDOW, BOUNDS, strict=True))
    of_table = [_op()] if sink.kind == "table" else []
    return frame.select(*keys, *values, *bounds, pl.col(TIME).alias("_rowtime"), *of_table)


def shown(sink: Sink, frame: pl.DataFrame) -> Iterator[str]:
    """Rows as JSON objects of the selected columns, in their order; of a table with `_op`."""
    made = [(f"_k{i}", Column(o.name, o.expr.type)) for i, o in enumerate(sink.key)]
    made += [(f"v{i}", Column(o.name, o.expr.type)) for i, o in enumerate(sink.values)]
    made.sort(key=lambda x: sink.columns.index(x[1].name) if x[1].name in sink.columns else len(sink.columns))
    if sink.kind == "table":
        frame, made = frame.with_columns(_op()), [*made, ("_op", Column("_op", Scalar.VARCHAR))]
    yield from map(escaped, codec.encode_values(frame, made))


def _op() -> pl.Expr:
    return pl.when(pl.col(DIFF) == 1).then(pl.lit("+")).otherwise(pl.lit("-")).alias("_op")
