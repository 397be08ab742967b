"""A job as one streaming DataFrame of Spark: source, stages and writer put together.

In: a job, the session, registered DataFrames. Out: a DataFrame whose every batch is the batch of the query.
Rule: one scan for all that Braid reads itself, and an exchange only in front of a stage that keeps something.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from braid.files.watch import Note
from braid.lower.physical import Plan
from braid.spark import job as jobs
from braid.spark.conf import keep_state
from braid.spark.dataframes import Registered, packed, result_schema, unpack
from braid.spark.entry import FORMAT, SCHEMA, BraidSource, StageProcessor
from braid.spark.job import Job, fused, stateless
from braid.spark.preparing import loose
from braid.spark.stage import in_task
from braid.spark.writer import MANIFEST, write_batches
from braid.topics.begin import UNASKED, Begins
from braid.topics.store_value import Store

MANY = 4  # times as many tasks as cores


def result_frame(
    spark: SparkSession,
    plan: Plan,
    store: Store,
    frames: Mapping[str, Registered],
    begins: Begins = UNASKED,
    note: Note = print,
) -> DataFrame:
    """A query's result as a streaming DataFrame. Who starts it gives the checkpoint; it must be started with the
    session's number of shuffle partitions. `note` is told where these are far more than cores."""
    tasks, cores = int(str(spark.conf.get("spark.sql.shuffle.partitions"))), spark.sparkContext.defaultParallelism
    job = loose(plan, store, tasks, frozenset(frames), begins)
    if tasks > MANY * cores and not all(stateless(s) for s in plan.stages):
        note(
            f"this session has {tasks} shuffle partitions for {cores} cores, and each costs this result half a second a"
            f" batch: spark.conf.set('spark.sql.shuffle.partitions', {cores}) before session.sql"
        )
    text = jobs.dumps(job)
    keep_state(spark)
    frame = through(read(spark, job, text, frames), job, text)
    return frame.mapInArrow(functools.partial(unpack, text, fused(job)), result_schema(plan.query))


def read(spark: SparkSession, job: Job, text: str, frames: Mapping[str, Registered]) -> DataFrame:
    """Blobs of all inputs: one scan for all that Braid reads itself, and each registered DataFrame."""
    parts = []
    if len(job.frames) < len(job.plan.leaves):
        spark.dataSource.register(BraidSource)
        parts.append(spark.readStream.format(FORMAT).option("job", text).load())
    for leaf in sorted(n for n in job.frames if not job.plan.leaves[n].spared):
        parts.append(packed(frames[job.plan.leaves[leaf].source.name], leaf, text))
    return functools.reduce(DataFrame.unionByName, parts)


def through(frame: DataFrame, job: Job, text: str) -> DataFrame:
    """Blobs of the source through all stages but one that the writer runs."""
    last = fused(job)
    for stage in job.plan.stages:
        if stage.number == last:
            break
        if job.checkpoint is None and not stateless(stage):
            processor = StageProcessor(text, stage.number)
            frame = frame.groupBy("bucket").transformWithState(processor, SCHEMA, "Append", "None")
            continue
        if not stateless(stage):
            frame = frame.repartition(job.tasks, "bucket")
        frame = frame.mapInArrow(functools.partial(in_task, text, stage.number), SCHEMA)
    return frame


def written(frame: DataFrame, job: Job, text: str) -> DataFrame:
    """The writer, in the task of the last stage where output partitions line up with buckets."""
    last = fused(job)
    if last is not None or job.gathered:
        frame = frame.repartition(job.tasks, "bucket")
    return frame.mapInArrow(functools.partial(write_batches, text, last), MANIFEST)


def collected(manifest: DataFrame) -> list[tuple[str, str]]:
    """A batch's few rows, asked of the JVM itself: each `collect` or `toArrow` of PySpark opens a socket, whose path
    the JVM keeps until it ends, to delete it then."""
    plan = manifest._jdf.queryExecution().executedPlan()
    return [(row.getString(0), row.getString(1)) for row in plan.executeCollectPublic()]
