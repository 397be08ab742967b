"""Topics, wherever they lie: in the folder of a store, in an object store, or in Kafka.

In: a folder or a URL, and the broker that holds the topics, if one does. Out: what everybody who reads and
writes topics asks.
Rule: who asks cannot tell which of them answers, but for `dense`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import polars as pl

from braid.errors import BraidError
from braid.records.registry import Registry
from braid.records.wire import Wire, Wires
from braid.store import ObjectStore
from braid.topics.store import TopicStore
from braid.topics.store_value import Store

COPYING = "copying"  # in an object store: a copy of a store is being made there, and is none yet


class Topics(Protocol):
    """`root`: where drops and the catalogue are; `fsync`: what is written there is forced to disk."""

    root: ObjectStore
    fsync: bool

    @property
    def store(self) -> Store:
        """The value that they are opened by."""
        ...

    @property
    def dense(self) -> bool:
        """Whether each offset from the start to the end has a record, or had one before the topic was compacted."""
        ...

    @property
    def registry(self) -> Registry | None:
        """Where the schemas of its records are."""
        ...

    def names(self) -> list[str]: ...

    def sizes(self) -> dict[str, int]:
        """The topics, and how many partitions they have."""
        ...

    def exists(self, name: str) -> bool: ...

    def create(self, name: str, partitions: int = 1, compacted: bool = False) -> None: ...

    def delete(self, name: str) -> None: ...

    def forget(self, query: str, run: str, tasks: int) -> None:
        """What one life of a query's checkpoint has left besides records goes. `tasks`: how many wrote."""
        ...

    def identity(self, name: str) -> str: ...

    def partitions(self, name: str) -> int: ...

    def start_offsets(self, name: str) -> list[int]: ...

    def count(self, name: str) -> int:
        """How many records there are; in Kafka, where offsets have gaps, at most so many."""
        ...

    def end_offsets(self, name: str) -> list[int]: ...

    def offsets_at(self, name: str, time: int) -> list[int]:
        """Of each partition the offset of the first record whose time is this or later; the end where none is."""
        ...

    def settle(self, name: str) -> None:
        """Waits, but not for long, until all that was written can be read."""
        ...

    def known_end(self, name: str, partition: int) -> int:
        """The end of a partition as of the last look."""
        ...

    def known_start(self, name: str, partition: int) -> int:
        """Where a partition begins as of the last look; 0 where nobody knows without asking."""
        ...

    def raw(self, name: str, partition: int, first: int, last: int, how: Wires) -> pl.DataFrame:
        """Columns of `RAW` of the records in [first, last)."""
        ...

    def times(self, name: str, partition: int, first: int, last: int, value: Wire | None = None) -> pl.DataFrame:
        """`_offset` and `_t` of the records in [first, last); with how values are written `_value`, too."""
        ...

    def highs(self, name: str, partition: int, first: int, end: int) -> Iterator[tuple[int, int, int | None]] | None:
        """The highest time of each chunk; None where nobody knows without reading."""
        ...

    def prefix(self, name: str, partition: int, offset: int) -> tuple[int, int] | None:
        """An end of a partition at `offset` or behind it, and the checksum of what stands before it; None where nobody
        knows without reading."""
        ...

    def checksum(self, name: str, partition: int, end: int) -> int | None:
        """Of what stands before an end that was one of `prefix`; None where there is less."""
        ...

    def parsed(self, name: str, partition: int, first: int, last: int, how: Wires) -> pl.DataFrame:
        """The records in [first, last) for people: `_offset`, `_line`, `_raw` and the columns of `ENVELOPE`."""
        ...

    def page_end(self, name: str, partition: int, first: int, last: int) -> int:
        """Where a page from `first` on ends: at `last`, or before where it would be large."""
        ...

    def placed(self, name: str, keys: pl.Series, partitions: int, how: Wires) -> pl.Series:
        """The partition of each key text of a topic, among so many; 0 without a key."""
        ...

    def append(
        self,
        name: str,
        records: pl.DataFrame | Sequence[Mapping[str, Any]],
        query: str | None = None,
        *,
        how: Wires | None = None,
    ) -> bool:
        """Adds records (`TopicStore.append`) at once. With a `query`, once: False where it was done before."""
        ...

    def once(self, name: str) -> set[str]:
        """What names appends of statements to a topic were given."""
        ...


def open_topics(store: Store, known: Mapping[str, str] | None = None, durable: bool = False) -> Topics:
    """The topics of a store. `known`: identities of those on its broker; `durable`: what is written into the store is
    forced to disk."""
    root, broker = store.objects, store.broker
    if broker is None:
        made = store_at(root, durable)
        if root.path is None and root.has(COPYING):
            what = f"a copy to {made.root} was begun, and did not come to its end"
            raise BraidError(what, "braid copy FROM TO again")
        return made
    from braid.topics.kafka import KafkaTopics

    return KafkaTopics(root, broker, known, durable)


@lru_cache(maxsize=64)
def store_of(root: ObjectStore, fsync: bool = False) -> TopicStore:
    """A store as this process sees it, with its view of the commits."""
    return store_at(root, fsync)


def store_at(root: ObjectStore, durable: bool = False) -> TopicStore:
    """A store, be it one that is being made."""
    if root.path is not None:
        return TopicStore(root, durable)
    from braid.topics.object_topic_store import ObjectTopicStore

    return ObjectTopicStore(root, durable)
