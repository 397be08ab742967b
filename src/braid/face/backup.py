"""`braid backup`: a copy of a store, as it is at one moment, while queries run on it.

In: a store; a folder that is not there yet, or a URL. Out: the copy; lines that tell what it holds.
Rule: the copy is what a crash at that moment would have left, so whoever starts on it goes on from there. While it is
taken all topics are locked: no batch is published, and a query is at most one batch ahead of its output. Files never
change once they have their names, so all of them are linked first, which takes a moment, and copied or sent then. Of a
checkpoint what says how far it is comes before what that needs: offsets, commits, state, runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from braid.errors import BraidError
from braid.face.backups import contents, made, missing, together
from braid.face.show import open_folder
from braid.face.verify import Told, amount, verify
from braid.stage import batches, checkpoint
from braid.store import ObjectStore, is_url
from braid.store import opened as object_store
from braid.store.files import force, locked, private_folder, scratch_name
from braid.store.folder import FolderStore
from braid.topics import checkpoint_paths
from braid.topics.files import reach
from braid.topics.store import TopicStore

LINKS = ".backup-"  # begins the name of a folder of links, inside the store
TRIES = 10
_ORDER = ("state", "runs")  # of a checkpoint; all else comes last


def backup(store: ObjectStore, target: str) -> Told:
    """The copy, and what a look at it says (`face/verify.py`)."""
    opened = open_folder(store)
    objects = object_store(target).forced() if is_url(target) else None
    if objects is None and os.path.lexists(target):
        raise BraidError(f"{target} is there already", "name a folder that is not")
    with _snapshot(opened) as links:
        for parent in checkpoint_paths.parents(opened.root)[1:]:
            yield f"checkpoints in {parent} are not part of it: copy them with it, while nothing runs"
        if objects is not None:
            yield from _sent(links, objects)
            yield from _looked_at(links, opened.root)
            return
        with appearing(target) as copy:
            copied_tree(links, copy, target)
            reach("copied")
    yield from verify(object_store(target))


@contextlib.contextmanager
def _snapshot(store: TopicStore) -> Iterator[str]:
    """A folder of links to the files of a store as it is at one moment."""
    with locked(store.root.called(".backup.lock")):
        for name in store.root.names(""):
            if name.startswith(LINKS):  # of a backup that was killed
                shutil.rmtree(store.root.called(name), ignore_errors=True)
        links = store.root.called(LINKS + uuid4().hex[:8])
        try:
            private_folder(links)
            _linked(store, links)
            reach("linked")
            yield links
        finally:
            shutil.rmtree(links, ignore_errors=True)


def copied_tree(source: str, made: str, target: str, **how: Any) -> None:
    """All of a folder in one that is to be `target`. The first file that cannot be copied ends it."""

    def one(path: str, to: str) -> None:
        try:
            shutil.copy2(path, to)
        except OSError as e:
            raise _not_copied(target, os.path.relpath(to, made), e.strerror or str(e)) from None

    try:
        shutil.copytree(source, made, copy_function=one, dirs_exist_ok=True, **how)
    except shutil.Error as e:  # of folders and links
        _, to, why = e.args[0][0]
        raise _not_copied(target, os.path.relpath(to, made), re.sub(r"^\[Errno \d+\] |: '.*", "", why)) from None


def _not_copied(target: str, file: str, why: str) -> BraidError:
    return BraidError(
        f"{file} cannot be copied to {target}: {why}",
        "nothing is left of the copy; make room, or name another folder",
    )


@contextlib.contextmanager
def appearing(target: str) -> Iterator[str]:
    """A folder to be filled, which gets its name when it is whole and on the disk."""
    made = scratch_name(os.path.abspath(target))
    try:
        private_folder(made)
        yield made
        os.chmod(made, 0o700)
        _forced(made)
        os.rename(made, target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _sent(links: str, objects: ObjectStore) -> Iterator[str]:
    """What is not there yet is sent there, and then it is a backup."""
    what = contents(links)
    new = missing(objects, what.files)
    yield f"{objects.url}: {len(new):,} of {len(what.files):,} files are new, {amount(sum(f.size for f in new))}"
    for _ in together(lambda f: objects.put(f.content, os.path.join(links, f.path)), new):
        reach("sent")
    yield f"backup {made(objects, what)}"


def _looked_at(links: str, root: ObjectStore) -> Told:
    """A look at the links, as if it were at the store."""
    for x in verify(FolderStore(links)):
        yield BraidError(x.message.replace(links, str(root)), x.hint) if isinstance(x, BraidError) else x


def _linked(store: TopicStore, links: str) -> None:
    with contextlib.ExitStack() as held:
        for name in store.names():
            held.enter_context(store.topic(name).locked())
        root, own = store.root.url, checkpoint_paths.own(store.root).url
        for entry in sorted(os.scandir(own), key=lambda e: e.name) if os.path.isdir(own) else ():
            if entry.is_dir(follow_symlinks=False):
                _checkpoint(entry.path, os.path.join(links, os.path.relpath(entry.path, root)))
        for entry in os.scandir(root):
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
            copy = FolderStore(links)
            known = checkpoint.load(copy)
            if known is not None:
                batches.last_batch(copy, known)
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
        force(str(path))
