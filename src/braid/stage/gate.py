"""Which rows of a table are late, for whoever reads it without a running query.

In: the rows of a topic, each with its epoch and partition, in the order of epochs. Out: which are below the watermark.
Rule: it is the operator of running queries that judges (`operators.on_time`), so both see the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from braid.bind.bound import Bounded, Declared
from braid.expr.nodes import Col
from braid.operators.base import State
from braid.operators.changes import LOW, NEVER, POS, POS_TYPE, no_rows
from braid.operators.clocks import CLOCK, STEPS, Clocks, LeafClock
from braid.operators.on_time import OnTime
from braid.operators.watermarks import ABOVE_ALL, Watermark, ticks_of
from braid.stage.bucket import Keepless
from braid.types import Scalar


class Gate:
    """The watermark of one table, moved on by the rows that are shown to it."""

    def __init__(self, watermark: Bounded, column: Col) -> None:
        self._operator, self._mark = OnTime(column, Watermark(0, column, column)), watermark.expr
        self._ticks_a_ms = 1 if column.type in (Scalar.INT, Scalar.BIGINT) else 1000
        self._kept: dict[str, Any] = {}
        self._state = State(Keepless(), "")

    @staticmethod
    def of(declared: Declared) -> Gate | None:
        """None for a table without a watermark."""
        if declared.relation is None or declared.relation.watermark is None:
            return None
        watermark = declared.relation.watermark
        return Gate(watermark, next(Col(c.name, c.type) for c in declared.columns if c.name == watermark.column))

    @property
    def now(self) -> int | None:
        """The watermark after all rows so far, in ms of a time; None while there is none."""
        clock = self._now()
        return clock // self._ticks_a_ms if clock > NEVER else None

    def late(self, rows: pl.DataFrame, epochs: Sequence[int] | pl.Series, partitions: Sequence[int]) -> pl.Series:
        """Which of the rows are late; the watermark moves on."""
        placed = rows.with_columns((pl.Series(epochs, dtype=POS_TYPE) * pl.lit(LOW, POS_TYPE)).alias(POS))
        parts = pl.Series("part", partitions, dtype=pl.Int32)
        clocks = self._moved(placed.select(POS, parts, ticks_of(self._mark).alias("value")))
        return pl.Series(self._operator.late(placed, clocks, self._state)[0])

    def next(self, rows: pl.DataFrame) -> pl.Series:
        """Which of these rows would be late in an epoch after all others; nothing moves."""
        return pl.Series(self._operator.below(rows, np.full(rows.height, self._now())))

    def lift(self, epoch: int, partitions: Sequence[int], time: int) -> None:
        """The partitions show nothing below `time` (ms) any more."""
        at = [epoch * LOW] * len(partitions)
        value = [time * self._ticks_a_ms] * len(partitions)
        shown = pl.DataFrame({POS: at, "part": partitions, "value": value},
                             schema={POS: POS_TYPE, "part": pl.Int32(), "value": pl.Int64()})  # fmt: skip
        self._operator.before(pl.Series([], dtype=pl.Int64), self._moved(shown), self._state)

    def _now(self) -> int:
        return Clocks(no_rows(STEPS), self._kept).end(LeafClock(0))

    def _moved(self, shown: pl.DataFrame) -> Clocks:
        known = shown.filter(pl.col("value") < ABOVE_ALL)
        steps = known.with_columns(pl.lit(0, pl.Int16).alias("leaf"), pl.lit(CLOCK, pl.Int8).alias("kind"))
        clocks = Clocks(steps.select(list(STEPS)), self._kept)
        self._kept = clocks.state()
        return clocks
