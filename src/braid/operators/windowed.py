"""Stream-stream join: rows of two streams with equal keys whose times are near each other.

In: changes of both streams in processing order, the clocks. Out: pairs and padded rows in processing order; late rows.
Rule: a row looks at what the other side has stored, then is stored; a row of an outer side that has met nothing goes
out padded. How long it waits, and how long it is seen, is a policy. (docs/rules/ksqldb.md, docs/rules/lenses.md, "Two
streams")

             `OneClock`                                 `TwoClocks`
waits until  stream time, the maximum, passes the close the clock of the other side passes the close
seen until   the stored clock of its own side has left  the same; and a late row sees no more than one that comes
             it behind by the retention                 in time
too late     told; looks up all the same, or is dropped told, if it has met nothing and does not go out padded
without key  dropped, or padded at once                 dropped; of an outer side it waits
released by  (time, right before left, key, arrival)    (time, place of the record)

*Matches* equal keys with right time within [left - before, left + after], both ends included.
*Keeps* of each side the rows that are still seen, or that wait; of rows that wait (deferred, outer) also (close,
arrival, hash, time), in an agenda ordered by close: time + lookback + grace.
*Emits* pairs at the later arrival, ordered by the stored row's (time, arrival); padding at once (eager, or too old to
wait) or in the place of the step that moves the clock past the close (deferred).
*Forgets* a row once it is not seen any more and does not wait.

Clocks are step functions of position, but most rows are judged by the values at the end of the batch alone: a look-up
that is not clipped by the last value is clipped by no earlier one. Only what the last value leaves open is looked up in
its place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import polars as pl

from braid.expr.nodes import Expr
from braid.operators.arrangement import ARRIVAL, CLOSE, LEFT, Agenda, Arrangement, Found
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
    numbers_within,
    origins,
    prior,
    released_from,
    released_sub,
)
from braid.operators.clocks import Clock, Clocks, JoinClock, Late, leaves, of_slowest
from braid.operators.matches import (
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
from braid.operators.pairing import (
    MISSING,
    all_dropped,
    dropped_rows,
    gathered,
    in_arrival_order,
    late_rows,
    meeting,
    nothing_joined,
    payload_of,
    release_order,
    with_headers,
)
from braid.operators.ranges import Flags, Hashes, Ints, begins, columns_of, hashes_of, rows_at, values_at
from braid.plan.drop_reasons import Reason
from braid.plan.joins import StreamStreamJoin
from braid.plan.logical import How
from braid.records.key import canonical_key
from braid.types import Column, Type

WAITS = "_p"  # of a stored row: it waited at the end of its batch
CAME = "_from"  # of a row that may wait: where it came from (`Life.came`)
Drops = list[pl.DataFrame]
Both = tuple[Side, Side]


@dataclass(frozen=True, slots=True)
class Moment:
    """A batch: its clocks, its number, the first arrival number."""

    clocks: Clocks
    batch: int
    base: int

    def passed(self, waiting: Side, side: Side, rows: Ints, limit: Ints) -> Flags:
        """Whether the clock that ends the wait of one side, as new rows of a side see it, is above a limit: their own
        step included, unless they stand before it."""
        above = np.zeros(len(rows), dtype=np.bool_)
        late = np.flatnonzero(limit < waiting.now)
        if len(late):
            positions = values_at(side.frame[POS], rows[late])
            near = np.flatnonzero(limit[late] < self.clocks.above(positions))
            if len(near):
                late = late[near]
                seen = self.clocks.at(waiting.ends, values_at(positions, near), side.prior_of(rows[late]))
                above[late] = seen > limit[late]
        return above


@dataclass(slots=True)
class Released:
    """Rows of one side that go out padded since their wait is over: numbers among the parts of the side."""

    side: Side
    at: Ints
    close: Ints
    t: Ints
    n: Ints
    came: pl.Series


@dataclass(frozen=True, slots=True)
class Due:
    """All rows that are released in a batch, part by part. `step`: the number of the place that lets each go."""

    parts: Sequence[Released]
    step: Ints
    by_left: Flags
    t: Ints
    n: Ints
    came: pl.Series

    @staticmethod
    def of(parts: Sequence[Released], clocks: Clocks) -> Due:
        rises = {clock: clocks.rises(clock) for clock in {r.side.ends for r in parts}}
        found = ((r.close, *rises[r.side.ends]) for r in parts)
        return Due(
            parts,
            np.concatenate([at[np.searchsorted(values, close, side="right")] for close, at, values in found]),
            np.concatenate([np.full(len(r.at), r.side.left) for r in parts]),
            np.concatenate([r.t for r in parts]),
            np.concatenate([r.n for r in parts]),
            pl.concat([r.came for r in parts]),
        )


@dataclass(frozen=True, slots=True)
class OneClock:
    """`retention`: so long behind its own side's stored clock a row is seen; `types`: of the key columns; `null_key`,
    `late`: what becomes of rows without a key, or too late to be stored."""

    retention: int
    types: tuple[Type, ...]
    null_key: Literal["drop", "pad"] = "drop"
    late: Literal["lookup", "discard"] = "lookup"
    agendas: ClassVar[Mapping[bool, Sequence[str]]] = {True: ("parked",), False: ("parked",)}
    outlives: ClassVar[bool] = True  # rows are seen after they have gone out padded
    tells_all: ClassVar[bool] = True  # of state that holds nothing, too

    def ends(self, clocks: tuple[Clock, Clock], left: bool) -> Clock:
        """The clock that ends the wait of a side's rows."""
        return JoinClock(*clocks, 0)

    def visible(self, side: Side, clocks: Clocks, grace: int) -> int:
        """From which time on the other side sees rows at the end of the batch."""
        return clocks.stored_end(side.clock) - self.retention + 1

    def batch(self, state: State) -> int:
        """The number of the batch, where it counts."""
        return 0

    def came(self, side: Side, moment: Moment) -> pl.Series:
        return causes(side.frame)

    def judge(self, side: Side, moment: Moment, grace: int, drops: Drops) -> Flags:
        """Which new rows may meet others. The late ones are told, and those without a key that do not go out."""
        joins = np.ones(len(side.t), dtype=np.bool_)
        if side.frame[HASH].null_count():
            lone = np.flatnonzero(side.frame[HASH].is_null().to_numpy())
            joins[lone] = False
            if side.outer and self.null_key == "pad":
                side.lone = lone
            else:
                drops.append(dropped_rows(rows_at(side.frame, lone), Reason.NULL_KEY, side.name))
        late = self._below(side, np.flatnonzero((side.t < side.visible) & joins), side.t, moment.clocks)
        if len(late):
            clock = self._clock_before(side.clock, side, late, moment.clocks)
            is_late = side.t[late] < clock - self.retention + 1
            late, clock = late[is_late], clock[is_late]
        if len(late):
            moved = moment.clocks.moved(side.clock, _positions(side, late), not isinstance(side.clock, JoinClock))
            short = clock - self.retention + 1 - side.t[late]
            drops.append(late_rows(rows_at(side.frame, late), side.name, Late(clock, moved, short)))
            if self.late == "discard":
                joins[late] = False
            else:
                side.late = late
        side.matched = ~joins  # those that do not join are not alone either
        return joins

    def clip(self, side: Side, other: Side, moment: Moment, grace: int) -> None:
        """New rows do not see what retention hides when they come."""
        open_ = self._below(side, np.flatnonzero(side.lo < other.visible), side.lo, moment.clocks)
        if len(open_):
            side.clip(open_, self._clock_before(other.clock, side, open_, moment.clocks) - self.retention + 1)

    def _below(self, side: Side, rows: Ints, times: Ints, clocks: Clocks) -> Ints:
        """Of some new rows those whose time may have been hidden by retention when they came."""
        if not len(rows):
            return rows
        return rows[times[rows] < clocks.above(_positions(side, rows)) - self.retention + 1]

    def _clock_before(self, clock: Clock, side: Side, rows: Ints, clocks: Clocks) -> Ints:
        """The stored clock before new rows of a side."""
        return clocks.stored(clock, _positions(side, rows), side.prior_of(rows))

    def hopeless(self, side: Side, alone: Ints, moment: Moment) -> Flags:
        """Which rows that met nothing are too old to wait."""
        return moment.passed(side, side, alone, side.t[alone] + side.ahead)

    def judge_alone(self, side: Side, moment: Moment, drops: Drops) -> None:
        """All is told by now."""

    def ordered(self, due: Due, keys: Sequence[str]) -> tuple[Ints, pl.Series]:
        """The order of released rows, and their `_sub`, in that order."""
        found = pl.concat([gathered(r.side.parts, keys, r.at) for r in due.parts])
        text = canonical_key(found, [Column(k, t) for k, t in zip(keys, self.types, strict=True)])
        order = release_order(due.step, due.t, due.by_left, text, due.n)
        t, by_left, numbers = (pl.Series(x) for x in (due.t[order], due.by_left[order], np.arange(len(order))))
        return order, released_sub(t, by_left, values_at(text, order), numbers, values_at(due.came, order))


