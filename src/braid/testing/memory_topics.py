"""Topics in this process's memory, for the test driver without a JVM.

In: records and marks with their place in the order of calls. Out: the same, by topic.
Rule: offsets count from 0 in each partition; nothing is ever removed but whole topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from braid.stage.call_order import Moment, Placed


@dataclass(slots=True)
class Topic:
    partitions: int
    records: list[Placed] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def append(self, record: Placed) -> None:
        self.ends = self.ends or [0] * self.partitions
        self.records.append(replace(record, offset=self.ends[record.partition]))
        self.ends[record.partition] += 1


class MemoryTopics:
    """The half of `backend.Backend` that is about topics."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics.setdefault(name, Topic(partitions))

    def partitions(self, topic: str) -> int | None:
        return self.topics[topic].partitions if topic in self.topics else None

    def delete_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def append(self, topic: str, records: Sequence[Placed]) -> None:
        for record in records:
            self.topics[topic].append(record)

    def mark(self, topic: str, moment: Moment) -> None:
        self.topics[topic].moments.append(moment)

    def records(self, topic: str, start: int) -> list[Placed]:
        return self.topics[topic].records[start:]
