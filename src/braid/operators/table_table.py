"""Table-table join on primary keys: one current table from two.

In: changes of both tables (upserts and tombstones), in processing order. Out: upserts and tombstones of the result.
Rule: after each change of a side the result row of its key is emitted if it exists now, a tombstone if it existed just
before, nothing else. The latest arrival stands, whatever its time. (specs/ksqldb.md 3.4)

*Matches* equal keys.
*Keeps* the last row of each key of both sides.
*Emits* at the change's place; time is the later of the change's and the other side's row, if that exists.
*Forgets* a row when it is replaced or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.arrangement import Newest
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, SUB, TIME, key_column, result_sub
from braid.operators.clocks import Clocks
from braid.operators.pairing import MISSING, gathered, in_arrival_order, joined, payload_of
from braid.operators.ranges import Flags, Ints
from braid.operators.versions import as_of, keep
from braid.plan import logical


@dataclass(frozen=True, slots=True)
class TableTable:
    """`key`: name of the result's join key column."""

    how: logical.How
    key: str

    @staticmethod
    def of(node: logical.TableTableJoin) -> TableTable:
        return TableTable(node.how, node.key.name)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        left, right = inputs
        keys = [key_column(0)]
        tables = (Newest(state, "left", keys), Newest(state, "right", keys))
        places = in_arrival_order(left, right)
        parts, order = [], []
        for side in (0, 1):
            rows, place = self._of_side(inputs, places, tables, side, keys)
            parts.append(rows)
            order.append(place)
        for held, changes in zip(tables, inputs, strict=True):
            keep(held, changes)
        return Result(pl.concat(parts, how="diagonal")[np.argsort(np.concatenate(order), kind="stable")])

    def _of_side(
        self,
        inputs: Sequence[pl.DataFrame],
        places: tuple[Ints, Ints],
        tables: tuple[Newest, Newest],
        side: int,
        keys: list[str],
    ) -> tuple[pl.DataFrame, Ints]:
        """What the changes of one side cause, and the place of each row."""
        own, other = inputs[side], inputs[1 - side]
        theirs = as_of(own, places[side], other, places[1 - side], tables[1 - side])
        mine = as_of(own, places[side], own, places[side], tables[side])
        there = theirs.at != MISSING
        stood = self._exists(side, mine.at != MISSING, there)
        stands = self._exists(side, (own[DIFF] == 1).to_numpy(), there)
        times = own[TIME].to_numpy()
        other_times = gathered(theirs.parts, [TIME], theirs.at)[TIME].fill_null(np.iinfo(np.int64).min).to_numpy()

        emitted = stands | stood
        rows = own.filter(pl.Series(emitted))
        alive = stands[emitted]
        # A tombstone has a key and no payload: gathering nothing gives nulls.
        numbers = np.where(alive & (rows[DIFF] == 1).to_numpy(), np.arange(rows.height), MISSING)
        own_rows = gathered([rows], payload_of(own), numbers)
        other_rows = gathered(theirs.parts, payload_of(other), np.where(alive, theirs.at[emitted], MISSING))
        made = rows.with_columns(
            pl.Series(TIME, np.maximum(times, other_times)[emitted]),
            pl.Series(DIFF, np.where(alive, 1, -1).astype(np.int8)),
            result_sub(rows[SUB], pl.Series(np.zeros(rows.height, dtype=np.int64))).alias(SUB),
        )
        left, right = (own_rows, other_rows) if side == 0 else (other_rows, own_rows)
        return joined(made, left, right, keys, self.key), places[side][emitted]

    def _exists(self, side: int, own: Flags, other: Flags) -> Flags:
        """Whether the result row exists when the sides' rows do."""
        left, right = (own, other) if side == 0 else (other, own)
        match self.how:
            case "inner":
                return left & right
            case "left":
                return left
            case "right":
                return right
            case "full":
                return left | right
