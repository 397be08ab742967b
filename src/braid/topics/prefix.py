"""The first records of a partition, as one checksum, whatever segments they lie in.

In: a topic, a partition, an offset. Out: where the segment ends that holds the record before it, and the CRC-32 of all
lines up to there.
Rule: what was once the checksum of an end stays it for ever: records are only added, and a rollup has the same lines.
So a topic that was restored from an older copy and written again, or made anew, is told from the one that was read.
CRC-32 of two parts is that of the first, times x to the power of the bits of the second, plus that of the second: the
segments' own sums are enough, and no line is read. Where records were taken away, a beginning and a compacted segment
say what the sum of the lines was.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from functools import lru_cache

from braid.topics.log import Topic
from braid.topics.reading import bytes_between
from braid.topics.segments import Segment
from braid.topics.view import View

KNOWN = 8  # ends of a partition whose checksum is remembered

Prefix = tuple[int, int]  # an end, the CRC-32 of the lines before it
_POLYNOMIAL = 0xEDB88320  # of CRC-32; the coefficient of x^0 is the highest bit


def prefix(topic: Topic, partition: int, offset: int) -> Prefix:
    """Of the records before `offset`, which are there, and those that were committed with the last of them."""
    view = topic.holding(partition, offset)
    at = bisect_left(view.firsts[partition], offset) - 1
    return view.begins[partition] if at < 0 else (view.parts[partition][at].end, upto(topic, view, partition, at))


def checksum(topic: Topic, partition: int, end: int) -> int | None:
    """Of the lines before `end`; None where there are fewer, or where they cannot be told from others any more: some
    were taken away."""
    if not 0 <= partition < len(topic.view().parts):
        return None
    view = topic.holding(partition, end)
    if not view.begins[partition].first <= end <= view.end(partition):
        return None
    at = bisect_left(view.firsts[partition], end) - 1
    if at < 0 or view.parts[partition][at].end == end:
        return upto(topic, view, partition, at)
    if view.parts[partition][at].extent.written is not None:
        return None
    before = upto(topic, view, partition, at - 1)  # the end of one that was rolled up since
    return zlib.crc32(bytes_between(topic, partition, view.firsts[partition][at], end), before)


def upto(topic: Topic, view: View, partition: int, at: int) -> int:
    """Of the lines of the first segments of a partition, up to the one of this number."""
    known, segments = topic.prefixes.setdefault(partition, {}), view.parts[partition]
    todo: list[Segment] = []
    while at >= 0 and segments[at].end not in known:
        todo.append(segments[at])
        at -= 1
    crc = known[segments[at].end] if at >= 0 else view.begins[partition].crc32
    for segment in reversed(todo):
        crc = joined(crc, *segment.extent.as_written)
    if todo:
        known[todo[0].end] = crc
        topic.prefixes[partition] = dict([*known.items()][-KNOWN:])
    return crc


def joined(first: int, second: int, size: int) -> int:
    """The CRC-32 of two parts, of which the second has so many bytes."""
    return _times(_power(8 * size), first) ^ second


@lru_cache(maxsize=1024)
def _power(n: int) -> int:
    """x^n."""
    made, square = 1 << 31, 1 << 30
    while n:
        if n & 1:
            made = _times(made, square)
        square, n = _times(square, square), n >> 1
    return made


def _times(a: int, b: int) -> int:
    """The product of two polynomials."""
    made = 0
    for place in range(31, -1, -1):
        if a >> place & 1:
            made ^= b
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return made
