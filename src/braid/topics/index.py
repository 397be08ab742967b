"""Times of a topic by offset: where a batch that is cut at a time ends.

In: a topic's view and a time. Out: offsets and running maxima.
Rule: what the index of the segments can tell is not read; of the rest one chunk of lines at a time. A record without a
time (its envelope is malformed) never cuts and never raises a maximum.
"""

from __future__ import annotations

import polars as pl

from braid.topics.envelope import parse_envelope
from braid.topics.log import Topic
from braid.topics.reading import read
from braid.topics.segments import CHUNK, Segment


def cut_offset(topic: Topic, partition: int, first: int, time: int) -> int:
    """The first offset from `first` on whose timestamp is later than `time`, else the partition's end."""
    view = topic.view()
    end = view.end(partition)
    for segment in view.overlapping(partition, first, end):
        high = segment.extent.high
        if high is None or high <= time:
            continue
        for start, stop, top in _chunks(segment, first):
            if top is None or top <= time:
                continue
            times = _times(topic, partition, start, stop)
            later = (times > time).fill_null(False).arg_true()
            if len(later):
                return start + int(later[0])
    return max(end, first)


def running_maxima(topic: Topic, partition: int, first: int, last: int) -> pl.DataFrame:
    """`_offset` and `m`, the highest timestamp from `first` up to there; null before the first. Reads the lines."""
    last = min(last, topic.view().end(partition))
    offsets = pl.int_range(first, max(first, last), eager=True).alias("_offset")
    return pl.DataFrame([offsets, _times(topic, partition, first, last).cum_max().forward_fill().alias("m")])


def time_index(topic: Topic, partition: int, first: int, last: int | None = None) -> pl.DataFrame:
    """`_offset`, the end of each chunk or segment, and `m`, the highest timestamp from `first` up to it. Reads nothing.

    `m` is exact where `first` begins a chunk; else the first chunk may count records before `first`.
    """
    view = topic.view()
    end = view.end(partition) if last is None else min(last, view.end(partition))
    chunks = [
        (stop, top) for segment in view.overlapping(partition, first, end) for _, stop, top in _chunks(segment, first)
    ]
    frame = pl.DataFrame(chunks, schema={"_offset": pl.Int64, "m": pl.Int64}, orient="row")
    return frame.with_columns(pl.col("m").cum_max().forward_fill()).filter(pl.col("_offset") <= end)


def _chunks(segment: Segment, first: int) -> list[tuple[int, int, int | None]]:
    """(first offset, end, highest time) of the segment's chunks that reach beyond `first`."""
    found = []
    for k, top in enumerate(segment.extent.highs):
        start = segment.first + k * CHUNK
        stop = min(start + CHUNK, segment.end)
        if stop > first:
            found.append((max(start, first), stop, top))
    return found


def _times(topic: Topic, partition: int, first: int, last: int) -> pl.Series:
    return parse_envelope(read(topic, partition, first, last)["_line"])["_t"]
