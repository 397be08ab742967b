"""The group `braid.QUERY` on a broker: how far a query has come, for the tools that show lag.

In: the offsets up to which its batches are done. Out: the same, committed for the group.
Rule: nothing depends on it. Nobody waits for the broker but at the end, and not long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from braid.spark.job import Job
from braid.topics.kafka import commit_offsets

LAST = 5.0  # s for the last answers


class Group:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._told: list[Any] = []

    def tell(self, upto: Mapping[str, int]) -> None:
        """All before `upto`, by `leaf/partition`, is done."""
        if (broker := self._job.store.broker) is not None:
            self._told = commit_offsets(broker, f"braid.{self._job.name}", _by_topic(self._job, upto))

    def close(self) -> None:
        for answer in self._told:
            with contextlib.suppress(Exception):
                answer.result(LAST)
        self._told = []


def _by_topic(job: Job, upto: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """How far each partition of the topics has been read by all leaves."""
    made: dict[tuple[str, int], int] = {}
    for place, offset in upto.items():
        leaf, partition = map(int, place.split("/"))
        if leaf not in job.files:
            which = job.plan.leaves[leaf].source.topic, partition
            made[which] = min(offset, made.get(which, offset))
    return made
