"""Upserts: a table whose rows have keys of their own, as a table by another key that several of them may share.

In: signed changes, spread by the key that is written, in processing order. Out: upserts and tombstones by that key.
Rule: all that stands at one position is one change: of each row only what it is afterwards counts. Under a key those
that came or changed are written; if there are none but some went, the one written last of those that remain, or a
tombstone. Under a null key each row that comes is written, and nothing else. (docs/rules/lenses.md, "Two tables")

*Matches* nothing.
*Keeps* the rows.
*Emits* at the place of the row that came, or of the last one that went.
*Forgets* a row when it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.base import Behind, Result, State
from braid.operators.changes import DIFF, HASH, POS
from braid.operators.clocks import Clocks
from braid.operators.lives import Lives, Standing, arrivals, timeline
from braid.operators.pairing import gathered, keys_of, payload_of
from braid.operators.ranges import Flags, Ints, columns_of, rows_at
from braid.plan.told import Kept, Told


@dataclass(frozen=True, slots=True)
class Upserts(Behind):
    """`own`: the columns that the rows are known by; `keyed`: there is a key to write."""

    called = "upserts"
    mode = "upsert"
    own: tuple[str, ...]
    keyed: bool

    @property
    def told(self) -> Told:
        return Told([Kept("input", "rows")], notes=["under each key stands the row that was written last"])

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        if not rows.height:
            return Result(rows)
        if not self.keyed:
            return Result(rows.filter(pl.col(DIFF) == 1).with_columns(pl.lit(None, pl.UInt64).alias(HASH)))
        keys = keys_of(rows)
        base, known = arrivals(state, inputs), rows[HASH].is_not_null().to_numpy()
        came = np.flatnonzero(~known & (rows[DIFF].to_numpy() == 1))  # under a null key
        final = self._final(rows, known, keys)
        line = timeline([rows], None, keys, [final])
        lives = line.lives(0, Standing(state, "rows", keys), self.own, base)
        wrote = np.flatnonzero(final & (rows[DIFF].to_numpy() == 1))
        group = line.groups(0)
        speaks = self._speaks(rows, group, lives)
        which, life = lives.at(group[speaks], speaks)
        newest = speaks.copy()  # of a tombstone: itself
        newest[which] = lives.row[life]
        remains = np.zeros(len(speaks), dtype=np.bool_)
        remains[which] = True

        cause = np.concatenate([came, wrote, speaks])
        shown = np.concatenate([came, wrote, newest])
        diff = np.ones(len(cause), dtype=np.int8)
        diff[len(cause) - len(speaks) :] = np.where(remains, 1, -1)
        order = np.argsort(cause, kind="stable")
        columns = payload_of(rows)
        payload = gathered(lives.parts, columns, shown[order])
        own = rows_at(rows.drop(columns), cause[order]).with_columns(pl.Series(DIFF, diff[order]))
        return Result(own.hstack(payload).select(rows.columns))

    def _final(self, rows: pl.DataFrame, known: Flags, keys: list[str]) -> Flags:
        """Whether a row has a key, and is the last of its own key at its position and under its key."""
        place = rows[POS].rle_id().alias("_place")
        numbered = columns_of(rows, [HASH, *keys, *self.own]).with_columns(place).with_row_index("_i")
        numbered = numbered.filter(pl.Series(known))
        last = numbered.select(pl.col("_i").max().over("_place", HASH, *keys, *self.own))["_i"]
        final = np.zeros(rows.height, dtype=np.bool_)
        final[last.to_numpy()] = True
        return final

    def _speaks(self, rows: pl.DataFrame, group: Ints, lives: Lives) -> Ints:
        """The rows that went, one for each position and key at which none came: the last."""
        final = np.flatnonzero(group >= 0)
        spoken = rows[POS].rle_id().to_numpy().astype(np.int64)[final] * (len(lives.first) + 1) + group[final]
        sign = rows[DIFF].to_numpy()[final]
        at = np.flatnonzero((sign == -1) & np.isin(final, lives.stop) & ~np.isin(spoken, spoken[sign == 1]))
        _, first = np.unique(spoken[at][::-1], return_index=True)
        return np.sort(final[at[len(at) - 1 - first]])
