"""Names and files of a store: what may be named, opened, read, and how it is written.

In: names and paths inside a store; what a document's JSON holds. Out: the same names, files, bytes and documents that
are what they should be, locks between processes; or errors that say what to do instead. Crash points for tests.
Rule: a name that passes can be joined to a path on any file system and stays inside its directory. No file is seen half
written (temporary name, then rename), and none outside the store is opened. What somebody else may have written is
taken in bounded time and memory: only a plain file is opened, its size is looked at before its bytes are read, and what
does not fit raises `ValueError` with the reason, which the caller gives the file's name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

from braid.errors import BraidError
from braid.store import is_url, opened

MAX_NAME = 200  # a staged file's name is a name and about 45 characters; file systems stop at 255

_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")
_OTHERS = re.compile(r"[^A-Za-z0-9._-]+")


def check_name(name: str, what: str = "topic") -> str:
    """`name` itself where it may name a topic (or another `what`)."""
    if not name:
        raise BraidError(f"a {what} needs a name", "use letters, digits, '.', '_' and '-'")
    if name in (".", ".."):
        raise BraidError(f"{name!r} is not the name of a {what}", "it is a path; use letters, digits, '.', '_' and '-'")
    if "/" in name or "\\" in name:
        last = re.split(r"[/\\]", name)[-1]
        raise BraidError(
            f"{name!r} is not the name of a {what}: it has path parts",
            f"write {last!r}" if _ALLOWED.fullmatch(last) and last not in (".", "..") else "write a plain name",
        )
    if not _ALLOWED.fullmatch(name):
        bad = "".join(sorted(set("".join(_OTHERS.findall(name)))))
        hint = f"write {_OTHERS.sub('_', name)[:MAX_NAME]!r}"
        raise BraidError(f"{name!r} is not the name of a {what}: it has {bad!r} in it", hint)
    if len(name) > MAX_NAME:
        raise BraidError(f"the name {name[:40]!r}… has {len(name)} characters", f"at most {MAX_NAME} are possible")
    return name


def is_name(name: str) -> bool:
    """Whether `check_name` takes it."""
    return name not in (".", "..") and len(name) <= MAX_NAME and _ALLOWED.fullmatch(name) is not None


def check_new_name(name: str, existing: Iterable[str], what: str = "topic") -> str:
    """As `check_name`, and no name of `existing` may differ from it only by case."""
    check_name(name, what)
    for other in existing:
        if other != name and other.lower() == name.lower():
            raise BraidError(
                f"the {what} {name!r} differs from the {what} {other!r} only by case",
                f"some file systems hold them for one; write {other!r} or choose another name",
            )
    return name


# ----------------------------------------------------------------------- files


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


def store_root(path: str | Path) -> str:
    """The real directory of a store, or its URL. Only links above and at the store itself are followed."""
    place = os.fspath(path)
    return opened(place).url if is_url(place) else os.path.realpath(place)


# ------------------------------------------------------------------- documents


LARGEST = 64 << 20  # bytes of a document; those of ours have a few thousand, or some MB for years of commits
LONGEST = 16 << 20  # bytes of a line of records
DEEPEST = 100  # objects and arrays in each other
_MOST = 1 << 62  # of a count, an offset, a size


def read_small(path: str, most: int = LARGEST) -> bytes:
    """The bytes of a plain file of at most so many; `FileNotFoundError` where there is none."""
    with os.fdopen(open_regular(path), "rb") as f:
        size = os.fstat(f.fileno()).st_size
        if size > most:
            raise BraidError(f"{path} has {size} bytes; braid writes no such file", f"it takes {most} at most")
        data = f.read(most + 1)
    if len(data) > most:
        raise BraidError(f"{path} grows while it is read", "nothing but braid writes into a store")
    return data


def parsed(data: bytes | str) -> Any:
    """The JSON of a document."""
    try:
        x = json.loads(data, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    layer, depth = [x], 0
    while layer := [y for v in layer if isinstance(v, dict | list) for y in (v.values() if isinstance(v, dict) else v)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return x


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def members(x: Any, what: str = "it") -> dict[str, Any]:
    if not isinstance(x, dict):
        raise ValueError(f"{what} is no object")
    return x


def items(x: Any, what: str) -> list[Any]:
    if not isinstance(x, list):
        raise ValueError(f"{what} is no array")
    return x


def text(x: Any, what: str) -> str:
    if not isinstance(x, str):
        raise ValueError(f"{what} is no text")
    return x


def whole(x: Any, what: str, low: int = 0, high: int = _MOST) -> int:
    """A whole number of [low, high]."""
    if not isinstance(x, int) or isinstance(x, bool):
        raise ValueError(f"{what} is no whole number")
    if not low <= x <= high:
        raise ValueError(f"{what} is not from {low} to {high}")
    return x


def why(e: Exception) -> str:
    """The reason in a few words: what was missing, or the error's own."""
    return f"it has no {e.args[0]!r}" if isinstance(e, KeyError) else str(e)[:200]


def lines_of(path: str) -> Iterator[bytes]:
    """The lines of a plain file, without their ends."""
    with os.fdopen(open_regular(path), "rb") as f:
        while line := f.readline(LONGEST + 1):
            if len(line) > LONGEST:
                raise too_long(path)
            yield line.removesuffix(b"\n")


def too_long(path: str) -> BraidError:
    return BraidError(f"{path} has a line of more than {LONGEST >> 20} MiB", "a record is a line, no longer than that")
