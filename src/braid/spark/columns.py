"""Blobs: what flows between Spark's operators, a row for a piece of a frame.

In: frames, the stage and bucket they are for. Out: record batches of one schema, and the frames again.
Rule: one schema everywhere; a blob begins with its format, its number among the pieces of a frame and its number of
rows; Spark looks at `bucket` alone. Where all tasks run on one node, a large frame lies in a file and the blob says
where: Spark would copy it six times. Such files live as long as their batch; a retried task writes new ones.

  stage   the stage that opens the row; the number of stages: the writer. Others pass it on unopened
  frame   number of the leaf or exchanged frame (rows); for the writer: the bucket that the rows come from
  bucket  Spark's key of the bucket (`bucket_ids`), not its number
  kind    what the blob is
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.spark.private import own_folder
from braid.stage import wire
from braid.stage.frame_file import mapped, write_file
from braid.timing import spent

# ----------------------------------------------------------------------- blobs


ROWS, STEPS, DROPS, COUNTS = 0, 1, 2, 3  # COUNTS: a JSON object
_BYTES, _FILE = b"B\x01", b"B\x02"  # the first two bytes: the frame follows, or the size and name of its file
_HEAD = 12  # bytes: "B", format, number of the piece (2), bucket that it comes from (4), number of rows (4)
_SIZE = 8  # bytes of a file's size
_NAME = re.compile(rb"[0-9a-f]{32}")  # of a file
LARGE = int(os.environ.get("BRAID_LARGE_FRAME", "131072"))  # bytes of a frame from which on it goes into a file
ABANDONED = 24 * 3600.0  # s after which files of a batch that was never finished may go

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


def dumps(frame: pl.DataFrame, piece: int = 0, folder: str | None = None, bucket: int = 0) -> bytes:
    """`folder`: where files of this batch may be written, if all tasks see them; `piece`: its number among those that
    `bucket` sends there, in order."""
    with spent("pack"):
        head = piece.to_bytes(2, "little") + bucket.to_bytes(4, "little") + frame.height.to_bytes(4, "little")
        if folder is not None and frame.estimated_size() >= LARGE:
            path = _filed(frame, folder)
            if path is not None:
                name = os.path.basename(path)
                return _FILE + head + os.path.getsize(path).to_bytes(_SIZE, "little") + name.encode()
        return _BYTES + head + wire.pack(frame)


def loads(blob: bytes, folder: str | None = None) -> pl.DataFrame:
    """`folder`: as for `dumps`. No other file is ever opened."""
    with spent("unpack"):
        match blob[:2]:
            case b"B\x01":
                return wire.unpack(blob[_HEAD:])
            case b"B\x02":
                return _read(folder, blob[_HEAD + _SIZE :])
            case _:
                hint = "all nodes need the same version of braid"
                raise BraidError(f"a blob of format {blob[1]} between two stages", hint)


def size(blob: bytes) -> int:
    """Bytes of the frame, wherever it lies."""
    return int.from_bytes(blob[_HEAD : _HEAD + _SIZE], "little") if blob[:2] == _FILE else len(blob)


def height(blob: bytes) -> int:
    """The number of rows, without opening the blob."""
    return int.from_bytes(blob[8:_HEAD], "little")


def origin(blob: bytes) -> int:
    """The bucket that it comes from."""
    return int.from_bytes(blob[4:8], "little")


def piece(blob: bytes) -> int:
    """Its number among the pieces of a frame."""
    return int.from_bytes(blob[2:4], "little")


def counts(stage: int, bucket: int, values: dict[str, Any]) -> Blob:
    return Blob(stage, 0, bucket, COUNTS, json.dumps(values, separators=(",", ":"), sort_keys=True).encode())


def batch(blobs: Sequence[Blob]) -> pa.RecordBatch:
    arrays = [pa.array([getattr(b, field.name) for b in blobs], field.type) for field in ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def blobs_of(batches: Iterable[pa.RecordBatch]) -> Iterable[Blob]:
    for b in batches:
        columns = [b.column(name).to_pylist() for name in ARROW.names]
        for values in zip(*columns, strict=True):
            yield Blob(*values)


# --------------------------------------------------------------------- files


def _filed(frame: pl.DataFrame, folder: str) -> str | None:
    """The frame in a file of its own; None where there is no room for one."""
    path = os.path.join(folder, uuid4().hex)
    try:
        if not os.path.isdir(folder):  # somebody tidied up
            own_folder(os.path.join("wire", os.path.basename(folder)))
        write_file(path, frame)
    except (BraidError, OSError, pl.exceptions.PolarsError):
        with contextlib.suppress(OSError):
            os.unlink(path)
        return None
    return path


def _read(folder: str | None, name: bytes) -> pl.DataFrame:
    if folder is None or not _NAME.fullmatch(name):
        raise BraidError(f"a blob between two stages names a file that is none of its query: {name!r:.200}")
    path = os.path.join(folder, name.decode())
    try:
        return mapped(path)
    except FileNotFoundError:
        hint = "the folder for temporary files was emptied; start the query again, nothing is lost"
        raise BraidError(f"a part of the batch is missing: {path}", hint) from None


def clear(folder: str | None) -> None:
    """Forgets the files of a finished batch, while the next one begins: the system needs time to free so many pages."""
    if folder is not None and os.path.isdir(folder) and (names := os.listdir(folder)):
        threading.Thread(target=_unlink, args=(folder, names), name="braid-clear").start()


def _unlink(folder: str, names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def clear_abandoned(folder: str | None) -> None:
    """The same, and the folders of queries that were killed long ago."""
    if folder is None:
        return
    clear(folder)
    root = os.path.dirname(folder)
    for name in os.listdir(root) if os.path.isdir(root) else ():
        path = os.path.join(root, name)
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime < time.time() - ABANDONED:
                shutil.rmtree(path, ignore_errors=True)


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
    wanted = [b % outputs % tasks for b in range(buckets)]
    keys: dict[int, deque[int]] = {task: deque() for task in wanted}
    key = itertools.count()
    for task, count in Counter(wanted).items():
        while len(keys[task]) < count:
            i = next(key)
            if (found := spark_partition(i, tasks)) in keys:
                keys[found].append(i)
    return tuple(keys[task].popleft() for task in wanted)
