"""The offset log, searched: which batch was the first to end at a time or later.

In: a checkpoint, a time. Out: the number of a batch; where the log says no times, nothing.
Rule: a file is not read from its beginning: numbers and times only rise along it, so it is halved until what is left is
short. Each line that is looked at is checked; one that a kill has torn is passed over.

A line of a version that knew no times says none; all behind the first that does say some.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from braid.errors import BraidError
from braid.stage import offset_log
from braid.stage.offset_log import AT, FOLDER, NAME, Document
from braid.store import ObjectStore
from braid.topics.sealed import has_seal

SHORT = 1 << 16  # bytes that are read line by line


@dataclass(frozen=True, slots=True)
class Ended:
    """A batch, and when its line was written (ms since 1970; None: of a version that wrote none)."""

    batch: int
    at: int | None


def first_at(folder: ObjectStore, time: int) -> Ended | None:
    """The first batch that ended at a time or later; None where none has yet."""
    return _first_of(folder, lambda x: x.at is not None and x.at >= time)


def first_timed(folder: ObjectStore) -> Ended | None:
    """The first batch of which the log says when it ended."""
    return _first_of(folder, lambda x: x.at is not None)


def _first_of(folder: ObjectStore, is_it: Callable[[Ended], bool]) -> Ended | None:
    return next((x for lines in _stretches(folder, is_it) for x in lines if is_it(x)), None)


def _stretches(folder: ObjectStore, behind: Callable[[Ended], bool]) -> Iterator[Iterator[Ended]]:
    """Short stretches of lines, in order, from the last that is not yet behind what is looked for."""
    size = folder.size(NAME) or 0
    if size:
        yield _from(folder, NAME, _halved(folder, size, behind), size)
    names = sorted(folder.names(FOLDER))
    if names:
        started = bisect_right(names, False, key=lambda name: _first(folder, f"{FOLDER}/{name}", behind))
        for name in names[max(started - 1, 0) :]:
            yield _from(folder, f"{FOLDER}/{name}", 0, folder.size(f"{FOLDER}/{name}") or 0)
    yield filter(None, (_ended(folder, line.encode()) for line in offset_log.kept(folder)))


def _first(folder: ObjectStore, name: str, behind: Callable[[Ended], bool]) -> bool:
    return any(map(behind, _from(folder, name, 0, SHORT)))


def _halved(folder: ObjectStore, size: int, behind: Callable[[Ended], bool]) -> int:
    """Where a line begins before which all are not behind it."""
    low, high = 0, size
    while high - low > SHORT:
        middle = (low + high) // 2
        found = next(_from(folder, NAME, middle, size), None)
        if found is None or behind(found):
            high = middle
        else:
            low = middle
    return low


def _from(folder: ObjectStore, name: str, start: int, size: int) -> Iterator[Ended]:
    """The lines that begin behind a place (at it, if that is 0)."""
    rest, at = b"", start
    skips = start > 0  # what is left of a line there
    while at < size:
        data = folder.range(name, at, SHORT)
        if not data:
            break
        at += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines[1:] if skips and lines else lines:
            if (found := _ended(folder, line)) is not None:
                yield found
        skips = skips and not lines
    if rest and not skips and (found := _ended(folder, rest)) is not None:
        yield found


def _ended(folder: ObjectStore, line: bytes) -> Ended | None:
    x: Document | None = offset_log.line_of(line)
    if x is None:
        if has_seal(line):
            raise BraidError(
                f"{offset_log.called(folder)} is damaged: a line of it is not what its checksum says", offset_log.HINT
            )
        return None
    return Ended(x["batch"], x.get(AT))
