"""`make bench`: Braid's interval join beside Spark's own, in one session, on the same files.

In: sizes (`--rows`, `--keys`, `--files`). Out: a table on the terminal: rows/s, the ratio, CPU seconds.
Rule: both read the same Parquet files and write Parquet files; both give the same number of rows (asserted); a warm-up
comes first, then the variants take turns. Figures of a busy machine say nothing; ratios of one run say something.

    python -m benchmarks.run [--rows 1000000] [--files 4] [--keys 200000] [--rounds 2]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from benchmarks.data import make
from braid.program import Program

SQL = """
CREATE STREAM l (k BIGINT KEY, t BIGINT, v BIGINT)
  WITH (kafka_topic='l', value_format='JSON', timestamp='t', partitions=1);
CREATE STREAM r (k BIGINT KEY, t BIGINT, v BIGINT)
  WITH (kafka_topic='r', value_format='JSON', timestamp='t', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.v AS rv FROM l JOIN r
  WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k;
"""


def braid_join(spark: Any, data: Path, out: Path, batch: int) -> None:
    from braid.plan.lower import lower
    from braid.spark.job import Files, Output
    from braid.spark.query import start

    queries = [e.query for e in Program("ksqldb").statements(SQL) if e.query is not None]
    files = {name: Files(str(data / name.lower() / "*.parquet")) for name in ("L", "R")}
    running = start(
        spark, lower(queries[0]), str(out / "store"), files=files, output=Output("parquet", str(out / "rows"), 1),
        buckets=8, tasks=2, limit=batch,
    )  # fmt: skip
    running.await_idle()
    running.stop()


def spark_join(spark: Any, data: Path, out: Path, batch: int) -> None:
    from pyspark.sql import functions as F

    def read(side: str) -> Any:
        schema = "k long, t long, v long, ts timestamp"
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(data / side))
        return stream.withWatermark("ts", "5 seconds").alias(side)

    near = "l.k = r.k and r.ts between l.ts - interval 5 seconds and l.ts + interval 5 seconds"
    joined = read("l").join(read("r"), F.expr(near)).select("l.k", "l.v", F.col("r.v").alias("rv"))
    query = (
        joined.writeStream.format("parquet").option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


def rows_of(folder: Path) -> int:
    return int(pl.scan_parquet(str(folder / "rows" / "**/*.parquet")).select(pl.len()).collect().item())


def timed(join: Callable[[Any, Path, Path, int], None], spark: Any, data: Path, batch: int) -> tuple[float, float, int]:
    """(seconds, CPU seconds of this process and its children, rows)."""
    with tempfile.TemporaryDirectory() as folder:
        began, cpu = time.monotonic(), sum(os.times()[:4])
        join(spark, data, Path(folder), batch)
        return time.monotonic() - began, sum(os.times()[:4]) - cpu, rows_of(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="a side")
    parser.add_argument("--files", type=int, default=4, help="a side; Spark's join reads one of each a batch")
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    from braid.spark.conf import session

    spark = session("local[2]", {"spark.driver.memory": "6g"})
    data = Path(tempfile.mkdtemp(prefix="braid-bench-"))
    try:
        make(args.rows, args.files, args.keys, data)
        batch = 2 * args.rows // args.files
        variants = {"Spark's stream-stream join (RocksDB)": spark_join, "Braid": braid_join}
        counts: dict[str, int] = {}
        took: dict[str, list[float]] = {name: [] for name in variants}
        for round_ in range(args.rounds + 1):
            for name, join in variants.items():
                seconds, _, counts[name] = timed(join, spark, data, batch)
                if round_:  # the first round warms up
                    took[name].append(seconds)
        assert len(set(counts.values())) == 1, f"outputs differ: {counts}"
        base = median(took["Spark's stream-stream join (RocksDB)"])
        print(f"{args.rows:,} + {args.rows:,} rows, {args.keys:,} keys, {next(iter(counts.values())):,} rows out")
        for name, seconds in took.items():
            t = median(seconds)
            print(f"{name:40} {t:7.1f} s {2 * args.rows / t:12,.0f} rows/s   {base / t:5.1f} x")
    finally:
        shutil.rmtree(data, ignore_errors=True)
        spark.stop()


if __name__ == "__main__":
    main()
