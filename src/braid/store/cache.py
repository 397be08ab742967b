"""What a machine keeps of a store that lies elsewhere: copies of what has been read, room for what is being written.

In: the URL of a store, names of things in it, what fetches them. Out: files on this disk.
Rule: only what never changes under its name is kept, so that it is fetched once. All of it may be deleted at any time.
It lies in `BRAID_CACHE`, or else in the cache folder of this user, who alone may read it; above `BRAID_CACHE_BYTES`
what was used longest ago goes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from uuid import uuid4

from braid.errors import BraidError
from braid.store.files import private_folder, remove
from braid.store.interface import ObjectStore

BYTES = 10 << 30  # that are kept, where nobody says
_SCRATCH = "~scratch"
_ABANDONED = 86_400.0  # s; age of what was written and never sent
_NOW_AND_THEN = 64  # a sweep for so many parts of all bytes that came


class Cache:
    """Of one store. Several processes may share it."""

    def __init__(self, store: ObjectStore) -> None:
        self.folder = _copies(store)
        self._most = most()
        self._came = random.randrange(
            self._most // _NOW_AND_THEN + 1
        )  # processes that end soon sweep, too, now and then
        self._guard = threading.Lock()

    @property
    def scratch(self) -> str:
        """A folder for files that are on their way."""
        made = os.path.join(self.folder, _SCRATCH)
        private_folder(made)
        return made

    def held(self, name: str, fetch: Callable[[str], None]) -> str:
        """The path of a copy; `fetch` writes it where there is none. It may be gone when it is opened."""
        path = self.path(name)
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
            return path
        temporary = os.path.join(self.scratch, uuid4().hex)
        try:
            fetch(temporary)
            self._sweep(os.path.getsize(temporary))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(temporary, path)
        finally:
            remove(temporary)
        return path

    def drop(self, name: str) -> None:
        remove(self.path(name))

    def forget(self, folder: str) -> None:
        """No copy below a folder is left."""
        shutil.rmtree(self.path(folder), ignore_errors=True)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, *name.split("/"))

    def _sweep(self, more: int) -> None:
        """Makes room, when enough has come since the last time."""
        with self._guard:
            self._came += more
            if self._came < self._most // _NOW_AND_THEN:
                return
            self._came = 0
        sweep(self.folder, self._most)


@lru_cache(maxsize=64)
def cache_of(store: ObjectStore) -> Cache:
    """One a process."""
    return Cache(store)


def local_folder(store: ObjectStore) -> str:
    """What this machine has of a store: its folder, or that of the copies."""
    return store.path or _copies(store)


def _copies(store: ObjectStore) -> str:
    return os.path.join(root(), hashlib.sha256(store.url.encode()).hexdigest()[:24])


def root() -> str:
    """The folder of all copies of this user on this machine."""
    said = os.environ.get("BRAID_CACHE")
    above = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.realpath(said or os.path.join(above, "braid"))
    try:
        private_folder(path)
    except OSError:  # a user without a home, such as a service's
        if said:
            raise
        path = os.path.join(tempfile.gettempdir(), f"braid-cache-{os.geteuid()}")
        private_folder(path)
    found = os.lstat(path)
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        raise BraidError(f"{path} is not a folder of this user's", "name one that is: BRAID_CACHE")
    return path


def most() -> int:
    said = os.environ.get("BRAID_CACHE_BYTES", "")
    if said and not said.isdecimal():
        raise BraidError(f"BRAID_CACHE_BYTES is {said[:40]!r}", f"write a number of bytes: {BYTES}")
    return int(said) if said else BYTES


def sweep(folder: str, size: int) -> None:
    """What was used longest ago goes, until no more than `size` bytes are left; and what was never sent."""
    found: list[tuple[float, int, str]] = []
    for parent, _, names in os.walk(folder):
        for name in (n for n in names if not n.startswith(".")):  # a lock is no copy
            path = os.path.join(parent, name)
            with contextlib.suppress(FileNotFoundError):
                s = os.lstat(path)
                if os.path.basename(parent) != _SCRATCH:
                    found.append((s.st_mtime, s.st_size, path))
                elif time.time() - s.st_mtime > _ABANDONED:
                    remove(path)
    held = sum(size for _, size, _ in found)
    for _, bytes_, path in sorted(found):
        if held <= size:
            break
        remove(path)
        held -= bytes_
