"""Rows below the watermark of a table, by whatever way they came into its topic: RW-43.

Rule: the view and the batch query see the same rows; what is left out is counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from braid.bind.bound import BatchAsked
from braid.bind.program import Program
from braid.expr.nodes import Col
from braid.face.effects import StoreTables
from braid.face.show import put_records
from braid.files.input import open_files
from braid.operators.changes import LOW, POS, POS_TYPE
from braid.operators.clocks import CLOCK, STEPS, Clocks
from braid.operators.on_time import OnTime
from braid.operators.watermarks import Watermark
from braid.store import opened
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from braid.types import Scalar

SQL = """CREATE SOURCE s (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '20' SECOND);
CREATE MATERIALIZED VIEW v AS SELECT id FROM s;
"""
NOON = datetime(2024, 1, 1, 12)
PUT = [(1, 60, 1), (2, 0, 1), (3, 40, 2), (4, 39, 2), (5, None, 2), (6, 100, 3), (7, 79, 3)]
"""(id, seconds behind noon, time of the record): what counts is the watermark before the record."""
MORE = [(8, 60, 4), (9, 80, 4), (10, 79, 4)]
ON_TIME, LATER = [1, 3, 6], [9]


def put(store: Path, rows: Sequence[tuple[int, int | None, int]]) -> None:
    times = [None if at is None else str(NOON + timedelta(seconds=at)) for _, at, _ in rows]
    lines = [
        json.dumps({"value": {"id": i, "ts": t}, "timestamp": e}) for (i, _, e), t in zip(rows, times, strict=True)
    ]
    put_records(Store(opened(str(store))), "s", lines, 1)


def in_table(store: Path) -> tuple[list[int], list[str]]:
    """What a batch query sees of the table, and what it says of others."""
    *_, last = Program("risingwave").statements(SQL + "SELECT id FROM s ORDER BY id;")
    assert isinstance(last.bound, BatchAsked)
    tables = StoreTables(TopicStore(opened(store)))
    _, rows = tables.rows(last.bound.query)
    return [i for (i,) in rows], tables.left_out(last.bound.query)


def test_a_batch_query_does_not_see_them(tmp_path: Path) -> None:
    put(tmp_path, PUT)
    assert in_table(tmp_path) == (ON_TIME, ["4 records of s came later than its watermark: left out"])
    put(tmp_path, MORE)
    assert in_table(tmp_path)[0] == [*ON_TIME, *LATER]


TS = Col("ts", Scalar.BIGINT)


def judged(batches: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """What passes of rows (epoch, ts), batch by batch; the watermark is ts - 10."""
    operator, kept = OnTime(TS, Watermark(0, TS, TS)), dict[str, Any]()
    passed: list[int] = []
    for rows in batches:
        places = pl.Series(POS, [e * LOW + n for n, (e, _) in enumerate(rows)], dtype=POS_TYPE)
        steps = {POS: places, "leaf": 0, "part": 0, "kind": CLOCK, "value": [t - 10 for _, t in rows]}
        clocks = Clocks(pl.DataFrame(steps, schema=STEPS), kept)
        frame = pl.DataFrame({POS: places, "ts": [t for _, t in rows]}, schema={POS: POS_TYPE, "ts": pl.Int64})
        late, _ = operator.late(frame, clocks)
        passed += [t for (_, t), x in zip(rows, late, strict=True) if not x]
        kept = clocks.state()
    return passed


@pytest.mark.parametrize(
    ("rows", "passed"),
    [
        ([(1, 100), (1, 5), (2, 89), (2, 90)], [100, 90]),
        ([(1, 100), (2, 200), (2, 90), (2, 190)], [100, 200, 190]),
        ([(1, 100), (2, 90), (3, 89), (3, 300)], [100, 90, 300]),
        ([(5, 100), (5, 95), (5, 120), (5, 105), (6, 110)], [100, 95, 120, 110]),
    ],
)
def test_one_run_gives_what_two_give(rows: list[tuple[int, int]], passed: list[int]) -> None:
    for cut in range(len(rows) + 1):
        assert judged([rows[:cut], rows[cut:]]) == passed
    assert judged([[row] for row in rows]) == passed


def test_what_is_for_an_epoch_that_has_gone_by_comes_after_the_last_one() -> None:
    assert judged([[(5, 100)], [(3, 5), (6, 90)]]) == [100, 90]


def ran(folder: Path, *more: str) -> list[int]:
    """What the view holds after a run."""
    from cli_help import QUICK, braid, on_shared_spark

    said = on_shared_spark("run", "-e", SQL, "--dialect", "risingwave", "--store", "st", "--until-idle", *more, *QUICK,
                           cwd=folder)  # fmt: skip
    assert said.code == 0, said.err
    lines = braid("cat", "v", "--store", folder / "st", "--format", "jsonl").out.splitlines()
    return sorted(json.loads(line)["value"]["id"] for line in lines)


def lost(folder: Path) -> list[tuple[str, int]]:
    from cli_help import braid

    lines = braid("drops", "v", "--store", folder / "st", "--format", "jsonl").out.splitlines()
    return [(x["reason"], x["offset"]) for x in map(json.loads, lines)]


@pytest.mark.spark
def test_a_view_over_a_topic_does_not_see_them(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    put(tmp_path / "st", PUT)
    assert ran(tmp_path) == ON_TIME
    put(tmp_path / "st", MORE)
    assert ran(tmp_path) == [*ON_TIME, *LATER] == in_table(tmp_path / "st")[0]
    assert lost(tmp_path) == [("late", n) for n in (1, 3, 4, 6, 7, 9)]


FILES = {
    "1.csv": ([(1, 60), (2, 45), (3, 100), (4, 79), (5, None), (6, 80)], [1, 2, 3, 6]),
    "2.csv": ([(7, 80), (8, 79), (9, 200), (10, 179), (11, 180)], [1, 2, 3, 6, 7, 9, 11]),
}


@pytest.mark.spark
def test_a_view_over_files_does_not_see_them(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    for name, (rows, wanted) in FILES.items():
        lines = [f"{i},{'' if at is None else NOON + timedelta(seconds=at)}\n" for i, at in rows]
        (tmp_path / name).write_text("id,ts\n" + "".join(lines))
        assert ran(tmp_path, "--source", "s=*.csv") == wanted
    assert ran(tmp_path, "--source", "s=*.csv") == wanted
    assert lost(tmp_path) == [("late", 3), ("late", 4), ("late", 7), ("late", 9)]
    *_, last = Program("risingwave").statements(SQL + "SELECT id FROM s ORDER BY id;")
    assert isinstance(last.bound, BatchAsked)
    files = {"s": lambda source: open_files(source, str(tmp_path / "*.csv"), tmp_path / "copies")}
    tables = StoreTables(TopicStore(opened(tmp_path / "st")), files)
    assert [i for (i,) in tables.rows(last.bound.query)[1]] == wanted
    assert tables.left_out(last.bound.query) == ["4 records of s came later than its watermark: left out"]


CLOSED = """CREATE SOURCE s (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '20' SECOND);
CREATE TABLE t (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '20' SECOND) APPEND ONLY;
CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '1' MINUTE)
  GROUP BY window_start EMIT ON WINDOW CLOSE;
