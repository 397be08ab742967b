"""State runs of a checkpoint, wherever it lies: how tasks read and write them, and which of them the driver removes.

In: frames, by the id of their run. Out: the frames again, mapped.
Rule: a run is there before the driver hears of it, and so before the batch is published whose state names it. In a
folder each run is an object of its own, which is mapped where it lies. Of a bucket a task makes one object for all its
runs, since each costs a request, and a run's name says where it lies: `…-pOBJECT-OFFSET-LENGTH`; who reads maps this
machine's copy. Objects are called by the runs that are in them, by the batch and by the driver's epoch, so attempts of
one driver that were given the same make the same, and none overwrites another driver's. One goes when no state names a
run in it any more.

  runs/STAGE-BUCKET/RUN.arrow   an Arrow file and its checksum (`run_files.py`)
  runs/OBJECT                   several of them, each compressed by itself
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.stage import frame_file, state_file
from braid.stage.run_files import DAMAGED, LARGE, SUM, forgotten, mapped, remember, remembered, write
from braid.store import ObjectStore
from braid.store.files import remove
from braid.timing import spent, tally

_PIECE = 8 << 20  # bytes fetched at once
_TRIES = 3  # copies go where they are the oldest, and may be torn
_CODEC = "zstd"


class CheckpointRuns:
    """The runs of one bucket; a `RunStore`. What was read or written lately is in memory. `fsync`: what is written is
    forced to disk; `packing`: of the task that puts runs, where they share an object."""

    def __init__(
        self, checkpoint: ObjectStore, place: str, fsync: bool = False, packing: Packing | None = None
    ) -> None:
        self._checkpoint, self._place, self._fsync, self._packing = checkpoint, place, fsync, packing

    def get(self, run: str) -> pl.DataFrame:
        frame = remembered(run)
        if frame is None:
            frame = self.read(run)
            remember(run, frame)
        return frame

    def read(self, run: str) -> pl.DataFrame:
        """The run, mapped, whatever is in memory."""
        with spent("state_read"):
            tally("cache_files")
            return self._read(run)

    def check(self, run: str) -> pl.DataFrame:
        """The run as it is kept, whatever is in memory, or is a copy."""
        self._checkpoint.unread(self._own(run))
        return self._read(run)

    def put(self, run: str, frame: pl.DataFrame) -> int:
        name = self._own(run)
        path = self._checkpoint.called(name)
        with spent("state_write"):
            try:
                written = self._checkpoint.scratch(name, self._fsync)
                try:
                    size = write(written, frame, run)
                    path = self._sent(run, written)
                except BaseException:
                    remove(written)
                    raise
            except (OSError, pl.exceptions.PolarsError) as e:
                hint = "nothing is lost: make room there, and start the query again"
                raise BraidError(f"a state file cannot be written to {path}: {e}", hint) from e
        remember(run, frame_file.mapped(path, size - SUM) if size >= LARGE else frame)
        return size

    def remove(self, run: str) -> None:
        """It stays for the case that this batch is done again; see `RunObjects`. What this task has packed itself is
        not sent."""
        forgotten(run)
        if self._packing is not None:
            self._packing.drop(run)

    def _own(self, run: str) -> str:
        return state_file.own_object(self._place, run)

    def _sent(self, run: str, written: str) -> str:
        """A file that was written is where it is to be. Another attempt's, which may be read meanwhile, is replaced by
        the same."""
        if self._packing is not None:
            self._packing.add(run, self._place, written)
            return written
        self._checkpoint.take(self._own(run), written, self._fsync)
        return self._checkpoint.local(self._own(run), partial(_fetch, self._checkpoint, run))

    def _read(self, run: str) -> pl.DataFrame:
        name = self._own(run)
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # the cache was emptied meanwhile
                path = self._checkpoint.local(name, partial(_fetch, self._checkpoint, run))
                frame = mapped(path, run)
                if frame is not None:
                    return frame
            self._checkpoint.unread(name)
        where = state_file.object_of(self._place, run)
        why = "is torn" if self._checkpoint.has(where) else "is missing"
        raise BraidError(f"a state file {why}: {self._checkpoint.called(where)}", DAMAGED)


class Packing:
    """What a task of the driver that holds an epoch writes of a batch's state: one object."""

    def __init__(self, checkpoint: ObjectStore, epoch: int, batch: int) -> None:
        self._checkpoint, self._epoch, self._batch = checkpoint, epoch, batch
        self._files: dict[str, tuple[str, str]] = {}  # by run: its bucket, and where it was written

    def add(self, run: str, place: str, path: str) -> None:
        self._files[run] = place, path

    def drop(self, run: str) -> None:
        if run in self._files:
            remove(self._files.pop(run)[1])

    def send(self) -> dict[str, str]:
        """The object is there; the names of its runs that say where they lie, by those that were put."""
        if not self._files:
            return {}
        names, end = dict[str, str](), 0
        runs = sorted(self._files)
        mark = hashlib.sha256("\n".join(runs).encode()).hexdigest()[:32]
        called = state_file.object_name(self._epoch, self._batch, mark)
        path = self._checkpoint.scratch(f"{state_file.RUNS}/{called}")
        try:
            with spent("state_write"):
                for run in runs:
                    _compress(self._files[run][1], path)
                    names[run] = f"{run}-p{called}-{end}-{os.path.getsize(path) - end}"
                    end = os.path.getsize(path)
                self._checkpoint.put(f"{state_file.RUNS}/{called}", path)
        finally:
            remove(path)
        for run, name in names.items():
            frame = remembered(run)
            if frame is not None:
                remember(name, frame)
            forgotten(run)
            place, written = self._files[run]
            self._checkpoint.local(state_file.own_object(place, name), partial(os.replace, written))
        return names


