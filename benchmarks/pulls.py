"""Pull queries: what it costs a table's query to keep its result by key, and how long an answer takes while it runs.

In: Parquet files; a topic that a thread writes to while the query runs. Out: rows/s with and without a kept result;
times of answers, of the session in this process and of the test driver.
Rule: with and without write the same topic, in turns. Answers are timed from the text of the SELECT to its rows, warm,
each for another key; the query has a table of all the keys and gets new records all the time.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.data import make, write_topic
from benchmarks.engines import on_spark, plan_of, session
from benchmarks.harness import Sizes, Variant, percentile, summaries, take_turns
from benchmarks.joins import AGGREGATE, STREAM, TABLES
from benchmarks.report import Goal, Report, Table
from braid.lower.physical import Plan
from braid.store import opened
from braid.topics import TopicStore

WITHOUT, WITH = "result not kept", "result kept"
GROUPS = STREAM.format(name="l") + "CREATE TABLE o AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM l GROUP BY k;"
WINDOWS = (
    STREAM.format(name="l") + "CREATE TABLE o AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM l "
    "WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 1 MINUTE) GROUP BY k;"
)
KEPT = {
    "groups of a stream": GROUPS,
    "groups in tumbling windows": WINDOWS,
    "an aggregate over an interval join": AGGREGATE,
    "a join of two tables": TABLES,
}
ASKED_OF = GROUPS.replace(", timestamp='t'", "")
KEYS = 1_000_000  # of the table that is asked
EACH, EVERY = 5_000, 0.25  # records written while it is asked, and s between
ASKED = 400  # questions of a kind


def run(sizes: Sizes) -> Report:
    report = Report()
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        spark = session(sizes)
        _costs(spark, Path(folder), sizes, report)
        spark.stop()
    with TemporaryDirectory(prefix="braid-bench-") as folder:
        _answers(Path(folder), sizes, report)
    return report


# ------------------------------------------------------------------ of keeping


def _costs(spark: Any, folder: Path, sizes: Sizes, report: Report) -> None:
    rows, keys = sizes.rows // 2, sizes.keys
    make(rows, sizes.files, keys, folder / "data", "lr")
    make(20_000, 4, 1000, folder / "tiny", "lr")
    for seed, name in enumerate("ab"):
        write_topic(folder / "topics", name, rows // 4, sizes.files, keys, seed)
    rows_of = []
    for title, sql in KEPT.items():
        print(f"  {title}", flush=True)
        plan, tables = plan_of(sql), sql is TABLES
        where = {"store": folder / "topics"} if tables else {"data": folder / "data"}
        warm = where if tables else {"data": folder / "tiny"}
        with TemporaryDirectory() as to:
            expected = _written(spark, sizes, plan, where, Path(to)).rows_out if tables else 0
            _written(spark, sizes, plan, warm, Path(to) / "warm")
        if not tables:
            with TemporaryDirectory() as to:
                expected = _written(spark, sizes, plan, where, Path(to)).rows_out
        variants: Mapping[str, Variant] = {
            WITHOUT: partial(_written, spark, sizes, plan.unkept(), where),
            WITH: partial(_written, spark, sizes, plan, where),
        }
        made = summaries(take_turns(variants, sizes.rounds, expected))
        kept = made[WITH].parts.get("keep", 0.0)
        rows_of.append((title, f"{made[WITHOUT].rate:,.0f}", f"{made[WITH].rate:,.0f}", f"{made[WITH].ratio:.2f}",
                        f"{made[WITH].ms:,.0f}", f"{kept:,.0f}", f"{100 * kept / made[WITH].ms:.1f}"))  # fmt: skip
    text = f"{rows:,} rows a stream, {keys:,} keys, batches of {sizes.batch:,}; results go to a topic of the store."
    columns = ("query", f"rows/s, {WITHOUT}", f"rows/s, {WITH}", "ratio", "trigger ms", "of it keeping, ms", "%")
    report.tables.append(Table("What keeping the result costs", text, columns, tuple(rows_of)))


def _written(spark: Any, sizes: Sizes, plan: Plan, where: Mapping[str, Path], to: Path) -> Any:
    """Into a topic that nothing has been written to."""
    name = f"o{time.monotonic_ns()}"
    return on_spark(spark, plan, to, sizes, output=name, **where)


# ------------------------------------------------------------------ of answers


def _answers(folder: Path, sizes: Sizes, report: Report) -> None:
    keys = min(KEYS, sizes.rows)
    rows = []
    for where, asked in (("session.query, topics in the store", _session), ("Driver.query, local runtime", _driver)):
        print(f"  {where}", flush=True)
        for kind, ms in asked(folder, keys).items():
            cells = (f"{percentile(ms, share):.1f}" for share in (0.5, 0.99))
            rows.append((where, kind, *cells, f"{len(ms)}"))
            print(f"    {kind}: p50 {percentile(ms, 0.5):.1f} ms", flush=True)
            if kind.startswith("by key"):
                report.goals.append(Goal(f"{where}, {kind}: p50 ms", percentile(ms, 0.5), "<=", 20.0, ""))
    text = (
        f"Groups of a stream, {keys:,} of them; while they are asked {EACH:,} records come every {1000 * EVERY:.0f} ms "
        "(the driver gets one record before each question). Every question is for other keys."
    )
    columns = ("asked by", "what", "p50 ms", "p99 ms", "questions")
    report.tables.append(Table("Answers while the query runs", text, columns, tuple(rows)))


def _session(folder: Path, keys: int) -> dict[str, list[float]]:
    import braid

    topics = TopicStore(opened(folder))
    topics.create("l", 1)
    for first in range(0, keys, 100_000):
        topics.append_lines("l", _records(range(first, min(first + 100_000, keys))), 0)
    stop = threading.Event()

    def feed() -> None:
        r = random.Random(1)
        while not stop.wait(EVERY):
            topics.append_lines("l", _records(r.randrange(keys) for _ in range(EACH)), 0)

    with braid.connect(dialect="ksqldb", store=str(folder), master="local[2]") as session:
        (handle,) = session.execute(ASKED_OF)
        handle.await_idle()
        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        try:
            time.sleep(10 * EVERY)
            return _timed(session.query, keys)
        finally:
            stop.set()
            feeder.join()


def _driver(folder: Path, keys: int) -> dict[str, list[float]]:
    from braid.testing import Driver

    with Driver(dialect="ksqldb") as driver:
        driver.execute(ASKED_OF)
        for k in range(keys):
            driver.write("l", key=k, value={"V": 1})

        def ask(sql: str) -> list[tuple[Any, ...]]:
            driver.write("l", key=0, value={"V": 1})
            return driver.query(sql)

        return _timed(ask, keys)


def _records(keys: Iterable[int]) -> list[str]:
    return [json.dumps({"key": k, "value": {"V": 1}, "timestamp": 0}) for k in keys]


def _timed(ask: Callable[[str], list[tuple[Any, ...]]], keys: int) -> dict[str, list[float]]:
    """Milliseconds of each question, by kind."""
    r, found = random.Random(0), dict[str, list[float]]()
    kinds: dict[str, tuple[int, int, Callable[[], str]]] = {
        "by key": (ASKED, 1, lambda: f"k = {r.randrange(keys)}"),
        "ten keys": (ASKED // 4, 10, lambda: f"k IN ({', '.join(map(str, r.sample(range(keys), 10)))})"),
        "all rows, 10 of them": (ASKED // 40, 10, lambda: f"k >= {r.randrange(keys // 2)} LIMIT 10"),
    }
    for kind, (times, rows, where) in kinds.items():
        ask(f"SELECT * FROM o WHERE {where()};")
        for _ in range(times):
            sql = f"SELECT * FROM o WHERE {where()};"
            began = time.perf_counter()
            answer = ask(sql)
            found.setdefault(kind, []).append(1000 * (time.perf_counter() - began))
            assert len(answer) == rows, f"{sql}: {len(answer)} rows"
    return found
