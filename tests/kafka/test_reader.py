"""Ranges of a topic, as Braid's readers give them, beside what another client reads.

In: a partition with headers, tombstones, and transactions that were committed and aborted. Out: the records of ranges.
Rule: however a partition is cut, and whoever goes on where, the records are the same ones.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from braid.records.encoding import Encoding
from braid.records.wire import wires
from braid.store import opened
from braid.topics.broker import Broker as Address
from braid.topics.kafka import KafkaTopics
from braid.types import Column, Scalar
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record

pytestmark = pytest.mark.kafka

HOW = wires(Encoding(), [Column("k", Scalar.VARCHAR)], [Column("v", Scalar.VARCHAR)])


def filled(broker: Broker, rng: random.Random) -> str:
    """A topic of one partition, with gaps: a third of the transactions is aborted, and each ends with a marker."""
    topic, count = clients.make_topic(broker.address), 0
    for turn in range(24):
        records = []
        for _ in range(2_500 if turn in (4, 9) else rng.choice([1, 3, 7, 40])):
            count += 1
            value = None if rng.random() < 0.1 else b"%d" % count
            headers = (("h", b"x"), ("n", None)) if rng.random() < 0.05 else ()
            records.append(Record(b'"k"', value, 1_000 + rng.randint(0, count), headers))
        if turn % 3:
            clients.produce_transaction(broker.address, topic, records, commit=turn % 3 == 1)
        else:
            clients.produce(broker.address, topic, records)
    return topic


@pytest.mark.parametrize("seed", [1, 2])
def test_every_cut_gives_the_same_records(broker: Broker, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    topic = filled(broker, rng)
    address = Address(broker.address)
    identity = KafkaTopics(opened(tmp_path), address).identity(topic)
    kept, anew = KafkaTopics(opened(tmp_path), address, {topic: identity}), KafkaTopics(opened(tmp_path), address)
    (end,) = anew.end_offsets(topic)
    expected = [
        (r.offset, r.time, r.value.decode() if r.value is not None else None, bool(r.headers))
        for r in clients.consume(broker.address, topic)
    ]
    assert end > len(expected) > 5_000

    def rows(frame: pl.DataFrame) -> list[tuple[int, int, str | None, bool]]:
        assert frame["_error"].null_count() == frame.height
        return [(o, t, v, h is not None) for o, t, v, h in frame.select("_offset", "_t", "_value", "_headers").rows()]

    cuts = sorted({0, end, *(rng.randint(1, end - 1) for _ in range(12))})
    ranges = list(pairwise(cuts))
    assert [x for a, b in ranges for x in rows(kept.raw(topic, 0, a, b, HOW))] == expected
    assert rows(anew.raw(topic, 0, 0, end, HOW)) == expected
    rng.shuffle(ranges)  # a task that is done again, and one that goes on elsewhere
    for first, last in ranges:
        wanted = [x for x in expected if first <= x[0] < last]
        assert rows(kept.raw(topic, 0, first, last, HOW)) == wanted
    clients.delete_topic(broker.address, topic)


def test_what_was_committed_is_there_when_it_has_settled(broker: Broker, tmp_path: Path) -> None:
    """A broker takes a commit some milliseconds before its readers see it; what is open for long is not waited for."""
    topic, topics = (
        clients.make_topic(broker.address, None, 3),
        KafkaTopics(opened(str(tmp_path)), Address(broker.address)),
    )
    for n in range(1, 31):
        clients.produce_transaction(broker.address, topic, [Record(None, b"1", 1_000, (), p) for p in range(3)])
        topics.settle(topic)
        assert topics.end_offsets(topic) == [2 * n] * 3  # each with its marker
    with clients.open_transaction(broker.address) as producer:
        clients.send(producer, topic, [Record(None, b"1", 1_000, (), 0)])
        topics.settle(topic)
        assert topics.end_offsets(topic) == [60] * 3
