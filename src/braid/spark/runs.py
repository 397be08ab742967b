"""State runs on Spark: the state store holds them for good, files of this node hold them ready to use.

In: frames, by the id of their run. Out: the frames again, mapped from a file where possible.
Rule: the state store alone is the truth. A file is made by rename and never changes; one that is missing, torn or not
what its checksum says is made again from the state store. Which process made it does not matter: a bucket meets the
same Python worker only now and then, but always the same node.
"""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import os
import time
import zlib
from collections import OrderedDict
from typing import Any, Protocol
from uuid import uuid4

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.spark.conf import own_folder
from braid.spent import spent, tally

CACHE_BYTES = 4 << 30  # of files on a node
CACHE_AGE = 24 * 3600.0  # s without use
KEPT_FRAMES = 256  # mapped frames that a process holds
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


class SparkRuns:
    """The runs of one bucket; a `RunStore`."""

    def __init__(self, state: MapState, folder: str) -> None:
        self._state, self._folder = state, folder

    def get(self, run: str) -> pl.DataFrame:
        frame = _frames.get(run)
        if frame is not None:
            _frames.move_to_end(run)
            tally("cache_memory")
            return frame
        with spent("state_read"):
            frame = _mapped(self._path(run))
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
            return pl.read_ipc_stream(io.BytesIO(base64.b64decode(found[0], validate=True)))
        except (ValueError, OSError, pl.exceptions.PolarsError) as e:
            raise BraidError(f"run {run} of the state cannot be read: {e}", _DAMAGED) from e

    def put(self, run: str, frame: pl.DataFrame) -> int:
        with spent("state_write"):
            return self._put(run, frame)

    def _put(self, run: str, frame: pl.DataFrame) -> int:
        out = io.BytesIO()
        frame.write_ipc_stream(out, compression="lz4")
        # text: PySpark pickles binary values of state eight times slower
        self._state.updateValue((run,), (base64.b64encode(out.getbuffer()).decode("ascii"),))
        self._keep(run, frame)
        _remember(run, frame)
        return out.getbuffer().nbytes

    def remove(self, run: str) -> None:
        with spent("state_write"):
            self._state.removeKey((run,))
        _frames.pop(run, None)
        with contextlib.suppress(OSError):
            os.unlink(self._path(run))

    def _path(self, run: str) -> str:
        return os.path.join(self._folder, f"{run}.arrow")

    def _keep(self, run: str, frame: pl.DataFrame) -> None:
        """A file of the run, if the node has room for one."""
        path = self._path(run)
        temporary = f"{path}~{uuid4().hex[:8]}"
        try:
            if not os.path.isdir(self._folder):  # a node that no driver runs on, or somebody tidied up
                own_folder(os.path.join("state", os.path.basename(self._folder)))
            frame.write_ipc(temporary, compression="uncompressed", record_batch_size=max(frame.height, 1))
            with open(temporary, "ab") as f:
                f.write(_checksum(temporary, os.path.getsize(temporary)))
            os.replace(temporary, path)
        except (BraidError, OSError, pl.exceptions.PolarsError):
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if next(_made) % _SWEEP_EVERY == 0:
            sweep(os.path.dirname(self._folder))


def _remember(run: str, frame: pl.DataFrame) -> None:
    _frames[run] = frame
    while len(_frames) > KEPT_FRAMES:
        _frames.popitem(last=False)


def _mapped(path: str) -> pl.DataFrame | None:
    """The file's frame; None where there is no file, or not what was written: then it goes."""
    try:
        size = os.path.getsize(path) - _SUM
        whole = pa.memory_map(path).read_buffer()
        if size < 0 or _checksum(path, size) != whole[size:].to_pybytes():
            raise pa.ArrowInvalid("torn")
        table = pa.ipc.open_file(whole[:size]).read_all()
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowInvalid):
        with contextlib.suppress(OSError):
            os.unlink(path)
        return None
    except pa.ArrowNotImplementedError:  # 128-bit numbers
        return pl.read_ipc(io.BytesIO(whole[:size].to_pybytes()))
    made: Any = pl.from_arrow(table, rechunk=False)
    return made if isinstance(made, pl.DataFrame) else None


def _checksum(path: str, size: int) -> bytes:
    """Of the first `size` bytes. They are read and not mapped: mapped pages would count as memory of this process."""
    crc = 0
    with open(path, "rb") as f:
        while size > 0 and (block := f.read(min(size, 1 << 20))):
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
