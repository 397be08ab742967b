"""Stream-stream join: rows of two streams with equal keys whose times are near each other.

In: changes of both streams in processing order, the clocks. Out: pairs and padded rows in processing order; late rows.
Rule: a row looks at what the other side has stored, then is stored; retention clips what it sees by the other side's
stored clock before it. (docs/rules/ksqldb.md, "Two streams")

*Matches* equal keys with right time within [left - before, left + after], both ends included.
*Keeps* of each side the rows that retention still shows, or that are parked: time >= stored clock - retention + 1; of
parked rows (deferred, outer) also (close, arrival, hash, time), in an agenda ordered by close.
*Emits* pairs at the later arrival, ordered by the stored row's (time, arrival); padding at once (eager, or too old to
wait) or in the place of the step that moves stream time past time + lookback + grace (deferred).
*Forgets* a row once retention hides it and it is no longer parked.

Stream time and stored clocks are step functions of position, but most rows are judged by the values at the end of the
batch alone: a look-up that is not clipped by the last value is clipped by no earlier one. Only what the last value
leaves open is looked up in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from braid.operators.arrangement import ARRIVAL, CLOSE, LEFT, Agenda, Arrangement
from braid.operators.base import Result, State
from braid.operators.changes import (
    DIFF,
    HASH,
    HEADERS,
    POS,
    POS_TYPE,
    SUB,
    TIME,
    causes,
    key_column,
    prior,
    released_sub,
)
from braid.operators.clocks import Clock, Clocks, JoinClock
from braid.operators.pairing import (
    MISSING,
    all_dropped,
    dropped_rows,
    gathered,
    in_arrival_order,
    nothing_joined,
    payload_of,
    release_order,
)
from braid.operators.ranges import (
    Flags,
    Hashes,
    Ints,
    begins,
    columns_of,
    hashes_of,
    key_order,
    keyed,
    rows_at,
    values_at,
)
from braid.operators.windowed import (
    NONE,
    Freed,
    Matches,
    Out,
    Pairs,
    Side,
    alone_of,
    changes_of,
    places_of_releases,
)
from braid.plan.logical import How, StreamStreamJoin
from braid.records.key import canonical_key
from braid.types import Column, Type

PARKED = "_p"  # of a stored row: it was parked at the end of its batch
CAUSE = "_from"  # the position of the record that completed it
LATER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a batch knows of time: `now` is stream time at its end, `base` the first arrival number."""

    clocks: Clocks
    stream: Clock
    now: int
    base: int

    def passed(self, side: Side, rows: Ints, limit: Ints) -> Flags:
        """Whether the stream time that new rows see is above a limit: their own step included, unless they stand
        before it."""
        above = np.zeros(len(rows), dtype=np.bool_)
        late = np.flatnonzero(limit < self.now)
        if len(late):
            positions = values_at(side.frame[POS], rows[late])
            near = np.flatnonzero(limit[late] < self.clocks.above(positions))
            if len(near):
                late = late[near]
                seen = self.clocks.at(self.stream, values_at(positions, near), side.prior_of(rows[late]))
                above[late] = seen > limit[late]
        return above


@dataclass(slots=True)
class _Released:
    """Parked rows of one side whose time has come."""

    left: bool
    at: Ints  # numbers among the parts of the side
    close: Ints
    t: Ints
    n: Ints
    cause: pl.Series  # as `changes.causes`


