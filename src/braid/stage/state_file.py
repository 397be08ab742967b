"""What a query keeps after a batch: one file of its checkpoint, and a folder of runs for each bucket.

In: the document of each bucket's state, by "stage/bucket" (`BucketState.document`). Out: the same, for the next batch.
Rule: the file of a batch is there, whole, before the batch is published, and names all that the next batch may read. It
goes, with the runs that only it names, when the batch after that is published: any batch that Spark does again finds
what it found the first time. A file holds what differs from the batch before, by which it names the files that have the
rest (`links`); after so many of them one holds all. Clocks, which are the same in nearly all buckets of a stage, stand
there once. So what a batch writes follows what has changed, not how many buckets there are.

  state/BATCH.json          a line of JSON, and a line with its CRC-32; beside the state, what the batch reads, what it
                            belongs to (`Tie`), and the CRC-32 of the file that it builds on (`after`)
  state/published           the number of the last batch that is visible
  runs/STAGE-BUCKET/*.arrow

Tasks read these files too: a checkpoint lies where all of them see it, like the topic store.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from braid.errors import BraidError, anew
from braid.store import ObjectStore
from braid.topics.files import items, members, parsed, text, whole, why
from braid.topics.view import Written

FORMAT = 2
_READ = (1, FORMAT)  # 1: each file held all of its batch's
LINKS = 32  # files that hold a state together, at most
FOLDER, RUNS, SUFFIX, PUBLISHED = "state", "runs", ".arrow", "published"
MOST = 1 << 30  # bytes of the file of a batch
_PLACE, _NUMBER = re.compile("[0-9]{1,9}/[0-9]{1,9}"), re.compile("[0-9]{1,9}")
_RUN = re.compile("[A-Za-z0-9_-]{1,200}")
_OBJECT = r"(?:(?P<epoch>[0-9]{1,18})_(?P<batch>[0-9]{1,18})_)?[0-9a-f]{32}"
_SHARED = re.compile(rf"-p(?P<object>{_OBJECT})-(?P<offset>[0-9]{{1,18}})-(?P<length>[0-9]{{1,18}})$")
_PUT = re.compile(rf"{RUNS}/(?:{_OBJECT}|[0-9]+-[0-9]+/[A-Za-z0-9_]+-(?P<number>[0-9]{{1,18}})-[A-Za-z0-9_-]+{SUFFIX})")
_DAMAGED = f"put it back from a copy; or {anew()}"

Documents = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Tie:
    """What a batch's state belongs to. `digest`: of what the batch reads, and so of all that was read before it;
    `written`: the last batch up to this one that wrote something; `identity`: of the table where it wrote, in words,
    empty where that has none; `dropped`: how many have dropped something, as their files say, None where nobody has
    counted."""

    digest: str
    written: Written | None
    identity: str = ""
    dropped: int | None = None


def place(stage: int, bucket: int) -> str:
    return f"{stage}/{bucket}"


def name_of(batch: int) -> str:
    return f"{FOLDER}/{batch}.json"


def path_of(checkpoint: ObjectStore, batch: int) -> str:
    """The file of a batch, for people."""
    return checkpoint.called(name_of(batch))


def batches(checkpoint: ObjectStore) -> list[int]:
    """Of which batches there is a file, in order."""
    names = (name.removesuffix(".json") for name in checkpoint.names(FOLDER))
    return sorted(int(name) for name in names if name.isdecimal() and name.isascii())


@dataclass(frozen=True, slots=True)
class Held:
    """What is saved with a batch until it has a place of its own: lines of `offset_log.py`, records of
    `cause_log.py`."""

    cuts: Sequence[str] = ()
    causes: Sequence[str] = ()


NONE_HELD = Held()


@dataclass(frozen=True, slots=True)
class Before:
    """The state that a batch has found: the documents, and the files that hold them together, the last its own."""

    documents: Documents
    links: Sequence[int]

    def chain(self) -> Sequence[int]:
        """What the file of the next batch may build on; empty: it holds all."""
        return self.links if len(self.links) < LINKS else ()


def save(
    checkpoint: ObjectStore,
    batch: int,
    documents: Mapping[str, Mapping[str, Any]],
    tie: Tie | None = None,
    reads: Sequence[str] | None = None,
    buckets: int | None = None,
    fsync: bool = False,
    held: Held = NONE_HELD,
    before: Before | None = None,
) -> bool:
    """`reads`: the offsets of the batch, a line a source; `buckets`: so many has each stage; `fsync`: it stays on the
    disk; `before`: of the batch before, whose files need not be written again. False where it is there from an attempt
    before, and stays; refused where that was made of other records."""
    there = None if tie is None else _whole_or_none(checkpoint, batch)
    if tie is not None and there is not None and there.tie is not None and there.tie.digest != tie.digest:
        what = f"batch {batch} was computed in {checkpoint} by another run"
        raise BraidError(what, "two runs go on from one checkpoint: end one of them")
    after = _sum_of(checkpoint, before.links[-1]) if before is not None and before.chain() else None
    data = _sealed(batch, documents, tie, reads, buckets, held, before, after)
    _sums.pop(checkpoint, None)
    if checkpoint.path is not None:  # one run at a time holds its lock, and what is there may be torn
        checkpoint.write(name_of(batch), data, fsync)
        made = True
    else:
        made = there is None and checkpoint.create(name_of(batch), data)
    if made:
        _sums[checkpoint] = batch, _sum_in(data)
    if made or there is not None:
        return made
    return save(checkpoint, batch, documents, tie, reads, buckets, fsync, held, before)  # somebody was faster: who?


def replace(
    checkpoint: ObjectStore,
    batch: int,
    documents: Mapping[str, Mapping[str, Any]],
    tie: Tie | None,
    reads: Sequence[str] | None,
    buckets: int,
) -> None:
    """The same state in other buckets takes the place of what there is, and stays on the disk."""
    data = _sealed(batch, documents, tie, reads, buckets, held(checkpoint, batch), None)
    checkpoint.write(name_of(batch), data, fsync=True)
    forgotten()


def _sealed(
    batch: int,
    documents: Mapping[str, Mapping[str, Any]],
    tie: Tie | None,
    reads: Sequence[str] | None,
    buckets: int | None,
    held: Held,
    before: Before | None,
    after: str | None = None,
) -> bytes:
    more: dict[str, Any] = {} if tie is None else {"digest": tie.digest, "written": tie.written, "table": tie.identity}
    more |= {} if tie is None or tie.dropped is None else {"dropped": tie.dropped}
    more |= {} if reads is None else {"reads": reads}
    more |= {} if buckets is None else {"buckets": buckets}
    more |= {name: lines for name, lines in (("cuts", held.cuts), ("causes", held.causes)) if lines}
    links = () if before is None else before.chain()
    clocks = clocks_of(documents)
    found = _apart(documents, clocks)
    if before is not None and links:
        more |= {"links": links, "after": after}
        known = _apart(before.documents, clocks_of(before.documents))
        found = {where: x for where, x in found.items() if known.get(where) != x}
    x = {"format": FORMAT, "batch": batch, **more, "clocks": clocks, "state": found}
    return sealed(json.dumps(x, separators=(",", ":")).encode())


def clocks_of(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The clocks of each stage, as its first bucket has them."""
    found: dict[str, Any] = {}
    for where, document in documents.items():
        if "clocks" in document:
            found.setdefault(stage_of(where), document["clocks"])
    return found


