"""What moved a topic's clock furthest: the one record that can make all others late.

In: the clock steps of each part that a task reads. Out: for each topic the largest leap of a partition's time, over
all batches since the query was started here, and the highest time.
Rule: a figure for people; no result depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from braid.operators.changes import LEAF_BITS, LOW, OFFSET_BITS, POS, POS_TYPE
from braid.operators.clocks import BOTH, CLOCK, FOREVER


@dataclass(frozen=True, slots=True)
class Leap:
    """The record at this place has `time`; before it the partition's highest was `before` (ms)."""

    partition: int
    offset: int
    time: int
    before: int


def told(steps: pl.DataFrame, partition: int) -> dict[str, Any] | None:
    """What a task says of a part's steps: its first record that moved the clock, the furthest leap after that, the
    highest time. None where nothing moved."""
    own = steps.filter(pl.col("kind").is_in([CLOCK, BOTH]) & (pl.col("value") < FOREVER))
    if not own.height:
        return None
    offset = (pl.col(POS) % pl.lit(LOW, POS_TYPE) // (1 << LEAF_BITS) % (1 << OFFSET_BITS)).cast(pl.Int64)
    at = own.select(offset.alias("offset"), "value", by=pl.col("value") - pl.col("value").shift(1))
    furthest = at["by"].arg_max()
    leap = None
    if furthest is not None:
        leap = [at["offset"][furthest], at["value"][furthest], at["value"][furthest - 1]]
    return {
        "partition": partition,
        "first": [at["offset"][0], at["value"][0]],
        "leap": leap,
        "highest": at["value"].max(),
    }


class Leaps:
    """By topic: the furthest leap and the highest time."""

    def __init__(self) -> None:
        self.furthest: dict[str, Leap] = {}
        self.highest: dict[str, int] = {}
        self._shown: dict[tuple[str, int], int] = {}  # the highest time of each partition

    def add(self, said: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        """A batch: what the tasks say (`told`), by topic."""
        for topic, parts in said.items():
            for part in parts:
                self._add(topic, part)

    def _add(self, topic: str, part: Mapping[str, Any]) -> None:
        partition = part["partition"]
        before = self._shown.get((topic, partition))
        found = [] if part["leap"] is None else [Leap(partition, *part["leap"])]
        if before is not None:
            offset, time = part["first"]
            found.append(Leap(partition, offset, time, before))
        for leap in found:
            known = self.furthest.get(topic)
            if known is None or leap.time - leap.before > known.time - known.before:
                self.furthest[topic] = leap
        highest = part["highest"]
        self._shown[topic, partition] = highest if before is None else max(before, highest)
        self.highest[topic] = max(self.highest.get(topic, highest), highest)
