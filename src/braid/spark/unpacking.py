"""Libraries that a worker was sent: unpacked once on its machine, and not once a run.

In: an archive in the executor's folder, named after what is in it. Out: a folder of this user's with what is in it, on
the path of this Python and of those that it starts.
Rule: nothing but the standard library is there yet. A folder is whole or not there; whoever uses one holds it
(`holding`), and one that is held stays. Of others only what was used last is kept. Where nothing can be kept, what was
sent is unpacked beside the executor, and goes with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import zipfile
from uuid import uuid4

from braid.spark.holding import NEW, alone, clear, hold

NAMED = "BRAID_LIBRARIES"  # in the environment: the archive's name
BESIDE = "__braid_libraries__"  # in the executor's folder
OTHERS = 1  # folder that stays besides: of the libraries before


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
    while not hold(place):
        with alone(parent):
            if not os.path.isdir(place):  # else another was faster
                _make(place, archive)
    with contextlib.suppress(OSError):  # what cannot be taken away is in nobody's way
        clear(parent, "", [name], OTHERS)
    return place


def _make(place: str, archive: str) -> None:
    new = os.path.join(os.path.dirname(place), f"{NEW}{uuid4().hex}")
    try:
        with zipfile.ZipFile(archive) as z:
            z.extractall(new)
        os.rename(new, place)
    finally:
        shutil.rmtree(new, ignore_errors=True)
