"""What a topic need not keep goes.

In: what is wanted of a topic; up to where its readers have come. Out: commits after which records are not there.
Rule: whole segments go, from the front, by one commit, which says where each partition begins now. Offsets stay as they
are. Nothing goes that a reader may still ask for, and the last segment of a partition stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braid.topics import compaction
from braid.topics.log import Topic
from braid.topics.prefix import upto
from braid.topics.retention import Retention
from braid.topics.segments import Segment
from braid.topics.taking import Gone, ready, taken
from braid.topics.view import Beginning, Keep

Needed = Callable[[int, int], int]  # of a partition and its end: the offset before which no reader needs a record


def apply(topic: Topic, wanted: Retention, needed: Needed, now: int, at_once: bool = False) -> Gone:
    """What is not kept goes. `now` in ms since 1970; `at_once`: the topic is compacted also where it is hardly worth
    it."""
    gone = Gone()
    if wanted.limited:
        _shorten(topic, wanted, needed, now, gone)
    if wanted.compact:
        compaction.compact(topic, needed, now, wanted.tombstones, gone, at_once)
    return gone


def _shorten(topic: Topic, wanted: Retention, needed: Needed, now: int, gone: Gone) -> None:
    while True:
        with ready(topic) as view:
            ends, begins, going = topic.folded_ends(view), dict[int, Beginning](), list[Segment]()
            for p, segments in enumerate(view.parts):
                old = segments[: _old(segments, wanted, now)]
                limit = needed(p, view.end(p))
                if old and old[-1].end > limit:
                    gone.held[p] = limit
                old = [s for s in old if s.end <= min(limit, ends[p])]
                if old:
                    begins[p] = Beginning(old[-1].end, upto(topic, view, p, len(old) - 1))
                    going += old
            if not begins or taken(topic, view, Keep(begins)):
                break
    gone.records += sum(s.extent.records for s in going)
    gone.size += sum(s.extent.size for s in going)


def _old(segments: Sequence[Segment], wanted: Retention, now: int) -> int:
    """How many segments at the front are not to be kept."""
    count, left = 0, sum(s.extent.size for s in segments)
    for n, s in enumerate(segments[:-1], 1):
        high, left = s.extent.high, left - s.extent.size
        if wanted.bytes is not None and left >= wanted.bytes:
            count = n
        elif wanted.ms is None or (high is not None and high >= now - wanted.ms):
            break
        elif high is not None:  # of one without a time the next one tells
            count = n
    return count
