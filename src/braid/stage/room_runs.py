"""State runs in a room of `store/`: parts of objects, of which each task makes one a batch.

In: frames, by the id of their run. Out: the frames again, mapped from this machine's copies.
Rule: the object of a task is there before the driver hears of its runs, and so before the batch is published whose
state names them. A run's name says where it lies: `…-pOBJECT-OFFSET-LENGTH`. Objects are called by the runs that are in
them, by the batch and by the driver's epoch, so attempts of one driver that were given the same make the same, and none
overwrites another driver's. One goes when no state names a run in it any more.

  runs/OBJECT     Arrow files as in `run_files.py`, each compressed by itself
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.stage import docs, state_file
from braid.stage.run_files import DAMAGED, FileRuns, Runs, forgotten, mapped, remember, remembered, write
from braid.store import is_url
from braid.timing import spent
from braid.topics.cache import Cache
from braid.topics.documents import room_of
from braid.topics.files import remove

_PIECE = 8 << 20  # bytes fetched at once
_TRIES = 3  # copies go where they are the oldest, and may be torn
_CODEC = "zstd"


class RoomRuns(Runs):
    """As parts of the objects that tasks make. `packing`: of the task that puts runs."""

    def __init__(self, checkpoint: str, packing: Packing | None = None) -> None:
        self._checkpoint, self._packing = checkpoint, packing

    def check(self, run: str) -> pl.DataFrame:
        cache_of(self._checkpoint).drop(_copy(run))
        return self._read(run)

    def remove(self, run: str) -> None:
        """Its object stays for the case that this batch is done again; see `Objects`. What this task has put itself
        is not sent."""
        forgotten(run)
        if self._packing is not None:
            self._packing.drop(run)

    def tidy(self, batch: int, named: Collection[str]) -> None:
        """There is nothing: objects have runs of several buckets."""

    def _read(self, run: str) -> pl.DataFrame:
        cache, name = cache_of(self._checkpoint), _copy(run)
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # the cache was emptied meanwhile
                frame = mapped(cache.held(name, partial(_fetch, self._checkpoint, run)), run)
                if frame is not None:
                    return frame
            cache.drop(name)
        raise BraidError(f"a state file is torn: {self._checkpoint}, {run}", DAMAGED)

    def _path(self, run: str) -> str:
        return os.path.join(cache_of(self._checkpoint).scratch, f"{uuid4().hex}.arrow")

    def _write(self, run: str, path: str, frame: pl.DataFrame) -> int:
        assert self._packing is not None, "who asks writes nothing"
        try:
            size = write(path, frame, run)
        except BaseException:
            remove(path)
            raise
        self._packing.add(run, path)
        return size


class Packing:
    """What a task of the driver that holds an epoch writes of a batch's state: one object."""

    def __init__(self, checkpoint: str, epoch: int, batch: int) -> None:
        self._checkpoint, self._epoch, self._batch = checkpoint, epoch, batch
        self._files: dict[str, str] = {}

    def add(self, run: str, path: str) -> None:
        self._files[run] = path

    def drop(self, run: str) -> None:
        if (path := self._files.pop(run, None)) is not None:
            remove(path)

    def send(self) -> dict[str, str]:
        """The object is there; the names of its runs that say where they lie, by those that were put."""
        if not self._files:
            return {}
        cache, names, end = cache_of(self._checkpoint), dict[str, str](), 0
        runs = sorted(self._files)
        mark = hashlib.sha256("\n".join(runs).encode()).hexdigest()[:32]
        called = state_file.object_name(self._epoch, self._batch, mark)
        path = os.path.join(cache.scratch, uuid4().hex)
        try:
            with spent("state_write"):
                for run in runs:
                    _compress(self._files[run], path)
                    names[run] = f"{run}-p{called}-{end}-{os.path.getsize(path) - end}"
                    end = os.path.getsize(path)
                room_of(self._checkpoint).put(f"{state_file.RUNS}/{called}", path)
        finally:
            remove(path)
        for run, name in names.items():
            frame = remembered(run)
            if frame is not None:
                remember(name, frame)
            forgotten(run)
            cache.held(_copy(name), partial(os.replace, self._files[run]))
        return names


