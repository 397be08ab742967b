"""Interval joins of two streams: inner, and left with late padding.

In: Parquet files of two sides. Out: Braid beside Spark's stream-stream join (state in memory, state in RocksDB), beside
Braid's own operators in a loop without Spark, a bare Polars join in a loop, and one batch join of DuckDB.
Rule: all give the rows that DuckDB gives. Spark's join with RocksDB is so slow that it gets the first batches only.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import polars as pl

from benchmarks.data import first_files, make
from benchmarks.engines import BRAID, LOOP, SPARK, STORES, in_a_loop, on_spark, plan_of, session, spark_files, spark_run
from benchmarks.harness import Batch, Run, Sizes, Variant, summaries, take_turns
from benchmarks.report import Goal, Report, held_back, of_parts, of_rates
from braid.lower.physical import Plan

W = 5_000  # ms

SIDES = """
CREATE STREAM l (k BIGINT KEY, t BIGINT, v BIGINT)
  WITH (kafka_topic='l', value_format='JSON', timestamp='t', partitions=1);
CREATE STREAM r (k BIGINT KEY, t BIGINT, v BIGINT)
  WITH (kafka_topic='r', value_format='JSON', timestamp='t', partitions=1);
"""
SQL = f"""{SIDES}
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.v AS rv FROM l {{kind}} JOIN r
  WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k;
"""

ROCKS = "Spark, RocksDB"
SAME = f"{BRAID}, the same rows"
BARE, DUCK = "a bare Polars join in a loop, no Spark", "DuckDB, one batch join"


def spark_join(spark: Any, data: Path, folder: Path, kind: str, store: str = "memory") -> Run:
    from pyspark.sql import functions as F

    near = "l.k = r.k and r.ts between l.ts - interval 5 seconds and l.ts + interval 5 seconds"
    joined = spark_files(spark, data, "l").join(spark_files(spark, data, "r"), F.expr(near), kind)
    return spark_run(joined.select("l.k", "l.v", F.col("r.v").alias("rv")), folder, store)


def duck_join(data: Path, kind: str, cores: int, rows: int) -> Run:
    import duckdb

    began = perf_counter()
    with duckdb.connect(config={"threads": cores}) as c:
        made = c.sql(
            f"select l.k, l.v, r.v as rv from '{data}/l/*.parquet' l {kind} join '{data}/r/*.parquet' r "
            f"on l.k = r.k and r.t between l.t - {W} and l.t + {W}"
        ).to_arrow_table()
    return Run((Batch(rows, 1000 * (perf_counter() - began)),), made.num_rows)


def bare_loop(data: Path, buckets: int = 8) -> Run:
    """The inner join as one would write it in Polars: no positions, no clocks, no order, state in memory."""
    kept: dict[int, list[pl.DataFrame]] = {}
    batches, out = [], 0
    for left, right in zip(*(sorted((data / side).glob("0*.parquet")) for side in "lr"), strict=True):
        began = perf_counter()
        parts = [_by_bucket(path, buckets) for path in (left, right)]
        for b in range(buckets):
            new = [p[b] for p in parts]
            old = kept.get(b, [new[0].clear(), new[1].clear()])
            pairs = [(new[0], pl.concat([old[1], new[1]])), (old[0], new[1])]
            for a, c in pairs:
                met = a.join(c, on="k", suffix="_r").filter((pl.col("t") - pl.col("t_r")).abs() <= W)
                out += met.select("k", "v", "v_r").height
            kept[b] = [x.filter(pl.col("t") >= x["t"].max() - W) for x in new]
        batches.append(Batch(sum(x.height for p in parts for x in p.values()), 1000 * (perf_counter() - began)))
    return Run(tuple(batches), out)


def _by_bucket(path: Path, buckets: int) -> dict[int, pl.DataFrame]:
    frame = pl.read_parquet(path, columns=["k", "t", "v"]).with_columns((pl.col("k").hash() % buckets).alias("b"))
    parts = frame.partition_by("b", as_dict=True, include_key=False)
    return {b: parts.get((b,), frame.drop("b").clear()) for b in range(buckets)}


def run(sizes: Sizes) -> Report:
    report = Report()
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        data, few, tiny = Path(folder) / "all", Path(folder) / "few", Path(folder) / "tiny"
        make(sizes.rows, sizes.files, sizes.keys, data)
        first_files(data, sizes.slow_batches, few)
        make(20_000, 4, 1000, tiny)
        spark = session(sizes)
        _warm(spark, tiny, sizes)
        for kind in ("inner", "left"):
            _kind(spark, kind, data, few, sizes, report)
        spark.stop()
    return report


def plan_for(kind: str) -> Plan:
    return plan_of(SQL.format(kind="" if kind == "inner" else kind.upper()))


def _kind(spark: Any, kind: str, data: Path, few: Path, sizes: Sizes, report: Report) -> None:
    plan = plan_for(kind)

    def braid(of: Path, to: Path) -> Run:
        return on_spark(spark, plan, to, sizes, data=of)

    rows = 2 * sizes.rows
    duck = duck_join(data, kind, sizes.cores, rows)
    count, few_count = duck.rows_out, duck_join(few, kind, sizes.cores, 0).rows_out
    variants: dict[str, Variant] = {
        SPARK: lambda to: spark_join(spark, data, to, kind, "memory"),
        BRAID: partial(braid, data),
        LOOP: lambda to: in_a_loop(plan, to, sizes.batch, data=data),
        DUCK: lambda _: duck_join(data, kind, sizes.cores, rows),
    }
    if kind == "inner":
        variants[BARE] = lambda _: bare_loop(data)
    print(f"  {kind} join", flush=True)
    runs = take_turns(variants, sizes.rounds, count)
    slow: dict[str, Variant] = {
        ROCKS: lambda to: spark_join(spark, few, to, kind, "RocksDB"),
        SAME: partial(braid, few),
    }
    slow_runs = take_turns(slow, 1, few_count)
    figures, slow_figures = summaries(runs), summaries(slow_runs)
    text = f"{sizes.rows:,} + {sizes.rows:,} rows, {sizes.keys:,} keys, batches of {sizes.batch:,}, results go nowhere."
    report.tables.append(of_rates(f"Interval join, {kind}", text, figures, "Spark in memory"))
    part = f"The first {sizes.slow_batches} batches of the same files."
    report.tables.append(of_rates(f"Interval join, {kind}, beside RocksDB", part, slow_figures, "Spark, RocksDB"))
    braid_rate, parts = figures[BRAID].rate, figures[BRAID].parts
    report.tables.append(of_parts(f"Where a batch of the {kind} join spends its time", parts))
    back, name = held_back(parts), f"interval join ({kind})"
    report.goals += [
        Goal(f"{name}: times Spark in memory", figures[BRAID].ratio, ">=", 10, back),
        Goal(f"{name}: times Spark with RocksDB", slow_figures[SAME].ratio, ">=", 40, back),
        Goal(f"{name}: share of the loop without Spark", braid_rate / figures[LOOP].rate, ">=", 0.25, back),
    ]


def _warm(spark: Any, tiny: Path, sizes: Sizes) -> None:
    with TemporaryDirectory() as folder:
        for kind in ("inner", "left"):
            on_spark(spark, plan_for(kind), Path(folder) / kind, sizes, data=tiny, limit=10_000)
        for store in STORES:
            spark_join(spark, tiny, Path(folder) / store, "inner", store)
