"""State runs as files: what they are called and hold, and those that this process has in memory.

In: frames, by the id of their run. Out: the frames again, mapped.
Rule: the checksum of a file, which is of its name, too, is compared before it is used. (Older versions wrote that of
the bytes alone.) Names come from all that an attempt was given, plan, state and rows: two that were given the same make
the same files, and one that was cut off, and goes on with half of its input, makes others (decision 32); so does a copy
of the checkpoint that has gone another way.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import BinaryIO

import polars as pl
import pyarrow as pa

from braid.errors import anew
from braid.stage import frame_file
from braid.stage.state_file import put_as
from braid.store.files import open_regular
from braid.timing import tally

KEPT_FRAMES = 256  # mapped frames that a process holds
LARGE = 1 << 18  # bytes of a run from which on what was written is mapped, not kept in memory
DAMAGED = f"the checkpoint is damaged: put it back from a copy; or {anew()}"
SUM = 4  # bytes of checksum behind the Arrow file

_frames: OrderedDict[str, pl.DataFrame] = OrderedDict()


def run_prefix(checkpoint: str, batch: int, stage: int, bucket: int, given: Iterable[bytes]) -> str:
    """Begins the ids of the runs that an attempt at a batch makes of what it was `given`, in this order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in given:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return f"{checkpoint}-{batch}-{digest.hexdigest()}-{stage}-{bucket}"


def remembered(run: str) -> pl.DataFrame | None:
    frame = _frames.get(run)
    if frame is not None:
        _frames.move_to_end(run)
        tally("cache_memory")
    return frame


def remember(run: str, frame: pl.DataFrame) -> None:
    _frames[run] = frame
    while len(_frames) > KEPT_FRAMES:
        _frames.popitem(last=False)


def forgotten(run: str) -> None:
    _frames.pop(run, None)


def write(path: str, frame: pl.DataFrame, run: str) -> int:
    """The frame of a run and its checksum as a file; its bytes."""
    size = frame_file.write_file(path, frame)
    with open(path, "r+b") as f:
        f.write(_bytes(_named(_checksum(f, size), run)))
    return size + SUM


def mapped(path: str, run: str) -> pl.DataFrame | None:
    """The frame of the file of a run; None where there is no file, or not what was written."""
    try:
        with os.fdopen(open_regular(path), "rb") as f:
            size = os.fstat(f.fileno()).st_size - SUM
            if size < 0:
                return None
            crc = _checksum(f, size)
            if f.read() not in (_bytes(_named(crc, run)), _bytes(crc)):
                return None
        return frame_file.mapped(path, size)
    except (OSError, pa.ArrowInvalid):
        return None


def _checksum(file: BinaryIO, size: int) -> int:
    """Of the next `size` bytes. They are read and not mapped: mapped pages would count as memory of this process."""
    crc = 0
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        crc = zlib.crc32(block, crc)
        size -= len(block)
    return crc


def _named(crc: int, run: str) -> int:
    """Of the bytes and the name of a run, wherever it lies."""
    return zlib.crc32(put_as(run).encode(), crc)


def _bytes(crc: int) -> bytes:
    return crc.to_bytes(SUM, "big")
