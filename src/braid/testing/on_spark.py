"""The test driver's backend on real Spark: topics in a store, every query a streaming query of one shared session.

In, out, rule: see `testing/backend.py`. Records carry their place in a file beside their segment; a gate per query
keeps it from reading on before `pump` wants it to.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

from braid.lower.lower import lower
from braid.operators.changes import HEADERS, TIME
from braid.operators.ranges import Hashes
from braid.plan.logical import Query, Source
from braid.spark import conf, jvm, source
from braid.spark import query as queries
from braid.spark.job import checkpoint_of
from braid.spark.query_options import GivenOrder, QueryOptions
from braid.stage import checkpoint
from braid.stage.call_order import Moment, Placed, bounds_of, window_of
from braid.stage.materialized import Published, key_of, named
from braid.store import opened
from braid.testing.backend import Started, in_turn, placed_query
from braid.topics import WINDOW, TopicStore, parse_envelope
from braid.topics.drops import read_drops

BUCKETS = 2
PLACED: dict[str, pl.DataType | type[pl.DataType]] = {
    "seq": pl.Int64,
    "hops": pl.Int64,
    "n": pl.Int64,
    "_partition": pl.Int32,
    "_key": pl.String,
    "_value": pl.String,
    TIME: pl.Int64,
    HEADERS: pl.String,
    "_window": WINDOW,
}


@dataclass(slots=True)
class Running(Started):
    """`gate`: up to where it has been let read."""

    gate: str
    run: queries.RunningQuery | None = None
    pumped: int = 0  # in numbers of changes; nothing has changed before the first
    published: Published | None = None


@dataclass(slots=True)
class _Topic:
    """What waits to be written, when the topic was last changed (in numbers of changes), and what was read back."""

    waiting: list[Placed] = field(default_factory=list)
    changed: int = 0
    ends: list[int] = field(default_factory=list)
    read: list[Placed] = field(default_factory=list)


class SparkBackend:
    """One per driver; the session is shared by all of the process."""

    def __init__(self, batch: int | None = None, buckets: int | None = None, store: str | None = None) -> None:
        self._own = store is None
        self._folder = store or tempfile.mkdtemp(prefix="braid-driver-")
        self._batch, self._buckets = batch, buckets or BUCKETS
        self.store = TopicStore(opened(self._folder))
        self._topics: dict[str, _Topic] = {}
        self._queries: dict[str, Running] = {}
        self._seq, self._changes = 0, 0
        self._order = self.store.root.called(".order")
        os.makedirs(self._order, exist_ok=True)

    @property
    def _marks(self) -> str:
        return os.path.join(self._order, "marks.jsonl")

    # --------------------------------------------------------------- topics

    def create_topic(self, name: str, partitions: int) -> None:
        if name not in self.store.names():
            self.store.create(name, partitions)
        self._topics.setdefault(name, _Topic())

    def partitions(self, topic: str) -> int | None:
        return self.store.partitions(topic) if topic in self._topics else None

    def delete_topic(self, name: str) -> None:
        if self._topics.pop(name, None) is not None:
            self.store.delete(name)

    def append(self, topic: str, records: Sequence[Placed]) -> None:
        self._topics[topic].waiting.extend(records)
        self._seq = max([self._seq, *(r.seq for r in records)])
        self._touch(topic)

    def mark(self, topic: str, moment: Moment) -> None:
        source.add_mark(self._marks, topic, moment)
        self._seq = max(self._seq, moment.seq)
        self._touch(topic)

    def _touch(self, topic: str) -> None:
        self._changes += 1
        self._topics[topic].changed = self._changes

    def _flush(self) -> None:
        """Records written one by one become one commit a topic."""
        for name, topic in self._topics.items():
            if topic.waiting:
                rows = [
                    (r.seq, r.hops, r.n, r.partition, r.key, r.value, r.timestamp, r.headers, window_of(r))
                    for r in topic.waiting
                ]
                self.store.append(name, pl.DataFrame(rows, schema=PLACED, orient="row"))
                topic.waiting.clear()

    # -------------------------------------------------------------- queries

    def start(self, query: Query, number: int) -> None:
        place = placed_query(query, number, self._queries.values())
        running = Running(*place, os.path.join(self._order, f"{query.name}.gate"))
        self._launch(running)
        self._queries[query.name] = running
        if running.plan.first_rows and running.run is not None:
            running.run.await_idle()
            self._touch(query.sink.topic)

    def _launch(self, running: Running) -> None:
        if not os.path.exists(running.gate):
            source.open_gate(running.gate, 0)
        outputs = self.store.partitions(running.query.sink.topic)
        running.run = queries.start(
            shared_session(),
            running.plan,
            self.store.store,
            QueryOptions(
                partitions=outputs,
                buckets=-(-self._buckets // outputs) * outputs,
                tasks=1,  # so that one task sees the order of all output
                order=GivenOrder(running.gate, self._marks, running.hops, self._batch, running.since),
            ),
        )

    def started(self, query: str) -> Running | None:
        return self._queries.get(query)

    def stop(self, query: str) -> None:
        """The query is gone for good: one that takes its name starts anew."""
        running = self._halted(query)
        if running is not None:
            checkpoint_of(self.store.root, query).clear()
            os.unlink(running.gate)

    def upgrade(self, query: Query) -> None:
        running = self._queries[query.name]
        assert running.run is not None
        running.run.stop()
        plan = lower(query)
        checkpoint.upgrade(checkpoint_of(self.store.root, query.name), running.plan, plan)
        running.query, running.plan = query, plan
        self._launch(running)

    def pause(self, query: str) -> None:
        self._queries[query].paused = True

    def resume(self, query: str) -> None:
        self._queries[query].paused = False

    def _halted(self, query: str) -> Running | None:
        running = self._queries.pop(query, None)
        if running is not None and running.run is not None:
            running.run.stop()
        return running

    def pump(self) -> None:
        self._flush()
        for running in in_turn(self._queries.values()):
            if max((self._topics[t].changed for t in running.reads if t in self._topics), default=0) <= running.pumped:
                continue
            assert running.run is not None
            seen, before = self._changes, self.store.end_offsets(running.query.sink.topic)
            source.open_gate(running.gate, self._seq)
            running.run.await_idle()
            running.pumped = seen
            if self.store.end_offsets(running.query.sink.topic) != before:
                self._touch(running.query.sink.topic)

    def restart(self) -> None:
        for running in self._queries.values():
            assert running.run is not None
            running.run.stop()
        for running in self._queries.values():
            self._launch(running)

    # -------------------------------------------------------------- looking

    def records(self, topic: str, start: int) -> list[Placed]:
        self._flush()
        known = self._topics[topic]
        ends = self.store.end_offsets(topic)
        known.ends = known.ends or [0] * len(ends)
        new = [
            r
            for p, (first, last) in enumerate(zip(known.ends, ends, strict=True))
            for r in self._read(topic, p, first, last)
        ]
        known.read += sorted(new, key=lambda r: (r.seq, r.hops, r.n))
        known.ends = ends
        return known.read[start:]

    def _read(self, topic: str, partition: int, first: int, last: int) -> Iterator[Placed]:
        if first == last:
            return
        lines = parse_envelope(self.store.read(topic, partition, first, last)["_line"])
        places = self.store.read_positions(topic, partition, first, last)
        rows = lines.hstack(places).select("seq", "hops", "n", "_offset", "_key", "_value", TIME, HEADERS, "_window")
        for seq, hops, n, offset, key, value, time, headers, window in rows.iter_rows():
            yield Placed(seq, hops, n, partition, offset, key, value, time, headers, bounds_of(window))

    def drops(self, query: str) -> list[dict[str, Any]]:
        return read_drops(self.store.root, query)

    def standing(self, query: str, source: Source, h: Hashes | None) -> pl.DataFrame | None:
        running = self._queries.get(query)
        if running is None or running.run is None or not running.run.job.plan.query.sink.keeps:
            return None
        if running.published is None:
            running.published = Published(checkpoint_of(self.store.root, query), key_of(source))
        return named(source, running.published.rows(h))

    def state(self, query: str) -> list[dict[str, Any]]:
        running = self._queries[query]
        return running.run.state() if running.run is not None else []

    def close(self) -> None:
        for name in list(self._queries):
            self._halted(name)
        if self._own:
            shutil.rmtree(self._folder, ignore_errors=True)


@functools.cache
def shared_session() -> SparkSession:
    """One small session for all drivers of this process."""
    return conf.session("local[2]", jvm.CARRIER | {"spark.driver.memory": "1g"}, "braid-driver")
