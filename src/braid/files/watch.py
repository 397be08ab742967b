"""What of the files of an input is read next: new files, and what known ones have grown by.

In: a pattern, the log of what is read. Out: pieces at the log's end; notes; refusals.
Rule: a file is its name and its content. What has been read of it must stay as it was; what comes behind is read on.
New files are read in the order of their names where they are first seen together, else in the order in which they come.
A file that is gone is not missed once its rows are read.

While a run is `up` a new file is not looked into before it is at rest: its size and time have stayed for `REST`. A last
line without an end is left until the file has rested for `LONG`, since whoever writes it may not have finished it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from braid.errors import BraidError, anew
from braid.files.early import First
from braid.files.input import FileInput, needs_time, reading
from braid.files.listing import Found, is_awaited, is_plain, kind_of, look, missing, stat
from braid.files.log import LEFT, MORE, FileLog, Names, Piece
from braid.files.quotes import first_row
from braid.files.text import PUT_BACK, UNCLOSED, Text, content, digest_of, shown
from braid.lower.physical import Plan
from braid.operators.changes import NEVER
from braid.plan.logical import Source
from braid.stage.batches import reached as reached_in
from braid.stage.cut import behind_an_end
from braid.stage.reset_marker import FILES
from braid.store import ObjectStore
from braid.store.files import write_atomic
from braid.store.reading import LONGEST

EVERY = 0.5  # s between two looks
REST = 1.0  # s
LONG = 10.0  # s
PIECE = 64 << 20  # bytes of text that are first made ready when a query starts; then twice as many, and so on
EDGE = 1 << 16  # bytes before the end of what was read that are compared whenever a file has grown

Note = Callable[[str], None]


def log_path(checkpoint: ObjectStore, source: str) -> str:
    return checkpoint.called(log_name(source))


def log_name(source: str) -> str:
    """Where the log of a source lies in a checkpoint."""
    return f"files/{source}.jsonl"


@dataclass(frozen=True, slots=True)
class Files:
    """Files that stand for a topic: a path or glob, and how they are to be read."""

    pattern: str
    options: Mapping[str, str] = field(default_factory=dict)


class FileWatch:
    """One source's files. `done`: how many rows have been read for good, and how many some batch has been given;
    `closed`: its end was processed; `up`: the run stays up, so what is not there yet may still come; `needed`: as
    `FileInput` has it."""

    def __init__(
        self,
        source: Source,
        files: Files,
        checkpoint: ObjectStore,
        done: tuple[int, int] = (0, 0),
        closed: bool = False,
        up: bool = False,
        note: Note = lambda text: None,
        needed: frozenset[str] | None = None,
    ) -> None:
        self.source, self.pattern, self.up, self.note = source, files.pattern, up, note
        self._committed, self._planned = done
        root, _ = look(files.pattern, empty=True)
        self._log = FileLog.open(log_path(checkpoint, source.name), root).planned(self._planned)
        self._log.check(self._planned)
        self._list()
        self._closed = closed
        self._seen: dict[str, tuple[Found, float]] = {}  # a file as it lies there, and since when
        self._known: dict[str, Found] = {}  # files that were looked at again, as they lay there then
        self._whole: dict[str, int] = {}  # how much of a file was compared in this process
        self._edges: dict[str, tuple[int, str]] = {}  # digest of what stands before the end of what was read
        self._told: set[str] = set()
        self._names = Names(checkpoint)
        self._left: Iterator[Piece] = iter(())  # of what was there at the beginning
        self._reached = NEVER
        self.input = FileInput(source, self._log, reading(files.options), checkpoint.beside(FILES).url, needed)

    def read_as(self, source: Source) -> FileInput:
        """The same files, read under another alias."""
        return FileInput(source, self._log, self.input.options, self.input.cache, self.input.needed)

    def _list(self) -> None:
        """What is there, but for files that have no byte yet and had none before."""
        self._root, found = look(self.pattern, empty=True)
        self._awaited = [f.name for f in found if is_awaited(self.pattern, f) and not self._log.of(f.name)]
        self._present = [f for f in found if f.name not in self._awaited]

    # --------------------------------------------------------- before a start

    def check(self) -> None:
        """Refuses what cannot be read or read on; writes nothing."""
        self._check_root()
        if (
            not self._present
            and not self._awaited
            and not self._log.pieces
            and not (self.up and os.path.isdir(self._root))
        ):
            raise missing(self.pattern)
        for piece in self._log.since(self._committed):
            if stat(self._log.root, piece.name) is None and not self._kept(piece):
                raise BraidError(f"{self.source.name}: {piece.name} is gone before it was read to its end", PUT_BACK)
        reader = FileInput(self.source, FileLog(None, self._root), self.input.options, self.input.cache)
        for f in self._present:
            kind_of(f.name)
            pieces = self._log.of(f.name)
            if pieces and not _same(f, pieces[-1]):
                self._check_prefix(f, pieces)
            elif not pieces and not (self.up and (not self._rests(f, REST) or self._unfinished(f))):
                if self._closed:
                    raise behind_an_end(self.source.name, f.name)
                reader.check(f)

    def _kept(self, piece: Piece) -> bool:
        """Whether its rows are there without the file."""
        made = [os.path.join(self.input.cache, name) for name in self.input.cached(piece)]
        return kind_of(piece.name) != "parquet" and all(map(os.path.exists, made))

    def _check_root(self) -> None:
        """Names are those below a folder: below another one, they must be the same files."""
        log = self._log
        if not log.pieces or log.root == self._root:
            return
        known = [f for f in self._present if log.of(f.name)]
        if not known:
            what = f"{self.source.name} was read from files in {log.root}, now from {self._root}"
            hint = f"files are known by their names in that folder: keep it; or {anew()}"
            raise BraidError(what, hint)
        for f in known:
            self._check_prefix(f, log.of(f.name))

    def begin(self, more: bool = True) -> None:
        """Makes the log that of this start, and says that `read_on` adds what is there; `look` goes on from there. With
        no `more` than it knows it has all."""
        if not more:
            self.input.log = self._log = self._log.begun(self._root)
            return
        if not self._log.life and not self._log.pieces and (gone := self._names.gone(self.pattern)):
            shown = ", ".join(os.path.relpath(path, self._root) for path in gone[:5]) + ", …" * (len(gone) > 5)
            what = f"{len(gone)} files that were read before and are gone" if len(gone) > 1 else "a file that is gone"
            self._tell(f"{self.source.name} starts without {what}: {shown}", "gone")
        self.input.log = self._log = self._log.begun(self._root)
        until = time.monotonic() + 3 * REST
        while self.up and time.monotonic() < until:  # what was written just now is there at the start, too
            if all([self._rests(f, REST) for f in self._present if not self._log.of(f.name)]):
                break
            time.sleep(REST / 10)
            self._list()
        with open(f"{self._log.path}{MORE}", "w"):
            pass
        self._left = self._looked(PIECE)

    def first_of_all(self) -> First | None:
        """What reads the first file, of which nothing is logged, before a start; None where it is not at rest, or large
        and read whole."""
        if self._log.pieces or not self._present:
            return None
        first = self._present[0]
        large = first.size > 8 * PIECE and not is_plain(first.name)
        if large or time.time() - first.mtime / 1e9 < LONG:
            return None
        return self.input, first, PIECE

    # -------------------------------------------------------------- new pieces

    def read_on(self) -> bool:
        """Adds the next piece of what was there at the beginning; whether there may be another."""
        if next(self._left, None) is not None:
            return True
        with suppress(FileNotFoundError):
            os.unlink(f"{self._log.path}{MORE}")
        return False

    def leave(self) -> None:
        """The rest will not be made ready in this run."""
        path = f"{self._log.path}{MORE}"
        if os.path.exists(path):
            write_atomic(path, LEFT, os.path.dirname(path))

    def reached(self) -> int:
        """The highest time that was made ready in this run: whoever waits for several sources waits for the lowest of
        these. Tables are read before all streams, and what has no time is waited for to its end."""
        return self._reached

    def look(self) -> None:
        """Adds what there is to read now."""
        for _ in self._looked():
            pass

    def _looked(self, most: int | None = None) -> Iterator[Piece]:
        """The same, piece by piece of at most so many bytes, each as soon as it can be read."""
        self._list()
        for name in self._awaited:
            self._tell(f"{self.source.name}: {name} is empty yet; it is waited for", name)
        if not self._present and not self._awaited and not self._log.pieces:
            self._tell(f"{missing(self.pattern).message} yet; {self.source.name} waits for one", "")
        last = max(self._log.names(), default="")
        now = {f.name for f in self._present}
        self._seen = {name: seen for name, seen in self._seen.items() if name in now}
        for f in self._present:
            try:
                pieces = self._log.of(f.name)
                more = self._grown(f, pieces, most) if pieces else self._new(f, last, most)
            except (BraidError, OSError):
                if stat(self._root, f.name) is not None:
                    raise
                continue  # it went away between two looks at it
            if more:
                if self._closed and any(p.rows for p in more):
                    raise behind_an_end(self.source.name, f.name)
                yield from self._added(f, more)
            if most is not None:
                yield from self._rest(f, most)

    def _added(self, f: Found, more: Sequence[Piece]) -> Sequence[Piece]:
        self._log.append(more)
        self._remember(f, more)
        if self.source.kind != "table":
            made = self._log.pieces[-len(more) :]
            self._reached = max(self._reached, *map(self.input.highest, made))
        return more

    def _rest(self, f: Found, most: int) -> Iterator[Piece]:
        """Further pieces of a file of which some was left."""
        while is_plain(f.name) and (known := self._log.of(f.name)) and known[-1].rest:
            if (now := stat(self._root, f.name)) is None:
                raise BraidError(f"{self.source.name}: {f.name} is gone before it was read to its end", PUT_BACK)
            if now != f:
                self._check_prefix(now, known)
                f = now
            most *= 2  # few pieces, as each may be a batch
            made = self.input.piece(f, known[-1].stop, self._settled(f), most)
            if made is None:
                return
            yield from self._added(f, [made])

    def _new(self, f: Found, last: str, most: int | None) -> list[Piece]:
        kind_of(f.name)
        if self.up and (not self._rests(f, REST) or self._unfinished(f)):
            return []
        made = self.input.piece(f, 0, self._settled(f), most)
        if made is None:
            return []
        if last and f.name < last:
            what = f"{f.name} sorts before {last}, which came first: it is read behind it"
            self._tell(f"{self.source.name}: {what}", f.name)
        return [made]

    def _grown(self, f: Found, pieces: Sequence[Piece], most: int | None) -> list[Piece]:
        """What a known file has more than has been read."""
        behind, settled = pieces[-1], self._settled(f)
        if _same(f, behind):
            if not (behind.rest and settled):
                return []
        elif self._known.get(f.name) != f:
            self._check_prefix(f, pieces)
            self._known[f.name] = f
        elif not settled:
            return []
        path = self._path(f)
        next_bytes = b"" if kind_of(f.name) == "parquet" else b"".join(content(path, behind.stop, behind.stop + 2))
        if not next_bytes:
            return [_touched(f, behind)]
        if behind.tail:
            return self._behind_a_tail(f, behind, next_bytes)
        made = self.input.piece(f, behind.stop, settled, most)
        return [] if made is None else [made]

    def _behind_a_tail(self, f: Found, behind: Piece, next_bytes: bytes) -> list[Piece]:
        """The end of the line that was read without one, and what follows."""
        line, _, at = behind.tail.partition(UNCLOSED)
        end = 0 if not line else 2 if next_bytes == b"\r\n" else 1
        goes_on = bool(line) and not (next_bytes == b"\r\n" or next_bytes.startswith(b"\n"))
        if goes_on or (at and self._closes(f, behind, int(at))) or behind.tail == "quote":
            raise BraidError(
                f"{self.source.name}: the last line of {f.name} was read when it had no end, and now it goes on",
                f"write whole lines; {anew()}, and reads the file as it is now",
            )
        stop = behind.stop + end
        found = Piece(f.name, behind.stop, stop, digest_of(self._path(f), behind.stop, stop), f.size, f.mtime, 0)
        made = self.input.piece(f, stop, self._settled(f))
        return [x for x in (found if end else None, made) if x is not None]

    def _closes(self, f: Found, behind: Piece, at: int) -> bool:
        """Whether the text that was open at the end of what was read is closed by what follows."""
        path = self._path(f)
        data = b"".join(content(path, at, at + LONGEST + 1))
        return first_row(data, shown(path, self.input.options).delimiter).error is None

    def _settled(self, f: Found) -> bool:
        """Whether a last line without an end is whole."""
        return not self.up or self._rests(f, LONG)

    def _remember(self, f: Found, more: Sequence[Piece]) -> None:
        """That the file was read, and what is compared when it grows again."""
        stop = more[-1].stop
        if more[0].start == 0:
            self._names.add([self._path(f)])
        if self.up and is_plain(f.name):
            self._edges[f.name] = (stop, digest_of(self._path(f), max(0, stop - EDGE), stop))
            if more[0].start in (0, self._whole.get(f.name)):
                self._whole[f.name] = stop

    # ------------------------------------------------------------ looking again

    def _check_prefix(self, f: Found, pieces: Sequence[Piece]) -> None:
        """Refuses a file of which what has been read is no longer what it was.

        All of it is compared when a file is seen to have changed for the first time, was not appended to, or has
        doubled since; between, the end of it: so a file that grows all day is not read all day.
        """
        path, stop = self._path(f), pieces[-1].stop
        whole, edge = self._whole.get(f.name, 0), self._edges.get(f.name)
        grown = is_plain(f.name) and f.size > pieces[-1].size
        if grown and edge is not None and edge[0] == stop and stop < 2 * whole:
            same = digest_of(path, max(0, stop - EDGE), stop) == edge[1]
        else:
            same = _holds(path, f, tuple(pieces))
            self._whole[f.name] = stop
        if same:
            return
        was = f"its first {stop} bytes are no longer those that were read"
        if is_plain(f.name) and f.size < stop:
            was = f"{stop} bytes were read, {f.size} are left"
        elif kind_of(f.name) == "parquet":
            was = "a Parquet file does not grow"
        raise BraidError(
            f"{self.source.name}: the file {f.name} was changed since it was read ({was})",
            f"what has been read is not read again: put it back as it was; give new content a new name; or {anew()}",
        )

    def _path(self, f: Found) -> str:
        return os.path.join(self._root, f.name)

    def _rests(self, f: Found, seconds: float) -> bool:
        """Whether a file has stayed as it is for so long."""
        seen, since = self._seen.get(f.name, (None, 0.0))
        if seen != f:
            since = time.monotonic()
            self._seen[f.name] = (f, since)
        return time.monotonic() - since >= seconds or time.time() - f.mtime / 1e9 >= seconds

    def _unfinished(self, f: Found) -> bool:
        """Whether a file that rests is not whole all the same."""
        path = self._path(f)
        if kind_of(f.name) == "parquet":
            with open(path, "rb") as file:
                file.seek(max(0, f.size - 4))
                whole = file.read() == b"PAR1" and f.size > 12
        elif is_plain(f.name):
            by = shown(path, self.input.options).delimiter if kind_of(f.name) == "csv" else None
            whole = any(Text(path, last=self._settled(f)).blocks(by, EDGE))
        else:
            try:
                whole = sum(map(len, content(path))) > 0
            except BraidError:
                whole = False
        if not whole and f.size:
            self._tell(f"{self.source.name}: {f.name} is not whole yet; it is waited for", f.name)
        return not whole

    def _tell(self, text: str, about: str) -> None:
        if about not in self._told:
            self._told.add(about)
            self.note(text)


def _same(f: Found, piece: Piece) -> bool:
    return (f.size, f.mtime) == (piece.size, piece.mtime)


def _touched(f: Found, behind: Piece) -> Piece:
    """That a file was looked at again, and has no more rows."""
    nothing = digest_of(os.devnull)
    return replace(behind, start=behind.stop, digest=nothing, rows=0, size=f.size, mtime=f.mtime, rest=False)


@lru_cache(maxsize=1024)
def _holds(path: str, f: Found, pieces: tuple[Piece, ...]) -> bool:
    """Whether a file as it lies there now begins with these pieces; a Parquet file is one of them."""
    if kind_of(path) == "parquet":
        return digest_of(path, like=pieces[0].digest) == pieces[0].digest
    return all(digest_of(path, p.start, p.stop, p.digest) == p.digest for p in pieces)


def watched(
    plan: Plan,
    files: Mapping[str, Files],
    checkpoint: ObjectStore,
    up: bool,
    note: Note = lambda text: None,
    planned: Mapping[str, Any] | None = None,
) -> list[FileWatch]:
    """The files of each source of a plan that is read from some, as its checkpoint knows them; leaves over one source
    share them. `files`: by the source's name; `planned`: up to where they are read, where the checkpoint
    does not say it."""
    read = [leaf for leaf in plan.leaves if leaf.source.name in files]
    if not read:
        return []
    if checkpoint.path is None:
        what = f"{plan.query.name} reads files, and its checkpoint is {checkpoint}"
        raise BraidError(what, "their copies lie beside it: give it a folder, --checkpoint DIR")
    reached, made = reached_in(checkpoint), dict[str, FileWatch]()
    reached = reached if planned is None else replace(reached, planned=planned)
    for leaf in read:
        name = leaf.source.name
        if leaf.clocked:
            needs_time(leaf.source)
        if name not in made:
            mine = [x for x in plan.leaves if x.source.name == name]
            leaves, needed = [x.number for x in mine], frozenset(field for x in mine for field in x.reads)
            done, closed = reached.rows(leaves), reached.closed(leaves)
            made[name] = FileWatch(leaf.source, files[name], checkpoint, done, closed, up, note, needed)
    return list(made.values())


def read_all(watches: Sequence[FileWatch], over: Callable[[], bool] = lambda: False) -> None:
    """Adds all that was there at the beginning, piece by piece, of the source that is behind in time; `over`: whether
    to leave off."""
    left = list(watches)
    while left and not over():
        watch = min(left, key=FileWatch.reached)
        if not watch.read_on():
            left.remove(watch)


def some_file_of_each(files: Mapping[str, Files]) -> Sequence[str]:
    """The path of a file of each source of which there is one."""
    found = (look(x.pattern, empty=True) for x in files.values())
    return sorted(os.path.join(os.path.abspath(root), some[0].name) for root, some in found if some)
