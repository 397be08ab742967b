"""The log of commits of one topic: which segments it has, in which order, and which batches they came from.

In: the files in `.commits`. Out: a view of them, kept up to date for a system call or two per look.
Rule: a topic holds what its commits list, in the order of their numbers, and nothing else. Each names its number and
the topic's id, and stands under a checksum (`sealed.py`); where one has it, those behind it have it, too.

A commit is `<20-digit number>.json`. When there are `FOLD` of them, they are folded into `<from>-<to>.rollup.json`,
which stands for the commits after `from` up to `to`; rollups are folded again in the same way. A file is removed only
after the one that stands for it is in place, so whoever lists the directory finds a chain from 0 to the last commit.

With the commits their small segments are rolled up into larger ones, of the same records, offsets and order, while the
topic is read and written. The rollup of the commits is the one step that counts. Before it the larger segments are
files in `.staging` that nobody knows of; after it they are the topic's, and the small ones are taken away by whoever
holds the lock. A reader that still knows the small ones finds one gone, looks again and reads the same records from the
larger one. It has the first offset, and so the name, of the first that it is made of. Segments with positions beside
them (the test driver's) stay as they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from braid.errors import BraidError
from braid.store import ObjectStore
from braid.store.files import locked, refuse_link, remove, write_atomic
from braid.topics.files import items, members, parsed, reach, read_small, text, whole, why
from braid.topics.rollup import clear, rolled, settle
from braid.topics.sealed import sealed, unsealed
from braid.topics.segments import COMPACTED, ROLLED, Segment, Staged, segment_name, torn
from braid.topics.view import Keep, Origin, View, merged

T = TypeVar("T")

FOLD = 100
FORMAT = 3  # of topic.json, commits and rollups: with a checksum
_READ = (1, 2, FORMAT)  # 2: of a commit that takes records away, and of a rollup that stands for one
MAX_PARTITIONS = 10_000
_LAST = 1 << 53  # of a commit's number
_DESCRIPTION = 1 << 16  # bytes of topic.json
_DAMAGED = (ValueError, KeyError, TypeError, IndexError, OverflowError)

_COMMIT = re.compile(r"([0-9]{20})\.json")
_ROLLUP = re.compile(r"([0-9]{20})-([0-9]{20})\.rollup\.json")
_FRESH = 100_000_000  # ns; a directory changed so lately may change again without another time stamp


class Topic:
    """A topic's directory, and the view of its commits as of the last look. May be used by several threads.

    `in_folder`: segments get their names after their commit, and a hand may drop some in."""

    in_folder: ClassVar[bool] = True

    def __init__(self, root: ObjectStore, name: str, fsync: bool = False) -> None:
        self.root, self.name, self.fsync = root, name, fsync
        self.path = os.path.join(root.url, "topics", name)
        self.identity = ""  # as of the last look
        self.sums = False  # all its commits have checksums
        self.commits = os.path.join(self.path, ".commits")
        self.verified: set[tuple[int, int]] = set()
        self.prefixes: dict[int, dict[int, int]] = {}  # by partition: checksums up to some ends (`prefix.py`)
        self.finished = 0  # the commit up to which renames are known to be done
        self.swept = False  # the partition folders have been looked through for stray files
        self._guard = threading.RLock()
        self._view: View | None = None
        self._stamp: tuple[int, int] | None = None
        self._settled = False

    @property
    def staging(self) -> str:
        return os.path.join(self.path, ".staging")

    def partition_path(self, partition: int) -> str:
        return os.path.join(self.path, str(partition))

    def segment_path(self, partition: int, first: int) -> str:
        return os.path.join(self.path, str(partition), segment_name(first))

    def opened(self, segment: Segment, read: Callable[[str], T]) -> T:
        """What `read` makes of a segment's file."""
        return self.either(self.segment_path(segment.partition, segment.first), segment.staged, read)

    def prepare(self, segments: Iterable[Segment]) -> None:
        """They will be read."""

    def unread(self, segment: Segment) -> None:
        """What is read of it next is what lies there, and no copy."""

    def either(self, path: str, staged: str | None, read: Callable[[str], T]) -> T:
        """What `read` makes of the file, under its final name or, while the publisher has not got there, its staged
        one."""
        names = [path] if staged is None else [path, os.path.join(self.staging, staged), path]
        if staged is not None and staged.startswith((ROLLED, COMPACTED)):
            names = names[1:]  # until it is renamed, what it stands for has its name
        for name in names:
            try:
                return read(name)
            except FileNotFoundError:
                continue
        raise torn(path, "it is missing")

    def handed_in(self, staged: list[Staged], query: str, batch: int) -> list[Staged]:
        """What a task has staged of a batch, as whoever publishes it finds it."""
        return staged

    @contextlib.contextmanager
    def locked(self) -> Iterator[View]:
        """The topic's lock, and the view under it. Directories that a hand-made topic lacks are made."""
        if not os.path.isdir(self.path):
            raise self.missing()
        refuse_link(self.path)
        try:
            with locked(os.path.join(self.path, ".lock")):
                self._prepare()
                yield self.view()
        except FileNotFoundError as e:
            if os.path.isdir(self.path):
                raise
            raise self.missing() from e

    def _prepare(self) -> None:
        if os.path.isfile(os.path.join(self.path, "topic.json")) and os.path.isdir(self.commits):
            return
        for folder in (self.commits, self.staging):
            refuse_link(folder)
            os.makedirs(folder, exist_ok=True)
        if not os.path.exists(os.path.join(self.path, "topic.json")):
            self._check_undescribed()
            count = max(folders(self.path), default=0) + 1
            write_description(self.path, self.name, count, self.staging, self.fsync)
            self._view = None

    def _check_undescribed(self) -> None:
        """Only a topic that a hand has laid out, and nobody has written yet, has no description."""
        if any(self.list_commits()):
            hint = "put it back from a copy; it holds the topic's id and the number of partitions"
            raise BraidError(f"{self.path}/topic.json is missing, and commits are there", hint)

    def missing(self) -> BraidError:
        return BraidError(f"there is no topic {self.name!r}", "`braid topics` lists those of a store")

    # -- looking --------------------------------------------------------------------------------------------------

    def view(self) -> View:
        """The commits up to now. Without news this is one `stat`."""
        with self._guard:
            try:
                found = os.stat(self.commits)
                stamp = (found.st_ino, found.st_mtime_ns)
            except FileNotFoundError:
                stamp = None
            if stamp is None or stamp != self._stamp or not self._settled or self._view is None:
                settled = stamp is not None and time.time_ns() - stamp[1] > _FRESH
                self._view = self._look(self._view)
                self._stamp, self._settled = stamp, settled
            return self._view

    def known(self) -> View:
        """The commits as of the last look, or more."""
        return self.view()

    def holding(self, partition: int, last: int) -> View:
        """A view that has the records before `last`, if they are there."""
        return self.view()

    def _look(self, view: View | None) -> View:
        """`view`, or a new one, with the commits that came since."""
        for _ in range(50):  # files are folded away between listing and reading; the next listing has the rollup
            identity, partitions = self._describe()
            self.identity = identity
            if view is None or view.identity != identity or len(view.parts) != partitions:
                view = View.empty(identity, partitions)
                self.verified, self.prefixes, self.finished, self.swept = set(), {}, 0, False
                for folder in (self.path, self.commits, self.staging, *map(self.partition_path, range(partitions))):
                    refuse_link(folder)
            try:
                caught_up = self._catch_up(view)
                if caught_up is not None:
                    return caught_up
            except FileNotFoundError:
                pass
            time.sleep(0.002)
        raise BraidError(
            f"commit {view.last + 1 if view else 1} of the topic {self.name!r} is missing in {self.commits}",
            "later commits are there; put the file back from a copy, or delete the topic",
        )

    def _describe(self) -> tuple[str, int]:
        try:
            return self._description(read_small(os.path.join(self.path, "topic.json"), _DESCRIPTION))
        except FileNotFoundError:
            if not os.path.isdir(self.path):
                raise self.missing() from None
            self._check_undescribed()
            return "", max(folders(self.path), default=0) + 1
        except _DAMAGED as e:
            hint = "put it back from a copy; it holds the number of partitions"
            raise BraidError(f"{self.path}/topic.json is damaged: {why(e)}", hint) from e

    def _description(self, data: bytes) -> tuple[str, int]:
        """The topic's id, and how many partitions it has."""
        x = members(parsed(unsealed(data)))
        if (found := whole(x["format"], "format")) not in _READ:
            raise ValueError(f"it is of format {found}; this version of braid reads {FORMAT}")
        if found == FORMAT:
            unsealed(data, must=True)
        if x.get("name", self.name) != self.name:
            raise ValueError(f"it is of the topic {x['name']!r:.100}")
        self.sums = found == FORMAT
        return text(x["id"], "id"), whole(x["partitions"], "partitions", 1, MAX_PARTITIONS)

    def _catch_up(self, view: View) -> View | None:
        """What is new applied; None where a commit is missing between those that are there."""
        numbers, rollups = self.list_commits()
        top = max([*numbers, *(to for _, to in rollups)], default=0)
        for start, to in _chain(rollups):
            if to <= view.last and (start, to) not in view.rollups:
                view = self._apply_rollup(view, start, to)
        while view.last < top:
            usable = [r for r in rollups if r[0] <= view.last < r[1]]
            if usable:  # the widest of those that lead farthest: what it stands for may be about to go
                view = self._apply_rollup(view, *max(usable, key=lambda r: (r[1], -r[0])))
            elif view.last + 1 in numbers:
                view = self._apply(view, self._load(f"{view.last + 1:020d}.json"))
            else:
                return None
        return view

    def list_commits(self) -> tuple[set[int], list[tuple[int, int]]]:
        names = self._names()
        numbers = {int(m[1]) for name in names if (m := _COMMIT.fullmatch(name))}
        rollups = [(int(m[1]), int(m[2])) for name in names if (m := _ROLLUP.fullmatch(name))]
        wrong = next((r for r in [*((n - 1, n) for n in numbers), *rollups] if not 0 <= r[0] < r[1] <= _LAST), None)
        if wrong is not None:
            raise BraidError(f"{self.commits} has a commit of number {wrong[1]}", "no topic has one; take it away")
        return numbers, rollups

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.commits)
        except FileNotFoundError:
            return []

    def _called(self, name: str) -> str:
        """A commit or a rollup, for people."""
        return os.path.join(self.commits, name)

    def _document(self, name: str) -> bytes:
        return read_small(os.path.join(self.commits, name))

    def _load(self, name: str) -> dict[str, Any]:
        path, data = self._called(name), self._document(name)
        try:
            x = members(parsed(unsealed(data)))
            if (found := whole(x["format"], "format")) not in _READ:
                raise BraidError(f"{path} is of format {found}; this version of braid reads {FORMAT}")
            if found == FORMAT or self.sums:
                unsealed(data, must=True)
            if x.get("topic", self.identity) != self.identity:
                raise ValueError("it is a commit of another topic")
            if called(x) != name:
                raise ValueError(f"it is the commit {called(x)}")
            for s in (*items(x["segments"], "segments"), *items(x.get("instead", []), "instead")):
                if (Segment.from_json(members(s, "a segment")).at is None) != self.in_folder:
                    raise ValueError("a segment lies elsewhere")
            if "from" in x:
                for batch in members(x["queries"], "queries").values():
                    whole(batch, "batch")
                for digest in members(x.setdefault("digests", {}), "digests").values():
                    text(digest, "digest")
            else:
                text(x["query"], "query"), whole(x["batch"], "batch"), text(x.setdefault("digest", ""), "digest")
            return x
        except _DAMAGED as e:
            raise damaged(path, e) from e

    def _apply(self, view: View, x: dict[str, Any]) -> View:
        try:
            _check_follows(view, x)
            segments = [Segment.from_json(s) for s in x["segments"]]
            return self.apply(view, Origin(x["query"], x["batch"], x["digest"]), segments, Keep.from_json(x))
        except _DAMAGED as e:
            raise damaged(self._called(f"{view.last + 1:020d}.json"), e) from e

    def apply(self, view: View, origin: Origin, segments: Sequence[Segment], keep: Keep = Keep()) -> View:  # noqa: B008
        """One more commit."""
        if keep:
            before, view = view, view.with_segments((), keep)
            there = {s for part in view.parts for s in part}
            view.gone = [s for part in before.parts for s in part if s not in there]
            self.verified -= {(s.partition, s.first) for s in view.gone}
        else:
            view.gone = []
        for segment in segments:
            view.add(segment)
        view.note(origin)
        view.newest = [*segments, *keep.instead]
        view.last += 1
        return view

    def _apply_rollup(self, view: View, start: int, to: int) -> View:
        """A view in which the rollup's segments stand for those of its commits."""
        name = f"{start:020d}-{to:020d}.rollup.json"
        x = self._load(name)
        try:
            segments, keep = merged([x])
            if to <= view.last:
                keep = Keep()  # that was done when its commits were read
            else:
                _check_follows(view, x)
            made = view.with_segments(segments, keep)
            made.rollups = (*(r for r in view.rollups if not start <= r[0] < to), (start, to))
            self.verified -= {(s.partition, s.first) for s in (*segments, *keep.instead)}
            if to > view.last:
                for query, batch in x["queries"].items():
                    made.note(Origin(query, batch, x["digests"].get(query, "")))
                made.newest, made.gone = [], []  # commits are folded after their renames
                made.last = to
            return made
        except _DAMAGED as e:
            raise damaged(self._called(name), e) from e

    def anew(self) -> View:
        """The view after another look, whether or not there seems to be news."""
        with self._guard:
            self._settled = False
            return self.view()

    def ends(self) -> list[int]:
        """The end of each partition, all after one and the same commit."""
        with self._guard:
            return self.view().ends()

    def check_commits(self) -> None:
        """All that is read of the commits is looked at anew, as it is kept."""
        with self._guard:
            self._view = None
            self.anew()

    # -- taking records away; under the lock ----------------------------------------------------------------------

    def settled(self) -> View:
        """The view, by all rollups there are."""
        return self.view()

    def folded_ends(self, view: View) -> list[int]:
        """Up to where records may be taken away."""
        return view.ends()

    def sent(self, segments: list[Segment]) -> list[Segment]:
        """Segments that were written here, where everybody finds them."""
        return segments

    def holds(self, segments: list[Segment]) -> bool:
        """Whether they are there."""
        return all(os.path.exists(os.path.join(self.staging, s.staged or "~")) for s in segments)

    def leaving(self, view: View, keep: Keep) -> Keep:
        """With what nobody needs when that is kept."""
        return keep

    def discard(self, staged: Iterable[str]) -> None:
        """What was sent, and nobody needs, goes."""
        for name in staged:
            remove(os.path.join(self.staging, name))

    # -- writing; under the lock ----------------------------------------------------------------------------------

    def commit(self, view: View, origin: Origin, segments: list[Segment], keep: Keep = Keep()) -> bool:  # noqa: B008
        """Writes the next commit: from here on the segments are in the topic, and what it takes away is not. False
        where another one has its number, which none has under the lock."""
        number = view.last + 1
        data = commit_document(number, view.identity, origin, segments, keep)
        write_atomic(os.path.join(self.commits, f"{number:020d}.json"), data, self.staging, self.fsync)
        reach("committed")
        with self._guard:
            self._view = self.apply(view, origin, segments, keep)
        return True

    def fold(self, view: View) -> None:
        """Folds commits into rollups where there are many. All renames are done."""
        numbers, rollups = self.list_commits()
        chain = _chain(rollups)
        done = chain[-1][1] if chain else 0
        alone = sorted(n for n in numbers if n > done)
        if len(alone) < FOLD:
            return
        clear(self)
        found = [self._load(f"{n:020d}.json") for n in alone]
        chain.append((done, alone[-1]))
        origins = [Origin(x["query"], x["batch"], x["digest"]) for x in found]
        self._write_rollup(*chain[-1], found, origins)
        width = FOLD
        while True:  # rollups of rollups: a commit is written again once per power of FOLD
            width *= FOLD
            tail = [r for r in chain if r[1] - r[0] < width]
            if len(tail) < FOLD:
                break
            found = [self._load(f"{start:020d}-{to:020d}.rollup.json") for start, to in tail]
            chain = [*(r for r in chain if r not in tail), (tail[0][0], tail[-1][1])]
            origins = [Origin(q, n, x["digests"].get(q, "")) for x in found for q, n in x["queries"].items()]
            self._write_rollup(*chain[-1], found, origins)
        reach("folded")
        self.finish_fold()

    def finish_fold(self) -> None:
        """What a fold leaves to do after its rollup is written, be it of a process that died. Under the lock."""
        numbers, rollups = self.list_commits()
        chain = _chain(rollups)
        done = chain[-1][1] if chain else 0
        old, left = sorted(n for n in numbers if n <= done), sorted({*rollups} - {*chain})
        if not old and not left:
            return
        names = [*(f"{n:020d}.json" for n in old), *(f"{a:020d}-{b:020d}.rollup.json" for a, b in left)]
        before = [s for name in names for s in _named(self._load(name))]
        start, to = chain[-1]
        settle(self, _named(self._load(f"{start:020d}-{to:020d}.rollup.json")), before)
        for name in names:
            remove(os.path.join(self.commits, name))
            reach("commit removed")

    def clear(self, view: View, query: str) -> None:
        """What nobody needs goes, when a query starts."""
        clear(self)

    def _write_rollup(self, start: int, to: int, found: list[dict[str, Any]], origins: list[Origin]) -> None:
        path = os.path.join(self.commits, f"{start:020d}-{to:020d}.rollup.json")
        segments, keep = merged(found)
        data = rollup_document(start, to, self.identity, rolled(self, segments, to), origins, keep)
        write_atomic(path, data, self.staging, self.fsync)
        reach("rollup written")