@dataclass(frozen=True, slots=True)
class StreamStream:
    """Times in ms. `keys`: types of the exchange key columns; `key`: name of the result's join key column."""

    how: How
    before: int
    after: int
    grace: int | None
    retention: int
    keys: tuple[Type, ...]
    key: str
    left_clock: Clock
    right_clock: Clock
    null_key: Literal["drop", "pad"] = "drop"
    late: Literal["lookup", "discard"] = "lookup"

    @staticmethod
    def of(node: StreamStreamJoin, left_clock: Clock, right_clock: Clock) -> StreamStream:
        return StreamStream(
            how=node.how,
            before=node.before,
            after=node.after,
            grace=node.grace,
            retention=node.retention,
            keys=(node.key.type,),
            key=node.key.name,
            left_clock=left_clock,
            right_clock=right_clock,
            null_key=node.null_key,
            late=node.late,
        )

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        stream = JoinClock(self.left_clock, self.right_clock, 0)
        moment = _Moment(clocks, stream, clocks.end(stream), int(state.manifest.get("arrivals", 0)))
        agenda = Agenda(state, "parked")
        if not any(frame.height for frame in inputs) and agenda.low >= moment.now:
            return self._quiet(inputs, state, moment)
        drops: list[pl.DataFrame] = []
        left, right = self._sides(inputs, clocks, state, drops)
        matches = Matches(left, right, self._key_columns, moment.base)

        padded = {True: NONE, False: NONE}
        released: list[_Released] = []
        if self.grace is None:
            if left.outer or right.outer:
                matches.settle()
            padded = {side.left: alone_of(side) for side in (left, right)}
        elif left.outer or right.outer:
            padded, released = self._deferred((left, right), matches, agenda, moment)

        freed = self._freed(left, right, released, moment) if released else None
        changes = changes_of(matches, padded, freed, self._key_columns, [self.key])
        expired = sum(self._store(side, moment) for side in (left, right))
        agenda.close()
        state.manifest["arrivals"] = moment.base + sum(frame.height for frame in inputs)
        return Result.of(changes, all_dropped(drops), {"expired": expired} if expired else {})

    def _quiet(self, inputs: Sequence[pl.DataFrame], state: State, moment: _Moment) -> Result:
        """A batch without rows here, in which nothing falls due: what has expired is forgotten."""
        expired = 0
        for left, clock in ((True, self.left_clock), (False, self.right_clock)):
            held = Arrangement(state, "left" if left else "right", self._key_columns)
            if held.runs:
                held.forget(self._bound(left, moment.clocks.stored_end(clock) - self.retention + 1, moment.now))
                held.close()
                expired += held.expired
        nothing = nothing_joined(inputs, self._key_columns, self.key)
        return Result(nothing, None, {"expired": expired} if expired else {})

    def _bound(self, left: bool, visible: int, now: int) -> int:
        """Stored rows of a side below this time are neither seen any more nor parked."""
        if self.grace is None or self.how not in ("left" if left else "right", "full"):
            return visible
        return min(visible, now - (self.after if left else self.before) - self.grace)

    @property
    def _key_columns(self) -> list[str]:
        return [key_column(i) for i in range(len(self.keys))]

    # ---------------------------------------------------------------- the new rows

    def _sides(
        self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State, drops: list[pl.DataFrame]
    ) -> tuple[Side, Side]:
        sides = []
        for left, frame, place in zip((True, False), inputs, in_arrival_order(*inputs), strict=True):
            name = "left" if left else "right"
            clock = self.left_clock if left else self.right_clock
            back, ahead = (self.before, self.after) if left else (self.after, self.before)
            side = Side(
                left=left,
                outer=self.how in (name, "full"),
                clock=clock,
                back=back,
                ahead=ahead,
                visible=clocks.stored_end(clock) - self.retention + 1,
                held=Arrangement(state, name, self._key_columns),
                columns=payload_of(frame),
                frame=frame,
                place=place,
                t=frame[TIME].to_numpy(),
                parts=[frame],
                prior=prior(frame),
            )
            self._sort(side, clocks, drops)
            sides.append(side)
        for side, other in ((sides[0], sides[1]), (sides[1], sides[0])):
            side.lo, side.hi = side.t - side.back, side.t + side.ahead
            open_ = self._below(clocks, side, np.flatnonzero(side.lo < other.visible), side.lo)
            if len(open_):
                floor = self._clock_before(clocks, other.clock, side, open_) - self.retention + 1
                if (floor > side.lo[open_]).any():
                    side.clipped = True
                    side.lo[open_] = np.maximum(side.lo[open_], floor)
        return sides[0], sides[1]

    def _below(self, clocks: Clocks, side: Side, rows: Ints, times: Ints) -> Ints:
        """Of some new rows those whose time may have been hidden by retention when they came."""
        if not len(rows):
            return rows
        positions = side.frame[POS]
        above = clocks.above(positions if len(rows) == len(positions) else values_at(positions, rows))
        return rows[times[rows] < above - self.retention + 1]

    def _clock_before(self, clocks: Clocks, clock: Clock, side: Side, rows: Ints) -> Ints:
        """The stored clock before new rows of a side."""
        positions = side.frame[POS]
        positions = positions if len(rows) == len(positions) else values_at(positions, rows)
        return clocks.stored(clock, positions, side.prior_of(rows))

    def _sort(self, side: Side, clocks: Clocks, drops: list[pl.DataFrame]) -> None:
        """Sets apart the rows without a key, and the late ones; sorts the others."""
        joins = np.ones(len(side.t), dtype=np.bool_)
        if side.frame[HASH].null_count():
            lone = np.flatnonzero(side.frame[HASH].is_null().to_numpy())
            joins[lone] = False
            if side.outer and self.null_key == "pad":
                side.lone = lone
            else:
                drops.append(dropped_rows(rows_at(side.frame, lone), "null key", side.name))
        late = self._below(clocks, side, np.flatnonzero((side.t < side.visible) & joins), side.t)
        if len(late):
            clock = self._clock_before(clocks, side.clock, side, late)
            is_late = side.t[late] < clock - self.retention + 1
            late, clock = late[is_late], clock[is_late]
        if len(late):
            side.late = late
            drops.append(dropped_rows(rows_at(side.frame, late), "late", side.name, clock))
            if self.late == "discard":
                joins[late] = False
        h, at = hashes_of(side.frame), np.flatnonzero(joins)
        whole = len(at) == len(h)
        order = key_order(h if whole else h[at], side.t if whole else side.t[at])
        side.order = order if whole else at[order]
        keys = rows_at(columns_of(side.frame, self._key_columns), side.order)
        side.keyed = keyed(h[side.order], keys)
        side.matched = ~joins  # those that do not join are not alone either

    # ---------------------------------------------------------------- rows that wait

    def _deferred(
        self, sides: tuple[Side, Side], matches: Matches, agenda: Agenda, moment: _Moment
    ) -> tuple[dict[bool, Ints], list[_Released]]:
        """Who is padded at once, who is released; parks the others and unparks those that met."""
        assert self.grace is not None
        now, base = moment.now, moment.base
        padded, released = {True: NONE, False: NONE}, []
        entries, unparked = [], []
        first = {side.left: np.full(len(side.t), LATER, dtype=np.int64) for side in sides if side.outer}
        for left, right, pairs, _ in matches:
            for side, other in ((left, right), (right, left)):
                if side.outer:
                    _note_first(first[side.left], side, pairs)
                    back, taken_back = _met_stored((side, other), self.grace, pairs, moment)
                    unparked.append(back)
                    entries += taken_back
        for side, other in (sides, sides[::-1]):
            if not side.outer:
                continue
            alone = alone_of(side)
            look = side.t[alone] + side.ahead
            at_once = moment.passed(side, alone, look)
            padded[side.left] = alone[at_once]
            parked, close = alone[~at_once], look[~at_once] + self.grace

            met = _met_later(first[side.left][parked], other, close, moment)
            due = ~met & (close < now)
            at = parked[due]
            cause = values_at(causes(side.frame), at)
            released.append(_Released(side.left, at, close[due], side.t[at], base + side.place[at], cause))
            waiting = ~met & (close >= now)
            side.still = parked[waiting]
            if len(side.still):
                h = hashes_of(side.frame)[side.still]
                n = base + side.place[side.still]
                entries.append(_entries(side.left, close[waiting], n, h, side.t[side.still]))
        gone = np.concatenate(unparked)
        due_now = agenda.prefix(now)
        if due_now is not None and due_now.height:
            mine = ~np.isin(due_now[ARRIVAL].to_numpy(), gone)
            is_left = due_now[LEFT].to_numpy()
            for side in sides:
                which = np.flatnonzero(mine & (is_left == side.left))
                if len(which):
                    released.append(_fetched(side, rows_at(due_now, which)))
        if entries:
            agenda.append(pl.concat(entries))
        return padded, [r for r in released if len(r.at)]

    # ---------------------------------------------------------------- what goes out, what stays

    def _freed(self, left: Side, right: Side, released: Sequence[_Released], moment: _Moment) -> Freed:
        """Released rows in their order."""
        places, values = moment.clocks.moves(moment.stream)
        n, t, close = (np.concatenate([getattr(r, f) for r in released]) for f in ("n", "t", "close"))
        by_left = np.concatenate([np.full(len(r.at), r.left) for r in released])
        at = np.concatenate([r.at for r in released])
        step = np.searchsorted(values, close, side="right")
        keys = pl.concat([gathered((left if r.left else right).parts, self._key_columns, r.at) for r in released])
        text = canonical_key(keys, [Column(k, t) for k, t in zip(self._key_columns, self.keys, strict=True)])
        order = release_order(step, t, by_left, text, n)
        at, by_left, step = at[order], by_left[order], step[order]
        first = np.flatnonzero(begins(step))  # rows of one step share its position
        distinct = values_at(places, step[first])
        size = np.diff(np.append(first, len(step)))
        place = np.repeat(places_of_releases((left, right), distinct), size)
        numbers = pl.Series(np.arange(len(at)))
        came = values_at(pl.concat([r.cause for r in released]), order)
        sub = released_sub(pl.Series(t[order]), pl.Series(by_left), values_at(text, order), numbers, came)
        out = Out(np.where(by_left, at, MISSING), np.where(by_left, MISSING, at), by_left, place)
        return Freed(out, values_at(places, step), sub)

    def _store(self, side: Side, moment: _Moment) -> int:
        """Adds the new rows that can still be seen or that are parked; gives how many have expired."""
        waits = self.grace is not None and side.outer
        keep = side.t >= side.visible
        keep[side.still] = True
        at = side.order[keep[side.order]]
        late = 0 if self.late == "discard" else len(side.late) - int(keep[side.late].sum())
        expired = len(side.order) - len(at) - late
        held = side.held
        held.forget(self._bound(side.left, side.visible, moment.now))
        if len(at):
            names = [c for c in side.frame.columns if c not in (POS, SUB, DIFF, HEADERS)]
            if waits and HEADERS in side.frame.columns:
                names.append(HEADERS)  # a released row goes out with its own
            made = [pl.Series(ARRIVAL, moment.base + side.place[at])]
            if waits:
                parked = np.zeros(len(keep), dtype=np.bool_)
                parked[side.still] = True
                made.append(pl.Series(PARKED, parked[at]))
                made.append(values_at(causes(side.frame), at).alias(CAUSE))
            held.append(rows_at(columns_of(side.frame, names), at).hstack(made), ordered=True)
        held.close()
        return expired + held.expired


