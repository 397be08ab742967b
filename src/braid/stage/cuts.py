"""Where the batches of a query ended: all of them, one line each, as long as the checkpoint is there.

In: the offset document of each batch. Out: the documents of all batches again, in order.
Rule: a line is written before its batch is published, and says what has changed since the line before; the first that
a process writes says all. Lines are only added. The last may be torn, or be there twice: of a batch that is done
again the offsets are the same. By its cuts a query can be worked out anew, batch by batch, with every row at the
position that it had: order within a batch follows from where the batch began and ended.

  cuts.jsonl     {"batch": n, "whole": true, …} or {"batch": n, "next": {only what moved}, …; null: gone}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from braid.errors import BraidError
from braid.topics.files import force, lines_of, members, parsed, whole

NAME = "cuts.jsonl"
_NOT = ("plan", "seen")  # of a document; they follow from the query, and from the topics

Document = dict[str, Any]


class Cuts:
    """Writes the lines of one process."""

    def __init__(self, folder: str, fsync: bool = False) -> None:
        self._path, self._fsync = os.path.join(folder, NAME), fsync
        self._last: Document | None = None

    def add(self, document: Mapping[str, Any]) -> None:
        now = {name: x for name, x in document.items() if name not in _NOT}
        line = {"whole": True, **now} if self._last is None else _changes(self._last, now)
        with open(self._path, "ab") as f:
            if self._last is None and f.tell() and not _ends(self._path):
                f.write(b"\n")  # behind what was torn
            f.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            f.flush()
            if self._fsync:
                os.fsync(f.fileno())
        if self._fsync and self._last is None:
            force(os.path.dirname(self._path))
        self._last = now


def _ends(path: str) -> bool:
    with open(path, "rb") as f:
        f.seek(-1, os.SEEK_END)
        return f.read() == b"\n"


def _changes(before: Document, now: Document) -> Document:
    found = {name: x for name, x in now.items() if name not in before or before[name] != x}
    found["batch"] = now["batch"]
    found["next"] = {place: x for place, x in now["next"].items() if before["next"].get(place) != x}
    return found | dict.fromkeys(before.keys() - now.keys())


def read(folder: str, upto: int) -> Iterator[Document]:
    """The documents of the batches 0 to `upto`; an error where one is missing."""
    path, made, known = os.path.join(folder, NAME), dict[int, Document](), None
    try:
        for line in lines_of(path):
            try:
                x = members(parsed(line))
                batch = whole(x["batch"], "batch")
            except (ValueError, KeyError):
                continue  # torn
            if x.pop("whole", False):
                known = x
            elif known is not None and batch == known["batch"] + 1:
                known = _changed(known, x)
            else:
                known = None  # a line before it is torn
            if known is not None:
                made[batch] = known
    except FileNotFoundError:
        pass
    missing = next((n for n in range(upto + 1) if n not in made), None)
    if missing is not None:
        raise BraidError(f"{path} does not say where batch {missing} ended", "versions before 0.2 kept no cuts")
    return (made[n] for n in range(upto + 1))


def _changed(before: Document, x: Document) -> Document:
    made = before | x | {"next": before["next"] | x["next"]}
    return {name: value for name, value in made.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Replay:
    """A query that reads again what another has read, batch by batch as that did. `folder`: the other's checkpoint;
    `upto`: its last batch; `leaves`: by the number of each leaf which one of the other's reads the same."""

    folder: str
    upto: int
    leaves: Mapping[int, int]

    def documents(self) -> list[Document]:
        """Where each batch ends, by the leaves of this query."""
        return [self._own(x) for x in read(self.folder, self.upto)]

    def _own(self, x: Document) -> Document:
        made: Document = {"next": {}, "ended": [], "idle": []}
        for leaf, other in self.leaves.items():
            own = {place: f"{leaf}/{place.partition('/')[2]}" for place in x["next"] if place.startswith(f"{other}/")}
            made["next"] |= {place: x["next"][theirs] for theirs, place in own.items()}
            for name in ("ended", "idle"):
                made[name] += [own[theirs] for theirs in x.get(name, []) if theirs in own]
        return made
