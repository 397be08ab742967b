"""The small files of a checkpoint, which lies in a folder, or in a room of `store/` where its name is a URL.

In: a checkpoint, names in it, bytes. Out: the bytes again.
Rule: a file is there whole or not at all, and who writes one takes the place of what was there. Only `create` in a room
decides between two writers for good; in a folder one run holds the store's lock.
"""

from __future__ import annotations

import contextlib
import os
import tempfile

from braid.store import is_url
from braid.topics.documents import room_of
from braid.topics.files import LARGEST, force, read_small, write_atomic


def read(checkpoint: str, name: str, most: int = LARGEST) -> bytes:
    """A `FileNotFoundError` where it is not there."""
    if is_url(checkpoint):
        return room_of(checkpoint).get(name, most)
    return read_small(os.path.join(checkpoint, name), most)


def write(checkpoint: str, name: str, data: bytes, fsync: bool = False) -> None:
    """`fsync`: it stays on the disk."""
    if not is_url(checkpoint):
        path = os.path.join(checkpoint, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return write_atomic(path, data, os.path.dirname(path), fsync)
    with tempfile.NamedTemporaryFile(prefix="braid-") as f:
        f.write(data)
        f.flush()
        room_of(checkpoint).put(name, f.name)


def create(checkpoint: str, name: str, data: bytes) -> bool:
    """False where it was there. In a folder who is killed may leave it torn."""
    if is_url(checkpoint):
        return room_of(checkpoint).create(name, data)
    path = os.path.join(checkpoint, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(path, "xb") as f:
            f.write(data)
    except FileExistsError:
        return False
    return True


def remove(checkpoint: str, *names: str) -> None:
    if is_url(checkpoint):
        return room_of(checkpoint).delete(*names)
    for name in names:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(os.path.join(checkpoint, name))


def forced_away(checkpoint: str, name: str) -> None:
    """It is gone, and stays so."""
    remove(checkpoint, name)
    if not is_url(checkpoint):
        force(checkpoint)


def has(checkpoint: str, name: str) -> bool:
    if is_url(checkpoint):
        return room_of(checkpoint).size(name) is not None
    return os.path.exists(os.path.join(checkpoint, name))


def names(checkpoint: str, folder: str) -> list[str]:
    """What lies in a folder of it."""
    if is_url(checkpoint):
        return [name.removeprefix(f"{folder}/") for name, _ in room_of(checkpoint).list(folder)]
    try:
        return os.listdir(os.path.join(checkpoint, folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def clear(checkpoint: str, last: str) -> None:
    """In a room: all of it goes, and `last` after all else."""
    remove(checkpoint, *(name for name, _ in room_of(checkpoint).list("") if name != last))
    remove(checkpoint, last)
