"""What a topic keeps: its records for a time, so many bytes of them, of each key the last; and the rest goes.

In: what the user wants of a topic; up to where its readers have come. Out: a commit after which records are not there.
Rule: whole segments go, from the front, by one commit, which says where each partition begins now. Offsets stay as they
are. Nothing goes that a reader may still ask for, and the last segment of a partition stays. What is wanted stands in
one document of the store, by the names of topics, so it outlives a topic that is made anew.

    retention.json   {TOPIC: {"ms": …, "bytes": …, "compact": true, "tombstones": ms}}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from braid.errors import BraidError
from braid.topics import compaction
from braid.topics.documents import called, changed, document
from braid.topics.files import members, parsed, whole, why
from braid.topics.log import Topic
from braid.topics.prefix import upto
from braid.topics.segments import Segment
from braid.topics.taking import Gone, ready, taken
from braid.topics.view import Beginning, Keep

NAME = "retention"
DAY = 86_400_000  # ms


@dataclass(frozen=True, slots=True)
class Retention:
    """`ms`: records go that are older; `bytes`: of a partition, above which the oldest go; `compact`: of each key only
    the last record stays, and one without a value goes `tombstones` ms after the topic was compacted with it."""

    ms: int | None = None
    bytes: int | None = None
    compact: bool = False
    tombstones: int = DAY

    @property
    def limited(self) -> bool:
        return self.ms is not None or self.bytes is not None

    def __bool__(self) -> bool:
        return self.limited or self.compact


Needed = Callable[[int, int], int]  # of a partition and its end: the offset before which no reader needs a record


def all_of(root: str) -> dict[str, Retention]:
    """What is wanted of the topics of a store."""
    return _read(root, document(root, NAME))


def want(root: str, topic: str, retention: Retention) -> None:
    """From now on the topic keeps that; all, where nothing is said."""

    def put(before: bytes | None) -> bytes | None:
        found = _read(root, before)
        if found.get(topic, Retention()) == retention:
            return None
        found = {**found, topic: retention}
        return json.dumps({name: _json(x) for name, x in sorted(found.items()) if x}, indent=1).encode()

    changed(root, NAME, put)


def _json(x: Retention) -> dict[str, int | bool]:
    limits = {name: n for name, n in (("ms", x.ms), ("bytes", x.bytes)) if n is not None}
    return {**limits, **({"compact": True, "tombstones": x.tombstones} if x.compact else {})}


def _read(root: str, data: bytes | None) -> dict[str, Retention]:
    if data is None:
        return {}
    try:
        return {name: _of(members(x, "a topic")) for name, x in members(parsed(data)).items()}
    except (ValueError, KeyError) as e:
        raise BraidError(f"{called(root, NAME)} cannot be read: {why(e)}", "put it back from a copy") from None


def _of(x: dict[str, object]) -> Retention:
    ms, size = (whole(x[name], name) if name in x else None for name in ("ms", "bytes"))
    return Retention(ms, size, x.get("compact") is True, whole(x.get("tombstones", DAY), "tombstones"))


# ----------------------------------------------------------------------- applied


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
