"""Rollup: small segments of a topic become larger ones, of the same records, offsets and order.

In: segments that commits list. Out: files in `.staging`, and the segments that they are; then their names in a folder.
Rule: nothing is rolled up that is not what its commit says (see `log.py`).
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from braid.errors import BraidError
from braid.store.files import force, remove, scratch_name
from braid.topics import retention
from braid.topics.files import reach
from braid.topics.retention import Retention
from braid.topics.segments import CHUNK, ROLLED, Extent, Segment, measure, read_bytes

if TYPE_CHECKING:
    from braid.topics.log import Topic

SMALL = 1 << 20  # bytes of a segment that is worth rolling up
LARGE = 64 << 20  # bytes of one that is made
PARTS = 10  # segments, at least, of what a topic keeps by time or size


def rolled(topic: Topic, segments: list[Segment], number: int) -> list[Segment]:
    """The segments of a fold up to commit `number`, neighbours of a partition rolled up where small."""
    made, wanted = list[Segment](), _wanted(topic)
    for _, mine in groupby(sorted(segments, key=lambda s: (s.partition, s.first)), key=lambda s: s.partition):
        for group in _groups(mine, wanted):
            made += group if len(group) == 1 else _together(topic, group, number)
    return made


def _wanted(topic: Topic) -> Retention:
    """What the topic keeps; where that cannot be read, it is told to whoever sets it or carries it out. In a room a
    segment has what a fold has, and nobody asks."""
    if not topic.in_folder:
        return Retention()
    with contextlib.suppress(BraidError):
        return retention.all_of(topic.root).get(topic.name, Retention())
    return Retention()


def _groups(segments: Iterable[Segment], wanted: Retention) -> Iterator[list[Segment]]:
    """Neighbours that go together; one alone stays as it is. Where records go by time or size, they go bit by bit."""
    most = LARGE if wanted.bytes is None else min(LARGE, wanted.bytes // PARTS)
    span = None if wanted.ms is None else wanted.ms // PARTS
    group: list[Segment] = []
    for s in segments:
        fits = group and group[-1].end == s.first and sum(x.extent.size for x in group) < most
        fits = fits and (span is None or _span([*group, s]) <= span)
        if group and not (fits and _rolls(s) and _rolls(group[-1])):
            yield group
            group = []
        group.append(s)
    if group:
        yield group


def _span(group: Iterable[Segment]) -> int:
    """From the lowest to the highest time."""
    times = [t for s in group for t in (s.extent.low, s.extent.high) if t is not None]
    return max(times) - min(times) if times else 0


def _rolls(s: Segment) -> bool:
    most = LARGE if s.staged is not None and s.staged.startswith(ROLLED) else SMALL
    return s.positions is None and s.extent.written is None and s.extent.size < most


def _together(topic: Topic, group: list[Segment], number: int) -> list[Segment]:
    """One segment for several; where one of them cannot be read, they stay, and its reader is told."""
    first = group[0]
    name = f"{ROLLED}{number:020d}~{first.partition:06d}~{first.first:020d}~{uuid4().hex[:8]}.jsonl"
    path = os.path.join(topic.staging, name)
    scratch, crc = scratch_name(path), 0
    try:
        with open(scratch, "xb") as f:
            for s in group:
                data = topic.opened(s, partial(read_bytes, extent=s.extent, first=0, last=s.extent.count, check=True))
                if len(data) != s.extent.size:  # of a hand that ended no last line: checksums would not add up
                    raise BraidError("a line without its end")
                f.write(data)
                crc = zlib.crc32(data, crc)
            if topic.fsync:
                f.flush()
                os.fsync(f.fileno())
        extent = _of_few([s.extent for s in group], crc) or measure(scratch)
    except (BraidError, FileNotFoundError):
        remove(scratch)
        return group
    os.replace(scratch, path)
    if topic.fsync:
        force(topic.staging)
    reach("rolled up")
    return [Segment(first.partition, first.first, extent, name, None)]


def _of_few(parts: Sequence[Extent], crc: int) -> Extent | None:
    """The extent of all of them, where that needs no look at the lines: they have one entry in the index together."""
    count = sum(x.count for x in parts)
    if count > CHUNK:
        return None
    lows, highs = ([t for x in parts if (t := getattr(x, which)) is not None] for which in ("low", "high"))
    high = max(highs, default=None)
    return Extent(count, sum(x.size for x in parts), crc, min(lows, default=None), high, (0,), (high,))


def settle(topic: Topic, segments: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """Gives the larger segments of a rollup their names, and takes the small ones away. `before`: what the commits
    say that it stands for."""
    now = {(s["partition"], s["first"]): s for s in segments}
    for (partition, first), s in sorted(now.items()):
        staged = os.path.join(topic.staging, s.get("file") or "~")
        if (s.get("file") or "").startswith(ROLLED) and os.path.exists(staged):
            os.replace(staged, topic.segment_path(partition, first))
            reach("roll renamed")
    for place in sorted({(s["partition"], s["first"]) for s in before} - {*now}):
        remove(topic.segment_path(*place))
        reach("rolled away")
    clear(topic)


def clear(topic: Topic) -> None:
    """Takes away larger segments that nothing refers to: they got their names, or their fold came to nothing."""
    for name in os.listdir(topic.staging):
        if name.startswith(ROLLED):
            remove(os.path.join(topic.staging, name))
