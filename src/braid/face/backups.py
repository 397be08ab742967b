"""Backups in an object store: what they are, and which there are.

In: an object store; the files of a folder. Out: contents under their checksums, and for each backup one document that
names them.
Rule: the document is made last, by one create. Without it there is no backup, whatever was sent; so one that was killed
is begun again, and what is there is not sent twice. Contents never change. The name of a backup is the time it was
made, in UTC, or a second after the last one where a clock has gone back: the newest is the last by name.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
import time
from calendar import timegm
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import ThreadPool
from typing import NamedTuple, TypeVar

from braid.errors import BraidError, printable
from braid.store import ObjectStore
from braid.topics.files import items, members, parsed, text, whole, why
from braid.topics.sealed import sealed, unsealed

T = TypeVar("T")
U = TypeVar("U")

FORMAT = 1
FOLDER, DATA = "backups", "data"
AT_ONCE = 4  # files under way
_LOOK = 0.2  # seconds
_LARGEST = 256 << 20  # bytes of a document; a file has some 150 of them
_TIME = "%Y-%m-%dT%H-%M-%SZ"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class File(NamedTuple):
    """`digest`: SHA-256 of its bytes."""

    path: str
    size: int
    digest: str

    @property
    def content(self) -> str:
        """What its bytes are called there."""
        return f"{DATA}/{self.digest}"


class Contents(NamedTuple):
    """Files, and folders that have none."""

    files: list[File]
    folders: list[str]


def contents(root: str) -> Contents:
    """Of a folder of which nothing changes."""
    found = Contents([], [])
    for parent, folders, names in os.walk(root):
        if not folders and not names:
            found.folders.append(_path(os.path.relpath(parent, root)))
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as f:
                digest = hashlib.file_digest(f, "sha256").hexdigest()
            found.files.append(File(_path(os.path.relpath(path, root)), os.path.getsize(path), digest))
    return found


def missing(objects: ObjectStore, files: list[File]) -> list[File]:
    """Those whose contents are not there, each once."""
    there = {(name, size) for name, size in objects.list(DATA)}
    return [*{f.digest: f for f in files if (f.content, f.size) not in there}.values()]


def made(objects: ObjectStore, what: Contents) -> str:
    """The name of a new backup; all contents are there."""
    data = sealed(json.dumps({"format": FORMAT, "files": what.files, "folders": what.folders}).encode())
    if len(data) > _LARGEST:
        raise BraidError(f"the store has {len(what.files):,} files, too many for a backup", "copy it into a folder")
    older = names(objects)
    at = max(int(time.time()), timegm(time.strptime(older[-1], _TIME)) + 1 if older else 0)
    while not objects.create(_document(_named(at)), data):
        at += 1
    return _named(at)


def names(objects: ObjectStore) -> list[str]:
    """Of all backups, the newest last."""
    found = (os.path.basename(name).removesuffix(".json") for name, _ in objects.list(FOLDER))
    return sorted(name for name in found if _NAME.fullmatch(name))


def read(objects: ObjectStore, at: str | None) -> tuple[str, Contents]:
    """A backup by its name, or the newest."""
    there = names(objects)
    if not there:
        raise BraidError(
            f"there is no backup at {objects.url}", "braid backup makes one, and names it when it is whole"
        )
    name = at or there[-1]
    if name not in there:
        some = ", ".join(there[-5:])
        raise BraidError(f"there is no backup {printable(name[:80])} at {objects.url}", f"the newest are {some}")
    try:
        x = members(parsed(unsealed(objects.get(_document(name), _LARGEST))))
        if whole(x["format"], "its format") > FORMAT:
            raise BraidError(f"the backup {name} was made by a newer version", "restore it with that one")
        files = [
            File(_path(text(p, "a path")), whole(n, "a size"), _digest(d)) for p, n, d in items(x["files"], "files")
        ]
        return name, Contents(files, [_path(text(p, "a path")) for p in items(x["folders"], "folders")])
    except (ValueError, KeyError, TypeError) as e:
        raise BraidError(
            f"the backup {name} at {objects.url} cannot be read: {why(e)}", "take another: --at NAME"
        ) from None


def together(do: Callable[[T], U], things: Iterable[T]) -> Iterator[U]:
    """What `do` gives of each, several at once, in order. After an error, or Ctrl-C, no more are begun, and those under
    way are not waited for."""
    with ThreadPool(AT_ONCE) as pool:
        given = pool.imap(do, things)
        while True:
            try:
                yield given.next(timeout=_LOOK)
            except StopIteration:
                return
            except multiprocessing.TimeoutError:  # Ctrl-C does not end a wait without one, once Polars is loaded
                continue


def _document(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def _named(at: int) -> str:
    return time.strftime(_TIME, time.gmtime(at))


def _path(path: str) -> str:
    """A path that leads nowhere but into a store."""
    parts = path.split("/")
    if not path.isprintable() or {"", ".", ".."} & {*parts} or path == "." or len(path) > 4000:
        raise BraidError(f"a store has no file of the name {printable(path[:80])!r}", "take it out of the store")
    return path


def _digest(x: object) -> str:
    if not isinstance(x, str) or not _DIGEST.fullmatch(x):
        raise ValueError("a checksum is none")
    return x
