"""Things on this disk that several processes share: each that uses one holds it, and what none holds goes.

In: the path of a file or a folder. Out: whether it is there, and held by this process and all that are forked from it;
others gone.
Rule: nothing but the standard library is needed. What is held (`flock`, which ends with the processes) is never taken
away; what is just being taken away is not there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from uuid import uuid4

NEW = "~"  # begins the name of what is being made, or taken away
_MAKING = ".making"  # a lock
_held: list[int] = []  # of this process


def hold(path: str) -> bool:
    """False where it is not there."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    fcntl.flock(found, fcntl.LOCK_SH)
    try:
        if os.path.samestat(os.fstat(found), os.stat(path)):  # else it was just taken away
            os.utime(path)
            _held.append(found)
            return True
    except FileNotFoundError:
        pass
    os.close(found)
    return False


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """One process at a time makes things in a folder, and takes them away."""
    with open(os.path.join(folder, _MAKING), "wb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def made_now(folder: str) -> bool:
    """Whether a process makes things there now."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, _MAKING), "rb") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def clear(folder: str, begins: str, mine: Collection[str], others: int) -> None:
    """Of what has such a name, and is not `mine`, so many `others` stay, those that were used last, and what is held.
    What a killed process has left goes."""
    with alone(folder):
        names = [n for n in os.listdir(folder) if n != _MAKING]
        left = [n for n in names if n.startswith(NEW)]
        old = [n for n in names if n.startswith(begins) and n not in (*mine, *left)]
        old.sort(key=lambda n: os.lstat(os.path.join(folder, n)).st_mtime, reverse=True)
        for name in (*left, *old[others:]):
            with contextlib.suppress(OSError):  # somebody uses it, or it is not ours
                _take_away(folder, name)


def _take_away(folder: str, name: str) -> None:
    path, gone = os.path.join(folder, name), os.path.join(folder, f"{NEW}{uuid4().hex}")
    found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(path, gone)
        shutil.rmtree(gone) if os.path.isdir(gone) else os.unlink(gone)
    finally:
        os.close(found)
