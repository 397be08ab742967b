"""The cause log: of each output row the record that completed it and what let it go, batch by batch, in the checkpoint.

In: what the tasks of a batch say of the rows that they have written, by output partition, in order (`row_causes.py`).
Out: a record a batch; from the last row of a partition backwards, the cause of each.
Rule: nothing but an answer depends on it. The record of a batch is there before its state is; one that is done again
writes the same once more, and the last of a number counts. The last 64 MB stay. Each record is under a checksum of its
own, with the name of its file and the run: what is spoilt, or of another life of the query, is named and passed over,
and of the rows before it nothing is told, since their places follow from how many come behind.

  causes/BATCH-N        BATCH: the first that it tells; N: several may begin with it. Records (`framed.py`): the batch;
                        of each piece the partition, how many rows, and their causes

In an object store, where nothing can be added to, the last records are in the state of the last batch. They go into an
object of their own, `causes/BATCH`, once they are many: large batches at once, a hundred small ones together.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import polars as pl

from braid.errors import BraidError
from braid.plan.logical import Node
from braid.stage import framed, state_file
from braid.stage.framed import Stretch
from braid.stage.row_causes import At, RowCauses, packed, row_causes, unpacked
from braid.store import ObjectStore

FOLDER = "causes"
MOST, FILES = 64 << 20, 1000  # bytes and files of all that stays
SEGMENT = 4 << 20  # bytes of a file from which on another is begun
HELD, MANY = 64 << 10, 100  # bytes and batches that are held in the state
LARGEST = 32 << 20  # bytes of what one task says of a batch; of more rows only how many there are
_LONGEST = 1 << 30  # bytes of a file
_MAGIC = b"BRc1"
_BATCH, _PIECE = struct.Struct("<Q"), struct.Struct("<III")
_NAME = re.compile("[0-9]{20}(-[0-9]{6})?")


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that one task has written to an output partition, in order. `range`: of several that share the partition,
    which stretch of positions; `data`: their causes, empty where they were too many."""

    partition: int
    range: int
    rows: int
    data: bytes

    def document(self) -> list[object]:
        """As it travels to the driver."""
        return [self.partition, self.range, self.rows, base64.b64encode(self.data).decode()]

    @staticmethod
    def of(document: Sequence[str | int]) -> Piece:
        partition, range_, rows, data = document
        return Piece(int(partition), int(range_), int(rows), base64.b64decode(str(data)))


class Gathered:
    """The causes of the rows of a result that one task writes. `task`: its number, and that of an output partition of
    its own."""

    def __init__(self, root: Node, task: int) -> None:
        self._root, self._task, self._size = root, task, 0
        self.pieces: list[Piece] = []

    def add(self, rows: pl.DataFrame, partitions: pl.Series | None, range_: int) -> None:
        """Rows that were written, in order, to partitions."""
        if not rows.height:
            return
        found = row_causes(rows, self._root)
        if partitions is None:
            self._add(self._task, range_, found)
            return
        to = partitions.to_numpy()
        for partition in np.flatnonzero(np.bincount(to)).tolist():
            self._add(partition, range_, found.of(to == partition))

    def _add(self, partition: int, range_: int, rows: RowCauses) -> None:
        data = packed(rows) if self._size <= LARGEST else b""
        self._size += len(data)
        self.pieces.append(Piece(partition, range_, len(rows.completed), data))

    def document(self) -> str:
        """For the driver."""
        return json.dumps([piece.document() for piece in self.pieces], separators=(",", ":"))


class CauseLog:
    """Writes the records of one process. `run`: this life of the query's checkpoint."""

    def __init__(self, checkpoint: ObjectStore, run: str) -> None:
        self._checkpoint, self._run = checkpoint, run
        self._held = [*_held(checkpoint)]  # (batch, record), of an object store
        self._sizes: dict[str, int] | None = None  # of all files, in order; None before the first record
        self._name = ""  # of the file that is added to

    def add(self, batch: int, pieces: Sequence[Piece]) -> Sequence[str]:
        """What has to be saved with the batch."""
        return self.put(batch, _packed(batch, pieces)) if pieces else self._saved()

    def put(self, batch: int, body: bytes) -> Sequence[str]:
        """The same of a record that is there."""
        sizes = self._known()
        if not self._name or sizes.get(self._name, 0) >= SEGMENT:
            same = sum(name.startswith(f"{batch:020d}") for name in sizes)
            self._name = f"{batch:020d}-{same:06d}"
        record = framed.record(_MAGIC, salt(self._run, self._name), body)
        if self._checkpoint.append(f"{FOLDER}/{self._name}", record):
            self._wrote(self._name, len(record))
        else:
            self._hold(batch, body)
        return self._saved()

    def _saved(self) -> Sequence[str]:
        return [base64.b64encode(body).decode() for _, body in self._held]

    def _hold(self, batch: int, body: bytes) -> None:
        """An object of all that is held, where that is much. A batch that is done again replaces what is held of it."""
        self._held = [x for x in self._held if x[0] < batch] + [(batch, body)]
        if len(self._held) < MANY and sum(len(x) for _, x in self._held) < HELD:
            return
        name = f"{self._held[0][0]:020d}"
        data = b"".join(framed.record(_MAGIC, salt(self._run, name), x) for _, x in self._held)
        self._checkpoint.write(f"{FOLDER}/{name}", data)
        self._known().pop(name, None)
        self._wrote(name, len(data))
        self._held = []

    def _wrote(self, name: str, size: int) -> None:
        """A file has grown; those that are too many go."""
        sizes, gone = self._known(), list[str]()
        sizes[name] = sizes.get(name, 0) + size
        while len(sizes) > 1 and (sum(sizes.values()) > MOST or len(sizes) > FILES):
            gone.append(oldest := min(sizes.keys() - {name}))
            del sizes[oldest]
        if gone:
            self._checkpoint.delete(*(f"{FOLDER}/{x}" for x in gone))

    def _known(self) -> dict[str, int]:
        if self._sizes is None:
            self._sizes = files(self._checkpoint)
        return self._sizes


