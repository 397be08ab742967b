"""The interval join over data of other shapes: text keys, a few heavy keys, rows out of order, wide rows, many matches.

In: the files of `data.py`, each changed by one shape. Out: Braid beside Spark's join with state in memory, a line a
shape.
Rule: one thing differs from the plain data at a time; both give the rows that DuckDB gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from benchmarks.data import make
from benchmarks.engines import BRAID, SPARK, on_spark, plan_of, session, spark_files, spark_run
from benchmarks.harness import Run, Sizes, Variant, summaries, take_turns
from benchmarks.interval import W
from benchmarks.report import Report, Table

SIDE = """CREATE STREAM {name} (k {type} KEY, t BIGINT, {columns})
  WITH (kafka_topic='{name}', value_format='JSON', timestamp='t', partitions=1);
"""
WIDE = tuple(f"w{i}" for i in range(10))


@dataclass(frozen=True, slots=True)
class Shape:
    """`change`: of a file of the plain data. `key`: the type of the keys, for ksqlDB. `carried`: columns of both sides
    that go through the join, with their types."""

    name: str
    change: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame
    key: str = "BIGINT"
    carried: tuple[tuple[str, str], ...] = (("v", "BIGINT"),)
    kind: str = "inner"

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.carried]

    @property
    def sql(self) -> str:
        columns = ", ".join(f"{name} {type_}" for name, type_ in self.carried)
        sides = "".join(SIDE.format(name=side, type=self.key, columns=columns) for side in "lr")
        items = ", ".join(f"{side}.{name} AS {side}{name}" for side in "lr" for name in self.names)
        kind = "" if self.kind == "inner" else self.kind.upper()
        return (
            f"{sides}CREATE STREAM o AS SELECT l.k AS k, {items} FROM l {kind} JOIN r "
            "WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k;"
        )


def _text(key: pl.Expr) -> pl.Expr:
    """36 characters, as a UUID has."""
    return pl.format("customer-{}-8d0f-4c1e-{}", key.cast(pl.String).str.zfill(8), key.cast(pl.String).str.zfill(8))


K = pl.col("k")
SHAPES = (
    Shape("plain, numbers as keys"),
    Shape("keys of 36 characters", lambda f: f.with_columns(_text(K)), "VARCHAR"),
    Shape("skewed keys, one in 450 rows", lambda f: f.with_columns(K * K // (K.max() + 1))),
    Shape("rows up to 5 s out of order", lambda f: f.sort(pl.col("t") + 5 * pl.col("v"))),
    Shape(
        "ten more columns of text a side",
        lambda f: f.with_columns(pl.format("{} of {}", "s", pl.col("v") + i).alias(w) for i, w in enumerate(WIDE)),
        carried=(("v", "BIGINT"), *((w, "VARCHAR") for w in WIDE)),
    ),
    Shape("ten times the matches", lambda f: f.with_columns(K // 10)),
    Shape("no match, all padded", lambda f: f.with_columns(K * 1000 + pl.col("v")), kind="left"),
)  # fmt: skip


def run(sizes: Sizes) -> Report:
    quarter = replace(sizes, rows=sizes.rows // 4, batch=sizes.batch // 2)
    rows = []
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        make(quarter.rows, quarter.files, sizes.keys, Path(folder) / "plain")
        make(20_000, 4, 1000, Path(folder) / "tiny")
        spark = session(sizes)
        for shape in SHAPES:
            print(f"  {shape.name}", flush=True)
            for name in ("plain", "tiny"):
                _shaped(Path(folder) / name, shape, Path(folder) / f"{shape.name}-{name}")
            rows.append(_compared(spark, shape, Path(folder), quarter))
        spark.stop()
    columns = ("shape", "Spark rows/s", "Braid rows/s", "ratio", "CPU s per 1M rows, Spark", "Braid", "rows out")
    text = (
        f"Interval joins, {quarter.rows:,} + {quarter.rows:,} rows, {sizes.keys:,} keys, batches of {quarter.batch:,}, "
        "results go nowhere. Spark's state is in memory."
    )
    return Report([Table("Other shapes of data", text, columns, tuple(rows))])


def _shaped(plain: Path, shape: Shape, folder: Path) -> None:
    for path in sorted(plain.rglob("*.parquet")):
        to = folder / path.relative_to(plain)
        to.parent.mkdir(parents=True, exist_ok=True)
        shape.change(pl.read_parquet(path)).write_parquet(to)
        os.utime(to, (path.stat().st_mtime, path.stat().st_mtime))


def _compared(spark: Any, shape: Shape, folder: Path, sizes: Sizes) -> tuple[str, ...]:
    data, tiny = (folder / f"{shape.name}-{name}" for name in ("plain", "tiny"))
    plan = plan_of(shape.sql)
    variants: dict[str, Variant] = {
        SPARK: partial(_spark_join, spark, shape, data),
        BRAID: lambda to: on_spark(spark, plan, to, sizes, data=data),
    }
    with TemporaryDirectory() as to:  # warms up
        _spark_join(spark, shape, tiny, Path(to) / "spark")
        on_spark(spark, plan, Path(to) / "braid", sizes, data=tiny, limit=10_000)
    figures = summaries(take_turns(variants, sizes.rounds, _expected(shape, data, sizes.cores)))
    spark_figures, braid = figures[SPARK], figures[BRAID]
    return (
        shape.name, f"{spark_figures.rate:,.0f}", f"{braid.rate:,.0f}", f"{braid.ratio:.1f}",
        f"{spark_figures.cpu:.2f}", f"{braid.cpu:.2f}", f"{braid.rows_out:,}",
    )  # fmt: skip


def _spark_join(spark: Any, shape: Shape, data: Path, folder: Path) -> Run:
    from pyspark.sql import functions as F

    near = "l.k = r.k and r.ts between l.ts - interval 5 seconds and l.ts + interval 5 seconds"
    schema = spark.read.parquet(str(data / "l")).schema
    left, right = (spark_files(spark, data, side, schema=schema) for side in "lr")
    joined = left.join(right, F.expr(near), shape.kind)
    columns = [F.col(f"{side}.{name}").alias(f"{side}{name}") for side in "lr" for name in shape.names]
    return spark_run(joined.select("l.k", *columns), folder)


def _expected(shape: Shape, data: Path, cores: int) -> int:
    import duckdb

    with duckdb.connect(config={"threads": cores}) as c:
        (found,) = c.sql(
            f"select count(*) from '{data}/l/*.parquet' l {shape.kind} join '{data}/r/*.parquet' r "
            f"on l.k = r.k and r.t between l.t - {W} and l.t + {W}"
        ).fetchall()
    return int(found[0])
