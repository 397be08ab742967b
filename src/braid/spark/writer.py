"""The writer: the rows of a task's buckets, in order, as staged files of the output; the driver publishes the batch.

In: blobs of the last stage, drops and counts of all stages. Out: a manifest of what was staged, a row a file.
Rule: an output partition is written by one task, in position order. Staged files are named by attempt, and
the manifest names those that count: what a retried task or an orphan leaves behind is never visible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from braid.operators.changes import POS, sequence_of
from braid.spark import columns, sinks
from braid.spark.columns import Blob
from braid.spark.job import Job, loads
from braid.spark.shelf import Shelf, in_pieces
from braid.spark.stage import batch_id, through
from braid.stage.call_order import BATCH_BITS
from braid.stage.pieces import WRITE, Piece
from braid.timing import spent

MANIFEST = StructType([StructField("kind", StringType()), StructField("doc", StringType())])
ARROW = pa.schema([("kind", pa.string()), ("doc", pa.string())])


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
                    shelf.put(blob, blob.frame)
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