def _check_follows(view: View, x: dict[str, Any]) -> None:
    """Behind a commit that has a checksum none is without."""
    if view.sums and x["format"] != FORMAT:
        raise ValueError("it has no checksum, and commits before it have one")
    view.sums = x["format"] == FORMAT


def called(x: dict[str, Any]) -> str:
    """The name of a commit, or of a rollup, by what it says."""
    if "from" in x:
        return f"{whole(x['from'], 'from'):020d}-{whole(x['to'], 'to'):020d}.rollup.json"
    return f"{whole(x['number'], 'number'):020d}.json"


def commit_document(number: int, topic: str, origin: Origin, segments: list[Segment], keep: Keep, **more: Any) -> bytes:
    """`topic`: its id."""
    x: dict[str, Any] = {"format": FORMAT, "number": number, "topic": topic, **origin._asdict(), **more}
    x |= {"segments": [s.to_json() for s in segments], **keep.to_json()}
    return sealed(json.dumps(x, separators=(",", ":")).encode())


def rollup_document(
    start: int, to: int, topic: str, segments: list[Segment], origins: list[Origin], keep: Keep, **more: Any
) -> bytes:
    last = View.empty("", 0)
    for origin in origins:
        last.note(origin)
    x: dict[str, Any] = {"format": FORMAT, "from": start, "to": to, "topic": topic}
    x |= {"segments": [s.to_json() for s in segments], "extras": [], **keep.to_json(), **more}
    x |= {"queries": last.queries, "digests": {q: d for q, d in last.digests.items() if d}}
    return sealed(json.dumps(x, separators=(",", ":")).encode())


