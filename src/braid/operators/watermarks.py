"""Watermarks inside an operator: what they say after an epoch, in ticks.

In: the clocks of a batch, and bounds of the plan. Out: ticks of values, limits below which nothing more comes.
Rule: a watermark is the clock of a source put in the place of its column; the limit of several is the lowest.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Col, Expr
from braid.operators.arrangement import Newest
from braid.operators.base import State
from braid.operators.changes import NEVER
from braid.operators.clocks import FOREVER, Clocks, Closing, LeafClock
from braid.operators.ranges import Ints
from braid.types import WHOLE_NUMBERS, Type, polars_type

ABOVE_ALL = 2**62  # the tick of a NULL: no watermark passes it


def ticks(value: pl.Expr, t: Type) -> pl.Expr:
    """A value as a tick: microseconds of dates and timestamps, integers as they are; NULL is above all."""
    made = value.cast(pl.Int64) if t in WHOLE_NUMBERS else value.cast(pl.Datetime("us")).to_physical()
    return made.fill_null(ABOVE_ALL)


def ticks_of(e: Expr) -> pl.Expr:
    return ticks(compile.to_polars(e), e.type)


@dataclass(frozen=True, slots=True)
class Watermark:
    """A bound of the plan (`epochs.Bound`), on the clock of a leaf."""

    leaf: int
    column: Col
    value: Expr
    slide: int = 0
    offset: int = 0
    ahead: int = 0

    def of(self, clock: Ints) -> Ints:
        """The watermark for each value of the clock."""
        known = (clock > NEVER) & (clock < FOREVER)
        at = pl.Series(self.column.name, np.where(known, clock, 0), dtype=pl.Int64)
        if self.column.type not in WHOLE_NUMBERS:
            at = at.cast(pl.Datetime("us"))
        at = at.cast(polars_type(self.column.type))
        made = at.to_frame().select(ticks_of(self.value).alias("t"))["t"].to_numpy()
        if self.slide:
            made = (made - self.offset) // self.slide * self.slide + self.offset + self.ahead
        return np.where(known, made, np.where(clock >= FOREVER, FOREVER, NEVER))


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A row whose `value` is below all watermarks meets nothing any more."""

    value: Expr
    watermarks: tuple[Watermark, ...]

    def limit(self, clocks: Clocks) -> int:
        """The lowest watermark after the batch."""
        return after(self.watermarks, clocks)


@dataclass(frozen=True, slots=True)
class Passing:
    """Rows of a table are not changed any more once the watermarks have passed a part of their key, `key` of `type`.
    The value that stands for NULL there, of tick 0, is never passed."""

    key: str
    type: Type
    watermarks: tuple[Watermark, ...]

    @property
    def tick(self) -> pl.Expr:
        made = ticks(pl.col(self.key), self.type)
        return pl.when(made == 0).then(ABOVE_ALL).otherwise(made)

    def forget(self, held: Newest, clocks: Clocks) -> None:
        """Forgets what the watermarks have passed after the batch."""
        held.forget(after(self.watermarks, clocks))

    def forgotten(self, state: State, name: str, keys: Sequence[str], clocks: Clocks) -> None:
        """The same in a batch without rows."""
        if name in state.manifest:
            held = Newest(state, name, keys, self.tick)
            before = len(held.runs)
            self.forget(held, clocks)
            if len(held.runs) < before:
                held.close()


def by_time(keys: Sequence[str], closing: Closing | None, passing: Passing | None) -> str | pl.Expr | None:
    """What the rows of a table expire by: the end of a window, the last of their key, or what has a watermark."""
    if passing is not None:
        return passing.tick
    return None if closing is None else keys[-1]


def after(watermarks: Sequence[Watermark], clocks: Clocks) -> int:
    """The lowest of several watermarks after the batch."""
    return int(lowest(watermarks, [np.array([clocks.end(LeafClock(w.leaf))]) for w in watermarks])[0])


def lowest(watermarks: Sequence[Watermark], clocks: Sequence[Ints]) -> Ints:
    """The lowest of several watermarks, for each value of their clocks."""
    made = [w.of(clock) for w, clock in zip(watermarks, clocks, strict=True)]
    return functools.reduce(np.minimum, made)
