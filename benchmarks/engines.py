"""What runs a variant: Braid on Spark, Braid's operators in a loop without Spark, Spark's own query.

In: a plan or a streaming DataFrame, files, sizes. Out: a `Run`: the rows and the time of each micro-batch, rows out.
Rule: each reads the same files with its own reader and ends when they are read. Nothing is kept between runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.harness import Batch, Run, Sizes
from braid.plan.lower import lower
from braid.plan.physical import Plan
from braid.program import Program
from braid.runtime.batch import Chunk
from braid.runtime.cut import Cut, beginning, ended_now, plan_batch
from braid.runtime.files import open_files
from braid.runtime.inputs import Input
from braid.runtime.local import LocalQuery

BUCKETS = 8
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STORES = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def plan_of(sql: str, dialect: str = "ksqldb") -> Plan:
    """The plan of the last query in a text."""
    return lower([e.query for e in Program(dialect).statements(sql) if e.query is not None][-1])


def session(sizes: Sizes, master: str | None = None) -> Any:
    from braid.spark.conf import session as braid_session

    conf = {"spark.driver.memory": sizes.memory, "spark.sql.streaming.numRecentProgressUpdates": "100000"}
    return braid_session(master or f"local[{sizes.cores}]", conf)


# ------------------------------------------------------------- Braid on Spark


def on_spark(
    spark: Any,
    plan: Plan,
    data: Path,
    folder: Path,
    sizes: Sizes,
    *,
    limit: int | None = None,
    cores: int | None = None,
    sink: str = "none",
) -> Run:
    """Over files: each source reads the folder of its name; results go nowhere."""
    from braid.spark.job import Files, Output
    from braid.spark.query import start

    cores = cores or sizes.cores
    files = {leaf.source.name: Files(pattern(data, leaf.source.name)) for leaf in plan.leaves}
    running = start(
        spark, plan, str(folder / "store"), files=files, output=Output(sink, str(folder / "rows"), cores),
        buckets=BUCKETS, tasks=cores, limit=limit or sizes.batch, trigger={"availableNow": True},
    )  # fmt: skip
    running.await_termination()
    return run_of(running)


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
    return Run(tuple(batches), running.progress().rows_out)


def _records(offset: Any) -> int:
    found = json.loads(offset) if isinstance(offset, str) else offset
    return sum(found["next"].values()) if found else 0


# ---------------------------------------------------------------- no Spark


def in_a_loop(plan: Plan, data: Path, folder: Path, limit: int, buckets: int = BUCKETS) -> Run:
    """Braid's own operators over the same files, in this process and one thread, state in memory: what Braid on Spark
    could reach if Spark cost nothing. Reading is part of a step, as it is on Spark."""
    sources = {leaf.number: leaf.source for leaf in plan.leaves}
    inputs: dict[int, Input] = {
        n: open_files(source, pattern(data, source.name), folder / "times") for n, source in sources.items()
    }
    return loop_over(plan, inputs, [n for n, s in sources.items() if s.kind == "table"], limit, buckets)


def loop_over(plan: Plan, inputs: Mapping[int, Input], early: list[int], limit: int, buckets: int = BUCKETS) -> Run:
    names = [f"{leaf}/{p}" for leaf, x in sorted(inputs.items()) for p in range(x.partitions)]
    ranks = {name: rank for rank, name in enumerate(sorted(names, key=lambda n: int(n.split("/")[0]) not in early))}
    local, at, batches, out = LocalQuery(plan, 1, buckets), beginning(), [], 0
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


def _chunks(inputs: Mapping[int, Input], ranks: Mapping[str, int], at: Cut, end: Cut, early: list[int]) -> list[Chunk]:
    ended = ended_now(at, end)
    made = []
    for name, last in end["next"].items():
        first, (leaf, partition) = at["next"].get(name, 0), map(int, name.split("/"))
        if last > first or name in ended:
            decoded = inputs[leaf].read(partition, first, last)
            whole = leaf in early and first == 0
            made.append(Chunk(leaf, partition, ranks[name], decoded, ended=name in ended, early=whole))
    return made


# ------------------------------------------------------------- Spark's own


def spark_files(spark: Any, data: Path, side: str, late: str = "5 seconds") -> Any:
    """A side as Spark reads it: one file a batch."""
    schema = "k long, k2 long, t long, v long, s string, ts timestamp"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(data / side))
    return stream.withWatermark("ts", late).alias(side)


def spark_run(frame: Any, folder: Path, sink: str = "noop", **options: str) -> Run:
    """Spark's query to its end."""
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(folder / "checkpoint")).options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.recentProgress
    batches = [Batch(p["numInputRows"], p["durationMs"]["triggerExecution"]) for p in progress if p["numInputRows"]]
    return Run(tuple(batches), sum(max(p["sink"]["numOutputRows"], 0) for p in progress))


@contextmanager
def settings(spark: Any, wanted: Mapping[str, str]) -> Any:
    """The session's settings while the block runs; a query takes a copy when it starts."""
    before = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
