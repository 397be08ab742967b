"""Registered DataFrames of a store: what each is declared as, and its rows, in pieces.

In: the root of a store, a name, a document of what is registered. Out: that document; the pieces of its rows, each a
Parquet file that is compared with its checksum before it is read.
Rule: pieces are only added, and never change: a row keeps its place for as long as the name has it. The document of a
name is written after the file of a piece, so a piece that is named is there. A DataFrame that streams has no pieces:
its rows are the session's that registered it.

  frames/NAME.json      the document (`documents.py`)
  frames/NAME/*.parquet the rows of each piece, as they were given
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from braid.errors import BraidError
from braid.store import ObjectStore
from braid.store.files import open_regular, refuse_link, write_atomic
from braid.topics.documents import called, changed, document
from braid.topics.files import check_name, is_name, items, members, parsed, reach, text, whole, why

PREFIX = "registered."  # begins the names by which queries know DataFrames, as they know topics
FOLDER = "frames"
FORMAT = 1
_BLOCK = 8 << 20  # bytes taken at once


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of one registration. `rows`: how many, by the user's number of a partition; `crc`: of the file's bytes;
    `low`, `high`: the range of their times (ms), where they have some."""

    file: str
    bytes: int
    crc: int
    rows: Mapping[int, int]
    low: int | None = None
    high: int | None = None

    @property
    def count(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows are read: the columns by the user's names with their types as text, and what stands in which."""

    kind: str
    columns: Sequence[tuple[str, str]] = ()
    key: str | None = None
    time: str | None = None
    partition: str | None = None
    offset: str | None = None
    deleted: str | None = None
    streams: bool = False

    def like(self, other: Shape) -> bool:
        """Whether rows of both can stand in one; the order of columns is none of theirs."""
        return dict(self.columns) == dict(other.columns) and replace(self, columns=other.columns) == other

    @property
    def placed(self) -> bool:
        """Whether the user says where rows stand."""
        return self.partition is not None and self.offset is not None


@dataclass(frozen=True, slots=True)
class Registered:
    """`declared`: the statement that declares it, by dialect; `hidden`: nobody asks for it by its name any more, and
    queries that have read it still need it."""

    name: str
    shape: Shape
    declared: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[Piece] = ()
    hidden: bool = False

    @property
    def rows(self) -> int:
        return sum(piece.count for piece in self.pieces)

    def partitions(self) -> list[int]:
        """The user's numbers of its partitions, in the order in which they came: a later piece changes no place."""
        return list(dict.fromkeys(p for piece in self.pieces for p in sorted(piece.rows))) or [0]


def is_registered(topic: str) -> bool:
    """Whether a query that reads this topic reads a DataFrame."""
    return topic.startswith(PREFIX)


def name_of(topic: str) -> str:
    return topic.removeprefix(PREFIX)


def names(root: ObjectStore) -> list[str]:
    """All that are registered in a store, hidden ones too, and those of older versions, which have no document."""
    there = () if root.path is None else root.names(FOLDER)
    names = {name.removesuffix(".json") for name in there}
    return sorted(name for name in names if is_name(name) and not name.startswith("."))


def read(root: ObjectStore, name: str) -> Registered | None:
    """What is registered by this name."""
    if root.path is None:  # Spark reads their rows from files
        return None
    path = f"{FOLDER}/{check_name(name)}"
    try:
        data = document(root, path)
        return None if data is None else _from_json(name, members(parsed(data)))
    except (ValueError, KeyError, TypeError) as e:
        raise BraidError(f"{called(root, path)} cannot be read: {why(e)}", "put it back from a copy") from None


def needed(root: ObjectStore, topic: str) -> Registered:
    """What a query reads by this topic; refused where it is gone."""
    found = read(root, name_of(topic))
    if found is None:
        raise BraidError(f"no DataFrame {name_of(topic)} is registered in {root}", "register it: session.register(…)")
    return found


def change(root: ObjectStore, name: str, to: Callable[[Registered | None], Registered]) -> Registered:
    """What is registered by a name is changed, under a lock; gives what stands afterwards."""
    made: list[Registered] = []

    def after(_: bytes | None) -> bytes | None:
        before = read(root, name)
        made[:] = [to(before)]
        return None if made[0] == before else _to_json(made[0])

    changed(root, f"{FOLDER}/{check_name(name)}", after)
    return made[0]


def hide(root: ObjectStore, name: str) -> None:
    """Nobody asks for it by its name from here on."""
    if read(root, name) is not None:
        change(root, name, lambda before: replace(before, hidden=True) if before else Registered(name, Shape("stream")))


def remove(root: ObjectStore, name: str) -> None:
    """The name and its rows are gone; the name first, so that what is left is nobody's."""
    root.delete(f"{FOLDER}/{check_name(name)}.json", f"{FOLDER}/.{name}.lock")
    reach("frame forgotten")
    root.at(f"{FOLDER}/{name}").clear()


def folder_of(root: ObjectStore, name: str) -> str:
    return root.at(f"{FOLDER}/{check_name(name)}").url


def keep(root: ObjectStore, name: str, file: str, data: bytes) -> str:
    """The file of a piece is there afterwards; gives its path."""
    folder = folder_of(root, name)
    os.makedirs(folder, exist_ok=True)
    refuse_link(os.path.dirname(folder))
    refuse_link(folder)
    path = os.path.join(folder, file)
    if not os.path.exists(path) or _sum(path) != zlib.crc32(data):
        write_atomic(path, data, folder)
    reach("piece written")
    return path


def discard(root: ObjectStore, found: Registered, pieces: Sequence[Piece]) -> None:
    """Files of pieces that it does not name any more are gone."""
    named = {piece.file for piece in found.pieces}
    for piece in pieces:
        if piece.file not in named:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder_of(root, found.name), piece.file))


