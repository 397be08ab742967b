"""Files that appear whole, locks between processes, and crash points for tests.

In: paths inside a store. Out: files and locks.
Rule: no file is seen half written (temporary name, then rename), and none outside the store is opened.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from braid.errors import BraidError

# Tests set this and raise from it: a process that dies at the named point.
crash_hook: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """A point at which a process may die, between two steps that change files."""
    if crash_hook is not None:
        crash_hook(point)


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
            os.fsync(f.fileno())
    os.replace(temporary, path)
    if fsync:
        sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Renames in `path` survive a loss of power."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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


def open_for_writing(path: str) -> bool:
    """Some process has the file open to write. Where the system cannot tell (only Linux can), False."""
    if sys.platform != "linux":
        return False
    fd = open_regular(path)
    try:
        # A read lease is granted only where nobody writes. Who opens the file before it is given back makes the kernel
        # send a signal: SIGURG, which is ignored, as the usual one would end this process.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    except OSError as e:
        return e.errno == errno.EAGAIN
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock file `path` alone, over processes and threads. The kernel frees it when its holder dies."""
    while True:
        refuse_other(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
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


def store_root(path: str | Path) -> str:
    """The real directory of a store. Only links above and at the store itself are followed."""
    return os.path.realpath(os.fspath(path))
