"""The test driver's backend without a JVM: topics in memory, queries in the local runtime.

In, out, rule: see `backend.Backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.operators.changes import POS
from braid.plan.logical import Query
from braid.stage.call_order import BATCH_BITS, Placed, Reading, chunks, cut, place_of, since_of, standing, topic_ranks
from braid.stage.drops import located
from braid.stage.local import LocalQuery
from braid.testing.memory_topics import MemoryTopics

T = TypeVar("T")


@dataclass(slots=True)
class Running:
    """A query, what it has read of each leaf's topic (records, moments), the number that it starts at, and what it
    dropped."""

    query: Query
    plan: Plan
    local: LocalQuery
    hops: int
    read: dict[int, tuple[int, int]]
    since: int
    drops: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def in_topological_order(queries: Sequence[T], reads: Callable[[T], set[str]], writes: Callable[[T], str]) -> list[T]:
    """Queries such that who writes a topic comes before who reads it; else in order of creation."""
    left, done = list(queries), []
    while left:
        ready = next((q for q in left if not any(writes(o) in reads(q) for o in left if o is not q)), left[0])
        left.remove(ready)
        done.append(ready)
    return done


class LocalBackend(MemoryTopics):
    def __init__(self, batch: int | None, buckets: int | None) -> None:
        super().__init__()
        self.batch, self.buckets = batch, buckets or 4
        self.queries: dict[str, Running] = {}

    def start(self, query: Query, number: int) -> None:
        plan = lower(query)
        partitions = self.topics[query.sink.topic].partitions
        buckets = -(-self.buckets // partitions) * partitions
        writers = [r for r in self.queries.values() if any(r.query.sink.topic == x.source.topic for x in plan.leaves)]
        hops = 1 + max((r.hops for r in writers), default=0)
        read = {leaf.number: (0, 0) for leaf in plan.leaves}
        self.queries[query.name] = Running(query, plan, LocalQuery(plan, partitions, buckets), hops, read, number)

    def stop(self, query: str) -> None:
        self.queries.pop(query, None)

    def pump(self) -> None:
        order = in_topological_order(
            list(self.queries.values()),
            lambda r: {leaf.source.topic for leaf in r.plan.leaves},
            lambda r: r.query.sink.topic,
        )
        for running in order:
            self._advance(running)

    def _advance(self, running: Running) -> None:
        readings = []
        for leaf in running.plan.leaves:
            topic, (records, moments) = self.topics[leaf.source.topic], running.read[leaf.number]
            new = standing(topic.records[records:], leaf, since_of(running.plan, leaf, running.since))
            readings.append(Reading(leaf.number, new, topic.moments[moments:], topic.partitions))
            running.read[leaf.number] = (len(topic.records), len(topic.moments))
        if not any(r.records or r.moments for r in readings):
            return
        for batch in cut(running.plan, readings, self.batch):
            number = running.local.batch
            outputs = running.local.run(chunks(running.plan, batch))
            self._write(running, outputs.records, number)
            located_drops = located(outputs.dropped, running.plan, self._found(running))
            running.drops.extend(located_drops)
            for name, n in outputs.counts.items():
                running.counts[name] = running.counts.get(name, 0) + n

    def _write(self, running: Running, records: pl.DataFrame, batch: int) -> None:
        topic = self.topics[running.query.sink.topic]
        columns = ("partition", "key", "value", "timestamp", "headers")
        for i, (pos, *rest) in enumerate(records.select(POS, *columns).iter_rows()):
            seq, _, _, _ = place_of(pos)
            partition, key, value, timestamp, headers = rest
            n = (batch << BATCH_BITS) + i
            topic.append(Placed(seq, running.hops, n, partition, 0, key, value, timestamp, headers))

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

    def state(self, query: str) -> list[dict[str, Any]]:
        return self.queries[query].local.state_size()

    def restart(self) -> None:
        for running in self.queries.values():
            running.local.restore(running.local.snapshot())

    def close(self) -> None:
        self.topics.clear()
        self.queries.clear()
