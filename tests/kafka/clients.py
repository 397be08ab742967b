"""What a test does with topics: make, fill, read, delete them. By confluent-kafka alone, nothing of Braid's.

In: a broker's address, records. Out: what the broker holds, as plain values.
Rule: every wait ends; reading a topic gives all that is committed at that moment, in the order of partitions.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from confluent_kafka.schema_registry import SchemaRegistryClient

from kafka.server import until

SECONDS = 30.0
ANSWER = 10  # s that a registry has: of thousands of questions it may leave one without an answer
LOGINS: dict[str, dict[str, str]] = {}  # how one comes in as administrator, where a broker asks: see `secured.py`
Headers = list[tuple[str, bytes | None]]


def schemas(url: str) -> SchemaRegistryClient:
    """A client of a registry, which asks again: by itself it waits for ever."""
    return SchemaRegistryClient({"url": url, "timeout": ANSWER})


@dataclass(frozen=True)
class Record:
    """A record to write. Without a partition the client chooses, as Java's does; time None is now (0 is now too)."""

    key: bytes | None
    value: bytes | None
    time: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


@dataclass(frozen=True)
class Read:
    """A record as it was read. `kind` is 1 for a time that the writer set, 2 for one that the broker set."""

    partition: int
    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    kind: int = 1


def settings(address: str, **more: Any) -> dict[str, Any]:
    """Settings of a client. Names take _ for a dot, so `group_id="g"` is group.id."""
    base = {"bootstrap.servers": address, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 4}
    return {**base, **LOGINS.get(address, {}), **{name.replace("_", "."): value for name, value in more.items()}}


def admin(address: str) -> AdminClient:
    """Hold it in a variable until its answers have come: they fail when it goes."""
    return AdminClient(settings(address))


def fresh(prefix: str = "t") -> str:
    """A name that no other test uses; the broker is shared."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


# Topics.


def make_topic(
    address: str, name: str | None = None, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Makes a topic (of a fresh name) and waits until it can be used."""
    name = name or fresh()
    new = NewTopic(name, partitions, 1, config={str(k): str(v) for k, v in (config or {}).items()})
    client = admin(address)
    client.create_topics([new], operation_timeout=SECONDS)[name].result(SECONDS)
    _await_topic(address, name, partitions)
    return name


def make_compacted(address: str, name: str | None = None, partitions: int = 1) -> str:
    """A topic that is compacted within seconds: see `await_compaction`."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "600000",
    }
    return make_topic(address, name, partitions, config)


def await_compaction(address: str, topic: str, most: int, seconds: float = 40) -> list[Read]:
    """Waits until at most so many records are left, then gives them.

    Only closed segments are compacted, so records of the key `_nudge` are written until it has happened; they are
    not counted and not given.
    """
    partitions = range(partition_count(address, topic))
    left: list[Read] = []

    def few() -> bool:
        nonlocal left
        produce(address, topic, [Record(b"_nudge", b"", partition=p) for p in partitions])
        left = [r for r in consume(address, topic) if r.key != b"_nudge"]
        return len(left) <= most

    if not until(few, seconds, pause=0.5):
        raise TimeoutError(f"{topic}: {len(left)} records are left after {seconds:g} s, not {most}")
    return left


def add_partitions(address: str, topic: str, partitions: int) -> None:
    """The topic has so many partitions from now on."""
    client = admin(address)
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)
    _await_topic(address, topic, partitions)


def delete_topic(address: str, topic: str) -> None:
    client = admin(address)
    client.delete_topics([topic], operation_timeout=SECONDS)[topic].result(SECONDS)
    _await(lambda: not topic_exists(address, topic), f"{topic} is still there")


def recreate_topic(
    address: str, topic: str, partitions: int | None = None, config: Mapping[str, str] | None = None
) -> None:
    """Deleted and made anew: the same name, another id, no records."""
    before, count = topic_id(address, topic), partitions or partition_count(address, topic)
    delete_topic(address, topic)
    make_topic(address, topic, count, config)
    assert topic_id(address, topic) != before


def delete_records(address: str, topic: str, before: Mapping[int, int]) -> dict[int, int]:
    """Deletes what lies before an offset of each partition; gives the first offsets that are left."""
    ends = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    client = admin(address)
    done = client.delete_records(ends, operation_timeout=SECONDS)
    return {p.partition: f.result(SECONDS).low_watermark for p, f in done.items()}


def topic_exists(address: str, topic: str) -> bool:
    return topic in admin(address).list_topics(timeout=SECONDS).topics


def topics_of(address: str) -> set[str]:
    return set(admin(address).list_topics(timeout=SECONDS).topics)


def topic_id(address: str, topic: str) -> str:
    client = admin(address)
    described = client.describe_topics(TopicCollection([topic]))[topic].result(SECONDS)
    return str(described.topic_id)


def partition_count(address: str, topic: str) -> int:
    client = admin(address)
    return len(client.describe_topics(TopicCollection([topic]))[topic].result(SECONDS).partitions)


def ends(address: str, topic: str, *, committed: bool = True, first: bool = False) -> dict[int, int]:
    """The offset behind the last record of each partition (`first`: of the first). `committed`: the last stable one."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    where = OffsetSpec.earliest() if first else OffsetSpec.latest()
    asked = {TopicPartition(topic, p): where for p in range(partition_count(address, topic))}
    told = dict[int, int]()

    def led() -> bool:
        """A broker that is busy, or has just got the partition, may not lead it for a moment."""
        client = admin(address)
        try:
            found = client.list_offsets(asked, isolation_level=level)
            told.update({p.partition: f.result(SECONDS).offset for p, f in found.items()})
        except KafkaException as e:
            if e.args[0].code() not in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE):
                raise
            return False
        return True

    _await(led, f"{topic} has no leader")
    return told


