"""The writer: the rows of a task's buckets, in order, as staged files of the output; the driver publishes the batch.

In: blobs of the last stage, drops and counts of all stages. Out: a manifest of what was staged, a row a file.
Rule: an output partition is written by one task, in position order. Staged files are named by attempt, and
the manifest names those that count: what a retried task or an orphan leaves behind is never visible.

A task holds its rows packed, beyond `SPILL` bytes in a file of the node, and opens one piece of each bucket at a time.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from braid.operators.changes import POS, POS_TYPE, SUB, sequence_of
from braid.runtime.emit import merged
from braid.runtime.explicit import BATCH_BITS
from braid.runtime.pieces import WRITE, Piece
from braid.spark import columns, sinks
from braid.spark.columns import Blob
from braid.spark.job import Job, loads
from braid.spark.stage import batch_id, through
from braid.spent import spent

MANIFEST = StructType([StructField("kind", StringType()), StructField("doc", StringType())])
ARROW = pa.schema([("kind", pa.string()), ("doc", pa.string())])

SPILL = 64 << 20  # packed bytes
PIECE = 250_000  # rows made to text at once


def write_batches(text: str, last: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow, in the same task as the last stage; `last`: it is run here too."""
    job = loads(text)
    blobs = columns.blobs_of(batches)
    if last is not None:
        blobs = through(job, last, blobs)
    rows = list(write(job, batch_id(), blobs))
    if rows:
        kinds, docs = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(kinds, pa.string()), pa.array(docs, pa.string())], schema=ARROW)


def write(job: Job, batch: int, blobs: Iterable[Blob]) -> Iterator[tuple[str, str]]:
    """Rows of the manifest: (staged | drops | counts, document)."""
    dropped: list[bytes] = []
    counts: list[dict[str, Any]] = []
    made: list[tuple[str, str]] = []
    with Shelf(job.wire) as shelf:
        for blob in blobs:
            match blob.kind:
                case columns.ROWS:
                    shelf.put(blob)
                case columns.DROPS:
                    dropped.append(blob.blob)
                case columns.COUNTS:
                    counts.append(json.loads(blob.blob))
        piece = Piece(WRITE)
        piece.came(shelf.rows, shelf.size)
        with piece.watch:
            if shelf.rows:
                made += (("staged", doc) for doc in _staged(job, batch, shelf))
            if dropped:
                lost = pl.concat([columns.loads(blob, job.wire) for blob in dropped])
                with spent("write"):
                    made += (("drops", doc) for doc in sinks.stage_drops(job, batch, lost))
        piece.went(shelf.rows)
    yield from made
    if made:
        counts.append({"spent": piece.told()})
    if counts:
        yield "counts", json.dumps(counts, separators=(",", ":"))


def _staged(job: Job, batch: int, shelf: Shelf) -> list[str]:
    outputs = sinks.writer_of(job, batch)
    try:
        number = 0
        for frame in in_pieces(shelf):
            places = _places(job, batch, frame, number) if job.order is not None else None
            number += frame.height
            with spent("write"):
                outputs.write(frame, places)
        with spent("write"):
            return list(outputs.close())
    except BaseException:
        outputs.abort()
        raise


def _places(job: Job, batch: int, frame: pl.DataFrame, number: int) -> pl.DataFrame:
    """The places of rows in an explicit order; one task writes them all."""
    assert job.order is not None and job.tasks == 1
    n = pl.int_range(pl.len(), dtype=pl.Int64) + (batch << BATCH_BITS) + number
    hops = pl.lit(job.order.hops, pl.Int16)
    return frame.select(sequence_of(pl.col(POS)).alias("seq"), hops.alias("hops"), n.alias("n"))


# -------------------------------------------------------------- merging


class Shelf:
    """Packed rows by bucket; those beyond `SPILL` bytes lie in a file of the node that has no name.
    `folder`: that of large frames."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self.rows = self.size = self._held = 0
        self._piles: dict[int, list[tuple[int, bytes | tuple[int, int]]]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, blob: Blob) -> None:
        self.rows += columns.height(blob.blob)
        self.size += columns.size(blob.blob)
        self._held += len(blob.blob)
        where: bytes | tuple[int, int] = blob.blob
        if self._held > SPILL:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="braid-spill-")  # noqa: SIM115 (closed by `__exit__`)
            where = (self._file.seek(0, os.SEEK_END), self._file.write(blob.blob))
        self._piles.setdefault(blob.frame, []).append((columns.piece(blob.blob), where))

    def piles(self) -> list[Iterator[pl.DataFrame]]:
        """The rows of each bucket, piece by piece in their order, each opened when it is asked for."""
        return [map(self._open, [x for _, x in sorted(pile, key=lambda p: p[0])]) for pile in self._piles.values()]

    def _open(self, where: bytes | tuple[int, int]) -> pl.DataFrame:
        if isinstance(where, bytes):
            return columns.loads(where, self._folder)
        assert self._file is not None
        start, size = where
        self._file.seek(start)
        return columns.loads(self._file.read(size), self._folder)


def in_pieces(shelf: Shelf) -> Iterator[pl.DataFrame]:
    """The rows of all buckets, each in order, as frames that follow each other in order."""
    if shelf.rows <= PIECE:
        with spent("sort"):
            whole = merged([frame for pile in shelf.piles() for frame in pile])
        yield whole
        return
    heads = [_Head(pile) for pile in shelf.piles()]
    while heads := [head for head in heads if head.there()]:
        with spent("sort"):
            end = min((head.end() for head in heads), key=_in_order)
            piece = merged([head.upto(end) for head in heads])
        for start in range(0, piece.height, PIECE):
            yield piece.slice(start, PIECE)


Place = tuple[int, bytes | None]  # `_pos` and `_sub`; no `_sub` stands last at its position


def _in_order(place: Place) -> tuple[int, bool, bytes]:
    pos, sub = place
    return pos, sub is None, sub or b""


class _Head:
    """The open piece of a bucket's rows: what is left of it."""

    def __init__(self, pile: Iterator[pl.DataFrame]) -> None:
        self._pile = pile
        self._frame = pl.DataFrame()

    def there(self) -> bool:
        """Whether rows are left; opens the next piece where the last is used up."""
        while not self._frame.height:
            found = next(self._pile, None)
            if found is None:
                return False
            self._frame = found
        return True

    def end(self) -> Place:
        return self._frame[POS][-1], self._frame[SUB][-1]

    def upto(self, end: Place) -> pl.DataFrame:
        """Takes the rows up to a place."""
        pos, sub = end
        place = pl.Series([pos], dtype=POS_TYPE)
        count = int(self._frame[POS].search_sorted(place, side="right")[0])
        if sub is not None:
            first = int(self._frame[POS].search_sorted(place, side="left")[0])
            up_to_it = self._frame[SUB].slice(first, count - first) <= pl.Series([sub], dtype=pl.Binary)
            count = first + int(up_to_it.sum() or 0)
        taken, self._frame = self._frame.head(count), self._frame.slice(count)
        return taken
