"""A batch is cut at a time: how far each partition is read.

In: the inputs of a query and the document of the last batch's end. Out: the document of the next one's, or None where
nothing is new. An input never ends by itself; whoever runs the query may close all of them (`close`), at one place,
behind everything that was read.
Rule: every batch is a beginning of what is left, in the order (m, rank, offset, leaf), `m` being the running maximum of
a partition's times. So the batches one after the other are in the order of one single batch
(docs/semantics/order-and-clocks.md, "Processing order").

Why batches may be cut so. Let a batch end behind the place (M, r, o). In the next one `m` starts anew. A partition of
another rank goes on with a record that raises `m` (what is left of it lies above M, or at M with a higher rank), so
its `m` is what it was. Partition r may go on with times below M, and lies before all others either way, in offset
order. An end at a time T is the place (T, all ranks, all offsets); only where one time alone holds more than `HARD`
limits does a batch end inside it. One case keeps less than that: two leaves over one topic (one rank) that take their
times from different columns, cut inside one time, may be merged by their own times behind the cut.
What arrives later than a batch was planned is in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NotRequired, TypedDict

from braid.errors import BraidError, anew
from braid.operators.changes import NEVER
from braid.stage.inputs import Input

LIMIT = 1_000_000  # records a batch, where nobody asks for another number
HARD = 4  # limits that one time may hold before it is cut by rank and offset


class Cut(TypedDict):
    """Where a batch ends: the next offset of each `<leaf>/<partition>`, and which have been closed. `early`: only while
    early leaves are read on: where that ends."""

    next: dict[str, int]
    ended: list[str]
    early: NotRequired[dict[str, int]]


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    input: Input
    partition: int
    first: int
    end: int
    rank: int
    early: bool

    def cut(self, time: int) -> int:
        return min(self.input.cut(self.partition, self.first, time), self.end)

    def time_after(self, count: int) -> int | None:
        """The highest of the next `count` times, None where fewer are there."""
        if count > self.end - self.first:
            return None
        return self.input.time_after(self.partition, self.first, count)


def part_name(leaf: int, partition: int) -> str:
    return f"{leaf}/{partition}"


def beginning() -> Cut:
    """The document before the first batch."""
    return {"next": {}, "ended": []}


def plan_batch(
    inputs: Sequence[tuple[int, Input]],
    start: Cut,
    limit: int = LIMIT,
    early: Collection[int] = (),
    ranks: Mapping[str, int] | None = None,
    close: bool = False,
    comes: Collection[int] = (),
) -> Cut | None:
    """Where the next batch ends. What the leaves in `early` hold at first is read before all others: while it is more
    than `limit` in batches of its own, what is left of it with the first records of the others. `ranks` numbers the
    partitions (by default in the order given, tables should stand before streams). `close`: a last batch without
    records ends all of them when nothing is left. `comes`: leaves of which more is made ready than there is yet: no
    batch goes beyond the time from which on that may lie, so all are in the order of one that has the whole."""
    if limit < 1:
        raise BraidError(f"a batch cannot have {limit} records", "ask for at least one")
    parts = _parts(inputs, start, early, ranks)
    if comes:
        if not set(comes).isdisjoint(early):
            return None
        known = min(_known(p) for p in parts if int(p.name.partition("/")[0]) in comes)
        parts = [p if p.early else replace(p, end=max(p.first, p.cut(known - 1))) for p in parts]
    waiting = [p for p in parts if p.early and p.first < p.end]
    if sum(p.end - p.first for p in waiting) > limit:
        until = {p.name: p.end for p in parts if p.early}
        return {"next": {p.name: p.first for p in parts} | _within(waiting, limit), "ended": [], "early": until}
    counted = [p for p in parts if not p.early and p.first < p.end]
    found = {p.name: p.end for p in parts}
    if sum(p.end - p.first for p in counted) > limit:
        found |= _within(counted, limit)
    if any(found[p.name] > p.first for p in parts):
        return {"next": found, "ended": start["ended"]}
    closed = [p.name for p in parts]
    if close and not comes and not set(closed) <= set(start["ended"]):
        return {"next": found, "ended": closed}
    return None


def _known(part: _Part) -> int:
    """The highest time of what there is of a partition: what comes behind it is not before that."""
    found = part.input.time_after(part.partition, part.first, part.end - part.first) if part.first < part.end else None
    return NEVER if found is None else found


def ended_now(start: Cut, end: Cut) -> list[str]:
    """The partitions that are closed by the batch from `start` to `end`, behind its last record."""
    return [n for n in end["ended"] if n not in start["ended"]]


def behind_an_end(source: str, file: str | None = None) -> BraidError:
    """That a closed source has got more records."""
    more = "records" if file is None else f"rows, in {file}"
    return BraidError(
        f"{source} has more {more}, but it was closed: a run with --end let everything go that waited for them",
        f"run without --end as long as more may come; {anew()}, and reads all of it",
    )


def _parts(
    inputs: Sequence[tuple[int, Input]],
    start: Cut,
    early: Collection[int],
    ranks: Mapping[str, int] | None,
) -> list[_Part]:
    found: list[_Part] = []
    for leaf, input in inputs:
        for partition, end in enumerate(input.ends()):
            name = part_name(leaf, partition)
            first = start["next"].get(name, 0)
            if first > end:
                raise BraidError(
                    f"input {name} ends at offset {end}, but {first} of its records have been processed",
                    f"what it is read from was replaced by something shorter: put it back; or {anew()}",
                )
            if first < end and name in start["ended"]:
                raise behind_an_end(input.source.name)
            rank = len(found) if ranks is None else ranks[name]
            upto = min(end, start.get("early", {}).get(name, end))
            found.append(_Part(name, input, partition, first, upto, rank, leaf in early))
    return found


def _within(parts: list[_Part], limit: int) -> dict[str, int]:
    """The largest time that keeps within the limit; else the whole of the next time, or a part of it."""
    time = _latest_time(parts, limit)
    found = {p.name: p.cut(time) for p in parts}
    if any(found[p.name] > p.first for p in parts):
        return found
    time = min(t for p in parts if (t := p.time_after(1)) is not None)  # the next time there is: every m here is this
    found = {p.name: p.cut(time) for p in parts}
    if sum(found[p.name] - p.first for p in parts) <= HARD * limit:
        return found
    return _by_rank(parts, found, limit)


def _latest_time(parts: list[_Part], limit: int) -> int:
    """The largest T up to which all partitions have at most `limit` records; below all times where there is none."""
    step = limit // len(parts) + 1
    seen = {p.name: p.time_after(step) for p in parts}  # the highest time as far as a partition was looked at
    counts = dict.fromkeys(seen, step)
    low = high = NEVER
    while True:  # looks on where least time has passed: at most at twice the limit of records, all in all
        open_ = [(t, p) for p in parts if (t := seen[p.name]) is not None]
        if not open_:  # all has been looked at
            high = max(t for p in parts if (t := p.time_after(p.end - p.first)) is not None)
            break
        time, least = min(open_, key=lambda x: x[0])
        if sum(p.cut(time - 1) - p.first for p in parts) > limit:
            high = time - 2
            break
        low = time - 1
        counts[least.name] += step
        seen[least.name] = least.time_after(counts[least.name])
    while low < high:
        middle = (low + high + 1) // 2
        if sum(p.cut(middle) - p.first for p in parts) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _by_rank(parts: list[_Part], found: dict[str, int], left: int) -> dict[str, int]:
    """At most `left` (and at least one) of the records that `found` holds, by rank, then offset."""
    made = {p.name: p.first for p in parts}
    for _, same in groupby(sorted(parts, key=lambda p: p.rank), key=lambda p: p.rank):
        group = list(same)
        low, high = min(p.first for p in group), max(found[p.name] for p in group)

        def upto(offset: int, group: list[_Part] = group) -> dict[str, int]:
            return {p.name: max(p.first, min(found[p.name], offset)) for p in group}

        def count(offset: int, group: list[_Part] = group) -> int:
            return sum(upto(offset, group)[p.name] - p.first for p in group)

        while low < high:  # the highest offset that keeps the limit; leaves over one topic go side by side
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count(middle) <= left else (low, middle - 1)
        made |= upto(low, group)
        left -= count(low, group)
        if any(made[p.name] < found[p.name] for p in group):
            if all(made[p.name] == p.first for p in parts):
                made |= upto(low + 1, group)
            break
    return made
