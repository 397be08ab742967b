"""Table-table join on primary keys: one current table from two.

In: changes of both tables (upserts and tombstones), in processing order. Out: upserts and tombstones of the result.
Rule: after each change of a side the result row of its key is emitted if it exists now, a tombstone if it existed just
before, nothing else. The latest arrival stands, whatever its time. (docs/rules/ksqldb.md, "Two tables")

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
from braid.operators.changes import DIFF, NEVER, TIME
from braid.operators.clocks import Clocks
from braid.operators.pairing import (
    MISSING,
    all_dropped,
    gathered,
    in_arrival_order,
    joined,
    keys_of,
    nothing_joined,
    payload_of,
    without_nulls,
)
from braid.operators.ranges import Flags, Ints, order_of, rows_at
from braid.operators.versions import Timeline, timeline
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
        drops: list[pl.DataFrame] = []
        both = [without_nulls(rows, side, drops) for rows, side in zip(inputs, ("left", "right"), strict=True)]
        keys = keys_of(both[0])
        if not any(rows.height for rows in both):
            return Result(nothing_joined(both, keys, self.key), all_dropped(drops))
        tables = (Newest(state, "left", keys), Newest(state, "right", keys))
        places = in_arrival_order(*both)
        line = timeline(both, places, keys)
        parts: list[pl.DataFrame] = []
        order: list[Ints] = []
        for side in (0, 1):
            if both[side].height or not parts:
                rows, emitted = self._of_side(line, tables, side, keys)
                parts.append(rows)
                order.append(places[side][emitted])
        for side in (0, 1):
            line.keep(side, tables[side])
        changes = parts[0] if len(parts) == 1 else pl.concat(parts, how="diagonal")
        return Result(rows_at(changes, order_of(np.concatenate(order))), all_dropped(drops))

    def _of_side(
        self, line: Timeline, tables: tuple[Newest, Newest], side: int, keys: list[str]
    ) -> tuple[pl.DataFrame, Ints]:
        """What the changes of one side cause, and which of them cause something."""
        own, other = line.inputs[side], line.inputs[1 - side]
        theirs = line.seen(side, 1 - side, tables[1 - side])
        mine = line.seen(side, side, tables[side])
        there, is_row = theirs.at != MISSING, own[DIFF].to_numpy() == 1
        stands = self._exists(side, is_row, there)
        emitted = np.flatnonzero(stands | self._exists(side, mine.at != MISSING, there))

        alive, at = stands[emitted], theirs.at[emitted]
        own_t = own[TIME].to_numpy()[emitted]
        other_t = np.append(np.concatenate([p[TIME].to_numpy() for p in theirs.parts]), NEVER)[at]
        # A tombstone has a key and no payload: nothing is gathered for it.
        payload = gathered([own], payload_of(own), np.where(alive & is_row[emitted], emitted, MISSING))
        met = gathered(theirs.parts, payload_of(other), np.where(alive, at, MISSING))
        rows = rows_at(own, emitted).with_columns(
            pl.Series(TIME, np.maximum(own_t, other_t)), pl.Series(DIFF, np.where(alive, 1, -1).astype(np.int8))
        )
        left, right = (payload, met) if side == 0 else (met, payload)
        return joined(rows, left, right, keys, self.key), emitted

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
