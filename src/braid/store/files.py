"""Files of this disk: written whole, forced to the disk, opened only where they are plain, locked.

In: paths. Out: files that are what they should be; descriptors; locks between processes.
Rule: no file is seen half written (temporary name, then rename). Only a plain file is opened: neither a link, which may
lead elsewhere, nor what may wait without end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from uuid import uuid4

from braid.errors import BraidError

UNFINISHED = re.compile(r"~[0-9a-f]{8}(\.arrow)?$")  # ends a `scratch_name`


def scratch_name(path: str) -> str:
    """A temporary name beside `path`; `clean_staging` finds it by its beginning."""
    return f"{path}~{uuid4().hex[:8]}"


def write_atomic(path: str, data: bytes, scratch: str, fsync: bool = False) -> None:
    """`path` holds `data`, all or nothing. `scratch` is a directory on the same file system."""
    temporary = scratch_name(os.path.join(scratch, os.path.basename(path)))
    with open(temporary, "wb") as f:
        f.write(data)
        if fsync:
            f.flush()
            with naming(path):
                os.fsync(f.fileno())
    os.replace(temporary, path)
    if fsync:
        force(os.path.dirname(path))


def force(path: str) -> None:
    """What is in a file survives a loss of power; of a directory, which names it has."""
    fd = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """What the system refuses of a descriptor is told with the file's name."""
    try:
        yield
    except OSError as e:
        raise OSError(e.errno, e.strerror, path) from None


def refuse_link(path: str) -> None:
    """A symbolic link may lead out of the store. What does not exist is no link."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise BraidError(
            f"{path} is a symbolic link", "a store holds only directories and files of its own; move the data in"
        )


def open_regular(path: str) -> int:
    """A descriptor to read a plain file; never a link, a directory, a pipe or a device."""
    refuse_other(path)
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _no_file(path)
    return fd


def refuse_other(path: str) -> None:
    """Refuses what is there and is no plain file, before it is opened: that alone may wait for ever."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            refuse_link(path)
        if not stat.S_ISREG(mode):
            raise _no_file(path)


def _no_file(path: str) -> BraidError:
    return BraidError(f"{path} is not a plain file", "a store holds only directories and files; take it away")


def private_folder(root: str) -> None:
    """The folder of a store, or of a checkpoint, is there. Who makes it has it for himself; one that is there keeps the
    mode that its user gave it."""
    os.makedirs(root, mode=0o700, exist_ok=True)


def open_lock(path: str) -> int:
    """A descriptor of a lock file, which is its user's alone: whoever may read it may lock it, and hold up a run."""
    refuse_other(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    found = os.fstat(fd)
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():  # of an older version
        os.fchmod(fd, 0o600)
    return fd


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock file `path` alone, over processes and threads. The kernel frees it when its holder dies."""
    while True:
        fd = open_lock(path)
        try:
            with naming(path):
                fcntl.flock(fd, fcntl.LOCK_EX)
            if _still_there(fd, path):  # else its directory was removed while we waited
                yield
                return
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _still_there(fd: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


def remove(path: str) -> None:
    """`path` is gone, whoever removed it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
