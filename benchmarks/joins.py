"""Joins with tables, an aggregate over a join, chains of joins.

In: Parquet files; for two tables, topics of JSON lines (tables in files are read whole before anything else). Out:
Braid beside its own operators in a loop without Spark, and beside Spark's query where Spark has one that gives the same
rows: the join with a table that never changes, and chains of interval joins.
Rule: every variant gives the same number of rows. The others have no counterpart in Spark: it has no lookup into a
table that changes, no join of two tables, and no aggregate over a join that tells each change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.data import make, make_table, write_topic
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
from benchmarks.report import Report, of_rates

STREAM = """CREATE STREAM {name} (k BIGINT KEY, k2 BIGINT, t BIGINT, v BIGINT)
  WITH (kafka_topic='{name}', value_format='JSON', timestamp='t', partitions=1);
"""
STREAMS = "".join(STREAM.format(name=name) for name in "lrm")

LOOKUP = (
    STREAMS
    + """CREATE TABLE d (k BIGINT PRIMARY KEY, s VARCHAR) WITH (kafka_topic='d', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, d.s AS s FROM l JOIN d ON l.k = d.k;
"""
)
TABLES = """
CREATE TABLE a (k BIGINT PRIMARY KEY, v BIGINT) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE TABLE b (k BIGINT PRIMARY KEY, v BIGINT) WITH (kafka_topic='b', value_format='JSON', partitions=1);
CREATE TABLE o AS SELECT a.k AS k, a.v AS v, b.v AS bv FROM a JOIN b ON a.k = b.k;
"""
WITHIN = "WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS"
AGGREGATE = (
    STREAMS
    + "CREATE TABLE o AS SELECT l.k AS k, COUNT(*) AS n, SUM(r.v) AS s "
    + f"FROM l JOIN r {WITHIN} ON l.k = r.k GROUP BY l.k;"
)
CHAIN = (
    STREAMS
    + "CREATE STREAM o AS SELECT l.{key} AS k, l.v AS v, r.v AS rv, m.v AS mv FROM l "
    + f"JOIN r {WITHIN} ON l.k = r.k JOIN m {WITHIN} ON l.{{key}} = m.k;"
)


def spark_lookup(spark: Any, data: Path, folder: Path) -> Run:
    table = spark.read.parquet(str(data / "d")).select("k", "s")
    return spark_run(spark_files(spark, data, "l").select("k", "v").join(table, "k"), folder)


def spark_chain(spark: Any, data: Path, key: str, folder: Path) -> Run:
    from pyspark.sql import functions as F

    def near(time: str, early: int, late: int) -> str:
        return f"between {time} - interval {early} seconds and {time} + interval {late} seconds"

    left, right, third = (spark_files(spark, data, side) for side in "lrm")
    first = left.join(right, F.expr(f"l.k = r.k and r.ts {near('l.ts', 5, 5)}"))
    # a result of the first join has the later of its two times; Spark goes on with one column of times, that of l,
    # and its range lets it forget
    time = F.expr("greatest(l.t, r.t)").alias("time")
    met = first.select("l.k", "l.k2", "l.v", F.col("r.v").alias("rv"), "l.ts", time).alias("f")
    exact = "m.t between f.time - 5000 and f.time + 5000"
    joined = met.join(third, F.expr(f"f.{key} = m.k and m.ts {near('f.ts', 5, 10)} and {exact}"))
    return spark_run(joined.select(f"f.{key}", "f.v", "f.rv", F.col("m.v").alias("mv")), folder)


def run(sizes: Sizes) -> Report:
    """Joins with tables and the aggregate; chains are `chains.py`."""
    report, half = Report(), replace(sizes, rows=sizes.rows // 2)
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        data, tiny, topics = _written(Path(folder), half)
        tables = _tables(topics, sizes.rows // 4, sizes.keys)
        spark = session(sizes)
        _warm(spark, tiny, LOOKUP, sizes)
        one = partial(_compared, spark, data, half, report)
        text = f"{_shown(half)}; the table's {sizes.keys:,} rows are read first."
        one("Stream-table lookup", text, LOOKUP, spark_lookup)
        one("Aggregate over an interval join", f"{_shown(half)}; every change of a count goes out.", AGGREGATE, None)
        _table_table(spark, topics, tables, replace(sizes, batch=sizes.batch // 4), report)
        spark.stop()
    return report


def chains(sizes: Sizes) -> Report:
    report, half = Report(), replace(sizes, rows=sizes.rows // 2)
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        data, tiny, _ = _written(Path(folder), half)
        spark = session(sizes)
        _warm(spark, tiny, CHAIN.format(key="k2"), sizes)
        spark_chain(spark, tiny, "k2", Path(folder) / "warm")
        for key, title in (("k", "on one key"), ("k2", "on two keys")):
            name, text = f"Chain of two interval joins {title}", f"Three streams: {_shown(half)}."
            _compared(spark, data, half, report, name, text, CHAIN.format(key=key), partial(_chain_of, key))
        spark.stop()
    return report


def _written(folder: Path, sizes: Sizes) -> tuple[Path, Path, Path]:
    """The data, little data to warm up with, and a place for topics."""
    data, tiny = folder / "data", folder / "tiny"
    for where, rows, files, keys in ((data, sizes.rows, sizes.files, sizes.keys), (tiny, 20_000, 4, 1000)):
        make(rows, files, keys, where, "lrm")
        make_table(keys, where / "d")
    return data, tiny, folder / "topics"


def _shown(sizes: Sizes) -> str:
    return f"{sizes.rows:,} rows a stream, {sizes.keys:,} keys, batches of {sizes.batch:,}"


def _chain_of(key: str, spark: Any, data: Path, folder: Path) -> Run:
    return spark_chain(spark, data, key, folder)


def _compared(
    spark: Any, data: Path, sizes: Sizes, report: Report, title: str, text: str, sql: str,
    other: Callable[[Any, Path, Path], Run] | None,
) -> None:  # fmt: skip
    print(f"  {title}", flush=True)
    plan = plan_of(sql)
    variants: dict[str, Variant] = {} if other is None else {SPARK: partial(other, spark, data)}
    variants[BRAID] = lambda to: on_spark(spark, plan, to, sizes, data=data)
    variants[LOOP] = lambda to: in_a_loop(plan, to, sizes.batch, data=data)
    with TemporaryDirectory() as first:
        expected = in_a_loop(plan, Path(first), sizes.batch, data=data).rows_out
    _add(report, title, text, take_turns(variants, sizes.rounds, expected))


def _warm(spark: Any, tiny: Path, sql: str, sizes: Sizes) -> None:
    with TemporaryDirectory() as folder:
        on_spark(spark, plan_of(sql), Path(folder), sizes, data=tiny, limit=20_000)


def _add(report: Report, title: str, text: str, runs: Mapping[str, list[Run]]) -> None:
    figures = summaries(runs)
    report.tables.append(of_rates(title, text, figures, next(iter(figures))))


def _tables(topics: Path, rows: int, keys: int) -> int:
    """Two topics of changes of tables; the number of changes in each."""
    for number, name in enumerate("ab"):
        write_topic(topics, name, rows, 8, keys, seed=number)
    return rows


def _table_table(spark: Any, topics: Path, rows: int, sizes: Sizes, report: Report) -> None:
    title = "Table-table join"
    print(f"  {title}", flush=True)
    text = f"{rows:,} + {rows:,} changes of {sizes.keys:,} keys as JSON lines, batches of {sizes.batch:,}."
    _add(report, title, text, over_topics(spark, plan_of(TABLES), topics, sizes))
