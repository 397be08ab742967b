"""Look-up join: each stream row with the table's rows of its key as they stand when the row is processed.

In: changes of a stream and of a table, in processing order: upserts where the table's keys are unique, signed changes
where several rows share one. Out: stream rows with both payloads.
Rule: only stream rows emit, and, where the unmatched ones are remembered, the first table row of their key; what counts
is the order of processing, not time. (docs/rules/ksqldb.md, docs/rules/lenses.md, "A stream and a table")

*Matches* equal keys; the table's rows that stand before the stream row, whatever their time, the last written last.
*Keeps* the table's rows; with memory the stream rows that met nothing, have a key and meet the condition of their side.
*Emits* at the stream row's place and time; LEFT pads a row without a match, INNER drops it. With memory, at a table
row's place the rows that it completes, in their order, with the later time.
*Forgets* a table row when it is replaced or goes; a waiting row when it is completed, or once the stream's clock is
past its time and the retention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from braid.expr.nodes import Expr
from braid.operators.arrangement import ARRIVAL, Newest
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, POS, SUB, TIME, key_column, prior
from braid.operators.clocks import Clock, Clocks
from braid.operators.lives import BEFORE, Standing, Timeline, arrivals, timeline
from braid.operators.pairing import (
    MISSING,
    Results,
    Sides,
    all_dropped,
    gathered,
    in_arrival_order,
    joined_on,
    meeting,
    nothing_joined,
    payload_of,
    with_headers,
    without_nulls,
)
from braid.operators.ranges import Flags, Ints, columns_of, rows_at, values_at
from braid.plan.joins import StreamTableJoin


@dataclass(frozen=True, slots=True)
class Looked:
    """Stream rows and the table rows that they go out with (numbers among `parts`, `MISSING`: padded), and the order of
    those of one stream row, where they may be several. `base`: arrivals before the batch, where they are numbered."""

    stream: Ints
    table: Ints
    parts: list[pl.DataFrame]
    order: tuple[Ints, ...] = ()
    base: int = 0


@dataclass(frozen=True, slots=True)
class Unique:
    """A table of one row a key."""

    def looked_up(self, line: Timeline, state: State, keys: Sequence[str], outer: bool) -> Looked:
        held = Newest(state, "table", keys)
        seen = line.seen(0, 1, held)
        line.keep(1, held)
        which = np.arange(len(seen.at)) if outer else np.flatnonzero(seen.at != MISSING)
        return Looked(which, seen.at[which], seen.parts)


@dataclass(frozen=True, slots=True)
class Shared:
    """A table of which several rows share a key; `own`: the columns that they are known by."""

    own: tuple[str, ...]

    def looked_up(self, line: Timeline, state: State, keys: Sequence[str], outer: bool) -> Looked:
        base = arrivals(state, line.inputs)
        lives = line.lives(1, Standing(state, "table", keys), self.own, base)
        which, life = lives.at(line.groups(0), line.places[0])
        alone = np.full(line.inputs[0].height, outer)
        alone[which] = False
        single = np.flatnonzero(alone)
        none = np.full(len(single), MISSING, dtype=np.int64)
        row, n = (np.concatenate([x[life], none]) for x in (lives.row, lives.n))
        return Looked(np.concatenate([which, single]), row, lives.parts, (n,), base)


@dataclass(frozen=True, slots=True)
class Memory:
    """Unmatched stream rows wait for a table row until the stream's clock is past their time and the retention."""

    clock: Clock
    retention: int | None = None

    def close(self, waiting: Standing, clocks: Clocks) -> dict[str, int]:
        """What the clock has left behind by now is forgotten."""
        if self.retention is not None and waiting.used:
            waiting.forget(clocks.end(self.clock) - self.retention)
        waiting.settle()
        return {"expired": waiting.expired} if waiting.expired else {}

    def completed(
        self, line: Timeline, looked: Looked, waiting: Standing, clocks: Clocks
    ) -> tuple[Results, list[pl.DataFrame]]:
        """Waiting rows, new and stored, with the first table row of their key after them; the others wait (on). Gives
        the stored ones, too."""
        stream, table = line.inputs
        groups, t = line.groups(0), stream[TIME].to_numpy()
        new = looked.stream[looked.table == MISSING]
        new = new[groups[new] >= 0]
        new = new[~self._expired(t[new], stream, new, clocks)]
        left, group, place, t = new, groups[new], line.places[0][new], t[new]
        n = looked.base + place
        found = waiting.standing(line.looking)
        if found.rows is not None:
            count = found.rows.height
            left = np.concatenate([left, stream.height + np.arange(count)])
            group = np.concatenate([group, found.looking])
            place = np.concatenate([place, np.full(count, BEFORE, dtype=np.int64)])
            t, n = (np.concatenate([x, found.rows[c].to_numpy()]) for x, c in ((t, TIME), (n, ARRIVAL)))
        at = self._next(line, group, place)
        has = at != MISSING
        self._keep(waiting, stream, left, n, has, found.rows)
        done = np.flatnonzero(has)
        done = done[~self._expired(t[done], table, at[done], clocks)]
        by = at[done]
        time = np.maximum(t[done], table[TIME].to_numpy()[by])
        ones = np.ones(len(done), dtype=np.int64)
        results = Results(left[done], by, stream.height + by, time, ones, (n[done],))
        return results, [] if found.rows is None else [found.rows]

    def _next(self, line: Timeline, group: Ints, place: Ints) -> Ints:
        """The first table row that comes of each key after a place, or `MISSING`."""
        number = line.number - line.offset(1)
        comes = np.flatnonzero(line.of(1))
        comes = comes[line.inputs[1][DIFF].to_numpy()[number[comes]] == 1]
        row = np.append(number[comes], MISSING)
        span = sum(frame.height for frame in line.inputs) + 1
        ranks = line.group[comes] * span + line.places[1][row[:-1]] + 1
        at = np.searchsorted(ranks, group * span + place + 1, side="right")
        of_key = np.append(line.group[comes], MISSING)[at] == group
        return np.where(of_key, row[at], MISSING)

    def _expired(self, t: Ints, frame: pl.DataFrame, at: Ints, clocks: Clocks) -> Flags:
        """Whether the stream's clock, at the places of rows of a frame, has left rows of these times behind."""
        if self.retention is None:
            return np.zeros(len(t), dtype=np.bool_)
        now = clocks.at(self.clock, values_at(frame[POS], at), prior(frame, at))
        return now > t + self.retention

    def _keep(
        self, waiting: Standing, stream: pl.DataFrame, row: Ints, n: Ints, has: Flags, stored: pl.DataFrame | None
    ) -> None:
        """New rows that still wait, and entries that take the others back."""
        is_new = row < stream.height
        still, gone = np.flatnonzero(is_new & ~has), row[~is_new & has] - stream.height
        if len(still) or len(gone):
            came = rows_at(with_headers(stream).drop(POS, SUB), row[still])
            waiting.change(came, n[still], None if stored is None else rows_at(stored, gone))