def stage_of(where: str) -> str:
    return where.partition("/")[0]


def _apart(documents: Mapping[str, Mapping[str, Any]], clocks: Mapping[str, Any]) -> Documents:
    """The documents without the clocks that their stages have."""
    return {where: without_clocks(x, clocks.get(stage_of(where))) for where, x in documents.items()}


def said_of(documents: Mapping[str, Mapping[str, Any]], same: Collection[str]) -> dict[str, Any]:
    """What a task says of its buckets' state: the clocks of its stage once; of buckets that keep the `same` as before,
    but for their clocks, nothing else."""
    clocks = clocks_of(documents)
    told = _apart(documents, clocks)
    return {"state": {w: None if w in same and "clocks" not in x else x for w, x in told.items()}, "clocks": clocks}


def changed(before: Documents, said: Iterable[Mapping[str, Any]]) -> Documents:
    """The state behind a batch, by the one before and what tasks say (`said_of`)."""
    made, first = dict(before), dict[str, Any]()
    for x in said:
        told = x.get("clocks", {})  # all tasks say the same: one object for all buckets is soon compared
        clocks = {stage: first[stage] if first.setdefault(stage, c) == c else c for stage, c in told.items()}
        for where, document in x.get("state", {}).items():
            kept = bare(before[where]) if document is None else document
            made[where] = with_clocks(kept, clocks.get(stage_of(where)))
    return made


