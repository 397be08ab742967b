"""What state costs: batches of 11,000 rows beside little and much of it, and the memory of a worker.

In: a number of rows that stay alive (a window of a week); then small batches. Out: time, CPU and memory of a batch for
each size of state; the memory of a worker beside the Arrow size of what it touches.
Rule: state is built by the query itself, on Spark, in large batches; then it is stopped and goes on from its checkpoint
with small ones, and those are timed. So all state lies where it lies for a user.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import numpy as np
import polars as pl

from benchmarks.data import START, make
from benchmarks.engines import BUCKETS, files_of, on_spark, pattern, plan_of, run_of, session
from benchmarks.harness import Sizes, percentile
from benchmarks.interval import SIDES
from benchmarks.interval import SQL as INTERVAL
from benchmarks.processes import MIB, Peak, cpu_seconds
from benchmarks.report import Goal, Report, Table
from braid.files.input import open_files
from braid.lower.physical import Plan
from braid.stage.ingest import Chunk, ingested
from braid.stage.local import LocalQuery
from braid.store import opened
from braid.topics.store_value import Store

ROWS = 11_000  # of a batch
SPAN = 3 * 24 * 3600 * 1000  # ms over which all rows are spread: within the window

SQL = f"""{SIDES}
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.v AS rv FROM l JOIN r
  WITHIN 7 DAYS GRACE PERIOD 1 DAY ON l.k = r.k;
