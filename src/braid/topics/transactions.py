"""Records written to a broker exactly once; or at least once, where it knows no transactions.

In: what a task writes of a batch, under a name that only this task of this query has. Out: the records, seen by readers
of committed records whole or not at all, once.
Rule: rows and a marker are one transaction. The marker is an offset of a group of its own: the number of the batch, and
a digest of what the batch reads. The start of a transaction's name ends every older writer of it; then the marker is
read: it says this batch (which was written, and is not written again), or the one before. Anything else is refused,
as markers expire on brokers, and a checkpoint may have been put back from a copy. Without transactions there is no
marker either: a batch that is done again is written again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import polars as pl

from braid.errors import BraidError
from braid.topics.broker import (
    ENDLESS,
    PATIENCE,
    WAIT,
    Broker,
    BrokerAway,
    NotReady,
    asked,
    consumer,
    forget,
    group_admin,
    kept,
    patiently,
    producer,
    refused,
    told,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

COMMIT = 120.0  # s
DIGEST = 32  # characters
LATER = "try again when it has settled"
HANGS = "if it stays so, a killed broker has left a transaction without an end: docs/kafka.md, A transaction that hangs"
BATCH, RECORD, HEADER = 61, 22, 10  # bytes that a batch, a record in it and a header have besides what is in them
POLL = 10_000  # records between two looks at what was delivered


class _Kept:
    """A producer for the next batch, and the last one that it has written. Once it has lost its broker it is `lost`:
    it may not find back to a transaction, and a new one does at once."""

    producer: Producer | None = None
    batch: int | None = None

    def __init__(self) -> None:
        self.lost = Event()  # all that the producer knows of this: without a circle, it ends when it is given up

    def ready(self, batch: int) -> bool:
        """Whether it may go on with this batch."""
        if self.producer is None or self.batch != batch - 1:
            return False
        self.producer.poll(0)  # it tells of its errors then
        return not self.lost.is_set()


def writing(broker: Broker, sizes: Mapping[str, int], run: str, task: int, batch: int, digest: str | None) -> Writing:
    """`sizes`: the topics, the result's first, and the bytes of the largest batch of records of each. `run`: one life
    of a query; `task`: the number of the writing task, and of the partition of the result's topic at which its marker
    stands. Without a `digest` there is no marker: records of nobody's."""
    if not broker.exactly_once:
        return _AtLeastOnce(broker, sizes, f"braid.{run}.{task}")
    return Transaction(broker, sizes, run, task, batch, digest)


class Writing(ABC):
    """One task's part of a batch: `done` where it was written before; `count`: how many records."""

    _told: Any = None  # whom the producer tells of each record

    def __init__(self, broker: Broker, sizes: Mapping[str, int], name: str) -> None:
        self.broker, self.name = broker, name
        self._sizes, self._topic = sizes, next(iter(sizes))
        self._kept = kept("producer", broker, name, _Kept)
        self.count, self.done = 0, False

    def write(
        self,
        topic: str,
        partitions: pl.Series,
        keys: pl.Series,
        values: pl.Series,
        times: pl.Series,
        headers: pl.Series | None,
    ) -> None:
        """Records in their order. Nothing where it is `done`."""
        if topic == self._topic:
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
            [None] * len(keys) if headers is None else map(headers_of, headers.to_list()),
            strict=True,
        )
        for sent, (partition, key, value, at, header) in enumerate(rows, 1):
            deadline = 0.0
            while True:
                try:
                    produce(topic, value, key, partition, None, self._told, at, header)
                    break
                except BufferError:
                    now = time.monotonic()
                    deadline = deadline or now + PATIENCE
                    if now > deadline:
                        raise BrokerAway(f"{self._what}: the broker takes no records", LATER) from None
                    poll(0.1)
                except KafkaException as e:
                    raise refused(self.broker, self._what, e.args[0]) from None
            if sent % POLL == 0:
                poll(0)

    @abstractmethod
    def commit(self) -> None:
        """All of it is there."""

    @abstractmethod
    def abort(self) -> None: ...

    def forget(self) -> None:
        """The producer is not kept: no other batch will come."""
        forget("producer", self.broker, self.name)

    @property
    def _producer(self) -> Producer:
        assert self._kept.producer is not None
        return self._kept.producer

    @property
    def _what(self) -> str:
        return f"write to the topic {self._topic}"