def _note_first(first: Ints, side: Side, pairs: Pairs) -> None:
    """For each new row of a side the place of the first later row that met it."""
    mine = pairs.left if side.left else pairs.right
    stored = np.flatnonzero((pairs.by_left != side.left) & (mine < len(side.t)))
    np.minimum.at(first, mine[stored], pairs.place[stored])


def _met_later(first: Ints, other: Side, close: Ints, moment: _Moment) -> Flags:
    """Which parked new rows a later row of the batch met before their release. `first`: the place of that row."""
    met = first < LATER
    late = np.flatnonzero(met & (close < moment.now))
    if len(late):
        who = np.searchsorted(other.place, first[late])
        met[late] = ~moment.passed(other, who, close[late])
    return met


def _met_stored(sides: tuple[Side, Side], grace: int, pairs: Pairs, moment: _Moment) -> tuple[Ints, list[pl.DataFrame]]:
    """Parked stored rows of the first side that a new row met before their release: their arrival numbers, and the
    entries that take them back."""
    side, other = sides
    mine, theirs = (pairs.left, pairs.right) if side.left else (pairs.right, pairs.left)
    at = np.flatnonzero(mine >= len(side.t))
    if not len(at):
        return NONE, []
    found = side.parts[-1]  # the stored rows that were met are the last part so far
    at = at[found[PARKED].to_numpy()[mine[at] - len(side.t)]]
    at = at[~moment.passed(other, theirs[at], pairs.stored_t[at] + side.ahead + grace)]
    n, first = np.unique(pairs.stored_n[at], return_index=True)
    at = at[first]
    close = pairs.stored_t[at] + side.ahead + grace
    waiting = np.flatnonzero(close >= moment.now)
    if not len(waiting):
        return n, []
    at = at[waiting]
    h = hashes_of(found)[mine[at] - len(side.t)]
    return n, [_entries(side.left, close[waiting], n[waiting], h, pairs.stored_t[at], diff=-1)]


def _entries(left: bool, close: Ints, n: Ints, h: Hashes, t: Ints, diff: int = 1) -> pl.DataFrame:
    """Agenda entries."""
    signs, sides = np.full(len(n), diff, dtype=np.int8), np.full(len(n), left)
    return pl.DataFrame({CLOSE: close, ARRIVAL: n, DIFF: signs, LEFT: sides, HASH: h, TIME: t})


def _fetched(side: Side, due: pl.DataFrame) -> _Released:
    """The stored rows of agenda entries."""
    h, t, n, close = (due[c].to_numpy() for c in (HASH, TIME, ARRIVAL, CLOSE))
    found = side.held.fetch(h, t, n)
    if len(found.looking) != len(h):
        raise AssertionError(f"{len(h) - len(found.looking)} parked rows are not in the state")
    at = found.looking
    cause = pl.Series(dtype=POS_TYPE) if found.rows is None else found.rows[CAUSE]
    return _Released(side.left, side.add(found), close[at], t[at], n[at], cause)
