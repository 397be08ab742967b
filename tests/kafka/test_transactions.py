"""What a task writes in one transaction, by itself.

In: the shared broker. Out: whether a batch was written, and what of it is read.
Rule: what has not settled is waited for, never taken for missing.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Timer

import polars as pl
import pytest
from confluent_kafka import Consumer, TopicPartition

from braid.store import opened
from braid.topics import broker as clients
from braid.topics.broker import Broker as Kafka
from braid.topics.broker import BrokerAway
from braid.topics.interface import open_topics
from braid.topics.kafka import KafkaTopics
from braid.topics.store_value import Store
from braid.topics.transactions import writing
from kafka.broker import Broker
from kafka.clients import consume, fresh, make_topic, open_transaction, settings

pytestmark = pytest.mark.kafka
# In `make test`, too; but for the first test, in which the process died twice inside of the client on a busy machine.
short = pytest.mark.kafka_short


def test_a_marker_that_has_not_settled_is_waited_for(broker: Broker) -> None:
    topic, run = make_topic(broker.address), fresh("run")
    first = writing(Kafka(broker.address), {topic: 1_000_000}, run, 0, 0, "digest")
    first.commit()
    first.forget()
    group = Consumer(settings(broker.address, group_id=f"braid.{run}"))
    with open_transaction(broker.address) as other:
        other.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], group.consumer_group_metadata(), 10)
        end = Timer(2.0, other.abort_transaction, [10])
        end.start()
        again = writing(Kafka(broker.address), {topic: 1_000_000}, run, 0, 0, "digest")
        end.join()
    assert again.done
    again.forget()
    group.close()


@short
def test_what_is_added_is_there_at_once(broker: Broker, tmp_path: Path) -> None:
    topics, name = open_topics(Store(opened(str(tmp_path)), Kafka(broker.address))), fresh("t")
    topics.create(name)
    ends = []
    for n in range(100):
        topics.append(name, [{"key": "1", "value": str(n), "timestamp": 1_700_000_000_000}])
        ends += topics.end_offsets(name)
    assert ends == [2 * n + 2 for n in range(100)]  # each with its marker


@short
def test_what_is_committed_is_no_failure(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told that it failed writes it again."""
    topics, name = open_topics(Store(opened(str(tmp_path)), Kafka(broker.address))), fresh("t")
    topics.create(name)

    def away(*_: object, **__: object) -> list[int]:
        raise BrokerAway("the broker does not answer", "try again")

    with monkeypatch.context() as gone:
        gone.setattr(KafkaTopics, "_offsets", away)
        assert topics.append(name, [{"key": "1", "value": "1", "timestamp": 1_700_000_000_000}])
    topics.settle(name)
    assert topics.end_offsets(name) == [2]


THREADS = Path("/proc/self/task")


@short
@pytest.mark.skipif(not THREADS.exists(), reason="needs /proc to count threads")
def test_clients_of_queries_that_ended_end(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's Python processes outlive a query."""
    topic, address = make_topic(broker.address), Kafka(broker.address)
    for _ in range(5):
        writing(address, {topic: 1_000_000}, fresh("run"), 0, 0, "digest").commit()
    many = len([*THREADS.iterdir()])
    monkeypatch.setattr(clients, "IDLE", 0.0)
    deadline = time.monotonic() + 10
    while len([*THREADS.iterdir()]) > many - 5 * 3 and time.monotonic() < deadline:
        clients.admin(address)
        time.sleep(0.1)
    assert len([*THREADS.iterdir()]) <= many - 5 * 3


@short
def test_a_query_that_rests_longer_than_its_clients_are_kept(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "IDLE", 0.01)
    topic, run = make_topic(broker.address), fresh("run")
    for batch in range(3):
        made = writing(Kafka(broker.address), {topic: 1_000_000}, run, 0, batch, f"digest {batch}")
        assert not made.done
        made.write(topic, *(pl.Series([x]) for x in (0, b"k", b"%d" % batch, 1_700_000_000_000)), None)
        time.sleep(0.02)
        clients.admin(Kafka(broker.address))  # in the midst of its transaction
        made.commit()
        time.sleep(0.02)
        clients.admin(Kafka(broker.address))
    again = writing(Kafka(broker.address), {topic: 1_000_000}, run, 0, 2, "digest 2")
    assert again.done
    assert [r.value for r in consume(broker.address, topic)] == [b"0", b"1", b"2"]
