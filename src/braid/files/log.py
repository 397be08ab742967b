"""What has been read of the files of an input, or will be: a log that only grows, in the checkpoint.

In: pieces, in the order in which they are read. Out: the same, for whoever plans batches or reads rows.
Rule: one process writes, any number read. A piece is on disk before an offset within it is given to anybody, so the
same offset gives the same row for ever. What no batch has planned to read may be dropped again at a start.

  LIFE ROOT       one line of JSON: {"format", "life", "root"}; another life is another list
  PIECE           a line of JSON each
  (log).more      is there while what was there at the start is still being made ready; LEFT: it will not be
Each line begins with the CRC-32 of what follows; a line without its end was left by a crash and does not count.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import json
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import uuid4

from braid.errors import BraidError, anew
from braid.store import ObjectStore
from braid.store.files import open_regular, refuse_other, write_atomic
from braid.topics.files import lines_of, members, parsed, text, whole, why
from braid.topics.sealed import has_seal, sealed, unsealed

FORMAT = 2
KNOWN = (1, FORMAT)  # in 1 digests were BLAKE2b, without a name
MORE, LEFT = ".more", b"left"
MOST = 1 << 30  # bytes of a log


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `first` to `end - 1` of an input: bytes `start` to `stop - 1` of a file (of its content, where it is
    compressed) with their `digest`. A piece without rows tells that the file was looked at again.

    `size`, `mtime`: of the whole file at that time. `tail`: what the bytes end with, besides the end of a line: a
    `line` that had no end, a `quote` that was not closed (and where its row begins). `rest`: more was left, such as an
    unfinished line.
    """

    name: str
    start: int
    stop: int
    digest: str
    size: int
    mtime: int
    rows: int
    tail: str = ""
    rest: bool = False
    first: int = 0

    @property
    def end(self) -> int:
        return self.first + self.rows


