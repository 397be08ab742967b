"""Causes: of a row of the result, the records that it was made of.

In: a query, the events of a slice. Out: its rows; of one of them the records that, judged alone, give it.
Rule: the definitions name the records of a row (`Row.origin`), and then they judge these alone, with the clocks that
all records move: what they name is taken at its word only if that gives the row, at its place. If it does not, those
are added that the named ones have met, then all; and whatever the row does not need is left out again. What is in a
group, or in the frame of a call, is named although one of it may change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice

from braid.plan import epochs, groups, logical
from braid.plan.analytic import Analytic
from braid.plan.over import Over
from braid.reference import Clocked, Event, Fact, OutRecord, Record, Reference, Steps
from braid.reference.rows import NOBODY, Origin, Place
from braid.why.reading import Events

MOST = 400  # records of which the ones that a row needs are looked for
AT_ONCE = 1000  # events
RUNS = 300  # of the definitions, for one row

Named = frozenset[Place]


def in_turn(reference: Reference, events: Iterable[Event], at_once: int = 1) -> Iterator[OutRecord]:
    """What the definitions give, event by event, or epoch by epoch. `at_once`: so many events, where these do not
    depend on what was given before."""
    if epochs.in_epochs(reference.query.root):
        yield from reference.process(())  # a row that is there before any record
        for _, epoch in groupby(events, key=lambda e: e.place[0]):
            yield from reference.process(epoch)
    else:
        for steps, some in _blocks(events, at_once):
            if steps is None or not reference.pass_by(steps):
                yield from reference.process(some)


def _blocks(events: Iterable[Event], most: int) -> Iterator[tuple[Steps | None, Iterable[Event]]]:
    """Events in order, in pieces of at most so many; of steps of clocks that follow each other what they come to."""
    if isinstance(events, Events) and most > 1:
        yield from events.blocks(most)
        return
    left = iter(events)
    while some := [*islice(left, most)]:
        yield None, some


@dataclass(frozen=True, slots=True)
class Derived:
    """A row, and the records that give it. `sure`: these alone do, and none can be left out (`groups`: but for what is
    in a group). `facts`: what the definitions say of these."""

    row: OutRecord
    named: Named
    sure: bool
    facts: Sequence[Fact]
    reference: Reference


class Causes:
    """The rows of a slice, in order, and which records are in each."""

    def __init__(self, query: logical.Query, events: Sequence[Event]) -> None:
        self.query, self._events = query, events
        mine = events.records.values() if isinstance(events, Events) else events
        self._records = {e.place: e for e in mine if isinstance(e, Record)}
        self._origins: dict[int, Origin] = {}
        self._met: dict[Place, set[Place]] = {}
        self._together = any(isinstance(x, groups.Aggregate | Over | Analytic) for x in query.root.walk())
        reference = Reference(query)
        reference.listen(self._hear, self._records, only=("gave", "met"))
        self.rows = [*in_turn(reference, events, AT_ONCE)]

    def _hear(self, fact: Fact) -> None:
        if fact.what == "gave":
            self._origins[id(fact.detail["written"])] = fact.origin
        elif fact.what == "met" and (other := fact.detail.get("other")) is not None:
            for place in fact.origin:
                self._met.setdefault(place, set()).update(other.origin)

    def of(self, number: int) -> Derived:
        """Of the row of this number."""
        row = self.rows[number]
        try_out = _Alone(self.query, thinned(self._events, row.place), row)
        named = self._origins.get(id(row), NOBODY)
        sure = try_out.gives(named)
        if not sure:
            before = frozenset(p for p in self._records if p <= row.place or p[0] <= row.place[0])
            now = frozenset(p for p in before if p[0] == row.place[0])
            met = named.union(now, *(self._met.get(p, ()) for p in named | now))
            for more in (met & before, before):
                if len(more) <= MOST and try_out.gives(more):
                    named, sure = self._least(more, self._kept(named), try_out.gives), True
                    break
        else:
            named = self._least(named, self._kept(named), try_out.gives)
        facts, reference = try_out.told(named)
        return Derived(row, named, sure, facts, reference)

    def _kept(self, named: Named) -> Named:
        """Those of which none is left out: they are in a group."""
        return named if self._together or len(named) > MOST else NOBODY

    def _least(self, named: Named, kept: Named, gives: Callable[[Named], bool]) -> Named:
        """The records without those that the row does not need: halves are left out, then halves of these."""
        size = max(len(named) // 2, 1)
        while True:
            before, rest = named, sorted(named - kept, reverse=True)
            for some in (rest[i : i + size] for i in range(0, len(rest), size)):
                if gives(named.difference(some)):
                    named = named.difference(some)
            if size == 1 and named == before:
                return named
            size = max(size // 2, 1)


def _same(a: OutRecord, b: OutRecord) -> bool:
    """Whether two rows are one: the same at the same place."""
    return a.place == b.place and repr(a) == repr(b)


@dataclass(slots=True)
class _Alone:
    """Some records of a slice, judged without the others."""

    query: logical.Query
    events: Sequence[Event]
    row: OutRecord
    runs: int = 0
    known: dict[Named, bool] = field(default_factory=dict)

    def gives(self, named: Named) -> bool:
        """Whether they give the row at its place."""
        if named not in self.known:
            if self.runs >= RUNS:
                return False
            self.runs += 1
            reference = Reference(self.query)
            self.known[named] = any(_same(x, self.row) for x in in_turn(reference, self._of(reference, named)))
        return self.known[named]

    def told(self, named: Named) -> tuple[Sequence[Fact], Reference]:
        """What the definitions say of them."""
        reference, facts = Reference(self.query), list[Fact]()
        reference.listen(facts.append, named)
        for _ in in_turn(reference, self._of(reference, named)):
            pass
        return facts, reference

    def _of(self, reference: Reference, named: Named) -> Iterator[Event]:
        for e in self.events:
            yield e if not isinstance(e, Record) or e.place in named else reference.clocked(e)


def thinned(events: Sequence[Event], upto: Place) -> Sequence[Event]:
    """The events up to a place. Of steps of the clocks between two others only the last of each partition counts,
    but for its first, and for those at the place itself: while the same partitions are live a clock only rises."""
    made, pending = list[Event](), dict[tuple[int, int], Clocked]()
    live = set[tuple[int, int]]()
    for e in events:
        if e.place[0] > upto[0]:
            break
        where = (e.leaf, e.partition) if isinstance(e, Clocked) else None
        if isinstance(e, Clocked) and where in live and e.place[0] != upto[0]:
            pending[where] = _later(pending.pop(where, None), e)
            continue
        made += pending.values()
        pending.clear()
        made.append(e)
        if isinstance(e, Clocked | Record):
            live.add((e.leaf, e.partition))
        else:
            live.clear()
    return [*made, *pending.values()]


def _later(before: Clocked | None, e: Clocked) -> Clocked:
    if before is None:
        return e
    time, stored = _higher(before.time, e.time), _higher(before.stored, e.stored)
    return replace(e, time=time, stored=stored)


def _higher(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
