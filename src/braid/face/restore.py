"""`braid restore`: a store from a backup.

In: an object store with backups, or a folder that `braid backup` made; a folder that is not there yet. Out: the store;
what a look at it says.
Rule: the folder appears when all of it is there, is what its checksums say, is whole as a store (`verify.py`), and is
on the disk. What is missing or torn is told by name, all of it, and then nothing is restored.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import partial

from braid.errors import BraidError
from braid.face import backups
from braid.face.backup import appearing, copied_tree
from braid.face.backups import File, together
from braid.face.show import open_store
from braid.face.verify import Told, amount, whole
from braid.store import ObjectStore, is_url, opened
from braid.topics.files import reach
from braid.topics.lock import holder

_PIECE = 8 << 20  # bytes that are asked for at once


def restore(source: str, target: str, at: str | None = None) -> Told:
    """`at`: the name of a backup; without, the newest."""
    if os.path.lexists(target):
        raise BraidError(f"{target} is there already", "name a folder that is not")
    if is_url(source) or os.path.isdir(os.path.join(source, backups.FOLDER)):
        yield from _from_backups(opened(source), target, at)
    else:
        yield from _from_copy(source, target, at)


def _from_copy(source: str, target: str, at: str | None) -> Told:
    if at is not None:
        raise BraidError(f"{source} is one copy of a store, no place of backups", "leave out --at")
    if (process := holder(open_store(opened(source)).root)) is not None:
        raise BraidError(f"process {process} runs queries on {source}", "braid backup copies a store that is in use")
    with appearing(target) as made:
        ignored = shutil.ignore_patterns("*.lock", ".backup-*")
        copied_tree(source, made, target, symlinks=True, ignore=ignored)
        yield from whole(made, target)


def _from_backups(objects: ObjectStore, target: str, at: str | None) -> Told:
    name, what = backups.read(objects, at)
    yield f"backup {name}: {len(what.files):,} files, {amount(sum(f.size for f in what.files))}"
    with appearing(target) as made:
        for path in what.folders:
            os.makedirs(os.path.join(made, path), exist_ok=True)
        wrong = 0
        for problem in together(partial(_fetched, objects, made), what.files):
            reach("fetched")
            if problem is not None:
                wrong += 1
                yield problem
        if wrong:
            older = [n for n in backups.names(objects) if n != name]
            hint = f"others are {', '.join(older[-5:])}: --at NAME" if older else "there is no other backup"
            raise BraidError(f"nothing is restored: the backup {name} is not whole", hint)
        yield from whole(made, target)


def _fetched(objects: ObjectStore, folder: str, file: File) -> BraidError | None:
    """A file of a backup is in the folder; else what is wrong with it."""
    path, at, found = os.path.join(folder, file.path), 0, hashlib.sha256()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(path, "xb") as f:
            while at < file.size and (data := objects.range(file.content, at, min(_PIECE, file.size - at))):
                f.write(data)
                found.update(data)
                at += len(data)
    except FileNotFoundError:
        return BraidError(f"{file.path} is missing: {objects.url}/{file.content} is not there")
    if found.hexdigest() != file.digest:
        return BraidError(f"{file.path} is torn: {objects.url}/{file.content} is not what its checksum says")
    return None
