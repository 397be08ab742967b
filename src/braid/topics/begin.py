"""Where a query begins to read.

In: what the user asked for, of streams or of single topics; what the SQL says of a source. Out: the offset at which
each partition is read from.
Rule: what is asked for goes before what the SQL says. Without a topic's name it is said of streams: a table is whole
only from its beginning on. A time is that of messages, never of a column: the first record at that time or later, else
the end. Offsets that are not there are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from braid.errors import BraidError
from braid.topics.interface import Topics

Where = Literal["earliest", "latest"] | int | tuple[tuple[int, int], ...]  # a time (ms), or (partition, offset)


@dataclass(frozen=True, slots=True)
class Begins:
    """`streams`: of all streams; `topics`: by name; `whole`: topics that are read from their beginning, unless they are
    named, since a query beside this one writes them."""

    streams: Where | None = None
    topics: Mapping[str, Where] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()

    def of(self, topic: str, stream: bool, said: Where) -> Where:
        """Where a source begins; `said`: by the SQL."""
        if topic in self.topics:
            return self.topics[topic]
        if topic in self.whole:
            return "earliest"
        return self.streams if self.streams is not None and stream else said


UNASKED = Begins()


def offsets_of(topics: Topics, name: str, where: Where) -> list[int]:
    """The offset at which each partition begins."""
    match where:
        case "earliest":
            return topics.start_offsets(name)
        case "latest":
            return topics.end_offsets(name)
        case int():
            return topics.offsets_at(name, where)
    starts, ends = topics.start_offsets(name), topics.end_offsets(name)
    for partition, offset in where:
        if partition >= len(starts):
            raise BraidError(f"the topic {name} has {len(starts)} partitions, none with number {partition}")
        first, last = starts[partition], ends[partition]
        if not first <= offset <= last:
            there = f"it has offsets {first} to {last - 1}" if first < last else f"it is empty, and goes on at {last}"
            raise BraidError(f"the topic {name} has no offset {offset} in partition {partition}", there)
        starts[partition] = offset
    return starts