def bare(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document without clocks."""
    return {name: x for name, x in document.items() if name != "clocks"}


def without_clocks(document: Mapping[str, Any], clocks: Any) -> dict[str, Any]:
    """A document without its clocks, if they are these."""
    own = document.get("clocks")
    return bare(document) if own is clocks or own == clocks else dict(document)


def with_clocks(document: Mapping[str, Any], clocks: Any) -> dict[str, Any]:
    """The whole document again."""
    return dict(document) if "clocks" in document or clocks is None else {**document, "clocks": clocks}


def sealed(line: bytes) -> bytes:
    """A line, and its checksum in a line of its own."""
    return b"%s\n%08x\n" % (line, zlib.crc32(line))


_sums: dict[ObjectStore, tuple[int, str]] = {}  # of the last file that this process has written of a checkpoint


def _sum_of(checkpoint: ObjectStore, batch: int) -> str:
    """The checksum of the file of a batch, as it says it."""
    known = _sums.get(checkpoint)
    return known[1] if known is not None and known[0] == batch else _whole(checkpoint, batch).sum


def _sum_in(data: bytes) -> str:
    return data[-9:-1].decode()


def unsealed(checkpoint: ObjectStore, name: str) -> bytes:
    """The line that was written."""
    line, _, crc = checkpoint.get(name, MOST).partition(b"\n")
    if crc != b"%08x\n" % zlib.crc32(line):
        raise _damaged(checkpoint.called(name), "it is not what its checksum says")
    return line


def forget(checkpoint: ObjectStore, batch: int, links: Sequence[int] = ()) -> None:
    """Removes the files that the batch before this one has needed, when this one needs none but its own (`links`)."""
    numbers = () if len(links) > 1 else links_of(checkpoint, batch - 1)
    _forget(checkpoint, [number for number in numbers if 0 <= number < batch and number not in links])


def links_of(checkpoint: ObjectStore, batch: int) -> Sequence[int]:
    """The files that hold the state of a batch together, the last its own; none where there is none that is whole."""
    found = _whole_or_none(checkpoint, batch) if batch >= 0 else None
    return () if found is None else (*found.links, batch)


def forgotten() -> None:
    """What this process has read and written of states, since a query begins anew."""
    _read.cache_clear()
    _sums.clear()


def clear_remains(checkpoint: ObjectStore) -> None:
    """Of a query that begins: what a driver has saved that did not know yet that it was reset."""
    checkpoint.delete(*(name for x in (FOLDER, RUNS, "cuts", "causes") for name, _ in checkpoint.list(x)))
    forgotten()


def forget_later(checkpoint: ObjectStore, batch: int) -> None:
    """Removes the files of later batches, which are done again: nobody looks at what these had come to."""
    if published(checkpoint) > batch:
        tell_published(checkpoint, batch)
    _forget(checkpoint, [number for number in batches(checkpoint) if number > batch])


def _forget(checkpoint: ObjectStore, numbers: Iterable[int]) -> None:
    if names := [*map(name_of, numbers)]:
        checkpoint.delete(*names)
        _read.cache_clear()  # where nothing tells another of the same number apart (`ObjectStore.version`)


def tell_published(checkpoint: ObjectStore, batch: int, fsync: bool = False) -> None:
    """For the next start, and for whoever asks for results: this batch is visible."""
    checkpoint.write(f"{FOLDER}/{PUBLISHED}", b"%d\n" % batch, fsync)


def published(checkpoint: ObjectStore) -> int:
    """The last batch that is known to be visible; -1 where none is."""
    with contextlib.suppress(OSError, ValueError):
        return int(checkpoint.get(f"{FOLDER}/{PUBLISHED}"))
    return -1


def load(checkpoint: ObjectStore, batch: int) -> Documents:
    """The documents after a batch; those after -1, before the first, are none."""
    return _whole(checkpoint, batch).documents() if batch >= 0 else {}


def latest(checkpoint: ObjectStore) -> tuple[int, Documents]:
    """The newest batch whose file is whole, and its documents; -1 where there is none. (A loss of power may tear the
    file of a batch that is done again.)"""
    found = batches(checkpoint)
    for batch in reversed(found):
        try:
            return batch, load(checkpoint, batch)
        except BraidError:
            if batch == found[0]:
                raise
    return -1, {}


def texts(checkpoint: ObjectStore, batch: int, life: str = "") -> State:
    """The same, each as JSON; what has changed is read once a process. `life`: the run and the spread of the query, for
    whoever may have read the state of another, which had begun anew or was spread anew since."""
    return NOTHING if batch < 0 else _whole(checkpoint, batch, life)


def tie(checkpoint: ObjectStore, batch: int) -> Tie | None:
    """What a batch's state belongs to; None before the first, and where nobody has recorded it."""
    return None if batch < 0 else _whole(checkpoint, batch).tie


def reads(checkpoint: ObjectStore, batch: int) -> Sequence[str] | None:
    """What a batch reads, as it was saved; None where nobody did, or in the torn file of one that is done again."""
    found = _whole_or_none(checkpoint, batch)
    if found is None and published(checkpoint) >= batch:
        _whole(checkpoint, batch)  # says why
    return None if found is None else found.reads


def held(checkpoint: ObjectStore, batch: int) -> Held:
    """What was saved with a batch until it has a place of its own."""
    return _whole(checkpoint, batch).held


def buckets(checkpoint: ObjectStore, batch: int) -> int | None:
    """How many each stage had; None where nobody has recorded it."""
    return _whole(checkpoint, batch).buckets


def _whole_or_none(checkpoint: ObjectStore, batch: int) -> State | None:
    """None where there is none that can be read."""
    try:
        return _whole(checkpoint, batch)
    except BraidError:
        return None


@dataclass(frozen=True, slots=True, eq=False)
class State(Mapping[str, str]):
    """The state behind a batch, and what the file of that holds besides. `texts`: of buckets, but for those that have
    `own` clocks without the clocks, which are of their stages. `links`: the files that hold the rest of it."""

    tie: Tie | None
    reads: Sequence[str] | None
    buckets: int | None
    held: Held
    links: Sequence[int]
    clocks: Mapping[str, str]
    texts: Mapping[str, str]
    own: frozenset[str]
    sum: str = ""

    def __getitem__(self, where: str) -> str:
        text, clocks = self.texts[where], self.clocks.get(stage_of(where))
        if clocks is None or where in self.own:
            return text
        return f'{text[:-1]}{"," * (len(text) > 2)}"clocks":{clocks}}}'

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def keeps(self, where: str, document: Mapping[str, Any]) -> bool:
        """Whether a bucket keeps what this document says, its clocks apart, which are those of its stage."""
        return json.dumps(bare(document), separators=(",", ":")) == self.texts.get(where)

    def documents(self) -> Documents:
        """Buckets of a stage have their clocks in common: nobody changes them."""
        clocks = {stage: json.loads(text) for stage, text in self.clocks.items()}
        return {where: with_clocks(json.loads(text), clocks.get(stage_of(where))) for where, text in self.texts.items()}


NOTHING = State(None, None, None, NONE_HELD, (), {}, {}, frozenset())  # before the first batch


def _whole(checkpoint: ObjectStore, batch: int, life: str = "") -> State:
    name = name_of(batch)
    try:
        version = checkpoint.version(name)
    except OSError:
        raise _damaged(checkpoint.called(name), "it is missing") from None
    return _read(checkpoint, name, version, life)


@functools.lru_cache(maxsize=16)
def _read(checkpoint: ObjectStore, name: str, version: object, life: str) -> State:
    """`version` tells files apart. Where it does not, the state of a batch only changes with the life of the query, and
    when it is spread anew."""
    path = checkpoint.called(name)
    try:
        line = unsealed(checkpoint, name)
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    try:
        x = members(parsed(line))
        if (found := whole(x["format"], "format")) not in _READ:
            hint = f"use the version of braid that wrote it; or {anew()}"
            raise BraidError(f"{path} is of format {found}; this version of braid reads {FORMAT}", hint)
        batch, links = whole(x["batch"], "batch"), [whole(n, "a link") for n in items(x.get("links", []), "links")]
        if [*links, batch] != sorted({*links, batch}) or len(links) > LINKS:
            raise ValueError("its links do not lead back")
        if name_of(batch) != name:
            raise ValueError(f"it is of batch {batch}")
        rest = _whole(checkpoint, links[-1], life) if links else None
        if rest is not None and ([*rest.links] != links[:-1] or x.get("after", rest.sum) != rest.sum):
            raise ValueError(f"batch {links[-1]} is another one than it builds on")
        made, own = ({}, set[str]()) if rest is None else ({**rest.texts}, {*rest.own})
        for where, document in members(x["state"], "state").items():
            _checked(where, members(document, "the state of a bucket"))
            made[where] = json.dumps(document, separators=(",", ":"))
            own = own | {where} if "clocks" in document else own - {where}
        clocks = {} if rest is None else {**rest.clocks}
        for stage, clock in members(x.get("clocks", {}), "clocks").items():
            clocks[stage] = json.dumps(members(clock, "clocks"), separators=(",", ":"))
        read = [text(line, "what is read") for line in items(x["reads"], "reads")] if "reads" in x else None
        buckets = whole(x["buckets"], "buckets", 1) if "buckets" in x else None
        lines = Held(*([text(y, name) for y in items(x.get(name, []), name)] for name in ("cuts", "causes")))
        own_sum = f"{zlib.crc32(line):08x}"
        return State(_tie_of(x), read, buckets, lines, links, clocks, made, frozenset(own), own_sum)
    except (ValueError, KeyError) as e:
        raise _damaged(path, why(e)) from e


def _tie_of(x: dict[str, Any]) -> Tie | None:
    if "digest" not in x:
        return None
    written = None
    if x["written"] is not None:
        batch, digest = items(x["written"], "written")
        written = Written(whole(batch, "a batch"), text(digest, "a digest"))
    dropped = whole(x["dropped"], "dropped") if "dropped" in x else None
    return Tie(text(x["digest"], "a digest"), written, text(x.get("table", ""), "a table"), dropped)


def _checked(where: str, document: dict[str, Any]) -> None:
    """Refuses a document that no stage writes, before anybody takes names of files from it."""
    if not _PLACE.fullmatch(where):
        raise ValueError(f"{where!r:.40} is no stage and bucket")
    members(document.get("clocks", {}), "clocks")
    for step, manifest in members(document.get("steps", {}), "steps").items():
        if not _NUMBER.fullmatch(step):
            raise ValueError(f"{step!r:.40} is no number of a step")
        members(manifest, "a step's state")
    for run, rows, size in runs_in(document):
        if not _RUN.fullmatch(run):
            raise ValueError(f"{run!r:.100} is no name of a run")
        whole(rows, "the rows of a run"), whole(size, "the bytes of a run")


def check(checkpoint: ObjectStore, batch: int) -> None:
    """Refuses a state that is not whole: the file of the batch, and that the runs are there which it names."""
    there = {name for name, _ in checkpoint.list(RUNS)}
    documents = {where: json.loads(document) for where, document in texts(checkpoint, batch).items()}
    for name in sorted(objects_in(documents) - there):
        raise _damaged(checkpoint.called(name), "it is missing")


def objects_in(documents: Mapping[str, Any]) -> set[str]:
    """The objects in which the runs lie that the documents of buckets name (`checkpoint_runs.py`)."""
    return {object_of(where, run) for where, x in documents.items() for run, *_ in runs_in(x)}


def object_of(where: str, run: str) -> str:
    """The object in which a run of a bucket lies: the one that it shares with others, or its own."""
    found = _SHARED.search(run)
    return own_object(where, run) if found is None else f"{RUNS}/{found['object']}"


def own_object(where: str, run: str) -> str:
    """That of a run of a bucket that has one of its own; of others, what this machine's copy is called."""
    if "/" in run:
        raise _none_of_ours(run)
    return f"{RUNS}/{where.replace('/', '-')}/{run}{SUFFIX}"


def place_in_object(run: str) -> tuple[str, int, int]:
    """The object, the offset and the bytes there of a run that shares one."""
    found = _SHARED.search(run)
    if found is None:
        raise _none_of_ours(run)
    return f"{RUNS}/{found['object']}", int(found["offset"]), int(found["length"])


def _none_of_ours(run: str) -> BraidError:
    return BraidError(f"a state names a run that is none of its query: {run!r:.200}", _DAMAGED)


def object_name(epoch: int, batch: int, mark: str) -> str:
    """Of what a task of a driver puts of a batch; `mark`: 32 hexadecimal digits."""
    return f"{epoch}_{batch}_{mark}"


def made_for(name: str) -> int:
    """The batch whose task put an object: the first whose state may name it. -1: of an older version, or none of
    ours."""
    found = _PUT.fullmatch(name)
    return int(found["batch"] or found["number"] or -1) if found is not None else -1


def put_as(run: str) -> str:
    """The name of a run without where it lies."""
    return _SHARED.sub("", run)


def by_bucket(state: Documents) -> list[dict[str, Any]]:
    """The manifests of every bucket's steps."""
    made = []
    for place, document in sorted(state.items(), key=lambda x: [int(n) for n in x[0].split("/")]):
        stage, bucket = place.split("/")
        steps = {int(n): m for n, m in document["steps"].items()}
        made.append({"stage": int(stage), "bucket": int(bucket), "steps": steps})
    return made


def runs_in(manifests: Any) -> list[tuple[str, int, int]]:
    """(id, rows, bytes) of all runs that manifests name, or documents of buckets."""
    if not isinstance(manifests, dict):
        return []
    found = []
    for run in items(manifests.get("runs", []), "runs"):
        name, rows, size = items(run, "a run")[:3]
        found.append((text(name, "the name of a run"), rows, size))
    return found + [run for part in manifests.values() for run in runs_in(part)]


def _damaged(path: str, why: str) -> BraidError:
    return BraidError(f"{path} is damaged: {why}", _DAMAGED)
