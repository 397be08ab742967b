"""Records written to a broker exactly once.

In: what a task writes of a batch, under a name that only this task of this query has. Out: the records, seen by readers
of committed records whole or not at all, once.
Rule: rows and a marker are one transaction. The marker is an offset of a group of its own: the number of the batch, and
a digest of what the batch reads. The start of a transaction's name ends every older writer of it; then the marker is
read: it says this batch (which was written, and is not written again), or the one before. Anything else is refused,
as markers expire on brokers, and a checkpoint may have been put back from a copy.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import polars as pl

from braid.errors import BraidError
from braid.topics.broker import WAIT, Broker, admin, asked, consumer, forget, kept, producer, refused

if TYPE_CHECKING:
    from confluent_kafka import Producer

COMMIT = 120.0  # s
DIGEST = 32  # characters
POLL = 10_000  # records between two looks at what was delivered


class Transaction:
    """One task's part of a batch: `done` where it was written before. `run`: one life of a query; `task`: the number of
    the writing task, and of the partition of the topic at which its marker stands. Without a `digest` there is no
    marker: records of nobody's."""

    def __init__(self, broker: Broker, topic: str, run: str, task: int, batch: int, digest: str | None) -> None:
        self.broker, self.topic, self.batch = broker, topic, batch
        self.name, self._group, self._task = f"braid.{run}.{task}", f"braid.{run}", task
        self._digest = None if digest is None else digest[:DIGEST]
        self.count = 0
        self._producer = self._fenced(new=False)
        self.done = self._digest is not None and self._look()
        if not self.done:
            self._begin()

    def write(
        self, partitions: pl.Series, keys: pl.Series, values: pl.Series, times: pl.Series, headers: pl.Series | None
    ) -> None:
        """Records in their order. Nothing where it is `done`."""
        self.count += len(keys)
        if self.done:
            return
        from confluent_kafka import KafkaException

        produce, poll = self._producer.produce, self._producer.poll
        rows = zip(
            partitions.to_list(),
            keys.to_list(),
            values.to_list(),
            times.to_list(),
            [None] * len(keys) if headers is None else map(_headers, headers.to_list()),
            strict=True,
        )
        topic = self.topic
        for sent, (partition, key, value, time, header) in enumerate(rows, 1):
            while True:
                try:
                    produce(topic, value, key, partition, None, None, time, header)
                    break
                except BufferError:
                    poll(0.1)
                except KafkaException as e:
                    raise refused(self.broker, f"write to the topic {topic}", e.args[0]) from None
            if sent % POLL == 0:
                poll(0)

    def commit(self) -> None:
        """Rows and marker are there."""
        if self.done:
            return
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.commit_transaction(COMMIT)
                return
            except KafkaException as e:
                if e.args[0].retriable():
                    continue
                self.abort()
                raise refused(self.broker, f"write to the topic {self.topic}", e.args[0]) from None

    def forget(self) -> None:
        """The producer is not kept: no other batch will come."""
        forget("producer", self.broker, self.name)
        forget("group", self.broker, self._group)

    def abort(self) -> None:
        """Nothing of it is ever seen."""
        from confluent_kafka import KafkaException

        if self.done:
            return
        try:
            self._producer.abort_transaction(WAIT)
        except KafkaException:
            pass  # the broker does, when another begins under this name, or after a minute
        finally:
            forget("producer", self.broker, self.name)

    # -- the marker -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The transaction, with its marker first: that also finds out whether a kept producer is still the one."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        marker = TopicPartition(self.topic, self._task, self.batch + 1, self._digest or "")
        for attempt in (1, 2):
            try:
                self._producer.begin_transaction()
                if self._digest is None:
                    return
                self._producer.send_offsets_to_transaction([marker], self._membership(), COMMIT)
                return
            except KafkaException as e:
                ended = e.args[0].code() in (
                    KafkaError._FENCED,
                    KafkaError.INVALID_PRODUCER_EPOCH,
                    KafkaError.PRODUCER_FENCED,
                    KafkaError.INVALID_PRODUCER_ID_MAPPING,
                    KafkaError._STATE,
                )
                if attempt == 2 or not ended:
                    forget("producer", self.broker, self.name)
                    raise refused(self.broker, f"write to the topic {self.topic}", e.args[0]) from None
                self._producer = self._fenced(new=True)
                self.done = self._look()
                if self.done:
                    return

    def _membership(self) -> Any:
        return kept(
            "group", self.broker, self._group, lambda: consumer(self.broker, self._group)
        ).consumer_group_metadata()

    def _fenced(self, new: bool) -> Producer:
        """The producer of this name; a new one ends all others of it, wherever they are."""
        if new:
            forget("producer", self.broker, self.name)

        def made() -> Producer:
            found = producer(self.broker, self.name)
            asked(self.broker, f"write to the topic {self.topic}", lambda: found.init_transactions(COMMIT))
            return found

        return kept("producer", self.broker, self.name, made)

    def _look(self) -> bool:
        """Whether the batch was written."""
        number, digest = self._marker()
        if number == self.batch and digest == self._digest:
            return True
        if number == self.batch - 1:
            return False
        if number == self.batch:
            what = f"batch {self.batch} of {self._group} was written of other records than it is made of now"
        elif number < 0:
            what = f"the broker has forgotten how far {self._group} has written {self.topic}"
        else:
            what = f"{self._group} has written batch {number} to {self.topic}; the checkpoint is at batch {self.batch}"
        hint = "the checkpoint and the topic do not belong together any more: braid reset QUERY lets it begin anew"
        raise BraidError(what, hint)

    def _marker(self) -> tuple[int, str]:
        """The number of the last batch that was written; -1 where there is none."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        place = TopicPartition(self.topic, self._task)
        request = [ConsumerGroupTopicPartitions(self._group, [place])]
        what = f"the marker of {self._group}"
        found = asked(
            self.broker,
            what,
            lambda: (
                admin(self.broker)
                .list_consumer_group_offsets(request, require_stable=True, request_timeout=COMMIT)[self._group]
                .result(COMMIT + 2)
            ),
        )
        (at,) = found.topic_partitions
        if at.error is not None:
            raise refused(self.broker, what, at.error)
        return (-1, "") if at.offset < 0 else (at.offset - 1, at.metadata or "")


def _headers(text: str | None) -> list[tuple[str, str | bytes | None]] | None:
    if text is None:
        return None
    return [(n, None if x is None else base64.b64decode(x)) for n, x in json.loads(text)]