@dataclass(frozen=True, slots=True)
class TwoClocks:
    """`ifs`: what else a left row needs in order to match, and a right one."""

    ifs: tuple[Expr | None, Expr | None] = (None, None)
    agendas: ClassVar[Mapping[bool, Sequence[str]]] = {
        True: ("left waiting", "left lone"),
        False: ("right waiting", "right lone"),
    }
    outlives: ClassVar[bool] = False
    tells_all: ClassVar[bool] = False

    def ends(self, clocks: tuple[Clock, Clock], left: bool) -> Clock:
        return clocks[1] if left else clocks[0]

    def visible(self, side: Side, clocks: Clocks, grace: int) -> int:
        return side.now - side.ahead - grace

    def batch(self, state: State) -> int:
        number = int(state.manifest.get("batches", 0))
        state.manifest["batches"] = number + 1
        return number

    def came(self, side: Side, moment: Moment) -> pl.Series:
        return origins(moment.batch, side.frame, side.left)

    def judge(self, side: Side, moment: Moment, grace: int, drops: Drops) -> Flags:
        joins = meeting(side.frame, side.name, self.ifs[not side.left], drops)
        side.over = np.zeros(len(side.t), dtype=np.bool_)
        old = np.flatnonzero(side.t < side.visible)
        side.over[old] = moment.passed(side, side, old, side.t[old] + side.ahead + grace)
        side.apart, side.late = ~joins, np.flatnonzero(side.over & joins)
        side.matched = np.zeros(len(side.t), dtype=np.bool_)
        return joins

    def clip(self, side: Side, other: Side, moment: Moment, grace: int) -> None:
        """New rows see no more than rows that come in time."""
        behind = np.flatnonzero(side.t < moment.clocks.end(side.clock) - grace)
        if len(behind):
            clock = moment.clocks.at(side.clock, values_at(side.frame[POS], behind), side.prior_of(behind))
            side.clip(behind, clock - grace - side.back)

    def hopeless(self, side: Side, alone: Ints, moment: Moment) -> Flags:
        return side.over[alone]

    def judge_alone(self, side: Side, moment: Moment, drops: Drops) -> None:
        """Rows that meet nothing and do not go out: late are those that their own side's clock has left behind."""
        if side.outer or side.apart is None:
            return
        if side.apart.any():
            drops.append(dropped_rows(side.frame.filter(pl.Series(side.apart)), Reason.NULL_KEY, side.name))
        late = side.late[~side.matched[side.late]]
        if len(late):
            clock = moment.clocks.at(side.clock, values_at(side.frame[POS], late), side.prior_of(late))
            behind = side.t[late] < clock
            if behind.any():
                late, clock = late[behind], clock[behind]
                told = Late(clock, moment.clocks.moved(side.clock, _positions(side, late)))
                drops.append(late_rows(rows_at(side.frame, late), side.name, told))

    def ordered(self, due: Due, keys: Sequence[str]) -> tuple[Ints, pl.Series]:
        order = np.lexsort((due.n, due.t, due.step))
        numbers = pl.Series(numbers_within(due.step[order]))
        return order, released_from(pl.Series(due.t[order]), values_at(due.came, order), numbers)


