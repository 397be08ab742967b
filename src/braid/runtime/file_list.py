"""Which files an input has: their names, what tells a changed one, and where their rows stand.

In: a path or glob, the list that the checkpoint logged. Out: the list of now.
Rule: a list only grows, at its end. A file that changed, is gone, or sorts before one that was read is refused.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from braid.errors import BraidError


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it lies there: its name below the root of the pattern, size in bytes, modification time in ns."""

    name: str
    size: int
    mtime: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of an input: rows `first` to `first + rows - 1`."""

    name: str
    size: int
    mtime: int
    first: int
    rows: int

    @property
    def end(self) -> int:
        return self.first + self.rows

    @property
    def found(self) -> Found:
        return Found(self.name, self.size, self.mtime)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "mtime": self.mtime, "first": self.first, "rows": self.rows}

    @staticmethod
    def from_json(x: dict[str, Any]) -> FileEntry:
        return FileEntry(str(x["name"]), *(int(x[f]) for f in ("size", "mtime", "first", "rows")))


def look(pattern: str) -> tuple[str, list[Found]]:
    """The folder that names are relative to, and the files in name order."""
    root = os.path.dirname(pattern)
    while glob.has_magic(root):
        root = os.path.dirname(root)
    root = os.path.abspath(root or ".")
    if not glob.has_magic(os.path.basename(pattern)) and os.path.isdir(pattern):
        raise BraidError(f"{pattern} is a folder", f"name its files: {os.path.join(pattern, '*.csv')}")
    # A file whose name holds [ or * is taken as it is where it exists.
    paths = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)
    paths = [p for p in paths if os.path.isfile(p)]
    if not paths:
        raise _missing(pattern, root)
    return root, sorted((_stat(root, os.path.relpath(p, root)) for p in paths), key=lambda f: f.name)


def _stat(root: str, name: str) -> Found:
    status = os.stat(os.path.join(root, name))
    return Found(name.replace(os.sep, "/"), status.st_size, status.st_mtime_ns)


def _missing(pattern: str, root: str) -> BraidError:
    if not os.path.isdir(root):
        return BraidError(f"there is no folder {root}", "check the path; a relative one starts where braid was started")
    there = sorted(e.name for e in os.scandir(root) if e.is_file() and not e.name.startswith("."))
    close = get_close_matches(os.path.basename(pattern), there, n=3, cutoff=0.5)
    shown = ", ".join(close or there[:5])
    what = f"no file matches {pattern}" if glob.has_magic(pattern) else f"there is no file {pattern}"
    return BraidError(what, f"{root} has {shown}" if shown else f"{root} has no files")


def check_unchanged(path: str, found: Found) -> None:
    """Refuses a file that is no longer the one that was listed."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise BraidError(f"{path} is gone", _PUT_BACK) from None
    if (status.st_size, status.st_mtime_ns) != (found.size, found.mtime):
        raise BraidError(f"{path} was changed while it is read", _PUT_BACK)


_PUT_BACK = "what has been read is not read again: put the file back as it was, or delete the checkpoint to start anew"


def check_continues(name: str, known: Sequence[Found], present: Sequence[Found], end_lifts: bool = False) -> None:
    """Refuses files of the source `name` that are not a continuation of those `known` from an earlier run.

    `end_lifts`: the end of the known files was processed and lifted clocks, so nothing can come behind it.
    """
    there = {f.name: f for f in present}
    for old in known:
        new = there.get(old.name)
        if new is None:
            raise BraidError(f"{name}: the file {old.name} is gone", _PUT_BACK)
        if new != old:
            how = f"{old.size} bytes then, {new.size} now" if new.size != old.size else "it was written again"
            raise BraidError(f"{name}: the file {old.name} was changed since the last run ({how})", _PUT_BACK)
    fresh = [f for f in present if f.name not in {old.name for old in known}]
    for f in fresh:
        if known and f.name < known[-1].name:
            hint = f"files are read in name order: give it a name after {known[-1].name}, or delete the checkpoint"
            raise BraidError(f"{name}: the new file {f.name} sorts before {known[-1].name}, which has been read", hint)
    if known and fresh and end_lifts:
        hint = "the end of the files let rows go that waited for a time; delete the checkpoint and read all files anew"
        raise BraidError(f"{name}: the new file {fresh[0].name} comes behind an end that was processed", hint)