class Transaction(Writing):
    """See `writing`."""

    def __init__(
        self, broker: Broker, sizes: Mapping[str, int], run: str, task: int, batch: int, digest: str | None
    ) -> None:
        super().__init__(broker, sizes, f"braid.{run}.{task}")
        self.batch = batch
        self._group, self._task = f"braid.{run}", task
        self._digest = None if digest is None else digest[:DIGEST]
        if not (self._kept.ready(batch) and self._goes_on()):
            self._anew()

    def commit(self) -> None:
        if self.done:
            return
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._producer.commit_transaction(COMMIT)
                self._kept.batch = self.batch
                return
            except KafkaException as e:
                if e.args[0].retriable() and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                self.abort()
                raise refused(self.broker, self._what, e.args[0]) from None

    def forget(self) -> None:
        super().forget()
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

    def _anew(self) -> None:
        """A producer that ends all others of its name, wherever they are, and what they had begun."""
        forget("producer", self.broker, self.name)
        self._kept = kept("producer", self.broker, self.name, _Kept)
        self._kept.producer = producer(self.broker, self.name, self._kept.lost.set, [*self._sizes.values()])
        self._connect()
        asked(self.broker, self._what, lambda: self._producer.init_transactions(COMMIT))
        self.done = self._digest is not None and self._look()
        if not self.done:
            self._begin(partial(asked, self.broker, self._what), COMMIT)

    def _connect(self) -> None:
        """A client gives its first connection up when it hears of the brokers, and transactions that begin without one
        wait for half a second: so it is asked twice."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):  # who begins waits longer
            for _ in range(2):
                self._producer.list_topics(self._topic, timeout=WAIT)

    def _goes_on(self) -> bool:
        """Begins with the producer that has written the batch before; False where that has ended, or takes long."""
        from confluent_kafka import KafkaException

        try:
            self._begin(lambda send: send(), WAIT)
            return True
        except KafkaException:
            return False

    def _begin(self, how: Callable[[Callable[[], None]], None], seconds: float) -> None:
        """The transaction, with its marker first: that also finds out whether a kept producer is still the one. `how`
        that is asked for."""
        from confluent_kafka import TopicPartition

        how(self._producer.begin_transaction)
        if self._digest is not None:
            marker = TopicPartition(self._topic, self._task, self.batch + 1, self._digest)
            send = self._producer.send_offsets_to_transaction
            how(lambda: send([marker], self._membership(), seconds))

    def _membership(self) -> Any:
        """What a consumer of the group says of itself; it need not stay for that."""
        return kept(
            "group", self.broker, self._group, lambda: consumer(self.broker, self._group).consumer_group_metadata()
        )

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
            what = f"the broker has forgotten how far {self._group} has written {self._topic}"
        else:
            what = f"{self._group} has written batch {number} to {self._topic}; the checkpoint is at batch {self.batch}"
        hint = "the checkpoint and the topic do not belong together any more: braid reset QUERY lets it begin again"
        raise BraidError(what, hint)

    def _marker(self) -> tuple[int, str]:
        """The number of the last batch that was written; -1 where there is none."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        request = [ConsumerGroupTopicPartitions(self._group, [TopicPartition(self._topic, self._task)])]
        what = f"the marker of {self._group}"

        def ask() -> Any:
            answers = group_admin(self.broker).list_consumer_group_offsets(
                request, require_stable=True, request_timeout=ENDLESS
            )
            (at,) = told(self.broker, what, answers[self._group]).topic_partitions
            if at.error is not None:  # what has just been committed is not told yet, it may be
                why = refused(self.broker, what, at.error)
                raise NotReady(why.message, HANGS) if isinstance(why, BrokerAway) else why
            return at

        at = patiently(lambda: asked(self.broker, what, ask), COMMIT)
        return (-1, "") if at.offset < 0 else (at.offset - 1, at.metadata or "")


def mark(broker: Broker, topic: str, run: str, tasks: Sequence[int], batch: int) -> None:
    """Tasks that have not written before find markers as if they had, up to this batch."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    if not tasks:
        return
    group, what = f"braid.{run}", f"mark the tasks of braid.{run}"
    request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, task, batch + 1) for task in tasks])]

    def set_() -> None:
        answers = group_admin(broker).alter_consumer_group_offsets(request, request_timeout=ENDLESS)
        for at in told(broker, what, answers[group]).topic_partitions:
            if at.error is not None:
                raise refused(broker, what, at.error)

    asked(broker, what, set_)


class _AtLeastOnce(Writing):
    """Records that are there when `commit` returns; what went before an error stays."""

    def __init__(self, broker: Broker, sizes: Mapping[str, int], name: str) -> None:
        super().__init__(broker, sizes, name)
        self._failed: KafkaError | None = None
        if self._kept.producer is None:
            self._kept.producer = producer(broker, name, lambda: None, [*sizes.values()])

    def commit(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._producer.flush(1.0) and self._failed is None:
            if time.monotonic() > deadline:
                raise BrokerAway(f"{self._what}: the broker takes no records", LATER)
        if self._failed is not None:
            raise refused(self.broker, self._what, self._failed)

    def abort(self) -> None:
        self._producer.purge()  # what waits is not sent any more
        self.forget()

    def _told(self, error: KafkaError | None, _: Message) -> None:
        self._failed = self._failed or error


def untaken(times: pl.Series, early: bool) -> pl.Series:
    """Why records of these times cannot be written; null where they can. `early`: the topic takes those before 1970."""
    t, none = pl.col("t"), pl.lit(None, pl.String)
    anew = pl.lit("the topic has a compression.type of its own: its broker takes no time before 1970 then")
    other = none if early else pl.when(t < 0).then(anew)
    why = pl.when(t == 0).then(pl.lit("Kafka's client takes the time 0 for now")).otherwise(other)
    return pl.DataFrame({"t": times}).select(why.alias("why"))["why"]


def headers_of(text: str | None) -> list[tuple[str, str | bytes | None]] | None:
    if text is None:
        return None
    return [(n, None if x is None else base64.b64decode(x)) for n, x in json.loads(text)]


def sizes_of(records: pl.DataFrame) -> pl.Series:
    """The bytes of each record in a batch of its own, at most."""
    size = pl.lit(BATCH + RECORD)
    for column in ("key", "value"):
        size = size + pl.col(column).bin.size().fill_null(0).cast(pl.Int64)
    sizes = records.select(size.alias("size"))["size"]
    if records["headers"].null_count() == records.height:
        return sizes
    of_headers = [
        sum(HEADER + len(name.encode()) + len(value or b"") for name, value in headers_of(text) or ())
        for text in records["headers"].to_list()
    ]
    return sizes + pl.Series(of_headers, dtype=pl.Int64)