class Objects:
    """The driver's part: objects that no state names go.

    The state of a batch is created once, and is the first that can name what was put for that batch. So where it is
    there, and neither of the last two states names an object that was put for it, none ever will: whoever put it, and
    whenever he wakes. What was put for a batch that has no state yet may be named by that, whose driver may be alive.
    """

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._held: deque[set[str]] = deque(maxlen=2)  # by the states of the last two batches
        self._undecided = set[str]()  # put for batches that have no state yet, by drivers before this one

    def begin(self) -> None:
        """What killed runs have left goes."""
        there = docs.names(self._checkpoint, state_file.RUNS)  # before the states: what comes later is not among them
        numbers = state_file.batches(self._checkpoint)
        states = (state_file.load(self._checkpoint, n) for n in numbers[-2:])
        self._held = deque((state_file.objects_in(x.values()) for x in states), maxlen=2)
        named = set[str]().union(*self._held)
        self._undecided = {*there} - named
        self._decide(numbers[-1] if numbers else -1)
        needed = {n for last in numbers[-2:] for n in state_file.links_of(self._checkpoint, last)}
        docs.remove(self._checkpoint, *(state_file.name_of(n) for n in numbers[:-2] if n not in needed))

    def keep(self, batch: int, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """The state behind a batch that is published: what only the one before its last named goes."""
        now = state_file.objects_in(documents.values())
        before = self._held[0] if len(self._held) == 2 else set()
        self._held.append(now)
        self._remove(before.difference(*self._held))
        if self._undecided:
            self._undecided -= now
            self._decide(batch)

    def _decide(self, batch: int) -> None:
        """The state of this batch is there, and names none of them."""
        gone = {name for name in self._undecided if state_file.made_for(name) <= batch}
        self._undecided -= gone
        self._remove(gone)

    def _remove(self, names: Iterable[str]) -> None:
        docs.remove(self._checkpoint, *(f"{state_file.RUNS}/{name}" for name in names))


def packing_of(checkpoint: str, epoch: int, batch: int) -> Packing | None:
    """Of a task, where its checkpoint lies in a room."""
    return Packing(checkpoint, epoch, batch) if is_url(checkpoint) else None


def runs_at(checkpoint: str, place: str, fsync: bool = False, packing: Packing | None = None) -> Runs:
    """The runs of a bucket, wherever the checkpoint lies."""
    if is_url(checkpoint):
        return RoomRuns(checkpoint, packing)
    return FileRuns(state_file.runs_of(checkpoint, place), fsync)


@lru_cache(maxsize=16)
def cache_of(checkpoint: str) -> Cache:
    return Cache(checkpoint)


def _copy(run: str) -> str:
    return f"{state_file.RUNS}/{run}.arrow"


def renamed(manifest: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A document whose runs have other names."""
    made = {k: renamed(x, names) if isinstance(x, dict) else x for k, x in manifest.items()}
    if "runs" in made:
        made["runs"] = [[names.get(run[0], run[0]), *run[1:]] for run in made["runs"]]
    return made


def _compress(path: str, target: str) -> None:
    """Appends a file, compressed."""
    with (
        open(path, "rb") as f,
        pa.OSFile(target, "ab") as raw,
        pa.CompressedOutputStream(raw, _CODEC) as out,
    ):
        shutil.copyfileobj(f, out, _PIECE)


def _fetch(checkpoint: str, run: str, path: str) -> None:
    """Writes this machine's copy of a run."""
    called, offset, length = state_file.place_in_room(run)
    name, packed = f"{state_file.RUNS}/{called}", f"{path}.{_CODEC}"
    try:
        with open(packed, "xb") as f:
            for at in range(0, length, _PIECE):
                f.write(_piece(checkpoint, name, offset + at, min(_PIECE, length - at)))
        with pa.CompressedInputStream(pa.OSFile(packed), _CODEC) as source, open(path, "xb") as out:
            shutil.copyfileobj(source, out, _PIECE)
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as e:
        raise BraidError(f"a state file is torn: {checkpoint}/{name}: {e}", DAMAGED) from e
    finally:
        remove(packed)


def _piece(checkpoint: str, name: str, at: int, length: int) -> bytes:
    try:
        return room_of(checkpoint).range(name, at, length)
    except FileNotFoundError:
        raise BraidError(f"a state file is missing: {checkpoint}/{name}", DAMAGED) from None
