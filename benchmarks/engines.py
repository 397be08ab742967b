"""What runs a variant: Braid on Spark, Braid's operators in a loop without Spark, Spark's own query.

In: a plan or a streaming DataFrame, files, sizes. Out: a `Run`: the rows and the time of each micro-batch, rows out.
Rule: each reads the same files with its own reader and ends when they are read. Nothing is kept between runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import polars as pl

from benchmarks.harness import Batch, Run, Sizes, Variant, steady, take_turns
from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.files.input import open_files
from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.records.registry import Registry
from braid.stage.call_order import partition_ranks
from braid.stage.cut import Cut, beginning, ended_now, plan_batch
from braid.stage.ingest import Chunk
from braid.stage.inputs import Input, TopicInput
from braid.stage.local import LocalQuery
from braid.stage.measured import Measured
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.broker import Broker
from braid.topics.store_value import Store

BRAID, LOOP, SPARK = "Braid on Spark", "Braid's operators in a loop, no Spark", "Spark, state in memory"
BUCKETS = 4  # what Braid takes by itself
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STORES = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def plan_of(sql: str, dialect: str = "ksqldb", registry: Registry | None = None) -> Plan:
    """The plan of the last query in a text. `registry`: of the formats that have schemas."""
    program = Program(dialect, Catalog(registry=registry))
    return lower([e.query for e in program.statements(sql) if e.query is not None][-1])


def session(sizes: Sizes, master: str | None = None, more: Mapping[str, str] | None = None) -> Any:
    from braid.spark.conf import session as braid_session

    conf = {"spark.driver.memory": sizes.memory, "spark.sql.streaming.numRecentProgressUpdates": "100000"}
    return braid_session(master or f"local[{sizes.cores}]", conf | dict(more or {}))


# ------------------------------------------------------------- Braid on Spark


def on_spark(
    spark: Any,
    plan: Plan,
    folder: Path,
    sizes: Sizes,
    *,
    data: Path | None = None,
    store: Path | None = None,
    output: str | None = None,
    limit: int | None = None,
    broker: Broker | None = None,
) -> Run:
    """Braid until its input is read. Sources read the files of their name in `data`, or the topics of `store` or of a
    `broker`; results go to the topic `output`, or nowhere."""
    from braid.sinks.kafka import KafkaSink
    from braid.sinks.nothing import NoSink
    from braid.sinks.topic import TopicSink
    from braid.spark.query import start
    from braid.spark.query_options import QueryOptions

    to = KafkaSink if broker else TopicSink
    sink = to(output, sizes.cores) if output else NoSink(partitions=sizes.cores)
    options = QueryOptions(
        files=files_of(plan, data) if data else {}, output=sink, checkpoint=opened(str(folder / "checkpoint")),
        tasks=sizes.cores, limit=limit or sizes.batch, trigger={"availableNow": True},
    )  # fmt: skip
    running = start(spark, plan, Store(opened(store or folder / "store"), broker), options)
    running.await_termination()
    return run_of(running)


def files_of(plan: Plan, data: Path) -> dict[str, Any]:
    from braid.files.watch import Files

    return {leaf.source.name: Files(pattern(data, leaf.source.name)) for leaf in plan.leaves}


def pattern(data: Path, source: str) -> str:
    return str(data / source.lower() / "*.parquet")


def run_of(running: Any) -> Run:
    """What Spark says of the batches of a query of ours. Its count of rows is one of blobs; ours is in the offsets."""
    batches = []
    for p in running.launch().recentProgress:
        (source,) = p["sources"]
        rows = _records(source["endOffset"]) - _records(source["startOffset"])
        if rows:
            batches.append(Batch(rows, p["durationMs"]["triggerExecution"]))
    told, parts = running.progress(), parts_of(running.take_batches(over=True), batches)
    return Run(tuple(batches), told.rows_out, parts, told.state_rows, told.state_bytes)


def parts_of(told: Sequence[Measured], batches: Sequence[Batch]) -> dict[str, float]:
    """What a batch's time was spent on, in ms, on average over the steady ones. `around`: Spark's work before and after
    the batch itself: planning, its logs of offsets and commits."""
    kept = [m for m in told if any(b.rows == m.rows_in for b in steady(batches))]
    made: dict[str, float] = {}
    for m in kept:
        for name, share in m.shares().items():
            made[name] = made.get(name, 0.0) + share * m.batch_ms / len(kept)
    return made | {"around": max(0.0, fmean(b.ms for b in steady(batches)) - sum(made.values()))} if kept else {}


def _records(offset: Any) -> int:
    found = json.loads(offset) if isinstance(offset, str) else offset
    return sum(found["next"].values()) if found else 0


# ---------------------------------------------------------------- no Spark


def in_a_loop(plan: Plan, folder: Path, limit: int, *, data: Path | None = None, store: Path | None = None) -> Run:
    """Braid's own operators over the same input, in this process and one thread, state in memory, results thrown away:
    what Braid on Spark could reach if Spark cost nothing. Reading is part of a step, as it is on Spark."""
    inputs: dict[int, Input] = {}
    for leaf in plan.leaves:
        if data is not None:
            files = open_files(leaf.source, pattern(data, leaf.source.name), folder / "times")
            inputs[leaf.number] = files
        else:
            assert store is not None
            inputs[leaf.number] = TopicInput(TopicStore(opened(store)), leaf.source)
    in_files = data is not None
    early = [leaf.number for leaf in plan.leaves if in_files and leaf.source.kind == "table"]
    parts = partition_ranks(plan, {leaf: x.partitions for leaf, x in inputs.items()})
    ranks = {f"{leaf}/{p}": rank for (leaf, p), rank in parts.items()}
    local, at, batches, out = LocalQuery(plan, 1, BUCKETS), beginning(), [], 0
    while True:
        began = perf_counter()
        end = plan_batch(sorted(inputs.items()), at, limit, early, ranks)
        if end is None:
            return Run(tuple(batches), out)
        out += local.results(_chunks(inputs, ranks, at, end, early))[0].height
        rows = sum(end["next"].values()) - sum(at["next"].values())
        if rows:
            batches.append(Batch(rows, 1000 * (perf_counter() - began)))
        at = end


def over_topics(spark: Any, plan: Plan, store: Path, sizes: Sizes) -> dict[str, list[Run]]:
    """Braid and its loop in turns; each gives as many rows as a first loop does."""
    variants: dict[str, Variant] = {
        BRAID: lambda to: on_spark(spark, plan, to, sizes, store=store),
        LOOP: lambda to: in_a_loop(plan, to, sizes.batch, store=store),
    }
    with TemporaryDirectory() as first:
        expected = in_a_loop(plan, Path(first), sizes.batch, store=store).rows_out
    return take_turns(variants, sizes.rounds, expected)


def _chunks(inputs: Mapping[int, Input], ranks: Mapping[str, int], at: Cut, end: Cut, early: list[int]) -> list[Chunk]:
    ended = ended_now(at, end)
    made = []
    for name, last in end["next"].items():
        first, (leaf, partition) = at["next"].get(name, 0), map(int, name.split("/"))
        if last > first or name in ended:
            decoded = inputs[leaf].read(partition, first, last)
            whole = leaf in early and (first == 0 or "early" in at)
            made.append(Chunk(leaf, partition, ranks[name], decoded, ended=name in ended, early=whole))
    return made


# ------------------------------------------------------------- Spark's own

SCHEMA = "k long, k2 long, t long, v long, s string, ts timestamp"


def spark_files(spark: Any, data: Path, side: str, late: str = "5 seconds", schema: Any = SCHEMA) -> Any:
    """A side as Spark reads it: one file a batch."""
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(data / side))
    return stream.withWatermark("ts", late).alias(side)


def spark_run(
    frame: Any, folder: Path, store: str = "memory", json: bool = False, topic: Mapping[str, str] | None = None
) -> Run:
    """Spark's query to its end; results go nowhere, to files of JSON lines, or to a `topic` (options of Kafka's sink).
    `store`: where state lies."""
    from braid.spark.conf import changed

    # the clock of Braid's ksqlDB dialect is the highest time of both sides, so it is here
    with changed(frame.sparkSession, {PROVIDER: STORES[store], "spark.sql.streaming.multipleWatermarkPolicy": "max"}):
        writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        if topic is not None:
            query = writer.format("kafka").options(**topic).start()
        else:
            query = writer.format("json").start(str(folder / "rows")) if json else writer.format("noop").start()
    query.awaitTermination()
    progress = query.recentProgress
    batches = [Batch(p["numInputRows"], p["durationMs"]["triggerExecution"]) for p in progress if p["numInputRows"]]
    if json:
        out = sum(pl.scan_ndjson(f).select(pl.len()).collect().item() for f in (folder / "rows").glob("part-*.json"))
    else:
        out = sum(p["sink"]["numOutputRows"] for p in progress)
    return Run(tuple(batches), out)