@dataclass(frozen=True, slots=True)
class WindowedJoin:
    """Times in ms. `deferred`: unmatched rows of an outer side wait; `names`: the plan columns of the join key;
    `clocks`: of the left side, and of the right one."""

    how: How
    before: int
    after: int
    grace: int
    deferred: bool
    names: tuple[str, ...]
    clocks: tuple[Clock, Clock]
    life: OneClock | TwoClocks
    waits_for: ClassVar[str] = "a match"

    @staticmethod
    def of(node: StreamStreamJoin, left: Clock, right: Clock) -> WindowedJoin:
        names, types = (tuple(c.name for c in node.keys), tuple(c.type for c in node.keys))
        life: OneClock | TwoClocks = TwoClocks(node.also_if)
        if node.retention is not None:
            life = OneClock(node.retention, types, node.null_key, node.late)
        deferred = node.pad == "deferred"
        return WindowedJoin(node.how, node.before, node.after, node.grace, deferred, names, (left, right), life)

    @property
    def awaits(self) -> tuple[str, ...]:
        """Parts of the state whose rows go out when a clock comes to their time."""
        outer = [left for left, name in ((True, "left"), (False, "right")) if self.how in (name, "full")]
        return tuple({name: None for left in outer for name in self.life.agendas[left]}) if self.deferred else ()

    def waiting(self, state: State, clocks: Clocks) -> Iterator[Awaited]:
        """Of each clock that ends a wait, the rows that it lets go."""
        for name in self.awaits:
            left = self.how in ("left", "full") and name in self.life.agendas[True]
            clock = self.life.ends(self.clocks, left)
            if (entries := Agenda(state, name).standing()) is not None:
                mine = [(left, entries)]
                if LEFT in entries.columns:
                    mine = [(key, rows) for (key,), rows in entries.group_by(LEFT, maintain_order=True)]
                for is_left, some in mine:
                    held = Arrangement(state, "left" if is_left else "right", self._keys)
                    rows = functools.partial(_kept, held, some)
                    due = some[CLOSE].to_numpy()
                    yield Awaited(leaves(clock), clocks.end(clock), due, rows, slowest=of_slowest(clock))

    @property
    def _keys(self) -> list[str]:
        return [key_column(i) for i in range(max(1, len(self.names)))]

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        moment = Moment(clocks, self.life.batch(state), int(state.manifest.get("arrivals", 0)))
        places = in_arrival_order(*inputs)
        left, right = (self._side(x == 0, inputs[x], places[x], moment, state) for x in (0, 1))
        sides = (left, right)
        agendas = {name: Agenda(state, name) for side in sides for name in self.life.agendas[side.left]}
        due = any(agendas[name].low < side.now for side in sides for name in self.life.agendas[side.left])
        if not due and not any(frame.height for frame in inputs):
            return self._quiet(inputs, sides)
        drops: Drops = []
        for side in sides:
            side.sort(self.life.judge(side, moment, self.grace, drops), self._keys)
        for side, other in (sides, sides[::-1]):
            self.life.clip(side, other, moment, self.grace)
        matches = Matches(*sides, self._keys, moment.base)
        padded, released = self._unmatched(sides, matches, agendas, moment)
        for side in sides:
            self.life.judge_alone(side, moment, drops)
        freed = self._freed(sides, released, clocks) if released else None
        changes = changes_of(matches, padded, freed, self._keys, self.names)
        expired = sum(self._store(side, moment) for side in sides)
        for agenda in agendas.values():
            self._close(agenda)
        state.manifest["arrivals"] = moment.base + sum(frame.height for frame in inputs)
        return Result.of(changes, all_dropped(drops), {"expired": expired} if expired else {})

    def _side(self, left: bool, frame: pl.DataFrame, place: Ints, moment: Moment, state: State) -> Side:
        name, ends = "left" if left else "right", self.life.ends(self.clocks, left)
        side = Side(
            left=left,
            outer=self.how in (name, "full"),
            clock=self.clocks[not left],
            ends=ends,
            now=moment.clocks.end(ends),
            back=self.before if left else self.after,
            ahead=self.after if left else self.before,
            held=Arrangement(state, name, self._keys),
            columns=payload_of(frame),
            frame=frame,
            place=place,
            t=frame[TIME].to_numpy(),
            parts=[frame],
            prior=prior(frame),
        )
        side.visible = self.life.visible(side, moment.clocks, self.grace)
        return side

    def _quiet(self, inputs: Sequence[pl.DataFrame], sides: Both) -> Result:
        """A batch without rows here, in which nothing falls due: what has expired is forgotten."""
        used = [side for side in sides if side.held.runs]
        for side in used:
            self._forget(side)
            side.held.close()
        expired = sum(side.held.expired for side in used)
        nothing = nothing_joined(inputs, self._keys, *self.names)
        return Result(nothing, None, {"expired": expired} if expired else {})

    def _forget(self, side: Side) -> None:
        """What is neither seen any more nor waits has expired."""
        waiting = side.now - side.ahead - self.grace if self._waits(side) else side.visible
        side.held.forget(min(side.visible, waiting))

    def _waits(self, side: Side) -> bool:
        """Do rows of the side wait?"""
        return self.deferred and side.outer

    # ---------------------------------------------------------------- rows without a match

    def _unmatched(
        self, sides: Both, matches: Matches, agendas: Mapping[str, Agenda], moment: Moment
    ) -> tuple[dict[bool, Ints], list[Released]]:
        """Who is padded at once, who is released; the others wait."""
        if self.deferred and any(side.outer for side in sides):
            return self._deferred(sides, matches, agendas, moment)
        if any(side.outer for side in sides) or not self.life.outlives:
            matches.settle()
        return {side.left: alone_of(side) for side in sides}, []

    def _deferred(
        self, sides: Both, matches: Matches, agendas: Mapping[str, Agenda], moment: Moment
    ) -> tuple[dict[bool, Ints], list[Released]]:
        padded, released, gone = {True: NONE, False: NONE}, list[Released](), [NONE]
        entries: dict[str, list[pl.DataFrame]] = {name: [] for name in agendas}
        met = {side.left: np.zeros(len(side.t), dtype=np.bool_) for side in sides}
        for left, right, pairs, _ in matches:
            for side, other in ((left, right), (right, left)):
                if side.outer:
                    n, taken_back = self._met((side, other), pairs, met[side.left], moment)
                    gone.append(n)
                    entries[self.life.agendas[side.left][0]] += taken_back
        for side in sides:
            if side.outer:
                side.came = self.life.came(side, moment)
                alone = alone_of(side)
                hopeless = self.life.hopeless(side, alone, moment)
                padded[side.left] = alone[hopeless]
                waiting = alone[~hopeless & ~met[side.left][alone]]
                released += self._parked(side, waiting, entries, moment)
        for name, agenda in agendas.items():
            mine = [side for side in sides if side.outer and name in self.life.agendas[side.left]]
            released += _due(mine, agenda, np.concatenate(gone)) if mine else []
            if entries[name]:
                agenda.append(pl.concat(entries[name]))
        return padded, released

    def _met(self, sides: Both, pairs: Pairs, met: Flags, moment: Moment) -> tuple[Ints, list[pl.DataFrame]]:
        """Notes which new rows of the first side waited when a later row met them. Of stored ones that did: their
        arrival numbers, and the entries that take them back."""
        side, other = sides
        new, found = len(side.t), side.parts[-1]  # the stored rows that were met are the last part so far
        mine, theirs = (pairs.left, pairs.right) if side.left else (pairs.right, pairs.left)
        waits = ~side.matched if len(side.parts) == 1 else np.append(~side.matched, found[WAITS].to_numpy())
        at = np.flatnonzero(pairs.by_left != side.left)
        at = at[waits[mine[at]]]
        if self.life.outlives:
            at = at[~moment.passed(side, other, theirs[at], pairs.stored_t[at] + side.ahead + self.grace)]
        stored = mine[at] >= new
        met[mine[at[~stored]]] = True
        at = at[stored]
        n, first = np.unique(pairs.stored_n[at], return_index=True)
        t, row = pairs.stored_t[at[first]], mine[at[first]] - new
        back = t + side.ahead + self.grace >= side.now
        return n, [self._entries(side, t[back], n[back], hashes_of(found)[row[back]], -1)] if back.any() else []

    def _parked(
        self, side: Side, waiting: Ints, entries: Mapping[str, list[pl.DataFrame]], moment: Moment
    ) -> list[Released]:
        """Notes which new rows wait on, in which agenda; gives the others, whose wait is over by now."""
        t, n, names = side.t[waiting], moment.base + side.place[waiting], self.life.agendas[side.left]
        close = t + side.ahead + self.grace
        due, apart = close < side.now, np.zeros(len(waiting), np.bool_) if side.apart is None else side.apart[waiting]
        still, whole = ~due & ~apart, np.flatnonzero(~due & apart)
        side.still = waiting[still]
        if len(side.still):
            entries[names[0]].append(self._entries(side, t[still], n[still], hashes_of(side.frame)[side.still]))
        if len(whole):
            entries[names[1]].append(_whole(side, waiting[whole], close[whole], n[whole]))
        if not due.any():
            return []
        return [Released(side, waiting[due], close[due], t[due], n[due], values_at(side.came, waiting[due]))]

    def _entries(self, side: Side, t: Ints, n: Ints, h: Hashes, diff: int = 1) -> pl.DataFrame:
        """Agenda entries of rows that are stored."""
        shared = {LEFT: np.full(len(n), side.left)} if self.life.agendas[True] == self.life.agendas[False] else {}
        signs = np.full(len(n), diff, dtype=np.int8)
        return pl.DataFrame({CLOSE: t + side.ahead + self.grace, ARRIVAL: n, DIFF: signs} | shared | {HASH: h, TIME: t})

    # ---------------------------------------------------------------- what goes out, what stays

    def _freed(self, sides: Both, released: Sequence[Released], clocks: Clocks) -> Freed:
        """Released rows in their order."""
        due = Due.of(released, clocks)
        order, sub = self.life.ordered(due, self._keys)
        at, by_left, step = np.concatenate([r.at for r in released])[order], due.by_left[order], due.step[order]
        first = np.flatnonzero(begins(step))  # rows of one step share its position
        size = np.diff(np.append(first, len(step)))
        place = np.repeat(places_of_releases(sides, clocks.places(step[first])), size)
        out = Out(np.where(by_left, at, MISSING), np.where(by_left, MISSING, at), by_left, place)
        return Freed(out, clocks.places(step), sub)

    def _store(self, side: Side, moment: Moment) -> int:
        """Adds the new rows that can still be seen or that wait; gives how many have expired."""
        keep = side.t >= side.visible
        keep[side.still] = True
        at = side.order[keep[side.order]]
        expired = len(side.order) - len(at) - int((~keep[side.late]).sum())
        self._forget(side)
        if len(at):
            names = [c for c in side.frame.columns if c not in (POS, SUB, DIFF, HEADERS)]
            made = [pl.Series(ARRIVAL, moment.base + side.place[at])]
            if self._waits(side):
                if HEADERS in side.frame.columns:
                    names.append(HEADERS)  # a released row goes out with its own
                waits = np.zeros(len(keep), dtype=np.bool_)
                waits[side.still] = True
                made += [pl.Series(WAITS, waits[at]), values_at(side.came, at).alias(CAME)]
            side.held.append(rows_at(columns_of(side.frame, names), at).hstack(made), ordered=True)
        self._close(side.held)
        return expired + side.held.expired

    def _close(self, held: Arrangement | Agenda) -> None:
        if self.life.tells_all or held.runs or held.name in held.state.manifest:
            held.close()


