"""Libraries that a worker was sent: unpacked once on its machine, and not once a run.

In: an archive in the executor's folder, named after what is in it. Out: a folder of this user's with what is in it, on
the path of this Python and of those that it starts.
Rule: nothing but the standard library is there yet. A folder is whole or not there; whoever uses one holds it (`flock`)
until its process and all that were forked from it have ended, and one that is held stays. Of others only what was used
last is kept. Where nothing can be kept, what was sent is unpacked beside the executor, and goes with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterator
from uuid import uuid4

NAMED = "BRAID_LIBRARIES"  # in the environment: the archive's name
BESIDE = "__braid_libraries__"  # in the executor's folder
KEPT = 2  # folders: of the libraries that are used, and of those before
_MAKING = ".making"  # a lock
_NEW = "~"  # begins the name of one that is being made, or taken away
_held: list[int] = []  # of this process


def added() -> None:
    """Puts them on the path, if the driver has sent any."""
    name = os.environ.get(NAMED)
    if not name:
        return
    place = _place(name)
    sys.path.insert(1, place)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), place)))


def _place(archive: str) -> str:
    try:
        place = kept(folder(), archive)
    except OSError:  # a disk that is full, a home that is not there
        place = os.path.abspath(BESIDE)
        with zipfile.ZipFile(archive) as z:
            z.extractall(place)
    with contextlib.suppress(OSError):
        os.unlink(archive)  # Spark has put it here for this executor alone
    return place


def folder() -> str:
    """Where this user keeps them: beside copies of object stores."""
    above = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    made = os.path.join(os.path.realpath(os.environ.get("BRAID_CACHE") or os.path.join(above, "braid")), "libraries")
    os.makedirs(made, 0o700, exist_ok=True)
    found = os.lstat(made)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{made} is not a folder that only this user can write to")
    return made


def kept(parent: str, archive: str) -> str:
    """The folder of an archive's files, which this process holds from now on."""
    name = os.path.basename(archive).removesuffix(".zip")
    place = os.path.join(parent, name)
    while not _hold(place):
        with _alone(parent):
            if not os.path.isdir(place):  # else another was faster
                _make(place, archive)
    with contextlib.suppress(OSError):  # what cannot be taken away is in nobody's way
        _clear(parent, name)
    return place


def _hold(place: str) -> bool:
    """False where it is not there."""
    try:
        found = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    fcntl.flock(found, fcntl.LOCK_SH)
    try:
        if os.path.samestat(os.fstat(found), os.stat(place)):  # else it was just taken away
            os.utime(place)
            os.set_inheritable(found, True)
            _held.append(found)
            return True
    except FileNotFoundError:
        pass
    os.close(found)
    return False


@contextlib.contextmanager
def _alone(parent: str) -> Iterator[None]:
    """One at a time makes folders, and takes them away."""
    with open(os.path.join(parent, _MAKING), "wb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _make(place: str, archive: str) -> None:
    new = os.path.join(os.path.dirname(place), f"{_NEW}{uuid4().hex}")
    try:
        with zipfile.ZipFile(archive) as z:
            z.extractall(new)
        os.rename(new, place)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _clear(parent: str, mine: str) -> None:
    """What nobody holds, and was not used of late, goes; and what a killed process has left."""
    with _alone(parent):
        names = [n for n in os.listdir(parent) if n != _MAKING]
        left = [n for n in names if n.startswith(_NEW)]
        others = sorted((n for n in names if n not in (mine, *left)), key=lambda n: _used(parent, n), reverse=True)
        for name in (*left, *others[KEPT - 1 :]):
            with contextlib.suppress(OSError):
                _take_away(parent, name)


def _used(parent: str, name: str) -> float:
    return os.lstat(os.path.join(parent, name)).st_mtime


def _take_away(parent: str, name: str) -> None:
    """BlockingIOError where somebody uses it."""
    path = os.path.join(parent, name)
    found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = os.path.join(parent, f"{_NEW}{uuid4().hex}")
        os.rename(path, gone)
        shutil.rmtree(gone, ignore_errors=True)
    finally:
        os.close(found)
