"""On time: the rows of a source that its watermark had not passed when they came.

In: rows of one source, in processing order. Out: those that are not late, in the same order; the late ones, dropped.
Rule: the bound is the watermark before the row, in the order of its source, so one run gives what two give. A row that
a statement has written was judged by it, by the watermark before the statement: it is not judged again.
(docs/rules/risingwave.md, RW-43)

*Matches* nothing. *Keeps* nothing: clocks are kept with the batch.
*Emits* a row at its own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr.nodes import Col, Expr
from braid.operators.base import Result, State
from braid.operators.changes import NEVER, POS, Flags
from braid.operators.clocks import Clocks, Late, LeafClock
from braid.operators.pairing import late_rows
from braid.operators.ranges import Ints
from braid.operators.watermarks import ABOVE_ALL, Watermark, ticks_of
from braid.types import WHOLE_NUMBERS


@dataclass(frozen=True, slots=True)
class OnTime:
    """`value` is what may be late; the watermark is that of its column; `judged` as in the node."""

    value: Expr
    watermark: Watermark
    judged: Col | None = None

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        late, before = self.late(rows, clocks)
        if self.judged is not None:
            rows = rows.drop(self.judged.name)
        if not late.any():
            return Result(rows)
        lost, clock, short = rows.filter(pl.Series(late)), before[late], None
        if self.value.type not in WHOLE_NUMBERS:  # told in ms
            ticks = lost.select(ticks_of(self.value).alias("t"))["t"]
            behind = pl.Series(self.watermark.of(clock)) - ticks
            clock, short = clock // 1000, ((behind + 999) // 1000).set(ticks == ABOVE_ALL, None)
        told = Late(clock, clocks.moved(LeafClock(self.watermark.leaf), lost[POS]), short)
        return Result(rows.filter(pl.Series(~late)), late_rows(lost, None, told))

    def late(self, rows: pl.DataFrame, clocks: Clocks) -> tuple[Flags, Ints]:
        """Which rows are late, and the clock before each."""
        before = clocks.before(LeafClock(self.watermark.leaf), rows[POS])
        late = self.below(rows, before)
        return late if self.judged is None else late & ~rows[self.judged.name].to_numpy().astype(np.bool_), before

    def below(self, rows: pl.DataFrame, before: Ints) -> Flags:
        """Which rows are late under these clocks."""
        ticks = rows.select(ticks_of(self.value).alias("t"))["t"].to_numpy()
        late: Flags = (ticks < self.watermark.of(before)) | ((ticks == ABOVE_ALL) & (before > NEVER))
        return late
