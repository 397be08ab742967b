"""What the test driver asks of a runtime; topics in this process's memory, and queries on them in the local runtime.

In: topics, records and marks with their place in the order of calls, queries. Out: what the queries wrote, with places.
Rule: every runtime gives the same records in the same order. Offsets count from 0 in each partition; nothing is ever
removed but whole topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import polars as pl

from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.operators.changes import POS
from braid.operators.ranges import Hashes
from braid.plan.logical import Query, Source, in_topological_order
from braid.stage.call_order import (
    BATCH_BITS,
    Moment,
    Placed,
    Reading,
    begun,
    bounds_of,
    chunks,
    cut,
    place_of,
    since_of,
    standing,
    topic_ranks,
)
from braid.stage.drops import located
from braid.stage.local import LocalQuery
from braid.stage.materialized import key_of, named


class Backend(Protocol):
    """A runtime under the test driver."""

    def create_topic(self, name: str, partitions: int) -> None: ...

    def partitions(self, topic: str) -> int | None:
        """The number of partitions of a topic, None if there is none."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def append(self, topic: str, records: Sequence[Placed]) -> None:
        """Adds records (their offsets are given here; the field `offset` is not read)."""
        ...

    def mark(self, topic: str, moment: Moment) -> None: ...

    def start(self, query: Query, number: int) -> None:
        """Starts a query; `number`: of the call that does, the last one so far."""
        ...

    def started(self, query: str) -> Started | None:
        """A query that runs, or is paused."""
        ...

    def upgrade(self, query: Query) -> None:
        """The query takes the place of the one of its name, and goes on from there."""
        ...

    def stop(self, query: str) -> None: ...

    def pause(self, query: str) -> None:
        """The query processes nothing until `resume`."""
        ...

    def resume(self, query: str) -> None: ...

    def pump(self) -> None:
        """Processes all that has been appended and marked."""
        ...

    def records(self, topic: str, start: int) -> list[Placed]:
        """The topic's records from the `start`-th on, in the order in which they came (see `Placed`)."""
        ...

    def drops(self, query: str) -> list[dict[str, Any]]: ...

    def standing(self, query: str, source: Source, h: Hashes | None) -> pl.DataFrame | None:
        """The rows of a query's result that stand, by the names of who reads them; `h`: those of keys with these
        hashes, at least. None: the query does not run, or keeps none."""
        ...

    def state(self, query: str) -> list[dict[str, Any]]:
        """Manifests of the query's state, for EXPLAIN --state."""
        ...

    def restart(self) -> None: ...

    def close(self) -> None: ...


# ---------------------------------------------------------------- queries in turn


@dataclass(slots=True)
class Started:
    """A query, its place in the chain of statements (`hops`), and the number it starts at."""

    query: Query
    plan: Plan
    hops: int
    since: int
    paused: bool = field(default=False, kw_only=True)

    @property
    def reads(self) -> set[str]:
        return {leaf.source.topic for leaf in self.plan.leaves}


T = TypeVar("T")
S = TypeVar("S", bound=Started)


def placed_query(query: Query, number: int, others: Iterable[Started]) -> tuple[Query, Plan, int, int]:
    """The fields of `Started` for a query that starts at a number, behind the others whose results it reads."""
    plan = lower(query)
    read = {leaf.source.topic for leaf in plan.leaves}
    return query, plan, 1 + max((x.hops for x in others if x.query.sink.topic in read), default=0), number


def in_turn(queries: Iterable[S]) -> list[S]:
    """Those that are not paused."""
    going = [s for s in queries if not s.paused]
    return in_topological_order(going, lambda s: s.reads, lambda s: s.query.sink.topic)


# ------------------------------------------------------------------- in memory


@dataclass(slots=True)
class Topic:
    partitions: int
    records: list[Placed] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def append(self, record: Placed) -> None:
        self.ends = self.ends or [0] * self.partitions
        self.records.append(replace(record, offset=self.ends[record.partition]))
        self.ends[record.partition] += 1


