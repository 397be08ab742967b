"""Windows of rows' own times: each row in each window that holds it; and windows that speak once, when they close.

In: rows of a stream, spread by a key; then changes of a table whose key ends with the bounds of windows. Out: the rows
with the bounds of their windows, as columns and as parts of the key; the table's rows when their windows are closed.
Rule: a window is closed from the step on at which stream time reaches its end and a grace. What comes for it later is
late. (docs/rules/ksqldb.md, "Windows")

*Matches* nothing.
*Keeps* `TimeWindows` nothing; `Final` of each window that is open the row that was written last.
*Emits* `TimeWindows` at a row's own place, in the order of the windows; `Final` in the place of the step that closes
the window, before its results, ordered by (end, start, key).
*Forgets* what it has emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators.arrangement import ARRIVAL, CLOSE, Agenda, Run, last_of_key
from braid.operators.base import Result, State
from braid.operators.changes import (
    DIFF,
    HASH,
    HEADERS,
    POS,
    SUB,
    TIME,
    causes,
    key_column,
    numbers_within,
    prior,
    released_sub,
    result_subs,
)
from braid.operators.clocks import Clock, Clocks
from braid.operators.in_windows import in_windows
from braid.operators.pairing import (
    all_dropped,
    dropped_rows,
    payload_of,
    release_order,
    with_headers,
    without_nulls,
)
from braid.operators.ranges import Ints, columns_of, hashes_of, key_order, rows_at, values_at
from braid.plan import groups
from braid.records.key import canonical_key
from braid.types import Column, Type

STANDS, CAME = "_stands", "_from"


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Fields as those of the node (ms)."""

    size: int
    advance: int
    grace: int
    bounds: tuple[str, str]
    clock: Clock

    @staticmethod
    def of(node: groups.TimeWindows, clock: Clock) -> TimeWindows:
        return TimeWindows(node.size, node.advance, node.grace, (node.start.name, node.end.name), clock)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops)
        which, start = self._windows(rows[TIME].to_numpy())
        late = self._late(rows, which, start, clocks)
        lost = np.bincount(which, minlength=rows.height) == 0  # before 0 there is no window
        lost[which[late]] = True
        if lost.any():
            told = rows.filter(lost)
            now = clocks.at(self.clock, told[POS], prior(told))
            drops.append(dropped_rows(told, "late", None, now))
        return Result(self._spread(rows, which[~late], start[~late]), all_dropped(drops))

    def _windows(self, t: Ints) -> tuple[Ints, Ints]:
        """Each row as often as there are windows that hold its time, and where these begin."""
        first = np.maximum(t - self.size + self.advance, 0) // self.advance * self.advance
        count = np.maximum((t - first) // self.advance + 1, 0)
        which = np.repeat(np.arange(len(t), dtype=np.int64), count)
        return which, first[which] + numbers_within(which) * self.advance

    def _late(
        self, rows: pl.DataFrame, which: Ints, start: Ints, clocks: Clocks
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """For which windows a row comes when they are closed, its own step included."""
        close = start + self.size + self.grace
        late = close <= clocks.end(self.clock)
        if late.any():
            at = which[late]
            now = clocks.at(self.clock, values_at(rows[POS], at), prior(rows, at))
            late[late] = close[late] <= now
        return late

    def _spread(self, rows: pl.DataFrame, which: Ints, start: Ints) -> pl.DataFrame:
        made = rows_at(rows, which)
        made = made.with_columns(result_subs(rows[SUB], which, numbers_within(which)))
        return in_windows(made, start, start + self.size, self.bounds)


class _Waiting(Agenda):
    """Rows of windows by when these close; of each window those before the last go when runs merge."""

    __slots__ = ("keys",)

    def __init__(self, state: State, keys: Sequence[str]) -> None:
        super().__init__(state, "waiting")
        self.keys = tuple(keys)

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        rows = pl.concat([self._read(r).filter(pl.col(CLOSE) >= self.floor) for r in runs], how="diagonal")
        return self._run(last(rows, self.keys)) if rows.height else None


def last(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Of rows in the order in which they were written the last of each key."""
    rows = rows_at(rows, key_order(hashes_of(rows), rows[ARRIVAL].to_numpy()))
    return rows.filter(pl.Series(last_of_key(rows, keys)))


@dataclass(frozen=True, slots=True)
class Final:
    """Fields as those of the node; `types`: of the key, which ends with the bounds of windows."""

    grace: int
    bounds: tuple[str, str]
    clock: Clock
    types: tuple[Type, ...]

    @staticmethod
    def of(node: groups.Final, clock: Clock) -> Final:
        return Final(node.grace, (node.start.name, node.end.name), clock, tuple(e.type for e in node.row_key))

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        keys = [key_column(i) for i in range(len(self.types))]
        waiting = _Waiting(state, keys)
        if rows.height:
            came = int(state.manifest.get("arrivals", 0))
            state.manifest["arrivals"] = came + rows.height
            new = with_headers(rows).select(
                (pl.col(self.bounds[1]) + self.grace).alias(CLOSE),
                pl.Series(ARRIVAL, came + np.arange(rows.height)),
                (pl.col(DIFF) == 1).alias(STANDS),
                pl.lit(1, pl.Int8).alias(DIFF),
                causes(rows).alias(CAME),
                *(TIME, HASH, *keys, HEADERS, *payload_of(rows)),
            )
            waiting.append(last(new, keys))
        now = clocks.end(self.clock)
        due = waiting.prefix(now + 1) if waiting.low <= now else None
        waiting.close()
        if due is None:
            return Result(rows.clear())
        out = self._released(last(due, keys).filter(STANDS), keys, clocks)
        internal = [POS, SUB, TIME, DIFF, HASH, *keys, HEADERS]
        told = out[HEADERS].null_count() < out.height
        return Result(out.select(*(c for c in internal if told or c != HEADERS), *payload_of(rows)))

    def _released(self, due: pl.DataFrame, keys: Sequence[str], clocks: Clocks) -> pl.DataFrame:
        """The rows in their order, each in the place of the step that closes its window."""
        places, values = clocks.rises(self.clock)
        step = places[np.searchsorted(values, due[CLOSE].to_numpy(), side="left")]
        (start, end), none = (due[b] for b in self.bounds), np.ones(due.height, dtype=np.bool_)
        fields = [Column(k, t) for k, t in zip(keys, self.types, strict=True)]
        # no start is below 0; a session's says which of those that end at one time is first
        text = start.cast(pl.String).str.zfill(19) + canonical_key(columns_of(due, keys), fields)
        order = release_order(step, end.to_numpy(), none, text, due[ARRIVAL].to_numpy())
        out = rows_at(due, order)
        ends, numbers = (pl.Series(x) for x in (end.to_numpy()[order], np.arange(len(order))))
        sub = released_sub(ends, pl.Series(none), values_at(text, order), numbers, out[CAME])
        return out.with_columns(clocks.places(step[order]).alias(POS), sub)
