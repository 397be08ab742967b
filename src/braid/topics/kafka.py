"""Topics in Kafka, seen as those of the store are.

In: a folder (checkpoints, drops, what was declared) and a broker. Out: its topics: names, partitions, ends, records of
a range, records written.
Rule: the same range gives the same records for ever, or an error: nothing is skipped because retention or a hand took
it away. Offsets have gaps; a partition ends at its last stable offset, so only what was committed is read. What is
written here (INSERT … VALUES, `put`) is one transaction, and with a name it is done once.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import polars as pl

from braid.errors import BraidError
from braid.records.registry import Registry
from braid.records.wire import (
    Wire,
    Wires,
    kafka_partition,
    of_bytes,
    prefixed,
    shown,
    to_bytes,
    with_windows,
    without_windows,
)
from braid.store import ObjectStore
from braid.topics.broker import (
    ENDLESS,
    IDLE,
    PATIENCE,
    WAIT,
    Broker,
    BrokerAway,
    NotReady,
    admin,
    asked,
    consumer,
    group_admin,
    kept,
    left_open,
    refused,
)
from braid.topics.broker_leftovers import once, remove
from braid.topics.envelope import RAW
from braid.topics.files import check_name
from braid.topics.registries import opened
from braid.topics.store import frame_of
from braid.topics.store_value import Store
from braid.topics.transactions import writing
from braid.types import is_time

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

MANY = 2_000  # records asked for at once: more do not stay in the processor's cache
TIMES = frozenset[str]()  # what is read of records besides offsets and times
WHOLE = TIMES | {"keys", "values", "headers"}
OPEN = 64  # consumers that a process keeps
LOOK = 3.0  # s between two looks for partitions that were added
APART = 2_000  # records that are rather read than passed over
LARGEST = 1_000_000  # bytes of a batch where nobody asked the topic
Made = Callable[[pl.Series, Wire], tuple[pl.Series, pl.Series]]
FOR_EVER = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


class KafkaTopics:
    """`root`: the store beside the broker, of checkpoints, drops and the catalogue; `fsync`: what is written there
    is forced to disk. `known`: the identities of topics that a query reads. Consumers of these are kept; another
    topic may be made anew under its name at any time."""

    dense = False

    def __init__(
        self, root: ObjectStore, broker: Broker, known: Mapping[str, str] | None = None, fsync: bool = False
    ) -> None:
        self.root, self.broker, self.known, self.fsync = root, broker, dict(known or {}), fsync
        self._ends: dict[str, list[int]] = {}
        self._counts: dict[str, tuple[float, int, int]] = {}

    def __reduce__(self) -> tuple[type[KafkaTopics], tuple[ObjectStore, Broker, dict[str, str], bool]]:
        return KafkaTopics, (self.root, self.broker, self.known, self.fsync)

    @property
    def store(self) -> Store:
        return Store(self.root, self.broker)

    @property
    def registry(self) -> Registry | None:
        return None if self.broker.registry is None else opened(self.broker.registry)

    # -- topics ---------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return list(self.sizes())

    def sizes(self) -> dict[str, int]:
        """The broker's topics, but for its own, and how many partitions they have."""
        found = asked(self.broker, "list the topics", lambda: admin(self.broker).list_topics(timeout=WAIT)).topics
        return {n: len(found[n].partitions) for n in sorted(found) if not n.startswith("__") and found[n].error is None}

    def exists(self, name: str) -> bool:
        return self._partitions(check_name(name)) is not None

    def partitions(self, name: str) -> int:
        found = self._partitions(name)
        if found is None:
            raise self.missing(name)
        return found

    def _counted(self, name: str) -> int:
        """How many partitions a topic that a query reads has, as of the last look. One that is added counts from the
        look after the one that has found it: then all brokers know it."""
        now, seen = time.monotonic(), self._counts.get(name)
        if seen is None or now - seen[0] > LOOK or name not in self.known:
            found = self.partitions(name)
            seen = self._counts[name] = now, found, seen[1] if seen is not None else found
        return seen[2] if name in self.known else seen[1]

    def missing(self, name: str) -> BraidError:
        hint = "declare it with partitions = N to make it, or name a topic of this broker"
        return BraidError(f"there is no topic {name!r} at {self.broker.address}", hint)

    def _partitions(self, name: str) -> int | None:
        from confluent_kafka import KafkaError

        def ask() -> int | None:
            topic = admin(self.broker).list_topics(name, timeout=WAIT).topics.get(name)
            error = None if topic is None else topic.error
            if error is None:
                return None if topic is None else len(topic.partitions)
            if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                return None
            raise refused(self.broker, f"topic {name}", error)

        return asked(self.broker, f"topic {name}", ask)

    def create(self, name: str, partitions: int = 1, compacted: bool = False, try_only: bool = False) -> None:
        """A topic with so many partitions, whose records stand for ever; `compacted`: the last of each key. Nothing
        happens where it is there already; it may have got more partitions since. `try_only`: it is asked whether one
        could, and not made."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        have = self._partitions(check_name(name))
        if have is None:
            config = FOR_EVER | ({"cleanup.policy": "compact"} if compacted else {"retention.ms": "-1"})
            new = NewTopic(name, partitions, config=config)

            def make() -> None:
                made = admin(self.broker).create_topics([new], operation_timeout=WAIT, validate_only=try_only)
                try:
                    made[name].result(WAIT + 2)
                except KafkaException as e:
                    if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise

            asked(self.broker, f"create the topic {name}", make)
            if try_only:
                return
            have = self._until(name, there=True)
        if have is None or have < partitions:
            raise BraidError(
                f"the topic {name!r} has {have} partitions, not {partitions}",
                f"write partitions={have}, or choose another topic",
            )

    def delete(self, name: str) -> None:
        def gone() -> None:
            admin(self.broker).delete_topics([name], operation_timeout=WAIT)[name].result(WAIT + 2)

        asked(self.broker, f"delete the topic {name}", gone)
        self._until(name, there=False)

    def _until(self, name: str, there: bool) -> int | None:
        """A controller answers before all brokers know."""
        deadline = time.monotonic() + WAIT
        while True:
            have = self._partitions(name)
            if (have is not None) == there or time.monotonic() > deadline:
                return have
            time.sleep(0.05)

    def identity(self, name: str) -> str:
        """What tells a topic from a later one of its name."""
        from confluent_kafka import TopicCollection

        def described() -> Any:
            found = admin(self.broker).describe_topics(TopicCollection([name]), request_timeout=WAIT)
            return found[name].result(WAIT + 2)

        return str(asked(self.broker, f"topic {name}", described).topic_id)

    # -- records --------------------------------------------------------------------------------------------------

    def start_offsets(self, name: str) -> list[int]:
        """The first offset that is still there, of each partition."""
        return self._offsets(name, "earliest")

    def end_offsets(self, name: str) -> list[int]:
        """The last stable offset of each partition."""
        self._ends[name] = self._offsets(name, "latest")
        return self._ends[name]

    def offsets_at(self, name: str, time: int) -> list[int]:
        """Of each partition the offset of the first record whose time is this or later; the end where none is. No
        broker can be asked for a time before 1970: then the first record that is there."""
        if time < 0:
            return self.start_offsets(name)
        ends = self.end_offsets(name)
        found = self._offsets(name, "for_timestamp", time)
        return [end if at < 0 else min(at, end) for at, end in zip(found, ends, strict=True)]

    def forget(self, query: str, run: str, tasks: int) -> None:
        remove(self.broker, query, run, tasks)

    def settle(self, name: str) -> None:
        """A broker says that a transaction is committed a little before its records can be read. One that has gone away
        since then has them all the same."""
        deadline = time.monotonic() + WAIT
        with contextlib.suppress(BrokerAway):
            ends = self._offsets(name, "latest", committed=False)
            while any(a < b for a, b in zip(self.end_offsets(name), ends, strict=True)) and time.monotonic() < deadline:
                time.sleep(0.02)

    def count(self, name: str) -> int:
        return sum(self.end_offsets(name)) - sum(self.start_offsets(name))

    def known_start(self, name: str, partition: int) -> int:
        return 0

    def known_end(self, name: str, partition: int) -> int:
        """The end of a partition as of the last look."""
        return (self._ends.get(name) or self.end_offsets(name))[partition]

    def _offsets(self, name: str, which: str, *given: int, committed: bool = True) -> list[int]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        places = [TopicPartition(name, p) for p in range(self._counted(name))]
        what = f"offsets of the topic {name}"

        def ask() -> list[int]:
            found = admin(self.broker).list_offsets(
                dict.fromkeys(places, getattr(OffsetSpec, which)(*given)),
                isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
                request_timeout=WAIT,
            )
            made = {tp.partition: f.result(WAIT + 2) for tp, f in found.items()}
            offsets = [int(made[p].offset) for p in range(len(places))]
            if not given and min(offsets) < 0:  # a broker that has just started does not know yet
                raise NotReady(f"{what}: the broker at {self.broker.address} is not ready", "try again")
            return offsets

        return asked(self.broker, what, ask)

    def raw(self, name: str, partition: int, first: int, last: int, how: Wires) -> pl.DataFrame:
        """Columns of `RAW` of the records that there are in [first, last); bytes in formats with schemas."""
        return self._read(name, partition, first, last, of_bytes, how)

    def _read(self, name: str, partition: int, first: int, last: int, made: Made, how: Wires) -> pl.DataFrame:
        if first >= last:
            return pl.DataFrame(schema=RAW)
        got = self._records(name, partition, first, last)
        keys, windows, no_window = without_windows(pl.Series("_key", got.keys, dtype=pl.Binary), how.window)
        key, key_error = made(keys, how.key)
        value, value_error = made(pl.Series("_value", got.values, dtype=pl.Binary), how.value)
        key_error = pl.DataFrame({"w": no_window, "a": key_error}).select(pl.coalesce("w", "a"))["w"]
        errors = {"a": prefixed("the key: ", key_error), "b": prefixed("the value: ", value_error)}
        error = pl.DataFrame(errors).select(pl.coalesce("a", "b"))["a"]
        columns: tuple[Any, ...] = (got.offsets, got.times, key, value, got.headers, windows, error)
        types = {**RAW, "_key": key.dtype, "_value": value.dtype}
        return pl.DataFrame([pl.Series(c, x, dtype=t) for (c, t), x in zip(types.items(), columns, strict=True)])

    def times(self, name: str, partition: int, first: int, last: int, value: Wire | None = None) -> pl.DataFrame:
        """`_offset` and `_t` of the records in [first, last); with how values are written `_value`, too."""
        read = TIMES if value is None else TIMES | {"values"}
        got = self._records(name, partition, first, last, read) if first < last else Records()
        made = pl.DataFrame({"_offset": got.offsets, "_t": got.times}, schema={"_offset": pl.Int64, "_t": pl.Int64})
        if value is None:
            return made
        return made.with_columns(of_bytes(pl.Series("_value", got.values, dtype=pl.Binary), value)[0].alias("_value"))

    def _records(self, name: str, partition: int, first: int, last: int, read: Set[str] = WHOLE) -> Records:
        if name in self.known:
            return _reader(self.broker, name, self.known[name], partition).read(first, last, read)
        reader = _Reader(self.broker, name, partition)
        try:
            return reader.read(first, last, read)
        finally:
            reader.close()

    def at(self, name: str, partition: int, offsets: Sequence[int]) -> Iterator[tuple[int, Found]]:
        """Those of the records at these offsets that are there."""
        reader, wanted = _Reader(self.broker, name, partition), set(offsets)
        try:
            for first, last in _spans(sorted(wanted)):
                got = reader.read(first, last)
                for i, offset in enumerate(got.offsets):
                    if offset in wanted:
                        yield offset, Found(got.times[i], got.keys[i], got.values[i], got.headers[i])
        finally:
            reader.close()

    def parsed(self, name: str, partition: int, first: int, last: int, how: Wires) -> pl.DataFrame:
        """The records in [first, last) for people: `_offset`, `_line`, `_raw` and the columns of `ENVELOPE`."""
        registry = self.registry
        rows = self._read(name, partition, first, last, (lambda data, wire: shown(data, wire, registry)), how)
        line = pl.when(pl.col("error").is_not_null()).then("_value").alias("_line")
        return rows.rename({"_error": "error"}).with_columns(line, pl.lit(None, pl.Binary).alias("_raw"))

    def page_end(self, name: str, partition: int, first: int, last: int) -> int:
        return last

    def highs(self, name: str, partition: int, first: int, end: int) -> None:
        """A broker tells no highest times of ranges."""

    def prefix(self, name: str, partition: int, offset: int) -> None:
        """A broker keeps no checksums; what tells a topic from a later one is its id."""

    def checksum(self, name: str, partition: int, end: int) -> None:
        """As `prefix`."""

    def placed(self, name: str, keys: pl.Series, partitions: int, how: Wires) -> pl.Series:
        """The partition of each key text of a topic, among so many, as the Java producer has it; 0 without a key."""
        return kafka_partition(to_bytes(keys, how.key, self.registry, name), partitions).fill_null(0)

    def append(
        self,
        name: str,
        records: pl.DataFrame | Sequence[Mapping[str, Any]],
        query: str | None = None,
        *,
        how: Wires | None = None,
    ) -> bool:
        """Adds records in one transaction; who looks then finds them. With a `query`, once: False where it was done
        before. Columns and mappings as the store takes them."""
        frame = records if isinstance(records, pl.DataFrame) else frame_of(records)
        how = how or Wires()
        if (frame["_t"] == 0).any():
            raise BraidError("Kafka's client takes the time 0 for now", "write another timestamp")
        keys = to_bytes(frame["_key"], how.key, self.registry, name)
        values = to_bytes(frame["_value"], how.value, self.registry, name)
        if "_window" in frame.columns:
            keys = with_windows(keys, frame["_window"], how.window)
        headers = frame["_headers"] if "_headers" in frame.columns else None
        run = query or f"put.{uuid4().hex}"
        made = writing(self.broker, {name: LARGEST}, run, 0, 0, query)
        try:
            if not made.done:
                made.write(name, frame["_partition"], keys, values, frame["_t"], headers)
                made.commit()
        except BaseException:
            made.abort()
            raise
        finally:
            made.forget()
        if not made.done:
            self.settle(name)
        return not made.done

    def once(self, name: str) -> set[str]:
        """The names of statements whose markers the broker has."""
        return once(self.broker, name)


# --------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Found:
    """A record as it came; headers as JSON."""

    time: int | None
    key: bytes | None
    value: bytes | None
    headers: str | None


def _spans(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges that hold all of the offsets, which are sorted; between two ranges lie more than a few others."""
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset - last > APART:
            yield first, last + 1
            first = offset
        last = offset
    yield first, last + 1


