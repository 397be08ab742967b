"""Folding: the rows of a group in one epoch as one row, where only what stands after the epoch counts.

In: rows of a batch by group; or, before they leave for the buckets of their groups, rows with the key of the group.
Out: a row for each group and epoch, with what its rows add up to. Of those that leave each by itself, in the same form,
where few would be spared.
Rule: only aggregates that are exact in any order. The row that is left is the last one of its group in the epoch.
Nothing is kept: what stood before is added where the groups are.
(docs/decisions/0107-rows-of-an-epoch-are-one.md, docs/decisions/0115-rows-are-added-up-where-that-spares-some.md)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import trace
from braid.operators.accumulation import Groups, Parts, ends_of
from braid.operators.accumulators import Accumulators, accumulation, evaluated
from braid.operators.changes import DIFF, HEADERS, POS, SUB, TIME, sequence_of
from braid.operators.lives import Timeline
from braid.operators.pairing import keys_of
from braid.operators.ranges import (
    Flags,
    Ints,
    as_before,
    begins,
    columns_of,
    distinct,
    packed_order,
    rows_at,
    values_at,
)
from braid.plan import groups
from braid.plan.node import Mode

WORTH = 1.5  # so many rows of a group and epoch, on average, are worth being one before they leave
ODD = np.uint64(0x9E3779B97F4A7C15)  # spreads the numbers of epochs


@dataclass(frozen=True, slots=True)
class Folding:
    """What is added up of rows that leave: in place of their columns they have the accumulators of these. `mode`: of
    the rows. Where they go again, one with a value for MIN or MAX stays by itself, and says whether that comes or goes;
    of all else what goes is taken off in the accumulators."""

    aggregations: tuple[groups.Aggregation, ...]
    mode: Mode

    @staticmethod
    def of(aggregations: tuple[groups.Aggregation, ...], mode: Mode) -> Folding | None:
        """None: their order matters."""
        folds = all(accumulation(a).folded is not None and not a.leaves for a in aggregations)
        return Folding(aggregations, mode) if folds else None

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return Accumulators(self.aggregations).schema

    def folded(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
        """The rows that are left; those whose arguments failed, and why."""
        accumulators, keys = Accumulators(self.aggregations), keys_of(rows)
        values, failed = evaluated(accumulators, rows)
        lost = rows.filter(failed & (rows[DIFF] == 1)) if failed.any() else rows.clear()
        why = trace.messages(lost, [e for _, e in accumulators.arguments])
        known, diff = self._known(rows, keys, values), rows[DIFF].to_numpy()
        left = columns_of(rows, [POS, SUB, TIME, DIFF, *keys, *([HEADERS] if HEADERS in rows.columns else [])])
        found = _by_parts(rows, keys, self._apart(known))
        if found is None:
            return left.hstack(self._parts(Parts(np.arange(len(diff)), diff), known).get_columns()), lost, why
        number, first = found
        size = np.diff(first, append=len(number))
        several = size > 1
        begin = np.cumsum(size[several]) - size[several]
        some = number[np.repeat(several, size)]  # of the other parts the one row is taken where it is
        last = some[begin + size[several] - 1]
        stays = np.ones(len(number), dtype=np.bool_)
        stays[some] = False
        alone = np.flatnonzero(stays)
        stays[last] = True
        parts = [(Parts(np.arange(len(alone)), diff[alone]), alone), (Parts(begin, diff[some]), some)]
        made = pl.concat([self._parts(p, [values_at(x, at) for x in known]) for p, at in parts if len(at)])
        time = rows[TIME].to_numpy().copy()
        time[last] = np.maximum.reduceat(time[some], begin) if len(last) else []
        at, order = np.flatnonzero(stays), np.empty(len(first), dtype=np.int64)
        order[(np.cumsum(stays) - 1)[np.append(alone, last)]] = np.arange(len(first))
        left = rows_at(left, at).with_columns(pl.Series(TIME, time[at]))
        return left.hstack(rows_at(made.rechunk(), order).get_columns()), lost, why

    @property
    def _extremes(self) -> list[int]:
        """Those of which rows that go take more back than a number."""
        return [i for i, a in enumerate(self.aggregations) if self.mode != "append" and a.function in ("MIN", "MAX")]

    def _known(self, rows: pl.DataFrame, keys: Sequence[str], values: pl.DataFrame) -> list[pl.Series]:
        """The arguments. That a value goes and comes again at once is not told to MIN and MAX."""
        made = [values[f"{i}"] for i in range(len(self.aggregations))]
        if self._extremes and rows.height > 1:
            diff = rows[DIFF].to_numpy()
            again = (diff[:-1] == -1) & (diff[1:] == 1)
            for column in columns_of(rows, [POS, *keys]).get_columns():
                again &= as_before(column)
            for i in self._extremes:
                same = np.flatnonzero(again & as_before(made[i]))
                if len(same):
                    made[i] = made[i].scatter(
                        pl.Series(np.append(same, same + 1)), pl.Series([None], dtype=made[i].dtype)
                    )
        return made

    def _apart(self, known: Sequence[pl.Series]) -> Flags | None:
        """The rows that stay by themselves."""
        those = [known[i].is_not_null().to_numpy() for i in self._extremes]
        return np.logical_or.reduce(those) if those else None

    def _parts(self, parts: Parts, known: Sequence[pl.Series]) -> pl.DataFrame:
        """The accumulators of each part of the rows."""
        accumulators, nothing = Accumulators(self.aggregations), pl.DataFrame(schema=self.schema)
        if accumulators.fold(known, nothing, ()):
            return accumulators.folded(parts, known, ())
        groups = Groups.led(parts.first, parts.diff)  # sums that need more digits than one number has
        before = nothing.clear(len(parts.first))
        running = pl.DataFrame(accumulators.running(groups, known, before))
        return rows_at(running, groups.rest[parts.ends])


def _by_parts(rows: pl.DataFrame, keys: Sequence[str], apart: Flags | None) -> tuple[Ints, Ints] | None:
    """The numbers of the rows by epoch and key, and where such parts begin; None: there would be too many. Rows of one
    part that do not lie together are several: that costs time, and nothing else. `apart`: those by themselves."""
    by = columns_of(rows, keys)
    if any(t.is_nested() for t in by.dtypes):
        return None
    epoch = np.cumsum(begins(rows.select(sequence_of(pl.col(POS)).alias("e"))["e"].to_numpy())).astype(np.uint64)
    h = by.hash_rows().to_numpy()
    if apart is not None:
        h = np.where(apart, ~h, h)
    about = pl.select(pl.lit(pl.Series(h ^ (epoch * ODD))).approx_n_unique()).item()
    if about * WORTH > rows.height:
        return None
    bits = int(epoch[-1]).bit_length()
    order = packed_order((epoch << np.uint64(64 - bits)) | (h >> np.uint64(bits)))
    new = begins(epoch[order])
    for key in rows_at(by, order).get_columns():
        new[1:] |= ~as_before(key)
    if apart is not None:
        those = apart[order]
        new |= those
        new[1:] |= those[:-1]
    return order, np.flatnonzero(new)


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
    few = rows_at(rows, distinct(line.number[ends]))
    made = line.alone(ends, few)
    time = np.empty(few.height, dtype=np.int64)
    time[made.number] = np.maximum.reduceat(rows[TIME].to_numpy()[line.number], parts.first)
    comes = pl.repeat(1, few.height, dtype=pl.Int8, eager=True).alias(DIFF)
    return made, few.with_columns(comes, pl.Series(TIME, time))
