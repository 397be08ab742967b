"""Arrangements: an operator's rows as immutable sorted runs, so that a batch costs as much as its new rows.

In: new rows, each batch. Out: the rows a key meets, or those whose time has come.
Rule: a run never changes. A batch adds one, sometimes merges a few of like size, and drops those whose rows have all
expired; the manifest (JSON-able, small) names the live ones, oldest first. Newer runs hold later arrivals.

`Arrangement`: rows by (hash, time, arrival), looked up by key and time.
`Newest`: rows by hash, one per key and run; the newest run that knows a key wins; tombstones live until they reach
the oldest run.
`Agenda`: entries by the time they fall due; an entry is taken back by a second one with `_diff` -1.
`Whole`: rows as they come, all read by every batch. Its manifest has id, rows and bytes of runs, and no floor.

Manifest of one: {"runs": [[id, rows, bytes, lowest time, highest time, plain], …], "floor": time below which nothing
counts any more}. `plain` says that no two keys of the run share a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import polars as pl

from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, NEVER, TIME
from braid.operators.ranges import (
    Flags,
    Hashes,
    Ints,
    Keyed,
    Stored,
    Window,
    columns_of,
    distinct,
    expand,
    hashes_of,
    key_order,
    keyed,
    narrow,
    order_of,
    probe,
    rising,
    rows_at,
    spans,
)
from braid.timing import spent, tally

FAN = 4  # so many runs of like size become one
LEVEL_0 = 1024  # runs below this size are alike
MOST_RUNS = 24
FEW = 64  # so many rows more than needed do not matter (`Whole`)
FREE_MERGE = 65_536  # a batch may always merge so many rows …
MERGE_PER_NEW = 16  # … or so many for each new one; more only where there are too many runs
TINY = 64  # runs of this size lose their expired rows at once

NOT_KNOWN = 2**62  # as high as no bound
ARRIVAL, CLOSE, LEFT = "_n", "_close", "_left"


@dataclass(slots=True)
class Run:
    """What the manifest says of a run. `frame`: its rows while it is not yet written (then it has no id)."""

    id: str
    rows: int
    bytes: int
    low: int
    high: int
    plain: bool
    frame: pl.DataFrame | None = None

    def entry(self) -> list[Any]:
        return [self.id, self.rows, self.bytes, self.low, self.high, int(self.plain)]


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of an arrangement that looking rows meet: `looking[i]` is the number of the one that meets row i."""

    looking: Ints
    rows: pl.DataFrame | None  # None: nothing


@dataclass(frozen=True, slots=True)
class Held:
    """What an arrangement holds, for EXPLAIN and progress; rows that have expired in a run that lives on count."""

    rows: int
    bytes: int
    runs: int


def held(manifest: Mapping[str, Any]) -> dict[str, Held]:
    """What an operator's manifest says it holds, by arrangement."""
    found = {name: kept["runs"] for name, kept in manifest.items() if isinstance(kept, dict) and "runs" in kept}
    return {name: Held(sum(r[1] for r in runs), sum(r[2] for r in runs), len(runs)) for name, runs in found.items()}


