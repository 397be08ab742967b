"""Blobs: what flows between Spark's operators, a row for a piece of a frame.

In: frames, the stage and bucket they are for. Out: record batches of one schema, and the frames again.
Rule: one schema everywhere; a blob begins with its format, its number among the pieces of a frame and its number of
rows; Spark looks at `bucket` alone.

  stage   the stage that opens the row; the number of stages: the writer. Others pass it on unopened
  frame   number of the leaf or exchanged frame (rows); for the writer: the bucket that the rows come from
  bucket  Spark's key of the bucket (`bucket_ids`), not its number
  kind    what the blob is
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.runtime import bucket as ipc
from braid.spent import spent

ROWS, STEPS, DROPS, COUNTS = 0, 1, 2, 3  # COUNTS: a JSON object
FORMAT = 1
_HEAD = 8  # bytes: "B", format, number of the piece (2), number of rows (4)

ARROW = pa.schema(
    [("stage", pa.int32()), ("frame", pa.int32()), ("bucket", pa.int32()), ("kind", pa.int32()), ("blob", pa.binary())]
)


@dataclass(frozen=True, slots=True)
class Blob:
    """One row of the schema above."""

    stage: int
    frame: int
    bucket: int
    kind: int
    blob: bytes


def dumps(frame: pl.DataFrame, piece: int = 0) -> bytes:
    with spent("pack"):
        return b"B\x01" + piece.to_bytes(2, "little") + frame.height.to_bytes(4, "little") + ipc.pack(frame)


def loads(blob: bytes) -> pl.DataFrame:
    if blob[:2] != b"B\x01":
        raise BraidError(f"a blob of format {blob[1]} between two stages", "all nodes need the same version of braid")
    with spent("unpack"):
        return ipc.unpack(blob[_HEAD:])


def height(blob: bytes) -> int:
    """The number of rows, without opening the blob."""
    return int.from_bytes(blob[4:_HEAD], "little")


def piece(blob: bytes) -> int:
    """Its number among the pieces of a frame."""
    return int.from_bytes(blob[2:4], "little")


def counts(stage: int, bucket: int, values: dict[str, Any]) -> Blob:
    return Blob(stage, 0, bucket, COUNTS, json.dumps(values, separators=(",", ":")).encode())


def batch(blobs: Sequence[Blob]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b.stage for b in blobs], pa.int32()),
            pa.array([b.frame for b in blobs], pa.int32()),
            pa.array([b.bucket for b in blobs], pa.int32()),
            pa.array([b.kind for b in blobs], pa.int32()),
            pa.array([b.blob for b in blobs], pa.binary()),
        ],
        schema=ARROW,
    )


def blobs_of(batches: Iterable[pa.RecordBatch]) -> Iterable[Blob]:
    for b in batches:
        columns = [b.column(name).to_pylist() for name in ARROW.names]
        for values in zip(*columns, strict=True):
            yield Blob(*values)


# ------------------------------------------------------------------- buckets


def spark_partition(key: int, tasks: int) -> int:
    """The task to which Spark's hash partitioner (Murmur3 of an int, seed 42) sends a grouping key."""
    mask = 0xFFFFFFFF
    h = 42 ^ (_rotated((key & mask) * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask)
    h = (_rotated(h, 13) * 5 + 0xE6546B64 & mask) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return (h - (1 << 32) if h >> 31 else h) % tasks


def _rotated(x: int, by: int) -> int:
    return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF


def bucket_ids(buckets: int, outputs: int, tasks: int) -> tuple[int, ...]:
    """Spark's key of each bucket: buckets of one output partition meet in one task, and tasks get equally many."""
    if buckets % outputs:
        raise BraidError(f"{buckets} buckets for {outputs} output partitions", f"give a multiple of {outputs}")
    ids: list[int] = []
    for b in range(buckets):
        wanted = b % outputs % tasks
        ids.append(next(i for i in range(1 << 31) if i not in ids and spark_partition(i, tasks) == wanted))
    return tuple(ids)
