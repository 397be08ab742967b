"""Retract: changes of a table as a multiset: the old row is taken back before the new one stands.

In: upserts and tombstones, in processing order. Out: for each change the key's old row with -1 (if it had one), then
the new one with +1 (if it has one), both at the change's place and time.
Rule: summed up, the result is the table at every place. It makes a table fit for aggregates.

*Matches* nothing.
*Keeps* the last row of each key.
*Emits* at the change's place: the old row first.
*Forgets* a row when it is replaced or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.arrangement import Newest
from braid.operators.base import Behind, Result, State
from braid.operators.changes import DIFF, SUB, result_subs
from braid.operators.clocks import Clocks
from braid.operators.lives import timeline
from braid.operators.pairing import MISSING, all_dropped, gathered, keys_of, payload_of, without_nulls
from braid.operators.ranges import order_of, rows_at
from braid.plan.told import Kept, Told


@dataclass(frozen=True, slots=True)
class Retract(Behind):
    """Spread by the table's primary key."""

    called = "materialize"
    mode = "retract"

    @property
    def told(self) -> Told:
        return Told([Kept("input", "rows")], notes=["a change is the old row going, the new one coming"])

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops)
        if not rows.height:
            return Result(rows, all_dropped(drops))
        keys, payload = keys_of(rows), payload_of(rows)
        held = Newest(state, "rows", keys)
        line = timeline([rows], None, keys)
        seen = line.seen(0, 0, held)
        line.keep(0, held)

        had, has = np.flatnonzero(seen.at != MISSING), np.flatnonzero(rows[DIFF].to_numpy() == 1)
        cause = np.concatenate([had, has])
        which = np.concatenate([seen.at[had], has])  # the rows are the first of `parts`
        second = np.arange(len(cause)) >= len(had)
        order = order_of(2 * cause + second)
        cause, which, second = cause[order], which[order], second[order]
        old = ~second
        number = (second & np.append(False, old[:-1])).astype(np.int64)  # 1: a new row after its old one
        own = rows_at(rows.drop(payload), cause).with_columns(
            pl.Series(DIFF, np.where(old, -1, 1).astype(np.int8)), result_subs(rows[SUB], cause, number)
        )
        return Result(own.hstack(gathered(seen.parts, payload, which)), all_dropped(drops))