def path_of(root: ObjectStore, name: str, piece: Piece) -> str:
    """The file of a piece, which is what was written."""
    path = os.path.join(folder_of(root, name), piece.file)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise BraidError(f"{path} is missing: rows of the DataFrame {name}", "put it back from a copy") from None
    if _checked(path, found.st_ino, found.st_mtime_ns, found.st_size) != piece.crc:
        raise BraidError(f"{path} is damaged: it is not what its checksum says", "put it back from a copy")
    return path


@lru_cache(maxsize=256)
def _checked(path: str, *stamp: int) -> int:
    return _sum(path)


def _sum(path: str) -> int:
    crc = 0
    with os.fdopen(open_regular(path), "rb") as f:
        while data := f.read(_BLOCK):
            crc = zlib.crc32(data, crc)
    return crc


def prefix(found: Registered, partition: int, offset: int) -> tuple[int, int]:
    """An end of a piece at `offset` or behind it, and the checksum of all pieces up to there. `partition`: its place
    among `partitions`."""
    return next((x for x in _prefixes(found, partition) if x[0] >= offset), (0, 0))


def checksum(found: Registered, partition: int, end: int) -> int | None:
    """Of the pieces up to an end that was one of `prefix`."""
    return next((crc for at, crc in _prefixes(found, partition) if at == end), None)


def ends(found: Registered) -> list[int]:
    """How many rows each partition has."""
    return [sum(piece.rows.get(p, 0) for piece in found.pieces) for p in found.partitions()]


def _prefixes(found: Registered, partition: int) -> list[tuple[int, int]]:
    numbers, made, end, crc = found.partitions(), list[tuple[int, int]](), 0, 0
    for piece in found.pieces if partition < len(numbers) else ():
        end += piece.rows.get(numbers[partition], 0)
        crc = zlib.crc32(piece.crc.to_bytes(4, "little"), crc)
        if numbers[partition] in piece.rows:
            made.append((end, crc))
    return made


# ----------------------------------------------------------------------- JSON


def _to_json(x: Registered) -> bytes:
    made = {"format": FORMAT} | asdict(x)
    made["pieces"] = [asdict(p) | {"rows": {str(n): count for n, count in p.rows.items()}} for p in x.pieces]
    return json.dumps(made, ensure_ascii=False, indent=1).encode()


def _from_json(name: str, x: dict[str, Any]) -> Registered:
    if x["format"] != FORMAT:
        raise ValueError(f"it is of format {x['format']}, this version reads {FORMAT}")
    if x["name"] != name:
        raise ValueError(f"it is of the DataFrame {x['name']!r:.100}")
    s = members(x["shape"], "shape")
    of = {n: None if s[n] is None else text(s[n], n) for n in ("key", "time", "partition", "offset", "deleted")}
    columns = [(text(n, "a column"), text(t, "a type")) for n, t in items(s["columns"], "columns")]
    declared = {text(d, "a dialect"): text(sql, "a statement") for d, sql in members(x["declared"], "declared").items()}
    shape = Shape(text(s["kind"], "kind"), tuple(columns), streams=s["streams"] is True, **of)
    pieces = tuple(_piece(members(p, "a piece")) for p in items(x["pieces"], "pieces"))
    return Registered(name, shape, declared, pieces, x["hidden"] is True)


def _piece(x: dict[str, Any]) -> Piece:
    rows = {whole(int(n), "a partition"): whole(count, "rows") for n, count in members(x["rows"], "rows").items()}
    file = text(x["file"], "file")
    if not is_name(file):
        raise ValueError(f"{file!r:.100} is no file of it")
    times = (None if x[n] is None else whole(x[n], n, -(1 << 62)) for n in ("low", "high"))
    return Piece(file, whole(x["bytes"], "bytes"), whole(x["crc"], "crc", 0, (1 << 32) - 1), rows, *times)