"""


def run(sizes: Sizes) -> Report:
    report = Report()
    spark = session(sizes)
    _worker(spark, sizes, report)  # first: later a worker has memory that it got for other work
    plan = plan_of(SQL)
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        _timed(spark, plan, 20_000, Path(folder), replace(sizes, state_batches=4))  # warms up
    rows, p50 = [], {}
    for size in sizes.state:
        with TemporaryDirectory(prefix="braid-bench-") as folder:
            cells, p50[size] = _timed(spark, plan, size, Path(folder), sizes)
        print(f"    {size:,} rows of state: p50 {p50[size]:,.0f} ms", flush=True)
        rows.append((f"{size:,}", *cells))
    columns = (
        "rows of state", "MiB of state", "built in s", "batch p50 ms", "p90 ms", "longest ms", "CPU ms a batch",
        "largest worker MiB", "JVM MiB",
    )  # fmt: skip
    text = (
        f"Interval join of a week, inner; {sizes.state_batches} batches of {ROWS:,} rows, the first quarter left out; "
        "about one match a row. A worker's memory is what has no file behind it: state is mapped from files."
    )
    report.tables.append(Table("State", text, columns, tuple(rows)))
    sized = [n for n in sizes.state if n <= 10_000_000]
    if len(sized) > 1:
        name = f"batch time with {sized[-1]:,} rows of state: times that with {sized[0]:,}"
        report.goals.append(Goal(name, p50[sized[-1]] / p50[sized[0]], "<=", 1.2))
    spark.stop()
    return report


def _write(folder: Path, name: str, number: int, rows: int, keys: int, begin: int, end: int) -> None:
    rng = np.random.default_rng([number, ord(name)])
    (folder / name).mkdir(parents=True, exist_ok=True)
    t = np.sort(rng.integers(begin, end, rows)) + START
    made = pl.DataFrame({"k": rng.integers(0, keys, rows), "t": t, "v": rng.integers(0, 1000, rows)})
    made.write_parquet(folder / name / f"{number:04d}.parquet")


def _timed(spark: Any, plan: Plan, size: int, folder: Path, sizes: Sizes) -> tuple[tuple[str, ...], float]:
    """Builds state of `size` rows, then runs the small batches."""
    from braid.sinks.nothing import NoSink
    from braid.spark.query import start
    from braid.spark.query_options import QueryOptions

    def go(limit: int) -> Any:
        options = QueryOptions(
            files=files_of(plan, folder), output=NoSink(partitions=sizes.cores), tasks=sizes.cores, limit=limit,
            checkpoint=opened(str(folder / "checkpoint")), trigger={"availableNow": True},
        )  # fmt: skip
        running = start(spark, plan, Store(opened(str(folder / "store"))), options)
        running.await_termination()
        return running

    for name in "lr":
        for f in range(10):
            _write(folder, name, f, size // 20, size // 2, f * SPAN // 20, (f + 1) * SPAN // 20)
    began = monotonic()
    go(sizes.batch)
    built = monotonic() - began
    for name in "lr":
        _write(folder, name, 10, ROWS * sizes.state_batches // 2, size // 2, SPAN // 2, SPAN)
    cpu = cpu_seconds()
    with Peak() as peak:
        running = go(ROWS)
    batches = run_of(running).batches
    done = running.progress()
    wanted = size + sum(b.rows for b in batches)
    if not wanted <= done.state_rows + ROWS:
        raise AssertionError(f"state holds {done.state_rows:,} rows, not {wanted:,}")
    ms = [b.ms for b in batches[len(batches) // 4 :] if b.rows > ROWS // 2]
    p50 = percentile(ms, 0.5)
    cells = (
        f"{done.state_bytes / MIB:,.0f}", f"{built:,.1f}",
        *(f"{x:,.0f}" for x in (p50, percentile(ms, 0.9), max(ms))),
        f"{1000 * (cpu_seconds() - cpu) / len(batches):,.0f}", f"{peak.worker / MIB:,.0f}", f"{peak.jvm / MIB:,.0f}",
    )  # fmt: skip
    return cells, p50


# ----------------------------------------------------------- memory of a worker


def _worker(spark: Any, sizes: Sizes, report: Report) -> None:
    """The interval join in large batches: a worker's anonymous memory above what it holds after tiny batches, beside
    the Arrow size of a task's share of a batch: rows as they leave the source, and results."""
    plan = plan_of(INTERVAL.format(kind=""))
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        tiny, data = Path(folder) / "tiny", Path(folder) / "data"
        make(2_000, 4, 1000, tiny)
        make(sizes.batch * 2, 4, sizes.keys, data)
        on_spark(spark, plan, Path(folder) / "a", sizes, data=tiny, limit=1_000)  # warms up
        with Peak() as idle:
            on_spark(spark, plan, Path(folder) / "t", sizes, data=tiny, limit=1_000)
        with Peak() as peak:
            on_spark(spark, plan, Path(folder) / "b", sizes, data=data)
        touched = _arrow_size(plan, data, Path(folder) / "times") / sizes.cores
    above = max(peak.worker - idle.worker, 0)
    cells = (
        f"{idle.worker / MIB:,.0f}",
        f"{peak.worker / MIB:,.0f}",
        f"{touched / MIB:,.0f}",
        f"{above / touched:.2f}",
    )
    columns = ("worker", "idle MiB", "peak MiB", "Arrow MiB that a task touches", "(peak - idle) / Arrow")
    text = f"Interval join, inner, batches of {sizes.batch:,} rows; memory that has no file behind it."
    report.tables.append(Table("Memory of a worker", text, columns, (("largest", *cells),)))
    back = "allocators keep freed pages for the next batch (docs/performance.md, Memory)"
    name = "memory of a worker: times the Arrow size of what it touches"
    report.goals.append(Goal(name, above / touched, "<=", 2, back))


def _arrow_size(plan: Plan, data: Path, cache: Path) -> int:
    """Bytes of one batch's rows as they leave the source, and of its results."""
    local, size = LocalQuery(plan, 1, BUCKETS), 0
    chunks = []
    for leaf in plan.leaves:
        files = open_files(leaf.source, pattern(data, leaf.source.name), cache)
        count = files.files[0].end
        chunks.append(Chunk(leaf.number, 0, leaf.number, files.read(0, 0, count)))
        size += ingested(plan, chunks[-1]).rows.estimated_size()
    return int(size + local.results(chunks)[0].estimated_size())
