"""A store of topics in a bucket: which there are, made and deleted. One of them is `object_topics.ObjectTopic`.

In: an object store. Out: its topics.
Rule: a topic is there while `names/TOPIC` is, which is *created*; it goes by a commit that says so (`ObjectTopic.end`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from braid.errors import BraidError
from braid.records.registry import Registry
from braid.store import ObjectStore
from braid.store.cache import Cache
from braid.topics.files import check_name, is_name
from braid.topics.log import MAX_PARTITIONS, description
from braid.topics.object_topics import ObjectTopic, described_by
from braid.topics.registries import of_store
from braid.topics.store import TopicStore

_AT_ONCE = 16  # topics


class ObjectTopicStore(TopicStore):
    """A store of topics in a bucket; what is left out of it is as in a folder."""

    def __init__(self, root: ObjectStore, fsync: bool = False) -> None:
        super().__init__(root, fsync)
        self._cache = Cache(root)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectTopicStore, (self.root, self.fsync)

    @property
    def registry(self) -> Registry:
        return of_store(self.root)

    def names(self) -> list[str]:
        found = (name.removeprefix("names/") for name, _ in self.root.list("names"))
        return sorted(filter(is_name, found))

    def sizes(self) -> dict[str, int]:
        names = self.names()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(names, pool.map(lambda name: self.made(name).described()[1], names), strict=True))

    def exists(self, name: str) -> bool:
        return self.root.size(described_by(name)) is not None

    def create(self, name: str, partitions: int = 1, compacted: bool = False) -> None:
        check_name(name)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise BraidError(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        if not self.exists(name) and self.root.create(described_by(name), description(name, partitions)):
            return
        self.check_partitions(name, partitions)

    def delete(self, name: str) -> None:
        topic = self.topic(name)
        assert isinstance(topic, ObjectTopic)
        topic.end()
        with self._guard:
            self._topics.pop(name, None)

    def made(self, name: str) -> ObjectTopic:
        return ObjectTopic(self.root, self._cache, name)


def lost(root: ObjectStore, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Topics whose records lie in a bucket that has these `names`, which are not described, and were not deleted: by
    name and id."""
    there = {
        (parts[1], parts[2]) for parts in (name.split("/") for name in names) if parts[0] == "topics" and parts[3:]
    }
    store = ObjectTopicStore(root)
    for name, found in sorted(there):
        try:
            known = store.made(name).described()[0]
        except BraidError:
            known = ""
        if found != known and not store.made(name).has_ended(found):
            yield name, found