def _positions(side: Side, rows: Ints) -> pl.Series:
    positions = side.frame[POS]
    return positions if len(rows) == len(positions) else values_at(positions, rows)


def _kept(held: Arrangement, entries: pl.DataFrame) -> pl.DataFrame:
    """The rows of agenda entries, as they are kept."""
    if CAME in entries.columns:
        return entries
    h, t, n = (entries[c].to_numpy() for c in (HASH, TIME, ARRIVAL))
    found = held.fetch(h, t, n)
    assert found.rows is not None
    return rows_at(found.rows, np.argsort(found.looking))


def _whole(side: Side, at: Ints, close: Ints, n: Ints) -> pl.DataFrame:
    """Agenda entries that hold the rows themselves: nobody looks them up."""
    rows = with_headers(rows_at(side.frame, at))
    made = [pl.Series(CLOSE, close), pl.Series(ARRIVAL, n), values_at(side.came, at).alias(CAME)]
    return rows.drop(POS, SUB, HEADERS).hstack([*made, rows[HEADERS]])


def _due(sides: Sequence[Side], agenda: Agenda, gone: Ints) -> list[Released]:
    """The rows of an agenda whose wait is over, but for those that have met. `sides`: those that wait in it."""
    due = agenda.prefix(sides[0].now)
    if due is None or not due.height:
        return []
    waits = ~np.isin(due[ARRIVAL].to_numpy(), gone)
    mine = [waits & (due[LEFT].to_numpy() == s.left) if LEFT in due.columns else waits for s in sides]
    return [_fetched(s, rows_at(due, np.flatnonzero(own))) for s, own in zip(sides, mine, strict=True) if own.any()]


def _fetched(side: Side, due: pl.DataFrame) -> Released:
    """The rows of agenda entries: stored ones, or those that stand in the entries."""
    h, t, n, close = (due[c].to_numpy() for c in (HASH, TIME, ARRIVAL, CLOSE))
    if CAME in due.columns:
        return Released(side, side.add(Found(np.arange(len(n)), due)), close, t, n, due[CAME])
    found = side.held.fetch(h, t, n)
    if found.rows is None or len(found.looking) != len(n):
        raise AssertionError(f"of {len(n)} rows that wait {len(found.looking)} are in the state")
    at = found.looking
    return Released(side, side.add(found), close[at], t[at], n[at], found.rows[CAME])
