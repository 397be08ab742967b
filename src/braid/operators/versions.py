"""Versions of a table's rows: which row of a key stood when another row was processed.

In: the changes of a batch, of one input or of two, and what is kept of earlier batches. Out: for each row the number of
the row it sees, among the changes and then the kept rows; `MISSING` where there is none.
Rule: of the batch's changes the last one before the row counts, whatever its time; a tombstone is no row. What a row
without a key sees is not told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.arrangement import Found, Newest
from braid.operators.changes import DIFF, HASH, HEADERS, POS, SUB
from braid.operators.pairing import MISSING, stacked
from braid.operators.ranges import Flags, Hashes, Ints, begins, columns_of, grouped, hashes_of, keyed, rows_at


@dataclass(frozen=True, slots=True)
class Seen:
    """`at[i]`: the number of the row that row i sees, among `parts` (one after the other), or `MISSING`."""

    at: Ints
    parts: list[pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of all inputs (numbered one input after the other) by key, each key's in processing order.

    `number`: the row at each place; `group`: its key, from 0; `first`: where each key begins; `h`, `keys`: of each key.
    """

    inputs: Sequence[pl.DataFrame]
    number: Ints
    group: Ints
    first: Ints
    h: Hashes
    keys: pl.DataFrame

    @property
    def sizes(self) -> Ints:
        return np.diff(np.append(self.first, len(self.number)))

    def offset(self, side: int) -> int:
        """The number of the first row of an input."""
        return sum(frame.height for frame in self.inputs[:side])

    def _of(self, side: int) -> Flags:
        offset = self.offset(side)
        return (self.number >= offset) & (self.number < offset + self.inputs[side].height)

    def seen(self, looking: int, side: int, held: Newest) -> Seen:
        """What the rows of input `looking` see of the table whose changes are input `side`: the row before them."""
        changes = self.inputs[side]
        at = np.full(self.inputs[looking].height, MISSING, dtype=np.int64)
        places = np.arange(len(self.number), dtype=np.int64)
        last = np.maximum.accumulate(np.where(self._of(side), places, -1)) if len(places) else places
        before = np.concatenate([np.array([-1], dtype=np.int64), last[:-1]])
        mine = np.flatnonzero(self._of(looking))
        before = before[mine]
        in_batch = before >= self.first[self.group[mine]]
        who = self.number[mine] - self.offset(looking)
        change = self.number[before[in_batch]] - self.offset(side)
        if changes.height:
            alive = changes[DIFF].to_numpy() == 1
            at[who[in_batch]] = np.where(alive[change], change, MISSING)
        parts = [changes]
        open_ = np.flatnonzero(~in_batch)
        if len(open_) and held.runs:
            group = self.group[mine[open_]]
            wanted = np.flatnonzero(np.bincount(group, minlength=len(self.first)))
            found = held.probe(keyed(self.h[wanted], rows_at(self.keys, wanted)))
            if found.rows is not None:
                by_group = np.full(len(self.first), MISSING, dtype=np.int64)
                by_group[wanted[found.looking]] = changes.height + np.arange(found.rows.height)
                at[who[open_]] = by_group[group]
                parts.append(found.rows)
        return Seen(at, parts)

    def kept(self, held: Newest) -> Found:
        """The kept row of each key."""
        return held.probe(keyed(self.h, self.keys))

    def keep(self, side: int, held: Newest, rows: pl.DataFrame | None = None) -> None:
        """Keeps the last row of each key of an input (or of `rows`, which stand for its rows)."""
        rows = self.inputs[side] if rows is None else rows
        if rows.height:
            places = np.flatnonzero(self._of(side))
            last = places[np.append(begins(self.group[places])[1:], True)]
            names = [c for c in rows.columns if c not in (POS, SUB, HEADERS)]
            held.append(rows_at(columns_of(rows, names), self.number[last] - self.offset(side)))
        held.close()


def timeline(inputs: Sequence[pl.DataFrame], places: Sequence[Ints] | None, keys: Sequence[str]) -> Timeline:
    """`places`: the common processing order of the inputs' rows (`pairing.in_arrival_order`)."""
    rows = stacked([columns_of(frame, [HASH, *keys]) for frame in inputs])
    if places is None or len(inputs) == 1:
        order, ids = grouped(rows, keys)
        number = order
    else:
        in_time = np.empty(rows.height, dtype=np.int64)
        in_time[np.concatenate(places)] = np.arange(rows.height)
        order, ids = grouped(rows_at(rows, in_time), keys)
        number = in_time[order]
    new = begins(ids)
    first = np.flatnonzero(new)
    one_each = rows_at(rows, number[first])
    return Timeline(inputs, number, np.cumsum(new) - 1, first, hashes_of(one_each), columns_of(one_each, keys))
