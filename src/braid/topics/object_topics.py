"""Topics whose commits and segments are objects of a bucket.

In: an object store. Out: the same topics as those of a folder (`log.py`), with the same commits, segments and reads.
Rule: a commit is the *create* of the next number, and the only step that counts; of two writers one gets the number,
and the other reads again what there is. Nobody lists anything to find the last commit: a reader asks upwards from the
one that it knows. What lies under a name never changes, so it is fetched once, into this machine's cache.

    names/TOPIC                             how many partitions, and the topic's id
    topics/TOPIC/ID/commits/NUMBER.json     a commit
    topics/TOPIC/ID/commits/A-B.rollup.json one for `FOLD` commits, and for `FOLD` of those
    topics/TOPIC/ID/data/WRITER/…           what a task wrote of a batch: segments of several partitions in a row

A rollup of commits stays permanently, and its commits for `KEPT` more: then they go, one with each new commit. A writer
that wakes behind that finds the number that it creates free, and the rollup of it: then its commit is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from braid.errors import Away, BraidError
from braid.store import ObjectStore
from braid.store.cache import Cache
from braid.store.files import remove
from braid.store.objects import AGAIN, tried_again
from braid.timing import tally
from braid.topics import log
from braid.topics.files import check_name, items, reach, read_small, text, why
from braid.topics.log import Topic, commit_document, damaged, rollup_document
from braid.topics.rollup import rolled
from braid.topics.segments import ROLLED, ROLLS, Segment, Staged, TornError, torn
from braid.topics.view import Keep, Origin, View, merged

T = TypeVar("T")

KEPT = 10_000  # commits that stay behind their rollup
BESIDE = True  # commits are folded while others are made
EVERY, SELDOM = 0.05, 0.25  # s between two looks for news; where there is none for a while
AWAY = 10.0  # s without a look: commits may have gone meanwhile, and a rollup stands for them
_AT_ONCE = 16  # segments
_LARGEST = 1 << 30  # bytes of a commit or a rollup
_WIDE = 64 << 20  # bytes of a rollup of rollups, at most: who finds none takes its parts
_DESCRIPTION = 1 << 16
_PIECE = 8 << 20  # bytes fetched at once
_GAP = 64 << 10  # bytes that are rather fetched than asked for by another request
_LONG = 100  # characters of a writer's name that are part of others
_BATCHES = 100  # of a writer, whose objects lie in one folder
_GONE = "gone"  # of the last commit of a topic that was deleted


_beside = ThreadPoolExecutor(1, "folds")


class TopicGone(Exception):
    """The last commit says that the topic was deleted."""


class ObjectTopic(Topic):
    """A topic in a room. What it says of `Topic`'s files holds for names in the room."""

    in_folder: ClassVar[bool] = False

    def __init__(self, objects: ObjectStore, cache: Cache, name: str) -> None:
        super().__init__(objects, name)
        self.objects, self._cache = objects, cache
        self._looked, self._every = 0.0, EVERY
        self._folded = 0  # as many commits are known to have their rollups
        self._forgotten = 0  # the last commit that was taken away here
        self._keeping: Future[None] | None = None  # folds, beside what goes on
        self._missed = False  # a segment was gone: a rollup has its records

    @property
    def staging(self) -> str:
        return self._cache.scratch

    # -- looking --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[View]:
        """Threads of this process wait for each other; other processes do not."""
        with self._guard:
            yield self._view or self.view()

    def view(self) -> View:
        """The commits up to now, or to a moment ago."""
        with self._guard:
            if self._view is None or time.monotonic() - self._looked > self._every:
                before = -1 if self._view is None else self._view.last
                news = self.anew().last > before
                self._every = EVERY if news else min(1.5 * self._every, SELDOM)
            assert self._view is not None
            return self._view

    def anew(self) -> View:
        with self._guard:
            self._view = self._look(self._view)
            self._looked = time.monotonic()
            return self._view

    def known(self) -> View:
        with self._guard:
            return self._view or self.view()

    def holding(self, partition: int, last: int) -> View:
        with self._guard:
            known = self._view
            return known if known is not None and known.end(partition) >= last else self.anew()

    def _look(self, view: View | None) -> View:
        fresh = view is None
        if view is None:
            view = self._beginning()
        try:
            if self._missed:
                view, self._missed = self._caught_up(view), False
            away = time.monotonic() - self._looked > AWAY
            while (more := self._next(view, fresh, away)) is not None:
                view = more
            return self._whole(view) if fresh else view
        except TopicGone:
            gone = self.identity
            if self.described()[0] == gone:  # whoever deleted it was stopped
                self.objects.delete(described_by(self.name))
                raise self.missing() from None
            return self._look(None)

    def _whole(self, view: View) -> View:
        """Where a commit is missing between others, all behind it would seem not to be there."""
        if self.objects.size(f"{self.commits}/{view.last + 2:020d}.json") is None:
            return view
        if (more := self._next(view, True, True)) is not None:  # somebody has gone on meanwhile
            return self._look(more)
        raise self._lacking(view)

    def check_commits(self) -> None:
        self._cache.forget(f"topics/{self.name}/{self.described()[0]}/commits")
        super().check_commits()
        numbers, rollups = self.list_commits()
        if max([*numbers, *(to for _, to in rollups)], default=0) > self.anew().last:
            raise self._lacking(self.anew())

    def _names(self) -> list[str]:
        return [os.path.basename(name) for name, _ in self.objects.list(self.commits)]

    def _lacking(self, view: View) -> BraidError:
        hint = "later commits are there; put the object back from a copy, or delete the topic"
        return BraidError(f"{self._called(f'{view.last + 1:020d}.json')} is missing", hint)

    def _beginning(self) -> View:
        self.identity, partitions = self.described()
        self.path = f"topics/{self.name}/{self.identity}"
        self.commits = f"{self.path}/commits"
        self.verified, self.prefixes, self._folded = set(), {}, 0
        return View.empty(self.identity, partitions)

    def described(self) -> tuple[str, int]:
        """Its id, and how many partitions it has."""
        name = described_by(self.name)
        try:
            identity, partitions = self._description(self.objects.get(name, _DESCRIPTION))
            return check_name(identity, "id"), partitions
        except FileNotFoundError:
            raise self.missing() from None
        except (ValueError, KeyError) as e:
            hint = "put it back from a copy; it holds the number of partitions"
            raise BraidError(f"{self.root}/{name} is damaged: {why(e)}", hint) from None

    def _next(self, view: View, fresh: bool, away: bool) -> View | None:
        """One step on: by a commit, or by the rollup that leads farthest; None at the end. `fresh`: there is much to
        read, so rollups are asked for first; `away`: the next commit may have gone."""
        at, start = view.last, _start(view.last)
        wide = [(at, at + width) for width in (log.FOLD**3, log.FOLD**2, log.FOLD) if at % width == 0]
        for step in wide if fresh else ():
            with contextlib.suppress(FileNotFoundError):
                return self._rolled(view, *step)
        with contextlib.suppress(FileNotFoundError):
            return self._apply(view, self._load(f"{at + 1:020d}.json"))
        if away:
            with contextlib.suppress(FileNotFoundError):
                return self._rolled(view, start, start + log.FOLD)
        return None

    def _rolled(self, view: View, start: int, to: int) -> View:
        made = self._apply_rollup(view, start, to)
        if self._folded == start:
            self._folded = to
        return made

    def _caught_up(self, view: View) -> View:
        """A view by the rollups of all commits that were read one by one."""
        for start in range(0, view.last, log.FOLD):
            if not any(a <= start < b for a, b in view.rollups):
                with contextlib.suppress(FileNotFoundError):
                    view = self._rolled(view, start, start + log.FOLD)
        return view

    def _document(self, name: str) -> bytes:
        """A commit or a rollup; what this machine has read before is not asked for again."""
        name = f"{self.commits}/{name}"

        def fetch(path: str) -> None:
            _written(self.objects.get(name, _LARGEST), path)

        while True:
            path = self._cache.held(name, fetch)
            with contextlib.suppress(FileNotFoundError):
                return read_small(path, _LARGEST)

    def _load(self, name: str) -> dict[str, Any]:
        try:
            x = self._checked(name)
        except BraidError:  # it may be the copy
            self._cache.drop(f"{self.commits}/{name}")
            x = self._checked(name)
        if x.get(_GONE) is True:
            raise TopicGone
        return x

    def _checked(self, name: str) -> dict[str, Any]:
        x = super()._load(name)
        try:
            (items(x["ids"], "ids") if "ids" in x else text(x["id"], "id"))
        except (ValueError, KeyError) as e:
            raise damaged(self._called(name), e) from None
        return x

    def _called(self, name: str) -> str:
        return f"{self.root}/{self.commits}/{name}"

    # -- reading --------------------------------------------------------------------------------------------------

    def unread(self, segment: Segment) -> None:
        self._cache.drop(self._copy(segment))

    def partition_path(self, partition: int) -> str:
        return f"{self.root}/{self.path}: partition {partition}"

    def opened(self, segment: Segment, read: Callable[[str], T]) -> T:
        """What `read` makes of this machine's copy of a segment. One that is no copy any more is fetched again."""
        name = self._copy(segment)
        torn_before = False
        while True:
            path = self._cache.held(name, partial(self._fetch, segment))
            try:
                return read(path)
            except FileNotFoundError:
                continue  # it was the oldest
            except TornError:
                if torn_before:
                    raise
                torn_before = True
                self._cache.drop(name)

    def _copy(self, segment: Segment) -> str:
        crc = f"{segment.extent.crc32:08x}"
        return f"{self.path}/{segment.partition}/{segment.first}-{segment.extent.size}-{crc}.jsonl"

    def prepare(self, segments: Iterable[Segment]) -> None:
        """Fetches what this machine has no copy of: neighbours in an object by one request, several objects at once."""
        wanted = [s for s in segments if not os.path.exists(self._cache.path(self._copy(s)))]
        if len(wanted) < 2:
            return
        before = tried_again()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._fetch_together, _stretches(wanted)))
        tally(AGAIN, tried_again() - before)  # what threads count, no task tells

    def _fetch_together(self, stretch: Sequence[Segment]) -> None:
        """Copies of segments that lie near each other in an object. Who reads one that is damaged is told then."""
        with contextlib.suppress(TornError):
            if len(stretch) == 1:
                self._cache.held(self._copy(stretch[0]), partial(self._fetch, stretch[0]))
                return
            for s, data in self._ranged(stretch):
                self._cache.held(self._copy(s), partial(_written, data))

    def _ranged(self, stretch: Sequence[Segment]) -> Iterator[tuple[Segment, bytes]]:
        """By one request: segments and their bytes, of those that are what their commit says."""
        first, last = stretch[0], stretch[-1]
        start = first.at or 0
        name, end = f"{self.path}/data/{first.staged}", (last.at or 0) + last.extent.size
        try:
            data = memoryview(self.objects.range(name, start, end - start))
        except FileNotFoundError:
            self._missed = True
            raise torn(f"{self.objects.url}/{name}", "it is missing") from None
        for s in stretch:
            at = (s.at or 0) - start
            mine = data[at : at + s.extent.size]
            if len(mine) == s.extent.size and zlib.crc32(mine) == s.extent.crc32:
                yield s, bytes(mine)

    def _fetch(self, segment: Segment, path: str) -> None:
        """Writes a copy of a segment, which is what its commit says."""
        name, at, end = f"{self.path}/data/{segment.staged}", segment.at or 0, segment.extent.size
        where, crc, held = f"{self.objects.url}/{name}", 0, 0
        with open(path, "xb") as f:
            while held < end:
                try:
                    data = self.objects.range(name, at + held, min(_PIECE, end - held))
                except FileNotFoundError:
                    self._missed = True
                    raise torn(where, "it is missing") from None
                if not data:
                    raise torn(where, f"it ends after {at + held} bytes, its commit says {at + end}")
                f.write(data)
                crc, held = zlib.crc32(data, crc), held + len(data)
        if crc != segment.extent.crc32:
            raise torn(where, f"its checksum is {crc:08x}, its commit says {segment.extent.crc32:08x}")

    # -- writing --------------------------------------------------------------------------------------------------

    def handed_in(self, staged: list[Staged], query: str, batch: int) -> list[Staged]:
        """The staged files, one behind the other in one object."""
        if any(s.positions is not None for s in staged):
            raise BraidError(f"{self.root} keeps no positions", "an explicit order needs a store in a folder")
        if self.described()[0] != self.identity:  # none has been looked at here, or it was deleted and made anew
            with self._guard:
                self._view = self._look(None)
        name = f"{_folder(query, batch)}/{batch:020d}-{uuid4().hex[:12]}.jsonl"
        return self._packed(name, staged)

    def _packed(self, name: str, staged: list[Staged]) -> list[Staged]:
        files, made, at = [os.path.join(self.staging, s.file) for s in staged], list[Staged](), 0
        for s in staged:
            made.append(replace(s, file=name, at=at, of=self.identity))
            at += s.extent.size
        for file in files[1:]:
            _append(files[0], file)
        if at:
            self.objects.put(f"{self.path}/data/{name}", files[0])
            reach("handed in")
        if files:
            remove(files[0])
        return made

    def commit(self, view: View, origin: Origin, segments: list[Segment], keep: Keep = Keep()) -> bool:  # noqa: B008
        name, mark = f"{view.last + 1:020d}.json", uuid4().hex[:16]
        data = commit_document(view.last + 1, view.identity, origin, segments, keep, id=mark)
        if not self.objects.create(f"{self.commits}/{name}", data):
            return False
        if not self._stands(view.last + 1, mark):
            self.objects.delete(f"{self.commits}/{name}")
            return False
        with contextlib.suppress(OSError):  # a full disk: it is only for whoever folds
            self._cache.held(f"{self.commits}/{name}", partial(_written, data))
        reach("committed")
        with self._guard:
            self._view = self.apply(view, origin, segments, keep)
            self._looked = time.monotonic()
        return True

    def _stands(self, number: int, mark: str) -> bool:
        """Whether a commit that was just created is one: where its number was there and is long gone, the rollup of
        that one says so, which does not know ours."""
        start = _start(number - 1)
        if self.objects.size(f"{self.commits}/{_rollup(start, start + log.FOLD)}") is None:
            return True
        try:
            return mark in self._load(_rollup(start, start + log.FOLD))["ids"]
        except TopicGone:
            return False

    def fold(self, view: View) -> None:
        """Each `FOLD` commits have a rollup, whoever makes it; what one stands for goes later, one with each commit."""
        if self._folded + log.FOLD > view.last and view.last <= KEPT:
            return
        if not BESIDE:
            self._in_order(view.last)
            return
        if self._keeping is None or self._keeping.done():  # else one of the next commits asks again
            self._keeping = _beside.submit(self._in_order, view.last)

    def _in_order(self, last: int) -> None:
        with contextlib.suppress(Away):  # the records are there, and whoever comes next folds
            self._all_folded(last)
            first = self._forgotten or last - KEPT - 1
            for number in range(max(first, 0) + 1, last - KEPT + 1):
                self._forget(number)
                self._forgotten = number

    def _all_folded(self, last: int) -> None:
        fold = log.FOLD
        while self._folded + fold <= last:
            start, to = self._folded, self._folded + fold
            self._fold(start, to, [f"{n:020d}.json" for n in range(start + 1, to + 1)])
            for width in (fold**2, fold**3):
                if to % width == 0:
                    parts = range(to - width, to, width // fold)
                    self._fold(to - width, to, [_rollup(n, n + width // fold) for n in parts])
            self._folded = to

    def _fold(self, start: int, to: int, names: list[str]) -> None:
        name = f"{self.commits}/{_rollup(start, to)}"
        if self.objects.size(name) is not None:
            return
        found = [self._load(x) for x in names]
        origins = [Origin(x["query"], x["batch"], x["digest"]) for x in found if "query" in x]
        origins += [Origin(q, n, x["digests"].get(q, "")) for x in found for q, n in x.get("queries", {}).items()]
        segments, keep = merged(found)
        if to - start == log.FOLD:
            segments = self._together(segments, to)
        ids = [x["id"] for x in found] if to - start == log.FOLD else []
        data = rollup_document(start, to, self.identity, segments, origins, keep, ids=ids)
        if not ids and len(data) > _WIDE:
            return
        if not self.objects.create(name, data) and ids:
            ours = {s.staged for s in segments if s.staged is not None and s.staged.startswith(ROLLS)}
            self.objects.delete(*(f"{self.path}/data/{file}" for file in ours))
        reach("folded")

    def _together(self, segments: list[Segment], number: int) -> list[Segment]:
        """Small segments of a partition as one, all such in one object."""
        self.prepare(segments)
        made = rolled(self, segments, number)
        return self._sent(made, f"{number:020d}", lambda s: (s.staged or "").startswith(ROLLED))

    def settled(self) -> View:
        with self._guard:
            self._view = self._caught_up(self.anew())
            return self._view

    def folded_ends(self, view: View) -> list[int]:
        """Only what is in rollups: they may be made while that goes on, and segments that they make stay whole."""
        ends = view.ends()
        for number in range(self._folded + 1, view.last + 1):
            for s in map(Segment.from_json, self._load(f"{number:020d}.json")["segments"]):
                ends[s.partition] = min(ends[s.partition], s.first)
        return ends

    def sent(self, segments: list[Segment]) -> list[Segment]:
        return self._sent(segments, "compacted", lambda s: s.at is None)

    def holds(self, segments: list[Segment]) -> bool:
        return True

    def leaving(self, view: View, keep: Keep) -> Keep:
        before, after = ({s.staged for part in x.parts for s in part} for x in (view, view.with_segments((), keep)))
        return replace(keep, left=sorted(name for name in before - after if name is not None))

    def discard(self, staged: Iterable[str]) -> None:
        self.objects.delete(*(f"{self.path}/data/{name}" for name in staged))

    def _sent(self, segments: list[Segment], called: str, which: Callable[[Segment], bool]) -> list[Segment]:
        new = list(filter(which, segments))
        name = f"{ROLLS}/{called}-{uuid4().hex[:12]}.jsonl"
        packed = self._packed(name, [Staged(s.partition, s.staged or "", s.extent) for s in new])
        lies = {s: replace(s, staged=p.file, at=p.at) for s, p in zip(new, packed, strict=True)}
        return [lies.get(s, s) for s in segments]

    def _forget(self, number: int) -> None:
        """An old commit goes, and the objects that nobody needs who reads its rollup."""
        start = _start(number - 1)
        with contextlib.suppress(FileNotFoundError):
            needed = _objects(self._load(_rollup(start, start + log.FOLD)))
            named = _objects(self._load(f"{number:020d}.json"))
            self.objects.delete(*(f"{self.path}/data/{file}" for file in named - needed))
            reach("rolled away")
        self.objects.delete(f"{self.commits}/{number:020d}.json")

    def clear(self, view: View, query: str) -> None:
        """What attempts of a query's last batches left that no commit names."""
        done = view.queries.get(query, -1)
        named = {s.staged for part in view.parts for s in part}
        prefix = f"{self.path}/data/"
        for folder in {_folder(query, n) for n in (done - _BATCHES, done) if n >= 0}:
            for name, _ in self.objects.list(prefix + folder):
                file = name.removeprefix(prefix)
                batch = os.path.basename(file).partition("-")[0]
                if file not in named and batch.isdecimal() and int(batch) <= done:
                    self.objects.delete(name)

    def has_ended(self, identity: str) -> bool:
        """Whether the topic of this id was deleted: its last commit says so."""
        self.identity, self.commits = identity, f"topics/{self.name}/{identity}/commits"
        numbers, _ = self.list_commits()
        try:
            if numbers:
                self._load(f"{max(numbers):020d}.json")
        except TopicGone:
            return True
        return False

    def end(self) -> None:
        """The topic is gone: its last commit says so, whatever else is still there."""
        try:
            view = self.anew()
        except BraidError:
            if self.objects.size(described_by(self.name)) is None:  # its end was begun, and is done now
                return
            raise
        while True:
            number = view.last + 1
            last = f"{self.commits}/{number:020d}.json"
            if self.objects.create(
                last, commit_document(number, self.identity, Origin(), [], Keep(), id=_GONE, gone=True)
            ):
                break
            view = self.anew()
        start = _start(view.last)
        folded = f"{self.commits}/{_rollup(start, start + log.FOLD)}"
        ended = rollup_document(start, start + log.FOLD, self.identity, [], [], Keep(), ids=[], gone=True)
        self.objects.create(folded, ended)
        reach("topic ended")
        self.objects.delete(described_by(self.name))
        stay = {last, folded}
        self.objects.delete(*(name for name, _ in self.objects.list(self.path) if name not in stay))


def described_by(name: str) -> str:
    return f"names/{check_name(name)}"


def _start(number: int) -> int:
    """The commit before the first of those that have one rollup."""
    return number - number % log.FOLD


def _rollup(start: int, to: int) -> str:
    return f"{start:020d}-{to:020d}.rollup.json"


def _objects(x: dict[str, Any]) -> set[str]:
    """All that a commit or a rollup names."""
    return {s["file"] for s in (*x["segments"], *x.get("instead", []))}


def _stretches(segments: Iterable[Segment]) -> Iterator[Sequence[Segment]]:
    """Those that one request gives: of one object, near each other, `_PIECE` bytes at most."""
    stretch: list[Segment] = []
    for s in sorted(segments, key=lambda s: (s.staged or "", s.at or 0)):
        at, end = s.at or 0, (s.at or 0) + s.extent.size
        if stretch:
            before = stretch[-1]
            gap = at - (before.at or 0) - before.extent.size
            if s.staged != before.staged or gap > _GAP or end - (stretch[0].at or 0) > _PIECE:
                yield stretch
                stretch = []
        stretch.append(s)
    if stretch:
        yield stretch


def _folder(query: str, batch: int) -> str:
    """Where the objects of a writer's batch lie, among few others."""
    writer = query if len(query) <= _LONG else hashlib.sha256(query.encode()).hexdigest()
    return f"{writer}/{batch // _BATCHES:018d}"


def _written(data: bytes, path: str) -> None:
    Path(path).write_bytes(data)


def _append(to: str, file: str) -> None:
    with open(to, "ab") as f, open(file, "rb") as more:
        while block := more.read(_PIECE):
            f.write(block)
    remove(file)
