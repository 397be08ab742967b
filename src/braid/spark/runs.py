"""State runs on Spark: files of the checkpoint, or values of Spark's state store.

In: frames, by the id of their run. Out: the frames again, mapped from a file where possible.
Rule: a file never changes, and its checksum is looked at before it is used. In a checkpoint of ours (`FileRuns`) it is
the truth: it is there before the batch is published whose state names it, and goes when a later batch runs, so that a
batch can be done again. In a checkpoint of the user's, which may lie where no Python can write (`StoreRuns`), the state
store is the truth, and a file of the node a copy that is made again when need be.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import time
import zlib
from collections import OrderedDict
from collections.abc import Collection
from typing import BinaryIO, Protocol
from uuid import uuid4

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.spark import columns
from braid.spark.private import own_folder
from braid.stage.state_file import SUFFIX
from braid.stage.wire import pack, unpack
from braid.timing import spent, tally
from braid.topics.files import open_regular

CACHE_BYTES = 4 << 30  # of files on a node
CACHE_AGE = 24 * 3600.0  # s without use
KEPT_FRAMES = 256  # mapped frames that a process holds
LARGE = 1 << 18  # bytes of a run from which on what was written is mapped, not kept in memory
_SWEEP_EVERY = 512  # files made
_SUM = 4  # bytes of checksum behind the Arrow file
_DAMAGED = "the checkpoint is damaged; delete it to start the query anew"


class MapState(Protocol):
    """What is used of PySpark's."""

    def getValue(self, key: tuple[str]) -> tuple[str] | None: ...

    def updateValue(self, key: tuple[str], value: tuple[str]) -> None: ...

    def removeKey(self, key: tuple[str]) -> None: ...


_frames: OrderedDict[str, pl.DataFrame] = OrderedDict()
_made = itertools.count()


