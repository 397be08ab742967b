"""A stage on Spark: `runtime.bucket.run_stage` for one bucket and batch, with its state in Spark's state store.

In: the blobs of one bucket. Out: blobs for the next stage or the writer; what later stages are meant to open passes.
Rule: nothing is computed here. State is a manifest (one text, rewritten only where it changed) and the runs it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row

from braid.operators.changes import no_rows
from braid.plan.physical import Stage
from braid.runtime.bucket import BucketState, exchanged, projected, run_stage, split
from braid.runtime.ingest import DROPS, drops_of
from braid.spark import columns
from braid.spark.columns import Blob
from braid.spark.job import Job, loads
from braid.spark.runs import SparkRuns

BlobRow = Row(*columns.ARROW.names)


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


def handle(text: str, number: int, key: int, rows: Iterable[Any], manifest: Any, runs: Any) -> Iterator[Row]:
    """One bucket's batch; `manifest` and `runs` are its state in Spark's state store."""
    job = loads(text)
    mine: list[Blob] = []
    for row in rows:
        if row.stage == number:
            mine.append(Blob(row.stage, row.frame, row.bucket, row.kind, bytes(row.blob)))
        else:
            yield row
    if not mine:
        return
    found = manifest.get()
    before = found[0] if found else None
    state = BucketState.loads(before, SparkRuns(runs, job.cache))
    bucket = job.ids[number].index(key)
    prefix = f"{checkpoint_id()}-{batch_id()}-{number}-{bucket}"
    for blob in run(job, job.plan.stages[number], bucket, state, mine, prefix):
        yield BlobRow(blob.stage, blob.frame, blob.bucket, blob.kind, blob.blob)
    after = state.dumps()
    if after != before:
        manifest.update((after,))


class _NoRuns:
    """The runs of a stage that keeps nothing."""

    def get(self, run: str) -> pl.DataFrame:
        raise AssertionError("a stage without state reads none")

    def put(self, run: str, frame: pl.DataFrame) -> int:
        raise AssertionError("a stage without state writes none")

    def remove(self, run: str) -> None:
        raise AssertionError("a stage without state removes none")


def pass_through(text: str, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A stateless stage, for mapInArrow."""
    out = list(run_stateless(loads(text), number, columns.blobs_of(batches)))
    if out:
        yield columns.batch(out)


def run_stateless(job: Job, number: int, blobs: Iterable[Blob]) -> Iterator[Blob]:
    """A stage without state runs on a task's rows at once, whatever their buckets."""
    mine: list[Blob] = []
    for blob in blobs:
        if blob.stage == number:
            mine.append(blob)
        else:
            yield blob
    if mine:
        yield from run(job, job.plan.stages[number], 0, BucketState(_NoRuns()), mine, "")


def run(job: Job, stage: Stage, bucket: int, state: BucketState, blobs: Iterable[Blob], prefix: str) -> Iterator[Blob]:
    """The stage on its blobs."""
    frames: dict[int, list[pl.DataFrame]] = {}
    steps: list[pl.DataFrame] = []
    for blob in blobs:
        if blob.kind == columns.ROWS:
            frames.setdefault(blob.frame, []).append(columns.loads(blob.blob))
        else:
            steps.append(columns.loads(blob.blob))
    outcome = run_stage(job.plan, stage, state, frames, steps, prefix)
    dropped = [outcome.dropped]
    if not outcome.frame.height:
        pass
    elif stage.exchange is None:
        out, lost = projected(job.plan, outcome.frame)
        if out.height:
            yield Blob(job.last, 0, job.after(stage, bucket), columns.ROWS, columns.dumps(out))
        dropped.append(lost)
    else:
        target = job.plan.stages[stage.exchange.stage]
        rows, lost = exchanged(outcome.frame, stage.exchange)
        for b, part in split(rows, job.buckets, target.single).items():
            key = job.ids[target.number][b]
            yield Blob(target.number, stage.exchange.source, key, columns.ROWS, columns.dumps(part))
        dropped.append(drops_of(lost, "null key", "exchange"))
    own = job.after(stage, bucket)
    drops = pl.concat([no_rows(DROPS), *dropped])
    if drops.height:
        yield Blob(job.last, 0, own, columns.DROPS, columns.dumps(drops))
    said: dict[str, Any] = {"counts": outcome.counts} if outcome.counts else {}
    if state.manifests:
        said["state"] = {f"{stage.number}/{bucket}": state.manifests}
    if said:
        yield columns.counts(job.last, own, said)
