"""Parts: what a batch reads of each source partition, and what happened there.

In: the documents of two batches, one behind the other. Out: ranges of offsets.
Rule: the same pair of documents gives the same parts for ever: to those who run a batch, and to those who look at it
later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from braid.lower.physical import Plan
from braid.operators.changes import NEVER
from braid.stage.cut import ended_now


@dataclass(frozen=True, slots=True)
class Part:
    """A range of one source partition, read by one leaf. `floor`: the highest time of what stands before it in the
    batch, where others read that."""

    leaf: int
    partition: int
    first: int
    last: int
    ended: bool
    idle: bool
    early: bool
    floor: int = NEVER


def early_leaves(plan: Plan, files: Collection[int]) -> list[int]:
    """Tables in files, and captured ones: what is there is read whole, in the first batches, before any stream."""
    in_files = (leaf.number for leaf in plan.leaves if leaf.source.kind == "table" and leaf.number in files)
    return [*plan.captured, *(leaf for leaf in in_files if leaf not in plan.captured)]


def parts_of(start: Mapping[str, Any], end: Mapping[str, Any], early: Collection[int] = ()) -> list[Part]:
    """What happened in each partition between two documents. `early`: leaves that stand before all others."""
    ended = set(
        ended_now({"next": start["next"], "ended": start["ended"]}, {"next": end["next"], "ended": end["ended"]})
    )
    idle = set(end["idle"])
    parts = []
    for place, last in end["next"].items():
        first = start["next"].get(place, 0)
        if last > first or place in ended or place in idle:
            leaf, partition = place.split("/")
            parts.append(
                Part(int(leaf), int(partition), first, last, place in ended, place in idle, int(leaf) in early)
            )
    return parts
