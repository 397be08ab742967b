"""Clocks: step functions of position, made from the steps of every source partition.

In: the steps of a batch (all partitions, all keys) and what is kept of earlier batches. Out: for any position the
stream time of a join and the stored clock of each of its sides.
Rule: a source's clock at x is the minimum, over the partitions live at x, of the highest time each has shown at
positions <= x; it never falls. A partition is live from its first record on, and again from its first record after an
idle mark. Without live partitions: the highest time any has shown. Marks at one place are applied together.
(docs/architecture.md, "Clocks"; docs/rules/ksqldb.md, "Time and clocks")
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.operators.changes import NEVER, POS, POS_TYPE, Flags, no_rows, sequence_of
from braid.operators.ranges import begins, values_at

Ints = npt.NDArray[np.int64]

FOREVER = 2**61  # the time of a source that has ended and lifts its clock
# kinds of steps: a record's time; a storable record's time; the partition falls idle; the first two in one; the last
# record of a batch, which moves no clock
CLOCK, STORED, IDLE, BOTH, SEEN = 0, 1, 2, 3, 4
STEPS: dict[str, pl.DataType] = {
    POS: POS_TYPE,
    "leaf": pl.Int16(),
    "part": pl.Int32(),
    "kind": pl.Int8(),
    "value": pl.Int64(),
}


@dataclass(frozen=True, slots=True)
class LeafClock:
    """The clock of a leaf: of its records, or (`stored`) of its storable ones."""

    leaf: int


@dataclass(frozen=True, slots=True)
class JoinClock:
    """The clock of a join's output: the maximum (ksqlDB's stream time) or the minimum of both inputs' clocks, less what
    the join holds back."""

    left: Clock
    right: Clock
    hold: int
    take: Literal["max", "min"] = "max"


@dataclass(frozen=True, slots=True)
class Newest:
    """The highest time that any record of these leaves has shown; ends do not lift it."""

    leaves: tuple[int, ...]


Clock = LeafClock | JoinClock | Newest
Source = tuple[int, int, int]  # kind, leaf, partition


def leaves(clock: Clock) -> tuple[int, ...]:
    """The leaves whose steps a clock needs."""
    match clock:
        case LeafClock(leaf):
            return (leaf,)
        case JoinClock(left, right):
            return (*leaves(left), *leaves(right))
        case Newest(read):
            return read


@dataclass(frozen=True, slots=True)
class Late:
    """Why rows are late: the clock that each met; the position of the record that had moved it there, null where that
    came in an earlier batch; by how much (ms) each row was behind what is still taken, null where no length says."""

    clock: Ints | None
    moved: pl.Series
    short: Ints | pl.Series | None = None

    @property
    def columns(self) -> dict[str, Ints | pl.Series | None]:
        """Of `Result.dropped`."""
        return {"clock": self.clock, "_moved": self.moved, "_short": self.short}


def of_slowest(clock: Clock) -> bool:
    """Whether it stands where the slowest of its leaves stands, and not where the furthest does."""
    match clock:
        case LeafClock():
            return True
        case JoinClock():
            return clock.take == "min"
        case Newest():
            return False


class Clocks:
    """The clocks of one batch, as seen by one bucket (all buckets see the same).

    `kept` is the JSON-able state left by the batch before (see `state`); empty at first. `awaits`: the clock of a leaf
    begins when so many of its partitions have shown something, or are idle. Functions are made when they are asked
    for, and once.
    """

    def __init__(self, steps: pl.DataFrame, kept: Mapping[str, Any], awaits: Mapping[int, int] | None = None) -> None:
        self._awaits = awaits or {}
        steps = steps if steps[POS].is_sorted() else steps.sort(POS, maintain_order=True)
        pos, first = steps[POS], np.ones(steps.height, dtype=np.bool_)
        first[1:] = (pos[1:] != pos[:-1]).to_numpy()
        self._index = np.cumsum(first) - 1  # the place of each step
        self._places = values_at(pos, np.flatnonzero(first))
        self._leaf, self._part, self._kind = (steps[c].to_numpy() for c in ("leaf", "part", "kind"))
        self._value = steps["value"].to_numpy()
        self._high: dict[Source, int] = {(k, l, p): v for k, l, p, v in kept.get("high", [])}
        self._idle: set[Source] = {(k, l, p) for k, l, p in kept.get("idle", [])}
        self._now: dict[tuple[int, int], int] = {(k, l): v for k, l, v in kept.get("now", [])}
        self._known: dict[tuple[int, Clock], tuple[Ints, int]] = {}
        self._state: dict[str, Any] | None = None
        self._highest: tuple[int, int | None] | None = None  # kept; of the batch, where positions do not bound it

    def _says(self, kind: int, other: int = BOTH) -> npt.NDArray[np.bool_]:
        """Which steps are of this kind, `BOTH` or the other one."""
        says: npt.NDArray[np.bool_] = (self._kind == kind) | (self._kind == BOTH) | (self._kind == other)
        return says

    def _leaf_values(self, kind: int, leaf: int) -> Ints:
        """The clock's value from each place on."""
        n, before = len(self._places), self._now.get((kind, leaf), NEVER)
        mine = np.flatnonzero((self._leaf == leaf) & self._says(kind, IDLE))
        if not len(mine):
            return np.full(n, before, dtype=np.int64)
        place, part, value, idle = (x[mine] for x in (self._index, self._part, self._value, self._kind == IDLE))
        first = begins(place)
        at, local = place[first], np.cumsum(first) - 1  # the places where this leaf has a step
        low = np.full(len(at), 2**62, dtype=np.int64)
        high = np.full(len(at), NEVER, dtype=np.int64)
        any_live = np.zeros(len(at), dtype=np.bool_)
        known = np.zeros(len(at), dtype=np.int64)
        kept = {p for k, l, p in (*self._high, *self._idle) if (k, l) == (kind, leaf)}
        for p in sorted(kept | set(np.unique(part).tolist())):
            shown = np.full(len(at), self._high.get((kind, leaf, p), NEVER), dtype=np.int64)
            own = part == p
            rows = np.flatnonzero(own & ~idle)
            if len(rows):  # of several at one place the last assignment stands, which is the highest
                shown[local[rows]] = np.maximum(np.maximum.accumulate(value[rows]), shown[0])
                np.maximum.accumulate(shown, out=shown)
            # 1 woken, 0 fallen idle, -1 nothing; a mark and a record of a partition never share a place
            state = np.full(len(at), -1, dtype=np.int8)
            state[local[rows]] = 1
            state[local[own & idle]] = 0
            was = (kind, leaf, p) in self._high and (kind, leaf, p) not in self._idle
            live = _filled(state, int(was)) & (shown > NEVER)
            np.minimum(low, shown, out=low, where=live)
            np.maximum(high, shown, out=high)
            any_live |= live
            known += np.logical_or.accumulate((shown > NEVER) | (state == 0)) | ((kind, leaf, p) in self._idle)
        values = np.maximum(np.where(any_live, low, high), before)
        values = np.maximum.accumulate(np.where(known >= self._awaits.get(leaf, 0), values, before))
        size = np.diff(np.append(at, n), prepend=0)
        return np.repeat(np.concatenate([np.array([before], dtype=np.int64), values]), size)

    # ---------------------------------------------------------------- queries

    def _values(self, clock: Clock, kind: int) -> tuple[Ints, int]:
        """(value from each place on, value before the first)."""
        known = self._known.get((kind, clock))
        if known is None:
            known = self._known[kind, clock] = self._made(clock, kind)
        return known

    def _made(self, clock: Clock, kind: int) -> tuple[Ints, int]:
        match clock:
            case LeafClock(leaf):
                return self._leaf_values(kind, leaf), self._now.get((kind, leaf), NEVER)
            case JoinClock(left, right, hold, take):
                (l, l0), (r, r0) = self._values(left, CLOCK), self._values(right, CLOCK)
                before = max(l0, r0) if take == "max" else min(l0, r0)
                values = np.maximum(l, r) if take == "max" else np.minimum(l, r)
                return np.where(values > NEVER, values - hold, NEVER), before - hold if before > NEVER else NEVER
            case Newest(read):
                before = max(
                    (v for (k, l, _), v in self._high.items() if k == kind and l in read and v < FOREVER), default=NEVER
                )
                mine = np.isin(self._leaf, read) & self._says(kind) & (self._value < FOREVER)
                shown = np.full(len(self._places), before, dtype=np.int64)
                np.maximum.at(shown, self._index[mine], self._value[mine])
                return np.maximum.accumulate(shown), before
        assert_never(clock)

    def at(self, clock: Clock, positions: pl.Series, prior: Flags | None = None) -> Ints:
        """The clock at each position, its own step included; not for rows that stand before it (`changes.prior`)."""
        return self._look(clock, CLOCK, positions, inclusive=True, prior=prior)

    def before(self, clock: Clock, positions: pl.Series) -> Ints:
        """The clock just before each position."""
        return self._look(clock, CLOCK, positions, inclusive=False)

    def stored(self, clock: Clock, positions: pl.Series, prior: Flags | None = None) -> Ints:
        """The stored clock before each position; of a join's output, its clock as `at` has it."""
        return self._look(clock, STORED, positions, inclusive=isinstance(clock, JoinClock), prior=prior)

    def moved(self, clock: Clock, positions: pl.Series, stored: bool = False) -> pl.Series:
        """The places of the records that had moved the clock (or the stored one) to what it is at each position."""
        values, before = self._values(clock, STORED if stored else CLOCK)
        rises = np.flatnonzero((np.diff(values, prepend=before) > 0) & (values < FOREVER))
        return _last_of(values_at(self._places, rises), positions)

    def _look(self, clock: Clock, kind: int, positions: pl.Series, inclusive: bool, prior: Flags | None = None) -> Ints:
        if inclusive and prior is not None and prior.any():
            values = self._look(clock, kind, positions, inclusive=True)
            values[prior] = self._look(clock, kind, positions.filter(pl.Series(prior)), inclusive=False)
            return values
        if not len(positions):
            return np.empty(0, dtype=np.int64)
        values, before = self._values(clock, kind)
        if not len(values) or (values[-1] == before):
            return np.full(len(positions), before, dtype=np.int64)
        n = len(positions)
        if len(values) < n and positions.is_sorted():  # few places among many rows: look for the places
            first = _places_in(positions, self._places, not inclusive)
            return np.repeat(np.append(before, values), np.diff(first, prepend=0, append=n))
        place = _places_in(self._places, positions, inclusive)
        return np.where(place > 0, values[place - 1], before)

    def above(self, positions: pl.Series) -> Ints:
        """A time that no clock has passed at each position: cheap, and often enough to know that nothing is late.

        A record's step lies at `m`, its own time or a higher one, so where positions are made of times none that lie
        before a position shows more than the position does.
        """
        if self._highest is None:
            kept = [*self._high.values(), *self._now.values()]
            shown = self._value[self._kind != IDLE]
            timely = bool((shown <= _times_of(self._places)[self._index[self._kind != IDLE]]).all())
            self._highest = max(kept, default=NEVER), None if timely else int(shown.max())
        before, most = self._highest
        if most is not None:
            return np.full(len(positions), max(before, most), dtype=np.int64)
        return np.maximum(_times_of(positions), before)

    def late(self, leaf: int, parts: pl.Series, positions: pl.Series, times: Ints) -> npt.NDArray[np.bool_]:
        """Which rows are below what their partition, or the whole leaf, had shown before them."""
        shown = self.before(LeafClock(leaf), positions)
        for p in parts.unique().to_list():
            own = np.flatnonzero((self._leaf == leaf) & self._says(CLOCK) & (self._part == p))
            mine = np.flatnonzero((parts == p).to_numpy())
            highest = np.maximum.accumulate(
                np.append(self._high.get((CLOCK, leaf, p), NEVER), self._value[own]).astype(np.int64)
            )
            before = _places_in(self._places.gather(self._index[own]), positions.gather(mine), after_equal=False)
            shown[mine] = np.maximum(shown[mine], highest[before])
        return times < shown

    def late_by(self, leaf: int, part: int, position: pl.Series) -> pl.Series:
        """The place of the record that had shown most before a late row: of its partition, else of the whole leaf."""
        own = (self._leaf == leaf) & self._says(CLOCK) & (self._part == part) & (self._value < FOREVER)
        values = np.append(self._high.get((CLOCK, leaf, part), NEVER), self._value[own])
        rises = np.flatnonzero(np.diff(np.maximum.accumulate(values)) > 0)
        found = _last_of(self._places.gather(self._index[own][rises]), position)
        return found if found.null_count() == 0 else self.moved(LeafClock(leaf), position)

    def shown(self, leaf: int) -> tuple[dict[int, int], int]:
        """What the leaf shows in this batch: the first time of each partition, and the highest, ends aside."""
        own = (self._leaf == leaf) & self._says(CLOCK) & (self._value < FOREVER)
        parts, first = np.unique(self._part[own], return_index=True)
        values = self._value[own]
        firsts = dict(zip(parts.tolist(), values[first].tolist(), strict=True))
        return firsts, int(values.max()) if len(values) else NEVER

    def highest(self, clock: Clock) -> int:
        """The highest time that a leaf of the clock shows in this batch, ends aside."""
        own = np.isin(self._leaf, leaves(clock)) & self._says(CLOCK) & (self._value < FOREVER)
        return int(self._value[own].max(initial=NEVER))

    def last(self, leaf: int) -> int:
        """The high part of the position of the last record of a leaf that has a watermark."""
        mine = (self._leaf == leaf) & (self._kind == SEEN)
        return int(_times_of(self._places)[self._index[mine]].max()) if mine.any() else NEVER

    def end(self, clock: Clock) -> int:
        """The clock after the batch."""
        values, before = self._values(clock, CLOCK)
        return int(values[-1]) if len(values) else before

    def stored_end(self, clock: Clock) -> int:
        """The stored clock after the batch."""
        values, before = self._values(clock, STORED)
        return int(values[-1]) if len(values) else before

    def moves(self, clock: Clock) -> tuple[pl.Series, Ints]:
        """The places where the clock rises, and its value from there on (strictly rising)."""
        rises, values = self.rises(clock)
        return self.places(rises), values

    def rises(self, clock: Clock) -> tuple[Ints, Ints]:
        """The same with the numbers of the places, which all clocks have in common."""
        values, before = self._values(clock, CLOCK)
        rises = np.flatnonzero(np.diff(values, prepend=before) > 0)
        return rises, values[rises]

    def places(self, numbers: Ints) -> pl.Series:
        return values_at(self._places, numbers)

    def state(self) -> dict[str, Any]:
        """What the next batch needs, JSON-able. (One document for all who ask: nobody changes it.)"""
        if self._state is None:
            self._state = self._kept()
        return self._state

    def _kept(self) -> dict[str, Any]:
        high, idle, now = dict(self._high), set(self._idle), dict(self._now)
        for leaf in np.unique(self._leaf).tolist():
            for kind in (CLOCK, STORED):
                mine = (self._leaf == leaf) & self._says(kind, IDLE)
                part, value, mark = self._part[mine], self._value[mine], self._kind[mine] == IDLE
                for p in np.unique(part).tolist():
                    own = part == p
                    shown = value[own & ~mark]
                    if len(shown):
                        high[kind, leaf, p] = max(high.get((kind, leaf, p), NEVER), int(shown.max()))
                    idle.discard((kind, leaf, p))
                    if mark[own][-1]:
                        idle.add((kind, leaf, p))
                values, _ = self._values(LeafClock(leaf), kind)
                now[kind, leaf] = int(values[-1])
        return {
            "high": [[k, l, p, v] for (k, l, p), v in sorted(high.items())],
            "idle": [list(x) for x in sorted(idle)],
            "now": [[k, l, v] for (k, l), v in sorted(now.items()) if v > NEVER],
        }


