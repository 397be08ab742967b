"""Stream-table join: each stream row with the table's row of its key as it stands when the row is processed.

In: changes of a stream and of a table, in processing order. Out: stream rows with both payloads.
Rule: only stream rows emit; what counts is the order of processing, not time.
(docs/rules/ksqldb.md, "A stream and a table")

*Matches* equal keys; the table's last change before the stream row, whatever its time; a tombstone is no match.
*Keeps* the last row of each key of the table.
*Emits* at the stream row's place and time; LEFT pads a row without a match, INNER drops it.
*Forgets* a table row when it is replaced or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from braid.operators.arrangement import Newest
from braid.operators.base import Result, State
from braid.operators.changes import HASH
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
from braid.operators.ranges import columns_of, rows_at
from braid.operators.versions import timeline
from braid.plan import logical


@dataclass(frozen=True, slots=True)
class StreamTable:
    """`key`: name of the result's join key column."""

    how: Literal["inner", "left"]
    key: str
    null_key: Literal["drop", "pad"] = "drop"

    @staticmethod
    def of(node: logical.StreamTableJoin) -> StreamTable:
        return StreamTable(node.how, node.key.name, node.null_key)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        table = without_nulls(inputs[1], "right", drops)
        stream, lone = inputs[0], np.empty(0, dtype=np.int64)
        if self.how == "left" and self.null_key == "pad":
            lone = np.flatnonzero(stream[HASH].is_null().to_numpy())
        else:
            stream = without_nulls(stream, "left", drops)
        keys = keys_of(stream)
        if not stream.height and not table.height:
            return Result(nothing_joined((stream, table), keys, self.key), all_dropped(drops))
        held = Newest(state, "table", keys)
        line = timeline((stream, table), in_arrival_order(stream, table), keys)
        seen = line.seen(0, 1, held)
        at = seen.at
        at[lone] = MISSING
        if self.how == "inner":
            met = np.flatnonzero(at != MISSING)
            stream, at = rows_at(stream, met), at[met]
        right = gathered(seen.parts, payload_of(table), at)
        changes = joined(stream, columns_of(stream, payload_of(stream)), right, keys, self.key)
        line.keep(1, held)
        return Result(changes, all_dropped(drops))
