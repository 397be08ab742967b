"""The part of a batch that a task writes to a broker.

In: rows in order, drops. Out: records of the result's topic; rows that the topic does not take, as drops; letters.
Rule: whether a topic takes a record follows from the record's own bytes, uncompressed, and costs no other record. The
task commits itself: when all tasks have, the driver has nothing left to do.
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
from braid.stage.drops import drops_of, too_large
from braid.timing import spent
from braid.topics.kafka import KafkaTopics
from braid.topics.transactions import sizes_of, writing

NO_KEY = "null key"


class BrokerOutputs:
    """One transaction, committed when the task is done."""

    def __init__(self, job: Job, batch: int, task: int) -> None:
        assert job.broker is not None and job.checkpoint is not None and job.output.takes is not None
        self._job, self._how, self._topic = job, emit.wires_of(job.plan.query.sink), job.output.target
        digest = offsets_digest(job.checkpoint, batch)
        self._takes = job.output.takes
        sizes = {self._topic: self._takes.largest}
        if (letters := job.output.letters) is not None:
            sizes[letters.topic] = letters.takes.largest
        self._writing = writing(job.broker, sizes, job.run, task, batch, digest)

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> pl.DataFrame | None:
        if not frame.height:
            return None
        output = self._job.output
        with spent("encode"):
            records = emit.written(self._job.plan.query.sink, frame, output.partitions, topics_of(self._job).registry)
            keys, values = to_bytes(records["key"], self._how.key), to_bytes(records["value"], self._how.value)
            parts = emit.partition_of(keys, frame, output.partitions)
            made = pl.DataFrame(
                {
                    "partition": parts,
                    "key": with_windows(keys, records["window"], self._how.window),
                    "value": values,
                    "time": records["timestamp"],
                    "headers": records["headers"],
                }
            )
            sizes = sizes_of(made)
            keyless = made["key"].is_null() & self._takes.keyed
            large = (sizes > self._takes.largest) & ~keyless
        lost = [
            *self._without_key(frame.filter(keyless)),
            *self._too_large(frame.filter(large), records["key"].filter(large), sizes.filter(large)),
        ]
        good = made.filter(~(keyless | large)) if lost else made
        self._writing.write(self._topic, *good.get_columns())
        return pl.concat(lost) if lost else None

    def _without_key(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        if rows.height:
            why = f"{self._topic} is compacted: it takes no record without a key"
            names = {f"v{i}": o.name for i, o in enumerate(self._job.plan.query.sink.values)}
            yield drops_of(rows.rename(names), NO_KEY, "write", (), pl.repeat(why, rows.height, eager=True))

    def _too_large(self, rows: pl.DataFrame, keys: pl.Series, sizes: pl.Series) -> Iterator[pl.DataFrame]:
        if rows.height:
            yield too_large(rows, keys, sizes, f"{self._topic} takes {self._takes.largest} (max.message.bytes)")

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
