"""Names and files of a store: what may be named, opened, read, and how it is written.

In: names and paths inside a store; what a document's JSON holds. Out: the same names, files, bytes and documents that
are what they should be, locks between processes; or errors that say what to do instead. Crash points for tests.
Rule: a name that passes can be joined to a path on any file system and stays inside its directory. No file is seen half
written (temporary name, then rename), and none outside the store is opened. What somebody else may have written is
taken in bounded time and memory: only a plain file is opened, its size is looked at before its bytes are read, and what
does not fit raises `ValueError` with the reason, which the caller gives the file's name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from braid.errors import BraidError
from braid.store.files import open_regular
from braid.store.interface import LARGEST
from braid.store.reading import LONGEST, too_long

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


# ------------------------------------------------------------------- documents


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
        x = _DECODER.decode(data if isinstance(data, str) else data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    openings = data.count("[") + data.count("{") if isinstance(data, str) else data.count(b"[") + data.count(b"{")
    if openings <= DEEPEST:
        return x
    layer, depth = [x], 0
    while layer := [y for v in layer if isinstance(v, dict | list) for y in (v.values() if isinstance(v, dict) else v)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return x


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


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
