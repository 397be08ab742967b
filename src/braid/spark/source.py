"""The one source of a query: it reads all its topics and files and yields blobs for all stages (`entry.BraidSource`).

In: a job; what lies in its topics and files. Out: one offset document a batch, and for its tasks the rows of every
stage by bucket, clock steps for every bucket, dropped records.
Rule: the same pair of documents gives the same blobs for ever; nothing is written here. One document is one cut through
all inputs, so a query has one scan of it in its plan.

Document: {"batch": n, "next": {"leaf/partition": offset}, "ended": […], "idle": […], "plan": fingerprint}; `ended`
are the partitions that have been closed (`--end`), `idle` those that had been silent for so long (`--idle`) when the
batch was planned, "silent" all that are idle behind it; "early" (while tables that are read first take more than a
batch): where that ends; "captured" (where there is a captured table): where each partition of its leaf ended when the
query first started; "begin" (in the first): where it began; "seen": of each "topic/partition" of the store of
which something was read, an end and the checksum of what stands before it (`topics/prefix.py`). In an explicit order
(the test driver) also "seq" and "marks": then a query never reads past its gate, so that records written one by one
still form the batches the driver wants.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from braid.errors import Away, BraidError, anew
from braid.files.input import FileInput
from braid.lower.physical import Leaf
from braid.operators.changes import NEVER
from braid.spark import columns, task_metrics
from braid.spark.columns import Blob
from braid.spark.job import Job, inputs_of, loads, ranged
from braid.stage import measured, state_file
from braid.stage.call_order import (
    Moment,
    Placed,
    Reading,
    at_start,
    cut,
    moment_position,
    since_of,
    topic_ranks,
    without_replaced,
)
from braid.stage.cut import Cut, plan_batch
from braid.stage.emit import first_rows
from braid.stage.ingest import Chunk, Ingested, Mark, clocked, ingested
from braid.stage.inputs import Input, TopicInput, Until
from braid.stage.lineage import check_seen
from braid.stage.measured import SOURCE, Piece
from braid.stage.offset_log import Replay
from braid.stage.parts import Part, early_leaves, parts_of
from braid.stage.registered import FrameInput
from braid.stage.wire import derived, slim_steps, split
from braid.timing import spent
from braid.topics import registered
from braid.topics.broker import patiently
from braid.topics.interface import open_topics, store_of


@dataclass(slots=True)
class GateWatch:
    """What was seen of the gate when there was nothing to read behind it."""

    stamp: tuple[int, int] | None = None
    start: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicMark:
    """A line of the file of marks."""

    topic: str
    seq: int
    kind: str
    value: int


def open_gate(path: str, seq: int) -> None:
    """The query may read what stands at numbers up to `seq`."""
    temporary = f"{path}~{uuid4().hex[:8]}"
    with open(temporary, "w", encoding="ascii") as f:
        f.write(str(seq))
    os.replace(temporary, path)


def add_mark(path: str, topic: str, moment: Moment) -> None:
    with open(path, "a", encoding="utf-8") as f:
        f.write(json.dumps(asdict(TopicMark(topic, moment.seq, moment.kind, moment.value))) + "\n")


def read_marks(path: str) -> list[TopicMark]:
    try:
        with open(path, encoding="utf-8") as f:
            return [TopicMark(**json.loads(line)) for line in f]
    except FileNotFoundError:
        return []


def cut_in_order(job: Job, start: dict[str, Any], watch: GateWatch) -> dict[str, Any] | None:
    """The next batch: what stands before the gate; None where that is nothing. Without news this is one `stat`."""
    assert job.order is not None
    found = os.stat(job.order.gate)
    stamp = (found.st_ino, found.st_mtime_ns)
    if stamp == watch.stamp and start == watch.start:
        return None
    with open(job.order.gate, encoding="ascii") as f:
        seq = int(f.read())
    made = _cut_at(job, start, seq)
    if made is None:
        watch.stamp, watch.start = stamp, start
    return made


def _cut_at(job: Job, start: dict[str, Any], seq: int) -> dict[str, Any] | None:
    assert job.order is not None
    store = store_of(job.store.objects)
    marks = read_marks(job.order.marks)
    done = start.get("marks", 0)
    readings = []
    for leaf in job.plan.leaves:
        topic = leaf.source.topic
        ends = store.end_offsets(topic)
        records = [r for p, end in enumerate(ends) for r in _placed(job, topic, leaf.number, p, start, end, seq)]
        records = at_start(records, leaf, since_of(job.plan, leaf, job.order.since))
        moments = [_moment(m) for m in marks[done:] if m.topic == topic and m.seq <= seq]
        readings.append(Reading(leaf.number, records, moments, len(ends)))
    if not any(r.records or r.moments for r in readings):
        return None
    taken = next(cut(job.plan, readings, job.order.size))
    offsets = {
        f"{r.leaf}/{p}": start["next"].get(f"{r.leaf}/{p}", 0) + sum(1 for x in r.records if x.partition == p)
        for r in taken
        for p in range(r.partitions)
    }
    left = [m.seq for all_, mine in zip(readings, taken, strict=True) for m in all_.moments[len(mine.moments) :]]
    upto = min(left) - 1 if left else seq
    return {"next": offsets, "seq": seq, "marks": done + sum(1 for m in marks[done:] if m.seq <= upto)}


def _placed(
    job: Job, topic: str, leaf: int, partition: int, start: Mapping[str, Any], end: int, seq: int
) -> Iterator[Placed]:
    """The places of the records not yet read that stand before the gate."""
    first = start["next"].get(f"{leaf}/{partition}", 0)
    if first >= end:
        return
    places = store_of(job.store.objects).read_positions(topic, partition, first, end).filter(pl.col("seq") <= seq)
    for offset, s, hops, n in places.select("_offset", "seq", "hops", "n").iter_rows():
        yield Placed(s, hops, n, partition, offset, None, None, 0, None)


def _moment(mark: TopicMark) -> Moment:
    return Moment(mark.seq, "end" if mark.kind == "end" else "bound", mark.value)


def chunks_in_order(
    job: Job, inputs: Mapping[int, Input], parts: Sequence[Part], marks: tuple[int, int]
) -> Iterator[Chunk]:
    """The chunks of a batch; a mark counts for every partition of its topic."""
    assert job.order is not None
    store = store_of(job.store.objects)
    ranks = topic_ranks(job.plan)
    ranges = {(p.leaf, p.partition): (p.first, p.last) for p in parts}
    lines = read_marks(job.order.marks)[slice(*marks)] if marks[1] > marks[0] else []
    for leaf in (x for x in job.plan.leaves if not x.spared):
        source, topic = inputs[leaf.number], leaf.source.topic
        made = tuple(Mark(moment_position(m.seq), _moment(m).kind, m.value) for m in lines if m.topic == topic)
        for partition in range(source.partitions):
            first, last = ranges.get((leaf.number, partition), (0, 0))
            if first == last and not made:
                continue
            places = store.read_positions(topic, partition, first, last)
            since = since_of(job.plan, leaf, job.order.since)
            placed = _in_order(places, leaf, partition, since)
            placed = placed.with_columns(pl.lit(ranks[leaf.number], pl.Int64).alias("rank"))
            decoded = source.read(partition, first, last)
            if since is not None and leaf.source.kind == "table" and not leaf.source.captured:
                decoded, placed = without_replaced(decoded, placed, since)
            yield Chunk(leaf.number, partition, job.ranks[f"{leaf.number}/{partition}"], decoded, placed, made)


def _in_order(places: pl.DataFrame, leaf: Leaf, partition: int, since: int | None) -> pl.DataFrame:
    """The places of records, as `at_start` gives them."""
    rows = places.select("_offset", "seq", "hops", "n").iter_rows()
    placed = [Placed(s, hops, n, partition, offset, None, None, 0, None) for offset, s, hops, n in rows]
    made = [(r.seq, r.hops, r.n) for r in at_start(placed, leaf, since)]
    return pl.DataFrame(made, schema=dict.fromkeys(("seq", "hops", "n"), pl.Int64), orient="row")


# ------------------------------------------------------------------ the source


Document = dict[str, Any]

LOOK = 0.02  # s between two looks for more of what is being made ready
PATIENT = 1.0  # s for which a run that stays up waits for it; it asks again
FEW_ROWS = 20_000  # so many rows are worth a task of their own


@dataclass
class Slice(InputPartition):  # type: ignore[misc]
    """What one task reads. `marks`: from which to which mark, in an explicit order; `first`: it gives the first row of
    the result, too."""

    parts: tuple[Part, ...]
    marks: tuple[int, int] | None = None
    first: bool = False


class Planner:
    """Plans a query's batches, in a process beside the driver."""

    def __init__(self, text: str) -> None:
        self._text = text
        # of a run that ends where the data ended when it began; None for files, of which nothing is added later
        self._limits: dict[int, list[int] | None] | None = None
        self._watch = GateWatch()
        self._seen: dict[str, tuple[int, float]] = {}  # up to where each partition was read, and since when
        self._inputs: dict[int, Until] = {}  # as they stood when a batch was last planned
        self._ahead: threading.Thread | None = None  # reads with them, while nobody plans
        self._files: dict[int, FileInput] = {}
        self._checked = False
        self._replay: list[Document] | None = None
        self._begun = False  # what is replayed, by a batch without a cut
        self._comes: list[int] = []  # leaves of which more is being made ready

    def beginning(self) -> Document:
        job, inputs = loads(self._text), inputs_of(self._text)
        captured = [x for leaf in job.plan.captured if isinstance(x := inputs.get(leaf), FileInput)]
        _wait(lambda: not any(x.comes() for x in captured), captured)
        now = {str(leaf): inputs[leaf].ends() for leaf in job.plan.captured if leaf in inputs}
        made: Document = {"batch": -1, "next": dict(job.begin), "ended": [], "idle": [], "plan": job.fingerprint}
        return made | {"captured": now} if now else made

    def freeze(self) -> None:
        """From now on nothing new is read."""
        self._limits = {
            leaf: None if isinstance(x, FileInput) and x.comes() else x.ends()
            for leaf, x in inputs_of(self._text).items()
        }

    def latest(self, start: Document) -> Document:
        """The document of the next batch; `start` where there is nothing new."""
        job = loads(self._text)
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None
        if job.checkpoint is None and not self._checked:  # else that was looked at before Spark was started
            topics = open_topics(job.store)
            check_seen(start.get("seen", {}), job.name, topics, "start it with another checkpoint")
        self._checked = True
        if start.get("plan") != job.fingerprint:
            raise BraidError(
                "the checkpoint is of another plan",
                anew(job.checkpoint.name) if job.checkpoint else "start it with another checkpoint",
            )
        if job.checkpoint is None and job.begin.keys() - start["next"].keys():
            raise BraidError("a topic has got partitions since the query began", "start it with another checkpoint")
        if job.replay is not None:
            if job.replay.empty and not self._begun and is_first(job):
                self._begun = True
                return start
            found = self._replayed(job.replay, start["batch"] + 1)
        elif job.order is None:
            found = self._patiently(job, start)
        else:
            found = cut_in_order(job, start, self._watch)
        if found is None and self._comes:
            until = None if self._limits is not None else time.monotonic() + PATIENT

            def there() -> bool:
                nonlocal found
                found = self._patiently(job, start)
                return found is not None or not self._comes

            _wait(there, [self._files[leaf] for leaf in self._comes], until)
        if job.reading.idle is not None and job.replay is None and job.order is None and self._limits is None:
            found = self._with_silent(job, start, found)
        if found is None and start["batch"] < 0 and job.plan.first_rows:
            found = {"next": start["next"], "ended": start["ended"]}  # nothing is read, and there are rows
        if found is None:
            return start
        kept = {name: x for name, x in start.items() if name not in ("early", "begin", "silent")}
        if start["batch"] < 0:
            kept["begin"] = start["next"]
        made = {**kept, "idle": [], **found, "batch": start["batch"] + 1}
        if seen := self._seen_by(start, made["next"]):
            made["seen"] = seen
        if job.order is None and job.replay is None and not job.files:
            self._read_ahead(job, made)
        return made

    def _read_ahead(self, job: Job, start: Document) -> None:
        """The times that the next batch is cut by are read while this one runs, where more waits than fits into it.
        They stay with the inputs; what fails is tried again, and told, by whoever plans it."""

        def go() -> None:
            with contextlib.suppress(Exception):
                self._cut(job, start)

        ends = {f"{leaf}/{p}": end for leaf, x in self._inputs.items() for p, end in enumerate(x.limits)}
        if sum(end - start["next"].get(place, 0) for place, end in ends.items()) > job.reading.limit:
            self._ahead = threading.Thread(target=go, name="times", daemon=True)
            self._ahead.start()

    def _replayed(self, replay: Replay, batch: int) -> Document | None:
        """Where the other query's batch of this number ended."""
        if self._replay is None:
            self._replay = replay.documents()
        return self._replay[batch] if batch < len(self._replay) else None

    def _seen_by(self, start: Document, upto: Mapping[str, int]) -> dict[str, list[int]]:
        """The checksums of what has been read up to these offsets."""
        inputs, seen = inputs_of(self._text), dict(start.get("seen", {}))
        for place, offset in upto.items():
            leaf, partition = map(int, place.split("/"))
            x = inputs.get(leaf)
            if x is None or offset <= seen.get(f"{x.source.topic}/{partition}", [0])[0]:
                continue
            found: tuple[int, int] | None = None
            if isinstance(x, FrameInput):
                found = registered.prefix(x.found, partition, offset)
            elif isinstance(x, TopicInput):
                found = x.store.prefix(x.source.topic, partition, offset)
            if found is not None:
                seen[f"{x.source.topic}/{partition}"] = [*found]
        return seen

    def _with_silent(self, job: Job, start: Document, found: Document | None) -> Document | None:
        """The next batch, with the partitions that fall idle behind it: all of them has been read, and for so long
        nothing came. Those that were idle before, and still are, stay so."""
        assert job.reading.idle is not None
        now, upto = time.monotonic(), start["next"] | ({} if found is None else found["next"])
        silent = [x for x in start.get("silent", []) if upto[x] == start["next"][x]]
        due = []
        for place, offset in upto.items():
            if self._seen.get(place, (-1, now))[0] != offset:
                self._seen[place] = offset, now
            elif now - self._seen[place][1] >= job.reading.idle and place not in silent:
                due.append(place)
        ends = {leaf: x.ends() for leaf, x in inputs_of(self._text).items()} if due else {}
        fallen = [x for x in due for leaf, p in [map(int, x.split("/"))] if ends[leaf][p] == upto[x]]
        if found is None and not fallen:
            return None
        same = {"next": start["next"], "ended": start["ended"]}
        return {**(found or same), "idle": fallen, "silent": [*silent, *fallen]}

    def _patiently(self, job: Job, start: Document) -> Document | None:
        """As long as the broker, or the registry, is away there is nothing new; a run that is to end waits for it."""
        if self._limits is not None:
            return patiently(lambda: self._cut_at_a_time(job, start))
        with contextlib.suppress(Away):
            return self._cut_at_a_time(job, start)
        return None

    def _cut_at_a_time(self, job: Job, start: Document) -> Document | None:
        inputs = inputs_of(self._text)
        self._files = {leaf: x for leaf, x in inputs.items() if isinstance(x, FileInput)}
        self._comes = [leaf for leaf, x in self._files.items() if x.comes()]
        for leaf, ends in (self._limits or {}).items():
            if ends is not None:
                inputs = inputs | {leaf: Until(inputs[leaf], ends)}
        for leaf, ends in start.get("captured", {}).items():
            inputs = inputs | {int(leaf): Until(inputs[int(leaf)], ends)}
        self._inputs = {leaf: Until(x, x.ends()) for leaf, x in inputs.items()}
        return self._cut(job, start)

    def _cut(self, job: Job, start: Document) -> Document | None:
        begin: Cut = {"next": start["next"], "ended": start["ended"]}
        if start.get("early"):
            begin["early"] = start["early"]
        inputs = sorted(self._inputs.items())
        found = plan_batch(
            inputs, begin, job.reading.limit, _at_first(job, start), job.ranks, job.reading.close, self._comes
        )
        return None if found is None else {**found}

    def committed(self, end: Document) -> None:
        """All before `end` is done for good: copies of files are not needed any more."""
        job, done = loads(self._text), dict[str, int]()
        for leaf in job.files:
            name, rows = job.plan.leaves[leaf].source.name, end["next"].get(f"{leaf}/0", 0)
            done[name] = min(rows, done.get(name, rows))
        for leaf, x in inputs_of(self._text).items():
            if isinstance(x, FileInput):
                x.forget(done[job.plan.leaves[leaf].source.name])

    def slices(self, start: Document, end: Document) -> Sequence[Slice]:
        """What the tasks of the batch between two documents read."""
        job = loads(self._text)
        if start["batch"] < 0 and "begin" in end:  # Spark asks again where a query begins
            start = start | {"next": end["begin"]}
        parts = [x for x in parts_of(start, end, _at_first(job, start)) if not job.plan.leaves[x.leaf].spared]
        begins = start["batch"] < 0 and bool(job.plan.first_rows)
        if job.order is not None:
            done = start.get("marks", 0)
            return [Slice(tuple(parts), (done, end.get("marks", done)), begins)]  # the very first document has none
        inputs = inputs_of(self._text)
        known = {leaf: x for leaf, x in inputs.items() if isinstance(x, FileInput | FrameInput)}
        shares = shared_out(divided(parts, known, job.tasks), len(parts), job.tasks)
        return [*([Slice((), first=True)] if begins else []), *(Slice(tuple(x)) for x in shares)]


