"""JSON lines in, JSON lines out: the interval join from the topic store to the topic store.

In: two topics of JSON records; the same lines as files. Out: Braid, topics to topic, beside Spark, which reads the
lines and writes its result as JSON lines of the same shape around its own join.
Rule: the same records in, the same number of records out.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from benchmarks.data import WRITTEN, json_lines, write_topic
from benchmarks.engines import in_a_loop, on_spark, plan_of, session, spark_run
from benchmarks.harness import Run, Sizes, Variant, summaries, take_turns
from benchmarks.report import Goal, Report, held_back, of_parts, of_rates
from braid.store import opened
from braid.topics import TopicStore

SQL = """
CREATE STREAM l (k BIGINT KEY, v BIGINT, s VARCHAR) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM r (k BIGINT KEY, v BIGINT, s VARCHAR) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.v AS rv, l.s AS s FROM l JOIN r
  WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k;
"""
SPARK, BRAID, LOOP = "Spark, JSON to JSON", "Braid, topics to topic", "Braid's operators in a loop, JSON to nothing"
SCHEMA = "key long, value struct<V: long, S: string>, timestamp long"


def spark_join(spark: Any, lines: Path, folder: Path) -> Run:
    from pyspark.sql import functions as F

    def side(name: str) -> Any:
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(lines / name))
        return read.withColumn("ts", F.timestamp_millis("timestamp")).withWatermark("ts", "5 seconds").alias(name)

    near = "l.key = r.key and r.ts between l.ts - interval 5 seconds and l.ts + interval 5 seconds"
    value = F.struct(F.col("l.value.V").alias("V"), F.col("r.value.V").alias("RV"), F.col("l.value.S").alias("S"))
    time = F.greatest("l.timestamp", "r.timestamp").alias("timestamp")
    made = side("l").join(side("r"), F.expr(near)).select(F.col("l.key").alias("key"), value.alias("value"), time)
    return spark_run(made, folder, json=True)


def braid_join(spark: Any, store: Path, folder: Path, sizes: Sizes, limit: int) -> Run:
    topics, output = TopicStore(opened(store)), f"o-{uuid4().hex[:8]}"
    topics.create(output, sizes.cores)
    try:
        made = on_spark(spark, plan_of(SQL), folder, sizes, store=store, output=output, limit=limit)
        return replace(made, rows_out=sum(topics.end_offsets(output)))
    finally:
        topics.delete(output)


def write(folder: Path, rows: int, files: int, keys: int) -> None:
    """The same records as topics in `store` and as files in `lines`."""
    for number, name in enumerate("lr"):
        write_topic(folder / "store", name, rows, files, keys, number)
        (folder / "lines" / name).mkdir(parents=True)
        for f, lines in enumerate(json_lines(rows, files, keys, number)):
            path = folder / "lines" / name / f"{f:04d}.json"
            path.write_text("\n".join(lines.to_list()) + "\n")
            os.utime(path, (WRITTEN + f, WRITTEN + f))


def run(sizes: Sizes) -> Report:
    report = Report()
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        data, tiny = Path(folder) / "data", Path(folder) / "tiny"
        write(data, sizes.rows, sizes.files, sizes.keys)
        write(tiny, 20_000, 4, 1000)
        spark = session(sizes)
        plan = plan_of(SQL)
        with TemporaryDirectory() as to:  # warms up
            spark_join(spark, tiny / "lines", Path(to) / "spark")
            braid_join(spark, tiny / "store", Path(to) / "braid", sizes, 10_000)

        variants: dict[str, Variant] = {
            SPARK: lambda to: spark_join(spark, data / "lines", to),
            BRAID: lambda to: braid_join(spark, data / "store", to, sizes, sizes.batch),
            LOOP: lambda to: in_a_loop(plan, to, sizes.batch, store=data / "store"),
        }
        with TemporaryDirectory() as first:
            expected = in_a_loop(plan, Path(first), sizes.batch, store=data / "store").rows_out
        figures = summaries(take_turns(variants, sizes.rounds, expected))
        spark.stop()
    text = f"{sizes.rows:,} + {sizes.rows:,} records, {sizes.keys:,} keys, batches of {sizes.batch:,}."
    report.tables.append(of_rates("JSON lines in and out, interval join", text, figures, "Spark"))
    report.tables.append(of_parts("Where a batch of JSON lines spends its time", figures[BRAID].parts))
    back = held_back(figures[BRAID].parts)
    report.goals.append(Goal("JSON lines in and out: times Spark", figures[BRAID].ratio, ">=", 5, back))
    return report
