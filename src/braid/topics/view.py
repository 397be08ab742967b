"""What the commits of a topic say together: its segments, where each partition begins, which batches are in it.

In: segments, origins, what is kept, one commit after the other. Out: a view.
Rule: a partition's segments follow each other without a gap, from its beginning to its end. A view only grows; where
segments were rolled up, or records taken away, there is a new one, so whoever reads by an old one finds what it says,
or nothing, and looks again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from braid.errors import BraidError
from braid.topics.files import items, members, text, whole
from braid.topics.segments import Segment

_SUMS = (1 << 32) - 1


class Origin(NamedTuple):
    """Where a commit comes from: a batch of a life of a query, with the digest of what that batch reads, empty where
    nobody told it; or from no query."""

    query: str = ""
    batch: int = 0
    digest: str = ""


class Written(NamedTuple):
    """The last batch of a life of a query that wrote something, and the digest of what that batch reads, empty where it
    is not known."""

    batch: int
    digest: str

    def is_there(self, batch: int, digest: str, query: str, where: str) -> bool:
        """Whether a batch was written, once: one before the last, and another of its number, are refused."""
        if self.batch < batch:
            return False
        if self.batch == batch and (self.digest == digest or not self.digest):
            return True
        raise BraidError(
            f"batch {batch} of {query} was written into {where} by another writer",
            "two runs go on from one checkpoint, or from an older copy of it",
        )


UNTOLD = Written(-1, "")  # where nobody says what was written before


class Mark(NamedTuple):
    """When a topic was compacted (ms since 1970), and up to which offset of each partition."""

    at: int
    ends: tuple[int, ...]


class Beginning(NamedTuple):
    """The first offset of a partition that is there, and the checksum of all lines before it (`prefix.py`)."""

    first: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Keep:
    """What a commit takes away: records before a partition's beginning; those that a compacted segment, which stands
    `instead` of others, does not have. `left`: the objects in an object store that nobody needs afterwards; `marks`:
    of the last compactions."""

    begins: Mapping[int, Beginning] = field(default_factory=dict)
    instead: Sequence[Segment] = ()
    left: Sequence[str] = ()
    marks: Sequence[Mark] = ()

    def __bool__(self) -> bool:
        return bool(self.begins or self.instead or self.marks)

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"begins": {str(p): [*b] for p, b in sorted(self.begins.items())}} if self.begins else {}
        made |= {"instead": [s.to_json() for s in self.instead]} if self.instead else {}
        made |= {"marks": [[m.at, [*m.ends]] for m in self.marks]} if self.marks else {}
        return made | ({"left": [*self.left]} if self.left else {})

    @staticmethod
    def from_json(x: dict[str, Any]) -> Keep:
        begins = dict[int, Beginning]()
        for p, beginning in members(x.get("begins", {}), "begins").items():
            first, crc = items(beginning, "a beginning")
            begins[int(p)] = Beginning(whole(first, "an offset"), whole(crc, "a checksum", 0, _SUMS))
        instead = [Segment.from_json(members(s, "a segment")) for s in items(x.get("instead", []), "instead")]
        left = [text(name, "an object") for name in items(x.get("left", []), "left")]
        return Keep(begins, instead, left, [_mark(m) for m in items(x.get("marks", []), "marks")])


def _mark(x: Any) -> Mark:
    at, ends = items(x, "a mark")
    return Mark(whole(at, "a time"), tuple(whole(end, "an end") for end in items(ends, "ends")))


@dataclass(slots=True)
class View:
    """What the commits so far say. It only grows; a reader in another thread sees a prefix. `rollups`: those that it
    knows, as (from, to). `queries`: the last batch of each, `digests`: of what that one reads."""

    identity: str
    parts: list[list[Segment]]
    firsts: list[list[int]]
    begins: list[Beginning]
    last: int = 0
    rollups: tuple[tuple[int, int], ...] = ()
    queries: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    newest: list[Segment] = field(default_factory=list)  # of the last commit: their renames may be undone
    gone: list[Segment] = field(default_factory=list)  # that the last commit has taken away: their files may be there
    left: Sequence[str] = ()  # objects that the last commit that took something away left over
    marks: Sequence[Mark] = ()
    sums: bool = False  # the last commit stands under a checksum

    @staticmethod
    def empty(identity: str, partitions: int) -> View:
        many = range(partitions)
        return View(identity, [[] for _ in many], [[] for _ in many], [Beginning(0, 0) for _ in many])

    def end(self, partition: int) -> int:
        segments = self.parts[partition]
        return segments[-1].end if segments else self.begins[partition].first

    def ends(self) -> list[int]:
        return [self.end(p) for p in range(len(self.parts))]

    def starts(self) -> list[int]:
        return [b.first for b in self.begins]

    def published(self, query: str, batch: int) -> bool:
        return self.queries.get(query, -1) >= batch

    def written(self, query: str) -> Written | None:
        return Written(self.queries[query], self.digests[query]) if query in self.queries else None

    def has(self, origin: Origin, topic: str) -> bool:
        """Whether the batch is in the topic; another one of its number, and one before the last, are refused."""
        if not origin.query or not self.published(origin.query, origin.batch):
            return False
        if origin.digest and (last := self.written(origin.query)) is not None:
            last.is_there(origin.batch, origin.digest, origin.query, topic)
        return True

    def note(self, origin: Origin) -> None:
        """What a commit came from."""
        if origin.query and origin.batch >= self.queries.get(origin.query, -1):
            self.queries[origin.query] = origin.batch
            self.digests[origin.query] = origin.digest

    def overlapping(self, partition: int, first: int, last: int) -> Iterator[Segment]:
        """The segments with offsets of [first, last), in order."""
        firsts, segments = self.firsts[partition], self.parts[partition]
        at = max(bisect_right(firsts, first) - 1, 0)
        while at < len(firsts) and firsts[at] < last:
            if segments[at].end > first:
                yield segments[at]
            at += 1

    def add(self, segment: Segment) -> None:
        if segment.first != self.end(segment.partition):
            raise ValueError(f"partition {segment.partition} ends at {self.end(segment.partition)} before it")
        self.parts[segment.partition].append(segment)  # before `firsts`, which readers search
        self.firsts[segment.partition].append(segment.first)

    def with_segments(self, segments: Iterable[Segment], keep: Keep = Keep()) -> View:
        """Another view, in which these segments stand for those of the same offsets, and come after the others. What
        was compacted since stays so."""
        made = replace(self, begins=list(self.begins), queries=dict(self.queries), digests=dict(self.digests))
        made.parts, made.firsts = [list(x) for x in self.parts], [list(x) for x in self.firsts]
        made.left, made.marks = keep.left or self.left, keep.marks or self.marks
        new, instead = _by_partition(segments), _by_partition(keep.instead)
        for p in sorted(new.keys() | instead.keys() | keep.begins.keys()):
            if p in keep.begins:
                made._begin(p, keep.begins[p])
            mine = [s for s in new[p] if s.end > made.begins[p].first]
            if mine:
                there = self.overlapping(p, mine[0].first, mine[-1].end)
                mine = not_within(mine, [s for s in there if s.extent.written is not None])
            made._lay(p, sorted([*not_within(mine, instead[p]), *instead[p]], key=lambda s: s.first))
        return made

    def _lay(self, p: int, segments: Sequence[Segment]) -> None:
        """Segments of a partition take their places, neighbours together."""
        parts, firsts, block = self.parts[p], self.firsts[p], list[Segment]()
        for n, s in enumerate(segments, 1):
            block.append(s)
            if n < len(segments) and segments[n].first == s.end:
                continue
            at, to = bisect_left(firsts, block[0].first), bisect_left(firsts, s.end)
            before = parts[at - 1].end if at else self.begins[p].first
            if before != block[0].first or (to > at and parts[to - 1].end > s.end):
                raise ValueError(f"partition {p} ends at {before} before {block[0].first}")
            if to < len(parts) and firsts[to] != s.end:
                raise ValueError(f"partition {p} has nothing from {s.end} on")
            parts[at:to], firsts[at:to] = block, [x.first for x in block]
            block = []

    def _begin(self, p: int, beginning: Beginning) -> None:
        """What is before that is not there."""
        at = bisect_left(self.firsts[p], beginning.first)
        if at and self.parts[p][at - 1].end > beginning.first:
            raise ValueError(f"partition {p} has no segment that begins at {beginning.first}")
        del self.parts[p][:at], self.firsts[p][:at]
        self.begins[p] = beginning


def _by_partition(segments: Iterable[Segment]) -> defaultdict[int, list[Segment]]:
    found = defaultdict[int, list[Segment]](list)
    for s in sorted(segments, key=lambda s: (s.partition, s.first)):
        found[s.partition].append(s)
    return found


def not_within(segments: Iterable[Segment], others: Iterable[Segment]) -> list[Segment]:
    """The segments all of whose offsets are not those of others."""
    ranges = defaultdict[int, list[list[int]]](list)
    for s in sorted(others, key=lambda s: (s.partition, s.first)):
        mine = ranges[s.partition]
        if mine and mine[-1][1] == s.first:
            mine[-1][1] = s.end
        else:
            mine.append([s.first, s.end])
    firsts = {p: [first for first, _ in mine] for p, mine in ranges.items()}

    def within(s: Segment) -> bool:
        at = bisect_right(firsts.get(s.partition, []), s.first) - 1
        return at >= 0 and ranges[s.partition][at][1] >= s.end

    return [s for s in segments if not within(s)]


def merged(documents: Iterable[dict[str, Any]]) -> tuple[list[Segment], Keep]:
    """What commits, or rollups, one after the other come to: the segments that they add, and what they take away."""
    segments, all_ = list[Segment](), Keep()
    for x in documents:
        keep = Keep.from_json(x)
        segments.extend(map(Segment.from_json, x["segments"]))
        segments = not_within(segments, keep.instead) if keep.instead else segments
        instead = [*not_within(all_.instead, keep.instead), *keep.instead]
        all_ = Keep({**all_.begins, **keep.begins}, instead, keep.left or all_.left, keep.marks or all_.marks)

    def there(s: Segment) -> bool:
        return s.partition not in all_.begins or s.end > all_.begins[s.partition].first

    return list(filter(there, segments)), replace(all_, instead=list(filter(there, all_.instead)))