class RunObjects:
    """The driver's part: objects that no state names go.

    The state of a batch is created once, and is the first that can name what was put for that batch. So where it is
    there, and neither of the last two states names an object that was put for it, none ever will: whoever put it, and
    whenever he wakes. What was put for a batch that has no state yet may be named by that, whose driver may be alive.
    """

    def __init__(self, checkpoint: ObjectStore) -> None:
        self._checkpoint = checkpoint
        self._held: deque[set[str]] = deque(maxlen=2)  # by the states of the last two batches
        self._undecided = set[str]()  # put for batches that have no state yet, by drivers before this one
        self._known: dict[
            str, tuple[Any, frozenset[str]]
        ] = {}  # of each bucket: what it keeps, and the objects of that

    def begin(self) -> None:
        """What killed runs have left goes."""
        self._checkpoint.clean(state_file.RUNS)
        there = {name for name, _ in self._checkpoint.list(state_file.RUNS)}  # before the states: later ones are not
        numbers = state_file.batches(self._checkpoint)
        states = (state_file.load(self._checkpoint, n) for n in numbers[-2:])
        self._held = deque((state_file.objects_in(x) for x in states), maxlen=2)
        named = set[str]().union(*self._held)
        self._undecided = there - named
        self._decide(numbers[-1] if numbers else -1)
        needed = {n for last in numbers[-2:] for n in state_file.links_of(self._checkpoint, last)}
        self._checkpoint.delete(*(state_file.name_of(n) for n in numbers[:-2] if n not in needed))

    def keep(self, batch: int, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """The state behind a batch that is published: what only the one before its last named goes."""
        now = self._named(documents)
        before = self._held[0] if len(self._held) == 2 else set()
        self._held.append(now)
        self._remove(before.difference(*self._held))
        if self._undecided:
            self._undecided -= now
            self._decide(batch)

    def _named(self, documents: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """The objects that documents name; a bucket that keeps what it kept before is not looked through again."""
        known, self._known = self._known, {}
        for where, x in documents.items():
            kept, named = known.get(where, (None, frozenset[str]()))
            if kept is None or kept is not x.get("steps"):
                kept, named = x.get("steps"), frozenset(state_file.objects_in({where: x}))
            self._known[where] = kept, named
        return set[str]().union(*(named for _, named in self._known.values()))

    def _decide(self, batch: int) -> None:
        """The state of this batch is there, and names none of them."""
        gone = {name for name in self._undecided if state_file.made_for(name) <= batch}
        self._undecided -= gone
        self._remove(gone)

    def _remove(self, names: Iterable[str]) -> None:
        self._checkpoint.delete(*names)


def packing_of(checkpoint: ObjectStore, epoch: int, batch: int) -> Packing | None:
    """Of a task, where each object costs a request."""
    return Packing(checkpoint, epoch, batch) if checkpoint.path is None else None


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


def _fetch(checkpoint: ObjectStore, run: str, path: str) -> None:
    """Writes this machine's copy of a run that shares an object with others."""
    name, offset, length = state_file.place_in_object(run)
    packed = f"{path}.{_CODEC}"
    try:
        with open(packed, "xb") as f:
            for at in range(0, length, _PIECE):
                f.write(_piece(checkpoint, name, offset + at, min(_PIECE, length - at)))
        with pa.CompressedInputStream(pa.OSFile(packed), _CODEC) as source, open(path, "xb") as out:
            shutil.copyfileobj(source, out, _PIECE)
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as e:
        raise BraidError(f"a state file is torn: {checkpoint.called(name)}: {e}", DAMAGED) from e
    finally:
        remove(packed)


def _piece(checkpoint: ObjectStore, name: str, at: int, length: int) -> bytes:
    try:
        return checkpoint.range(name, at, length)
    except FileNotFoundError:
        raise BraidError(f"a state file is missing: {checkpoint.called(name)}", DAMAGED) from None
