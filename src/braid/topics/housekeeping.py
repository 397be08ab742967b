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
from braid.topics.removal import Gone, ready, taken
from braid.topics.retention import Retention
from braid.topics.segments import Segment
from braid.topics.view import Beginning, Keep, View

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


def foreseen(topic: Topic, wanted: Retention, needed: Needed, now: int) -> Gone:
    """What would go, and nothing does."""
    gone, view = Gone(), topic.settled()
    going = _going(topic, view, wanted, needed, now, gone) if wanted.limited else {}
    gone.count([s for old in going.values() for s in old])
    if wanted.compact:
        compaction.foreseen(
            topic, view, needed, now, wanted.tombstones, {p: len(old) for p, old in going.items()}, gone
        )
    return gone


def _shorten(topic: Topic, wanted: Retention, needed: Needed, now: int, gone: Gone) -> None:
    while True:
        with ready(topic) as view:
            going = _going(topic, view, wanted, needed, now, gone)
            begins = {p: Beginning(old[-1].end, upto(topic, view, p, len(old) - 1)) for p, old in going.items()}
            if not begins or taken(topic, view, Keep(begins)):
                break
    gone.count([s for old in going.values() for s in old])


def _going(
    topic: Topic, view: View, wanted: Retention, needed: Needed, now: int, gone: Gone
) -> dict[int, list[Segment]]:
    """By partition the segments at the front that are not kept, and nobody needs; `gone` is told who needs more."""
    found, ends = dict[int, list[Segment]](), topic.folded_ends(view)
    for p, segments in enumerate(view.parts):
        old = segments[: _old(segments, wanted, now)]
        limit = needed(p, view.end(p))
        if old and old[-1].end > limit:
            gone.held[p] = limit
        if old := [s for s in old if s.end <= min(limit, ends[p])]:
            found[p] = old
    return found


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
