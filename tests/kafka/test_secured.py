"""The secured broker of the tests: a wrong password, no permission, a permission.

In: one user. Out: the client's error codes, which Braid turns into lines.
Rule: nothing of Braid is used here.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from kafka.broker import Broker
from kafka.clients import Record, consume, make_topic, produce, send, settings
from kafka.conftest import had
from kafka.secured import allow, login, secured_broker

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with had(secured_broker({"ann": "right"})) as server:
        yield server


def test_a_user_may_what_was_granted(secured: Broker) -> None:
    topic = make_topic(secured.address)
    produce(secured.address, topic, [Record(b"k", b"admin")])
    with pytest.raises(KafkaException) as failure:
        send(Producer(settings(secured.address) | login("ann", "right")), topic, [Record(b"k", b"ann")])
    assert failure.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(secured.address, "ann", "WRITE", "TOPIC", topic)
    send(Producer(settings(secured.address) | login("ann", "right")), topic, [Record(b"k", b"ann")])
    assert [r.value for r in consume(secured.address, topic)] == [b"admin", b"ann"]


def test_a_wrong_password_is_refused(secured: Broker) -> None:
    told: list[int] = []
    wrong = settings(secured.address) | {"log_level": 0} | login("ann", "wrong")
    producer = Producer(wrong | {"error_cb": lambda error: told.append(error.code())})
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=3)
    producer.poll(0)
    assert KafkaError._AUTHENTICATION in told
