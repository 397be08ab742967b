"""Aggregates in windows over a join, and tables joined by a reference.

In: two streams as Parquet files; for the tables, topics of JSON lines. Out: Braid beside Spark's own join and window
aggregate (append mode: each window once, when it is closed), and beside its own operators in a loop; the reference
join, of which Spark has none, and its state.
Rule: every variant gives as many rows as DuckDB's batch query. A right row is never later than its left one, so that a
result's time is a column that Spark knows the watermark of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.data import make, write_topic
from benchmarks.engines import (
    BRAID,
    LOOP,
    SPARK,
    in_a_loop,
    on_spark,
    over_topics,
    plan_of,
    session,
    spark_files,
    spark_run,
)
from benchmarks.harness import Run, Sizes, Variant, summaries, take_turns
from benchmarks.interval import SIDES
from benchmarks.processes import MIB
from benchmarks.report import Goal, Report, held_back, of_parts, of_rates

JOIN = "l JOIN r WITHIN (5 SECONDS, 0 SECONDS) GRACE PERIOD 5 SECONDS ON l.k = r.k"
SQL = f"""{SIDES}
CREATE TABLE o AS SELECT l.k AS k, COUNT(*) AS n, SUM(r.v) AS s FROM {JOIN}
  WINDOW {{window}}, GRACE PERIOD 5 SECONDS) GROUP BY l.k EMIT FINAL;
"""
MET = """SELECT l.k, l.t FROM '{data}/l/*.parquet' l JOIN '{data}/r/*.parquet' r
  ON l.k = r.k AND r.t BETWEEN l.t - 5000 AND l.t"""
# as Braid says it, as Spark does, and in DuckDB
KINDS: Mapping[str, tuple[str, Callable[[Any], Any], str]] = {
    "tumbling": (
        "TUMBLING (SIZE 10 SECONDS",
        lambda f: f.window("l.ts", "10 seconds"),
        "SELECT count(*) FROM (SELECT DISTINCT k, t // 10000 FROM ({met}))",
    ),
    "hopping": (
        "HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS",
        lambda f: f.window("l.ts", "10 seconds", "5 seconds"),
        "SELECT count(*) FROM (SELECT DISTINCT k, t // 5000 + unnest([0, 1]) FROM ({met}))",
    ),
    "session": (
        "SESSION (20 SECONDS",
        lambda f: f.session_window("l.ts", "20 seconds"),
        "SELECT count(*) FROM (SELECT t - lag(t) OVER (PARTITION BY k ORDER BY t) AS gap FROM ({met}))"
        " WHERE gap IS NULL OR gap > 20000",
    ),
}
TABLES = """
CREATE TABLE a (k BIGINT PRIMARY KEY, v BIGINT) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE TABLE b (k BIGINT PRIMARY KEY, v BIGINT) WITH (kafka_topic='b', value_format='JSON', partitions=1);
CREATE TABLE o AS SELECT a.k AS k, a.v AS v, b.v AS bv FROM a JOIN b ON a.v = b.k;
"""


def spark_windows(spark: Any, data: Path, window: Callable[[Any], Any], folder: Path) -> Run:
    from pyspark.sql import functions as F

    near = "l.k = r.k and r.ts between l.ts - interval 5 seconds and l.ts"
    met = spark_files(spark, data, "l").join(spark_files(spark, data, "r"), F.expr(near))
    groups = met.groupBy("l.k", window(F)).agg(F.count("*").alias("n"), F.sum("r.v").alias("s"))
    return spark_run(groups, folder)


def duck_windows(data: Path, query: str) -> int:
    import duckdb

    with duckdb.connect() as c:
        ((count,),) = c.sql(query.format(met=MET.format(data=data))).fetchall()
    return int(count)


def run(sizes: Sizes) -> Report:
    report, half = Report(), replace(sizes, rows=sizes.rows // 2)
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        data, tiny, topics = (Path(folder) / name for name in ("data", "tiny", "topics"))
        make(half.rows, half.files, half.keys, data)
        make(20_000, 4, 1000, tiny)
        spark = session(sizes)
        _warm(spark, tiny, sizes)
        for kind in KINDS:
            _windows(spark, kind, data, half, report)
        _references(spark, topics, replace(sizes, batch=sizes.batch // 4), report)
        spark.stop()
    return report


def _warm(spark: Any, tiny: Path, sizes: Sizes) -> None:
    with TemporaryDirectory() as folder:
        for kind, (said, window, _) in KINDS.items():
            on_spark(spark, plan_of(SQL.format(window=said)), Path(folder) / kind, sizes, data=tiny, limit=20_000)
            spark_windows(spark, tiny, window, Path(folder) / f"{kind}-spark")


def _windows(spark: Any, kind: str, data: Path, sizes: Sizes, report: Report) -> None:
    print(f"  {kind} windows", flush=True)
    said, window, query = KINDS[kind]
    plan = plan_of(SQL.format(window=said))
    variants: dict[str, Variant] = {
        SPARK: partial(spark_windows, spark, data, window),
        BRAID: lambda to: on_spark(spark, plan, to, sizes, data=data),
        LOOP: lambda to: in_a_loop(plan, to, sizes.batch, data=data),
    }
    figures = summaries(take_turns(variants, sizes.rounds, duck_windows(data, query)))
    text = (
        f"{sizes.rows:,} rows a stream, {sizes.keys:,} keys, batches of {sizes.batch:,}; `WINDOW {said}, …)`, EMIT "
        "FINAL: each window once, when it is closed."
    )
    report.tables.append(of_rates(f"Aggregate in {kind} windows over an interval join", text, figures, SPARK))
    parts = figures[BRAID].parts
    report.tables.append(of_parts(f"Where a batch of {kind} windows spends its time", parts))
    name = f"aggregate in {kind} windows over a join: times Spark in memory"
    report.goals.append(Goal(name, figures[BRAID].ratio, ">=", 3, held_back(parts)))


def _references(spark: Any, topics: Path, sizes: Sizes, report: Report) -> None:
    """The left table refers to one of 1,000 right rows for each of its values."""
    print("  foreign keys", flush=True)
    left, right, keys = sizes.rows // 4, max(sizes.rows // 4000, 100), 1000
    write_topic(topics, "a", left, 8, sizes.keys, seed=0)
    write_topic(topics, "b", right, 8, keys, seed=1)
    runs = over_topics(spark, plan_of(TABLES), topics, sizes)
    kept = runs[BRAID][-1]
    text = (
        f"{left:,} changes of {sizes.keys:,} left rows, each of which refers to one of {keys:,} right rows; {right:,} "
        f"changes of these, each going to all that refer to it. JSON lines, batches of {sizes.batch:,}. At the end "
        f"state has {kept.state_rows:,} rows in {kept.state_bytes / MIB:,.0f} MiB."
    )
    report.tables.append(of_rates("Foreign-key join of two tables", text, summaries(runs), BRAID))
