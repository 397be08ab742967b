"""Where the topics of a round lie: in the store, or on a real broker.

In: a history, names of queries. Out: the input's topics; what those of the output hold, as others read them.
Rule: on a broker only what was committed is there, and it is read by a client that is not Braid's.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import polars as pl
from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from braid.records.key import key_hash
from braid.records.wire import kafka_partition
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.interface import store_of
from crash.world import PARTITIONS, Lines, line
from histories import History
from kafka import clients
from kafka.broker import Broker
from kafka.server import until

SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.task.duration.threshold": "5s",  # of stages with few tasks, too
}
SPECULATION: Sequence[str] = [word for k, v in SPECULATING.items() for word in ("--conf", f"{k}={v}")]
SETTLED = 20.0  # s that an orphan may take to end


class Place(Protocol):
    """`prefix`: what names of topics begin with; `options`: the words of `braid run` that name the place; `store`:
    where the state of queries lies, below the folder of the round or at a URL; `speculates`: a task that stands still
    is done elsewhere meanwhile."""

    prefix: str
    options: Sequence[str]
    store: str
    speculates: bool

    def write(self, made: History) -> None:
        """The input."""

    def partitions(self, keys: Sequence[str]) -> list[int]:
        """Where records with these keys go."""

    def written(self, names: Sequence[str]) -> dict[str, Lines]:
        """What the output topics hold; one that is not there yet is empty."""

    def counts(self, names: Sequence[str]) -> list[int]:
        """How many records each of them has."""

    def begun(self, names: Sequence[str]) -> bool:
        """Whether rows of a batch lie there that nobody sees yet."""

    def left_over(self, names: Sequence[str]) -> str | None:
        """What of a batch lies about, when all is done."""


class InStore:
    prefix, store = "", "s"

    def __init__(self, folder: Path, speculates: bool = False) -> None:
        self._folder, self.speculates = folder, speculates
        self._topics = self._anew()
        self.options = SPECULATION if speculates else ()

    def write(self, made: History) -> None:
        """In several segments each."""
        for topic, partitions in made.topics.items():
            self._topics.create(topic, len(partitions))
            for p, records in enumerate(partitions):
                lines = [line(r.key, r.value, r.time) for r in records]
                for start in range(0, len(lines), 100):
                    self._topics.append_lines(topic, lines[start : start + 100], p)

    def partitions(self, keys: Sequence[str]) -> list[int]:
        return [h % PARTITIONS for h in key_hash(pl.Series("k", keys, dtype=pl.String))]

    def written(self, names: Sequence[str]) -> dict[str, Lines]:
        topics = self._anew()
        return {
            name: [topics.read(name, p, 0, end)["_line"].to_list() for p, end in enumerate(topics.end_offsets(name))]
            if name in topics.names()
            else _nothing()
            for name in names
        }

    def counts(self, names: Sequence[str]) -> list[int]:
        topics = self._anew()
        return [sum(topics.end_offsets(name)) if topics.exists(name) else 0 for name in names]

    def _anew(self) -> TopicStore:
        return TopicStore(opened(self._folder))

    def begun(self, names: Sequence[str]) -> bool:
        return any(any(self._folder.glob(f"topics/{name}/.staging/*")) for name in names)

    def left_over(self, names: Sequence[str]) -> str | None:
        return "staged files" if any(self._folder.glob("topics/*/.staging/*")) else None


class InObjects(InStore):
    """All that is durable lies in an object store, at a URL under which nothing is."""

    def __init__(self, url: str) -> None:
        self.store = url
        super().__init__(Path())

    def _anew(self) -> TopicStore:
        return store_of(opened(self.store))

    def begun(self, names: Sequence[str]) -> bool:
        return False  # nobody sees it

    def left_over(self, names: Sequence[str]) -> str | None:
        return None  # it goes later


class OnBroker:
    """`own`: the broker is the round's alone, so it may be killed. `store`: see `Place`."""

    speculates = False  # refused: two attempts would fence each other

    def __init__(self, broker: Broker, own: bool, store: str = "s") -> None:
        self.broker, self.own, self.store = broker, own, store
        self.prefix = f"{clients.fresh('crash')}."
        self.options = ("--kafka", broker.address)
        self._admin = clients.admin(broker.address)
        self._seen: dict[str, _Counter] = {}

    def write(self, made: History) -> None:
        for topic, partitions in made.topics.items():
            name = clients.make_topic(self.broker.address, self.prefix + topic, len(partitions))
            records = [
                clients.Record(_key(r.key), _value(r.value), r.time, (), p)
                for p, found in enumerate(partitions)
                for r in found
            ]
            clients.produce(self.broker.address, name, records)

    def partitions(self, keys: Sequence[str]) -> list[int]:
        return kafka_partition(pl.Series("k", [_key(int(k)) for k in keys], dtype=pl.Binary), PARTITIONS).to_list()

    def written(self, names: Sequence[str]) -> dict[str, Lines]:
        found = {}
        for name in names:
            found[name] = _nothing()
            if clients.topic_exists(self.broker.address, self.prefix + name):
                for r in clients.consume(self.broker.address, self.prefix + name):
                    value = None if r.value is None else json.loads(r.value)
                    found[name][r.partition].append(line(_number(r.key), value, r.time))
        return found

    def counts(self, names: Sequence[str]) -> list[int]:
        return [self._counter(name).count() for name in names]

    def begun(self, names: Sequence[str]) -> bool:
        there = [name for name in names if self._counter(name).there()]
        try:
            return any(self._ends(name, False) != self._ends(name, True) for name in there)
        except KafkaException:  # a client remembers the leader of before a broker's death
            self._admin = clients.admin(self.broker.address)
            return False

    def left_over(self, names: Sequence[str]) -> str | None:
        """A killed task's transaction is open until the next one of its name begins: all have, when all is done."""
        self._admin = clients.admin(self.broker.address)
        return None if until(lambda: not self.begun(names), SETTLED) else "an open transaction"

    def close(self) -> None:
        for counter in self._seen.values():
            counter.close()
        with contextlib.suppress(Exception):  # the broker ends with us
            topics = [t for t in self._admin.list_topics(timeout=5).topics if t.startswith(self.prefix)]
            for done in self._admin.delete_topics(topics).values():
                done.result(5)

    def _counter(self, name: str) -> _Counter:
        if name not in self._seen:
            self._seen[name] = _Counter(self.broker.address, self.prefix + name)
        return self._seen[name]

    def _ends(self, name: str, committed: bool) -> list[int]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        places = [TopicPartition(self.prefix + name, p) for p in range(PARTITIONS)]
        found = self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), isolation_level=level)
        return [f.result(clients.SECONDS).offset for f in found.values()]


