"""`metrics.ring`: what each batch of the last hour was like, in the checkpoint, there also when the run has died.

In: documents of batches, one by one, as a run makes them (`measured.Measured.document`). Out: the documents again, in
order, and what could not be read of them.
Rule: nothing that happens here ends a run, or says a word of a row. The ring is a folder of segments. A process begins
its own, and a segment is only added to; what a kill has torn is at its end. A segment goes when the one behind it is an
hour old, or where all would be more than 10 MB: so the last hour before a run died is there until the next has run for
an hour. Each record is under a checksum of its own (with the name of its segment); one that is spoilt is skipped and
told, with those packed by it.

  metrics.ring/AT       AT: when it was begun (ms since 1970). Records: `BRr1`, length and CRC-32 of what follows: a
                        letter and a document, packed; `W` by itself, `L` like the last `W` before it in the segment

In an object store, where nothing can be added to, a segment is what has come together in a minute.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from braid.errors import BraidError
from braid.stage import framed
from braid.stage.framed import Stretch
from braid.store import ObjectStore
from braid.topics.files import members

FOLDER = "metrics.ring"
HOUR, MOST = 3600.0, 10 << 20  # s, and bytes, of all segments
SEGMENT_TIME, SEGMENT_SIZE = 600.0, 1 << 20  # s, and bytes, from which on another is begun
TOGETHER = 60.0  # s of records that go into an object store together; and until a fault is tried again
_LIKE = 32  # records packed by one that stands by itself: so many are lost with it
_MAGIC = b"BRr1"
_LONGEST, _ALL = 4 << 20, 256 << 20  # bytes of a document; of all that are read

Document = Mapping[str, Any]


class Ring:
    """Writes the records of one process. `note`: is told, once, why none are written."""

    def __init__(self, checkpoint: ObjectStore, note: Callable[[str], None], now: Callable[[], float] = time.time):
        self._checkpoint, self._note, self._now = checkpoint, note, now
        self._sizes: dict[str, int] | None = None  # of all segments, by name; None before the first record
        self._name, self._since = "", 0.0  # of the segment that is added to, and when it was begun
        self._whole, self._packed = b"", 0  # by what the records of the segment are packed, and how many were
        self._held: list[bytes] = []  # what is to go into an object together
        self._fault, self._again = "", 0.0  # why none is written, and when that is tried again
        self._one = threading.Lock()

    def add(self, document: Document) -> None:
        """One record more."""
        with self._one:
            now = self._now()
            if now < self._again:
                return
            try:
                self._add(json.dumps(document, separators=(",", ":")).encode(), now)
            except (OSError, BraidError) as e:
                self._failed(e, now)

    def rest(self, over: bool = True) -> None:
        """What was given is written, and another record begins a segment; if it is not `over`, only what has been held
        for long."""
        with self._one:
            now = self._now()
            if not over and not (self._held and now - self._since >= TOGETHER):
                return
            try:
                self._send()
            except (OSError, BraidError) as e:
                self._failed(e, now)
            self._name = ""

    def _add(self, data: bytes, now: float) -> None:
        if self._sizes is None:
            self._sizes = segments(self._checkpoint)
        wait = TOGETHER if self._held else SEGMENT_TIME
        if not self._name or not 0 <= now - self._since < wait or self._sizes[self._name] >= SEGMENT_SIZE:
            self._send()
            self._begin(now)
        record = framed.record(_MAGIC, self._name, self._pack(data))
        if len(record) > SEGMENT_SIZE:
            raise BraidError(f"the document of a batch has {len(record):,} bytes")
        self._room(len(record))
        if not self._held and self._checkpoint.append(f"{FOLDER}/{self._name}", record):
            self._sizes[self._name] += len(record)
            return
        self._held.append(record)
        self._sizes[self._name] += len(record)

    def _begin(self, now: float) -> None:
        """A segment behind all others; those that are old go."""
        assert self._sizes is not None
        names = sorted(self._sizes)
        last = int(names[-1]) if names else 0
        self._name, self._since = f"{max(round(now * 1000), last + 1):016d}", now
        self._whole, self._packed, self._sizes[self._name] = b"", 0, 0
        old = [name for name, after in pairwise(names) if int(after) / 1000 < now - HOUR]
        self._delete(old)

    def _room(self, size: int) -> None:
        """There is room for so many bytes more."""
        assert self._sizes is not None
        total, gone = sum(self._sizes.values()), list[str]()
        for name in sorted(self._sizes.keys() - {self._name}):
            if total + size <= MOST:
                break
            total -= self._sizes[name]
            gone.append(name)
        self._delete(gone)

    def _delete(self, names: Sequence[str]) -> None:
        assert self._sizes is not None
        if names:
            self._checkpoint.delete(*(f"{FOLDER}/{name}" for name in names))
            for name in names:
                del self._sizes[name]

    def _pack(self, data: bytes) -> bytes:
        """How it is packed, and that."""
        if self._packed % _LIKE == 0:
            self._whole = data
            made = b"W" + zlib.compress(data, 1)
        else:
            packer = zlib.compressobj(1, zdict=self._whole[-_WINDOW:])
            made = b"L" + packer.compress(data) + packer.flush()
        self._packed += 1
        return made

    def _send(self) -> None:
        """What was held goes into an object."""
        held, self._held = self._held, []
        if held:
            self._checkpoint.write(f"{FOLDER}/{self._name}", b"".join(held))

    def _failed(self, e: OSError | BraidError, now: float) -> None:
        """Nothing is written for a while; what comes then goes into a segment of its own."""
        why = e.message if isinstance(e, BraidError) else e.strerror or str(e)
        if why != self._fault:
            self._fault = why
            self._note(f"{self._checkpoint.called(FOLDER)} is not written: {why}; the query goes on")
        self._again, self._name, self._sizes, self._held = now + TOGETHER, "", None, []


_WINDOW = 32 << 10  # bytes that a dictionary of zlib may have


# --------------------------------------------------------------------- read again


@dataclass(slots=True)
class Found:
    """The documents that could be read, in order; `spoilt`: what could not, in words."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    spoilt: list[str] = field(default_factory=list)


