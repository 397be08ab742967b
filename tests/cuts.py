"""Cuts of a history into batches.

In: a history, a `random.Random`. Out: where it is cut; of each batch the offsets it reads, and the moments in it.
Rule: nothing here knows how a query runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from histories import History, Moment

FEW = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a history: (topic, partition) -> offsets [first, last); the moments in it; partitions that it reads
    to their end (and that have records in it)."""

    ranges: dict[tuple[str, int], tuple[int, int]]
    moments: tuple[Moment, ...] = ()
    ended: frozenset[tuple[str, int]] = field(default=frozenset())


def seq_cuts(rng: random.Random, history: History) -> list[list[int]]:
    """Some ways to cut an explicit history: not at all, at random, and last before every record."""
    last = 1 + max((r.seq for *_, r in history.records()), default=0)
    return [[], *(sorted(rng.sample(range(1, last + 1), min(n, last))) for n in (2, 6)), list(range(1, last + 1))]


def time_cuts(rng: random.Random, history: History) -> list[list[int]]:
    """Some ways to cut a partitioned history, by the last time of each batch: the last one at every time."""
    times = sorted({r.time for *_, r in history.records()}) or [0]
    return [[], *(sorted(rng.sample(times, min(n, len(times)))) for n in (2, 8)), times]


def some(rng: random.Random, cuts: list[list[int]]) -> list[list[int]]:
    """Fewer ways: not at all, at two places, and at a few of all places, in a row."""
    first = rng.randrange(max(len(cuts[-1]) - FEW, 1))
    return [*cuts[:2], cuts[-1][first : first + FEW]]


def batches(history: History, cuts: Iterable[int]) -> list[Batch]:
    """The history cut before these seqs (explicit), or after these times (partitioned). Offsets go on where the batch
    before stopped; a partition is read up to its first record that is later."""
    done = {(topic, p): 0 for topic, partitions in history.topics.items() for p in range(len(partitions))}
    out: list[Batch] = []
    before = -1
    for cut in [*cuts, 2**62]:
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        ended: set[tuple[str, int]] = set()
        for (topic, p), first in done.items():
            records = history.topics[topic][p]
            beyond = (r.seq >= cut if history.explicit else r.time > cut for r in records[first:])
            last = next((first + i for i, is_beyond in enumerate(beyond) if is_beyond), len(records))
            if last > first:
                ranges[topic, p] = (first, last)
                done[topic, p] = last
                if last == len(records) and history.ends and not history.explicit:
                    ended.add((topic, p))
        moments = tuple(m for m in history.moments if before <= m.seq < cut)
        before = cut
        if ranges or moments:
            out.append(Batch(ranges, moments, frozenset(ended)))
    return out