def copied(source: ObjectStore, to: ObjectStore, run: str) -> Sequence[str]:
    """All of it in another checkpoint; gives what has to be saved there with the last batch."""
    for name in files(source):
        to.write(f"{FOLDER}/{name}", source.get(f"{FOLDER}/{name}", _LONGEST), fsync=True)
    log, saved = CauseLog(to, run), list[str]()
    for batch, body in _held(source):
        saved = [*log.put(batch, body)]
    return saved


def salt(run: str, name: str) -> str:
    """What a record is checked with, besides its body."""
    return f"{run}/{name}"


def _packed(batch: int, pieces: Sequence[Piece]) -> bytes:
    """A record: by partition the rows of all tasks in their order."""
    made = _BATCH.pack(batch)
    for x in sorted(pieces, key=lambda p: (p.partition, p.range)):
        made += _PIECE.pack(x.partition, x.rows, len(x.data)) + x.data
    return made


def _held(checkpoint: ObjectStore) -> Iterator[tuple[int, bytes]]:
    """The records in the state of the last batch."""
    last, _ = state_file.latest(checkpoint)
    for text in () if last < 0 else state_file.held(checkpoint, last).causes:
        body = base64.b64decode(text)
        yield _BATCH.unpack_from(body)[0], body


# --------------------------------------------------------------------- read again


def files(checkpoint: ObjectStore) -> dict[str, int]:
    """The bytes of each file, by name, in order."""
    found = ((name.rpartition("/")[2], size) for name, size in checkpoint.list(FOLDER))
    return {name: size for name, size in sorted(found) if _NAME.fullmatch(name)}


@dataclass(frozen=True, slots=True)
class Cause:
    """Of one row: its batch, what completed it, what let it go."""

    batch: int
    completed: At
    released: At


@dataclass(slots=True)
class Told:
    """What the log tells, as far back as it is whole. `pieces`: of each output partition, the newest first, as (batch,
    rows, data); `batches`: of which it tells, the newest first; `spoilt`: what could not be read, in words."""

    pieces: Mapping[int, Sequence[tuple[int, int, bytes]]] = field(default_factory=dict)
    batches: Sequence[int] = ()
    spoilt: Sequence[str] = ()

    def cause(self, partition: int, behind: int, upto: int) -> Cause | None:
        """The cause of the row of a partition that has so many `behind` it, of those of the batches up to `upto`."""
        for batch, rows, data in self.pieces.get(partition, ()):
            if batch > upto:
                continue
            if behind < rows:
                return _cause(batch, data, rows - 1 - behind, rows)
            behind -= rows
        return None


def _cause(batch: int, data: bytes, number: int, rows: int) -> Cause | None:
    if not data:
        return None  # there were too many
    try:
        found = _opened(data)
    except ValueError:
        return None
    if len(found.completed) != rows:
        return None
    return Cause(batch, At.of(int(found.completed[number])), At.of(int(found.released[number])))


_opened = lru_cache(maxsize=4)(unpacked)  # neighbours are in one piece


def read(checkpoint: ObjectStore, run: str) -> Told:
    """All there is; a run may add to it meanwhile."""
    bodies, spoilt = dict[int, bytes](), list[str]()
    for body in _newest_first(checkpoint, run, spoilt):
        (batch,) = _BATCH.unpack_from(body)
        bodies.setdefault(batch, body)
    pieces = dict[int, list[tuple[int, int, bytes]]]()
    batches = sorted(bodies, reverse=True)
    for batch in batches:
        for partition, rows, data in reversed([*_pieces(bodies[batch])]):
            pieces.setdefault(partition, []).append((batch, rows, data))
    return Told(pieces, batches, spoilt)


def _newest_first(checkpoint: ObjectStore, run: str, spoilt: list[str]) -> Iterator[bytes]:
    """The records up to the first, from the end, that is not as written. What a kill has torn at the end of a file is
    of a batch that was done again."""
    try:
        yield from (body for _, body in reversed([*_held(checkpoint)]))
    except BraidError:
        return  # the query runs, and its state has gone on
    for name in reversed(files(checkpoint)):
        where = checkpoint.called(f"{FOLDER}/{name}")
        try:
            data = checkpoint.get(f"{FOLDER}/{name}", _LONGEST)
        except FileNotFoundError:
            return  # it has gone meanwhile, and so have those before it
        except (OSError, BraidError) as e:
            spoilt.append(f"{where} cannot be read: {e.message if isinstance(e, BraidError) else e.strerror}")
            return
        found = [*framed.bodies(_MAGIC, salt(run, name), data)]
        if found and found[-1] == Stretch(cut_off=True):
            del found[-1]
        for body in reversed(found):
            if isinstance(body, Stretch) or not _is_whole(body):
                spoilt.append(f"{where} is not as written: of rows before that no cause is known")
                return
            yield body


def _is_whole(body: bytes) -> bool:
    try:
        return len(body) > _BATCH.size and bool([*_pieces(body)])
    except ValueError:
        return False


def _pieces(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Partition, rows and causes of each piece, in order."""
    at = _BATCH.size
    while at < len(body):
        if at + _PIECE.size > len(body):
            raise ValueError("it ends early")
        partition, rows, size = _PIECE.unpack_from(body, at)
        at += _PIECE.size
        if at + size > len(body):
            raise ValueError("it ends early")
        yield partition, rows, body[at : at + size]
        at += size
