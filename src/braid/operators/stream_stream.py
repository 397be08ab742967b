"""Stream-stream join: rows of two streams with equal keys whose times are near each other.

In: changes of both streams in processing order, the clocks. Out: pairs and padded rows in processing order; late rows.
Rule: a row looks at what the other side has stored, then is stored; retention clips what it sees by the other side's
stored clock before it. (specs/ksqldb.md 3.2)

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
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl

from braid.expr.key import canonical_key
from braid.operators.arrangement import ARRIVAL, CLOSE, LEFT, Agenda, Arrangement, Found
from braid.operators.base import Result, State
from braid.operators.changes import (
    DIFF,
    HASH,
    HEADERS,
    NEVER,
    POS,
    SUB,
    TIME,
    key_column,
    released_sub,
    result_sub,
)
from braid.operators.clocks import Clock, Clocks, JoinClock
from braid.operators.pairing import MISSING, dropped_rows, gathered, in_arrival_order, joined, payload_of
from braid.operators.ranges import Flags, Ints, Keyed, Window, begins, hashes_of, key_order, keyed, meet, order_of
from braid.plan.logical import How, StreamStreamJoin
from braid.types import Column, Type

PARKED = "_p"  # of a stored row: it was parked at the end of its batch
LATER = np.iinfo(np.int64).max

NONE = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class _Side:
    """One side of the join and its new rows, sorted by (hash, time, arrival)."""

    left: bool
    outer: bool
    clock: Clock
    back: int  # a partner may be so much older …
    ahead: int  # … or so much younger
    visible: int  # at the end of the batch the other side sees rows from this time on
    held: Arrangement
    columns: list[str]  # payload
    in_order: pl.Series  # positions of the new rows as they came
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    place: Ints = field(default_factory=lambda: NONE)  # order of arrival in the batch, over both sides
    t: Ints = field(default_factory=lambda: NONE)
    late: Flags = field(init=False)  # too late to be stored
    keyless: pl.DataFrame | None = None  # rows without a key that go out padded
    keyless_place: Ints = field(default_factory=lambda: NONE)
    keyed: Keyed = field(init=False)
    lo: Ints = field(default_factory=lambda: NONE)  # what a row may see of the other side
    hi: Ints = field(default_factory=lambda: NONE)
    clipped: bool = False  # `lo` of some row comes from retention
    matched: Flags = field(init=False)
    still: Ints = field(default_factory=lambda: NONE)  # new rows that are parked at the end of the batch
    parts: list[pl.DataFrame] = field(default_factory=list)  # rows that results are made of: new, keyless, stored

    @property
    def offset(self) -> int:
        """The number that the first row of the next part gets."""
        return sum(p.height for p in self.parts)

    def fresh(self, column: str) -> pl.Series:
        """A column of the new rows, those without a key last."""
        return self.rows[column] if self.keyless is None else pl.concat([self.rows[column], self.keyless[column]])

    def add(self, found: Found) -> Ints:
        """Takes stored rows among those that results are made of; gives their numbers."""
        if found.rows is None:
            return NONE
        first = self.offset
        self.parts.append(found.rows)
        return np.arange(first, first + found.rows.height, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a batch knows of time: `now` is stream time at its end, `base` the first arrival number."""

    clocks: Clocks
    stream: Clock
    now: int
    base: int

    def seen(self, positions: pl.Series) -> Ints:
        """Stream time at each position, its own step included."""
        return self.clocks.at(self.stream, positions)


@dataclass(slots=True)
class _Pairs:
    """Matches: numbers of rows among the parts of each side, and whether the left one was looking."""

    left: Ints
    right: Ints
    by_left: Flags
    place: Ints  # of the looking row
    stored_t: Ints
    stored_n: Ints


@dataclass(slots=True)
class _Out:
    """Rows that go out: numbers of their parts' rows (or `MISSING`), whose record they are, their place: of the looking
    row, or of the first row after a release."""

    left: Ints
    right: Ints
    by_left: Flags
    place: Ints

    def ordered(self, order: Ints) -> _Out:
        return _Out(self.left[order], self.right[order], self.by_left[order], self.place[order])

    def and_then(self, other: _Out) -> _Out:
        pairs = ((self.left, other.left), (self.right, other.right), (self.place, other.place))
        left, right, place = (np.concatenate(x) for x in pairs)
        return _Out(left, right, np.concatenate([self.by_left, other.by_left]), place)


