"""The one source of a query: it reads all its topics and files and yields blobs for all stages (`entry.BraidSource`).

In: a job; what lies in its topics and files. Out: one offset document a batch, and for its tasks the rows of every
stage by bucket, clock steps for every bucket, dropped records.
Rule: the same pair of documents gives the same blobs for ever; nothing is written here. One document is one cut through
all inputs, so a query has one scan of it in its plan.

Document: {"batch": n, "next": {"leaf/partition": offset}, "ended": […], "idle": […], "plan": fingerprint}; `ended` are
the partitions that have been closed (`--end`), `idle` those that were silent for their time-out when the batch was
planned; "early" (while tables that are read first take more than a batch): where that ends; "captured" (where there is
a captured table): where each partition of its leaf ended when the query first started. In an explicit order (the test
driver) also "seq" and "marks", see `call_order.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from braid.errors import BraidError
from braid.files.input import FileInput
from braid.spark import call_order, columns
from braid.spark.columns import Blob
from braid.spark.job import Job, inputs_of, loads
from braid.stage import leaps
from braid.stage.batch import Chunk, clocked, ingested
from braid.stage.bucket import split
from braid.stage.cut import Cut, ended_now, plan_batch
from braid.stage.ingest import Ingested
from braid.stage.inputs import Until
from braid.stage.pieces import SOURCE, Piece
from braid.stage.wire import derived, slim_steps
from braid.timing import spent

Document = dict[str, Any]

FEW_ROWS = 20_000  # so many rows are worth a task of their own


@dataclass(frozen=True, slots=True)
class Part:
    """A range of one source partition, read by one leaf."""

    leaf: int
    partition: int
    first: int
    last: int
    ended: bool
    idle: bool
    early: bool


@dataclass
class Slice(InputPartition):  # type: ignore[misc]
    """What one task reads. `marks`: from which to which mark, in an explicit order."""

    parts: tuple[Part, ...]
    marks: tuple[int, int] | None = None


class Planner:
    """Plans a query's batches, in a process beside the driver."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._limits: dict[int, list[int]] | None = None  # of a run that ends where the data ended when it began
        self._watch = call_order.Watch()

    def beginning(self) -> Document:
        job, inputs = loads(self._text), inputs_of(self._text)
        now = {str(leaf): inputs[leaf].ends() for leaf in job.plan.captured if leaf in inputs}
        made: Document = {"batch": -1, "next": {}, "ended": [], "idle": [], "plan": job.fingerprint}
        return made | {"captured": now} if now else made

    def freeze(self) -> None:
        """From now on nothing new is read."""
        self._limits = {leaf: x.ends() for leaf, x in inputs_of(self._text).items()}

    def latest(self, start: Document) -> Document:
        """The document of the next batch; `start` where there is nothing new."""
        job = loads(self._text)
        if start.get("plan") != job.fingerprint:
            raise BraidError("the checkpoint is of another plan", "delete it, or start the query under another name")
        found = self._cut_at_a_time(job, start) if job.order is None else call_order.plan(job, start, self._watch)
        if found is None:
            return start
        kept = {name: x for name, x in start.items() if name != "early"}
        return {**kept, "idle": [], **found, "batch": start["batch"] + 1}

    def _cut_at_a_time(self, job: Job, start: Document) -> Document | None:
        inputs = inputs_of(self._text)
        if self._limits is not None:
            inputs = {leaf: Until(x, self._limits[leaf]) for leaf, x in inputs.items()}
        for leaf, ends in start.get("captured", {}).items():
            inputs = inputs | {int(leaf): Until(inputs[int(leaf)], ends)}
        begin: Cut = {"next": start["next"], "ended": start["ended"]}
        if start.get("early"):
            begin["early"] = start["early"]
        found = plan_batch(sorted(inputs.items()), begin, job.limit, _at_first(job, start), job.ranks, job.close)
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
        parts = parts_of(start, end, _at_first(job, start))
        if job.order is not None:
            done = start.get("marks", 0)
            return [Slice(tuple(parts), (done, end.get("marks", done)))]  # the very first document has none
        return [Slice(tuple(x)) for x in shared_out(parts)]