class _Counter:
    """Follows a topic, so that asking often costs little."""

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._topic = address, topic
        self._consumer: Consumer | None = None
        self._count = 0

    def there(self) -> bool:
        if self._consumer is None and clients.topic_exists(self._address, self._topic):
            own = {"group_id": "crash", "isolation_level": "read_committed", "fetch_wait_max_ms": 20}
            self._consumer = Consumer(clients.settings(self._address, enable_auto_commit=False, **own))
            self._consumer.assign([TopicPartition(self._topic, p, 0) for p in range(PARTITIONS)])
        return self._consumer is not None

    def count(self) -> int:
        if self.there():
            assert self._consumer is not None
            self._count += sum(m.error() is None for m in self._consumer.consume(10_000, 0.01))
        return self._count

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


@contextlib.contextmanager
def place(folder: Path, broker: Broker | None, own: bool = False) -> Iterator[Place]:
    """Of one round."""
    if broker is None:
        yield InStore(folder)
        return
    with contextlib.closing(OnBroker(broker, own)) as made:
        yield made


def _nothing() -> Lines:
    return [[] for _ in range(PARTITIONS)]


def _key(key: object) -> bytes | None:
    return None if key is None else struct.pack(">i", key)


def _number(key: bytes | None) -> int | None:
    return None if key is None else int(struct.unpack(">i", key)[0])


def _value(value: object) -> bytes | None:
    return None if value is None else json.dumps(value).encode()
