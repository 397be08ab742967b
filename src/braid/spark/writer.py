"""The writer: the rows of a task's buckets, in order, as staged files of the output; the driver publishes the batch.

In: blobs of the last stage, drops and counts of all stages. Out: a manifest of what was staged, a row a file.
Rule: an output partition is written by one task, in position order. Staged files are named by attempt, and
the manifest names those that count: what a retried task or an orphan leaves behind is never visible.

A task holds its rows packed; beyond `SPILL` bytes they are unpacked to files of the node and read back piece by piece.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from braid.operators.changes import POS, POS_TYPE, sequence_of
from braid.runtime.emit import merged
from braid.runtime.explicit import BATCH_BITS
from braid.runtime.pieces import WRITE, Piece
from braid.spark import columns, sinks
from braid.spark.columns import Blob
from braid.spark.job import Job, loads
from braid.spark.stage import batch_id, run_stateless
from braid.spent import spent

MANIFEST = StructType([StructField("kind", StringType()), StructField("doc", StringType())])
ARROW = pa.schema([("kind", pa.string()), ("doc", pa.string())])

SPILL = 64 << 20  # packed bytes
PIECE = 250_000  # rows made to text at once


def write_batches(text: str, stateless: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow, in the same task as the last stage; `stateless`: a last stage without state, run here."""
    job = loads(text)
    blobs = columns.blobs_of(batches)
    if stateless is not None:
        blobs = run_stateless(job, stateless, blobs)
    rows = list(write(job, batch_id(), blobs))
    if rows:
        kinds, docs = zip(*rows, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(kinds, pa.string()), pa.array(docs, pa.string())], schema=ARROW)


def write(job: Job, batch: int, blobs: Iterable[Blob]) -> Iterator[tuple[str, str]]:
    """Rows of the manifest: (staged | drops | counts, document)."""
    packed: list[bytes] = []
    dropped: list[bytes] = []
    counts: list[dict[str, Any]] = []
    for blob in blobs:
        match blob.kind:
            case columns.ROWS:
                packed.append(blob.blob)
            case columns.DROPS:
                dropped.append(blob.blob)
            case columns.COUNTS:
                counts.append(json.loads(blob.blob))
    piece, made = Piece(WRITE), list[tuple[str, str]]()
    piece.came(sum(map(columns.height, packed)), sum(map(len, packed)))
    with piece.watch:
        if packed:
            made += (("staged", doc) for doc in _staged(job, batch, packed))
        if dropped:
            lost = pl.concat([columns.loads(blob) for blob in dropped])
            with spent("write"):
                made += (("drops", doc) for doc in sinks.stage_drops(job, batch, lost))
    piece.went(sum(map(columns.height, packed)))
    yield from made
    if made:
        counts.append({"spent": piece.told()})
    if counts:
        yield "counts", json.dumps(counts, separators=(",", ":"))


def _staged(job: Job, batch: int, packed: Sequence[bytes]) -> list[str]:
    outputs = sinks.writer_of(job, batch)
    try:
        number = 0
        for frame in in_pieces(packed):
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


def in_pieces(packed: Sequence[bytes]) -> Iterator[pl.DataFrame]:
    """The rows of several blobs, each in order, as frames that follow each other in order."""
    if sum(map(columns.height, packed)) <= PIECE:
        with spent("sort"):
            frame = merged([columns.loads(blob) for blob in packed])
        yield frame
        return
    with contextlib.ExitStack() as stack:
        runs = [_Run(blob, stack) for blob in packed] if sum(map(len, packed)) > SPILL else [_Kept(b) for b in packed]
        for start, end in _bounds(runs):
            with spent("sort"):
                frame = merged([r.between(start, end) for r in runs])
            yield frame


def _bounds(runs: Sequence[_Kept | _Run]) -> Iterator[tuple[int | None, int | None]]:
    """Positions that cut all runs into pieces of about `PIECE` rows."""
    largest = max(runs, key=lambda r: len(r.positions)).positions
    pieces = 1 + sum(len(r.positions) for r in runs) // PIECE
    step = max(1, len(largest) // pieces)
    cuts = largest.gather_every(step, step).unique(maintain_order=True).to_list() if len(largest) > step else []
    yield from zip([None, *cuts], [*cuts, None], strict=True)


def _range(positions: pl.Series, start: int | None, end: int | None) -> tuple[int, int]:
    return (0 if start is None else _at(positions, start), len(positions) if end is None else _at(positions, end))


def _at(positions: pl.Series, place: int) -> int:
    return int(positions.search_sorted(pl.Series([place], dtype=POS_TYPE), side="left")[0])


class _Kept:
    """A blob's rows, in memory."""

    def __init__(self, blob: bytes) -> None:
        self._frame = columns.loads(blob)
        self.positions = self._frame[POS]

    def between(self, start: int | None, end: int | None) -> pl.DataFrame:
        low, high = _range(self.positions, start, end)
        return self._frame.slice(low, high - low)


class _Run:
    """A blob's rows, in a file that goes when the task is done."""

    def __init__(self, blob: bytes, stack: contextlib.ExitStack) -> None:
        frame = columns.loads(blob)
        fd, self._path = tempfile.mkstemp(suffix=".arrow", prefix="braid-spill-")
        os.close(fd)
        stack.callback(functools.partial(_gone, self._path))
        frame.write_ipc(self._path, compression="uncompressed", record_batch_size=65_536)
        self.positions = frame[POS].clone()

    def between(self, start: int | None, end: int | None) -> pl.DataFrame:
        low, high = _range(self.positions, start, end)
        return pl.scan_ipc(self._path).slice(low, high - low).collect()


def _gone(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
