"""`braid backup`: a copy of a store, as it is at one moment, while queries run on it.

In: a store, a folder that is not there yet. Out: the copy; lines that tell what it holds.
Rule: the copy is what a crash at that moment would have left, so whoever starts on it goes on from there. While it is
taken all topics are locked: no batch is published, and a query is at most one batch ahead of its output. Files never
change once they have their names, so all of them are linked first, which takes a moment, and copied then. Of a
checkpoint what says how far it is comes before what that needs: offsets, commits, state, runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from uuid import uuid4

from braid.errors import BraidError
from braid.face.show import open_store
from braid.face.verify import verify
from braid.stage import checkpoint
from braid.topics import whereabouts
from braid.topics.files import force, locked, reach, scratch_name
from braid.topics.store import TopicStore

LINKS = ".backup-"  # begins the name of a folder of links, inside the store
TRIES = 10
_ORDER = ("spark/offsets", "spark/commits", "state", "runs")  # of a checkpoint; all else comes last


def backup(store: str, target: str) -> Iterator[str | BraidError]:
    """The copy, and what a look at it says (`face/verify.py`)."""
    opened = open_store(store)
    if os.path.lexists(target):
        raise BraidError(f"{target} is there already", "name a folder that is not")
    made = scratch_name(os.path.abspath(target))
    with locked(os.path.join(opened.root, ".backup.lock")):
        for name in os.listdir(opened.root):
            if name.startswith(LINKS):  # of a backup that was killed
                shutil.rmtree(os.path.join(opened.root, name), ignore_errors=True)
        links = os.path.join(opened.root, LINKS + uuid4().hex[:8])
        try:
            _linked(opened, links)
            reach("linked")
            shutil.copytree(links, made)
            reach("copied")
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(links, ignore_errors=True)
    _forced(made)
    os.rename(made, target)
    for parent in whereabouts.parents(opened.root)[1:]:
        yield f"checkpoints in {parent} are not part of it: copy them with it, while nothing runs"
    yield from verify(target)


def _linked(store: TopicStore, links: str) -> None:
    with contextlib.ExitStack() as held:
        for name in store.names():
            held.enter_context(store.topic(name).locked())
        own = whereabouts.own(store.root)
        for entry in sorted(os.scandir(own), key=lambda e: e.name) if os.path.isdir(own) else ():
            if entry.is_dir(follow_symlinks=False):
                _checkpoint(entry.path, os.path.join(links, os.path.relpath(entry.path, store.root)))
        for entry in os.scandir(store.root):
            if not entry.name.startswith(".") and entry.path != own:
                _link(entry.path, os.path.join(links, entry.name))


def _checkpoint(folder: str, links: str) -> None:
    """A checkpoint from which a query can go on; of one whose batches nobody holds up it is looked for again."""
    for left in reversed(range(TRIES)):
        done = set[str]()
        for part in (*_ORDER, ""):
            path = os.path.join(folder, part).rstrip("/")
            if os.path.isdir(path):
                _link(path, os.path.join(links, part), done)
                done.add(path)
        try:
            known = checkpoint.load(links)
            if known is not None:
                checkpoint.last_batch(links, known)
            return
        except BraidError:
            if not left:
                raise
            shutil.rmtree(links, ignore_errors=True)


def _link(path: str, target: str, done: Collection[str] = ()) -> None:
    """All files of a folder, as they are named now, but for folders that are `done`; what goes meanwhile is not needed
    any more."""
    if path in done:
        return
    if not os.path.isdir(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            os.link(path, target, follow_symlinks=False)
        return
    os.makedirs(target, exist_ok=True)
    for entry in os.scandir(path):
        if entry.name.endswith(".lock"):
            continue
        if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):
                _link(entry.path, os.path.join(target, entry.name), done)


def _forced(folder: str) -> None:
    """All of it is on the disk."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        else:
            force(str(path))