@dataclass(slots=True)
class _Released:
    """Parked rows whose time has come, one side's."""

    left: bool
    at: Ints  # numbers among the parts of the side
    close: Ints
    t: Ints
    n: Ints


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
        drops: list[pl.DataFrame] = []
        left, right = self._sides(inputs, clocks, state, drops)
        pairs = _pairs(left, right, self._key_columns, moment.base)

        padded = {True: NONE, False: NONE}
        released: list[_Released] = []
        agenda = Agenda(state, "parked")
        if self.grace is None:
            for side in (left, right):
                if side.outer:
                    padded[side.left] = np.flatnonzero(~side.matched)
        elif left.outer or right.outer:
            padded, released = self._deferred((left, right), pairs, agenda, moment)

        out = _results(left, right, pairs, padded)
        changes = self._changes(left, right, out, released, moment)
        expired = sum(self._store(side, moment) for side in (left, right))
        agenda.close()
        state.manifest["arrivals"] = moment.base + sum(frame.height for frame in inputs)
        counts = {"expired": expired} if expired else {}
        return Result(changes, pl.concat(drops, how="diagonal") if drops else None, counts)

    @property
    def _key_columns(self) -> list[str]:
        return [key_column(i) for i in range(len(self.keys))]

    # ---------------------------------------------------------------- the new rows

    def _sides(
        self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State, drops: list[pl.DataFrame]
    ) -> tuple[_Side, _Side]:
        sides = []
        for left, frame, place in zip((True, False), inputs, in_arrival_order(*inputs), strict=True):
            name = "left" if left else "right"
            clock = self.left_clock if left else self.right_clock
            back, ahead = (self.before, self.after) if left else (self.after, self.before)
            side = _Side(
                left=left,
                outer=self.how in (name, "full"),
                clock=clock,
                back=back,
                ahead=ahead,
                visible=clocks.stored_end(clock) - self.retention + 1,
                held=Arrangement(state, name, self._key_columns),
                columns=payload_of(frame),
                in_order=frame[POS],
            )
            self._take(side, frame, place, clocks, drops)
            sides.append(side)
        for side, other in ((sides[0], sides[1]), (sides[1], sides[0])):
            side.lo, side.hi = side.t - side.back, side.t + side.ahead
            open_ = np.flatnonzero(side.lo < other.visible)
            if len(open_):
                floor = clocks.stored(other.clock, side.rows[POS].gather(open_)) - self.retention + 1
                if (floor > side.lo[open_]).any():
                    side.clipped = True
                    side.lo[open_] = np.maximum(side.lo[open_], floor)
        return sides[0], sides[1]

    def _take(self, side: _Side, frame: pl.DataFrame, place: Ints, clocks: Clocks, drops: list[pl.DataFrame]) -> None:
        """Puts the new rows into their order; sets apart those without a key and the late ones."""
        name = "left" if side.left else "right"
        if frame[HASH].null_count():
            without = frame[HASH].is_null()
            lone, frame = frame.filter(without), frame.filter(~without)
            mask = without.to_numpy()
            if side.outer and self.null_key == "pad":
                side.keyless, side.keyless_place = lone, place[mask]
            else:
                drops.append(dropped_rows(lone, "null key", name))
            place = place[~mask]
        t = frame[TIME].to_numpy()
        late = np.flatnonzero(t < side.visible)
        if len(late):
            clock = clocks.stored(side.clock, frame[POS].gather(late))
            is_late = t[late] < clock - self.retention + 1
            late, clock = late[is_late], clock[is_late]
        flags = np.zeros(len(t), dtype=np.bool_)
        if len(late):
            flags[late] = True
            drops.append(dropped_rows(frame[late], "late", name, clock))
            if self.late == "discard":
                frame, place, t = frame.filter(pl.Series(~flags)), place[~flags], t[~flags]
                flags = np.zeros(len(t), dtype=np.bool_)
        order = key_order(hashes_of(frame), t)
        side.rows, side.place, side.t, side.late = frame[order], place[order], t[order], flags[order]
        side.keyed = keyed(side.rows, self._key_columns)
        side.matched = np.zeros(len(t), dtype=np.bool_)
        side.parts.append(side.rows)
        if side.keyless is not None:
            side.parts.append(side.keyless)

    # ---------------------------------------------------------------- rows that wait

    def _deferred(
        self, sides: tuple[_Side, _Side], pairs: _Pairs, agenda: Agenda, moment: _Moment
    ) -> tuple[dict[bool, Ints], list[_Released]]:
        """Who is padded at once, who is released; parks the others and unparks those that met."""
        assert self.grace is not None
        now, base = moment.now, moment.base
        padded, released = {True: NONE, False: NONE}, []
        entries, unparked = [], [NONE]
        for side, other in (sides, sides[::-1]):
            if not side.outer:
                continue
            alone = np.flatnonzero(~side.matched)
            look = side.t[alone] + side.ahead
            old = np.flatnonzero(look < now)
            seen = moment.seen(side.rows[POS].gather(alone[old]))
            at_once = alone[old[look[old] < seen]]
            padded[side.left] = at_once
            parked = np.setdiff1d(alone, at_once, assume_unique=True)
            close = side.t[parked] + side.ahead + self.grace

            met = _met_later((side, other), parked, close, pairs, moment)
            due = ~met & (close < now)
            at = parked[due]
            released.append(_Released(side.left, at, close[due], side.t[at], base + side.place[at]))
            side.still = parked[~met & (close >= now)]
            entries.append(_entries(side, side.still, base, side.t[side.still] + side.ahead + self.grace))

            back, take_back = _met_stored((side, other), self.grace, pairs, moment)
            unparked.append(back)
            entries.append(take_back)
        gone = np.concatenate(unparked)
        due_now = agenda.prefix(now)
        if due_now is not None and due_now.height:
            due_now = due_now.filter(pl.Series(~np.isin(due_now[ARRIVAL].to_numpy(), gone))) if len(gone) else due_now
            for side in sides:
                mine = due_now.filter(pl.col(LEFT) == side.left)
                if mine.height:
                    released.append(_fetched(side, mine))
        agenda.append(pl.concat(entries))
        return padded, [r for r in released if len(r.at)]

    # ---------------------------------------------------------------- what goes out, what stays

    def _changes(
        self, left: _Side, right: _Side, out: _Out, released: Sequence[_Released], moment: _Moment
    ) -> pl.DataFrame:
        """All output rows, in processing order: `out` are the results; released rows stand before the results of the
        step that moves stream time past their close."""
        number = _within(out.place)
        parents = [s.fresh(SUB) for s in (left, right)]
        own = np.where(out.by_left, out.left, len(parents[0]) + out.right)
        pos = pl.concat([s.fresh(POS) for s in (left, right)]).gather(own)
        sub = pl.concat(parents)
        if sub.null_count() == len(sub):
            sub = sub.clear(len(own))
        else:
            sub = result_sub(sub.gather(own), pl.Series(number))
        if released:
            freed, freed_pos, freed_sub = self._freed(left, right, released, moment)
            order = np.argsort(np.concatenate([2 * freed.place, 2 * out.place + 1]), kind="stable")
            out = freed.and_then(out).ordered(order)
            pos, sub = pl.concat([freed_pos, pos]).gather(order), pl.concat([freed_sub, sub]).gather(order)

        times = [np.append(np.concatenate([p[TIME].to_numpy() for p in s.parts]), NEVER) for s in (left, right)]
        t = np.maximum(times[0][out.left], times[1][out.right])
        headers = [HEADERS] if any(HEADERS in p.columns for s in (left, right) for p in s.parts) else []
        columns = [HASH, *self._key_columns, *headers]
        both = [_with_columns(p, headers) for p in (*left.parts, *right.parts)]
        rows = gathered(both, columns, np.where(out.by_left, out.left, left.offset + out.right))
        rows = rows.with_columns(pos.alias(POS), sub.alias(SUB), pl.Series(TIME, t), pl.lit(1, pl.Int8).alias(DIFF))
        l, r = (gathered(s.parts, s.columns, at) for s, at in ((left, out.left), (right, out.right)))
        return joined(rows, l, r, self._key_columns, self.key)

    def _freed(
        self, left: _Side, right: _Side, released: Sequence[_Released], moment: _Moment
    ) -> tuple[_Out, pl.Series, pl.Series]:
        """Released rows in their order, with their positions and `_sub`."""
        places, values = moment.clocks.moves(moment.stream)
        n, t, close = (np.concatenate([getattr(r, f) for r in released]) for f in ("n", "t", "close"))
        by_left = np.concatenate([np.full(len(r.at), r.left) for r in released])
        at = np.concatenate([r.at for r in released])
        step = np.searchsorted(values, close, side="right")
        keys = pl.concat([gathered((left if r.left else right).parts, self._key_columns, r.at) for r in released])
        text = canonical_key(keys, [Column(k, t) for k, t in zip(self._key_columns, self.keys, strict=True)])
        frame = pl.DataFrame({"step": step, "t": t, "left": by_left, "key": text, "n": n})
        order = frame.select(pl.arg_sort_by("step", "t", "left", "key", "n"))["step"].to_numpy()
        frame, at = frame[order], at[order]
        pos = places.gather(step[order])
        before = [side.in_order.search_sorted(pos, side="left").to_numpy() for side in (left, right)]
        place = before[0].astype(np.int64) + before[1]
        sub = released_sub(frame["t"], frame["left"], frame["key"], pl.Series(np.arange(len(at))))
        by_left = by_left[order]
        out = _Out(np.where(by_left, at, MISSING), np.where(by_left, MISSING, at), by_left, place)
        return out, pos, sub

    def _store(self, side: _Side, moment: _Moment) -> int:
        """Adds the new rows that can still be seen or that are parked; gives how many have expired."""
        waits = self.grace is not None and side.outer
        bound = side.visible
        if self.grace is not None and side.outer:
            bound = min(bound, moment.now - side.ahead - self.grace)
        keep = side.t >= side.visible
        expired = len(keep) - int((keep | side.late).sum())
        if len(side.still):
            keep[side.still] = True
        names = [c for c in side.rows.columns if c not in (POS, SUB, DIFF, HEADERS)]
        if waits and HEADERS in side.rows.columns:
            names.append(HEADERS)  # a released row goes out with its own
        made = [pl.Series(ARRIVAL, moment.base + side.place)]
        if waits:
            parked = np.zeros(len(keep), dtype=np.bool_)
            parked[side.still] = True
            made.append(pl.Series(PARKED, parked))
        rows = side.rows.select(names).with_columns(made)
        held = side.held
        held.forget(bound)
        held.append(rows if keep.all() else rows.filter(pl.Series(keep)), ordered=True)
        held.close()
        return expired + held.expired