def level(rows: int) -> int:
    """Runs of one level are of like size."""
    return max(0, (max(rows, 1) // LEVEL_0).bit_length() + 1) // 2


class Runs:
    """The runs of one arrangement and their manifest; what the kinds of arrangements share."""

    __slots__ = ("expired", "floor", "gone", "merged", "name", "runs", "state")

    def __init__(self, state: State, name: str) -> None:
        self.state, self.name = state, name
        kept = state.manifest.get(name, {})
        self.runs = [Run(i, n, b, lo, hi, bool(plain)) for i, n, b, lo, hi, plain in kept.get("runs", ())]
        self.floor: int = kept.get("floor", NEVER)
        self.gone: int = kept.get("gone", 0)  # entries that take back others, since all were one run
        self.expired = 0  # rows found expired since this was opened
        self.merged = 0  # rows written again

    @property
    def rows(self) -> int:
        """Rows held; those that have expired in a run that lives on are still among them."""
        return sum(r.rows for r in self.runs)

    @property
    def bytes(self) -> int:
        return sum(r.bytes for r in self.runs)

    @property
    def low(self) -> int:
        """No row is older. (Above every time if there is none.)"""
        return min((r.low for r in self.runs), default=2**62)

    def close(self) -> None:
        """Writes new runs and the manifest."""
        for run in self.runs:
            if run.frame is not None:
                run.id, run.bytes = self.state.new_run(run.frame)
                run.frame = None
        self.state.manifest[self.name] = {"runs": [r.entry() for r in self.runs], "floor": self.floor}
        if self.gone:
            self.state.manifest[self.name]["gone"] = self.gone

    def shrink(self, gone: int) -> None:
        """So many of the new entries take back others. Where those that do are a share of all, or there are few, all
        become one run, and nothing is left of what came and went; each entry pays for some others."""
        self.gone += gone
        if self.gone and (self.rows <= TINY or FAN * self.gone >= self.rows):
            self.unite()

    def unite(self) -> None:
        """All runs become one."""
        self.gone = 0
        if self.runs:
            with spent("merge"):
                merged = self._merged(self.runs, oldest=True)
            self._remove(self.runs)
            self.runs = [merged] if merged is not None else []

    def forget(self, bound: int) -> None:
        """What is below `bound` has expired: runs that hold nothing else go, the rest goes when runs merge."""
        self.floor = max(self.floor, bound)
        old = [r for r in self.runs if r.high < self.floor]
        self.expired += sum(r.rows for r in old)
        self._remove(old)
        self.runs = [r for r in self.runs if r.high >= self.floor]

    def _read(self, run: Run) -> pl.DataFrame:
        return self.state.runs.get(run.id) if run.frame is None else run.frame

    def _remove(self, runs: Sequence[Run]) -> None:
        for run in runs:
            if run.frame is None:
                self.state.runs.remove(run.id)

    def _merge(self, new: int) -> None:
        """Merges neighbours of like size, newest first, within what `new` rows pay for."""
        budget = max(FREE_MERGE, MERGE_PER_NEW * new)
        while len(self.runs) >= FAN:
            top = level(self.runs[-1].rows)
            first = len(self.runs)
            while first > 0 and level(self.runs[first - 1].rows) <= top:
                first -= 1
            last, rows = len(self.runs), sum(r.rows for r in self.runs[first:])
            if last - first < FAN or rows > budget:
                if last <= MOST_RUNS:
                    return
                first = min(range(last - FAN + 1), key=lambda i: sum(r.rows for r in self.runs[i : i + FAN]))
                last = first + FAN
                rows = sum(r.rows for r in self.runs[first:last])
            old = self.runs[first:last]
            with spent("merge"):
                merged = self._merged(old, oldest=first == 0)
            tally("merges")
            tally("merged_rows", rows)
            self._remove(old)
            self.runs[first:last] = [merged] if merged is not None else []
            self.merged += rows
            budget -= rows

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        raise NotImplementedError


class Arrangement(Runs):
    """Rows by (hash, time, arrival). Columns: `_h`, the key columns, the time column (Int64), and any others."""

    __slots__ = ("keys", "time")

    def __init__(self, state: State, name: str, keys: Sequence[str], time: str = TIME) -> None:
        super().__init__(state, name)
        self.keys, self.time = tuple(keys), time

    def append(self, rows: pl.DataFrame, ordered: bool = False) -> None:
        """Adds one run (`ordered`: the rows stand in the run's order), then merges."""
        if rows.height:
            if not ordered:
                rows = rows_at(rows, key_order(hashes_of(rows), rows[self.time].to_numpy()))
            self.runs.append(self._run(rows))
        self._merge(rows.height)

    def forget(self, bound: int) -> None:
        """Rows below `bound` have expired: drops runs that hold no others, cleans those that hold mostly such."""
        self.floor = max(self.floor, bound)
        live = []
        for run in self.runs:
            if run.high < self.floor:
                self.expired += run.rows
                self._remove([run])
                continue
            dead = run.rows * (self.floor - run.low) / (run.high - run.low + 1)
            if dead > 0 and (run.rows <= TINY or dead > run.rows / 2):
                live.append(self._cleaned(run))
            else:
                live.append(run)
        self.runs = live

    def as_it_stands(self) -> Self:
        """The same rows, whatever becomes of these; to be looked at only."""
        made = copy(self)
        made.runs = [replace(run, frame=self._read(run)) for run in self.runs]
        return made

    def probe(self, looking: Keyed, lo: Ints | None = None, hi: Ints | None = None, most: int | None = None) -> Found:
        """The rows with the keys of the looking ones, time within [lo, hi] (None: any), oldest run first. `Crowded`
        where a run has more than `most` of them."""
        pairs, rows = [], []
        lowest, highest = (int(lo.min()), int(hi.max())) if lo is not None and hi is not None and len(lo) else (0, -1)
        for run in self.runs:
            if lowest <= highest and (run.high < lowest or run.low > highest):
                continue
            stored = self._read(run)
            window = None if lo is None or hi is None else Window(stored[self.time].to_numpy(), lo, hi)
            q, s = probe(looking, Stored(stored, run.plain, self.keys), window, most)
            if len(q):
                pairs.append(q)
                rows.append(rows_at(stored, s))
        return _found(pairs, rows)

    def fetch(self, h: Hashes, times: Ints, arrivals: Ints) -> Found:
        """The rows with these hashes, times and arrival numbers."""
        pairs, rows = [], []
        for run in self.runs:
            stored = self._read(run)
            held, n = hashes_of(stored), stored[ARRIVAL].to_numpy()
            start, stop = spans(held, h)
            t = stored[self.time].to_numpy()
            start = narrow(t, start, stop, times, right=False)
            stop = narrow(t, start, stop, times, right=True)
            at = narrow(n, start, stop, arrivals, right=False)
            hit = np.flatnonzero(at < stop)
            hit = hit[n[at[hit]] == arrivals[hit]]
            if len(hit):
                pairs.append(hit)
                rows.append(rows_at(stored, at[hit]))
        return _found(pairs, rows)

    def _run(self, rows: pl.DataFrame) -> Run:
        t = rows[self.time].to_numpy()
        return Run(
            "",
            rows.height,
            0,
            int(t.min()),
            int(t.max()),
            keyed(hashes_of(rows), columns_of(rows, self.keys)).plain,
            rows,
        )

    def _cleaned(self, run: Run) -> Run:
        rows = self._read(run)
        t = rows[self.time].to_numpy()
        live = t >= self.floor
        count = int(live.sum())
        if count > run.rows / 2 and run.rows > TINY:  # the guess was wrong; guess again from what lives
            run.low = int(t[live].min())
            return run
        if count == run.rows:
            run.low = int(t.min())
            return run
        self.expired += run.rows - count
        made = self._run(rows_at(rows, np.flatnonzero(live)))
        self._remove([run])
        return made

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        rows = pl.concat([self._read(r) for r in runs], how="diagonal")
        t = rows[self.time].to_numpy()
        if len(t) and int(t.min()) < self.floor:
            live = t >= self.floor
            at = np.flatnonzero(live)
            rows, t = rows_at(rows, at), t[at]
            self.expired += sum(r.rows for r in runs) - rows.height
        return self._run(rows_at(rows, key_order(hashes_of(rows), t))) if rows.height else None


class Newest(Runs):
    """The last row of each key. Columns: `_h`, the key columns, `_diff` (-1: there is none any more), any others.
    `time`: a column of the key by which rows expire, or a number made of the key's columns. What was kept when rows did
    not expire does not say how old its runs are."""

    __slots__ = ("_ticks", "keys", "time")

    def __init__(self, state: State, name: str, keys: Sequence[str], time: str | pl.Expr | None = None) -> None:
        super().__init__(state, name)
        self.keys = tuple(keys)
        self.time = pl.col(time) if isinstance(time, str) else time
        if isinstance(time, pl.Expr) and self.name in state.manifest and not state.manifest[name].get("ticks"):
            self.runs = [replace(r, high=NOT_KNOWN) for r in self.runs]
        self._ticks = isinstance(time, pl.Expr)

    def close(self) -> None:
        super().close()
        if self._ticks:
            self.state.manifest[self.name]["ticks"] = 1

    def append(self, rows: pl.DataFrame) -> None:
        """Adds one run: rows sorted by hash, one per key; what has expired already is left out. Then merges."""
        if self._ticks and self.time is not None:
            rows = rows.filter(self.time >= self.floor)
        if rows.height:
            run = self._run(rows, oldest=not self.runs)
            if run is not None:
                self.runs.append(run)
        self._merge(rows.height)
        self.shrink(int((rows[DIFF] == -1).sum()))

    def probe(self, looking: Keyed) -> Found:
        """The last row of each looking key, tombstones left out. The looking rows have one row per key."""
        todo = np.ones(len(looking.h), dtype=np.bool_)
        pairs, rows = [], []
        for run in reversed(self.runs):
            if not todo.any():
                break
            stored = self._read(run)
            q, s = probe(looking, Stored(stored, run.plain, self.keys), None)
            new = todo[q]
            q, s = q[new], s[new]
            if not len(q):
                continue
            todo[q] = False
            hit = rows_at(stored, s)
            stands = np.flatnonzero(hit[DIFF].to_numpy() == 1)
            if len(stands) < len(q):
                q, hit = q[stands], rows_at(hit, stands)
            if len(q):
                pairs.append(q)
                rows.append(hit)
        return _found(pairs, rows)

    def standing(self, among: tuple[Hashes, Hashes] | None = None) -> pl.DataFrame | None:
        """The last rows of all keys, or of those with hashes from one number to another (ranges that do not overlap),
        tombstones left out. None: there is none."""
        opened = map(self._read, self.runs)
        found = list(opened if among is None else _hashed(opened, *among))
        if not found:
            return None
        rows = pl.concat(found, how="diagonal")
        if len(found) > 1:
            rows = rows_at(rows, key_order(hashes_of(rows)))
            rows = rows.filter(pl.Series(last_of_key(rows, self.keys)))
        stands = pl.col(DIFF) == 1
        return rows.filter(stands if self.time is None else stands & (self.time >= self.floor))

    def _run(self, rows: pl.DataFrame, oldest: bool) -> Run | None:
        if oldest:
            rows = rows.filter(pl.col(DIFF) == 1)
        if not rows.height:
            return None
        t = np.zeros(1, np.int64) if self.time is None else rows.select(t=self.time)["t"].to_numpy()
        low, high = int(t.min()), int(t.max())
        return Run("", rows.height, 0, low, high, keyed(hashes_of(rows), columns_of(rows, self.keys)).plain, rows)

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        rows = pl.concat([self._read(r) for r in runs], how="diagonal")
        if self.time is not None:
            before, rows = rows.height, rows.filter(self.time >= self.floor)
            self.expired += before - rows.height
        rows = rows_at(rows, key_order(hashes_of(rows)))
        return self._run(rows.filter(pl.Series(last_of_key(rows, self.keys))), oldest)


def _hashed(frames: Iterable[pl.DataFrame], low: Hashes, high: Hashes) -> Iterator[pl.DataFrame]:
    """Those of rows sorted by hash that have one in these ranges."""
    for rows in frames:
        held = hashes_of(rows)
        start, stop = np.searchsorted(held, low, side="left"), np.searchsorted(held, high, side="right")
        if (stop > start).any():
            yield rows_at(rows, expand(start, stop)[1])


def last_of_key(rows: pl.DataFrame, keys: Sequence[str]) -> Flags:
    """Which of the rows, sorted by hash and then by age, are the last of their key."""
    k = keyed(hashes_of(rows), columns_of(rows, keys))
    last = np.zeros(rows.height, dtype=np.bool_)
    if k.plain:
        last[k.starts[1:] - 1] = True
        return last
    at = rows.with_row_index("_i").select(pl.col("_i").max().over(HASH, *keys))["_i"].to_numpy()
    last[at] = True
    return last


class Agenda(Runs):
    """Entries by the time they fall due. Columns: `_close` (that time), `_n` (names the entry), `_diff`, any others."""

    __slots__ = ()

    def append(self, entries: pl.DataFrame) -> None:
        """Adds entries (`_diff` 1) and takes entries back (`_diff` -1; those without an entry do no harm)."""
        if entries.height:
            self.runs.append(self._run(entries))
        self._merge(entries.height)

    def prefix(self, limit: int) -> pl.DataFrame | None:
        """The entries due before `limit`, each once, by due time; from now on they are gone."""
        parts, live = [], []
        for run in self.runs:
            if run.low >= limit:
                live.append(run)
                continue
            entries = self._read(run)
            due = entries[CLOSE].to_numpy()
            first, end = np.searchsorted(due, [self.floor, limit])
            parts.append(entries.slice(first, end - first))
            if end < len(due):
                run.low = int(due[end])
                live.append(run)
            else:
                self._remove([run])
        self.runs, self.floor = live, max(self.floor, limit)
        if not parts:
            return None
        due_now = pl.concat(parts)
        if due_now[DIFF].min() == -1:
            due_now = cancelled(due_now, oldest=True)
        return rows_at(due_now, order_of(due_now[CLOSE].to_numpy())) if len(parts) > 1 else due_now

    def standing(self) -> pl.DataFrame | None:
        """The entries that are not due yet and were not taken back; None: nothing. They stay."""
        found = [self._read(run).filter(pl.col(CLOSE) >= self.floor) for run in self.runs]
        return cancelled(pl.concat(found, how="diagonal"), oldest=True) if found else None

    def _run(self, entries: pl.DataFrame) -> Run:
        due = entries[CLOSE].to_numpy()
        if not rising(due):
            order = order_of(due)
            entries, due = rows_at(entries, order), due[order]
        return Run("", entries.height, 0, int(due[0]), int(due[-1]), True, entries)

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        entries = cancelled(pl.concat([self._read(r).filter(pl.col(CLOSE) >= self.floor) for r in runs]), oldest)
        return self._run(entries) if entries.height else None


def cancelled(entries: pl.DataFrame, oldest: bool) -> pl.DataFrame:
    """Without entries that were taken back. What takes back an entry of an older run must live on."""
    n, diff = entries[ARRIVAL].to_numpy(), entries[DIFF].to_numpy()
    back = distinct(n[diff == -1])
    made = n[diff == 1]
    live = (diff == 1) & ~np.isin(n, back)
    if not oldest:
        waiting = np.setdiff1d(back, made)
        first = np.zeros(len(n), dtype=np.bool_)
        taken = np.flatnonzero(diff == -1)
        first[taken[np.unique(n[taken], return_index=True)[1]]] = True
        live |= first & np.isin(n, waiting)
    return rows_at(entries, np.flatnonzero(live))


def _found(pairs: Sequence[Ints], rows: Sequence[pl.DataFrame]) -> Found:
    if not pairs:
        return Found(np.empty(0, dtype=np.int64), None)
    if len(pairs) == 1:
        return Found(pairs[0], rows[0])
    return Found(np.concatenate(pairs), pl.concat(rows, how="diagonal"))


class Whole:
    """Rows of an operator that every batch reads, all of them, and writes as they come.

    A batch adds one run. A run merges with the one before it where that is not more than twice as large, so that a row
    is written again a few times only; when half of the rows are no longer needed, what is needed becomes one run.
    """

    __slots__ = ("_name", "_runs", "_state")

    def __init__(self, state: State, name: str) -> None:
        self._state, self._name = state, name
        self._runs: list[tuple[str, int, int]] = [(r, n, b) for r, n, b in state.manifest.get(name, {}).get("runs", ())]

    def with_new(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows kept, and new ones."""
        kept = [self._state.runs.get(run) for run, _, _ in self._runs]
        return pl.concat([*kept, rows], how="diagonal") if kept else rows

    def rows(self) -> pl.DataFrame | None:
        """The rows kept; None: there are none."""
        return (
            pl.concat([self._state.runs.get(run) for run, _, _ in self._runs], how="diagonal") if self._runs else None
        )

    def close(self, needed: pl.DataFrame, new: pl.DataFrame) -> None:
        """From now on at least the rows that are needed are kept; `new` are those of them that were not before."""
        kept = sum(n for _, n, _ in self._runs)
        if kept + new.height > 2 * needed.height + FEW:
            self._replace(0, needed)
        elif new.height:
            first = len(self._runs)
            with spent("merge"):
                while first and self._runs[first - 1][1] <= 2 * new.height:
                    first -= 1
                    new = pl.concat([self._state.runs.get(self._runs[first][0]), new], how="diagonal")
            if first < len(self._runs):
                tally("merges")
                tally("merged_rows", new.height)
            self._replace(first, new)
        else:
            return
        self._state.manifest[self._name] = {"runs": [list(r) for r in self._runs]}

    def _replace(self, first: int, rows: pl.DataFrame) -> None:
        """One run in place of those from number `first` on."""
        for run, _, _ in self._runs[first:]:
            self._state.runs.remove(run)
        del self._runs[first:]
        if rows.height:
            run, size = self._state.new_run(rows)
            self._runs.append((run, rows.height, size))


@dataclass(slots=True)
class MemoryRuns:
    """Runs in this process: tests and the local runtime. `copy` is a snapshot of the store (runs never change)."""

    frames: dict[str, pl.DataFrame] = field(default_factory=dict)

    def get(self, run: str) -> pl.DataFrame:
        return self.frames[run]

    def put(self, run: str, frame: pl.DataFrame) -> int:
        if run in self.frames:
            raise ValueError(f"run {run} exists")
        self.frames[run] = frame
        return int(frame.estimated_size())

    def remove(self, run: str) -> None:
        del self.frames[run]

    def copy(self) -> MemoryRuns:
        return MemoryRuns(dict(self.frames))