@dataclass(slots=True)
class Records:
    """Columns of records; of keys, values and headers those that were asked for."""

    offsets: list[int] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[str | None] = field(default_factory=list)


class _Reader:
    """A consumer of one partition, which stays where the last range ended: the next one is mostly on its way."""

    def __init__(self, broker: Broker, topic: str, partition: int) -> None:
        self.broker, self.topic, self.partition = broker, topic, partition
        self.used = 0.0
        self._consumer: Consumer | None = None
        self._at = -1
        self._end = -1  # before it, all that is there has come
        self._ahead: list[Any] = []  # messages behind the range that was asked for

    def read(self, first: int, last: int, fields: Set[str] = WHOLE) -> Records:
        """The records of [first, last), of which at least one offset is there."""
        with _uncollected():
            return self._read(first, last, fields)

    def _read(self, first: int, last: int, fields: Set[str]) -> Records:
        # where another process has read in between, what it read is mostly here too: passed over, and not sought
        if self._consumer is None or not self._at <= first <= self._at + APART:
            self._seek(first)
        assert self._consumer is not None
        got, found = Records(), self._ahead
        self._ahead = []
        deadline = time.monotonic() + PATIENCE
        done = not found and self._end >= last
        while not done:
            if found:
                deadline = time.monotonic() + PATIENCE
                done = self._take(got, found, first, last, fields)
            elif time.monotonic() > deadline:
                self.close()
                raise BraidError(
                    f"the topic {self.topic!r} gives no records {first} to {last - 1} in partition {self.partition}",
                    "its broker was away for ten minutes; start the query again when it is there",
                )
            if not done:
                found = self._consumer.consume(min(MANY, max(last - self._at, 1)), 0.02)
        self._at = last
        return got

    def _take(self, got: Records, found: list[Any], first: int, last: int, fields: Set[str]) -> bool:
        """Takes what lies in the range. True when all of it has come."""
        from confluent_kafka import Message

        offset: Callable[[Any], Any] = Message.offset
        good: list[Any]
        if any(map(Message.error, found)):
            good, done = self._told(found, first, last)
        else:
            good = found[: bisect_left(found, last, key=offset)]
            self._ahead, done = found[len(good) :], len(good) < len(found)
        good = good[bisect_left(good, first, key=offset) :]
        if good:
            offsets: list[Any] = list(map(offset, good))
            got.offsets += offsets
            got.times += _times(map(Message.timestamp, good))
            got.keys += map(Message.key, good) if "keys" in fields else ()
            got.values += map(Message.value, good) if "values" in fields else ()
            headers: list[Any] = list(map(Message.headers, good)) if "headers" in fields else []
            got.headers += map(_headers, headers) if any(headers) else [None] * len(headers)
            self._at = offsets[-1] + 1
        return done or self._at >= last

    def _told(self, found: list[Any], first: int, last: int) -> tuple[list[Any], bool]:
        """Of messages and events: the messages before `last`, and whether no more will come."""
        good: list[Any] = []
        for i, m in enumerate(found):
            error = m.error()
            if error is None:
                if m.offset() >= last:
                    self._ahead = found[i:]
                    return good, True
                good.append(m)
            elif self._is_end(error):
                self._end = m.offset()
            elif not error.retriable():
                self._fail(error, first)
        return good, self._end >= last

    @staticmethod
    def _is_end(error: Any) -> bool:
        from confluent_kafka import KafkaError

        return bool(error.code() == KafkaError._PARTITION_EOF)

    def _fail(self, error: Any, first: int) -> None:
        """What passes, the client itself tries again."""
        from confluent_kafka import KafkaError

        why: BraidError = refused(self.broker, f"read the topic {self.topic}", error)
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if self._at < first:  # what would have been passed over is gone
                self._seek(first)
                return
            why = gone(self.topic, self.partition, first)
        if not isinstance(why, BrokerAway):
            self.close()
            raise why

    def _seek(self, first: int) -> None:
        self._ahead = []
        place = _place(self.topic, self.partition, first)
        if self._consumer is None:
            self._consumer = consumer(self.broker)
        self._consumer.assign([place])
        self._at, self._end = first, -1

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._at = None, -1