def _pairs(left: _Side, right: _Side, keys: Sequence[str], base: int) -> _Pairs:
    """All matches, by no particular order: new rows with stored ones of the other side, and new ones with new ones."""
    old_right = right.held.probe(left.keyed, left.lo, left.hi)
    old_left = left.held.probe(right.keyed, right.lo, right.hi)
    nl, nr = meet(left.keyed, right.keyed, keys, Window(right.t, left.t - left.back, left.hi))
    by_left = left.place[nl] > right.place[nr]
    if left.clipped or right.clipped:
        seen = np.where(by_left, right.t[nr] >= left.lo[nl], left.t[nl] >= right.lo[nr])
        nl, nr, by_left = nl[seen], nr[seen], by_left[seen]
    a, b = len(old_right.looking), len(old_left.looking)
    pairs = _Pairs(
        left=np.concatenate([old_right.looking, left.add(old_left), nl]),
        right=np.concatenate([right.add(old_right), old_left.looking, nr]),
        by_left=np.concatenate([np.ones(a, dtype=np.bool_), np.zeros(b, dtype=np.bool_), by_left]),
        place=np.concatenate(
            [
                left.place[old_right.looking],
                right.place[old_left.looking],
                np.where(by_left, left.place[nl], right.place[nr]),
            ]
        ),
        stored_t=np.concatenate(
            [_numbers(old_right, TIME), _numbers(old_left, TIME), np.where(by_left, right.t[nr], left.t[nl])]
        ),
        stored_n=np.concatenate(
            [
                _numbers(old_right, ARRIVAL),
                _numbers(old_left, ARRIVAL),
                base + np.where(by_left, right.place[nr], left.place[nl]),
            ]
        ),
    )
    left.matched[pairs.left[pairs.by_left]] = True
    right.matched[pairs.right[~pairs.by_left]] = True
    return pairs


