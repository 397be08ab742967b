"""A stage on Spark: `stage.bucket.run_stage` for one bucket and batch, with what the batch before has kept.

In: the blobs of a task's buckets. Out: blobs for the next stage or the writer; what later stages open passes.
Rule: nothing is computed here. A bucket's state is a small document and the runs that it names (`runs`). Where the
checkpoint is ours, documents travel to the driver beside the counts and are read from its file (`state_file`); where it
is the user's, Spark calls `handle` bucket by bucket and keeps the document. What several buckets send to one task is
held packed on a shelf, beyond `SPILL` bytes in a file of the node, and merged by position, with one piece of each
bucket open at a time.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row

from braid.lower.physical import Stage
from braid.operators.changes import HASH, POS, POS_TYPE, SUB
from braid.operators.pairing import piece_rows, pieces
from braid.spark import columns, task_metrics
from braid.spark.columns import Blob
from braid.spark.job import Job, fused, loads, ranged, stateless
from braid.spark.runs import MapState, StoreRuns
from braid.stage import state_file
from braid.stage.bucket import BucketState, Keepless, Outcome, in_turn, run_stage, whole_epochs
from braid.stage.checkpoint_runs import CheckpointRuns, Packing, packing_of, renamed
from braid.stage.emit import merged, projected
from braid.stage.ingest import clocked
from braid.stage.materialized import Keeper, keeper
from braid.stage.measured import Piece
from braid.stage.run_files import run_prefix
from braid.stage.wire import Exchanging, full, full_steps, parted, split
from braid.timing import spent

FEW = 4  # pieces of a bucket that are opened at once
SPILL = 64 << 20  # packed bytes
PIECE = 250_000  # rows made to text at once
MANY = 2  # pieces
MANY_BYTES = 128 << 20  # of one epoch, at once


@dataclass(frozen=True, slots=True)
class Share:
    """One of `shares` shares of the keys."""

    number: int
    shares: int

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        # buckets are told apart by the low bits of the hash
        return rows.filter((pl.col(HASH).fill_null(0) // (1 << 32)) % self.shares == self.number)


class Shelf:
    """Packed rows by bucket; those beyond `SPILL` bytes lie in a file of the node that has no name.
    `folder`: that of large frames."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self.rows = self.size = self._held = 0
        self._piles: dict[int, list[tuple[int, bytes | tuple[int, int]]]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, blob: Blob, bucket: int) -> None:
        """Takes a piece of what comes from a bucket."""
        self.rows += columns.height(blob.blob)
        self.size += columns.size(blob.blob)
        self._held += len(blob.blob)
        where: bytes | tuple[int, int] = blob.blob
        if self._held > SPILL:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="braid-spill-")  # noqa: SIM115 (closed by `__exit__`)
            where = (self._file.seek(0, os.SEEK_END), self._file.write(blob.blob))
        self._piles.setdefault(bucket, []).append((columns.piece(blob.blob), where))

    @property
    def few(self) -> bool:
        """Whether each bucket's rows are few pieces, so that there is room for all of them: packed bytes say little."""
        return all(len(pile) <= FEW for pile in self._piles.values())

    def piles(self, share: Share | None = None) -> list[Iterator[pl.DataFrame]]:
        """The rows of each bucket, piece by piece in their order, each opened when it is asked for. `share`: of these
        only a share of the keys."""
        opened = self._open if share is None else lambda where: share.of(self._open(where))
        return [map(opened, [x for _, x in sorted(pile, key=lambda p: p[0])]) for pile in self._piles.values()]

    def _open(self, where: bytes | tuple[int, int]) -> pl.DataFrame:
        if isinstance(where, bytes):
            return columns.loads(where, self.folder)
        assert self._file is not None
        start, size = where
        self._file.seek(start)
        return columns.loads(self._file.read(size), self.folder)


def in_pieces(shelf: Shelf, share: Share | None = None) -> Iterator[pl.DataFrame]:
    """The rows of all buckets, each in order, as frames that follow each other in order, neither of many rows nor of
    many bytes. `share`: see `Shelf.piles`."""
    if shelf.rows <= PIECE and shelf.size <= MANY_BYTES and shelf.few:
        with spent("sort"):
            whole = merged([frame for pile in shelf.piles(share) for frame in pile])
        if whole.height:
            yield whole
        return
    heads = [_Head(pile) for pile in shelf.piles(share)]
    while heads := [head for head in heads if head.there()]:
        with spent("sort"):
            end = min((head.end() for head in heads), key=_in_order)
            piece = merged([head.upto(end) for head in heads])
        for rows in pieces(piece.height, min(PIECE, piece_rows([piece]))):
            yield piece[rows]


