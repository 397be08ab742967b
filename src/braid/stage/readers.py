"""Up to where the queries of a store have read its topics: from where on they may still ask for records.

In: the checkpoint of a query. Out: for each partition that it reads, the first offset that it needs.
Rule: what cannot be told is needed from the beginning on. A batch whose state is there may be done again, so it is the
one before the last that counts; and while a changed query is worked out beside it, all is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from braid.errors import BraidError
from braid.stage import batches, checkpoint, state_file
from braid.stage.checkpoint import Document
from braid.stage.reset_marker import Known
from braid.store import ObjectStore

T = TypeVar("T")

_TRIES = 5  # a run that goes on replaces the files of a batch while they are looked at


@dataclass(frozen=True, slots=True)
class Reader:
    """A query that reads topics of the store. `at`: by "topic/partition" what it needs first, where that is known;
    `reached`: what it has read."""

    query: str
    reads: frozenset[str]
    at: Mapping[str, int] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)

    def needs(self, topic: str, partition: int) -> int:
        return self.at.get(f"{topic}/{partition}", 0)

    def has_read(self, topic: str, partitions: int) -> int:
        """How many records of a topic lie behind it."""
        return sum(self.reached.get(f"{topic}/{p}", 0) for p in range(partitions))


def readers(known: Iterable[Known]) -> list[Reader]:
    """Those among the queries of a store that read its topics. One whose checkpoint cannot be read needs all of every
    topic."""
    return [_reader(q) for q in known if not q.on_broker]


def first_needed(found: Collection[Reader], topic: str, partition: int, end: int) -> int:
    """The offset before which nobody needs a record."""
    return min((r.needs(topic, partition) for r in holding(found, topic)), default=end)


def holding(found: Iterable[Reader], topic: str) -> Iterator[Reader]:
    """Those who may still ask for records of a topic."""
    return (r for r in found if topic in r.reads or not r.reads)


def read_again(read: Callable[[], T]) -> T:
    """What is read of a checkpoint whose query may run: tried again where files went meanwhile."""
    for _ in range(_TRIES - 1):
        with suppress(BraidError, OSError):
            return read()
    return read()


def _reader(q: Known) -> Reader:
    def read() -> Reader:
        document = checkpoint.load(q.folder)
        return Reader(q.name, q.reads) if document is None else _of(q, document)

    try:
        return read_again(read)
    except (BraidError, OSError):
        return Reader(q.name, q.reads)  # of which nothing more can be told


def _of(q: Known, document: Document) -> Reader:
    states, begin = state_file.batches(q.folder), document.settings.get("begin", {})
    newest = states[-1] if states else -1
    done = newest if newest == state_file.published(q.folder) else newest - 1
    reached = _ends(q.folder, done, begin) if done in states or done < 0 else {}
    if checkpoint.shadow(q.folder).has(checkpoint.NAME):
        needed: Mapping[str, int] = {}
    else:
        needed = _ends(q.folder, newest - 1, begin) if newest - 1 in states or newest < 1 else reached
    return Reader(q.name, q.reads, _by_topic(document, needed), _by_topic(document, reached))


def _ends(folder: ObjectStore, batch: int, begin: Mapping[str, int]) -> Mapping[str, int]:
    """Where a batch ended; before the first, where the query began."""
    if batch < 0:
        return begin
    found: Mapping[str, int] = batches.document_in(state_file.reads(folder, batch) or ())["next"]
    return found


def _by_topic(document: Document, offsets: Mapping[str, int]) -> dict[str, int]:
    """Of leaves over one topic the one that has read least."""
    found, leaves = dict[str, int](), document.leaves()
    for place, offset in offsets.items():
        leaf, _, partition = place.partition("/")
        at = f"{leaves[int(leaf)]}/{partition}"
        found[at] = min(offset, found.get(at, offset))
    return found