class FileLog:
    """`path`: None for a list in memory. `refresh` takes in what another process has appended."""

    def __init__(self, path: str | None, root: str, life: str = "", pieces: Sequence[Piece] = ()) -> None:
        self.path, self.root, self.life = path, root, life
        self.pieces: list[Piece] = []
        self._firsts: list[int] = []
        self._of: dict[str, list[Piece]] = {}
        self._at = 0  # bytes of the file that have been read
        self._format = FORMAT
        self._take(pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        return FileLog, (self.path, self.root, self.life, () if self.path else tuple(self.pieces))

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else 0

    def of(self, name: str) -> list[Piece]:
        """The pieces of a file, in order."""
        return self._of.get(name, [])

    def names(self) -> list[str]:
        return list(self._of)

    def since(self, first: int) -> Iterator[Piece]:
        """The pieces with rows from `first` on."""
        for piece in self.pieces[max(bisect_right(self._firsts, first) - 1, 0) :]:
            if piece.rows and piece.end > first:
                yield piece

    def append(self, more: Sequence[Piece]) -> None:
        """Adds pieces behind the last one; they get their places."""
        placed: list[Piece] = []
        for piece in more:
            placed.append(replace(piece, first=placed[-1].end if placed else self.end))
        if self.path is not None and placed:
            data = b"".join(_line(asdict(p)) for p in placed)
            with open(self.path, "r+b") as f:
                f.truncate(self._at)  # half a line of a crash
                f.seek(self._at)
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            self._at += len(data)
        self._take(placed)

    def _take(self, more: Sequence[Piece]) -> None:
        for piece in more:
            self.pieces.append(piece)
            self._firsts.append(piece.first)
            self._of.setdefault(piece.name, []).append(piece)

    # ---------------------------------------------------------------- on disk

    @classmethod
    def open(cls, path: str, root: str) -> FileLog:
        """The log as it stands on disk, or a new one."""
        log = cls(path, root)
        if os.path.exists(path):
            log.refresh()
        return log

    def planned(self, rows: int) -> FileLog:
        """The log without pieces of which no row lies below `rows`; written where it is `begun`."""
        kept = [p for p in self.pieces if p.first < rows or (p.rows == 0 and p.first == rows)]
        return self if len(kept) == len(self.pieces) else FileLog(self.path, self.root, "", kept)

    def check(self, rows: int) -> None:
        """Refuses a log that lacks pieces of which so many rows were given to somebody."""
        if self.end < rows:
            what = f"{self.path} is damaged: it names {self.end} rows, and {rows} were read"
            raise BraidError(what, _DAMAGED)

    def begun(self, root: str) -> FileLog:
        """The log as a start writes it, under this root."""
        if self.life and root == self.root and self._format == FORMAT:
            return self
        assert self.path is not None
        folder = os.path.dirname(self.path)
        os.makedirs(folder, exist_ok=True)
        made = FileLog(self.path, root, uuid4().hex[:12], self.pieces)
        lines = [{"format": FORMAT, "life": made.life, "root": root}, *map(asdict, self.pieces)]
        data = b"".join(map(_line, lines))
        write_atomic(self.path, data, folder, fsync=True)
        made._at = len(data)
        return made

    def refresh(self) -> None:
        """Takes in what has been appended on disk."""
        if self.path is None:
            return
        try:
            if os.lstat(self.path).st_size == self._at:
                return
            with os.fdopen(open_regular(self.path), "rb") as f:
                if os.fstat(f.fileno()).st_size > MOST:
                    raise BraidError(f"{self.path} has more than {MOST} bytes; braid writes no such file", _DAMAGED)
                f.seek(self._at)
                data = f.read(MOST)
        except OSError as e:
            raise BraidError(f"{self.path} cannot be read: {e.strerror}", _DAMAGED) from None
        lines = data[: data.rfind(b"\n") + 1]
        try:
            found = [self._read(line.removesuffix(b"\n")) for line in io.BytesIO(lines)]  # a bad one ends it
            if self._at == 0 and found:
                head = found.pop(0)
                if head.get("format") not in KNOWN:
                    raise BraidError(f"{self.path} has another format than {FORMAT}", "use the braid that wrote it")
                if self.life and head["life"] != self.life:
                    raise BraidError(
                        f"{self.path} was begun again by another run", "one run at a time has a checkpoint"
                    )
                self.life, self.root = text(head["life"], "life"), text(head["root"], "root")
                self._format = head["format"]
            pieces = [_piece(x) for x in found]
            ends = [self.end, *(p.end for p in pieces)]
            if any(p.first != end for p, end in zip(pieces, ends, strict=False)):
                raise ValueError("a piece does not begin where the one before it ends")
        except (ValueError, KeyError) as e:
            raise BraidError(f"{self.path} is damaged: {why(e)}", _DAMAGED) from None
        self._at += len(lines)
        self._take(pieces)

    def _read(self, line: bytes) -> dict[str, Any]:
        crc, _, document = line.partition(b" ")
        if crc != b"%08x" % zlib.crc32(document):
            raise BraidError(f"{self.path} is damaged: a line is not what its checksum says", _DAMAGED)
        return members(parsed(document))


def _piece(x: dict[str, Any]) -> Piece:
    start, stop, size, rows, first = (whole(x[f], f) for f in ("start", "stop", "size", "rows", "first"))
    mtime = whole(x["mtime"], "mtime", -(1 << 63), 1 << 63)
    name, digest, tail = (text(x[f], f) for f in ("name", "digest", "tail"))
    if not isinstance(x["rest"], bool):
        raise ValueError("rest is neither true nor false")
    return Piece(name, start, stop, digest, size, mtime, rows, tail, x["rest"], first)


_DAMAGED = f"put it back from a copy; or {anew()}"


def _line(x: dict[str, Any]) -> bytes:
    text = json.dumps(x, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


class Names:
    """The files that queries have ever read, one folder of checkpoints together: so that one that starts anew can say
    what it misses. A line that is there twice, or not, costs a note; one that was changed is refused."""

    def __init__(self, checkpoint: ObjectStore) -> None:
        self._path = checkpoint.parent.called(".files.jsonl")

    def add(self, paths: Sequence[str]) -> None:
        data = b"".join(sealed(json.dumps({"path": path}).encode()) for path in paths)
        refuse_other(self._path)
        with open(self._path, "ab") as f:
            f.write(data)

    def gone(self, pattern: str) -> list[str]:
        """Those that match a pattern and are no longer there, in name order."""
        known = set()
        with contextlib.suppress(FileNotFoundError):
            for line in lines_of(self._path):
                if (path := self._named(line)) is not None:
                    known.add(path)
        matching = fnmatch.filter(known, os.path.abspath(pattern))
        return sorted(path for path in matching if not os.path.exists(path))

    def check(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for line in lines_of(self._path):
                self._named(line)

    def _named(self, line: bytes) -> str | None:
        """None: half a line of a crash. Older versions wrote the path alone."""
        try:
            x = parsed(unsealed(line))
            if isinstance(x, str):
                return x
            if not has_seal(line):
                raise ValueError
            return text(members(x)["path"], "a path")
        except (ValueError, KeyError):
            if not line.endswith(b"}"):
                return None
            hint = "take it away: it only serves to know which files of an input are gone"
            raise BraidError(f"{self._path} is damaged: a line is not what its checksum says", hint) from None
