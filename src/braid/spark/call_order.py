"""An order given from outside, on Spark: how the test driver's calls become batches of a query.

In: positions beside the records of a topic, the driver's marks, a gate that says how far the query may read. Out:
documents and chunks.
Rule: a query never reads past its gate, so records written one by one still form the batches the driver wants. The
order is (seq, hops, topic rank, n), as in `stage/call_order.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import polars as pl

from braid.lower.physical import Leaf
from braid.spark.job import Job, store_of
from braid.stage.batch import Chunk
from braid.stage.call_order import (
    Moment,
    Placed,
    Reading,
    at_start,
    cut,
    moment_position,
    since_of,
    topic_ranks,
    without_replaced,
)
from braid.stage.ingest import Mark
from braid.stage.inputs import Input

if TYPE_CHECKING:
    from braid.spark.source import Part


@dataclass(slots=True)
class Watch:
    """What was seen of the gate when there was nothing to read behind it."""

    stamp: tuple[int, int] | None = None
    start: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicMark:
    """A line of the file of marks."""

    topic: str
    seq: int
    kind: str
    value: int


def open_gate(path: str, seq: int) -> None:
    """The query may read what stands at numbers up to `seq`."""
    temporary = f"{path}~{uuid4().hex[:8]}"
    with open(temporary, "w", encoding="ascii") as f:
        f.write(str(seq))
    os.replace(temporary, path)


def add_mark(path: str, topic: str, moment: Moment) -> None:
    with open(path, "a", encoding="utf-8") as f:
        f.write(json.dumps(asdict(TopicMark(topic, moment.seq, moment.kind, moment.value))) + "\n")


def read_marks(path: str) -> list[TopicMark]:
    try:
        with open(path, encoding="utf-8") as f:
            return [TopicMark(**json.loads(line)) for line in f]
    except FileNotFoundError:
        return []


def plan(job: Job, start: dict[str, Any], watch: Watch) -> dict[str, Any] | None:
    """The next batch: what stands before the gate; None where that is nothing. Without news this is one `stat`."""
    assert job.order is not None
    found = os.stat(job.order.gate)
    stamp = (found.st_ino, found.st_mtime_ns)
    if stamp == watch.stamp and start == watch.start:
        return None
    with open(job.order.gate, encoding="ascii") as f:
        seq = int(f.read())
    made = _next(job, start, seq)
    if made is None:
        watch.stamp, watch.start = stamp, start
    return made


def _next(job: Job, start: dict[str, Any], seq: int) -> dict[str, Any] | None:
    assert job.order is not None
    store = store_of(job.store)
    marks = read_marks(job.order.marks)
    done = start.get("marks", 0)
    readings = []
    for leaf in job.plan.leaves:
        topic = leaf.source.topic
        ends = store.end_offsets(topic)
        records = [r for p, end in enumerate(ends) for r in _placed(job, topic, leaf.number, p, start, end, seq)]
        records = at_start(records, leaf, since_of(job.plan, leaf, job.order.since))
        moments = [_moment(m) for m in marks[done:] if m.topic == topic and m.seq <= seq]
        readings.append(Reading(leaf.number, records, moments, len(ends)))
    if not any(r.records or r.moments for r in readings):
        return None
    taken = next(cut(job.plan, readings, job.order.size))
    offsets = {
        f"{r.leaf}/{p}": start["next"].get(f"{r.leaf}/{p}", 0) + sum(1 for x in r.records if x.partition == p)
        for r in taken
        for p in range(r.partitions)
    }
    left = [m.seq for all_, mine in zip(readings, taken, strict=True) for m in all_.moments[len(mine.moments) :]]
    upto = min(left) - 1 if left else seq
    return {"next": offsets, "seq": seq, "marks": done + sum(1 for m in marks[done:] if m.seq <= upto)}


def _placed(
    job: Job, topic: str, leaf: int, partition: int, start: Mapping[str, Any], end: int, seq: int
) -> Iterator[Placed]:
    """The places of the records not yet read that stand before the gate."""
    first = start["next"].get(f"{leaf}/{partition}", 0)
    if first >= end:
        return
    places = store_of(job.store).read_positions(topic, partition, first, end).filter(pl.col("seq") <= seq)
    for offset, s, hops, n in places.select("_offset", "seq", "hops", "n").iter_rows():
        yield Placed(s, hops, n, partition, offset, None, None, 0, None)


def _moment(mark: TopicMark) -> Moment:
    return Moment(mark.seq, "end" if mark.kind == "end" else "bound", mark.value)


def chunks(job: Job, inputs: Mapping[int, Input], parts: Sequence[Part], marks: tuple[int, int]) -> Iterator[Chunk]:
    """The chunks of a batch; a mark counts for every partition of its topic."""
    assert job.order is not None
    store = store_of(job.store)
    ranks = topic_ranks(job.plan)
    ranges = {(p.leaf, p.partition): (p.first, p.last) for p in parts}
    lines = read_marks(job.order.marks)[slice(*marks)] if marks[1] > marks[0] else []
    for leaf in job.plan.leaves:
        source, topic = inputs[leaf.number], leaf.source.topic
        made = tuple(Mark(moment_position(m.seq), _moment(m).kind, m.value) for m in lines if m.topic == topic)
        for partition in range(source.partitions):
            first, last = ranges.get((leaf.number, partition), (0, 0))
            if first == last and not made:
                continue
            places = store.read_positions(topic, partition, first, last)
            since = since_of(job.plan, leaf, job.order.since)
            placed = _in_order(places, leaf, partition, since)
            placed = placed.with_columns(pl.lit(ranks[leaf.number], pl.Int64).alias("rank"))
            decoded = source.read(partition, first, last)
            if since is not None and leaf.source.kind == "table" and not leaf.source.captured:
                decoded, placed = without_replaced(decoded, placed, since)
            yield Chunk(leaf.number, partition, job.ranks[f"{leaf.number}/{partition}"], decoded, placed, made)


def _in_order(places: pl.DataFrame, leaf: Leaf, partition: int, since: int | None) -> pl.DataFrame:
    """The places of records, as `at_start` gives them."""
    rows = places.select("_offset", "seq", "hops", "n").iter_rows()
    placed = [Placed(s, hops, n, partition, offset, None, None, 0, None) for offset, s, hops, n in rows]
    made = [(r.seq, r.hops, r.n) for r in at_start(placed, leaf, since)]
    return pl.DataFrame(made, schema=dict.fromkeys(("seq", "hops", "n"), pl.Int64), orient="row")
