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
from braid.operators.base import State
from braid.operators.changes import LOW, POS, POS_TYPE
from braid.operators.clocks import CLOCK, STEPS, Clocks
from braid.operators.on_time import OnTime
from braid.operators.watermarks import Watermark
from braid.stage.bucket import Keepless
from braid.topics.store import TopicStore
from braid.types import Scalar

SQL = """CREATE SOURCE s (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '20' SECOND);
CREATE MATERIALIZED VIEW v AS SELECT id FROM s;
"""
NOON = datetime(2024, 1, 1, 12)
PUT = [(1, 60, 1), (2, 0, 1), (3, 40, 2), (4, 39, 2), (5, None, 2), (6, 100, 3), (7, 79, 3)]
"""(id, seconds behind noon, epoch)"""
MORE = [(8, 60, 4), (9, 80, 4), (10, 79, 4)]
ON_TIME, LATER = [1, 2, 3, 6, 7], [9]


def put(store: Path, rows: Sequence[tuple[int, int | None, int]]) -> None:
    times = [None if at is None else str(NOON + timedelta(seconds=at)) for _, at, _ in rows]
    lines = [
        json.dumps({"value": {"id": i, "ts": t}, "timestamp": e}) for (i, _, e), t in zip(rows, times, strict=True)
    ]
    put_records(str(store), "s", lines, 1)


def in_table(store: Path) -> tuple[list[int], list[str]]:
    """What a batch query sees of the table, and what it says of others."""
    *_, last = Program("risingwave").statements(SQL + "SELECT id FROM s ORDER BY id;")
    assert isinstance(last.bound, BatchAsked)
    tables = StoreTables(TopicStore(store))
    _, rows = tables.rows(last.bound.query)
    return [i for (i,) in rows], tables.left_out(last.bound.query)


def test_a_batch_query_does_not_see_them(tmp_path: Path) -> None:
    put(tmp_path, PUT)
    assert in_table(tmp_path) == (ON_TIME, ["2 records of s came later than its watermark: left out"])
    put(tmp_path, MORE)
    assert in_table(tmp_path)[0] == [*ON_TIME, *LATER]


TS = Col("ts", Scalar.BIGINT)


def judged(batches: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """What passes of rows (epoch, ts), batch by batch; the watermark is ts - 10."""
    operator, state, kept = OnTime(TS, Watermark(0, TS, TS)), State(Keepless(), ""), dict[str, Any]()
    passed: list[int] = []
    for rows in batches:
        places = pl.Series(POS, [e * LOW + n for n, (e, _) in enumerate(rows)], dtype=POS_TYPE)
        steps = {POS: places, "leaf": 0, "part": 0, "kind": CLOCK, "value": [t - 10 for _, t in rows]}
        clocks = Clocks(pl.DataFrame(steps, schema=STEPS), kept)
        frame = pl.DataFrame({POS: places, "ts": [t for _, t in rows]}, schema={POS: POS_TYPE, "ts": pl.Int64})
        late, _ = operator.late(frame, clocks, state)
        passed += [t for (_, t), x in zip(rows, late, strict=True) if not x]
        kept = clocks.state()
    return passed


@pytest.mark.parametrize(
    ("rows", "passed"),
    [
        ([(1, 100), (1, 5), (2, 89), (2, 90)], [100, 5, 90]),
        ([(1, 100), (2, 200), (2, 90), (2, 89)], [100, 200, 90]),
        ([(1, 100), (2, 90), (3, 89), (3, 300)], [100, 90, 300]),
    ],
)
def test_an_epoch_may_go_on_in_the_next_batch(rows: list[tuple[int, int]], passed: list[int]) -> None:
    for cut in range(len(rows) + 1):
        assert judged([rows[:cut], rows[cut:]]) == passed
    assert judged([[row] for row in rows]) == passed


def test_what_is_for_an_epoch_that_has_gone_by_belongs_to_the_last_one() -> None:
    assert judged([[(5, 100)], [(3, 5), (6, 5)]]) == [100, 5]


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
    assert lost(tmp_path) == [("late", 3), ("late", 4), ("late", 7), ("late", 9)]


FILES = {  # where a row raises the highest time of all before it, an epoch begins
    "1.csv": ([(1, 60), (2, 0), (3, 100), (4, 39), (5, None), (6, 40)], [1, 2, 3, 6]),
    "2.csv": ([(7, 40), (8, 39), (9, 200), (10, 79), (11, 80)], [1, 2, 3, 6, 7, 9, 11]),
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
    tables = StoreTables(TopicStore(tmp_path / "st"), files)
    assert [i for (i,) in tables.rows(last.bound.query)[1]] == wanted
    assert tables.left_out(last.bound.query) == ["4 records of s came later than its watermark: left out"]
