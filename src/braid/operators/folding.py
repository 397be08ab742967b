"""Folding: the rows of a group in one epoch as one row, where only what stands after the epoch counts.

In: rows of a batch by group; or, before they leave for the buckets of their groups, rows under the key of the group.
Out: a row for each group and epoch, with what its rows add up to.
Rule: only aggregates that are exact in any order. The row that is left is the last one of its group in the epoch; it
comes, whatever the others did. Nothing is kept: what stood before is added where the groups are.
(docs/decisions/0107-rows-of-an-epoch-are-one.md)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import trace
from braid.operators.accumulation import Groups, Parts, ends_of
from braid.operators.accumulators import Accumulators, accumulation, evaluated
from braid.operators.changes import DIFF, HASH, HEADERS, POS, SUB, TIME, sequence_of
from braid.operators.lives import Timeline, timeline
from braid.operators.pairing import keys_of
from braid.operators.ranges import Ints, columns_of, rows_at, values_at
from braid.plan import groups
from braid.plan.node import Mode


@dataclass(frozen=True, slots=True)
class Folding:
    """What is added up of rows that leave: in place of their columns they have the accumulators of these."""

    aggregations: tuple[groups.Aggregation, ...]

    @staticmethod
    def of(aggregations: tuple[groups.Aggregation, ...], mode: Mode) -> Folding | None:
        """None: their order matters, or a row that goes takes more back than a number."""
        folds = all(accumulation(a).folded is not None and not a.leaves for a in aggregations)
        extremes = mode != "append" and any(a.function in ("MIN", "MAX") for a in aggregations)
        return Folding(aggregations) if folds and not extremes else None

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return Accumulators(self.aggregations).schema

    def folded(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
        """The rows that are left; those whose arguments failed, and why."""
        accumulators, keys = Accumulators(self.aggregations), keys_of(rows)
        values, failed = evaluated(accumulators, rows)
        lost = rows.filter(failed)
        why = trace.messages(lost, [e for _, e in accumulators.arguments])
        line = timeline([rows], None, keys)
        parts = parts_of(line, rows)
        known = [values_at(values[f"{i}"], line.number) for i in range(len(self.aggregations))]
        made = self._parts(accumulators, parts, known)
        line, few = as_one(line, rows, parts)
        names = [POS, SUB, TIME, DIFF, HASH, *keys, *([HEADERS] if HEADERS in few.columns else [])]
        return columns_of(few, names).hstack(rows_at(made, np.argsort(line.number)).get_columns()), lost, why

    def _parts(self, accumulators: Accumulators, parts: Parts, known: list[pl.Series]) -> pl.DataFrame:
        """The accumulators of each part of the rows."""
        nothing = pl.DataFrame(schema=accumulators.schema)
        if accumulators.fold(known, nothing, ()):
            return accumulators.folded(parts, known, ())
        groups = Groups.led(parts.first, parts.diff)  # sums that need more digits than one number has
        before = nothing.clear(len(parts.first))
        running = pl.DataFrame(accumulators.running(groups, known, before))
        return rows_at(running, np.flatnonzero(~groups.start)[parts.ends])


def epochs_of(rows: pl.DataFrame, number: Ints) -> Ints:
    """In which epoch these rows are."""
    return rows.select(sequence_of(pl.col(POS)).alias("e"))["e"].to_numpy()[number]


def parts_of(line: Timeline, rows: pl.DataFrame) -> Parts:
    """The rows of each group and epoch."""
    ends = ends_of(line.group, epochs_of(rows, line.number))
    return Parts(np.append(0, np.flatnonzero(ends)[:-1] + 1), rows[DIFF].to_numpy()[line.number])


def as_one(line: Timeline, rows: pl.DataFrame, parts: Parts) -> tuple[Timeline, pl.DataFrame]:
    """The last row of each part, with the highest time of all."""
    ends = parts.ends
    few = rows_at(rows, np.sort(line.number[ends]))
    made = line.alone(ends, few)
    time = np.empty(few.height, dtype=np.int64)
    time[made.number] = np.maximum.reduceat(rows[TIME].to_numpy()[line.number], parts.first)
    comes = pl.repeat(1, few.height, dtype=pl.Int8, eager=True).alias(DIFF)
    return made, few.with_columns(comes, pl.Series(TIME, time))