@dataclass(frozen=True, slots=True)
class Closing:
    """Windows whose ends are the last part of the key: none is changed once its clock has reached its end and the
    grace."""

    clock: Clock
    grace: int

    def open_from(self, clocks: Clocks) -> int:
        """The first end of a window that is open after the batch."""
        return clocks.end(self.clock) - self.grace + 1


_recent: deque[tuple[Sequence[pl.DataFrame], Mapping[str, Any], Mapping[int, int], Clocks]] = deque(maxlen=4)


def shared_clocks(steps: Sequence[pl.DataFrame], kept: Mapping[str, Any], awaits: Mapping[int, int]) -> Clocks:
    """The clocks of these very frames of steps: made once for all buckets that a process works for in a batch."""
    for known, before, waits, clocks in tuple(_recent):
        same = len(known) == len(steps) and all(a is b for a, b in zip(known, steps, strict=True))
        if same and before == kept and waits == awaits:
            return clocks
    made = Clocks(pl.concat(steps) if steps else no_rows(STEPS), kept, awaits)
    if steps:
        _recent.appendleft((list(steps), kept, awaits, made))
    return made


def _places_in(rising: pl.Series, wanted: pl.Series, after_equal: bool) -> Ints:
    """Where each wanted position would go: before equal ones, or after them."""
    at = rising.search_sorted(wanted, side="right") if after_equal else rising.search_sorted(wanted, side="left")
    return at.to_numpy().astype(np.int64)


def _last_of(rising: pl.Series, positions: pl.Series) -> pl.Series:
    """The last of these places that is not behind each position; null where there is none."""
    at = _places_in(rising, positions, after_equal=True) - 1
    return rising.gather(pl.Series(at).set(pl.Series(at < 0), None))


def _times_of(positions: pl.Series) -> Ints:
    """The high part of positions."""
    return positions.to_frame("p").select(sequence_of(pl.col("p")).alias("p")).to_series().to_numpy()


def _filled(state: npt.NDArray[np.int8], before: int) -> npt.NDArray[np.bool_]:
    """-1 takes the last value before it (at first `before`)."""
    known = np.maximum.accumulate(np.where(state >= 0, np.arange(len(state)), -1))
    return np.where(known >= 0, state[np.maximum(known, 0)], before).astype(np.bool_)
