"""The embedded topic store: a directory of topics.

In: the path of a store. Out: its topics, by name.
Rule: everything the store reads or writes lies inside its directory. An object of this class may be used by several
threads and sent to other processes; each process keeps a view of the commits of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import polars as pl

from braid.errors import BraidError
from braid.records.key import key_partition
from braid.records.registry import Registry
from braid.store import ObjectStore
from braid.store.files import locked, private_folder, refuse_link
from braid.topics import commit, prefix, reading
from braid.topics.envelope import ENVELOPE, RAW, format_envelope, parse_envelope
from braid.topics.files import check_name, check_new_name, reach
from braid.topics.log import MAX_PARTITIONS, Topic, folders, write_description
from braid.topics.registries import of_store
from braid.topics.segments import CHUNK
from braid.topics.store_value import Store
from braid.topics.view import Written
from braid.types import is_time


class TopicStore:
    """`root`: a folder, made when the first topic is. `fsync`: commits also survive a loss of power."""

    dense = True

    def __init__(self, root: ObjectStore, fsync: bool = False) -> None:
        self.root, self.fsync = root, fsync
        self._topics: dict[str, Topic] = {}
        self._guard = threading.Lock()

    def __reduce__(self) -> tuple[type[TopicStore], tuple[ObjectStore, bool]]:
        return TopicStore, (self.root, self.fsync)

    @property
    def store(self) -> Store:
        return Store(self.root)

    @property
    def registry(self) -> Registry:
        return of_store(self.root)

    @property
    def _folder(self) -> str:
        return os.path.join(self._path, "topics")

    @property
    def _path(self) -> str:
        """The folder of this disk: topics of a bucket are others (`object_topic_store.py`)."""
        return self.root.url

    # -- topics ---------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The topics of the store. Folders whose names no topic can have are not among them."""
        refuse_link(self._folder)
        try:
            entries = list(os.scandir(self._folder))
        except FileNotFoundError:
            return []
        found = []
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    found.append(check_name(entry.name))
            except BraidError:
                continue
        return sorted(found)

    def sizes(self) -> dict[str, int]:
        """The topics, and how many partitions they have."""
        return {name: self.partitions(name) for name in self.names()} if os.path.isdir(self._path) else {}

    def exists(self, name: str) -> bool:
        return check_name(name) in self.names()

    def create(self, name: str, partitions: int = 1, compacted: bool = False) -> None:
        """A topic with so many partitions, for ever. Nothing happens where it is there already. `compacted`: only the
        last record of each key counts; here the others stay, until the user wants them gone (`retention.py`)."""
        check_name(name)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise BraidError(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        refuse_link(self._folder)
        private_folder(self._path)
        os.makedirs(self._folder, exist_ok=True)
        with locked(os.path.join(self._path, ".topics.lock")):
            existing = self.names()
            if name not in existing:
                refuse_link(os.path.join(self._folder, name))
                if os.path.exists(os.path.join(self._folder, name)):  # a file system that has no case
                    check_new_name(name, existing)
                self._create(name, partitions)
                return
        topic = self.topic(name)
        described = os.path.join(topic.path, "topic.json")
        if not os.path.exists(described) and max(folders(topic.path), default=0) < partitions:
            os.makedirs(topic.staging, exist_ok=True)  # laid out by hand, with no more folders than this
            write_description(topic.path, name, partitions, topic.staging, self.fsync)
        self.check_partitions(name, partitions)

    def check_partitions(self, name: str, partitions: int) -> None:
        """Refuses another number than a topic has."""
        have = self.partitions(name)
        if have != partitions:
            raise BraidError(
                f"the topic {name!r} has {have} partitions, not {partitions}",
                f"write partitions={have}, or choose another topic",
            )

    def _create(self, name: str, partitions: int) -> None:
        scratch = os.path.join(self._path, ".scratch", uuid4().hex)
        for folder in (".staging", ".commits", *map(str, range(partitions))):
            os.makedirs(os.path.join(scratch, folder))
        write_description(scratch, name, partitions, scratch, self.fsync)
        reach("topic prepared")
        os.rename(scratch, os.path.join(self._folder, name))

    def delete(self, name: str) -> None:
        """The topic is gone at once; its files a little later."""
        topic = self.topic(name)
        scratch = os.path.join(self._path, ".scratch")
        os.makedirs(scratch, exist_ok=True)
        with topic.locked():
            os.rename(topic.path, os.path.join(scratch, uuid4().hex))
        with self._guard:
            self._topics.pop(name, None)
        shutil.rmtree(scratch, ignore_errors=True)  # of others too: what is in there is no topic

    def topic(self, name: str) -> Topic:
        """The topic's handle, for `braid.topics.commit` and its neighbours."""
        with self._guard:
            found = self._topics.get(name)
        if found is not None:
            return found
        topic = self.made(name)
        if not self.exists(name):
            raise topic.missing()
        with self._guard:
            return self._topics.setdefault(name, topic)

    def made(self, name: str) -> Topic:
        return Topic(self.root, name, self.fsync)

    # -- records --------------------------------------------------------------------------------------------------

    def partitions(self, name: str) -> int:
        return len(self.topic(name).view().parts)

    def end_offsets(self, name: str) -> list[int]:
        """The end of each partition, after whole batches only. Cheap enough to ask every few milliseconds."""
        topic = self.topic(name)
        commit.adopt(topic)
        return topic.ends()

    def forget(self, query: str, run: str, tasks: int) -> None:
        """There is nothing."""

    def settle(self, name: str) -> None:
        """All that was written can be read."""

    def known_end(self, name: str, partition: int) -> int:
        """The end of a partition as of the last look."""
        return self.topic(name).known().end(partition)

    def known_start(self, name: str, partition: int) -> int:
        """Where it begins, as of the last look."""
        return self.topic(name).known().begins[partition].first

    def count(self, name: str) -> int:
        """How many records there are."""
        return sum(s.extent.records for part in self.topic(name).view().parts for s in part)

    def read(self, name: str, partition: int, first: int, last: int) -> pl.DataFrame:
        return reading.read(self._with(name, partition), partition, first, last)

    def raw(self, name: str, partition: int, first: int, last: int, how: object = None) -> pl.DataFrame:
        """Columns of `RAW`. A line that holds no record is shown whole in place of its value. Keys and values are JSON
        texts in all formats, so `how` they are written makes no difference."""
        lines = self.read(name, partition, first, last)
        envelope = parse_envelope(lines["_line"]).rename({"error": "_error"})
        rows = lines.select("_offset").hstack(envelope)
        if envelope["_error"].null_count() == rows.height:
            return rows.select(list(RAW))
        shown = pl.coalesce(lines["_line"], lines["_raw"].bin.encode("base64"))
        lost = pl.col("_error").is_not_null() & pl.col("_key").is_null() & pl.col("_value").is_null()
        rows = rows.with_columns(pl.when(lost).then(shown).otherwise(pl.col("_value")).alias("_value"))
        return rows.select(list(RAW))

    def times(self, name: str, partition: int, first: int, last: int, value: object = None) -> pl.DataFrame:
        """`_offset`, `_t` and `_value` of the records in [first, last)."""
        return self.raw(name, partition, first, last).select("_offset", "_t", "_value")

    def parsed(self, name: str, partition: int, first: int, last: int, how: object = None) -> pl.DataFrame:
        """The records in [first, last) for people: `_offset`, `_line`, `_raw` and the columns of `ENVELOPE`."""
        return reading.read_parsed(self._with(name, partition), partition, first, last)

    def page_end(self, name: str, partition: int, first: int, last: int) -> int:
        """Where a page from `first` on ends: at `last`, or before where it would be large."""
        return reading.page_end(self._with(name, partition), partition, first, last)

    def highs(self, name: str, partition: int, first: int, end: int) -> Iterator[tuple[int, int, int | None]]:
        """The highest time of each chunk of [first, end), whole chunks only: (its first offset, end, time)."""
        for segment in self.topic(name).holding(partition, end).overlapping(partition, first, end):
            for k, high in enumerate(segment.extent.highs):
                yield segment.first + k * CHUNK, min(segment.first + (k + 1) * CHUNK, segment.end), high

    def prefix(self, name: str, partition: int, offset: int) -> prefix.Prefix:
        """An end of a partition at `offset` or behind it, and the checksum of the lines before it."""
        return prefix.prefix(self.topic(name), partition, offset)

    def checksum(self, name: str, partition: int, end: int) -> int | None:
        """Of the lines before an end that was one of `prefix`; None where there are fewer."""
        return prefix.checksum(self.topic(name), partition, end)

    def start_offsets(self, name: str) -> list[int]:
        """Where each partition begins: at 0, as long as nothing was taken away."""
        return self.topic(name).view().starts()

    def offsets_at(self, name: str, time: int) -> list[int]:
        """Of each partition the offset of the first record whose time is this or later; the end where none is."""
        return [self._offset_at(name, p, end, time) for p, end in enumerate(self.end_offsets(name))]

    def _offset_at(self, name: str, partition: int, end: int, time: int) -> int:
        for first, last, high in self.highs(name, partition, 0, end):
            if high is not None and high >= time:
                found = self.raw(name, partition, first, last).filter(pl.col("_t") >= time)
                return int(found["_offset"][0])
        return end

    def identity(self, name: str) -> str:
        """What tells a topic from a later one of its name."""
        return self.topic(name).view().identity

    def read_positions(self, name: str, partition: int, first: int, last: int) -> pl.DataFrame:
        return reading.read_positions(self._with(name, partition), partition, first, last)

    def _with(self, name: str, partition: int) -> Topic:
        topic = self.topic(name)
        count = len(topic.known().parts)
        if not 0 <= partition < count:
            raise BraidError(f"the topic {name!r} has {count} partitions, none with number {partition}")
        return topic

    def placed(self, name: str, keys: pl.Series, partitions: int, how: object = None) -> pl.Series:
        """The partition of each key text, among so many; 0 without a key."""
        return key_partition(keys, partitions)

    def append(
        self,
        name: str,
        records: pl.DataFrame | Sequence[Mapping[str, Any]],
        query: str | None = None,
        batch: int = 0,
        *,
        how: object = None,
    ) -> bool:
        """Adds records in one commit. With a `query`, once per (query, batch): False where it was done before, be it
        without records.

        A frame has `_key`, `_value` (JSON text), `_t`, and where needed `_headers`, `_window`, `_partition` and the
        columns of positions. A mapping has `key`, `value`, `timestamp`, `headers`, `window`, `partition` as in JSON.
        """
        frame = records if isinstance(records, pl.DataFrame) else frame_of(records)
        lines = format_envelope(
            frame["_key"], frame["_value"], frame["_t"], *(_column(frame, c) for c in ("_headers", "_window"))
        )
        positions = frame.select(*commit.POSITIONS) if "seq" in frame.columns else None
        partitions = _column(frame, "_partition")
        return commit.append(
            self.topic(name),
            lines,
            partitions=partitions,
            times=frame["_t"],
            positions=positions,
            query=query,
            batch=batch,
        )

    def once(self, name: str) -> set[str]:
        """The names of all that was written."""
        return set(self.topic(name).view().queries)

    def last_of(self, name: str, query: str) -> Written | None:
        """The last batch of a life of a query that the topic, if it is there, holds."""
        return self.topic(name).view().written(query) if self.exists(name) else None

    def append_lines(self, name: str, lines: pl.Series | Sequence[str], partition: int = 0) -> None:
        """Adds lines as they are. A malformed one is a record too; it becomes a dead letter where it is read."""
        lines = lines if isinstance(lines, pl.Series) else pl.Series(lines, dtype=pl.String)
        if lines.str.contains("\n", literal=True).any():
            raise BraidError("a line of a topic is one record; it has no line feed in it")
        commit.append(self.topic(name), lines, partitions=pl.repeat(partition, len(lines), eager=True))


def _column(frame: pl.DataFrame, name: str) -> pl.Series | None:
    return frame[name] if name in frame.columns else None


def frame_of(records: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    rows = []
    for r in records:
        time = r.get("timestamp")
        if not isinstance(time, int) or not is_time(time):
            raise BraidError("a record needs a timestamp, in whole milliseconds", f"of {dict(r)!r:.200}")
        window = r.get("window")
        bounds = None if window is None else {"start": window[0], "end": window[1]}
        texts = (json_of(r.get("key")), json_of(r.get("value")), json_of(r.get("headers")))
        rows.append((r["timestamp"], *texts, bounds, r.get("partition", 0)))
    columns = {c: ENVELOPE[c] for c in ("_t", "_key", "_value", "_headers", "_window")} | {"_partition": pl.Int64}
    return pl.DataFrame(rows, schema=columns, orient="row")


def json_of(x: Any) -> str | None:
    """The JSON text of a value. Half a surrogate pair has no UTF-8: it stays an escape."""
    if x is None:
        return None
    try:
        text = json.dumps(x, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as e:
        raise BraidError(f"a record that has no JSON form: {e}") from None
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(x, separators=(",", ":"), allow_nan=False)
    return text
