"""Stream-table join with memory: each stream row with the table's rows as they stand; the unmatched ones wait.

In: changes of a stream, signed changes of a table, both spread by the join's key, in processing order. Out: stream rows
with both payloads.
Rule: what counts is the order of processing, not time. The first table row of a key completes every row that waits for
it. (docs/rules/lenses.md, "A stream and a table")

*Matches* equal keys; the table's rows that stand when the stream row is processed, the last written last.
*Keeps* the table's rows; (LEFT) the stream rows that met nothing, have a key and meet the condition of their side.
*Emits* at the stream row's place and time; LEFT pads a row without a match. At a table row's place the rows that it
completes, in their order, with the later time.
*Forgets* a table row when it goes; a waiting row when it is completed, or once the stream's clock is past its time and
the retention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.arrangement import ARRIVAL
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, POS, SUB, TIME, key_column, prior
from braid.operators.clocks import Clock, Clocks
from braid.operators.pairing import (
    MISSING,
    all_dropped,
    dropped_rows,
    in_arrival_order,
    nothing_joined,
    payload_of,
    with_headers,
)
from braid.operators.ranges import Flags, Ints, rows_at, values_at
from braid.operators.standing import (
    Groups,
    Results,
    Standing,
    Table,
    Versions,
    grouped_keys,
    put_together,
    stacked_results,
    versions,
)
from braid.plan.keyed import RememberingJoin


@dataclass(frozen=True, slots=True)
class Remembering:
    """`own`: the columns that the table's rows are known by; `clock`: the stream's, where there is a retention."""

    how: Literal["inner", "left"]
    width: int
    names: tuple[str, ...]
    own: tuple[str, ...]
    clock: Clock
    retention: int | None = None
    left_if: Expr | None = None

    @staticmethod
    def of(node: RememberingJoin, own: tuple[str, ...], clock: Clock) -> Remembering:
        names = tuple(c.name for c in node.keys)
        return Remembering(node.how, max(1, len(names)), names, own, clock, node.retention, node.left_if)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        keys = [key_column(i) for i in range(self.width)]
        waiting = Standing(state, "waiting", keys)
        if not any(frame.height for frame in inputs):
            self._close(waiting, clocks)
            return Result(nothing_joined(inputs, keys, *self.names))
        drops: list[pl.DataFrame] = []
        base = int(state.manifest.get("arrivals", 0))
        state.manifest["arrivals"] = base + sum(frame.height for frame in inputs)
        known = [self._meets(inputs[0], drops), inputs[1][HASH].is_not_null().to_numpy()]
        groups, of_row = grouped_keys(inputs, known, keys)
        stream, table = (
            Table(frame, place, group, payload_of(frame), [frame])
            for frame, place, group in zip(inputs, in_arrival_order(*inputs), of_row, strict=True)
        )
        stood = versions(table, Standing(state, "table", keys), groups, self.own, base)
        results, alone = self._met(stream, table, stood)
        parts = [results]
        if self.how == "left":
            parts.append(_padded(stream, alone))
            parts.append(self._completed(stream, table, alone, (groups, waiting, clocks, base)))
        self._close(waiting, clocks)
        changes = put_together(stream, table, stacked_results(parts), keys, self.names, own_headers=True)
        return Result.of(changes, all_dropped(drops), {"expired": waiting.expired} if waiting.expired else {})

    def _close(self, waiting: Standing, clocks: Clocks) -> None:
        """What the stream's clock has left behind by now is forgotten."""
        if waiting.runs or waiting.name in waiting.state.manifest:
            if self.retention is not None:
                waiting.forget(clocks.end(self.clock) - self.retention)
            waiting.close()

    def _meets(self, stream: pl.DataFrame, drops: list[pl.DataFrame]) -> Flags:
        """The stream rows that may meet something; tells of those that are lost."""
        meets = stream[HASH].is_not_null().to_numpy()
        if self.how == "inner" and not meets.all():
            drops.append(dropped_rows(stream.filter(~pl.Series(meets)), "null key", "left"))
        if self.left_if is not None and stream.height:
            made, failed = compile.evaluate(stream, [("_meets", self.left_if)])
            if failed.any():
                drops.append(dropped_rows(stream.filter(failed), "expression", "left"))
            meets = meets & made["_meets"].fill_null(False).to_numpy()
        return meets

    def _met(self, stream: Table, table: Table, stood: Versions) -> tuple[Results, Ints]:
        """Stream rows with what they meet; the numbers of those that meet nothing."""
        which, version = stood.at(stream.group, stream.place)
        alone = np.ones(stream.frame.height, dtype=np.bool_)
        alone[which] = False
        t = stream.frame[TIME].to_numpy()[which]
        ones = np.ones(len(which), dtype=np.int64)
        return Results(which, stood.row[version], which, (stood.n[version],), t, ones), np.flatnonzero(alone)

    def _completed(
        self, stream: Table, table: Table, alone: Ints, kept: tuple[Groups, Standing, Clocks, int]
    ) -> Results:
        """Waiting rows, new and stored, with the first table row of their key after them; the others wait (on)."""
        groups, waiting, clocks, base = kept
        came = np.flatnonzero((table.group >= 0) & (table.sign == 1))
        came = came[np.lexsort((table.place[came], table.group[came]))]
        span = int(max(table.place.max(initial=0), stream.place.max(initial=0))) + 2
        ranks = table.group[came] * span + table.place[came] + 1

        alone = alone[stream.group[alone] >= 0]
        waits = ~self._expired(stream.frame[TIME].to_numpy()[alone], stream.frame, alone, clocks)
        alone = alone[waits]
        left, group, place = alone, stream.group[alone], stream.place[alone]
        t, n = stream.frame[TIME].to_numpy()[alone], base + stream.place[alone]
        found = waiting.probe(groups.keyed)
        new = len(alone)
        if found.rows is not None:
            count = found.rows.height
            left = np.concatenate([left, stream.frame.height + np.arange(count)])
            stream.parts.append(found.rows)
            group = np.concatenate([group, found.looking])
            place = np.concatenate([place, np.full(count, -1, dtype=np.int64)])
            t = np.concatenate([t, found.rows[TIME].to_numpy()])
            n = np.concatenate([n, found.rows[ARRIVAL].to_numpy()])
        at = np.searchsorted(ranks, group * span + place + 1, side="right")
        has = at < len(came)
        has[has] = table.group[came[at[has]]] == group[has]
        by = came[at[has]]
        done = np.flatnonzero(has)
        in_time = ~self._expired(t[done], table.frame, by, clocks)
        self._keep(stream, found.rows, (alone, has, n, new), waiting)
        done, by = done[in_time], by[in_time]
        time = np.maximum(t[done], table.frame[TIME].to_numpy()[by])
        ones = np.ones(len(done), dtype=np.int64)
        return Results(left[done], by, stream.frame.height + by, (n[done],), time, ones)

    def _expired(self, t: Ints, frame: pl.DataFrame, at: Ints, clocks: Clocks) -> Flags:
        """Whether the stream's clock, at the places of rows of a frame, has left rows of these times behind."""
        if self.retention is None:
            return np.zeros(len(t), dtype=np.bool_)
        those = prior(frame)
        return (
            clocks.at(self.clock, values_at(frame[POS], at), those if those is None else those[at]) > t + self.retention
        )

    def _keep(
        self, stream: Table, stored: pl.DataFrame | None, state: tuple[Ints, Flags, Ints, int], waiting: Standing
    ) -> None:
        """New rows that still wait, and entries that take the others back."""
        alone, has, n, new = state
        entries = []
        still = np.flatnonzero(~has[:new])
        if len(still):
            rows = rows_at(with_headers(stream.frame).drop(POS, SUB), alone[still])
            entries.append(rows.with_columns(pl.Series(ARRIVAL, n[:new][still])))
        if stored is not None and has[new:].any():
            entries.append(rows_at(stored, np.flatnonzero(has[new:])).with_columns(pl.lit(-1, pl.Int8).alias(DIFF)))
        if entries:
            waiting.append(pl.concat(entries, how="diagonal"))


def _padded(stream: Table, alone: Ints) -> Results:
    t, missing = stream.frame[TIME].to_numpy()[alone], np.full(len(alone), MISSING, dtype=np.int64)
    return Results(alone, missing, alone, (missing,), t, np.ones(len(alone), dtype=np.int64))
