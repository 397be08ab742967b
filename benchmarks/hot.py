"""Hot keys: joins of every dialect over five keys, beside the same number of rows and pairs over many.

In: rows a side; each row has some ten others of its key in reach. Out: a line for each join: rows/s and pairs/s with
spread keys and with hot ones, and the memory of the largest worker.
Rule: both give the same number of pairs, but for the ends of the data. Five keys are at most five buckets' work, so a
hot rate is one of few cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from benchmarks.data import START
from benchmarks.engines import on_spark, plan_of, session
from benchmarks.harness import Run, Sizes, rate
from benchmarks.processes import MIB, Peak
from benchmarks.report import Goal, Report, Table

W = 5_000  # ms to both sides
REACH = 10  # others that a row meets
KEYS = 5
MOST_MIB = 1024  # of a worker
SLOWER = 3  # times the time of spread keys, by the pair

KSQLDB = "".join(
    f"CREATE STREAM {side} (k BIGINT KEY, t BIGINT, v BIGINT) "
    f"WITH (kafka_topic='{side}', value_format='JSON', timestamp='t', partitions=1); "
    for side in "lr"
)
LENSES = "SET defaults.topic.autocreate=true; " + "".join(
    f"CREATE TABLE {side}(_key LONG, t LONG, v LONG) FORMAT (LONG, JSON); "
    f"WITH {side}s AS (SELECT STREAM * FROM {side} EVENTTIME BY t); "
    for side in "lr"
)
SQLSTREAM = "".join(f"CREATE STREAM {x} (k BIGINT, v BIGINT, ts TIMESTAMP) OPTIONS (ROWTIME 'ts'); " for x in "lr")
RISINGWAVE = "".join(
    f"CREATE TABLE {x} (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT, ts TIMESTAMP, t BIGINT); " for x in "lr"
)
OVER = f"OVER (RANGE INTERVAL '{W // 1000}' SECOND PRECEDING)"
MV = "CREATE MATERIALIZED VIEW o AS SELECT l.id, {}l.v, r.v AS rv FROM l {} r ON l.k = r.k AND l.ts "


@dataclass(frozen=True, slots=True)
class Join:
    """`{rows}` in the SQL stands for as many rows as pass in the window."""

    name: str
    dialect: str
    sql: str


JOINS = (
    Join(
        "ksqldb, WITHIN",
        "ksqldb",
        KSQLDB + "CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.v AS rv "
        "FROM l JOIN r WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k;",
    ),
    Join(
        "lenses, WITHIN", "lenses", LENSES + "INSERT INTO o SELECT STREAM ls.v, rs.v AS rv FROM ls JOIN rs WITHIN 5s;"
    ),
    Join(
        "lenses, stream and table",
        "lenses",
        LENSES + "WITH rt AS (SELECT TABLE * FROM r); INSERT INTO o SELECT STREAM ls.v, rt.v AS rv FROM ls JOIN rt;",
    ),
    Join(
        "sqlstream, RANGE",
        "sqlstream",
        SQLSTREAM
        + f"CREATE VIEW o AS SELECT STREAM l.v, r.v AS rv FROM l {OVER} AS l JOIN r {OVER} AS r ON l.k = r.k;",
    ),
    Join(
        "sqlstream, ROWS",
        "sqlstream",
        SQLSTREAM + "CREATE VIEW o AS SELECT STREAM l.v, r.v AS rv FROM l OVER (ROWS {rows} PRECEDING) AS l "
        "JOIN r OVER (ROWS {rows} PRECEDING) AS r ON l.k = r.k;",
    ),
    Join(
        "risingwave, interval",
        "risingwave",
        RISINGWAVE
        + MV.format("r.id AS rid, ", "JOIN")
        + "BETWEEN r.ts - INTERVAL '5' SECOND AND r.ts + INTERVAL '5' SECOND;",
    ),
    Join("risingwave, as-of", "risingwave", RISINGWAVE + MV.format("", "ASOF JOIN") + ">= r.ts;"),
)


def run(sizes: Sizes) -> Report:
    """A quarter of the rows of the other benchmarks."""
    rows = sizes.rows // 4
    report, lines = Report(), []
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        for kind, keys in (("spread", max(KEYS, rows // (2 * REACH))), ("hot", KEYS), ("tiny", KEYS)):
            make(2_000 if kind == "tiny" else rows, keys, Path(folder) / kind)
        for join in JOINS:
            line, slower, peak = _measured(join, Path(folder), rows, sizes)
            lines.append(line)
            report.goals.append(Goal(f"hot keys, {join.name}: MiB of a worker", peak, "<=", MOST_MIB))
            report.goals.append(Goal(f"hot keys, {join.name}: times spread keys, by the pair", slower, "<=", SLOWER))
    columns = (
        "join", "spread: rows/s", "pairs/s", "worker MiB", "hot: rows/s", "pairs/s ", "worker MiB ", "pairs",
        "times spread, by the pair",
    )  # fmt: skip
    text = (
        f"{rows:,} + {rows:,} rows, {KEYS} keys or {max(KEYS, rows // (2 * REACH)):,}, batches of {sizes.batch:,}, "
        f"results go nowhere. A row has some {REACH} others of its key in reach; a table has one row a key. Memory: of "
        "the largest worker, what has no file behind it."
    )
    report.tables.append(Table("Hot keys", text, columns, tuple(lines)))
    return report


def make(rows: int, keys: int, folder: Path) -> None:
    """Two sides in order of time, with the columns that any of the joins reads."""
    span = rows * 2 * W // (REACH * keys)
    for number, side in enumerate("lr"):
        rng = np.random.default_rng([rows, number])
        (folder / side).mkdir(parents=True)
        k, t = rng.integers(0, keys, rows), np.sort(rng.integers(0, span, rows)) + START
        frame = pl.DataFrame({"k": k, "_key": k, "t": t, "v": rng.integers(0, 1000, rows), "id": np.arange(rows)})
        frame = frame.with_columns(ts=pl.from_epoch("t", time_unit="ms"))
        frame.write_parquet(folder / side / "0000.parquet")


def _measured(join: Join, folder: Path, rows: int, sizes: Sizes) -> tuple[tuple[str, ...], float, float]:
    """The line of a join; how many times longer a pair takes with hot keys; MiB of the worker with them. Each join has
    workers of its own, since memory that one had for other work stays with it."""
    spark = session(sizes)
    try:
        cells, by_pair, peaks, pairs = [], [], [], 0
        for kind, keys in (("spread", max(KEYS, rows // (2 * REACH))), ("hot", KEYS)):
            plan = plan_of(join.sql.format(rows=keys * REACH // 2), join.dialect)
            _on_spark(spark, plan, folder / "tiny", replace(sizes, batch=1_000))  # warms up
            with Peak() as peak:
                made = _on_spark(spark, plan, folder / kind, sizes)
            seconds, pairs = made.rows / rate(made), made.rows_out
            by_pair.append(seconds / max(made.rows_out, 1))
            peaks.append(peak.worker / MIB)
            cells += [f"{rate(made):,.0f}", f"{pairs / seconds:,.0f}", f"{peaks[-1]:,.0f}"]
            print(f"    {join.name}, {kind}: {cells[-3]} rows/s, {cells[-1]} MiB", flush=True)
        slower = by_pair[1] / by_pair[0]
        return (join.name, *cells, f"{pairs:,}", f"{slower:.2f}"), slower, peaks[1]
    finally:
        spark.stop()


def _on_spark(spark: Any, plan: Any, data: Path, sizes: Sizes) -> Run:
    with TemporaryDirectory(prefix="braid-bench-") as to:
        return on_spark(spark, plan, Path(to), sizes, data=data)
