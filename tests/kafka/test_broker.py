"""The broker of the tests itself: what tests rely on, shown once.

In: the shared broker, and one of its own. Out: transactions, groups, compaction, deletion, kills behave as Kafka's.
Rule: nothing of Braid is used here.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from kafka.broker import Broker
from kafka.clients import (
    Record,
    add_partitions,
    await_compaction,
    consume,
    delete_records,
    ends,
    fresh,
    group_offsets,
    make_compacted,
    make_topic,
    open_transaction,
    partition_count,
    produce,
    produce_transaction,
    recreate_topic,
    send,
    settings,
    topic_id,
)

pytestmark = pytest.mark.kafka


def numbered(first: int, count: int) -> list[Record]:
    return [Record(b"k%d" % i, b"v%d" % i, 1_700_000_000_000 + i, partition=0) for i in range(first, first + count)]


def test_a_record_comes_back_as_it_was_written(broker: Broker) -> None:
    topic = make_topic(broker.address, partitions=3)
    headers = (("a", b"\x00\xff"), ("a", None), ("b", b""))
    written = [
        Record(b"key", b"value", 1_700_000_000_000, headers, 2),
        Record(None, b"no key", 1, (), 1),
        Record(b"key", None, 1_700_000_000_001, (), 2),
    ]
    assert produce(broker.address, topic, written) == [(2, 0), (1, 0), (2, 1)]
    found = [Record(r.key, r.value, r.time, r.headers, r.partition) for r in consume(broker.address, topic)]
    assert found == [written[1], written[0], written[2]]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(broker: Broker) -> None:
    topic = make_topic(broker.address)
    produce_transaction(broker.address, topic, numbered(0, 3))
    produce_transaction(broker.address, topic, numbered(3, 3), commit=False)
    produce_transaction(broker.address, topic, numbered(6, 3))
    assert [r.value for r in consume(broker.address, topic)] == [b"v%d" % i for i in (0, 1, 2, 6, 7, 8)]
    assert len(consume(broker.address, topic, committed=False)) == 9
    assert ends(broker.address, topic) == {0: 12}  # three markers lie between them


def test_an_open_transaction_holds_the_end_back(broker: Broker) -> None:
    topic = make_topic(broker.address)
    produce(broker.address, topic, numbered(0, 2))
    with open_transaction(broker.address) as producer:
        send(producer, topic, numbered(2, 5))
        assert (ends(broker.address, topic), ends(broker.address, topic, committed=False)) == ({0: 2}, {0: 7})
        assert len(consume(broker.address, topic)) == 2
    assert ends(broker.address, topic) == {0: 8}
    assert len(consume(broker.address, topic)) == 2  # all behind it was aborted, and the end is found all the same


def test_a_second_producer_of_one_id_fences_the_first(broker: Broker) -> None:
    topic, id = make_topic(broker.address), fresh("tx")
    with open_transaction(broker.address, id) as first:
        send(first, topic, numbered(0, 2))
        produce_transaction(broker.address, topic, numbered(2, 2), id=id)
        with pytest.raises(KafkaException) as failure:
            first.commit_transaction(10)
    assert failure.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert [r.value for r in consume(broker.address, topic)] == [b"v2", b"v3"]


def test_a_group_commits_alone_and_in_a_transaction(broker: Broker) -> None:
    topic, group = make_topic(broker.address), fresh("group")
    produce(broker.address, topic, numbered(0, 4))
    consumer = Consumer(
        settings(broker.address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
    )
    consumer.subscribe([topic])
    read = consumer.consume(2, 20)
    consumer.commit(read[-1], asynchronous=False)
    assert group_offsets(broker.address, group) == {(topic, 0): 2}
    with open_transaction(broker.address) as producer:
        position = consumer.position(consumer.assignment())
        position[0].offset = 4
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 10)
        producer.commit_transaction(10)
    assert group_offsets(broker.address, group) == {(topic, 0): 4}
    consumer.close()


def test_keys_lie_where_javas_murmur2_puts_them(broker: Broker) -> None:
    topic = make_topic(broker.address, partitions=8)
    keys = [b"21", b"foobar", b"a-little-bit-long-string", b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", b"abc"]
    known = [-973932308, -790332482, -985981536, -58897971, 479470107]  # the vectors of Kafka's own tests
    placed = produce(broker.address, topic, [Record(key, b"") for key in keys])
    assert [partition for partition, _ in placed] == [(number & 0x7FFFFFFF) % 8 for number in known]


def test_the_broker_can_set_the_time(broker: Broker) -> None:
    topic = make_topic(broker.address, config={"message.timestamp.type": "LogAppendTime"})
    produce(broker.address, topic, numbered(0, 1))
    (read,) = consume(broker.address, topic)
    assert read.kind == 2
    assert read.time > 1_700_000_000_000


def test_a_topic_made_anew_has_another_id_and_no_records(broker: Broker) -> None:
    topic = make_topic(broker.address, partitions=2)
    before = topic_id(broker.address, topic)
    produce(broker.address, topic, numbered(0, 5))
    recreate_topic(broker.address, topic)
    assert topic_id(broker.address, topic) != before
    assert (partition_count(broker.address, topic), consume(broker.address, topic)) == (2, [])


def test_records_are_deleted_up_to_an_offset_and_partitions_added(broker: Broker) -> None:
    topic = make_topic(broker.address)
    produce(broker.address, topic, numbered(0, 5))
    assert delete_records(broker.address, topic, {0: 3}) == {0: 3}
    assert [r.offset for r in consume(broker.address, topic)] == [3, 4]
    assert delete_records(broker.address, topic, {0: 5}) == {0: 5}
    assert consume(broker.address, topic) == []
    add_partitions(broker.address, topic, 3)
    produce(broker.address, topic, [Record(b"k", b"v", partition=2)])
    assert [(r.partition, r.offset) for r in consume(broker.address, topic)] == [(2, 0)]


def test_a_compacted_topic_keeps_the_last_of_each_key(broker: Broker) -> None:
    topic = make_compacted(broker.address)
    rounds = [Record(b"k%d" % key, b"v%d" % turn) for turn in range(5) for key in range(4)]
    produce(broker.address, topic, [*rounds, Record(b"k0", None)])
    left = await_compaction(broker.address, topic, 4)
    assert {r.key: r.value for r in left} == {b"k0": None, b"k1": b"v4", b"k2": b"v4", b"k3": b"v4"}
    assert min(r.offset for r in left) == 17  # offsets have gaps then


def test_a_topic_that_does_not_exist_is_not_made(broker: Broker) -> None:
    short = {"message_timeout_ms": 2000, "topic_metadata_propagation_max_ms": 500}
    with pytest.raises(KafkaException) as failure:
        produce(broker.address, fresh(), numbered(0, 1), **short)
    unknown = (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
    assert failure.value.args[0].code() in unknown


def test_the_shared_broker_is_nobodys_to_kill(broker: Broker) -> None:
    if not broker.shared:
        pytest.skip("it is our own: BRAID_TESTS_KEEP=0")
    with pytest.raises(RuntimeError, match="shared"):
        broker.kill()


def test_what_was_written_outlives_kill_9(fresh_broker: Broker) -> None:
    address = fresh_broker.address
    topic = make_topic(address, partitions=2)
    produce_transaction(address, topic, numbered(0, 100))
    produce_transaction(address, topic, numbered(100, 50), commit=False)
    with open_transaction(address, "left-open") as producer:
        send(producer, topic, numbered(150, 7))
        before, id = consume(address, topic), topic_id(address, topic)
        fresh_broker.kill()
        assert not fresh_broker.running
        fresh_broker.start()
        assert fresh_broker.address == address
        assert consume(address, topic) == before
        assert len(before) == 100
        assert topic_id(address, topic) == id
    produce_transaction(address, topic, numbered(157, 3), id="left-open")
    assert [r.value for r in consume(address, topic)][100:] == [b"v157", b"v158", b"v159"]


def test_a_client_goes_on_after_a_clean_restart(fresh_broker: Broker) -> None:
    topic = make_topic(fresh_broker.address)
    producer = Producer(settings(fresh_broker.address, enable_idempotence=True))
    send(producer, topic, numbered(0, 10))
    fresh_broker.stop()
    producer.produce(topic, key=b"k10", value=b"v10", partition=0, timestamp=1_700_000_000_010)
    fresh_broker.start()
    assert producer.flush(20) == 0
    assert [r.value for r in consume(fresh_broker.address, topic)] == [b"v%d" % i for i in range(11)]
