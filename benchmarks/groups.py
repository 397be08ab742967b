"""What a change of a group costs beside what the group holds: aggregates, top-N, OVER over rows that come and go.

In: numbers of rows in one group. Out: for each the time in which the group's rows are taken in, the CPU of a batch that
adds one row and of one that takes the largest away, and the rows that are kept when all have gone.
Rule: one group holds all rows, so what grows with it is what nobody asked for. The operators run in this process, as a
bucket of a query runs them; there is no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import process_time

import polars as pl

from benchmarks.harness import Sizes
from benchmarks.report import Goal, Report, Table
from braid.bind.bound import QueryBound
from braid.bind.program import Program
from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.operators.arrangement import held
from braid.stage.decode import decode
from braid.stage.ingest import Chunk
from braid.stage.local import LocalQuery
from braid.topics.envelope import RAW

SQL = "CREATE TABLE t (id INT PRIMARY KEY, g INT, x INT, y DOUBLE);"
VIEWS = {
    "SUM": "CREATE MATERIALIZED VIEW v AS SELECT g, sum(x) AS a FROM t GROUP BY g;",
    "MAX": "CREATE MATERIALIZED VIEW v AS SELECT g, max(x) AS a FROM t GROUP BY g;",
    "MIN, MAX of two columns": "CREATE MATERIALIZED VIEW v AS SELECT g, min(x) AS a, max(x) AS b, min(y) AS c,"
    " max(y) AS d FROM t GROUP BY g;",
    "COUNT(DISTINCT)": "CREATE MATERIALIZED VIEW v AS SELECT g, count(DISTINCT x) AS a FROM t GROUP BY g;",
    "a count of all": "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS a FROM t;",
    "the ten largest": "CREATE MATERIALIZED VIEW v AS SELECT g, x FROM"
    " (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY x DESC) AS n FROM t) y WHERE n <= 10;",
    "LIMIT 10": "CREATE MATERIALIZED VIEW v AS SELECT g, x FROM t ORDER BY x DESC LIMIT 10;",
    "OVER, ten rows": "CREATE MATERIALIZED VIEW v AS SELECT id, sum(x) OVER"
    " (PARTITION BY g ORDER BY x ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS a FROM t;",
}
SMALL_CHANGE = ("MAX", "the ten largest", "LIMIT 10")  # what should not cost more than `GOAL_MS`
ROWS, ROUNDS, GOAL_MS = (100_000, 1_000_000), 15, 20


def run(sizes: Sizes) -> Report:
    report = Report()
    rows, slowest = [], dict[str, float]()
    for size in ROWS if sizes.rows >= max(ROWS) else (min(ROWS[0], sizes.rows),):
        for name, view in VIEWS.items():
            built, add, take, left = _taken(plan_of(view), size)
            slowest[name] = max(add, take)
            rows.append((f"{size:,}", name, f"{built:.1f}", f"{add:.1f}", f"{take:.1f}", f"{left:,}"))
    columns = (
        "rows of the group", "of it", "taken in, s", "one row more, CPU ms", "the largest less, CPU ms",
        "kept when all went",
    )  # fmt: skip
    text = f"One group of a table with a primary key; the median of {ROUNDS} batches of one row each."
    report.tables.append(Table("Groups of rows that change", text, columns, tuple(rows)))
    for name in SMALL_CHANGE:
        what = f"a row more or less in a group of {ROWS[-1]:,}, {name}, ms of CPU"
        report.goals.append(Goal(what, slowest[name], "<=", GOAL_MS))
    return report


def plan_of(view: str) -> Plan:
    *_, last = Program("risingwave").statements(SQL + view)
    assert isinstance(last.bound, QueryBound)
    return lower(last.bound.query)


def _taken(plan: Plan, size: int) -> tuple[float, float, float, int]:
    """Seconds to take in so many rows; ms of CPU of a row more, of one less; rows kept when all have gone."""
    query, offset = LocalQuery(plan, 1, 1), 0
    source = plan.leaves[0].source

    def batch(ids: list[int] | range, there: bool) -> float:
        nonlocal offset
        made = pl.DataFrame({"i": ids}, schema={"i": pl.Int64})
        raw = made.select(
            (pl.int_range(pl.len()) + offset).alias("_offset"),
            pl.lit(1000 + offset, pl.Int64).alias("_t"),
            pl.col("i").cast(pl.String).alias("_key"),
            (_value() if there else pl.lit(None, pl.String)).alias("_value"),
        )
        raw = raw.with_columns(pl.lit(None, t).alias(n) for n, t in RAW.items() if n not in raw.columns)
        chunk = Chunk(0, 0, 0, decode(source, raw.select(list(RAW)), 0))
        offset += len(ids)
        begin = process_time()
        query.run([chunk])
        return process_time() - begin

    built = batch(range(size), True)
    more = [batch([size + n], True) for n in range(ROUNDS)]
    less = [batch([size + n], False) for n in reversed(range(ROUNDS))]
    for first in range(0, size, 50_000):
        batch(range(first, min(size, first + 50_000)), False)
    return built, 1000 * median(more), 1000 * median(less), sum(_kept(query))


def _value() -> pl.Expr:
    i = pl.col("i").cast(pl.String)
    y = ((pl.col("i") * 7919) % 1_000_003).cast(pl.String)
    return pl.concat_str(pl.lit('{"g":1,"x":'), i, pl.lit(',"y":'), y, pl.lit(".5}"))


def _kept(query: LocalQuery) -> Iterator[int]:
    """The rows of each part of the state."""
    for bucket in query.state_size():
        steps = bucket["steps"]
        assert isinstance(steps, dict)
        for manifest in steps.values():
            yield from (part.rows for part in held(manifest).values())
