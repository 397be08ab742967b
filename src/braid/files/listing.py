"""Which files a pattern names: how they lie there, and which of them may be read yet.

In: a path or glob. Out: the folder that names are relative to, files with size and time, in name order.
Rule: names that begin with `.` or `_`, or end in `.tmp` or `.part`, are unfinished: they are not there yet.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from braid.errors import BraidError
from braid.store import on_disk

Kind = Literal["csv", "json", "parquet"]

_ZIPS = ("", ".gz", ".zst")
_CSV = tuple(f".csv{z}" for z in _ZIPS)
_JSON = tuple(f"{e}{z}" for e in (".jsonl", ".ndjson") for z in _ZIPS)
_PARQUET = (".parquet",)
_UNFINISHED = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class Found:
    """A file as it lies there: its name below the root of the pattern, size in bytes, modification time in ns."""

    name: str
    size: int
    mtime: int


def kind_of(name: str) -> Kind:
    """What a file holds, by the end of its name."""
    lower = name.lower()
    ends: list[tuple[tuple[str, ...], Kind]] = [(_CSV, "csv"), (_JSON, "json"), (_PARQUET, "parquet")]
    for endings, kind in ends:
        if lower.endswith(endings):
            return kind
    raise BraidError(
        f"{name}: what kind of file is this?",
        f"the end of the name says it; braid reads {', '.join((*_CSV, *_JSON, *_PARQUET))}",
    )


def is_plain(name: str) -> bool:
    """Whether the content of a text file is its bytes: it is not compressed."""
    return name.lower().endswith((_CSV[0], ".jsonl", ".ndjson"))


def root_of(pattern: str) -> str:
    """The folder that names are relative to: the one before the first wildcard."""
    root = os.path.dirname(on_disk(pattern))
    while glob.has_magic(root):
        root = os.path.dirname(root)
    return os.path.abspath(root or ".")


def look(pattern: str, empty: bool = False) -> tuple[str, list[Found]]:
    """The root, and the files in name order. That there are none is refused, unless it may be `empty`."""
    root = root_of(pattern)
    if not glob.has_magic(os.path.basename(pattern)) and os.path.isdir(pattern):
        raise BraidError(f"{pattern} is a folder", f"name its files: {os.path.join(pattern, '*.csv')}")
    # A file whose name holds [ or * is taken as it is where it exists.
    if os.path.isfile(pattern):
        names = [os.path.relpath(pattern, root)]
    else:
        names = [os.path.relpath(p, root) for p in glob.glob(pattern, recursive=True) if os.path.isfile(p)]
        names = [name for name in names if not _unfinished(name)]
    found = [f for name in names if (f := stat(root, name)) is not None]
    if not found and not empty:
        raise missing(pattern)
    return root, sorted(found, key=lambda f: f.name)


def is_awaited(pattern: str, f: Found) -> bool:
    """Whether somebody is about to write a file: one without a byte, among those of a glob. It is not there yet."""
    return f.size == 0 and glob.has_magic(pattern) and not os.path.isfile(pattern)


def matches(pattern: str, path: str) -> bool:
    """Whether a file of this path would be among those that `look` finds."""

    def found(parts: list[str], names: list[str]) -> bool:
        if not parts or not names:
            return not parts and not names
        if parts[0] == "**":
            return found(parts[1:], names) or found(parts, names[1:]) or (len(parts) == 1)
        return fnmatch.fnmatchcase(names[0], parts[0]) and found(parts[1:], names[1:])

    return found(os.path.abspath(pattern).split(os.sep), os.path.abspath(path).split(os.sep))


def _unfinished(name: str) -> bool:
    """Whether somebody still writes under this name; a folder's name tells, too."""
    return name.endswith(_UNFINISHED) or any(part.startswith((".", "_")) for part in name.split(os.sep))


def stat(root: str, name: str) -> Found | None:
    """The file as it lies there now; None where it is gone."""
    try:
        status = os.stat(os.path.join(root, name))
    except FileNotFoundError:
        return None
    return Found(name.replace(os.sep, "/"), status.st_size, status.st_mtime_ns)


def missing(pattern: str) -> BraidError:
    """That no file matches, and what there is instead."""
    root = root_of(pattern)
    if not os.path.isdir(root):
        return BraidError(f"there is no folder {root}", "check the path; a relative one starts where braid was started")
    there = sorted(e.name for e in os.scandir(root) if e.is_file() and not e.name.startswith("."))
    close = get_close_matches(os.path.basename(pattern), there, n=3, cutoff=0.5)
    shown = ", ".join(close or there[:5])
    what = f"no file matches {pattern}" if glob.has_magic(pattern) else f"there is no file {pattern}"
    return BraidError(what, f"{root} has {shown}" if shown else f"{root} has no files")