def segments(checkpoint: ObjectStore) -> dict[str, int]:
    """The bytes of each, by name."""
    found = ((name.rpartition("/")[2], size) for name, size in checkpoint.list(FOLDER))
    return {name: size for name, size in found if len(name) == 16 and name.isascii() and name.isdecimal()}


def read(checkpoint: ObjectStore) -> Found:
    """All there is; a run may add to it meanwhile."""
    found, size = Found(), 0
    for name in sorted(segments(checkpoint), reverse=True):
        where = checkpoint.called(f"{FOLDER}/{name}")
        if size > _ALL:
            found.spoilt.append(f"{where} and what is older is left out: it is more than {_ALL >> 20} MiB")
            break
        try:
            data = checkpoint.get(f"{FOLDER}/{name}", 2 * SEGMENT_SIZE)
        except FileNotFoundError:  # it has gone meanwhile
            continue
        except (OSError, BraidError) as e:
            found.spoilt.append(f"{where} cannot be read: {e.message if isinstance(e, BraidError) else e.strerror}")
            continue
        documents, lost = list[dict[str, Any]](), 0
        for x in _documents(name, data):
            if x is None:
                lost += 1
                continue
            size += x[1]
            documents.append(x[0])
            if size > _ALL:
                break
        found.documents[:0] = documents
        if lost:
            many = f"{lost} stretches of it are" if lost > 1 else "a stretch of it is"
            found.spoilt.append(f"{where}: {many} not as written, and skipped")
    return found


def _documents(name: str, data: bytes) -> Iterator[tuple[dict[str, Any], int] | None]:
    """Those of a segment, with their bytes; None for each stretch that cannot be read."""
    whole: bytes | None = None
    lost = False
    for body in framed.bodies(_MAGIC, name, data):
        made = None if isinstance(body, Stretch) else _unpacked(body, whole)
        if made is None or isinstance(body, Stretch):
            if isinstance(body, Stretch) or body[:1] == b"W":
                whole = None  # what follows may be packed by what is gone
            if not lost:
                yield None
            lost = True
            continue
        found, text = made
        whole = text if body[:1] == b"W" else whole
        lost = False
        yield found, len(text)


def _unpacked(body: bytes, whole: bytes | None) -> tuple[dict[str, Any], bytes] | None:
    """A document, and its text."""
    alone = body[:1] == b"W"
    if not alone and whole is None:
        return None
    unpacker = zlib.decompressobj() if alone or whole is None else zlib.decompressobj(zdict=whole[-_WINDOW:])
    try:
        made = unpacker.decompress(body[1:], _LONGEST)
        return (members(json.loads(made)), made) if unpacker.eof else None
    except (zlib.error, ValueError, RecursionError):
        return None
