"""The offset log: where each batch of a query ended, a line a batch, as long as the checkpoint is there.

In: the offset document of each batch. Out: the documents of all batches again, in order.
Rule: a line is written before its batch is published, and says when, and what has changed since the line before; the
first that a process writes says all, and so does each thousandth, and that those behind it stand under checksums
(`topics/sealed.py`). Lines are only added, and their times only rise, but where somebody sets the machine's clock back.
The last of a process may be torn, or be there twice: of a batch that is done again the offsets are the same. A line
that is whole and not what was written is refused, and so is what does not end where the state says. By its offset log a
query can be recomputed, batch by batch, with every row at the position that it had: order within a batch follows from
where the batch began and ended.

  cuts.jsonl     {"whole": true, "sums": true, "batch": n, …, "at": ms since 1970}, or
                 {"batch": n, "next": {only what moved}, …; null: gone}

Lines of versions before had no "at", and only the first of a process said all.

In a bucket, where nothing can be added to, the last lines are in the state of the last batch; as many as `MANY` go into
an object of their own, `cuts/N.jsonl`, called by the first batch that it tells.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from braid.errors import BraidError
from braid.stage import batches, state_file
from braid.store import ObjectStore
from braid.store.reading import lines_in
from braid.topics.files import members, parsed, whole
from braid.topics.sealed import has_seal, sealed, unsealed

NAME, FOLDER = "cuts.jsonl", "cuts"
MANY = 100
EVERY = 1000  # batches; so a reader that wants one of them begins near it
NOW = -1
AT = "at"  # of a line: when it was written. It is no part of what a batch is
_NOT = ("plan", "seen")  # of a document; they follow from the query, and from the topics

Document = dict[str, Any]


class OffsetLog:
    """Writes the lines of one process."""

    def __init__(self, checkpoint: ObjectStore, fsync: bool = False) -> None:
        self._checkpoint, self._fsync = checkpoint, fsync
        self._last: Document | None = None
        self._at = 0
        self._lines = [*kept(checkpoint)]

    def add(self, document: Mapping[str, Any], at: int | None = NOW) -> Sequence[str]:
        """The lines that have to be saved with the batch. One that reads only Spark's own sources has none. `at`: when
        it was written, of one that is copied."""
        if "batch" not in document:
            return self._lines
        first, line = self._last is None, self._line(document, at)
        torn = b"\n" if first and _torn(self._checkpoint) else b""
        if not self._checkpoint.append(NAME, b"%s%s\n" % (torn, line.encode()), self._fsync):
            self._lines.append(line)
        return self._lines

    def _line(self, document: Mapping[str, Any], at: int | None) -> str:
        now = {name: x for name, x in document.items() if name not in _NOT}
        all_of_it = self._last is None or now["batch"] % EVERY == 0
        line = {"whole": True, "sums": True, **now} if all_of_it else _changes(self._last or {}, now)
        self._last = now
        if at is not None:
            self._at = line[AT] = max(self._at, time.time_ns() // 1_000_000) if at == NOW else at
        return sealed(json.dumps(line, separators=(",", ":")).encode()).decode().removesuffix("\n")

    def send(self) -> None:
        """Many lines that are saved with a batch are put where they stay."""
        if len(self._lines) >= MANY:
            first = parsed(self._lines[0])["batch"]
            data = "".join(f"{line}\n" for line in self._lines).encode()
            self._checkpoint.write(f"{FOLDER}/{first:020d}.jsonl", data)
            self._lines, self._last = [], None


def kept(checkpoint: ObjectStore) -> Sequence[str]:
    """Those that are in the state of the last batch."""
    last, _ = state_file.latest(checkpoint)
    return () if last < 0 else state_file.held(checkpoint, last).cuts


def _all(checkpoint: ObjectStore) -> Iterator[bytes]:
    """All lines there are, in order."""
    for name in (NAME, *(f"{FOLDER}/{x}" for x in sorted(checkpoint.names(FOLDER)))):
        yield from lines_in(checkpoint, name)
    yield from (line.encode() for line in kept(checkpoint))


def _torn(checkpoint: ObjectStore) -> bool:
    """Whether what a process before this one has written does not end a line."""
    size = checkpoint.size(NAME)
    return size is not None and size > 0 and checkpoint.range(NAME, size - 1, 1) != b"\n"


def _changes(before: Document, now: Document) -> Document:
    found = {name: x for name, x in now.items() if name not in before or before[name] != x}
    found["batch"] = now["batch"]
    found["next"] = {place: x for place, x in now["next"].items() if before["next"].get(place) != x}
    return found | dict.fromkeys(before.keys() - now.keys())


def read(folder: ObjectStore, upto: int) -> Iterator[Document]:
    """The documents of the batches 0 to `upto`; an error where one is missing."""
    return (document for document, _ in timed(folder, upto))


def timed(folder: ObjectStore, upto: int) -> Iterator[tuple[Document, int | None]]:
    """The same, each with the time at which its line was written; None where that is not known."""
    made = _told(folder)
    missing = next((n for n in range(upto + 1) if n not in made), None)
    if missing is not None:
        raise _missing(folder, missing)
    return (made[n] for n in range(upto + 1))


def check(folder: ObjectStore, last: int) -> bool:
    """Refuses what was changed since, what lacks a batch behind the first that is there, and what does not end where
    the state behind the `last` batch says. False where the first batches are not told."""
    made, document = _told(folder), batches.document_of(folder, last)
    upto = document.get("batch", -1)
    if not made or upto < 0:
        return bool(upto < 0)
    first = min(made)
    missing = next((n for n in range(first, upto + 1) if n not in made), None)
    if missing is not None:
        raise _missing(folder, missing)
    if made[upto][0] != {name: x for name, x in document.items() if name not in _NOT and x is not None}:
        what = f"{called(folder)} is damaged: batch {upto} did not end there, the state behind it says"
        raise BraidError(what, HINT)
    return first == 0


def _told(folder: ObjectStore) -> dict[int, tuple[Document, int | None]]:
    """What all lines come to, and when each was written, by batch."""
    made, known, sums = dict[int, tuple[Document, int | None]](), None, False
    for number, line in enumerate(_all(folder), 1):
        x = line_of(line)
        if x is None:
            if has_seal(line):
                raise _damaged(folder, number)
            known = None
            continue  # torn
        batch = x["batch"]
        at = x.pop(AT, None)
        if x.pop("whole", False):
            known, sums = x, x.pop("sums", False) is True
        elif known is not None and batch == known["batch"] + 1:
            known = _changed(known, x)
        else:
            known = None  # a line before it is torn
        if sums and not has_seal(line):
            raise _damaged(folder, number)
        if known is not None and batch >= 0:
            made[batch] = known, at
    return made


def line_of(line: bytes) -> Document | None:
    """What a line says; None where it is torn, or damaged."""
    try:
        x = members(parsed(unsealed(line)))
        whole(x["batch"], "batch", -1)  # -1: there was nothing to read yet
        whole(x.get(AT, 0), "a time")
    except (ValueError, KeyError):
        return None
    return x


HINT = "put it back from a copy, or give the changed query another name; a run of the same query does not need it"


def called(folder: ObjectStore) -> str:
    return folder.called(NAME if folder.has(NAME) else FOLDER)


def _damaged(folder: ObjectStore, line: int) -> BraidError:
    return BraidError(f"{called(folder)} is damaged: line {line} is not what its checksum says", HINT)


def _missing(folder: ObjectStore, batch: int) -> BraidError:
    what = f"{called(folder)} does not say where batch {batch} ended"
    return BraidError(
        what, "versions before 0.2 kept no offset log; else lines of it are gone: put it back from a copy"
    )


def _changed(before: Document, x: Document) -> Document:
    made = before | x | {"next": before["next"] | x["next"]}
    return {name: value for name, value in made.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Replay:
    """A query that reads again what another has read, batch by batch as that did. `folder`: the other's checkpoint;
    `upto`: the number of its last cut; `empty`: before the first it had a batch without one, as there was nothing to
    read; `leaves`: by the number of each leaf which one of the other's reads the same; `sources`: as
    the other's checkpoint has them; `began`: where it began, in the words of its settings."""

    folder: ObjectStore
    upto: int
    leaves: Mapping[int, int]
    sources: Sequence[tuple[str, int]] = ()
    began: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    empty: bool = False

    @property
    def last_batch(self) -> int:
        return self.upto + self.empty

    def documents(self) -> list[Document]:
        """Where each batch ends, by the leaves of this query."""
        return [self.own(x) for x in read(self.folder, self.upto)]

    def last(self) -> Document:
        return (self.documents() or [{"next": {}, "ended": []}])[-1]

    def own(self, x: Document) -> Document:
        """Where a batch of the other ends, by the leaves of this one."""
        made: Document = {"next": self._places(x["next"]), "ended": [], "idle": []}
        for name in ("ended", "idle", "silent"):
            if name in x:
                made[name] = [*self._places(dict.fromkeys(x[name]))]
        if "early" in x:
            made["early"] = self._places(x["early"])
        if "captured" in x:
            ends = x["captured"]
            made["captured"] = {str(n): ends[str(other)] for n, other in self.leaves.items() if str(other) in ends}
        return made

    def _places(self, x: Mapping[str, Any]) -> Document:
        """What is said of the other's places, of this one's."""
        split = [(*place.split("/"), said) for place, said in x.items()]
        own = self.leaves.items()
        return {f"{leaf}/{p}": said for leaf, other in own for theirs, p, said in split if theirs == str(other)}

    def settings(self) -> dict[str, Any]:
        """Where this one begins, in the words of a checkpoint's settings."""
        made = dict[str, Any]()
        if "begin" in self.began:
            made["begin"] = self._places(self.began["begin"])
        if "from" in self.began:
            where = self.began["from"]
            made["from"] = {str(n): where[str(other)] for n, other in self.leaves.items() if str(other) in where}
        return made
