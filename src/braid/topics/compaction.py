"""Compaction: of each key of a topic the last record stays, at its offset.

In: a topic, up to where its readers have come. Out: segments with holes in place of the other records, by one commit.
Rule: only what all readers have read is compacted, so none sees it, and who begins later ends with the same table. A
hole is a line of its own, so offsets, and all that finds a line by its offset, stay as they are; a compacted segment
knows the checksum of the lines before, by which its records are still known (`prefix.py`). A record without a value
goes with a later compaction than the first that has seen it; one without a key, or that is none, stays. The last
segment of a partition is never compacted.

The segments are written before anything is locked, and thrown away where others stand for the same records by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.store.files import force
from braid.topics.envelope import parse_envelope
from braid.topics.files import reach
from braid.topics.log import Topic
from braid.topics.prefix import joined
from braid.topics.removal import Gone, ready, taken
from braid.topics.rollup import LARGE
from braid.topics.segments import COMPACTED, HOLE, Segment, Written, measure, read_bytes, split_lines
from braid.topics.view import Keep, Mark, View

WORTH = 1  # times the bytes that were compacted before are worth looking through all again
MARKS = 16  # compactions that are remembered, so that records without a value go in time
_KEY = ("_key", "_window")

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Made:
    """A compacted segment, and those that it stands for."""

    segment: Segment
    of: Sequence[Segment]


def compact(
    topic: Topic, needed: Callable[[int, int], int], now: int, tombstones: int, gone: Gone, at_once: bool = False
) -> None:
    """`now` in ms since 1970; `tombstones`: ms for which records without a value stay."""
    with ready(topic) as view:
        ends = _ends(topic, view, needed)
    due = _due(view, now, tombstones)
    looked = view.marks[-1].ends if view.marks else (0,) * len(ends)
    made, upto = list[Made](), list(looked)
    for p in range(len(ends)):
        mine = list(_below(view.parts[p], ends[p]))
        new = sum(s.extent.size for s in mine if s.first >= looked[p])
        old = sum(s.extent.size for s in mine if s.first < looked[p])
        if not mine or not (at_once or (new and new >= WORTH * old)):
            continue
        made += _partition(topic, mine, _staying(topic, mine, due[p]))
        upto[p] = max(mine[-1].end, looked[p])
    if made or tuple(upto) != tuple(looked):
        _committed(topic, made, _marks(view.marks, Mark(now, tuple(upto)), tombstones), gone)


def foreseen(
    topic: Topic,
    view: View,
    needed: Callable[[int, int], int],
    now: int,
    tombstones: int,
    skip: Mapping[int, int],
    gone: Gone,
) -> None:
    """What would go, and nothing does. `skip`: of each partition so many segments at the front, which go anyway."""
    due = _due(view, now, tombstones)
    for p, end in enumerate(_ends(topic, view, needed)):
        mine = list(_below(view.parts[p][skip.get(p, 0) :], end))
        if not mine:
            continue
        staying = _staying(topic, mine, due[p])
        gone.records += sum(s.extent.count for s in mine) - len(staying)
        for s in mine:
            data = _lines(topic, s)
            made = _with_holes(data, staying[np.searchsorted(staying, s.first) :], s)
            gone.size += 0 if made is None else len(data) - len(made)


def _ends(topic: Topic, view: View, needed: Callable[[int, int], int]) -> list[int]:
    """Up to where each partition may be compacted."""
    return [min(needed(p, view.end(p)), end) for p, end in enumerate(topic.folded_ends(view))]


def _due(view: View, now: int, tombstones: int) -> Sequence[int]:
    """Of each partition the offset below which records without a value go."""
    return next((m.ends for m in reversed(view.marks) if m.at <= now - tombstones), (0,) * len(view.parts))


def _marks(before: Sequence[Mark], new: Mark, tombstones: int) -> list[Mark]:
    """Those that tell in time which records without a value may go: some for that span, and the newest."""
    if len(before) > 1 and before[-1].at - before[-2].at < tombstones // (MARKS // 2):
        before = before[:-1]
    return [*before[-MARKS + 1 :], new]


def _below(segments: Sequence[Segment], end: int) -> Iterator[Segment]:
    """The segments that may be compacted: up to an offset, but not the last."""
    for s in segments[:-1]:
        if s.end > end or s.positions is not None:
            return
        yield s


def _lines(topic: Topic, s: Segment) -> bytes:
    return topic.opened(s, partial(read_bytes, extent=s.extent, first=0, last=s.extent.count, check=True))


def _staying(topic: Topic, segments: Sequence[Segment], due: int) -> Offsets:
    """The offsets of the records that stay, in order. `due`: below it those without a value go."""
    last, odd = list[pl.DataFrame](), list[pl.Series]()
    topic.prepare(segments)
    for s in segments:
        rows = parse_envelope(split_lines(_lines(topic, s))["_line"])
        rows = rows.select(*_KEY, "error", pl.col("_value").is_null().alias("empty"))
        rows = rows.with_columns(pl.int_range(s.first, s.end, dtype=pl.Int64).alias("_offset"))
        keyed = pl.col("_key").is_not_null() & pl.col("error").is_null()
        odd.append(rows.filter(~keyed)["_offset"])
        last.append(rows.filter(keyed).drop("error"))
        if len(last) > 1 and last[-1].height > last[0].height:
            last = [_last_of(last)]
    rows = _last_of(last).filter(~(pl.col("empty") & (pl.col("_offset") < due)))
    return np.sort(np.concatenate([rows["_offset"].to_numpy(), *(x.to_numpy() for x in odd)]))


def _last_of(rows: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(rows).unique(_KEY, keep="last", maintain_order=True)


def _partition(topic: Topic, segments: Sequence[Segment], staying: Offsets) -> Iterator[Made]:
    """Those that lose records, neighbours together where small."""
    group, lines, size = list[Segment](), list[bytes](), 0
    for s in segments:
        data = _with_holes(_lines(topic, s), staying[np.searchsorted(staying, s.first) :], s)
        if data is None or size >= LARGE:
            yield from _written(topic, group, lines)
            group, lines, size = [], [], 0
        if data is not None:
            group.append(s)
            lines.append(data)
            size += len(data)
    yield from _written(topic, group, lines)


def _with_holes(data: bytes, staying: Offsets, s: Segment) -> bytes | None:
    """A segment's lines, holes where a record does not stay; None where all stay as they are."""
    lines = data.removesuffix(b"\n").split(b"\n")
    hole, stay = HOLE.encode(), set((staying[: len(lines)] - s.first).tolist())
    made = [line if n in stay else hole for n, line in enumerate(lines)]
    return None if made == lines else b"\n".join(made) + b"\n"


