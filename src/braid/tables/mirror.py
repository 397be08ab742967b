"""A topic that holds what a table elsewhere holds.

In: a declared table, a `Table`, topics. Out: a batch of records of the topic: a row that is new or has changed, a
tombstone for one that is gone.
Rule: operators read the topic and nothing else, so a batch that is done again reads what it read. Current is what the
topic says: what was written before a crash is found there, and a poll that finds nothing changed writes nothing. All
records of a poll are one commit, and have one time, `SINCE`: a row counts for all that is read from then on. The topic
holds nothing but polls, which a note beside the store's topics says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.operators.changes import DIFF
from braid.plan.logical import Source
from braid.stage.decode import decode
from braid.store import ObjectStore
from braid.tables.interface import Read, Table
from braid.topics import access
from braid.topics.documents import called, changed, document
from braid.topics.files import check_name, members, parsed
from braid.topics.interface import Topics
from braid.types import Column, Scalar

SINCE = -62_135_596_800_000  # ms: the year 1, before what streams hold; rows of files without times stand at 0
SINCE_ON_KAFKA = 1  # its client takes 0 for now, and some brokers refuse what is before
MOST = 0.5  # of the rows of files, that may be gone at once
FEW = 10  # rows, of which any number may
_HAS = "_has "  # before the name of a column: whether a row has a value there


@dataclass(frozen=True, slots=True)
class Poll:
    """What a poll has found: rows that are new, that have changed, that are gone; those without a key, left out; how
    many rows there are."""

    new: int = 0
    changed: int = 0
    gone: int = 0
    keyless: int = 0
    rows: int = 0

    @property
    def wrote(self) -> bool:
        return bool(self.new or self.changed or self.gone)

    def told(self) -> str:
        parts = [(self.new, "new"), (self.changed, "changed"), (self.gone, "gone"), (self.keyless, "without a key")]
        found = ", ".join(f"{n:,} {what}" for n, what in parts if n) or "nothing changed"
        return f"{self.rows:,} row{'s' * (self.rows != 1)}: {found}"


class Mirror:
    """`losing`: a poll of files that finds most rows gone is accepted."""

    def __init__(self, declared: Declared, table: Table, topics: Topics, losing: bool = False) -> None:
        self.declared, self.table = declared, table
        self._topics, self._losing = topics, losing
        self._source: Source = declared.read_as(declared.name)
        self._seen: str | None = None  # the version that was polled last
        self._read: tuple[str | None, Read] | None = None  # what `check` has found
        self._stands: pl.DataFrame | None = None  # `_key`, `_value`: what the topic says

    def check(self) -> None:
        """Refuses what cannot be polled; nothing is written."""
        _check_declared(self.declared)
        self._read = self.table.version(), self.table.read(self.declared)
        self._read[1].sound(self.table.described())

    def begin(self) -> None:
        """The topic is there, and holds polls only."""
        topic, topics = self.declared.topic, self._topics
        if not topics.exists(topic):
            topics.create(topic, self.declared.partitions or 1, compacted=True)
        if (broker := topics.store.broker) is not None and not access.takes(broker, topic).keyed:
            what = f"the topic {topic} is not compacted, and the time of what a poll writes is 1970: it would expire"
            raise BraidError(what, f"set cleanup.policy=compact for {topic}")
        note, identity = f"tables/{check_name(topic)}", topics.identity(topic)
        if _noted(topics.root, note) == identity:
            return
        if any(topics.end_offsets(topic)):
            what = f"the topic {topic} has records that did not come from {self.table.described()}"
            hint = f"a poll would delete them: declare {self.declared.name} over another topic, or remove that one"
            raise BraidError(what, hint)
        said = {"topic": topic, "identity": identity, "from": self.table.described()}
        changed(topics.root, note, lambda _: json.dumps(said).encode())

    def poll(self) -> Poll | None:
        """Writes what has changed since; None where there is nothing to poll."""
        if self._read is not None:
            version, read = self._read
            self._read = None
        else:
            version = self.table.version()
            if version is not None and version == self._seen:
                return None
            read = self.table.read(self.declared)
        if self._stands is None:
            self._stands = self._of_topic()
        try:
            rows, keyless = self._rows(read)
            changes = _changes(self._stands, rows)
            new, gone = int(changes["_new"].sum()), changes["_value"].null_count()
            poll = Poll(new, changes.height - new - gone, gone, keyless, rows.height)
            self._check_losses(self._stands.height, poll)
            self._check_nulls(self._stands, rows, keyless)
        except BraidError:
            self._seen = version  # it is refused until it is another one
            raise
        self._stands = None  # unknown until it is written
        if changes.height:
            self._write(changes)
        self._stands, self._seen = rows, version
        return poll

    # ------------------------------------------------------------------- rows

    def _rows(self, read: Read) -> tuple[pl.DataFrame, int]:
        """The rows as texts of the topic, one of each key; and how many have none. A value that is NULL as a whole is a
        tombstone: such a row does not stand."""
        texts, keyless = self._as_texts(read.sound(self.table.described()))
        return texts.filter(pl.col("_value").is_not_null()), keyless

    def _as_texts(self, rows: pl.DataFrame, gone: pl.Series | None = None) -> tuple[pl.DataFrame, int]:
        """`gone`: which rows are tombstones."""
        declared = self.declared
        keys, values = _of(declared, "key"), _of(declared, "value")
        nulls = (pl.col(c.name).is_null() for c in keys)
        lacks = pl.any_horizontal(nulls) if declared.relation is not None else pl.all_horizontal(nulls)
        keyless = rows.select(lacks.alias("n"))["n"]
        kept = rows.filter(~keyless)
        of_keys, of_values = declared.encoding.of_keys(len(keys)), declared.encoding.of_values(len(values))
        if of_values.format.delimited:  # an empty text is null there: what is read back must be what was written
            of_text = (pl.col(c.name) for c in values if c.type is Scalar.VARCHAR)
            kept = kept.with_columns(pl.when(x != "").then(x) for x in of_text)
        key = of_keys.format.encode(kept, [(c.name, c) for c in keys], of_keys)
        value = of_values.format.encode(kept, [(c.name, c) for c in values], of_values)
        if of_values.bare:
            value = value.set((value == "null").fill_null(False), None)
        if gone is not None:
            value = value.set(gone.filter(~keyless), None)
        texts = pl.DataFrame([key.alias("_key"), value.alias("_value")])
        has = [pl.col(c.name).is_not_null().alias(f"{_HAS}{c.name}") for c in values]
        texts = texts.hstack(kept.select(has)) if has else texts
        return texts.unique("_key", keep="last", maintain_order=True), int(keyless.sum())

    def _of_topic(self) -> pl.DataFrame:
        """The rows that stand by what the topic says."""
        parts = [rows for p in range(self._topics.partitions(self.declared.topic)) for rows in self._partition(p)]
        has = {f"{_HAS}{c.name}": pl.Boolean for c in _of(self.declared, "value")}
        nothing = pl.DataFrame(schema={"_key": pl.String, "_value": pl.String, **has})
        every = pl.concat(parts) if parts else nothing
        return every.unique("_key", keep="last", maintain_order=True).filter(pl.col("_value").is_not_null())

    def _partition(self, p: int) -> Iterator[pl.DataFrame]:
        topics, topic, how = self._topics, self.declared.topic, self.declared.wires
        at, end = topics.start_offsets(topic)[p], topics.end_offsets(topic)[p]
        while at < end:
            upto = topics.page_end(topic, p, at, end)
            found = decode(self._source, topics.raw(topic, p, at, upto, how), p, topics.registry)
            fields = [pl.col(c.name).alias(c.field) for c in self._source.columns if c.place in ("key", "value")]
            rows = found.rows.filter(found.error.is_null())
            yield self._as_texts(rows.select(fields), rows[DIFF] == -1)[0]
            at = upto

    def _check_losses(self, stood: int, poll: Poll) -> None:
        if self.table.whole or self._losing or poll.gone <= MOST * stood or (stood < FEW and poll.rows):
            return
        what = f"{self.table.described()} has lost {poll.gone:,} of the {stood:,} rows of {self.declared.name}"
        raise BraidError(what, "where they are to go, start the run with --accept-deletes")

    def _check_nulls(self, stood: pl.DataFrame, rows: pl.DataFrame, keyless: int) -> None:
        """Refuses a poll in which a column is NULL throughout that had values in rows that are still there: it is
        more often read wrongly than emptied. So is a key that no row has."""
        if self._losing or not stood.height:
            return
        lost = "the key" if keyless and not rows.height else None
        empty = [c for c in rows.columns if c.startswith(_HAS) and c in stood.columns and not rows[c].any()]
        if rows.height and empty:
            still = stood.join(rows.select("_key"), "_key", "semi")
            lost = next((f"the column {c.removeprefix(_HAS)}" for c in empty if still[c].any()), None)
        if lost is not None:
            what = f"{self.table.described()}: {lost} of {self.declared.name} is NULL in all rows, and was not before"
            raise BraidError(what, "where it is to be so, start the run with --accept-deletes")

    def _write(self, changes: pl.DataFrame) -> None:
        topics, topic, how = self._topics, self.declared.topic, self.declared.wires
        placed = topics.placed(topic, changes["_key"], topics.partitions(topic), how)
        since = SINCE_ON_KAFKA if topics.store.in_kafka else SINCE
        frame = changes.select("_key", "_value", pl.lit(since, pl.Int64).alias("_t"))
        topics.append(topic, frame.with_columns(placed.cast(pl.Int64).alias("_partition")), how=how)


def _of(declared: Declared, place: str) -> list[Column]:
    return [Column(c.name, c.type) for c in declared.columns if c.place == place]


def _changes(stands: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """`_key`, `_value` (null: it is gone), `_new`: what makes of the rows that stand the others."""
    gone = stands.join(rows, "_key", "anti", maintain_order="left")
    was = stands.select("_key", pl.col("_value").alias("_was"), pl.lit(True).alias("_there"))
    both = rows.join(was, "_key", "left", maintain_order="left")
    differs = pl.col("_there").is_null() | pl.col("_value").ne_missing(pl.col("_was"))
    come = both.filter(differs).select("_key", "_value", pl.col("_there").is_null().alias("_new"))
    return pl.concat([gone.select("_key", pl.lit(None, pl.String).alias("_value"), pl.lit(False).alias("_new")), come])


def _check_declared(declared: Declared) -> None:
    name = declared.name
    if declared.kind != "table":
        raise BraidError(
            f"{name} is a stream, and what is polled is a table", f"declare it as one: CREATE TABLE {name}"
        )
    if not _of(declared, "key") or (declared.relation is not None and declared.relation.row_id):
        hint = "declare it with PRIMARY KEY; in sqlstream, which reads a table once, name files: --source NAME=PATH"
        raise BraidError(f"{name} has no primary key, by which its rows are distinguished", hint)
    if declared.windowed is not None or declared.created_by is not None or declared.read_only:
        raise BraidError(f"{name} is not written by polls", "declare a table of its own")


def _noted(root: ObjectStore, note: str) -> str | None:
    """The identity of the topic that polls have written."""
    data = document(root, note)
    try:
        return None if data is None else str(members(parsed(data))["identity"])
    except (ValueError, KeyError) as e:
        raise BraidError(f"{called(root, note)} is not what braid wrote: {e}", "remove it with its topic") from None