def group_offsets(address: str, group: str) -> dict[tuple[str, int], int]:
    """What a consumer group has committed; what a transaction has just committed takes a moment to settle."""
    asked = ConsumerGroupTopicPartitions(group)
    client = admin(address)
    found: list[TopicPartition] = []

    def settled() -> bool:
        told = client.list_consumer_group_offsets([asked], require_stable=True)[group].result(SECONDS)
        found[:] = told.topic_partitions
        return all(p.error is None for p in found)

    assert until(settled, SECONDS), found
    return {(p.topic, p.partition): p.offset for p in found}


# Records.


def produce(address: str, topic: str, records: Iterable[Record], **more: Any) -> list[tuple[int, int]]:
    """Writes them, each once; gives the partition and the offset of each."""
    producer = Producer(settings(address, enable_idempotence=True, linger_ms=5, partitioner="murmur2_random", **more))
    return _send(producer, topic, records)


def produce_transaction(
    address: str, topic: str, records: Iterable[Record], *, commit: bool = True, id: str | None = None
) -> list[tuple[int, int]]:
    """Writes them in one transaction, committed or aborted. Either way they lie on the broker, with their offsets."""
    with open_transaction(address, id) as producer:
        placed = _send(producer, topic, records)
        if commit:
            producer.commit_transaction(SECONDS)
    return placed


@contextlib.contextmanager
def open_transaction(address: str, id: str | None = None) -> Iterator[Producer]:
    """A producer with a transaction begun; aborted at the end, unless the test has ended it.

    Within it `send` writes records: they lie on the broker, and no committed reader gets past them.
    """
    own = {"transactional_id": id or fresh("tx"), "partitioner": "murmur2_random", "retry_backoff_ms": 10}
    producer = Producer(settings(address, **own))
    producer.list_topics(timeout=SECONDS)  # connected first: else the next line takes half a second
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    try:
        yield producer
    finally:
        with contextlib.suppress(KafkaException):  # it has been committed, aborted or fenced
            producer.abort_transaction(SECONDS)


def send(producer: Producer, topic: str, records: Iterable[Record]) -> list[tuple[int, int]]:
    """Writes records by a producer of the test's own and waits until the broker has them."""
    return _send(producer, topic, records)


def consume(address: str, topic: str, *, committed: bool = True, **more: Any) -> list[Read]:
    """All records of a topic, by partition and offset, up to its end of now."""
    upto = {p: end for p, end in ends(address, topic, committed=committed).items() if end > 0}
    begin = ends(address, topic, committed=committed, first=True)
    waiting = {p for p, end in upto.items() if end > begin[p]}
    level = "read_committed" if committed else "read_uncommitted"
    own = {"group_id": fresh("reader"), "isolation_level": level, "enable_auto_commit": False}
    own |= {"fetch_wait_max_ms": 20, "fetch_queue_backoff_ms": 5}  # the end of a partition is told at once
    consumer = Consumer(settings(address, **own, enable_partition_eof=True, **more))
    found: list[Read] = []

    def some() -> bool:
        for message in consumer.consume(10_000, 0.1):
            partition, offset = message.partition(), message.offset()
            error = message.error()
            if error is None and offset < upto[partition]:
                found.append(_read(message))
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if offset + (error is None) >= upto[partition]:
                waiting.discard(partition)
        return not waiting

    try:
        consumer.assign([TopicPartition(topic, p, begin[p]) for p in waiting])
        if waiting:
            _await(some, f"{topic} could not be read to its end")
    finally:
        consumer.close()
    return sorted(found, key=lambda r: (r.partition, r.offset))


# Inside.


def _send(producer: Producer, topic: str, records: Iterable[Record]) -> list[tuple[int, int]]:
    placed: dict[int, tuple[int, int]] = {}
    failed: list[KafkaError] = []

    def report(number: int) -> Callable[[KafkaError | None, Message], None]:
        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                placed[number] = (message.partition(), message.offset())

        return done

    count = 0
    for record in records:
        given: dict[str, Any] = {"headers": list(record.headers)} if record.headers else {}
        if record.time is not None:
            given["timestamp"] = record.time
        if record.partition is not None:
            given["partition"] = record.partition
        while True:
            try:
                producer.produce(topic, key=record.key, value=record.value, on_delivery=report(count), **given)
                break
            except BufferError:  # the queue is full: it is emptied first
                producer.poll(1)
        producer.poll(0)
        count += 1
    left = producer.flush(SECONDS)
    if failed:
        raise KafkaException(failed[0])
    if left or len(placed) != count:
        raise TimeoutError(f"{topic}: {count - len(placed)} of {count} records are not written after {SECONDS:g} s")
    return [placed[number] for number in range(count)]


def _read(message: Message) -> Read:
    kind, time = message.timestamp()
    headers = tuple(message.headers() or ())
    return Read(message.partition(), message.offset(), time, message.key(), message.value(), headers, kind)


def _await_topic(address: str, topic: str, partitions: int) -> None:
    def usable() -> bool:
        found = admin(address).list_topics(topic, timeout=SECONDS).topics[topic]
        leaders = [p for p in found.partitions.values() if p.error is None and p.leader >= 0]
        return found.error is None and len(leaders) == partitions

    _await(usable, f"{topic} has not the {partitions} partitions it should")


def _await(true: Callable[[], bool], else_: str) -> None:
    if not until(true, SECONDS):
        raise TimeoutError(f"{else_} after {SECONDS:g} s")
