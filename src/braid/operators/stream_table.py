"""Stream-table join: each stream row with the table's row of its key as it stands when the row is processed.

In: changes of a stream and of a table, in processing order. Out: stream rows with both payloads.
Rule: only stream rows emit; what counts is the order of processing, not time. (specs/ksqldb.md 3.3)

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
from braid.operators.changes import SUB, key_column, result_sub
from braid.operators.clocks import Clocks
from braid.operators.pairing import MISSING, gathered, in_arrival_order, joined, payload_of, without_null_keys
from braid.operators.versions import as_of, keep
from braid.plan import logical


@dataclass(frozen=True, slots=True)
class StreamTable:
    """`key`: name of the result's join key column. `null_key` 'pad': a LEFT row without a key goes out padded."""

    how: Literal["inner", "left"]
    key: str
    null_key: Literal["drop", "pad"] = "drop"

    @staticmethod
    def of(node: logical.StreamTableJoin) -> StreamTable:
        return StreamTable(node.how, node.key.name, node.null_key)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        stream, table = inputs
        dropped = None
        if self.how == "inner" or self.null_key == "drop":
            stream, dropped = without_null_keys(stream, "left")
        keys = [key_column(0)]
        held = Newest(state, "table", keys)
        stream_place, table_place = in_arrival_order(stream, table)
        seen = as_of(stream, stream_place, table, table_place, held)
        at = seen.at
        if self.how == "inner" and (at == MISSING).any():
            met = at != MISSING
            stream, at = stream.filter(pl.Series(met)), at[met]
        right = gathered(seen.parts, payload_of(table), at)
        numbers = pl.Series(np.zeros(stream.height, dtype=np.int64))
        own = stream.with_columns(result_sub(stream[SUB], numbers).alias(SUB))
        changes = joined(own, stream.select(payload_of(stream)), right, keys, self.key)
        keep(held, table)
        return Result(changes, dropped)
