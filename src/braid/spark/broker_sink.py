"""The part of a batch that a task writes to a broker.

In: rows in order, drops. Out: records of the result's topic; rows that the topic does not take, as drops; letters.
Rule: whether a record is too large follows from its own bytes, uncompressed, and costs no other record. The task
commits itself: when all tasks have, the driver has nothing left to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import polars as pl

from braid.records.wire import to_bytes, with_windows
from braid.spark.job import Job, topics_of
from braid.spark.letters import letters_of
from braid.stage import emit
from braid.stage.checkpoint import offsets_digest
from braid.stage.drops import drops_of
from braid.timing import spent
from braid.topics.kafka import KafkaTopics
from braid.topics.transactions import sizes_of, writing

TOO_LARGE = "too large"


class BrokerOutputs:
    """One transaction, committed when the task is done."""

    def __init__(self, job: Job, batch: int, task: int) -> None:
        assert job.broker is not None and job.checkpoint is not None
        self._job, self._how, self._topic = job, emit.wires_of(job.plan.query.sink), job.output.target
        digest = offsets_digest(job.checkpoint, batch)
        sizes = {self._topic: job.output.largest}
        if (letters := job.output.letters) is not None:
            sizes[letters.topic] = letters.largest
        self._writing = writing(job.broker, sizes, job.run, task, batch, digest)

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None) -> pl.DataFrame | None:
        if not frame.height:
            return None
        output = self._job.output
        with spent("encode"):
            records = emit.written(self._job.plan.query.sink, frame, output.partitions, topics_of(self._job).registry)
            keys, values = to_bytes(records["key"], self._how.key), to_bytes(records["value"], self._how.value)
            parts, window = emit.partition_of(keys, frame, output.partitions), self._how.window
            made = pl.DataFrame(
                {
                    "partition": parts,
                    "key": keys if window is None else with_windows(keys, records["window"], window),
                    "value": values,
                    "time": records["timestamp"],
                    "headers": records["headers"],
                }
            )
            sizes = sizes_of(made)
            fit = sizes <= output.largest
        good = made if fit.all() else made.filter(fit)
        self._writing.write(self._topic, *good.get_columns())
        return None if fit.all() else self._too_large(frame, records, sizes, ~fit)

    def _too_large(
        self, frame: pl.DataFrame, records: pl.DataFrame, sizes: pl.Series, which: pl.Series
    ) -> pl.DataFrame:
        """Drops with the key, and without the value."""
        most = f" bytes as a record; {self._topic} takes {self._job.output.largest} (max.message.bytes)"
        told = sizes.filter(which).cast(pl.String) + most
        lost = drops_of(frame.filter(which), TOO_LARGE, "write", (), told)
        return lost.with_columns(records["key"].filter(which), pl.lit(None, pl.String).alias("value"))

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        to, job = self._job.output.letters, self._job
        if to is not None and drops.height and not self._writing.done:
            topics = topics_of(job)
            assert isinstance(topics, KafkaTopics)
            made = letters_of(to, job.name, topics, [*job.topics], drops)
            self._writing.write(to.topic, *made.get_columns())
        self._writing.commit()
        yield json.dumps({"rows": self._writing.count})

    def abort(self) -> None:
        self._writing.abort()
