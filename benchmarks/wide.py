"""Wide rows: thirty rows of half a megabyte meet thirty others, in one batch, and the results go into a topic.

In: nothing but the cores. Out: a line for each join: the memory of the largest worker.
Rule: sixty records, some 900 MB of results: memory goes with the bytes of a few results, not with all of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from benchmarks.data import START
from benchmarks.engines import on_spark, plan_of, session
from benchmarks.harness import Sizes
from benchmarks.processes import MIB, Peak
from benchmarks.report import Goal, Report, Table

ROWS, WIDE = 30, 500_000  # of a side; bytes of a row
MOST_MIB = 1024
KSQLDB = "".join(
    f"CREATE STREAM {side} (k BIGINT KEY, t BIGINT, v VARCHAR) "
    f"WITH (kafka_topic='{side}', value_format='JSON', timestamp='t', partitions=1); "
    for side in "lr"
)
RISINGWAVE = "".join(f"CREATE TABLE {x} (id BIGINT PRIMARY KEY, k BIGINT, v VARCHAR, ts TIMESTAMP); " for x in "lr")
JOINS = {
    "ksqldb": KSQLDB + "CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.v AS rv "
    "FROM l JOIN r WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k;",
    "risingwave": RISINGWAVE + "CREATE MATERIALIZED VIEW o AS SELECT l.id, r.id AS rid, l.v, r.v AS rv FROM l JOIN r "
    "ON l.k = r.k AND l.ts BETWEEN r.ts - INTERVAL '5' SECOND AND r.ts + INTERVAL '5' SECOND;",
}


def run(sizes: Sizes) -> Report:
    report, lines = Report(), []
    with TemporaryDirectory(prefix="braid-bench-") as made:
        data = Path(made) / "data"
        for side in "lr":
            (data / side).mkdir(parents=True)
            _rows().write_parquet(data / side / "0000.parquet")
        for dialect, sql in JOINS.items():
            spark = session(sizes)
            try:
                with Peak() as peak:
                    done = on_spark(spark, plan_of(sql, dialect), Path(made) / dialect, sizes, data=data, output="o")
            finally:
                spark.stop()
            assert done.rows_out == ROWS * ROWS
            worker = peak.worker / MIB
            lines.append((dialect, f"{done.rows_out:,}", f"{worker:,.0f}"))
            report.goals.append(Goal(f"rows of {WIDE:,} bytes, {dialect}: MiB of a worker", worker, "<=", MOST_MIB))
    text = f"{ROWS} rows of {WIDE:,} bytes meet {ROWS} others of one key, into a topic. Of the largest worker."
    report.tables.append(Table("Wide rows", text, ("dialect", "pairs", "worker MiB"), tuple(lines)))
    return report


def _rows() -> pl.DataFrame:
    """One key, a row each 100 ms; texts that no compression makes small."""
    n = list(range(ROWS))
    texts = [os.urandom(WIDE // 2).hex() for _ in n]
    frame = pl.DataFrame({"k": [1] * ROWS, "t": [START + 100 * i for i in n], "v": texts, "id": n})
    return frame.with_columns(ts=pl.from_epoch("t", time_unit="ms"))
