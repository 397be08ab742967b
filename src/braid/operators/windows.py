"""Windows: each row once for each window that its time lies in, with the window's bounds as columns.

In: changes in processing order. Out: the same rows, each with the bounds of one window, in the order of windows.
Rule: windows begin at an offset plus every multiple of the slide; begin included, end not.

*Matches* nothing. *Keeps* nothing. *Emits* at a row's own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Col, Expr
from braid.operators.base import Result, State
from braid.operators.changes import SUB, numbers_within, result_sub
from braid.operators.clocks import Clocks
from braid.operators.pairing import dropped_rows
from braid.operators.ranges import rows_at
from braid.plan import epochs
from braid.types import polars_type


@dataclass(frozen=True, slots=True)
class Windows:
    """Fields as those of the node."""

    time: Expr
    size: int
    slide: int
    offset: int
    start: Col
    end: Col
    keep_null: bool

    @staticmethod
    def of(node: epochs.Windows) -> Windows:
        return Windows(node.time, node.size, node.slide, node.offset, node.start, node.end, node.null_time == "keep")

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        made, failed = compile.evaluate(rows, [("_time", self.time)])
        dropped = dropped_rows(rows.filter(failed), "expression", None) if failed.any() else None
        time = made["_time"].cast(pl.Datetime("us")).to_physical()
        if time.null_count() and not self.keep_null:
            rows, time = rows.filter(time.is_not_null()), time.drop_nulls()
        many = self.size // self.slide
        last = (time - self.offset) // self.slide * self.slide + self.offset
        which = np.repeat(np.arange(rows.height, dtype=np.int64), many)
        back = np.tile(np.arange(many - 1, -1, -1, dtype=np.int64) * self.slide, rows.height)
        starts = last.gather(which) - pl.Series(back)
        if many > 1 and time.null_count():
            once = (starts.is_not_null() | pl.Series(back == 0)).to_numpy()
            which, starts = which[once], starts.filter(pl.Series(once))
        out = rows_at(rows, which).with_columns(_moment(starts, self.start), _moment(starts + self.size, self.end))
        if many > 1 and rows.height and rows[SUB].null_count() < rows.height:
            out = out.with_columns(result_sub(out[SUB], pl.Series(numbers_within(which))).alias(SUB))
        return Result(out, dropped)


def _moment(microseconds: pl.Series, column: Col) -> pl.Series:
    return microseconds.cast(pl.Datetime("us")).cast(polars_type(column.type)).alias(column.name)
