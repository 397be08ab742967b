"""Small batches: what a trigger costs when it brings a thousand rows, and how long a record takes to its result.

In: many small files; topics that a thread writes to while the query runs. Out: trigger p50 and p99 of Braid and of
Spark's join; the time from a record to its result.
Rule: the same files, a thousand rows a batch, nothing written; the first fifth of the batches is left out. The latency
is that of the live end: from the record's own time, the moment it is written, to the moment its result can be read.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.data import first_files, make
from benchmarks.engines import BRAID, SPARK, on_spark, plan_of, session
from benchmarks.harness import Run, Sizes, measured, percentile
from benchmarks.interval import ROCKS, spark_join
from benchmarks.interval import SQL as FILES_SQL
from benchmarks.report import Goal, Report, Table, held_back, of_parts
from benchmarks.topics import SCHEMA
from benchmarks.topics import SQL as TOPICS_SQL
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.store_value import Store

ROWS = 1000  # of a batch
EVERY = 0.1  # s between two writes of records
PATIENCE = 300.0  # s until the first result
EACH = 50  # records of a side each time


def run(sizes: Sizes) -> Report:
    report = Report()
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        data, tiny = Path(folder) / "data", Path(folder) / "tiny"
        make(ROWS // 2 * sizes.small_batches, sizes.small_batches, 1000, data)
        first_files(data, 5, tiny)
        spark = session(sizes)
        _triggers(spark, data, tiny, sizes, report)
        _latency(spark, Path(folder), sizes, report)
        spark.stop()
    return report


def _triggers(spark: Any, data: Path, tiny: Path, sizes: Sizes, report: Report) -> None:
    plan = plan_of(FILES_SQL.format(kind=""))
    variants: dict[str, Callable[[Path, Path], Run]] = {
        SPARK: lambda of, to: spark_join(spark, of, to, "inner", "memory"),
        ROCKS: lambda of, to: spark_join(spark, of, to, "inner", "RocksDB"),
        BRAID: lambda of, to: on_spark(spark, plan, to, sizes, data=of, limit=ROWS),
    }
    for variant in variants.values():
        measured(lambda to, v=variant: v(tiny, to))
    rows, p50, out, parts = [], {}, {}, {}
    for name, variant in variants.items():
        done = measured(lambda to, v=variant: v(data, to))
        ms = [b.ms for b in done.batches[len(done.batches) // 5 :] if b.rows > ROWS // 2]
        p50[name], out[name] = percentile(ms, 0.5), done.rows_out
        parts = done.parts or parts
        cells = (f"{p50[name]:,.0f}", f"{percentile(ms, 0.99):,.0f}", f"{1000 * done.cpu / len(done.batches):,.0f}")
        rows.append((name, *cells, f"{p50[name] / p50[SPARK]:.2f}", f"{len(ms)}"))
        print(f"    {name}: p50 {p50[name]:,.0f} ms", flush=True)
    assert len(set(out.values())) == 1, f"outputs differ: {out}"
    columns = ("variant", "trigger p50 ms", "p99 ms", "CPU ms a batch", "ratio to Spark in memory", "batches")
    text = f"Interval join, inner; {ROWS:,} rows a batch from small files, results go nowhere."
    report.tables.append(Table("Small batches", text, columns, tuple(rows)))
    report.tables.append(of_parts("Where a small batch spends its time", parts))
    report.goals += [
        Goal("small batch: share of Spark in memory", p50[BRAID] / p50[SPARK], "<=", 0.7, held_back(parts)),
        Goal("small batch: share of Spark with RocksDB", p50[BRAID] / p50[ROCKS], "<=", 0.7, held_back(parts)),
    ]


# ------------------------------------------------------------------- latency


def _latency(spark: Any, folder: Path, sizes: Sizes, report: Report) -> None:
    seconds = max(4.0, sizes.small_batches / 5)
    rows = []
    for name, live in ((BRAID, _braid), ("Spark, JSON files to JSON files, state in memory", _spark)):
        found = live(spark, folder / live.__name__, seconds, sizes)
        cells = (f"{percentile(found, share):,.0f}" for share in (0.5, 0.99))
        rows.append((name, *cells, f"{len(found):,}"))
        print(f"    {name}: {percentile(found, 0.5):,.0f} ms from record to result", flush=True)
    text = f"Interval join, inner; {EACH} records of each side every {1000 * EVERY:.0f} ms, {seconds:.0f} s long."
    columns = ("variant", "p50 ms", "p99 ms", "results")
    report.tables.append(Table("From a record to its result", text, columns, tuple(rows)))


def _braid(spark: Any, folder: Path, seconds: float, sizes: Sizes) -> list[float]:
    from braid.sinks.topic import TopicSink
    from braid.spark.query import start
    from braid.spark.query_options import QueryOptions

    topics = TopicStore(opened(folder))
    for name, partitions in (("l", 1), ("r", 1), ("o", sizes.cores)):
        topics.create(name, partitions)
    output = TopicSink("o", sizes.cores)
    running = start(
        spark, plan_of(TOPICS_SQL), Store(opened(str(folder))), QueryOptions(output=output, tasks=sizes.cores)
    )
    done = [0] * sizes.cores

    def results() -> Iterator[str]:
        for p, end in enumerate(topics.end_offsets("o")):
            yield from topics.read("o", p, done[p], end)["_line"]
            done[p] = end

    try:
        return watched(topics.append_lines, results, seconds)
    finally:
        running.stop()


def _spark(spark: Any, folder: Path, seconds: float, sizes: Sizes) -> list[float]:
    from pyspark.sql import functions as F

    def side(name: str) -> Any:
        (folder / name).mkdir(parents=True)
        read = spark.readStream.schema(SCHEMA).json(str(folder / name))
        return read.withColumn("ts", F.timestamp_millis("timestamp")).withWatermark("ts", "5 seconds").alias(name)

    near = "l.key = r.key and r.ts between l.ts - interval 5 seconds and l.ts + interval 5 seconds"
    value = F.struct(F.col("l.value.V").alias("V"), F.col("r.value.V").alias("RV"))
    time_of = F.greatest("l.timestamp", "r.timestamp").alias("timestamp")
    made = side("l").join(side("r"), F.expr(near)).select(F.col("l.key").alias("key"), value.alias("value"), time_of)
    query = (
        made.writeStream.format("json").option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "out"))
    )  # fmt: skip
    seen: set[str] = set()

    def write(name: str, lines: list[str]) -> None:
        path = folder / name / f"{time.monotonic_ns()}.json"
        hidden = path.with_name(f"_{path.name}")
        hidden.write_text("\n".join(lines) + "\n")
        os.rename(hidden, path)

    def results() -> Iterator[str]:
        """What Spark's log of finished files names; a file that is not in it may still be written."""
        for log in (folder / "out" / "_spark_metadata").glob("[0-9]*"):
            if log.name not in seen:
                seen.add(log.name)
                paths = {json.loads(entry)["path"] for entry in log.read_text().splitlines()[1:]}
                for path in paths - seen:
                    seen.add(path)
                    yield from Path(path.removeprefix("file://")).read_text().splitlines()

    try:
        return watched(write, results, seconds)
    finally:
        query.stop()


def watched(
    write: Callable[[str, list[str]], None], results: Callable[[], Iterator[str]], seconds: float
) -> list[float]:
    """Milliseconds from the times of records to the moment their results were seen, from half of `seconds` after the
    first result on."""
    stop = threading.Event()

    def feed() -> None:
        began = time.monotonic()
        for turn in itertools.count(1):
            if stop.wait(max(began + turn * EVERY - time.monotonic(), 0)):
                return
            keys = range(turn * EACH, (turn + 1) * EACH)
            for name in "lr":
                now = time.time_ns() // 1_000_000
                write(name, [json.dumps({"key": k, "value": {"V": k, "S": "x"}, "timestamp": now}) for k in keys])

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    first, end, found = math.inf, time.monotonic() + PATIENCE, []
    while time.monotonic() < end:
        lines, now, clock = list(results()), time.time() * 1000, time.monotonic()
        if lines and first == math.inf:
            first, end = clock, clock + 1.5 * seconds
        if lines and clock > first + seconds / 2:
            found += [now - json.loads(line)["timestamp"] for line in lines]
        time.sleep(0.005)
    stop.set()
    feeder.join()
    if not found:
        raise AssertionError("no result came while records were written")
    return found
