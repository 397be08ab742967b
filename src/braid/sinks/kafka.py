"""A topic of a broker.

In: rows in order, drops. Out: records of the result's topic; rows that the topic does not take, as drops; letters.
Rule: whether a topic takes a record follows from the record's own bytes, uncompressed, and costs no other record. A
task's records and its marker are one transaction; when all tasks have committed, the driver has nothing left to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import polars as pl

from braid.errors import BraidError
from braid.plan import logical
from braid.plan.drop_reasons import Reason
from braid.records.wire import with_windows
from braid.sinks.dead_letters import DeadLetters, dead_letters_of
from braid.sinks.interface import Part, Sink, Wrote
from braid.stage import emit
from braid.stage.drops import drops_of, too_large
from braid.store import NOWHERE, ObjectStore
from braid.timing import spent
from braid.topics import access
from braid.topics.access import Takes
from braid.topics.broker import Broker
from braid.topics.interface import Topics
from braid.topics.kafka import KafkaTopics
from braid.topics.transactions import mark, sizes_of, untaken, writing

NO_BROKER = Broker("")  # of a sink that is not opened yet


@dataclass(frozen=True)
class KafkaSink(Sink):
    """`takes`: what records the topic takes; `letters`: where drops go, too; `read`: the topics that the query reads,
    with their identities."""

    broker: Broker = NO_BROKER
    root: ObjectStore = NOWHERE
    takes: Takes | None = None
    dead_letters: DeadLetters | None = None
    read: Mapping[str, str] = field(default_factory=dict)

    is_topic = True
    by_bytes = True
    at_once = True
    always = True  # a batch without rows is marked, too

    def described(self) -> str:
        return "topic"

    def check_tasks(self, tasks: int) -> None:
        """The marker of each task stands at a partition of its own."""
        if tasks > self.partitions:
            has = f"{self.target} in Kafka has {self.partitions} partition{'s' * (self.partitions != 1)}"
            hint = f"--tasks {self.partitions} at most, or a topic with more partitions"
            raise BraidError(f"{tasks} tasks a stage were asked for, but {has}", hint)

    def begin_tasks(self, topics: Topics, run: str, tasks: Sequence[int], batch: int) -> None:
        assert isinstance(topics, KafkaTopics)
        if topics.broker.exactly_once:
            mark(topics.broker, self.target, run, tasks, batch)

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> KafkaSink:
        assert isinstance(topics, KafkaTopics)
        broker = topics.broker
        if not topics.exists(self.target):
            topics.create(self.target, self.partitions, columns.kind == "table")
        takes, dead_letters = access.takes(broker, self.target), _dead_letters(topics, broker)
        return replace(self, broker=broker, root=topics.root, takes=takes, dead_letters=dead_letters, read=read)

    @property
    def topics(self) -> KafkaTopics:
        return KafkaTopics(self.root, self.broker, self.read)

    def partition_of(self, rows: pl.DataFrame, columns: logical.Sink) -> pl.Series:
        keys = emit.wire_keys(columns, rows, self.topics.registry)
        return emit.partition_of(keys, rows, self.partitions)

    def untaken(self) -> Callable[[pl.Series], pl.Series] | None:
        return None if self.takes is None else partial(untaken, early=self.takes.early)

    def task(self, part: Part) -> _Outputs:
        return _Outputs(self, part)

    def settle(self) -> None:
        self.topics.settle(self.target)


def _dead_letters(topics: Topics, broker: Broker) -> DeadLetters | None:
    """The topic of dead letters, which is there afterwards."""
    name = broker.dead_letters
    if name is None:
        return None
    if not topics.exists(name):
        topics.create(name)
    return DeadLetters(name, topics.partitions(name), access.takes(broker, name, dead_letters=True))


class _Outputs:
    """One transaction, committed when the task is done."""

    def __init__(self, sink: KafkaSink, part: Part) -> None:
        assert sink.takes is not None
        self._sink, self._part, self._takes = sink, part, sink.takes
        self._topic = sink.target
        sizes = {self._topic: self._takes.largest}
        if sink.dead_letters is not None:
            sizes[sink.dead_letters.topic] = sink.dead_letters.takes.largest
        of = part.batch
        self._writing = writing(sink.broker, sizes, of.run, part.task, of.number, of.digest())

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> Wrote:
        if not frame.height:
            return Wrote(frame)
        count = self._sink.partitions
        with spent("encode"):
            records = emit.on_wire(self._part.columns, frame, self._sink.topics.registry)
            keys, parts = records["key"], emit.partition_of(records["key"], frame, count)
            made = pl.DataFrame(
                {
                    "partition": parts,
                    "key": with_windows(keys, records["window"], self._part.columns.encoding.window),
                    "value": records["value"],
                    "time": records["time"],
                    "headers": records["headers"],
                }
            )
            sizes = sizes_of(made)
            keyless = made["key"].is_null() & self._takes.keyed
            large = (sizes > self._takes.largest) & ~keyless
        lost = [
            *self._without_key(frame.filter(keyless)),
            *self._too_large(frame.filter(large), sizes.filter(large)),
        ]
        if lost:
            frame, made = frame.filter(~(keyless | large)), made.filter(~(keyless | large))
        self._writing.write(self._topic, *made.get_columns())
        return Wrote(frame, made["partition"], pl.concat(lost) if lost else None)

    def _without_key(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        if rows.height:
            why = f"{self._topic} is compacted: it takes no record without a key"
            names = {f"v{i}": o.name for i, o in enumerate(self._part.columns.values)}
            yield drops_of(rows.rename(names), Reason.NULL_KEY, "write", (), pl.repeat(why, rows.height, eager=True))

    def _too_large(self, rows: pl.DataFrame, sizes: pl.Series) -> Iterator[pl.DataFrame]:
        if rows.height:
            keys = emit.key_texts(self._part.columns, rows)
            yield too_large(rows, keys, sizes, f"{self._topic} takes {self._takes.largest} (max.message.bytes)")

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        to, sink = self._sink.dead_letters, self._sink
        if to is not None and drops.height and not self._writing.done:
            made = dead_letters_of(to, self._part.batch.query, sink.topics, [*sink.read], drops)
            self._writing.write(to.topic, *made.get_columns())
        self._writing.commit()
        yield json.dumps({"rows": self._writing.count})

    def abort(self) -> None:
        self._writing.abort()