class FileRuns:
    """The runs of one bucket, as files of a folder of its own; a `RunStore`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def get(self, run: str) -> pl.DataFrame:
        frame = _remembered(run)
        if frame is not None:
            return frame
        path = _path(self._folder, run)
        with spent("state_read"):
            tally("cache_files")
            frame = _mapped(path)
            if frame is None:
                why = "is torn" if os.path.exists(path) else "is missing"
                raise BraidError(f"a run of the state {why}: {path}", _DAMAGED)
        _remember(run, frame)
        return frame

    def put(self, run: str, frame: pl.DataFrame) -> int:
        path = _path(self._folder, run)
        with spent("state_write"):
            try:
                if not os.path.isdir(self._folder):
                    os.makedirs(self._folder, exist_ok=True)
                size = _write(path, frame)
            except (OSError, pl.exceptions.PolarsError) as e:
                hint = "nothing is lost: make room there, and start the query again"
                raise BraidError(f"a run of the state cannot be written to {path}: {e}", hint) from e
        _remember(run, columns.mapped(path, size - _SUM) if size >= LARGE else frame)
        return size

    def remove(self, run: str) -> None:
        """The file stays for the case that this batch is done again; see `tidy`."""
        _frames.pop(run, None)

    def tidy(self, batch: int, named: Collection[str]) -> None:
        """Removes what earlier batches made and the state that this batch has found does not name: it was removed, or
        is of an attempt that was given up."""
        with spent("state_write"), contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                run, suffix = os.path.splitext(name)
                if suffix == SUFFIX and batch_of(run) < batch and run not in named:
                    _frames.pop(run, None)
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self._folder, name))


class StoreRuns:
    """The runs of one bucket, in Spark's state store, with copies in a folder of the node; a `RunStore`. Which process
    made a copy does not matter: a bucket meets the same Python worker only now and then, but always the same node."""

    def __init__(self, state: MapState, folder: str) -> None:
        self._state, self._folder = state, folder

    def get(self, run: str) -> pl.DataFrame:
        frame = _remembered(run)
        if frame is not None:
            return frame
        with spent("state_read"):
            frame = _mapped(_path(self._folder, run))
            tally("cache_misses" if frame is None else "cache_files")
            if frame is None:
                frame = self._stored(run)
                self._keep(run, frame)
        _remember(run, frame)
        return frame

    def _stored(self, run: str) -> pl.DataFrame:
        """The run as the state store has it."""
        found = self._state.getValue((run,))
        if found is None:
            raise BraidError(f"run {run} of the state is missing", _DAMAGED)
        try:
            return unpack(base64.b64decode(found[0], validate=True))
        except (ValueError, OSError, pl.exceptions.PolarsError) as e:
            raise BraidError(f"run {run} of the state cannot be read: {e}", _DAMAGED) from e

    def put(self, run: str, frame: pl.DataFrame) -> int:
        with spent("state_write"):
            data = pack(frame)
            # text: PySpark pickles binary values of state eight times slower
            self._state.updateValue((run,), (base64.b64encode(data).decode("ascii"),))
            self._keep(run, frame)
            _remember(run, frame)
            return len(data)

    def remove(self, run: str) -> None:
        with spent("state_write"):
            self._state.removeKey((run,))
        _frames.pop(run, None)
        with contextlib.suppress(OSError):
            os.unlink(_path(self._folder, run))

    def _keep(self, run: str, frame: pl.DataFrame) -> None:
        """A file of the run, if the node has room for one."""
        path = _path(self._folder, run)
        temporary = f"{path}~{uuid4().hex[:8]}"
        try:
            if not os.path.isdir(self._folder):  # a node that no driver runs on, or somebody tidied up
                own_folder(os.path.join("state", os.path.basename(self._folder)))
            _write(temporary, frame)
            os.replace(temporary, path)
        except (BraidError, OSError, pl.exceptions.PolarsError):
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if next(_made) % _SWEEP_EVERY == 0:
            sweep(os.path.dirname(self._folder))


def run_prefix(checkpoint: str, batch: int, stage: int, bucket: int) -> str:
    """Begins the ids of the runs that an attempt at a batch makes; another attempt makes others."""
    return f"{checkpoint}-{batch}-{uuid4().hex[:8]}-{stage}-{bucket}"


def batch_of(run: str) -> int:
    """The batch that made a run."""
    return int(run.split("-")[1])


def _path(folder: str, run: str) -> str:
    if os.sep in run:
        raise BraidError(f"a state names a run that is none of its query: {run!r:.200}", _DAMAGED)
    return os.path.join(folder, run + SUFFIX)


def _remembered(run: str) -> pl.DataFrame | None:
    frame = _frames.get(run)
    if frame is not None:
        _frames.move_to_end(run)
        tally("cache_memory")
    return frame


def _remember(run: str, frame: pl.DataFrame) -> None:
    _frames[run] = frame
    while len(_frames) > KEPT_FRAMES:
        _frames.popitem(last=False)


def _write(path: str, frame: pl.DataFrame) -> int:
    """The frame and its checksum as a file; its bytes."""
    size = columns.write_file(path, frame)
    with open(path, "r+b") as f:
        f.write(_checksum(f, size))
    return size + _SUM


def _mapped(path: str) -> pl.DataFrame | None:
    """The file's frame; None where there is no file, or not what was written."""
    try:
        with os.fdopen(open_regular(path), "rb") as f:
            size = os.fstat(f.fileno()).st_size - _SUM
            if size < 0:
                return None
            if _checksum(f, size) != f.read():
                return None
        return columns.mapped(path, size)
    except (OSError, pa.ArrowInvalid):
        return None


def _checksum(file: BinaryIO, size: int) -> bytes:
    """Of the next `size` bytes. They are read and not mapped: mapped pages would count as memory of this process."""
    crc = 0
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        crc = zlib.crc32(block, crc)
        size -= len(block)
    return crc.to_bytes(_SUM, "big")


def sweep(root: str) -> None:
    """Keeps the caches of all queries of this node within bounds; files not used for long go first."""
    files = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                found = os.stat(path)
                files.append((max(found.st_atime, found.st_mtime), found.st_size, path))
    total, old = sum(size for _, size, _ in files), time.time() - CACHE_AGE
    for used, size, path in sorted(files):
        if used >= old and total <= CACHE_BYTES:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