CREATE MATERIALIZED VIEW w AS SELECT window_start, count(*) AS n FROM TUMBLE(t, ts, INTERVAL '1' MINUTE)
  GROUP BY window_start EMIT ON WINDOW CLOSE;
"""
RUNS = [  # (id, seconds behind noon, time of the record); the window of noon is closed by the second one
    [(1, 10, 7), (2, 85, 7)],
    [(3, 20, 7), (4, 70, 7), (5, 30, 3)],
    [(6, 62, 3), (7, 160, 3), (8, 61, 9)],
]


@pytest.mark.spark
def test_a_window_closes_once_and_for_good(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from cli_help import QUICK, braid, on_shared_spark

    def closed(folder: Path, runs: Sequence[Sequence[tuple[int, int, int]]]) -> list[str]:
        for rows in runs:
            put(folder / "st", rows)
            said = on_shared_spark("run", "-e", CLOSED, "--dialect", "risingwave", "--store", "st", "--until-idle",
                                   *QUICK, cwd=folder)  # fmt: skip
            assert said.code == 0, said.err
        return braid("cat", "v", "--store", folder / "st", "--format", "jsonl").out.splitlines()

    (tmp_path / "two").mkdir()
    (tmp_path / "one").mkdir()
    two, one = closed(tmp_path / "two", RUNS), closed(tmp_path / "one", [[row for rows in RUNS for row in rows]])
    assert two == one
    rows = [json.loads(line) for line in two]
    assert [(r["value"]["n"], r["timestamp"]) for r in rows] == [(1, 7), (2, 7)]


@pytest.mark.spark
def test_rows_of_one_statement_do_not_make_each_other_late(tmp_path: Path) -> None:
    """In the view that reads them from the topic either; what is put behind them is judged record by record."""
    pytest.importorskip("pyspark")
    from cli_help import QUICK, braid, on_shared_spark

    insert = f"INSERT INTO t VALUES (1, '{NOON + timedelta(seconds=100)}'), (2, '{NOON}'), (3, NULL);"
    for sql in (CLOSED + insert, CLOSED):
        said = on_shared_spark("run", "-e", sql, "--dialect", "risingwave", "--store", "st", "--until-idle", *QUICK,
                               cwd=tmp_path)  # fmt: skip
        assert said.code == 0, said.err
        lines = [json.dumps({"value": {"id": 9, "ts": str(NOON + timedelta(seconds=s))}}) for s in (79, 150)]
        put_records(Store(opened(str(tmp_path / "st"))), "t", lines, 1)
    rows = [
        json.loads(x)["value"]["n"]
        for x in braid("cat", "w", "--store", tmp_path / "st", "--format", "jsonl").out.splitlines()
    ]
    assert rows == [1, 1]
    drops = braid("drops", "w", "--store", tmp_path / "st", "--format", "jsonl").out.splitlines()
    assert [json.loads(x)["reason"] for x in drops] == ["late"]
