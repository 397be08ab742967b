"""Rows of a result as a user's table.

In: frames of the last stage. Out: the same under the names of their columns.
Rule: the columns of the key come first, then the values; of a table `_op` says whether a row comes or goes. Where a
column of the user's is called so, in whatever case, ours has one more underscore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from braid.errors import escaped
from braid.operators.changes import DIFF, TIME
from braid.plan.logical import BOUNDS, Sink
from braid.records import codec
from braid.stage.emit import OF_WINDOW
from braid.types import Column, Scalar


def free(name: str, taken: Iterable[str]) -> str:
    """A name of ours that no column has."""
    known = {x.casefold() for x in taken}
    while name.casefold() in known:
        name = f"_{name}"
    return name


class Ours(NamedTuple):
    """What is called so beside the columns of a result: a row's time, whether it comes or goes, the bounds of its
    window."""

    rowtime: str
    op: str
    bounds: tuple[str, ...]


def ours(sink: Sink) -> Ours:
    taken = [o.name for o in (*sink.key, *sink.values)]
    bounds = () if sink.window is None else BOUNDS
    return Ours(free("_rowtime", taken), free("_op", taken), tuple(free(n, taken) for n in bounds))


def named(sink: Sink, frame: pl.DataFrame) -> pl.DataFrame:
    """A projected frame with the names of its columns, the bounds of its windows and what is ours."""
    rowtime, op, names = ours(sink)
    keys = [pl.col(f"_k{i}").alias(o.name) for i, o in enumerate(sink.key)]
    values = [pl.col(f"v{i}").alias(o.name) for i, o in enumerate(sink.values)]
    bounds = () if sink.window is None else (pl.col(b).alias(n) for b, n in zip(OF_WINDOW, names, strict=True))
    of_table = [comes_or_goes(op)] if sink.kind == "table" else []
    return frame.select(*keys, *values, *bounds, pl.col(TIME).alias(rowtime), *of_table)


def shown(sink: Sink, frame: pl.DataFrame) -> Iterator[str]:
    """Rows as JSON objects of the selected columns, in their order; of a table with `_op`."""
    made = [(f"_k{i}", Column(o.name, o.expr.type)) for i, o in enumerate(sink.key)]
    made += [(f"v{i}", Column(o.name, o.expr.type)) for i, o in enumerate(sink.values)]
    made.sort(key=lambda x: sink.columns.index(x[1].name) if x[1].name in sink.columns else len(sink.columns))
    if sink.kind == "table":
        op = ours(sink).op
        frame, made = frame.with_columns(comes_or_goes("_op")), [*made, ("_op", Column(op, Scalar.VARCHAR))]
    yield from map(escaped, codec.encode_values(frame, made))


def comes_or_goes(name: str) -> pl.Expr:
    return pl.when(pl.col(DIFF) == 1).then(pl.lit("+")).otherwise(pl.lit("-")).alias(name)
