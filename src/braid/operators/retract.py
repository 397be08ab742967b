"""Retract: changes of a table as a multiset: the old row is taken back before the new one stands.

In: upserts and tombstones, in processing order. Out: for each change the key's old row with -1 (if it had one), then the
new one with +1 (if it has one), both at the change's place and time.
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
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, SUB, result_sub
from braid.operators.clocks import Clocks
from braid.operators.pairing import MISSING, gathered, payload_of
from braid.operators.versions import as_of, keep


@dataclass(frozen=True, slots=True)
class Retract:
    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        keys = [c for c in rows.columns if c.startswith("_k") and c[2:].isdigit()]
        held = Newest(state, "rows", keys)
        place = np.arange(rows.height, dtype=np.int64)
        seen = as_of(rows, place, rows, place, held)
        keep(held, rows)
        had = seen.at != MISSING
        old = gathered(seen.parts, payload_of(rows), seen.at[had])
        before = rows.filter(pl.Series(had)).with_columns(*old.get_columns(), pl.lit(-1, pl.Int8).alias(DIFF))
        has = (rows[DIFF] == 1).to_numpy()
        after = rows.filter(pl.Series(has))
        order = np.argsort(np.concatenate([place[had] * 2, place[has] * 2 + 1]), kind="stable")
        both = pl.concat([_numbered(before, 0), _numbered(after, 1)])[order]
        return Result(both)


def _numbered(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    numbers = pl.Series(np.full(rows.height, number, dtype=np.int64))
    return rows.with_columns(result_sub(rows[SUB], numbers).alias(SUB))
