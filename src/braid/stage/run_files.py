"""State runs as files of the checkpoint.

In: frames, by the id of their run. Out: the frames again, mapped.
Rule: a file is whole when it gets its name, and its checksum, which is of its name, too, is looked at before it is
used. (Older versions wrote that of the bytes alone.) It is there before the
batch is published whose state names it, and goes when a later batch runs, so that a batch can be done again. Names come
from what an attempt was given: two that were given the same make the same files, and one that was cut off, and goes on
with half of its input, makes others (decision 32).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import BinaryIO
from uuid import uuid4

import polars as pl
import pyarrow as pa

from braid.errors import BraidError, anew
from braid.stage import frame_file
from braid.stage.state_file import SUFFIX, put_as
from braid.timing import spent, tally
from braid.topics.files import force, open_regular

KEPT_FRAMES = 256  # mapped frames that a process holds
LARGE = 1 << 18  # bytes of a run from which on what was written is mapped, not kept in memory
DAMAGED = f"the checkpoint is damaged: put it back from a copy; or {anew()}"
_SUM = 4  # bytes of checksum behind the Arrow file

_frames: OrderedDict[str, pl.DataFrame] = OrderedDict()


class Runs(ABC):
    """The runs of one bucket, as mapped files; a `RunStore`. What was read or written lately is in memory."""

    def get(self, run: str) -> pl.DataFrame:
        frame = remembered(run)
        if frame is not None:
            return frame
        with spent("state_read"):
            tally("cache_files")
            frame = self._read(run)
        remember(run, frame)
        return frame

    def put(self, run: str, frame: pl.DataFrame) -> int:
        path = self._path(run)
        with spent("state_write"):
            try:
                size = self._write(run, path, frame)
            except (OSError, pl.exceptions.PolarsError) as e:
                hint = "nothing is lost: make room there, and start the query again"
                raise BraidError(f"a state file cannot be written to {path}: {e}", hint) from e
        remember(run, frame_file.mapped(path, size - _SUM) if size >= LARGE else frame)
        return size

    @abstractmethod
    def check(self, run: str) -> pl.DataFrame:
        """The run as it is kept, whatever is in memory, or is a copy."""

    @abstractmethod
    def remove(self, run: str) -> None: ...

    @abstractmethod
    def tidy(self, batch: int, named: Collection[str]) -> None:
        """Removes what earlier batches made and the state that this batch has found does not name: it was removed, or
        is of an attempt that was given up."""

    @abstractmethod
    def _read(self, run: str) -> pl.DataFrame: ...

    @abstractmethod
    def _path(self, run: str) -> str:
        """Where a new run is written."""

    @abstractmethod
    def _write(self, run: str, path: str, frame: pl.DataFrame) -> int: ...


class FileRuns(Runs):
    """As files of a folder of the bucket's own. `fsync`: they are forced to disk."""

    def __init__(self, folder: str, fsync: bool = False) -> None:
        self._folder, self._fsync = folder, fsync

    def check(self, run: str) -> pl.DataFrame:
        path = path_of(self._folder, run)
        frame = mapped(path, run)
        if frame is None:
            why = "is torn" if os.path.exists(path) else "is missing"
            raise BraidError(f"a state file {why}: {path}", DAMAGED)
        return frame

    _read = check

    def _path(self, run: str) -> str:
        return path_of(self._folder, run)

    def _write(self, run: str, path: str, frame: pl.DataFrame) -> int:
        """Another attempt's file, which may be read meanwhile, is replaced by the same."""
        if not os.path.isdir(self._folder):
            os.makedirs(self._folder, exist_ok=True)
            if self._fsync:
                force(os.path.dirname(self._folder))
        unfinished = f"{path.removesuffix(SUFFIX)}~{uuid4().hex[:8]}{SUFFIX}"
        try:
            size = write(unfinished, frame, run)
            if self._fsync:
                force(unfinished)
            os.replace(unfinished, path)
            if self._fsync:
                force(self._folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise
        return size

    def remove(self, run: str) -> None:
        """The file stays for the case that this batch is done again; see `tidy`."""
        forgotten(run)

    def tidy(self, batch: int, named: Collection[str]) -> None:
        with spent("state_write"), contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                run, suffix = os.path.splitext(name)
                if suffix == SUFFIX and batch_of(run) < batch and run not in named:
                    forgotten(run)
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self._folder, name))


def run_prefix(checkpoint: str, batch: int, stage: int, bucket: int, given: Iterable[bytes]) -> str:
    """Begins the ids of the runs that an attempt at a batch makes of what it was `given`, in this order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in given:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return f"{checkpoint}-{batch}-{digest.hexdigest()}-{stage}-{bucket}"


def batch_of(run: str) -> int:
    """The batch that made a run."""
    return int(run.split("-")[1])


def path_of(folder: str, run: str) -> str:
    if os.sep in run:
        raise BraidError(f"a state names a run that is none of its query: {run!r:.200}", DAMAGED)
    return os.path.join(folder, run + SUFFIX)


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
    return size + _SUM


def mapped(path: str, run: str) -> pl.DataFrame | None:
    """The frame of the file of a run; None where there is no file, or not what was written."""
    try:
        with os.fdopen(open_regular(path), "rb") as f:
            size = os.fstat(f.fileno()).st_size - _SUM
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
    return crc.to_bytes(_SUM, "big")
