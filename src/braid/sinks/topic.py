"""A topic of the store.

In: rows in order. Out: staged segments, one for each partition and range of positions; the driver commits them at once.
Rule: what was staged counts once it is in a commit of the topic, which names query and batch (`topics/commit.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from braid.native import core
from braid.operators.changes import TIME
from braid.plan import logical
from braid.records import texts
from braid.sinks.interface import Batch, Outputs, Part, Sink, Wrote
from braid.stage.drops import too_large
from braid.stage.emit import line_pieces, written
from braid.stage.wire import bucket_of, parted
from braid.store import NOWHERE, ObjectStore
from braid.store.reading import LONGEST
from braid.timing import spent
from braid.topics import Staged, StageWriters, clean_staging, format_envelope, publish
from braid.topics.commit import ROWS
from braid.topics.interface import Topics, store_of
from braid.topics.log import Topic
from braid.topics.view import Written


@dataclass(frozen=True)
class TopicSink(Sink):
    """`root`: of the store; `fsync`: what is written there is forced to disk."""

    root: ObjectStore = NOWHERE
    fsync: bool = False

    is_topic = True
    ranged = True
    recalls = True

    @property
    def apart(self) -> bool:
        return self.root.path is None

    def described(self) -> str:
        return "topic"

    def called(self, columns: logical.Sink) -> str:
        return f"the topic {self.target}"

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> TopicSink:
        if not topics.exists(self.target):
            topics.create(self.target, self.partitions, columns.kind == "table")
        return replace(self, root=topics.root, fsync=topics.fsync)

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        return store_of(topics.root).last_of(self.target, run)

    def claim(self, columns: logical.Sink, run: str) -> None:
        clean_staging(self.topic, run)

    @property
    def topic(self) -> Topic:
        return store_of(self.root, self.fsync).topic(self.target)

    def task(self, part: Part) -> Outputs:
        return _Outputs(self, part)

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        found = [Staged.from_json(doc) for doc in staged]
        publish(self.topic, batch.run, batch.number, found, empty=bool(found), digest=batch.digest())


class _Outputs:
    """Staged segments of a topic, one per output partition and range."""

    def __init__(self, sink: TopicSink, part: Part) -> None:
        self._sink, self._part = sink, part
        self._writers = StageWriters(sink.topic, part.batch.run, part.batch.number)

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> Wrote:
        if places is None and (partitions := self._by_core(frame, at)) is not None:
            return Wrote(frame, partitions)
        with spent("encode"):
            records = written(self._part.columns, frame, self._sink.partitions)
            lines = format_envelope(*(records[c] for c in ("key", "value", "timestamp", "headers", "window")))
            sizes = lines.str.len_bytes() + 1
            large, lost = sizes > LONGEST, None
        if large.any():
            holds = f"a topic of the store takes {LONGEST}"
            lost = too_large(frame.filter(large), records["key"].filter(large), sizes.filter(large), holds)
            frame, records, lines = frame.filter(~large), records.filter(~large), lines.filter(~large)
            places = None if places is None else places.filter(~large)
        made = pl.DataFrame({"partition": records["partition"], "line": lines, "timestamp": records["timestamp"]})
        if places is not None:
            made = made.hstack(places)
        parts = made.partition_by("partition", as_dict=True, maintain_order=True)
        for (partition,), part in parts.items():
            positions = part.select(places.columns) if places is not None else None
            self._writers.of(int(partition), at).write(part["line"], part["timestamp"], positions)
        return Wrote(frame, records["partition"], lost)

    def _by_core(self, frame: pl.DataFrame, at: int) -> pl.Series | None:
        """The partitions of the rows, where the core has written them all."""
        if core() is None:
            return None
        with spent("encode"):
            numbers, count = bucket_of(frame, self._sink.partitions), self._sink.partitions
            made = []
            for partition, part in parted(frame, numbers, count) if count > 1 else [(0, frame)]:
                pieces = line_pieces(self._part.columns, part)
                rows = None if pieces is None else texts.written([*pieces, "\n"], part.height)
                if rows is None or rows.longest > LONGEST:
                    return None
                made.append((partition, rows, part[TIME]))
        for partition, rows, times in made:
            self._writers.of(partition, at).write_blocks(rows.blocks(ROWS), times)
        return numbers.cast(pl.Int32).alias("partition")

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        for staged in self._writers.close():
            yield staged.to_json()

    def abort(self) -> None:
        self._writers.abort()
