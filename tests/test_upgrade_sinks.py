"""`braid upgrade` of streams that fill tables of other systems: the table goes on, each row is there once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

pytest.importorskip("pyspark")

from cli_help import Said, on_shared_spark
from sink_help import put
from test_upgrade import killed_at

pytestmark = [pytest.mark.spark, pytest.mark.operations]

DECLARED = "CREATE STREAM A (K BIGINT, V BIGINT) WITH (kafka_topic='a', value_format='JSON', partitions=1);"
OLD = f"{DECLARED} CREATE STREAM OUT AS SELECT K, V FROM A WHERE V <> 2;"
NEW = f"{DECLARED} CREATE STREAM OUT AS SELECT K, V + 100 AS V FROM A WHERE V <> 1;"
MORE = f"{DECLARED} CREATE STREAM OUT AS SELECT K, V, K + V AS W FROM A;"


def braid(root: Path, command: str, sql: str, sink: str) -> Said:
    (root / "q.sql").write_text(sql)
    more = ("--until-idle", "--quiet") if command == "run" else ()
    return on_shared_spark(command, "q.sql", "--store", "s", f"--sink=OUT={sink}", *more, cwd=root)


def goes_on(root: Path, sink: str, read: Callable[[], list[tuple[Any, ...]]], point: str) -> None:
    for step in range(2):
        put(root, "a", *({"K": step, "V": v} for v in range(4)), at=10 * step)
        assert (said := braid(root, "run", OLD, sink)).code == 0, said.err
    before = [(k, v) for k in range(2) for v in (0, 1, 3)]
    with killed_at(point):
        braid(root, "upgrade", NEW, sink)
    assert (said := braid(root, "upgrade", NEW, sink)).code == 0, said.err
    assert read() == before
    put(root, "a", *({"K": 2, "V": v} for v in range(4)), at=20)
    assert (said := braid(root, "run", NEW, sink)).code == 0, said.err
    assert read() == [*before, (2, 100), (2, 102), (2, 103)]


@pytest.mark.parametrize("point", [pytest.param("upgrade is ready", marks=pytest.mark.law), "writer taken over"])
def test_a_table_of_postgres_goes_on(tmp_path: Path, db: psycopg.Connection, point: str) -> None:
    sink = f"postgres:host={db.info.host} user=judge dbname=postgres"
    goes_on(tmp_path, sink, lambda: db.execute("SELECT k, v FROM out ORDER BY k, v").fetchall(), point)
    said = braid(tmp_path, "upgrade", MORE, sink)
    assert said.code == 1 and "the table out has no column w" in said.err and "ALTER TABLE out ADD COLUMN" in said.err
    db.execute("ALTER TABLE out ADD COLUMN w bigint")
    assert (said := braid(tmp_path, "upgrade", MORE, sink)).code == 0, said.err
    put(tmp_path, "a", {"K": 5, "V": 6}, at=30)
    assert (said := braid(tmp_path, "run", MORE, sink)).code == 0, said.err
    assert db.execute("SELECT k, v, w FROM out WHERE k = 5 OR w IS NOT NULL").fetchall() == [(5, 6, 11)]
    table = "CREATE TABLE OUT AS SELECT K, COUNT(*) AS V FROM A GROUP BY K;"
    said = braid(tmp_path, "upgrade", f"{DECLARED} {table}", sink)
    assert said.code == 1 and "its result was a stream, and is a table" in said.err


def test_a_delta_table_goes_on(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")

    def read() -> list[tuple[Any, ...]]:
        found = deltalake.DeltaTable(str(tmp_path / "d")).to_pyarrow_table().to_pylist()
        return sorted((x["K"], x["V"]) for x in found)

    goes_on(tmp_path, f"delta:{tmp_path / 'd'}", read, "last batch taken over")