def gone(topic: str, partition: int, first: int) -> BraidError:
    return BraidError(
        f"the topic {topic!r} has lost records from offset {first} on, in partition {partition}",
        "retention or a person took them away, or it was created again: braid reset QUERY lets the query begin again",
    )


def _place(topic: str, partition: int, offset: int) -> TopicPartition:
    from confluent_kafka import TopicPartition

    return TopicPartition(topic, partition, offset)


def _reader(broker: Broker, topic: str, identity: str, partition: int) -> _Reader:
    """This process's reader of a partition; those that were not used for longest are closed."""
    readers = kept("readers", broker, "", OrderedDict[tuple[str, str, int], _Reader])
    which, now = (topic, identity, partition), time.monotonic()
    if which not in readers:
        readers[which] = _Reader(broker, topic, partition)
    readers.move_to_end(which)
    readers[which].used = now
    while len(readers) > OPEN or now - next(iter(readers.values())).used > IDLE:
        readers.popitem(last=False)[1].close()
    return readers[which]


def _times(stamps: Iterable[tuple[int, int]]) -> Sequence[int | None]:
    kinds, times = zip(*stamps, strict=True)
    if all(kinds) and is_time(min(times)) and is_time(max(times)):
        return times
    return [ms if kind and is_time(ms) else None for kind, ms in zip(kinds, times, strict=True)]


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Messages come by the thousand and form no circles: to look for some takes half as long as to read."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _headers(given: list[tuple[str, bytes | None]] | None) -> str | None:
    if not given:
        return None
    pairs = [[n, None if x is None else base64.b64encode(x).decode()] for n, x in given]
    return json.dumps(pairs, separators=(",", ":"), ensure_ascii=False)


def commit_offsets(broker: Broker, group: str, reached: Mapping[tuple[str, int], int]) -> list[Any]:
    """Commits offsets for a group that has no members. Gives futures."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    places = [_place(topic, partition, offset) for (topic, partition), offset in reached.items()]
    if not places:
        return []
    request = [ConsumerGroupTopicPartitions(group, places)]
    answers = list(group_admin(broker).alter_consumer_group_offsets(request, request_timeout=ENDLESS).values())
    left_open(broker, answers)
    return answers
