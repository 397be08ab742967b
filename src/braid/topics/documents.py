"""Small documents of a store beside its topics: its id, its catalogue, its schemas, notes of its tables.

In: the root of a store, the name of a document. Out: its bytes as they stand; a change of it.
Rule: each stands under a checksum of its bytes and its name (`sealed.py`), which is nobody else's affair. Of two that
change a document at once the second changes what the first has left. In a folder a lock sees to that. In an object
store each change is the *create* of the next version, and who comes second begins again. Versions stay: a number that
was free again would be taken by whoever has slept since he looked.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from braid.errors import BraidError
from braid.store import Room, is_url, opened
from braid.topics.files import locked, private_folder, read_small, refuse_link, write_atomic
from braid.topics.sealed import sealed, unsealed

MOST = 64 << 20  # bytes of a document
_FOLDER = "documents"
_FOLDERS = ("catalogue", "frames", "tables")  # of a store in a folder, that have nothing but documents
_RECENT = 10  # versions of a document that stay as they are: somebody may just have listed them
_VERSION = re.compile(r"/([0-9]{20})\.json$")

Change = Callable[[bytes | None], bytes | None]


def document(root: str, name: str) -> bytes | None:
    """As it stands; None where there is none."""
    if is_url(root):
        return _newest(room_of(root), name)[1]
    try:
        return _checked(root, name, read_small(_path(root, name), MOST), name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def changed(root: str, name: str, change: Change) -> None:
    """`change` gives the document that follows, or None to leave it as it is. It may be asked more than once."""
    if is_url(root):
        return _changed_in(room_of(root), name, change)
    path = _path(root, name)
    folder = os.path.dirname(path)
    private_folder(root)
    os.makedirs(folder, exist_ok=True)
    refuse_link(folder)
    with locked(os.path.join(folder, f".{os.path.basename(name)}.lock")):
        after = change(document(root, name))
        if after is not None:
            write_atomic(path, sealed(after, name), folder)


def old_versions(sizes: Mapping[str, int]) -> dict[str, int]:
    """Of all that lies in an object store the versions of documents that nobody reads any more, and their bytes."""
    found = defaultdict[str, list[str]](list)
    for file in sorted(sizes):
        if file.startswith(f"{_FOLDER}/") and _VERSION.search(file):
            found[_VERSION.sub("", file)].append(file)
    return {file: sizes[file] for files in found.values() for file in files[:-_RECENT] if sizes[file]}


def emptied(root: str, files: Iterable[str]) -> None:
    """Old versions lose what is in them. Their numbers stay taken."""
    with tempfile.NamedTemporaryFile(prefix="braid-") as nothing:
        for file in files:
            room_of(root).put(file, nothing.name)


def called(root: str, name: str) -> str:
    """The document, for people."""
    return f"{root}/{_FOLDER}/{name}" if is_url(root) else _path(root, name)


@lru_cache(maxsize=16)
def room_of(url: str) -> Room:
    """The room at a URL; one a process, since each has connections of its own."""
    return opened(url)


def _path(root: str, name: str) -> str:
    return os.path.join(root, *f"{name}.json".split("/"))


def _newest(room: Room, name: str) -> tuple[int, bytes | None]:
    """The number of the last version, and what it says."""
    found = (_VERSION.search(file) for file, _ in room.list(f"{_FOLDER}/{name}"))
    number = max((int(m[1]) for m in found if m is not None), default=0)
    if not number:
        return 0, None
    version = _version(name, number)
    return number, _checked(room.url, name, room.get(version, MOST), version)


def _checked(root: str, name: str, data: bytes, where: str) -> bytes:
    try:
        return unsealed(data, where)
    except ValueError as e:
        raise BraidError(f"{called(root, name)} is damaged: {e}", "put it back from a copy") from None


def all_of(root: str) -> list[str]:
    """The names of all documents that there are."""
    if is_url(root):
        found = (file.removeprefix(f"{_FOLDER}/") for file, _ in room_of(root).list(_FOLDER))
        return sorted({file.rpartition("/")[0] for file in found})
    folders = (folder for folder in ("", *_FOLDERS) if os.path.isdir(os.path.join(root, folder)))
    names = (os.path.join(folder, name) for folder in folders for name in os.listdir(os.path.join(root, folder)))
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def _changed_in(room: Room, name: str, change: Change) -> None:
    while True:
        number, before = _newest(room, name)
        after = change(before)
        if after is None:
            return
        version = _version(name, number + 1)
        if room.create(version, sealed(after, version)):
            return


def _version(name: str, number: int) -> str:
    return f"{_FOLDER}/{name}/{number:020d}.json"
