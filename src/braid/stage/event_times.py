"""How far each source of a query has come: the event time of its partitions, its clock, what is not read.

In: a plan, the state behind a batch, where the batch ends, where the partitions end now. Out: `SourceTimes`, a source.
Rule: figures of the state and of offsets only, so they are those of a stopped query, too. Times are ms since 1970; of a
source whose watermark is a number they are that (`moments`). What nobody has shown or looked up is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from braid.errors import BraidError
from braid.lower.physical import Leaf, Plan
from braid.operators.changes import NEVER
from braid.operators.clocks import CLOCK, FOREVER
from braid.stage.call_order import Ranks
from braid.types import WHOLE_NUMBERS


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """`event_time`: the highest that it has shown; `idle`: it does not hold the clock; `next`: the first offset that is
    not read; `lag`: how many records are there and not read."""

    partition: int
    event_time: int | None
    idle: bool
    next: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class SourceTimes:
    """A reading of a source, by the number of its leaf. `clock`: None where it has not begun, or nobody needs one;
    `ended`: nothing follows, so that it is above all times."""

    leaf: int
    source: str
    topic: str
    moments: bool
    clock: int | None
    ended: bool
    partitions: Sequence[PartitionTimes]

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(told: Mapping[str, Any], read: Mapping[str, int], ends: Mapping[str, int]) -> SourceTimes:
        """As a document has them, with the lag of now where that is known."""
        partitions = []
        for x in told["partitions"]:
            place = f"{told['leaf']}/{x['partition']}"
            known = place in ends and place in read
            lag = max(0, ends[place] - read[place]) if known else x["lag"]
            partitions.append(PartitionTimes(x["partition"], x["event_time"], x["idle"], x["next"], lag))
        named = told["leaf"], told["source"], told["topic"], told["moments"]
        return SourceTimes(*named, told["clock"], told["ended"], partitions)


@dataclass(frozen=True, slots=True)
class Come:
    """How far partitions are read, by place. `read`: the first offset that is not; `ends`: behind the last that is
    there, where that is known; `shown`: the highest time of each partition of a topic, where no clock needs it."""

    read: Mapping[str, int]
    ends: Mapping[str, int]
    shown: Mapping[tuple[str, int], int]


def event_times(plan: Plan, ranks: Ranks, documents: Iterable[Mapping[str, Any]], come: Come) -> list[SourceTimes]:
    """`documents`: of all buckets."""
    kept = _Kept()
    for one in {id(x["clocks"]): x["clocks"] for x in documents if "clocks" in x}.values():
        kept.add(one)
    return [_of_leaf(x, ranks, kept, come) for x in plan.leaves]


class _Kept:
    """What the buckets' clocks say together: one that had no rows may be behind."""

    def __init__(self) -> None:
        self.high: dict[tuple[int, int], int] = {}  # by leaf and rank
        self.now: dict[int, int] = {}
        self.idle: set[tuple[int, int]] = set()

    def add(self, clocks: Mapping[str, Any]) -> None:
        for kind, leaf, rank, value in clocks.get("high", ()):
            if kind == CLOCK:
                self.high[leaf, rank] = max(value, self.high.get((leaf, rank), NEVER))
        for kind, leaf, value in clocks.get("now", ()):
            if kind == CLOCK:
                self.now[leaf] = max(value, self.now.get(leaf, NEVER))
        self.idle |= {(leaf, rank) for kind, leaf, rank in clocks.get("idle", ()) if kind == CLOCK}


def _of_leaf(leaf: Leaf, ranks: Ranks, kept: _Kept, come: Come) -> SourceTimes:
    watermark, topic = leaf.source.watermark, leaf.source.topic
    moments = watermark is None or watermark.type not in WHOLE_NUMBERS
    ticks = 1 if watermark is None or not moments else 1000
    mine = (place.partition("/") for place in come.read)
    partitions = []
    for p in sorted(int(p) for n, _, p in mine if n == str(leaf.number)):
        place = f"{leaf.number}/{p}"
        known = leaf.number, _rank(ranks, place)
        at = _time(kept.high.get(known, NEVER), ticks)
        at = come.shown.get((topic, p)) if at is None else at
        lag = max(0, come.ends[place] - come.read[place]) if place in come.ends else None
        partitions.append(PartitionTimes(p, at, known in kept.idle, come.read[place], lag))
    now = kept.now.get(leaf.number, NEVER)
    name, ended = leaf.source.name, now >= FOREVER
    return SourceTimes(leaf.number, name, topic, moments, _time(now, ticks), ended, partitions)


def _rank(ranks: Ranks, place: str) -> int:
    try:
        return ranks[place]
    except BraidError:  # of a partition that was added since, where none may be
        return -1


def _time(value: int, ticks: int) -> int | None:
    return None if value <= NEVER or value >= FOREVER else value // ticks
