"""Lateral: each row once for each element of an array.

In: changes in processing order. Out: the rows with an element beside them, in the order of the row, then of the array.
Rule: no array and an empty one give no row. A tombstone passes on; a stream's null value gives no row. A row taken back
takes back what it gave.

*Matches* nothing. *Keeps* nothing. *Emits* at the row's own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, SUB, result_sub
from braid.operators.clocks import Clocks
from braid.operators.pairing import failed_rows
from braid.operators.ranges import begins, rows_at, values_at
from braid.plan import logical
from braid.plan.node import Mode
from braid.types import Type, polars_type


@dataclass(frozen=True, slots=True)
class Lateral:
    """`element`, `index`: the plan columns of an element and its number; `mode`: what a row with -1 means."""

    array: Expr
    element: str
    type: Type
    mode: Mode
    index: str | None = None

    @staticmethod
    def of(node: logical.Lateral) -> Lateral:
        index = None if node.index is None else node.index.name
        return Lateral(node.array, node.element.name, node.element.type, node.mode, index)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        dtype = polars_type(self.type)
        if not rows.height:
            index = [] if self.index is None else [pl.lit(None, pl.Int32).alias(self.index)]
            return Result(rows.with_columns(pl.lit(None, dtype).alias(self.element), *index))
        made, failed = compile.evaluate(rows, [("_array", self.array)])
        alive = rows[DIFF].to_numpy() == 1
        dropped = failed_rows(rows, failed, [self.array])
        sizes = made["_array"].list.len().fill_null(0).to_numpy().astype(np.int64)
        if self.mode != "retract":
            sizes = np.where(alive, sizes, int(self.mode == "upsert"))
        which = np.repeat(np.arange(rows.height, dtype=np.int64), sizes)
        first = np.flatnonzero(begins(which))
        number = np.arange(len(which)) - np.repeat(first, np.diff(np.append(first, len(which))))
        arrays = values_at(made["_array"], which)
        element = arrays.list.get(pl.Series(number), null_on_oob=True).cast(dtype).alias(self.element)
        out = rows_at(rows, which).with_columns(element)
        if self.index is not None:
            out = out.with_columns(pl.Series(self.index, number, dtype=pl.Int32))
        if rows[SUB].null_count() < rows.height:
            out = out.with_columns(result_sub(values_at(rows[SUB], which), pl.Series(number)).alias(SUB))
        return Result(out, dropped)
