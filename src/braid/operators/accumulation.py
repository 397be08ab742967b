"""What an aggregate is to whoever runs it, and the groups that it runs over.

In: rows of a batch group by group. Out: running values within each group.
Rule: a group's values stand in processing order, behind what stood before the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.operators.ranges import Flags, Ints, as_before, values_at
from braid.types import Type


@dataclass(frozen=True, slots=True)
class Groups:
    """The rows of a batch by group, each group's in processing order and led by a row for what stood before."""

    group: Ints
    start: Flags
    first: Ints  # where each group begins
    rest: Ints  # where the rows are
    diff: Ints  # 0 for the leading rows
    ends: Flags | None = None  # which of the others are the last of their group in an epoch, where that is asked for

    @staticmethod
    def led(first: Ints, diff: Ints) -> Groups:
        """Of rows group by group: where each group begins among them, and their `diff`."""
        leads = first + np.arange(len(first))
        start = np.zeros(len(diff) + len(first), dtype=np.bool_)
        start[leads] = True
        rest, diffs = np.flatnonzero(~start), np.zeros(len(start), dtype=np.int64)
        diffs[rest] = diff
        return Groups(np.cumsum(start) - 1, start, leads, rest, diffs)

    @property
    def diffs(self) -> Ints:
        """Those of the rows."""
        return self.diff[self.rest]

    def spread(self, leading: pl.Series, values: pl.Series) -> pl.Series:
        """One value for each place: of the leading rows, and of the others."""
        at = np.empty(len(self.group), dtype=np.int64)
        at[self.first] = np.arange(len(self.first))
        at[self.rest] = len(self.first) + np.arange(len(values))
        return values_at(leading.clone().append(values), at)

    def sums(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Running sums within each group; they wrap."""
        total = np.cumsum(values)
        return total - (total[self.first] - values[self.first])[self.group]

    def maxima(self, values: Ints) -> Ints:
        """Running maxima within each group."""
        if not len(values):
            return values
        low, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span.bit_length() + len(self.first).bit_length() < 63:
            shift = self.group * span
            return np.maximum.accumulate(values - low + shift) - shift + low
        return self.over(pl.col("v").cum_max(), pl.Series(values)).to_numpy()

    def over(self, running: pl.Expr, values: pl.Series) -> pl.Series:
        """A running value of column `v` within each group."""
        frame = pl.DataFrame([values.alias("v"), pl.Series("g", self.group)])
        return frame.select(running.over("g", mapping_strategy="explode"))["v"]


def ends_of(group: Ints, epoch: Ints) -> Flags:
    """Which rows are the last of their group in an epoch."""
    return np.append((group[1:] != group[:-1]) | (epoch[1:] != epoch[:-1]), True)


@dataclass(frozen=True, slots=True)
class Parts:
    """The rows of a batch group by group, in parts that count as one row each: those of a group in one epoch. `first`:
    where each part begins; `diff`: of the rows."""

    first: Ints
    diff: Ints

    @property
    def ends(self) -> Flags:
        """Which rows are the last of their part."""
        made = np.zeros(len(self.diff), dtype=np.bool_)
        made[np.append(self.first[1:], len(self.diff)) - 1] = True
        return made

    @property
    def single(self) -> bool:
        """Whether each row is a part by itself."""
        return len(self.first) == len(self.diff)

    def sums(self, values: npt.NDArray[np.int64]) -> pl.Series:
        """The sum of each part; sums wrap. Rows that go are taken off."""
        signed = values if (self.diff == 1).all() else values * self.diff
        if self.single:
            return pl.Series(signed)
        ends = np.append(self.first[1:], len(signed)) - 1
        return pl.Series(np.diff(np.cumsum(signed)[ends], prepend=0))  # a third of what `reduceat` takes

    def of(self, values: pl.Series, made: Callable[[pl.Expr], pl.Expr]) -> pl.Series:
        """What is made of the values of each part; of a single one itself."""
        if self.single:
            return values
        part = np.repeat(np.arange(len(self.first)), np.diff(np.append(self.first, len(self.diff))))
        frame = pl.DataFrame([pl.Series("p", part).set_sorted(), values.alias("v")])
        if values.null_count():
            frame = frame.filter(pl.col("v").is_not_null())
        found = frame.group_by("p", maintain_order=True).agg(made(pl.col("v")))
        if found.height == len(self.first):
            return found["v"]
        return values.clear(len(self.first)).scatter(found["p"], found["v"])

    def extreme(self, values: pl.Series, made: Callable[[pl.Expr], pl.Expr]) -> pl.Series:
        """The lowest or the highest value of each part. (All of a part are often the same: a date of what came at one
        time.)"""
        if self.single or values.dtype.is_float() or values.dtype.is_nested():
            return self.of(values, made)
        same = as_before(values)
        same[self.first[1:] - 1] = True
        return values_at(values, self.first) if same.all() else self.of(values, made)


Columns = Callable[[Type], tuple[pl.DataType, ...]]
Running = Callable[[Groups, pl.Series, Sequence[pl.Series]], list[pl.Series]]
Result = Callable[[Sequence[pl.Series], Type], pl.Series]
Merged = Callable[[Sequence[pl.Series], Sequence[pl.Series]], list[pl.Series]]
Scanned = Callable[[Groups, Sequence[pl.Series], Sequence[pl.Series]], list[pl.Series]]
Folded = Callable[[Parts, pl.Series], list[pl.Series]]
Fits = Callable[[pl.Series, Sequence[pl.Series], Type], bool]


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How one aggregate runs. `columns`: the types of its accumulators for a type of argument; `running`: each of them
    after each row, from the groups, the argument and what stood before; `result`: the value of them, of a type;
    `merged`: those of two sessions, one behind the other, that are one; `scanned`: of many, where their order does not
    matter: each after each of them, from the groups, theirs, and what stood before; `unfit`: which results are NULL
    because their type is too small; `folded`: those of parts of rows, from the argument, where neither the order of the
    rows matters nor how many parts they are; `fits`: whether no result on the way from what stood before, through all
    values, is unfit."""

    columns: Columns
    running: Running
    result: Result
    merged: Merged
    scanned: Scanned | None = None
    unfit: Result | None = None
    folded: Folded | None = None
    fits: Fits | None = None