Place = tuple[int, bytes | None]  # `_pos` and `_sub`; no `_sub` stands last at its position


def _in_order(place: Place) -> tuple[int, bool, bytes]:
    pos, sub = place
    return pos, sub is None, sub or b""


class _Head:
    """The open piece of a bucket's rows: what is left of it."""

    def __init__(self, pile: Iterator[pl.DataFrame]) -> None:
        self._pile = pile
        self._frame = pl.DataFrame()

    def there(self) -> bool:
        """Whether rows are left; opens the next piece where the last is used up."""
        while not self._frame.height:
            found = next(self._pile, None)
            if found is None:
                return False
            self._frame = found
        return True

    def end(self) -> Place:
        return self._frame[POS][-1], self._frame[SUB][-1]

    def upto(self, end: Place) -> pl.DataFrame:
        """Takes the rows up to a place."""
        pos, sub = end
        place = pl.Series([pos], dtype=POS_TYPE)
        count = int(self._frame[POS].search_sorted(place, side="right")[0])
        if sub is not None:
            first = int(self._frame[POS].search_sorted(place, side="left")[0])
            up_to_it = self._frame[SUB].slice(first, count - first) <= pl.Series([sub], dtype=pl.Binary)
            count = first + int(up_to_it.sum() or 0)
        taken, self._frame = self._frame.head(count), self._frame.slice(count)
        return taken


