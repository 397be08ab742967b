"""Trials: the definitions, asked about a slice in which one thing is another.

In: a query, the events of a slice, the records that are sought rows of. Out: whether a change gives one; the smallest
number that does.
Rule: nothing is given unless it was tried, and with one unit less it is not given. All of it ends at a time of the
processor (of others it may have little); then that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import process_time

from braid.expr.nodes import Col, Expr
from braid.plan import epochs, logical
from braid.plan.bands import Shifted
from braid.plan.drop_reasons import Reason
from braid.reference import Clocked, Event, Fact, Record, Reference
from braid.reference.rows import Row, What, evaluated
from braid.reference.steps import ticks
from braid.types import TIMESTAMPS
from braid.why.causes import AT_ONCE, in_turn, thinned
from braid.why.knobs import Changed, Knob
from braid.why.reading import Place

FEW = 5_000  # events; of more, steps of clocks are left out while a number is looked for
FEW_RECORDS = 500  # of more, only those that are sought say by how much they are late
LAST: Place = (2**62, 0)
GAVE: tuple[What, ...] = ("gave",)
DROPPED: tuple[What, ...] = ("dropped",)
LEFT_OUT: tuple[What, ...] = ("filtered", "failed", "alone", "padded")
SIZES = 60  # of windows that are tried in turn
OFTEN = 256  # events between two looks at the time


class OutOfTimeError(Exception):
    """Not all was tried."""


@dataclass(frozen=True, slots=True)
class Trial:
    """`records`: others in the place of those that were; `first`: a record that comes right before another one."""

    changed: Changed
    records: Mapping[Place, Record] = field(default_factory=dict)
    first: tuple[Place, Place] | None = None

    def over(self, events: Sequence[Event]) -> Iterator[Event]:
        """The events, as they are then."""
        some = self._reordered(events) if self.first is not None else events
        for e in some:
            if isinstance(e, Clocked) and e.time is not None and e.leaf in self.changed.clocks:
                yield replace(e, time=e.time + self.changed.clocks[e.leaf])
            elif isinstance(e, Record):
                yield self.records.get(e.place, e)
            else:
                yield e

    def _reordered(self, events: Sequence[Event]) -> Iterator[Event]:
        """A record before another one, or before its epoch, and no more where it was."""
        assert self.first is not None
        mine, other = self.first
        record = next(e for e in events if e.place == mine)
        in_turn_of = epochs.in_epochs(self.changed.query.root)
        placed = replace(record, place=(other[0] - 1, other[1])) if in_turn_of else record
        done = False
        for e in events:
            if not done and (e.place == other or (in_turn_of and e.place[0] >= other[0])):
                yield placed
                done = True
            if e.place != mine:
                yield e


class Trials:
    """`sought`: the places of records; a row of one is what it has not without a change, or (`alone`) one that has a
    record of another source, too, than its rows have had."""

    def __init__(
        self, query: logical.Query, events: Sequence[Event], sought: Iterable[Place], alone: bool, until: float
    ) -> None:
        self.query, self.until, self._events = query, until, events
        self.records = {e.place: e for e in events if isinstance(e, Record)}
        self.sought, self.alone, self.unsure = frozenset(sought), alone, False
        self._some = events if len(events) <= FEW else thinned(events, LAST)
        self._known: dict[tuple[int, int], frozenset[Place]] = {}
        self._has: Mapping[Place, set[int]] = {}
        self._has = self._sources_of(Trial(Changed(query)), self.sought, self._some)
        self.late = frozenset(self._late())
        self.shown = [*self._shown()]

    def knob(self, knob: Knob, place: Place, value: int) -> bool:
        """Whether a record has a row with this number. (All that are sought are asked at once.)"""
        known = (id(knob), value)
        if known not in self._known:
            self._known[known] = self._found(Trial(knob.put(value)), self.sought, self._some)
        return place in self._known[known]

    def gives(self, place: Place, trial: Trial) -> bool:
        """Whether a record has a row then."""
        return bool(self._found(trial, frozenset({place}), self._some))

    def holds(self, place: Place, made: Trial, less: Trial | None) -> bool:
        """Whether that is so with each step of the clocks, and is not with a unit less. If not, what was looked for
        without them is not known (`unsure`)."""
        if self._some is self._events:
            return True
        mine = frozenset({place})
        good = bool(self._found(made, mine, self._events))
        good = good and (less is None or not self._found(less, mine, self._events))
        self.unsure |= not good
        return good

    def _found(self, trial: Trial, sought: frozenset[Place], events: Sequence[Event]) -> frozenset[Place]:
        """Those that have a row that they have not without a change."""
        has = self._sources_of(trial, sought, events)
        return frozenset(p for p in sought if has[p] - self._has[p])

    def _sources_of(self, trial: Trial, sought: frozenset[Place], events: Sequence[Event]) -> Mapping[Place, set[int]]:
        """The sources of the rows that a record has, among them its own."""
        has: dict[Place, set[int]] = {p: set() for p in sought}
        moved: dict[Place, Place] = (
            {} if trial.first is None else {(trial.first[1][0] - 1, trial.first[1][1]): trial.first[0]}
        )
        asked: set[Place] = {*(self.records if self.alone else sought), *moved}
        left = set(sought) if self._has else set()  # of which nothing was found yet; the first run goes to the end

        def hear(fact: Fact) -> None:
            if fact.detail["written"].values is None:
                return
            origin: frozenset[Place] = fact.origin
            made_of = {moved.get(p, p) for p in origin}
            leaves = {self.records[p].leaf for p in made_of}
            for p in made_of & sought:
                has[p] |= leaves
                if p in left and has[p] - self._has[p]:
                    left.discard(p)

        reference = Reference(trial.changed.query)
        reference.listen(hear, asked, only=GAVE)
        for _ in in_turn(reference, self._timed(trial.over(events)), AT_ONCE):
            if self._has and not left:
                break
        return has

    def _shown(self) -> Iterator[int]:
        """The first and the last times of clocks (ms)."""
        counted = {n: s.watermark is not None and s.watermark.type in TIMESTAMPS
                 for n, s in enumerate(logical.sources(self.query.root))}  # fmt: skip
        every = [e.time // (1000 if counted[e.leaf] else 1) for e in self._some if isinstance(e, Clocked) and e.time]
        yield from (min(every), max(every)) if every else ()

    def facts(
        self, query: logical.Query, places: Collection[Place]
    ) -> tuple[Sequence[Fact], Mapping[int, logical.Node]]:
        """What the steps of a query, in whatever form, say of records that have no row."""
        found, reference = list[Fact](), Reference(query)
        reference.listen(found.append, places, only=LEFT_OUT)
        for _ in in_turn(reference, self._timed(self._some), AT_ONCE):
            pass
        return found, reference.nodes

    def _late(self) -> Iterator[int]:
        """By how much records of the slice came late (ms)."""
        found, sources = list[Fact](), [*logical.sources(self.query.root)]
        judged = {x.bound.alias: x.value for x in self.query.root.walk() if isinstance(x, epochs.OnTime)}
        reference = Reference(self.query)
        asked = self.records if len(self.records) <= FEW_RECORDS else self.sought
        reference.listen(found.append, asked, only=DROPPED)
        for _ in in_turn(reference, self._timed(self._some), AT_ONCE):
            pass
        for f in (f for f in found if f.detail["reason"] == Reason.LATE):
            own, each = f.row.time, 1
            mark = sources[f.step].watermark if f.step < len(sources) else None
            if mark is not None:
                value = judged.get(sources[f.step].alias, Shifted.of(mark).base)
                at = f.row.values.get(value.name) if isinstance(value, Col) else _value(value, f.row)
                tick = ticks(at)
                own, each = (f.row.time if tick is None else tick), 1000 if mark.type in TIMESTAMPS else 1
            clock, limit = f.detail.get("clock"), f.detail.get("limit")
            for bound, mine in ((limit, own), (clock, own), (clock, f.detail.get("closed"))):
                if bound is not None and mine is not None and abs(bound - mine) < 2**60:
                    yield from (-(-int(bound - mine) // each), int(bound - mine) // each + 1)

    def _timed(self, events: Iterable[Event]) -> Iterator[Event]:
        for i, e in enumerate(events):
            if not i % OFTEN and process_time() > self.until:
                raise OutOfTimeError
            yield e


def _value(e: Expr, row: Row) -> object:
    return evaluated([("x", e)], [row.values])[0]["x"][0]


# ------------------------------------------------------------------- the smallest number


def smallest(
    knob: Knob, gives: Callable[[int], bool], near: Iterable[int], hints: Iterable[int], reach: int
) -> int | None:
    """The smallest number beyond a knob's that gives a row; one unit less does not."""
    if knob.step:
        sizes = range(knob.value + knob.step, knob.value + knob.step * (SIZES + 1), knob.step)
        return next((v for v in sizes if gives(v)), None)
    sign = -1 if knob.falls else 1
    reach = min(reach, knob.value - knob.least) if knob.falls else reach
    found = least(lambda more: gives(knob.value + sign * more), near, hints, reach)
    return None if found is None else knob.value + sign * found


def least(gives: Callable[[int], bool], near: Iterable[int], hints: Iterable[int], reach: int) -> int | None:
    """The least number above 0 for which `gives` is true, and is not for one less. `near`: what it probably is, tried
    first: what waits for a clock may be given by these alone; `reach`: nothing beyond it is tried; `hints`: what it may
    be, if that gives a row."""
    low = 0
    for high in sorted({x for x in near if 0 < x <= reach}):
        if gives(high):
            return boundary(low, high, gives)
        low = high
    if reach <= low or not gives(reach):
        return None
    for high in sorted({x for x in hints if low < x < reach}):
        if gives(high):
            return boundary(low, high, gives)
        low = high
    return boundary(low, reach, gives)


def boundary(low: int, high: int, gives: Callable[[int], bool]) -> int:
    """Between one that gives nothing and one that does."""
    if high - low > 1 and not gives(high - 1):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if gives(middle):
            high = middle
        else:
            low = middle
    return high