def is_first(job: Job) -> bool:
    """Whether no batch of the query is done."""
    return job.checkpoint is None or state_file.published(job.checkpoint) < 0


def _wait(there: Callable[[], bool], files: Sequence[FileInput], until: float | None = None) -> None:
    """Until it is there, or (where it is given) until this moment; or until nobody makes these files ready any more,
    since the run ends or has been killed."""
    parent = os.getppid()
    while not there() and (until is None or time.monotonic() < until):
        if os.getppid() != parent or any(x.is_left() for x in files):
            return
        time.sleep(LOOK)


def read(text: str, slice: Slice) -> Iterator[pa.RecordBatch]:
    """What one task reads, as blobs."""
    job = loads(text)
    if slice.first:
        yield columns.batch(_of_nothing(job))
    yield from blobs(job, _chunks(text, job, slice))


def _at_first(job: Job, start: Document) -> list[int]:
    """The leaves that the batch after this document reads before all others."""
    return early_leaves(job.plan, job.files) if start["batch"] < 0 or start.get("early") else []


def divided(parts: Sequence[Part], inputs: Mapping[int, Input], tasks: int, few: int = FEW_ROWS) -> list[Part]:
    """The parts, those that are more than a task's share cut into shares. `inputs`: of the leaves whose times are known
    without reading their rows."""
    most = max(few, -(-sum(p.last - p.first for p in parts) // tasks))
    made: list[Part] = []
    for part in parts:
        rows = part.last - part.first
        source, pieces = inputs.get(part.leaf), -(-rows // most)
        if source is None or pieces < 2:
            made.append(part)
            continue
        places = [part.first + rows * n // pieces for n in range(pieces + 1)]
        for first, last in pairwise(places):
            share = replace(part, first=first, last=last, floor=_highest(source, part, first))
            made.append(share if last == part.last else replace(share, ended=False, idle=False))
    return made


def _highest(source: Input, part: Part, before: int) -> int:
    """The highest time of a part's records before an offset."""
    if before == part.first:
        return NEVER
    found = source.time_after(part.partition, part.first, before - part.first)
    assert found is not None, "records that are planned to be read are there"
    return found


def shared_out(parts: Sequence[Part], partitions: int, tasks: int) -> list[list[Part]]:
    """A task per source partition, and as many as there are, but few tasks for few rows."""
    rows = sum(p.last - p.first for p in parts)
    count = min(len(parts), max(partitions, tasks), 1 + rows // FEW_ROWS)
    shares: list[list[Part]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(parts, key=lambda p: (p.first - p.last, p.leaf, p.partition, p.first)):
        least = sizes.index(min(sizes))
        shares[least].append(part)
        sizes[least] += part.last - part.first
    return [x for x in shares if x]


def _chunks(text: str, job: Job, slice: Slice) -> Iterator[Chunk]:
    inputs = inputs_of(text)
    if job.order is not None:
        assert slice.marks is not None
        yield from chunks_in_order(job, inputs, slice.parts, slice.marks)
        return
    for part in slice.parts:
        rank = job.ranks[f"{part.leaf}/{part.partition}"]
        decoded = inputs[part.leaf].read(part.partition, part.first, part.last)
        chunk = Chunk(part.leaf, part.partition, rank, decoded, early=part.early, floor=part.floor)
        yield replace(chunk, idle=part.idle, closed=part.ended)


def blobs(job: Job, chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
    """Chunks as blobs for the stages they are for."""
    piece = Piece(SOURCE)
    steps: list[pl.DataFrame] = []
    read: dict[str, int] = {}
    moved: dict[str, list[dict[str, Any]]] = {}
    while True:
        with piece.watch:
            chunk = next(chunks, None)
            if chunk is None:
                break
            with spent("key"):
                made = ingested(job.plan, chunk)
            source = job.plan.leaves[chunk.leaf].source
            name = source.name
            if made.steps.height:
                steps.append(made.steps)
            if (
                job.order is None
                and (highest := measured.highest_of(source, made.steps, made.rows, chunk.partition)) is not None
            ):
                moved.setdefault(source.topic, []).append(highest)
            leaf, came = chunk.leaf, chunk.decoded.rows.height
            del chunk  # so that its rows are not held beside those made of them
            read[name] = read.get(name, 0) + came
            out = list(_of_chunk(job, leaf, made))
            piece.came(came)
            piece.went(made.rows.height, sum(columns.size(b.blob) for b in out))
            with spent("pack"):
                packed = columns.batch(out)
        if out:
            yield packed
    last = []
    if steps:
        with piece.watch:
            last = _to_all_buckets(job, pl.concat(steps))
    if read:
        said = {"read": read, "moved": moved, **task_metrics.report(job, piece)}
        last.append(columns.counts(job.last, job.out_ids[0], said))
    if last:
        yield columns.batch(last)


def _of_nothing(job: Job) -> list[Blob]:
    """The rows with which steps begin."""
    return [
        Blob(stage.number, number, job.ids[stage.number][b], columns.ROWS, columns.dumps(part, 0, job.wire))
        for stage, number, row in first_rows(job.plan)
        for b, part in split(row, job.buckets, stage)
    ]


def _of_chunk(job: Job, leaf: int, made: Ingested) -> Iterator[Blob]:
    stage = job.plan.stages[job.plan.leaves[leaf].stage]
    left_out = derived(job.plan.leaves[leaf], made.rows.height, hashed=job.wire is not None)
    for b, part in split(made.rows, job.buckets, stage, left_out):
        yield Blob(stage.number, leaf, job.ids[stage.number][b], columns.ROWS, columns.dumps(part, 0, job.wire))
    if made.dropped.height:
        yield Blob(job.last, 0, job.out_ids[0], columns.DROPS, columns.dumps(made.dropped))


def _to_all_buckets(job: Job, steps: pl.DataFrame) -> list[Blob]:
    """Every bucket of a stage with clocks, or whose rows several tasks write, gets every step: from its task, where
    that knows its buckets."""
    text = columns.dumps(slim_steps(steps), 0, job.wire)
    made = []
    for stage in (x for x in job.plan.stages if clocked(x) or ranged(job, x)):
        keys = job.ids[stage.number][:1] if stage.single else job.ids[stage.number]
        if job.checkpoint is not None:
            keys = tuple({columns.spark_partition(key, job.tasks): key for key in keys}.values())
        made += [Blob(stage.number, 0, key, columns.STEPS, text) for key in keys]
    return made
