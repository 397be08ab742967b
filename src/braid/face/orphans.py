"""`braid sweep`: orphan files, which killed commands and runs have left in a store.

In: a store. Out: what lies there, why nobody needs it, its bytes, and what takes it away.
Rule: each goes by itself, and nothing refers to it before and after. What a run works with is left alone while one is
on. In an object store, where runs of other machines are not seen, only what no run can ever ask for is taken.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile

from braid.errors import BraidError
from braid.face.backup import LINKS
from braid.face.reset import parents_of, queries, refuse_torn
from braid.face.show import open_store
from braid.face.verify import amount, lost_topic
from braid.stage import checkpoint, state_file
from braid.stage.reset_marker import Known
from braid.store import ObjectStore
from braid.store.files import UNFINISHED, locked, remove
from braid.store.folder import FolderStore
from braid.topics import commit
from braid.topics.documents import emptied, old_versions
from braid.topics.files import reach
from braid.topics.lock import StoreLock, holder
from braid.topics.object_topic_store import lost
from braid.topics.object_topics import ObjectTopic
from braid.topics.store import TopicStore

SWEEP = "braid sweep"


@dataclass(frozen=True, slots=True)
class Orphan:
    """`delete` is None where another command takes it away."""

    what: str
    bytes: int
    why: str
    command: str = SWEEP
    delete: Callable[[], None] | None = None


def sweep(store: ObjectStore, parent: ObjectStore | None = None) -> Iterator[str]:
    """All of it goes. `parent`: one more folder of checkpoints than the store knows."""
    opened = open_store(store)
    with StoreLock(opened.root):
        freed, known = 0, queries(opened, parent)
        refuse_torn(known)
        for found in orphans(opened, known, listed(opened.root), parent):
            if found.delete is not None:
                found.delete()
                reach("swept")
                freed += found.bytes
                yield f"removed {found.what}: {amount(found.bytes)}"
    yield f"{amount(freed)} freed" if freed else f"{store} has no orphan files"


class Listing:
    """The bytes of files, by their names below a folder or a URL."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes, self._names = sizes, sorted(sizes)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    def below(self, folder: str) -> Listing:
        """What lies below a folder, by the names there."""
        prefix = f"{folder}/"
        at = bisect_left(self._names, prefix)
        names = takewhile(lambda name: name.startswith(prefix), islice(self._names, at, None))
        return Listing({name.removeprefix(prefix): self.sizes[name] for name in names})


def listed(place: ObjectStore) -> Listing:
    """One look through a folder, or one listing."""
    return Listing(place.sizes())


def orphans(
    store: TopicStore, known: list[Known], lies: Listing, parent: ObjectStore | None = None
) -> Iterator[Orphan]:
    yield from _broken(known)
    if store.root.path is None:
        yield from _in_room(store, lies)
        return
    for place in parents_of(store, parent):
        yield from _of_folder(place, UNFINISHED.search, "a checkpoint that was removed")
    scratch = _of_folder(store.root, lambda name: name == ".scratch", "topics that were removed")
    yield from _under(store.root.called(".topics.lock"), scratch)
    links = _of_folder(store.root, lambda name: name.startswith(LINKS), "links of a backup that was stopped")
    yield from _under(store.root.called(".backup.lock"), links)
    if holder(store.root) in (None, os.getpid()):
        for q in known:
            yield from _unnamed(q)
        for name in store.names():
            yield from _staged(store, name)


def _broken(known: list[Known]) -> Iterator[Orphan]:
    for q in known:
        mine = listed(q.folder).bytes if q.marked or q.torn is not None else 0
        if q.marked:
            yield Orphan(f"query {q.name}", mine, "a reset of it did not come to its end", f"braid reset {q.name}")
        elif q.torn is not None:
            yield Orphan(f"query {q.name}", mine, "its checkpoint cannot be read", f"braid reset {q.name}")
        beside = checkpoint.shadow(q.folder)
        if beside.names(""):
            size = listed(beside).bytes
            yield Orphan(f"query {q.name}", size, "an upgrade of it did not come to its end", f"braid upgrade {q.name}")


def _of_folder(place: ObjectStore, which: Callable[[str], object], why: str) -> Iterator[Orphan]:
    for name in sorted(place.folders()):
        path = place.called(name)
        if which(name) and os.listdir(path):
            delete = partial(shutil.rmtree, path, ignore_errors=True)
            yield Orphan(path, listed(FolderStore(path)).bytes, why, delete=delete)


def _under(lock: str, found: Iterable[Orphan]) -> Iterator[Orphan]:
    """They go while nobody makes such."""

    def delete(path: str) -> None:
        with locked(lock):
            shutil.rmtree(path, ignore_errors=True)

    yield from (replace(x, delete=partial(delete, x.what)) for x in found)


def _unnamed(q: Known) -> Iterator[Orphan]:
    """Runs of a state that no batch names."""
    if q.torn is not None or q.folder.path is None or q.marked:
        return
    try:
        numbers = state_file.batches(q.folder)
        states = [state_file.load(q.folder, n) for n in numbers[-2:]]
    except BraidError:
        return
    named = set[str]().union(*map(state_file.objects_in, states))
    there = {name: n for name, n in listed(q.folder).sizes.items() if name.startswith(f"{state_file.RUNS}/")}
    last = numbers[-1] if numbers else -1  # what was put for a later batch may be named by its state
    left = {name: size for name, size in there.items() if name not in named and state_file.made_for(name) <= last}
    if left:
        paths = [q.folder.called(name) for name in left]
        what = f"{len(left)} run{'s' * (len(left) != 1)} of {q.name}"
        yield Orphan(what, sum(left.values()), "no state names them", delete=partial(_unlink, paths))


def _unlink(paths: list[str]) -> None:
    for path in paths:
        remove(path)


def _staged(store: TopicStore, name: str) -> Iterator[Orphan]:
    """What was staged for a topic and never published."""
    topic = store.topic(name)
    needed = {s for x in topic.view().newest for s in (x.staged, x.positions)}
    staged = FolderStore(topic.staging).sizes()
    left = {file: size for file, size in staged.items() if file not in needed and not commit.is_put(file)}
    if left:
        what = f"{len(left)} staged file{'s' * (len(left) != 1)} of {name}"

        def delete() -> None:
            with topic.locked() as view:
                commit.recover(topic, view)  # what a commit names has its name then
                _unlink([os.path.join(topic.staging, file) for file in left])

        yield Orphan(what, sum(left.values()), "they were never published", delete=delete)


def _in_room(store: TopicStore, lies: Listing) -> Iterator[Orphan]:
    old = old_versions(lies.sizes)
    if old:
        what = f"{len(old)} old version{'s' * (len(old) != 1)} of documents"
        delete = partial(emptied, store.root, list(old))
        yield Orphan(what, sum(old.values()), "they are not read again", delete=delete)
    for name, identity in lost(store.root, lies.sizes):
        raise lost_topic(store.root, name, identity)
    topics = {name: store.made(name) for name in store.names()}
    ids = {name: topic.described()[0] for name, topic in topics.items() if isinstance(topic, ObjectTopic)}
    gone = {
        file: size
        for file, size in lies.sizes.items()
        if file.startswith("topics/") and "/data/" in file and ids.get(file.split("/")[1]) != file.split("/")[2]
    }
    if gone:
        what = f"{len(gone)} object{'s' * (len(gone) != 1)} of topics that are gone"
        delete = partial(store.root.delete, *gone)
        yield Orphan(what, sum(gone.values()), "a removal did not come to its end", delete=delete)
