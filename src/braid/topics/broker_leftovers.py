"""What a query leaves at its broker besides records: consumer groups, open transactions, marks of statements.

In: a query, one life of its checkpoint. Out: nothing of it is left. In: a topic. Out: the statements that wrote it.
Rule: who still writes for that life, such as the orphan of a killed run, cannot any more: its transactional ids are
taken over first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from braid.errors import BraidError
from braid.topics.broker import ENDLESS, WAIT, Broker, asked, group_admin, producer, refused, told


def remove(broker: Broker, query: str, run: str, tasks: int) -> list[str]:
    """The groups that are gone: that of the markers, and that of the offsets. `tasks`: how many wrote."""
    if broker.exactly_once:
        for name in (f"braid.{run}.{task}" for task in range(tasks)):
            made = producer(broker, name, lambda: None)
            asked(broker, f"end the transactions of {name}", partial(made.init_transactions, WAIT))
    return list(_groups_gone(broker, [f"braid.{run}", f"braid.{query}"]))


def _groups_gone(broker: Broker, groups: list[str]) -> Iterator[str]:
    for group in groups:
        what = f"delete the group {group}"
        if asked(broker, what, partial(_gone, broker, what, group)):
            yield group


def _gone(broker: Broker, what: str, group: str) -> bool:
    """False where there was none."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        told(broker, what, group_admin(broker).delete_consumer_groups([group], request_timeout=ENDLESS)[group])
    except KafkaException as e:
        if e.args[0].code() == KafkaError.NON_EMPTY_GROUP:
            raise BraidError(f"the group {group} has members: something reads as it", "stop it first") from None
        if e.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise
        return False
    return True


_ONCE = re.compile(r"braid\.((insert|update|delete)[.-][0-9a-f]{24}(\.old)?)")


def once(broker: Broker, topic: str) -> set[str]:
    """The names of the statements that have a marker at a topic. Groups whose markers the broker has forgotten are none
    any more."""
    what = f"the statements that wrote {topic}"

    def listed() -> list[str]:
        found = told(broker, what, group_admin(broker).list_consumer_groups(request_timeout=ENDLESS))
        for error in found.errors or ():  # of one of several brokers: what it knows is not among the others
            raise error
        return [g.group_id for g in found.valid or ()]

    groups = [m for m in map(_ONCE.fullmatch, asked(broker, what, listed)) if m is not None]
    return {m[1] for m in groups if asked(broker, what, partial(_marks, broker, what, m[0], topic))}


def _marks(broker: Broker, what: str, group: str, topic: str) -> bool:
    from confluent_kafka import ConsumerGroupTopicPartitions

    answers = group_admin(broker).list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=ENDLESS
    )
    places = told(broker, what, answers[group]).topic_partitions or ()
    for at in places:
        if at.error is not None:
            raise refused(broker, what, at.error)
    return any(at.topic == topic and at.offset >= 0 for at in places)