def _written(topic: Topic, group: Sequence[Segment], lines: Sequence[bytes]) -> Iterator[Made]:
    if not group:
        return
    first, data = group[0], b"".join(lines)
    name = f"{COMPACTED}{first.partition:06d}~{first.first:020d}~{uuid4().hex[:8]}.jsonl"
    path = os.path.join(topic.staging, name)
    with open(path, "xb") as f:
        f.write(data)
    if topic.fsync:
        force(path)
    crc, size = 0, 0
    for s in group:
        crc, size = joined(crc, *s.extent.as_written), size + s.extent.as_written[1]
    holes = data.removesuffix(b"\n").split(b"\n").count(HOLE.encode())
    extent = replace(measure(path), written=Written(crc, size, holes))
    reach("compacted")
    yield Made(Segment(first.partition, first.first, extent, name, None), list(group))


def _committed(topic: Topic, made: Sequence[Made], marks: Sequence[Mark], gone: Gone) -> None:
    """Nothing where others stand for the same records meanwhile: the next compaction sees these."""
    of, segments = [s for m in made for s in m.of], topic.sent([m.segment for m in made])
    while True:
        with ready(topic) as view:
            there = {s for part in view.parts for s in part}
            if not there.issuperset(of) or not topic.holds(segments):
                named = {s.staged for s in there}
                topic.discard([s.staged for s in segments if s.staged is not None and s.staged not in named])
                return
            if taken(topic, view, Keep(instead=segments, marks=marks)):
                break
    gone.records += sum(s.extent.records for s in of) - sum(s.extent.records for s in segments)
    gone.size += sum(s.extent.size for s in of) - sum(s.extent.size for s in segments)
