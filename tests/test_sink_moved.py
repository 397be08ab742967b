"""Runs over tables that were dropped, put back or moved; and results whose names meet ours."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

pytest.importorskip("pyspark")

from cli_help import Said, braid, on_shared_spark
from sink_help import put

pytestmark = pytest.mark.spark

SQL = """CREATE STREAM A (K BIGINT, V BIGINT) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE STREAM OUT AS SELECT K, V FROM A;"""


def run(root: Path, sink: str, *more: str, sql: str = SQL, command: str = "run") -> Said:
    (root / "q.sql").write_text(sql)
    words = ("q.sql", "--store", "s", f"--sink=OUT={sink}", *more)
    return on_shared_spark(command, *words, *(("--until-idle",) if command == "run" else ()), cwd=root)


def test_a_table_that_was_put_back_is_refused_and_adopted(tmp_path: Path, db: psycopg.Connection) -> None:
    sink = f"postgres:host={db.info.host} user=judge dbname=postgres"

    def refused(told: str, *more: str) -> None:
        said = run(tmp_path, sink, *more)
        assert said.code == 1 and told in said.err, said
        assert "hint: " in said.err and "Spark" not in said.out + said.err

    put(tmp_path, "a", {"K": 1, "V": 1})
    assert (said := run(tmp_path, sink)).code == 0, said.err
    put(tmp_path, "a", {"K": 2, "V": 2}, at=10)
    db.execute("CREATE TABLE copy AS TABLE out; DROP TABLE out")
    refused("the table out is gone, and batch 0 was written there")
    refused("the table out is gone, and batch 0 was written there", "--adopt-table")
    db.execute("ALTER TABLE copy RENAME TO out")  # as pg_dump -t puts it back
    refused("the table out of PostgreSQL is not the table that was written: it is server")
    said = run(tmp_path, sink, "--adopt-table")
    assert said.code == 0 and "is taken as it is" in said.err and "were not compared" in said.err, said
    assert db.execute("SELECT k FROM out ORDER BY k").fetchall() == [(1,), (2,)]
    put(tmp_path, "a", {"K": 3, "V": 3}, at=20)
    assert (said := run(tmp_path, sink)).code == 0 and "taken" not in said.err, said.err  # it is known now
    assert on_shared_spark("rescale", "OUT", "--store", "s", "--buckets", "2", cwd=tmp_path).code == 0
    db.execute("VACUUM FULL out")
    db.execute("DELETE FROM out WHERE k = 1")
    more = "CREATE STREAM OUT AS SELECT K, V + 100 AS V FROM A;"
    changed = SQL.replace("CREATE STREAM OUT AS SELECT K, V FROM A;", more)
    assert (said := run(tmp_path, sink)).code == 0, said.err
    assert (said := run(tmp_path, sink, sql=changed, command="upgrade")).code == 0, said.err
    put(tmp_path, "a", {"K": 4, "V": 4}, at=30)
    assert (said := run(tmp_path, sink, sql=changed)).code == 0, said.err
    assert db.execute("SELECT k, v FROM out ORDER BY k").fetchall() == [(2, 2), (3, 3), (4, 104)]
    db.execute("CREATE TABLE copy AS TABLE out; DROP TABLE out; ALTER TABLE copy RENAME TO out")
    said = run(tmp_path, sink, sql=changed)
    assert said.code == 1 and "is not the table that was written" in said.err
    assert braid("reset", "OUT", "--store", tmp_path / "s").code == 0
    assert (said := run(tmp_path, sink, sql=changed)).code == 1 and "another run" in said.err, said.err
    assert (said := run(tmp_path, sink, "--overwrite", sql=changed)).code == 0, said.err
    assert db.execute("SELECT k FROM out ORDER BY k").fetchall() == [(1,), (2,), (3,), (4,)]


GROUPED = """CREATE TABLE s (id INT PRIMARY KEY, k INT);
CREATE MATERIALIZED VIEW "OUT" AS SELECT k, count(*) AS n, sum(id) AS _op FROM s GROUP BY k;
INSERT INTO s VALUES (1, 5), (2, 5), (3, NULL), (4, 6);"""


def test_a_group_needs_no_hidden_columns(tmp_path: Path, db: psycopg.Connection) -> None:
    from deltalake import DeltaTable

    where = f"postgres:host={db.info.host} user=judge dbname=postgres"
    words = ("--store", "s", "--dialect", "risingwave", "--until-idle")
    changes = "DELETE FROM s WHERE id = 3; UPDATE s SET k = 7 WHERE id = 4;"
    db.execute("CREATE TABLE mine (k int UNIQUE, n bigint, _op bigint)")
    for table, sink in (("mine", f"{where}#mine"), ("made", f"{where}#made"), ("", f"delta:{tmp_path / 'd'}")):
        name = f"v{table}"
        for sql in (GROUPED, GROUPED + changes):
            (tmp_path / "g.sql").write_text(sql.replace('"OUT"', name).replace(" s ", f" {name}_s "))
            said = on_shared_spark("run", "g.sql", *words, f"--sink={name}={sink}", cwd=tmp_path)
            assert said.code == 0, said.err
            if table:
                found = db.execute(f"SELECT * FROM {table} ORDER BY k").fetchall()  # type: ignore[call-overload]
            else:
                there = DeltaTable(str(tmp_path / "d")).to_pyarrow_table().to_pylist()
                found = sorted((tuple(x.values()) for x in there), key=lambda x: (x[0] is None, x[0]))
            at_first = [(5, 2, 3), (6, 1, 4), (None, 1, 3)]
            assert found == (at_first if sql == GROUPED else [(5, 2, 3), (7, 1, 4)])


def test_bounds_of_windows_that_were_selected(tmp_path: Path, db: psycopg.Connection) -> None:
    sql = """CREATE STREAM A (K BIGINT KEY, V BIGINT) WITH (kafka_topic='a', value_format='JSON', partitions=1);
    CREATE TABLE OUT AS SELECT K, COUNT(*) AS `windowstart`, WINDOWEND AS `_rowtime` FROM A
      WINDOW TUMBLING (SIZE 5 MILLISECONDS) GROUP BY K;"""
    lines = "".join(json.dumps({"key": 1, "value": {"V": n}, "timestamp": n}) + "\n" for n in (1, 2, 7))
    assert braid("put", "a", "--store", tmp_path / "s", stdin=lines).code == 0
    for n, sink in enumerate((f"postgres:host={db.info.host} user=judge dbname=postgres#w", "w.jsonl")):
        own = sql.replace("OUT", f"OUT{n}")
        (tmp_path / "q.sql").write_text(own)
        words = ("q.sql", "--store", "s", "--dialect", "ksqldb", "--until-idle", f"--sink=OUT{n}={sink}")
        assert (said := on_shared_spark("run", *words, cwd=tmp_path)).code == 0, said.err
    found = db.execute("SELECT k, windowstart, _rowtime, _windowstart FROM w ORDER BY 3").fetchall()
    assert found == [(1, 2, 5, 0), (1, 1, 10, 5)]
    rows = [json.loads(x) for p in sorted((tmp_path / "w.jsonl").glob("part-*")) for x in p.read_text().splitlines()]
    assert {(x["windowstart"], x["_rowtime"], x["_WINDOWSTART"]) for x in rows} >= {(2, 5, 0), (1, 10, 5)}