@dataclass(frozen=True, slots=True)
class LookUp:
    """`names`: the plan columns of the join key; `null_key`: what becomes of an outer row without a key; `left_if`:
    what else a stream row needs in order to match."""

    how: Literal["inner", "left"]
    names: tuple[str, ...]
    table: Unique | Shared
    null_key: Literal["drop", "pad"] = "drop"
    left_if: Expr | None = None
    memory: Memory | None = None

    @staticmethod
    def of(node: StreamTableJoin, own: tuple[str, ...], clock: Clock) -> LookUp:
        """`own`: the columns that the table's rows are known by; `clock`: the stream's."""
        names, memory = tuple(c.name for c in node.keys), Memory(clock, node.retention) if node.remembers else None
        return LookUp(node.how, names, Unique() if node.by_key else Shared(own), node.null_key, node.left_if, memory)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        keys, drops = [key_column(i) for i in range(max(1, len(self.names)))], list[pl.DataFrame]()
        outer, waiting = self.how == "left", Standing(state, "waiting", keys)
        stream = inputs[0] if outer and self.null_key == "pad" else without_nulls(inputs[0], "left", drops)
        table = without_nulls(inputs[1], "right", drops)
        if not stream.height and not table.height:
            if self.memory is not None:
                self.memory.close(waiting, clocks)
            return Result(nothing_joined((stream, table), keys, *self.names), all_dropped(drops))
        known = [meeting(stream, "left", self.left_if, drops), meeting(table, "right", None, drops)]
        line = timeline((stream, table), in_arrival_order(stream, table), keys, known)
        looked = self.table.looked_up(line, state, keys, outer)
        if not looked.order:  # at most one row for each of the stream, at its very place
            own = gathered([stream], stream.columns, looked.stream)
            right = gathered(looked.parts, payload_of(table), looked.table)
            changes = joined_on(own, columns_of(own, payload_of(own)), right, keys, self.names)
            return Result(changes, all_dropped(drops))
        time, diff = (stream[c].to_numpy()[looked.stream] for c in (TIME, DIFF))
        results = [Results(looked.stream, looked.table, looked.stream, time, diff, looked.order)]
        parts, counts = [stream], dict[str, int]()
        if self.memory is not None:
            completed, stored = self.memory.completed(line, looked, waiting, clocks)
            results.append(completed)
            parts += stored
            counts = self.memory.close(waiting, clocks)
        sides = Sides(line.inputs, line.places, (parts, looked.parts), keys, self.names)
        return sides.result(results, drops, counts, own_headers=True)
