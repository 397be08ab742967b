"""Java's own clients and librdkafka see the same topic.

In: records written by one of the two. Out: the other reads the same, in the same partitions.
Rule: nothing of Braid is used here.
"""

from __future__ import annotations

import random

import pytest

from kafka.broker import Broker
from kafka.clients import Record, consume, make_topic, produce, produce_transaction
from kafka.java import java_consume, java_murmur2, java_partitions, java_produce

pytestmark = pytest.mark.kafka


def test_java_reads_what_was_committed(broker: Broker) -> None:
    topic = make_topic(broker.address, partitions=2)
    headers = (("a", b"\x00\xff\n"), ("a", None), ("b", b""))
    every_byte = bytes(b for b in range(256))
    produce(
        broker.address, topic, [Record(b"k", every_byte, 1_700_000_000_000, headers, 1), Record(None, b"", 7, (), 0)]
    )
    produce_transaction(broker.address, topic, [Record(b"no", b"aborted", partition=0)], commit=False)
    produce_transaction(broker.address, topic, [Record(b"k", None, 1, (), 0)])
    found = java_consume(broker.address, topic, 3)
    assert found == consume(broker.address, topic)
    assert [(r.partition, r.offset, r.time, r.key, r.value) for r in found] == [
        (0, 0, 7, None, b""),
        (0, 3, 1, b"k", None),
        (1, 0, 1_700_000_000_000, b"k", every_byte),
    ]
    assert found[2].headers == headers


def test_java_gives_what_there_is_when_no_more_comes(broker: Broker) -> None:
    topic = make_topic(broker.address)
    produce(broker.address, topic, [Record(b"k", b"v")])
    assert java_consume(broker.address, topic, 2, seconds=3) == consume(broker.address, topic)


def test_java_reads_numbers_by_its_own_deserializers(broker: Broker) -> None:
    topic = make_topic(broker.address)
    produce(broker.address, topic, [Record((7).to_bytes(4, "big"), (-3).to_bytes(8, "big", signed=True))])
    names = {
        "key": "org.apache.kafka.common.serialization.IntegerDeserializer",
        "value": "org.apache.kafka.common.serialization.LongDeserializer",
    }
    (read,) = java_consume(broker.address, topic, 1, deserializers=names)
    assert (read.key, read.value) == (b"7", b"-3")


def test_what_java_writes_is_read(broker: Broker) -> None:
    topic = make_topic(broker.address)
    java_produce(broker.address, topic, [("ключ", "значение"), (None, "x"), ("k", None), ("", "")])
    found = [(r.key, r.value) for r in consume(broker.address, topic)]
    assert found == [("ключ".encode(), "значение".encode()), (None, b"x"), (b"k", None), (b"", b"")]


def test_java_puts_keys_where_librdkafka_does(broker: Broker) -> None:
    rng = random.Random(15)
    letters = "abcäß漢😀 0123456789"
    keys = ["".join(rng.choices(letters, k=length)) for length in range(40) for _ in range(5)]
    javas = java_partitions(broker.address, make_topic(broker.address, partitions=7), keys)
    ours = make_topic(broker.address, partitions=7)
    placed = produce(broker.address, ours, [Record(key.encode(), b"") for key in javas])
    assert [partition for partition, _ in placed] == list(javas.values())
    hashes = java_murmur2([key.encode() for key in javas])
    assert [(number & 0x7FFFFFFF) % 7 for number in hashes] == list(javas.values())


def test_javas_hash_takes_any_bytes(broker: Broker) -> None:
    keys = [b"21", b"foobar", b"a-little-bit-long-string", b"abc"]
    assert java_murmur2(keys) == [-973932308, -790332482, -985981536, 479470107]


def test_java_says_what_it_could_not_write(broker: Broker) -> None:
    topic = make_topic(broker.address, config={"max.message.bytes": "1000"})
    with pytest.raises(RuntimeError, match="RecordTooLarge"):
        java_produce(broker.address, topic, [("k", "x" * 5000)])
