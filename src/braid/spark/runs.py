"""State runs of a checkpoint that is the user's: values of Spark's state store.

In: frames, by the id of their run. Out: the frames again, mapped from a file where possible.
Rule: such a checkpoint may lie where no Python can write, so the state store is the truth, and a file of the node a
copy that is made again when need be. In a checkpoint of ours files are the truth (`stage/checkpoint_runs.py`).
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import time
from typing import Protocol
from uuid import uuid4

import polars as pl

from braid.errors import BraidError
from braid.spark.private import own_folder
from braid.stage.run_files import DAMAGED, forgotten, mapped, remember, remembered, write
from braid.stage.state_file import SUFFIX
from braid.stage.wire import pack, unpack
from braid.timing import spent, tally

CACHE_BYTES = 4 << 30  # of files on a node
CACHE_AGE = 24 * 3600.0  # s without use
_SWEEP_EVERY = 512  # files made


class MapState(Protocol):
    """What is used of PySpark's."""

    def getValue(self, key: tuple[str]) -> tuple[str] | None: ...

    def updateValue(self, key: tuple[str], value: tuple[str]) -> None: ...

    def removeKey(self, key: tuple[str]) -> None: ...


_made = itertools.count()


class StoreRuns:
    """The runs of one bucket, in Spark's state store, with copies in a folder of the node; a `RunStore`. Which process
    made a copy does not matter: a bucket meets the same Python worker only now and then, but always the same node."""

    def __init__(self, state: MapState, folder: str) -> None:
        self._state, self._folder = state, folder

    def get(self, run: str) -> pl.DataFrame:
        frame = remembered(run)
        if frame is not None:
            return frame
        with spent("state_read"):
            frame = mapped(self._path(run), run)
            tally("cache_misses" if frame is None else "cache_files")
            if frame is None:
                frame = self._stored(run)
                self._keep(run, frame)
        remember(run, frame)
        return frame

    def _stored(self, run: str) -> pl.DataFrame:
        """The run as the state store has it."""
        found = self._state.getValue((run,))
        if found is None:
            raise BraidError(f"run {run} of the state is missing", DAMAGED)
        try:
            return unpack(base64.b64decode(found[0], validate=True))
        except (ValueError, OSError, pl.exceptions.PolarsError) as e:
            raise BraidError(f"run {run} of the state cannot be read: {e}", DAMAGED) from e

    def put(self, run: str, frame: pl.DataFrame) -> int:
        with spent("state_write"):
            data = pack(frame)
            # text: PySpark pickles binary values of state eight times slower
            self._state.updateValue((run,), (base64.b64encode(data).decode("ascii"),))
            self._keep(run, frame)
            remember(run, frame)
            return len(data)

    def remove(self, run: str) -> None:
        with spent("state_write"):
            self._state.removeKey((run,))
        forgotten(run)
        with contextlib.suppress(OSError):
            os.unlink(self._path(run))

    def _path(self, run: str) -> str:
        if os.sep in run:
            raise BraidError(f"a state names a run that is none of its query: {run!r:.200}", DAMAGED)
        return os.path.join(self._folder, run + SUFFIX)

    def _keep(self, run: str, frame: pl.DataFrame) -> None:
        """A file of the run, if the node has room for one."""
        path = self._path(run)
        temporary = f"{path}~{uuid4().hex[:8]}"
        try:
            if not os.path.isdir(self._folder):  # a node that no driver runs on, or somebody tidied up
                own_folder(os.path.join("state", os.path.basename(self._folder)))
            write(temporary, frame, run)
            os.replace(temporary, path)
        except (BraidError, OSError, pl.exceptions.PolarsError):
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if next(_made) % _SWEEP_EVERY == 0:
            sweep(os.path.dirname(self._folder))


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