def _named(x: dict[str, Any]) -> list[dict[str, Any]]:
    """All segments that a commit or a rollup names."""
    return [*x["segments"], *x.get("instead", [])]


def _chain(rollups: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The rollups that are in use: from 0 on, the widest at each step. Others are left over from a crash."""
    widest: dict[int, int] = {}
    for start, to in rollups:
        widest[start] = max(to, widest.get(start, 0))
    chain: list[tuple[int, int]] = []
    at = 0
    while at in widest:
        chain.append((at, widest[at]))
        at = widest[at]
    return chain


def damaged(path: str, e: Exception) -> BraidError:
    return BraidError(f"{path} is damaged: {why(e)}", "put the file back from a copy, or delete the topic")


def folders(path: str) -> list[int]:
    """The partition folders of a topic, by number."""
    with os.scandir(path) as entries:
        numbers = (e for e in entries if e.name.isdecimal() and e.name.isascii())
        names = [e.name for e in numbers if e.is_symlink() or e.is_dir()]
    found = sorted(map(int, names))
    if found and found[-1] >= MAX_PARTITIONS:
        hint = f"a topic has at most {MAX_PARTITIONS}, from 0 on; take the folder away"
        raise BraidError(f"{os.path.join(path, max(names, key=int))} is no partition", hint)
    return found


def description(name: str, partitions: int) -> bytes:
    """How many partitions a topic has, and an identity that a later one of its name will not have."""
    x = {"format": FORMAT, "name": name, "partitions": partitions, "id": uuid4().hex}
    return sealed(json.dumps(x).encode())


def write_description(path: str, name: str, partitions: int, scratch: str, fsync: bool = False) -> None:
    """`topic.json`."""
    write_atomic(os.path.join(path, "topic.json"), description(name, partitions), scratch, fsync)