def read(text: str, slice: Slice) -> Iterator[pa.RecordBatch]:
    """What one task reads, as blobs."""
    job = loads(text)
    yield from blobs(job, _chunks(text, job, slice))


def early_leaves(job: Job) -> list[int]:
    """Tables in files, and captured ones: what is there is read whole, in the first batches, before any stream."""
    in_files = (leaf.number for leaf in job.plan.leaves if leaf.source.kind == "table" and leaf.number in job.files)
    return [*job.plan.captured, *(leaf for leaf in in_files if leaf not in job.plan.captured)]


def _at_first(job: Job, start: Document) -> list[int]:
    """The leaves that the batch after this document reads before all others."""
    return early_leaves(job) if start["batch"] < 0 or start.get("early") else []


def parts_of(start: Document, end: Document, early: Collection[int] = ()) -> list[Part]:
    """What happened in each partition between two documents. `early`: leaves that stand before all others."""
    ended = set(
        ended_now({"next": start["next"], "ended": start["ended"]}, {"next": end["next"], "ended": end["ended"]})
    )
    idle = set(end["idle"])
    parts = []
    for place, last in end["next"].items():
        first = start["next"].get(place, 0)
        if last > first or place in ended or place in idle:
            leaf, partition = place.split("/")
            parts.append(
                Part(int(leaf), int(partition), first, last, place in ended, place in idle, int(leaf) in early)
            )
    return parts


def shared_out(parts: Sequence[Part]) -> list[list[Part]]:
    """A task per source partition, but few tasks for few rows."""
    rows = sum(p.last - p.first for p in parts)
    count = min(len(parts), 1 + rows // FEW_ROWS)
    tasks: list[list[Part]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(parts, key=lambda p: (p.first - p.last, p.leaf, p.partition)):
        least = sizes.index(min(sizes))
        tasks[least].append(part)
        sizes[least] += part.last - part.first
    return [t for t in tasks if t]


def _chunks(text: str, job: Job, slice: Slice) -> Iterator[Chunk]:
    inputs = inputs_of(text)
    if job.order is not None:
        assert slice.marks is not None
        yield from call_order.chunks(job, inputs, slice.parts, slice.marks)
        return
    for part in slice.parts:
        rank = job.ranks[f"{part.leaf}/{part.partition}"]
        decoded = inputs[part.leaf].read(part.partition, part.first, part.last)
        yield Chunk(part.leaf, part.partition, rank, decoded, idle=part.idle, closed=part.ended, early=part.early)


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
                if source.watermark is None and job.order is None:
                    leap = leaps.told(made.steps, chunk.partition)
                    moved.setdefault(source.topic, []).extend([leap] if leap is not None else [])
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
        last.append(columns.counts(job.last, job.out_ids[0], {"read": read, "moved": moved, "spent": piece.told()}))
    if last:
        yield columns.batch(last)


def _of_chunk(job: Job, leaf: int, made: Ingested) -> Iterator[Blob]:
    stage = job.plan.stages[job.plan.leaves[leaf].stage]
    left_out = derived(job.plan.leaves[leaf], made.rows.height, hashed=job.wire is not None)
    for b, part in split(made.rows, job.buckets, stage.single, left_out):
        yield Blob(stage.number, leaf, job.ids[stage.number][b], columns.ROWS, columns.dumps(part, 0, job.wire))
    if made.dropped.height:
        yield Blob(job.last, 0, job.out_ids[0], columns.DROPS, columns.dumps(made.dropped))


def _to_all_buckets(job: Job, steps: pl.DataFrame) -> list[Blob]:
    """Every bucket of a stage with clocks gets every step."""
    text = columns.dumps(slim_steps(steps), 0, job.wire)
    return [
        Blob(stage.number, 0, key, columns.STEPS, text)
        for stage in job.plan.stages
        if clocked(stage)
        for key in (job.ids[stage.number][:1] if stage.single else job.ids[stage.number])
    ]