def of_epochs(shelf: Shelf, made: Callable[[pl.DataFrame], Iterator[pl.DataFrame]]) -> Iterator[pl.DataFrame]:
    """What is made of the rows, whole epochs at a time; where they are many, or large, a share of the keys at a time,
    since one epoch may hold them all."""
    shares = max(-(-shelf.rows // (MANY * PIECE)), -(-shelf.size // MANY_BYTES))
    if shares < 2:
        for rows in whole_epochs(in_pieces(shelf)):
            yield from made(rows)
        return
    with Shelf(shelf.folder) as results:
        for number in range(shares):
            epochs = whole_epochs(in_pieces(shelf, Share(number, shares)))
            cut = (
                frame[rows] for x in epochs for frame in made(x) for rows in pieces(frame.height, _part(frame, shares))
            )
            for piece, frame in enumerate(cut):
                results.put(Blob(0, 0, number, columns.ROWS, columns.dumps(frame, piece, shelf.folder)), number)
        yield from in_pieces(results)


def _part(frame: pl.DataFrame, shares: int) -> int:
    """How many rows are a piece where one of each share is open."""
    by_bytes = MANY_BYTES * frame.height // max(1, int(frame.estimated_size()))
    return max(1, min(MANY * PIECE, by_bytes) // shares)


def _is_much(frames: Sequence[pl.DataFrame]) -> bool:
    return sum(x.height for x in frames) > MANY * PIECE or sum(x.estimated_size() for x in frames) > MANY_BYTES


def held_by_epochs(
    folder: str | None, pieces: Iterator[pl.DataFrame], made: Callable[[pl.DataFrame], Iterator[pl.DataFrame]]
) -> Iterator[pl.DataFrame]:
    """What is made of pieces, whole epochs at a time; where one epoch has very many rows, it and all that follows goes
    through a shelf. `folder`: that of large frames."""
    held: list[pl.DataFrame] = []
    for piece in pieces:
        held = [*held, piece]
        if len(held) > 1 and _is_much(held):
            break
        *whole, last = whole_epochs(held)
        for rows in whole:
            yield from made(rows)
        held = [last]
    else:
        for rows in held:
            yield from made(rows)
        return
    with Shelf(folder) as shelf:
        for number, rows in enumerate(chain(held, pieces)):
            shelf.put(Blob(0, 0, 0, columns.ROWS, columns.dumps(rows, number, folder)), 0)
        yield from of_epochs(shelf, made)


# ---------------------------------------------------------------------- stages


BlobRow = Row(*columns.ARROW.names)
MANIFEST = ("manifest",)  # its name in Spark's state store; runs have longer ones
TOGETHER = 64  # blobs that leave at once


def batch_id() -> int:
    """The number of the micro-batch that this task works for."""
    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty("streaming.sql.batchId"))


def checkpoint_id() -> str:
    """Spark's id of the query, which lives and dies with its checkpoint: state runs of another one are never met."""
    context = TaskContext.get()
    assert context is not None
    return str(context.getLocalProperty("sql.streaming.queryId")).replace("-", "")


def in_task(text: str, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A stage on a task's blobs, for mapInArrow."""
    out: list[Blob] = []
    for blob in through(loads(text), number, columns.blobs_of(batches)):
        out.append(blob)
        if len(out) == TOGETHER:
            yield columns.batch(out)
            out = []
    if out:
        yield columns.batch(out)


def through(job: Job, number: int, blobs: Iterable[Blob]) -> Iterator[Blob]:
    """A stage on a task's blobs, bucket by bucket; one without state on all at once, whatever their buckets."""
    stage, mine = job.plan.stages[number], dict[int, list[Blob]]()
    passing = stateless(stage)
    packing = None if job.epoch is None else packing_of(job.epoch.checkpoint, job.epoch.number, batch_id())
    told: list[tuple[int, dict[str, Any]]] = []
    kept, steps = Kept(), list[Blob]()
    for blob in blobs:
        if blob.stage == number and blob.kind == columns.STEPS and not passing:
            steps.append(blob)
        elif blob.stage == number:
            mine.setdefault(0 if passing else job.ids[number].index(blob.bucket), []).append(blob)
        else:
            yield blob
    for blob in steps:
        for bucket in _of_task(job.ids[number][: 1 if stage.single else None], job.tasks, blob.bucket):
            mine.setdefault(bucket, []).append(blob)
    for bucket in sorted(mine):
        piece, given = Piece(number, None if passing else bucket), in_any_order(mine.pop(bucket))
        with piece.watch:
            if passing:
                out, said = run(job, stage, 0, BucketState(Keepless()), given, "", piece)
            else:
                out, said = _with_files(job, stage, bucket, given, piece, packing, kept)
        yield from out
        told.append((bucket, said | task_metrics.report(job, piece, number == fused(job))))
    names = packing.send() if packing is not None else {}
    if kept.documents:  # the first bucket says it of all
        state = state_file.said_of(kept.documents, kept.same)
        told[0] = told[0][0], told[0][1] | (renamed(state, names) if names else state)
    for bucket, said in told:
        yield columns.counts(job.last, job.after(stage, bucket), said)


@functools.lru_cache(maxsize=16)
def _of_task(ids: tuple[int, ...], tasks: int, key: int) -> Sequence[int]:
    """The buckets of the task that works for the one with this key."""
    mine = columns.spark_partition(key, tasks)
    return [bucket for bucket, other in enumerate(ids) if columns.spark_partition(other, tasks) == mine]


@dataclass(slots=True)
class Kept:
    """What a task's buckets keep, by place; `same`: those that keep what they have kept before."""

    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    same: set[str] = field(default_factory=set)


def in_any_order(blobs: Iterable[Blob]) -> list[Blob]:
    """Blobs in one order, in whichever they came: what is made of them is the same, byte for byte."""
    return sorted(blobs, key=lambda b: (b.kind, b.frame, b.blob))


def _with_files(
    job: Job, stage: Stage, bucket: int, blobs: Sequence[Blob], piece: Piece, packing: Packing | None, kept: Kept
) -> tuple[list[Blob], dict[str, Any]]:
    """One bucket's batch, with its state in files of the checkpoint."""
    assert job.checkpoint is not None
    batch, place = batch_id(), state_file.place(stage.number, bucket)
    with spent("state_read"):
        before = state_file.texts(job.checkpoint, batch - 1, f"{job.run}/{job.buckets}")
        runs = CheckpointRuns(job.checkpoint, place, job.durable, packing)
        state = BucketState.loads(before.get(place), runs)
        prefix = _prefix(job, stage, bucket, before.get(place), blobs)
    out, said = run(job, stage, bucket, state, blobs, prefix, piece)
    kept.documents[place] = document = state.document()
    if before.keeps(place, document):
        kept.same.add(place)
    return out, said


def _prefix(job: Job, stage: Stage, bucket: int, before: str | None, blobs: Iterable[Blob]) -> str:
    """Begins the ids of the runs of this attempt. A copy of the store may go on otherwise in the same workers, by
    another plan or with other records: all that a run is made of is in its name, the state before it by the runs in
    that."""
    given = (job.fingerprint.encode(), (before or "").encode(), *(b.blob for b in blobs))
    return run_prefix(checkpoint_id(), batch_id(), stage.number, bucket, given)


def handle(text: str, number: int, key: int, rows: Iterable[Any], kept: MapState) -> Iterator[Row]:
    """One bucket's batch; `kept` is its state in Spark's state store."""
    job = loads(text)
    stage, ids = job.plan.stages[number], job.ids[number]
    bucket = ids.index(key) if key in ids else -1  # -1: a key of another stage, whose rows only pass
    piece = Piece(number, bucket)
    mine: list[Blob] = []
    for row in rows:
        if row.stage == number:
            mine.append(Blob(row.stage, row.frame, row.bucket, row.kind, bytes(row.blob)))
        else:
            yield row
    if not mine:
        return
    mine = in_any_order(mine)
    with piece.watch:
        with spent("state_read"):
            found = kept.getValue(MANIFEST)
            before = found[0] if found else None
            state = BucketState.loads(before, StoreRuns(kept, job.cache))
            prefix = _prefix(job, stage, bucket, before, mine)
        out, _ = run(job, stage, bucket, state, mine, prefix, piece)
        with spent("state_write"):
            after = state.dumps()
            if after != before:
                kept.updateValue(MANIFEST, (after,))
    for blob in out:
        yield BlobRow(blob.stage, blob.frame, blob.bucket, blob.kind, blob.blob)


@functools.lru_cache(maxsize=4)
def _steps(blobs: tuple[bytes, ...], folder: str | None) -> list[pl.DataFrame]:
    """Clock steps: the same for all buckets of a batch, so opened once, and one clock function is made of them."""
    with spent("unpack"):
        return [full_steps(columns.loads(blob, folder)) for blob in blobs]


def _texts_of(blobs: Iterable[Blob], kind: int) -> tuple[bytes, ...]:
    return tuple(sorted(blob.blob for blob in blobs if blob.kind == kind))


def _rows(job: Job, blob: Blob) -> pl.DataFrame:
    with spent("unpack"):
        rows = columns.loads(blob.blob, job.wire)
        return full(job.plan.leaves[blob.frame], rows) if blob.frame < len(job.plan.leaves) else rows


def run(
    job: Job, stage: Stage, bucket: int, state: BucketState, blobs: Sequence[Blob], prefix: str, piece: Piece
) -> tuple[list[Blob], dict[str, Any]]:
    """The stage on its blobs; what it has to say of the batch."""
    if in_turn(job.plan, stage):
        outcome, came = _in_turn(job, stage, state, [blob for blob in blobs if blob.kind == columns.ROWS], prefix)
    else:
        outcome, came = _at_once(job, stage, state, blobs, prefix)
    piece.came(came, sum(columns.size(b.blob) for b in blobs))
    kept = keeper(job.plan, stage, state, prefix)
    bounds = _bounds(_texts_of(blobs, columns.STEPS), job.wire, job.ranges) if ranged(job, stage) else None
    out = list(_rows_out(job, stage, bucket, outcome, kept, bounds))
    if kept is not None:
        with spent("keep"):
            kept.rows.close()
    made = sum(columns.height(b.blob) for b in out)
    own = job.after(stage, bucket)
    drops = outcome.dropped
    if drops.height:
        out.append(Blob(job.last, 0, own, columns.DROPS, columns.dumps(drops)))
    piece.went(made, sum(columns.size(b.blob) for b in out), outcome.rows)
    return out, {"counts": outcome.counts} if outcome.counts else {}


def _at_once(job: Job, stage: Stage, state: BucketState, blobs: Sequence[Blob], prefix: str) -> tuple[Outcome, int]:
    """The stage on all rows of the batch; how many they are."""
    frames: dict[int, list[pl.DataFrame]] = {}
    for blob in blobs:
        if blob.kind == columns.ROWS:
            frames.setdefault(blob.frame, []).append(_rows(job, blob))
    steps = _steps(_texts_of(blobs, columns.STEPS), job.wire) if clocked(stage) else []
    held = functools.partial(held_by_epochs, job.wire)
    outcome = run_stage(job.plan, stage, state, frames, steps, prefix, held)
    return outcome, sum(f.height for x in frames.values() for f in x)


def _in_turn(job: Job, stage: Stage, state: BucketState, blobs: Sequence[Blob], prefix: str) -> tuple[Outcome, int]:
    """The same, some epochs at a time; of very many rows a share of the keys at a time."""
    shelf, whole = Shelf(job.wire), Outcome()
    for blob in blobs:
        shelf.put(blob, columns.origin(blob.blob))

    def made(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        outcome = run_stage(job.plan, stage, state, {blobs[0].frame: [rows]}, [], prefix)
        yield from (rows for _, rows in outcome.frames)
        whole.take(outcome)

    def frames() -> Iterator[tuple[int, pl.DataFrame]]:
        with shelf:
            if shelf.rows:
                yield from ((stage.leaving[0], rows) for rows in of_epochs(shelf, made))

    whole.frames = frames()
    return whole, shelf.rows


def for_writers(
    job: Job, bucket: int, key: int, rows: pl.DataFrame, bounds: pl.Series | None
) -> Iterator[tuple[int, int, pl.DataFrame]]:
    """(pile, Spark's key, rows): all to one writer, or to those of ranges, or on a broker with several partitions to
    those of each."""
    if not rows.height:
        return
    if job.output.by_bytes and job.output.partitions > 1:
        count = job.output.partitions
        for partition, part in parted(rows, job.output.partition_of(rows, job.plan.query.sink), count):
            yield bucket * count + partition, job.out_ids[partition], part
        return
    if bounds is None:
        yield bucket * job.ranges, key, rows
        return
    number = pl.Series(np.zeros(rows.height, dtype=np.int64))
    for bound in bounds:
        number += (rows[POS] >= bound).cast(pl.Int64)
    partitions = job.output.partitions
    for n, part in parted(rows, number, job.ranges):
        yield bucket * job.ranges + n, job.range_ids[n * partitions + bucket % partitions], part


@functools.lru_cache(maxsize=4)
def _bounds(blobs: tuple[bytes, ...], folder: str | None, ranges: int) -> pl.Series | None:
    """Positions that part a batch into ranges of about equally many rows, as its clock steps lie: the same for all
    buckets."""
    steps = _steps(blobs, folder)
    if not steps:
        return None
    found = pl.concat([x[POS] for x in steps]).sort()
    return found.gather([len(found) * n // ranges for n in range(1, ranges)])


def _in_parts(frames: Iterable[tuple[int, pl.DataFrame]]) -> Iterator[tuple[int, pl.DataFrame]]:
    """The same rows, in frames of no more than some bytes."""
    for number, frame in frames:
        if frame.estimated_size() <= MANY_BYTES:
            yield number, frame
        else:
            yield from ((number, frame[rows]) for rows in pieces(frame.height, piece_rows([frame])))


def _rows_out(
    job: Job, stage: Stage, bucket: int, outcome: Outcome, kept: Keeper | None, bounds: pl.Series | None
) -> Iterator[Blob]:
    """The stage's rows as blobs, piece by piece; what is lost on the way is told to `outcome`. `bounds`: of the ranges
    that writers write."""
    if not stage.exchanges:
        key, why = job.after(stage, bucket), job.output.untaken()
        for piece, (_, frame) in enumerate(_in_parts(outcome.frames)):
            with spent("project"):
                out, lost = projected(job.plan, frame, why)
            outcome.lost.append(lost)
            if kept is not None:
                with spent("keep"):
                    kept.take(out)
            for pile, to, part in for_writers(job, bucket, key, out, bounds):
                yield Blob(job.last, pile, to, columns.ROWS, columns.dumps(part, piece, job.wire))
        return
    going = [(x, job.plan.stages[x.stage], Exchanging(x)) for x in stage.exchanges]
    for piece, (number, frame) in enumerate(_in_parts(outcome.frames)):
        for target, exchanging in ((to, how) for x, to, how in going if x.source == number):
            with spent("project"):
                rows, lost = exchanging.piece(frame)
            outcome.lost.append(lost)
            for b, part in split(rows, job.buckets, target):
                text = columns.dumps(part, piece, job.wire, bucket)
                yield Blob(target.number, number, job.ids[target.number][b], columns.ROWS, text)