def _numbers(found: Found, column: str) -> Ints:
    return NONE if found.rows is None else found.rows[column].to_numpy()


def _met_later(sides: tuple[_Side, _Side], parked: Ints, close: Ints, pairs: _Pairs, moment: _Moment) -> Flags:
    """Which parked new rows of the first side a later row of the batch met before their release."""
    side, other = sides
    mine = pairs.left if side.left else pairs.right
    stored = (pairs.by_left != side.left) & (mine < len(side.t))
    first = np.full(len(side.t), LATER, dtype=np.int64)
    np.minimum.at(first, mine[stored], pairs.place[stored])
    met = first[parked] < LATER
    late = np.flatnonzero(met & (close < moment.now))
    if len(late):
        by_place = np.argsort(other.place)
        who = by_place[np.searchsorted(other.place, first[parked[late]], sorter=by_place)]
        met[late] = moment.seen(other.rows[POS].gather(who)) <= close[late]
    return met


def _met_stored(sides: tuple[_Side, _Side], grace: int, pairs: _Pairs, moment: _Moment) -> tuple[Ints, pl.DataFrame]:
    """Parked stored rows of the first side that a new row met before their release: their arrival numbers, and the
    entries that take them back."""
    side, other = sides
    mine, theirs = (pairs.left, pairs.right) if side.left else (pairs.right, pairs.left)
    new = len(side.t) + len(side.keyless_place)
    at = np.flatnonzero(mine >= new)
    if not len(at):
        return NONE, _entries(side, NONE, 0, NONE)
    found = side.parts[-1]  # the stored rows that were met are the last part so far
    at = at[found[PARKED].to_numpy()[mine[at] - new]]
    close = pairs.stored_t[at] + side.ahead + grace
    late = np.flatnonzero(close < moment.now)
    if len(late):
        seen = moment.seen(other.rows[POS].gather(theirs[at[late]]))
        at = np.delete(at, late[seen > close[late]])
    n, first = np.unique(pairs.stored_n[at], return_index=True)
    at = at[first]
    rows = found.select(HASH, TIME)[mine[at] - new]
    close = pairs.stored_t[at] + side.ahead + grace
    back = {
        CLOSE: close,
        ARRIVAL: n,
        DIFF: np.full(len(n), -1, dtype=np.int8),
        LEFT: np.full(len(n), side.left),
        HASH: rows[HASH],
        TIME: rows[TIME],
    }
    return n, pl.DataFrame(back).filter(pl.Series(close >= moment.now))


