"""A SELECT at a terminal: dates and times as people read them, how many rows, after how long; elsewhere values stay."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from braid.expr.nodes import Col
from braid.face.formatting import counted, readable, shown_as
from braid.face.shell import Shell
from braid.store import opened
from braid.topics.store_value import Store
from braid.types import Array, Column, Map, Scalar, Struct
from cli_help import braid

S = Scalar
AT, SHOWN = 1_704_103_200_500, "2024-01-01T10:00:00.500Z"
DECLARED = """CREATE STREAM s (k INT KEY, ts TIMESTAMP, d DATE, t TIME, n BIGINT, a ARRAY<TIMESTAMP>)
  WITH (kafka_topic='s', value_format='JSON', partitions=1);
"""
SELECTED = "k, ts, d, t, n, a, ROWTIME, ROWTIME AS at"
LINE = f'1  {SHOWN}  2024-01-01  10:00:00.500  {AT}  ["{SHOWN}"]  {SHOWN}  {SHOWN}'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    value = {"TS": AT, "D": 19_723, "T": 36_000_500, "N": AT, "A": [AT]}
    braid("put", "s", "--store", tmp_path, stdin=json.dumps({"key": 1, "value": value, "timestamp": AT}))
    return tmp_path


def prompt(store: Path, sql: str, live: bool) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    shell = Shell(
        "ksqldb",
        Store(opened(str(store))),
        Console(file=out, width=300),
        Console(file=err, width=300),
        live,
        "local[1]",
    )
    try:
        shell.run(sql)
    finally:
        shell.close()
    return out.getvalue(), err.getvalue()


@pytest.mark.parametrize("live", [True, False])
def test_a_pull_query_of_ksqldb(live: bool, store: Path) -> None:
    out, err = prompt(store, f"{DECLARED} SELECT {SELECTED} FROM s;", live)
    assert re.sub(" +", " ", out.splitlines()[-1]) == LINE.replace("  ", " ")
    assert bool(re.search(r"^1 row, \d+\.\d\d s$", err, re.MULTILINE)) == live


def test_a_push_query_and_windows(store: Path) -> None:
    out, err = prompt(store, f"{DECLARED} SELECT {SELECTED} FROM s EMIT CHANGES;", False)
    assert re.sub(" +", " ", out.splitlines()[-1]) == LINE.replace("  ", " ") and "1 row\n" in err
    counts = (
        "SELECT k, WINDOWSTART, WINDOWEND, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k EMIT CHANGES;"
    )
    out, _ = prompt(store, DECLARED + counts, False)
    assert re.sub(" +", " ", out.splitlines()[-1]) == "+ 1 2024-01-01T10:00:00.000Z 2024-01-01T11:00:00.000Z 1"


def test_json_lines_keep_their_values(store: Path) -> None:
    braid("sql", "--store", store, "-e", DECLARED)
    (line,) = braid("cat", "s", "--format", "jsonl", "--store", store).out.splitlines()
    assert json.loads(line)["value"]["TS"] == AT and json.loads(line)["timestamp"] == AT


def test_a_batch_query_is_counted_too(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1), (2); SELECT * FROM t;"
    out, err = io.StringIO(), io.StringIO()
    shell = Shell("risingwave", Store(opened(str(tmp_path))), Console(file=out), Console(file=err), True, "local[1]")
    shell.run(sql)
    shell.close()
    assert re.search(r"^2 rows, \d+\.\d\d s$", err.getvalue(), re.MULTILINE), err.getvalue()
    assert "rows," not in braid("run", "-e", sql, "--dialect", "risingwave", "--store", tmp_path / "other").err


def test_values_and_types() -> None:
    fields = Struct((Column("A", S.DATE), Column("B", S.BIGINT)))
    assert readable({"A": 0, "B": 0, "C": 1}, fields) == {"A": "1970-01-01", "B": 0, "C": 1}
    assert readable({"x": 0}, Map(S.VARCHAR, S.TIMESTAMP)) == {"x": "1970-01-01T00:00:00.000Z"}
    assert readable([None, 1], Array(S.TIMESTAMP)) == [None, "1970-01-01T00:00:00.001Z"]
    assert readable(None, S.TIMESTAMP) is None and readable(True, S.TIMESTAMP) is True and readable("x", S.DATE) == "x"
    assert readable(10**18, S.TIMESTAMP) == str(10**18)  # beyond the calendar
    assert shown_as(Col("T.ROWTIME", S.BIGINT)) is S.TIMESTAMP and shown_as(Col("T.WINDOWEND", S.BIGINT)) is S.TIMESTAMP
    assert shown_as(Col("T.ROWTIME", S.VARCHAR)) is S.VARCHAR and shown_as(Col("T.N", S.BIGINT)) is S.BIGINT
    assert counted(1, 0.004) == "1 row, 0.00 s" and counted(1234, 2) == "1,234 rows, 2.00 s"


INNER = {
    "ksqldb": """CREATE STREAM a (k INT KEY, v INT) WITH (kafka_topic='a', value_format='JSON', partitions=1);
      CREATE STREAM b (k INT KEY, v INT) WITH (kafka_topic='b', value_format='JSON', partitions=1);
      INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES ({}, 2);
      SELECT a.k AS k, b.v AS v FROM a JOIN b WITHIN 1 HOUR ON a.k = b.k EMIT CHANGES;""",
    "lenses": """CREATE TABLE a(_key INT, v INT) FORMAT (INT, JSON); CREATE TABLE b(_key INT, v INT) FORMAT (INT, JSON);
      INSERT INTO a(_key, v) VALUES (1, 1); INSERT INTO b(_key, v) VALUES ({}, 2);
      SELECT STREAM a.v AS x, b.v AS y FROM a JOIN b WITHIN 1h;""",
}


@pytest.mark.parametrize("dialect", INNER)
def test_an_inner_join_that_has_met_nothing_is_told_at_the_prompt(dialect: str, tmp_path: Path) -> None:
    for key, told in (2, True), (1, False):
        said = braid("sql", "--dialect", dialect, "--store", tmp_path / str(key), "-e", INNER[dialect].format(key))
        assert said.code == 0, said.err
        assert ("note: no rows have met in the inner join" in said.err) is told, said.err
