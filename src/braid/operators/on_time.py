"""On time: the rows of a source that its watermark has not passed before their epoch.

In: rows of one source, in processing order. Out: those that are not late, in the same order; the late ones, dropped.
Rule: the bound is the watermark before the row's epoch, so rows of one epoch never make each other late. What a later
batch brings of an epoch, or for one that has gone by, belongs to the last epoch there was. (docs/rules/risingwave.md,
RW-43)

*Matches* nothing.
*Keeps* the last epoch, and the watermark before it: the next batch may go on with it.
*Emits* a row at its own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import NEVER, POS, Flags, sequence_of
from braid.operators.clocks import Clocks, LeafClock
from braid.operators.multiset import end_of
from braid.operators.pairing import dropped_rows
from braid.operators.ranges import Ints
from braid.operators.watermarks import ABOVE_ALL, Watermark, ticks_of
from braid.types import WHOLE_NUMBERS


@dataclass(frozen=True, slots=True)
class OnTime:
    """`value` is what may be late; the watermark is that of its column."""

    value: Expr
    watermark: Watermark

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        late, before = self.late(rows, clocks, state)
        if not late.any():
            return Result(rows)
        lost, clock = pl.Series(late), before[late]
        if self.value.type not in WHOLE_NUMBERS:
            clock = clock // 1000  # told in ms
        return Result(rows.filter(~lost), dropped_rows(rows.filter(lost), "late", None, clock))

    def late(self, rows: pl.DataFrame, clocks: Clocks, state: State) -> tuple[Flags, Ints]:
        """Which rows are late, and the clock before the epoch of each."""
        before = self.before(rows.select(sequence_of(pl.col(POS))).to_series(), clocks, state)
        return self.below(rows, before), before

    def below(self, rows: pl.DataFrame, before: Ints) -> Flags:
        """Which rows are late under these clocks."""
        ticks = rows.select(ticks_of(self.value).alias("t"))["t"].to_numpy()
        late: Flags = (ticks < self.watermark.of(before)) | ((ticks == ABOVE_ALL) & (before > NEVER))
        return late

    def before(self, epochs: pl.Series, clocks: Clocks, state: State) -> Ints:
        """The clock before each epoch; the last epoch and the clock before it are kept."""
        kept = state.manifest.setdefault("epoch", {"last": NEVER, "clock": NEVER})
        last, clock = kept["last"], kept["clock"]
        new = clocks.last(self.watermark.leaf)
        if new > last:
            kept |= {"last": new, "clock": int(self._at_begin(pl.Series([new]), clocks)[0])}
        return np.where(epochs.to_numpy() > last, self._at_begin(epochs, clocks), clock)

    def _at_begin(self, epochs: pl.Series, clocks: Clocks) -> Ints:
        """The clock where an epoch begins."""
        begins = epochs.to_frame("e").select(end_of(pl.col("e") - 1).alias("p"))["p"]
        return clocks.at(LeafClock(self.watermark.leaf), begins)