def _results(left: _Side, right: _Side, pairs: _Pairs, padded: dict[bool, Ints]) -> _Out:
    """Pairs and rows padded at once, by the place of the looking row, its pairs by the stored row's (time, arrival)."""
    lefts, rights, by_left, place = [pairs.left], [pairs.right], [pairs.by_left], [pairs.place]
    for side in (left, right):
        lone = len(side.t) + np.arange(len(side.keyless_place), dtype=np.int64)
        at = np.concatenate([padded[side.left], lone])
        missing = np.full(len(at), MISSING, dtype=np.int64)
        lefts.append(at if side.left else missing)
        rights.append(missing if side.left else at)
        by_left.append(np.full(len(at), side.left))
        place.append(np.concatenate([side.place, side.keyless_place])[at])
    where = np.concatenate(place)
    order = order_of(where)
    in_pairs = order < len(pairs.place)
    _sort_within(order, where, pairs, in_pairs)
    out = _Out(np.concatenate(lefts), np.concatenate(rights), np.concatenate(by_left), where)
    return out.ordered(order)


def _sort_within(order: Ints, where: Ints, pairs: _Pairs, in_pairs: Flags) -> None:
    """Sorts the pairs of each looking row by the stored row, where they come from several runs and do not stand so."""
    at = np.flatnonzero(in_pairs)
    p = order[at]
    place, t, n = where[p], pairs.stored_t[p], pairs.stored_n[p]
    wrong = (place[1:] == place[:-1]) & ((t[1:] < t[:-1]) | ((t[1:] == t[:-1]) & (n[1:] < n[:-1])))
    if not wrong.any():
        return
    some = np.flatnonzero(np.isin(place, np.unique(place[1:][wrong])))
    order[at[some]] = p[some][np.lexsort((n[some], t[some], place[some]))]


def _within(place: Ints) -> Ints:
    """The number of each row among those of its place (they stand together)."""
    first = np.flatnonzero(begins(place))
    return np.arange(len(place)) - np.repeat(first, np.diff(np.append(first, len(place))))


def _entries(side: _Side, at: Ints, base: int, close: Ints) -> pl.DataFrame:
    """Agenda entries of new rows."""
    return pl.DataFrame(
        {
            CLOSE: close,
            ARRIVAL: base + side.place[at],
            DIFF: np.ones(len(at), dtype=np.int8),
            LEFT: np.full(len(at), side.left),
            HASH: side.keyed.h[at],
            TIME: side.t[at],
        }
    )


def _fetched(side: _Side, due: pl.DataFrame) -> _Released:
    """The stored rows of agenda entries."""
    h, t, n, close = (due[c].to_numpy() for c in (HASH, TIME, ARRIVAL, CLOSE))
    found = side.held.fetch(h, t, n)
    if len(found.looking) != len(h):
        raise AssertionError(f"{len(h) - len(found.looking)} parked rows are not in the state")
    at = found.looking
    return _Released(side.left, side.add(found), close[at], t[at], n[at])


def _with_columns(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The frame with these text columns, null where it lacks them."""
    return frame.with_columns(pl.lit(None, pl.String).alias(c) for c in names if c not in frame.columns)
