"""What a query needs of its broker, asked before it starts.

In: a broker, the topics that a query reads and writes. Out: what records a topic takes; or one line that says what is
missing, and what to do.
Rule: nothing is left behind: a topic is not made, and the transaction that is tried is given up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import uuid4

from braid.errors import BraidError
from braid.topics.broker import (
    ENDLESS,
    WAIT,
    Broker,
    NotPermitted,
    admin,
    asked,
    consumer,
    group_admin,
    producer,
    refused,
    told,
)
from braid.topics.files import check_name
from braid.topics.interface import Topics
from braid.topics.kafka import KafkaTopics

TRIED, LONG = 5.0, 15.0  # s for each call of a first transaction; in which one may be made again
APPEND_TIME = "LogAppendTime"
ASK = "give this user the right: docs/kafka.md, Security"


def check(topics: Topics, query: str, reads: Iterable[str], writes: str | None) -> None:
    """Whether a query may run. Topics that are not there yet are made by others, or by its start. `writes`: the
    result's topic; None where it goes elsewhere."""
    assert isinstance(topics, KafkaTopics)
    broker, reads = topics.broker, sorted(set(reads))
    for topic in reads:
        if topics.exists(topic):
            permitted(broker, topic, "READ")
    if broker.dead_letters is not None:
        _check_dead_letters(broker.dead_letters, query, {*reads, writes})
    for to in (writes, broker.dead_letters):
        if to is not None and not topics.exists(to):
            topics.create(to, try_only=True)
        elif to is not None:
            takes(broker, to, dead_letters=to == broker.dead_letters)
    if writes is not None and broker.exactly_once:
        try_transaction(broker, query, writes if topics.exists(writes) else None)


def _check_dead_letters(topic: str, query: str, others: Collection[str | None]) -> None:
    check_name(topic)
    if None in others:
        what = (
            f"--dead-letters {topic}: the result of {query} does not go to a topic, with which dead letters are written"
        )
        raise BraidError(what, "leave it out; drops are read by braid drops")
    if topic in others:
        raise BraidError(f"--dead-letters {topic}: {query} reads or writes it", "name a topic of its own")


def permitted(broker: Broker, topic: str, *operations: str) -> None:
    """Refuses a topic with which the user may not do all of this."""
    from confluent_kafka import TopicCollection

    what = f"topic {topic}"

    def described() -> Any:
        found = admin(broker).describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=WAIT
        )
        return found[topic].result(WAIT + 2)

    may = asked(broker, what, described).authorized_operations
    for operation in operations:
        if may is not None and operation not in {x.name for x in may}:
            raise NotPermitted(f"{what}: the broker does not permit to {operation} it", ASK)


@dataclass(frozen=True, slots=True)
class Takes:
    """What a topic takes: batches of records of at most `largest` bytes; `keyed`: only records with keys; `early`:
    times before 1970, too. A broker that compresses batches anew refuses all of one that holds such a time."""

    largest: int
    keyed: bool
    early: bool


def takes(broker: Broker, topic: str, dead_letters: bool = False) -> Takes:
    """A topic that may not be written is refused, and for results one that sets times of its own."""
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    # a marker is an offset of the topic, for which a broker asks READ
    permitted(broker, topic, "WRITE", *(["READ"] if broker.exactly_once and not dead_letters else []))
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def described() -> Any:
        (found,) = admin(broker).describe_configs([resource], request_timeout=WAIT).values()
        return found.result(WAIT + 2)

    settings = asked(broker, f"settings of the topic {topic} (DESCRIBE_CONFIGS)", described)
    if settings["message.timestamp.type"].value == APPEND_TIME and not dead_letters:
        raise BraidError(
            f"the topic {topic} has times of the broker's own (message.timestamp.type={APPEND_TIME}): those of results"
            " would be lost",
            f"set message.timestamp.type=CreateTime for {topic}, or write to another topic",
        )
    compacted = "compact" in (settings["cleanup.policy"].value or "").split(",")
    if dead_letters and compacted:
        what = f"--dead-letters {topic}: the topic is compacted, and keeps the last dead letter of a key only"
        raise BraidError(what, f"set cleanup.policy=delete for {topic}, or name another topic")
    early = settings["compression.type"].value == "producer"
    return Takes(int(settings["max.message.bytes"].value or 0), compacted, early)


@lru_cache(maxsize=64)
def try_transaction(broker: Broker, query: str, topic: str | None) -> None:
    """Begins a transaction as a task of the query does, and gives it up."""
    from confluent_kafka import KafkaException, TopicPartition

    name = f"braid.{query}-try-{uuid4().hex[:6]}"
    made, group = producer(broker, name, lambda: None), consumer(broker, name)

    def tried(call: Callable[[], Any]) -> None:
        deadline = time.monotonic() + LONG
        while True:
            try:
                call()
                return
            except KafkaException as e:
                error = e.args[0]
            if not error.retriable() or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        why = refused(broker, f"a transaction of {name}", error)
        if isinstance(why, NotPermitted):
            raise why
        what = f"the broker at {broker.address} takes no transactions: {error.str()}"
        hint = "with --at-least-once none are used: a row may be written twice then, where a run ended badly"
        raise BraidError(what, hint)

    try:
        asked(broker, "list the topics", lambda: made.list_topics(timeout=WAIT))
        tried(lambda: made.init_transactions(TRIED))
        made.begin_transaction()
        if topic is not None:
            place = TopicPartition(topic, 0, 1)
            tried(lambda: made.send_offsets_to_transaction([place], group.consumer_group_metadata(), TRIED))
        tried(lambda: made.abort_transaction(TRIED))
    finally:
        group.close()
        if topic is not None:
            for gone in group_admin(broker).delete_consumer_groups([name], request_timeout=ENDLESS).values():
                with contextlib.suppress(KafkaException, BraidError):  # without the right it goes after some minutes
                    told(broker, f"the group {name}", gone)


def check_speculation(speculation: str | None) -> None:
    """Refuses to let two attempts of one task write at a time: each would end the other's transaction."""
    if (speculation or "").lower() == "true":
        raise BraidError("spark.speculation does not go with --kafka: attempts of a task end each other", "turn it off")
