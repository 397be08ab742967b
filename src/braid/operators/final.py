"""Final: windows that speak once, when they are closed.

In: changes of a table whose key ends with the bounds of windows. Out: the table's rows when their windows are closed.
Rule: a window is told at the place where stream time reaches its end and a grace, as what comes of that place leaves
it; what changes it later (only sessions can) is told in its own place. (docs/rules/ksqldb.md, "Windows")

*Matches* nothing.
*Keeps* of each window that is open the row that was written last.
*Emits* in the place of the step that closes the window, before its results, ordered by (end, key, start).
*Forgets* what it has emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from braid.operators.arrangement import ARRIVAL, CLOSE, Agenda, Run, last_of_key
from braid.operators.base import Awaited, Result, State
from braid.operators.changes import (
    DIFF,
    HASH,
    HEADERS,
    POS,
    SUB,
    TIME,
    causes,
    key_column,
    released_sub,
)
from braid.operators.clocks import Clock, Clocks, leaves, of_slowest
from braid.operators.pairing import (
    payload_of,
    release_order,
    with_headers,
)
from braid.operators.ranges import columns_of, hashes_of, key_order, rows_at, values_at
from braid.plan import groups
from braid.records.key import byte_order
from braid.types import Column, Type

STANDS, CAME = "_stands", "_from"


class Waiting(Agenda):
    """Rows of windows by when these close; of each window those before the last go when runs merge."""

    __slots__ = ("keys",)

    def __init__(self, state: State, keys: Sequence[str]) -> None:
        super().__init__(state, "waiting")
        self.keys = tuple(keys)

    def standing(self) -> pl.DataFrame | None:
        """The last row of each that is open; None: nothing."""
        return self._last(self.runs) if self.runs else None

    def _last(self, runs: Sequence[Run]) -> pl.DataFrame:
        rows = pl.concat([self._read(r).filter(pl.col(CLOSE) >= self.floor) for r in runs], how="diagonal")
        return last(rows, self.keys) if rows.height else rows

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        rows = self._last(runs)
        return self._run(rows) if rows.height else None


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
    binary: bool
    awaits: ClassVar[tuple[str, ...]] = ("waiting",)
    waits_for: ClassVar[str] = "its window to close"

    @staticmethod
    def of(node: groups.Final, clock: Clock) -> Final:
        types = tuple(e.type for e in node.row_key)
        return Final(node.grace, (node.start.name, node.end.name), clock, types, node.binary)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        keys = [key_column(i) for i in range(len(self.types))]
        waiting, now = Waiting(state, keys), clocks.end(self.clock)
        again = self._again(rows, now, clocks)
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
            waiting.append(last(new if again is None else new.filter(~again), keys))
        due = waiting.prefix(now + 1) if waiting.low <= now else None
        waiting.close()
        found = [] if again is None else [with_headers(rows).filter(again & (rows[DIFF] == 1))]
        if due is not None:
            found.append(self._released(last(due, keys).filter(STANDS), keys, clocks))
        if not found:
            return Result(rows.clear())
        columns = [POS, SUB, TIME, DIFF, HASH, *keys, HEADERS, *payload_of(rows)]
        out = pl.concat([x.select(columns) for x in found])
        out = out if again is None else out.sort(POS, SUB, maintain_order=True)
        return Result(out if out[HEADERS].null_count() < out.height else out.drop(HEADERS))

    def waiting(self, state: State, clocks: Clocks) -> Iterator[Awaited]:
        """The windows that are open."""
        keys = [key_column(i) for i in range(len(self.types))]
        if (rows := Waiting(state, keys).standing()) is not None:
            open_ = rows.filter(STANDS)
            due, slowest = open_[CLOSE].to_numpy(), of_slowest(self.clock)
            yield Awaited(leaves(self.clock), clocks.end(self.clock), due, lambda: open_, reached=True, slowest=slowest)

    def _again(self, rows: pl.DataFrame, now: int, clocks: Clocks) -> pl.Series | None:
        """Which rows change a window that has been told; None: no row does."""
        told = rows[self.bounds[1]] + self.grace <= now
        if not told.any():
            return None
        before = clocks.at(self.clock, rows[POS].filter(told), np.ones(len(told.arg_true()), dtype=np.bool_))
        told = told.scatter(told.arg_true(), (rows[self.bounds[1]].filter(told) + self.grace).to_numpy() <= before)
        return told if told.any() else None

    def _released(self, due: pl.DataFrame, keys: Sequence[str], clocks: Clocks) -> pl.DataFrame:
        """The rows in their order, each in the place of the step that closes its window."""
        places, values = clocks.rises(self.clock)
        step = places[np.searchsorted(values, due[CLOSE].to_numpy(), side="left")]
        (start, end), none = (due[b] for b in self.bounds), np.ones(due.height, dtype=np.bool_)
        fields = [Column(k, t) for k, t in zip(keys, self.types, strict=True)][: -len(self.bounds)]
        # no start is below 0; a session's says which of a key's that end at one time is first
        text = byte_order(columns_of(due, keys), fields, self.binary) + " " + start.cast(pl.String).str.zfill(19)
        order = release_order(step, end.to_numpy(), none, text, due[ARRIVAL].to_numpy())
        out = rows_at(due, order)
        ends, numbers = (pl.Series(x) for x in (end.to_numpy()[order], np.arange(len(order))))
        sub = released_sub(ends, pl.Series(none), values_at(text, order), numbers, out[CAME])
        return out.with_columns(clocks.places(step[order]).alias(POS), sub)
