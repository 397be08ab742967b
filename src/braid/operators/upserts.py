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

from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, POS
from braid.operators.clocks import Clocks
from braid.operators.pairing import gathered, keys_of, payload_of
from braid.operators.ranges import Flags, Ints, columns_of, rows_at
from braid.operators.standing import Standing, Table, Versions, codes, grouped_keys, versions


@dataclass(frozen=True, slots=True)
class Upserts:
    """`own`: the columns that the rows are known by; `keyed`: there is a key to write."""

    own: tuple[str, ...]
    keyed: bool

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        if not rows.height:
            return Result(rows)
        if not self.keyed:
            return Result(rows.filter(pl.col(DIFF) == 1).with_columns(pl.lit(None, pl.UInt64).alias(HASH)))
        keys = keys_of(rows)
        base = int(state.manifest.get("arrivals", 0))
        state.manifest["arrivals"] = base + rows.height
        known = rows[HASH].is_not_null().to_numpy()
        groups, (group,) = grouped_keys([rows], [known], keys)
        came = np.flatnonzero(~known & (rows[DIFF].to_numpy() == 1))  # under a null key

        final = np.flatnonzero(known)
        final = final[self._is_last(rows, group, final)]
        table = Table(rows_at(rows, final), final, group[final], payload_of(rows))
        stood = versions(table, Standing(state, "rows", keys), groups, self.own, base)
        wrote = table.sign == 1
        speaks = self._speaks(table, stood, groups.count)
        which, version = stood.at(table.group[speaks], table.place[speaks])
        newest = final[speaks]  # of a tombstone: itself
        shown = stood.row[version]
        new = len(final)
        newest[which] = np.where(shown < new, final[np.minimum(shown, new - 1)], rows.height + shown - new)
        remains = np.zeros(len(speaks), dtype=np.bool_)
        remains[which] = True

        cause = np.concatenate([came, final[wrote], final[speaks]])
        shown = np.concatenate([came, final[wrote], newest])
        diff = np.ones(len(cause), dtype=np.int8)
        diff[len(cause) - len(speaks) :] = np.where(remains, 1, -1)
        order = np.argsort(cause, kind="stable")
        payload = gathered([rows, *table.parts[1:]], table.columns, shown[order])
        own = rows_at(rows.drop(table.columns), cause[order]).with_columns(pl.Series(DIFF, diff[order]))
        return Result(own.hstack(payload).select(rows.columns))

    def _is_last(self, rows: pl.DataFrame, group: Ints, at: Ints) -> Flags:
        """Whether a row is the last of its own key at its position and under its key."""
        place = rows[POS].rle_id().to_numpy().astype(np.int64)[at] if len(at) else at
        code = codes(group[at], rows_at(columns_of(rows, self.own), at))
        order = np.lexsort((np.arange(len(at)), code, place))
        last = np.ones(len(at), dtype=np.bool_)
        follows = (place[order][1:] == place[order][:-1]) & (code[order][1:] == code[order][:-1])
        last[order[:-1][follows]] = False
        return last

    def _speaks(self, table: Table, stood: Versions, count: int) -> Ints:
        """The rows that went, one for each position and key at which none came: the last."""
        if not table.frame.height:
            return np.empty(0, dtype=np.int64)
        spoken = table.frame[POS].rle_id().to_numpy().astype(np.int64) * (count + 1) + table.group
        went = (table.sign == -1) & np.isin(table.place, stood.stop) & ~np.isin(spoken, spoken[table.sign == 1])
        at = np.flatnonzero(went)
        _, first = np.unique(spoken[at][::-1], return_index=True)
        return np.sort(at[len(at) - 1 - first])
