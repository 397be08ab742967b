"""A broker that answers, and cannot do it just now: leaders and coordinators are found anew, a topic was just made.

In: a real broker, and clients whose first requests of each kind fail with errors that pass. Out: the same as without.
Rule: it is waited for at every call, by what the client itself says of the error; what does not pass is told at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, KafkaException

from braid.errors import BraidError
from braid.store import opened
from braid.topics import access, broker_leftovers, kafka, transactions
from braid.topics import broker as clients
from braid.topics.broker import Broker as Kafka
from braid.topics.broker import NotReady, asked
from braid.topics.kafka import KafkaTopics
from braid.topics.transactions import writing
from kafka.broker import Broker
from kafka.clients import consume, fresh, make_topic

pytestmark = pytest.mark.kafka

PASSING = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")
TIMES = 2  # that each kind of request fails


class Failing(dict[Any, Any]):
    """Answers of a request, all of them errors."""

    def __init__(self, keys: Iterable[Any], error: KafkaException) -> None:
        self._error = error
        super().__init__((key, self[key]) for key in keys)

    def __missing__(self, key: Any) -> Future[Any]:
        made: Future[Any] = Future()
        made.set_exception(self._error)
        return made


class Restless:
    """A client whose first requests of each kind fail."""

    failed: Counter[str]

    def __init__(self, client: Any, failed: Counter[str], code: str) -> None:
        self._client, self._failed = client, failed
        self._error = KafkaException(KafkaError(getattr(KafkaError, code), "not now", retriable=True))

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)
        if name == "poll":
            return real

        def call(*words: Any, **more: Any) -> Any:
            if self._failed[name] >= TIMES:
                return real(*words, **more)
            self._failed[name] += 1
            if name == "list_topics":
                raise self._error
            if name == "list_consumer_groups":
                return Failing([], self._error)[None]
            return Failing(map(_key, words[0]) if isinstance(words[0], list | dict) else [], self._error)

        return call


def _key(wanted: Any) -> Any:
    """By what an answer to one of a request's things is found."""
    return getattr(wanted, "group_id", wanted.topic if type(wanted).__name__ == "NewTopic" else wanted)


@pytest.fixture(params=PASSING)
def restless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    failed = Counter[str]()
    for module in (access, kafka, broker_leftovers, transactions):
        for name in ("admin", "group_admin"):
            if hasattr(module, name):
                real: Callable[[Kafka], Any] = getattr(clients, name)
                made = lambda broker, real=real: Restless(real(broker), failed, request.param)  # noqa: E731
                monkeypatch.setattr(module, name, made)
    return failed


def test_every_request_is_made_again(broker: Broker, tmp_path: Path, restless: Counter[str]) -> None:
    address = Kafka(broker.address)
    topics, name, run = KafkaTopics(opened(tmp_path), address), fresh("t"), fresh("run")

    def again(what: Callable[[], Any]) -> Any:
        """With each kind of request failing at first."""
        restless.clear()
        found = what()
        assert restless and set(restless.values()) == {TIMES}, restless
        return found

    again(lambda: topics.create(name, 2))
    assert again(topics.sizes)[name] == 2
    assert again(lambda: topics.partitions(name)) == 2 and again(lambda: topics.identity(name))
    assert again(lambda: topics.end_offsets(name)) == again(lambda: topics.start_offsets(name)) == [0, 0]
    again(lambda: access.permitted(address, name, "READ"))
    assert again(lambda: access.takes(address, name)).largest > 0

    def write() -> None:
        made = writing(address, {name: 1_000_000}, run, 0, 0, "digest")
        made.write(name, *(pl.Series([x]) for x in (0, b"k", b"v", 1_700_000_000_000)), None)
        made.commit()

    again(write)
    topics.settle(name)
    assert [r.value for r in consume(broker.address, name)] == [b"v"]
    again(lambda: transactions.mark(address, name, run, [1], 0))
    assert again(lambda: broker_leftovers.once(address, name)) == set()
    assert again(lambda: broker_leftovers.remove(address, "q", run, 2)) == [f"braid.{run}"]
    again(lambda: topics.delete(name))
    assert not again(lambda: topics.exists(name))


def test_what_stays_is_told(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    address, asks = Kafka(broker.address), Counter[str]()

    def never(code: str, retriable: bool) -> None:
        asks[code] += 1
        raise KafkaException(KafkaError(getattr(KafkaError, code), "not now", retriable=retriable))

    monkeypatch.setattr(clients, "SETTLE", 0.3)
    with pytest.raises(NotReady, match=r"offsets: the broker at .* is not ready: not now"):
        asked(address, "offsets", lambda: never("NOT_LEADER_FOR_PARTITION", True))
    assert asks["NOT_LEADER_FOR_PARTITION"] > 2
    for code in ("TOPIC_AUTHORIZATION_FAILED", "INVALID_CONFIG", "INVALID_PRODUCER_EPOCH"):
        with pytest.raises(BraidError):
            asked(address, "offsets", lambda code=code: never(code, False))
        assert asks[code] == 1


def test_nobody_there_is_told_after_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after the time that one which answers has."""
    looks = Counter[str]()
    real = clients.admin
    monkeypatch.setattr(kafka, "WAIT", 0.5)
    monkeypatch.setattr(kafka, "admin", lambda broker: looks.update(["look"]) or real(broker))
    with pytest.raises(BraidError, match=r"no broker answers at 127.0.0.1:1"):
        KafkaTopics(opened(tmp_path), Kafka("127.0.0.1:1")).names()
    assert looks["look"] == 1


def test_a_topic_that_was_just_made_is_read_at_once(broker: Broker, tmp_path: Path) -> None:
    for _ in range(20):
        topics, name = KafkaTopics(opened(tmp_path), Kafka(broker.address)), make_topic(broker.address, partitions=4)
        assert topics.end_offsets(name) == [0] * 4 and topics.identity(name)