class InMemory(Generic[S]):
    """Topics, and queries in turn: a `Backend` but for what a query makes of them."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.queries: dict[str, S] = {}

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics.setdefault(name, Topic(partitions))

    def partitions(self, topic: str) -> int | None:
        return self.topics[topic].partitions if topic in self.topics else None

    def delete_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def append(self, topic: str, records: Sequence[Placed]) -> None:
        for record in records:
            self.topics[topic].append(record)

    def mark(self, topic: str, moment: Moment) -> None:
        self.topics[topic].moments.append(moment)

    def records(self, topic: str, start: int) -> list[Placed]:
        return self.topics[topic].records[start:]

    def started(self, query: str) -> S | None:
        return self.queries.get(query)

    def stop(self, query: str) -> None:
        self.queries.pop(query, None)

    def pause(self, query: str) -> None:
        self.queries[query].paused = True

    def resume(self, query: str) -> None:
        self.queries[query].paused = False

    def pump(self) -> None:
        for query in in_turn(self.queries.values()):
            self.advance(query)

    def advance(self, query: S) -> None:
        """Processes what is new in the topics that a query reads."""
        raise NotImplementedError

    def close(self) -> None:
        self.topics.clear()
        self.queries.clear()


# ----------------------------------------------------------- the local runtime


@dataclass(slots=True)
class Running(Started):
    """What it has read of each leaf's topic (records, moments), and what it dropped."""

    local: LocalQuery
    read: dict[int, tuple[int, int]] = field(default_factory=dict)
    drops: list[dict[str, Any]] = field(default_factory=list)


class LocalBackend(InMemory[Running]):
    def __init__(self, batch: int | None, buckets: int | None) -> None:
        super().__init__()
        self.batch, self.buckets = batch, buckets or 4

    def start(self, query: Query, number: int) -> None:
        place = placed_query(query, number, self.queries.values())
        partitions = self.topics[query.sink.topic].partitions
        buckets = -(-self.buckets // partitions) * partitions
        self.queries[query.name] = Running(*place, LocalQuery(place[1], partitions, buckets))

    def upgrade(self, query: Query) -> None:
        running = self.queries[query.name]
        plan = lower(query).in_place_of(running.plan)
        running.query, running.plan, running.local = query, plan, running.local.upgraded(plan)

    def advance(self, running: Running) -> None:
        readings = []
        for leaf in running.plan.leaves:
            topic, (records, moments) = self.topics[leaf.source.topic], running.read.get(leaf.number, (0, 0))
            begins = begun(topic.records[records:], leaf, running.since)
            new = standing(begins, leaf, since_of(running.plan, leaf, running.since))
            readings.append(Reading(leaf.number, new, topic.moments[moments:], topic.partitions))
            running.read[leaf.number] = (len(topic.records), len(topic.moments))
        unasked = running.local.batch == 0 and bool(running.plan.first_rows)
        if not unasked and not any(r.records or r.moments for r in readings):
            return
        for batch in [*cut(running.plan, readings, self.batch)] or [readings]:  # of the first row alone
            number = running.local.batch
            outputs = running.local.run(chunks(running.plan, batch))
            self._write(running, outputs.records, number)
            running.drops += located(outputs.dropped, running.plan, self._found(running))

    def _write(self, running: Running, records: pl.DataFrame, batch: int) -> None:
        topic = self.topics[running.query.sink.topic]
        columns = ("partition", "key", "value", "timestamp", "headers", "window")
        for i, (pos, *rest) in enumerate(records.select(POS, *columns).iter_rows()):
            seq, _, _, _ = place_of(pos)
            partition, key, value, timestamp, headers, window = rest
            n = (batch << BATCH_BITS) + i
            placed = Placed(seq, running.hops, n, partition, 0, key, value, timestamp, headers, bounds_of(window))
            topic.append(placed)

    def _found(self, running: Running) -> Any:
        """Finds a record by its explicit position: (topic, partition, offset)."""
        names = {rank: running.plan.leaves[leaf].source.topic for leaf, rank in topic_ranks(running.plan).items()}

        def find(position: int) -> tuple[str | None, int | None, int | None]:
            seq, hops, rank, n = place_of(position)
            for r in self.topics[names[rank]].records if rank in names else ():
                if (r.seq, r.hops, r.n) == (seq, hops, n):
                    return names[rank], r.partition, r.offset
            return names.get(rank), None, None

        return find

    def drops(self, query: str) -> list[dict[str, Any]]:
        return self.queries[query].drops

    def standing(self, query: str, source: Source, h: Hashes | None) -> pl.DataFrame | None:
        running = self.queries.get(query)
        return None if running is None else named(source, running.local.standing(key_of(source)).rows(h))

    def state(self, query: str) -> list[dict[str, Any]]:
        return self.queries[query].local.state_size()

    def restart(self) -> None:
        for running in self.queries.values():
            running.local.restore(running.local.snapshot())
