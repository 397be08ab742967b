"""CREATE SINK of risingwave: tables of a real PostgreSQL, of Delta and Iceberg, beside the rows of the views."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, NestedField

from braid import connect as braid_session
from braid.bind.bound import BatchAsked
from braid.bind.program import Program
from braid.errors import BraidError, SqlError
from braid.face.catalogue import Catalogue
from braid.face.effects import StoreTables
from braid.plan.logical import Elsewhere
from braid.sinks.named import sink_at, sink_of
from braid.sinks.postgres import PostgresSink
from braid.store import opened
from braid.topics.store import TopicStore
from cli_help import Said, braid, on_shared_spark, records


def run(folder: Path, sql: str, *more: str) -> Said:
    (folder / "q.sql").write_text(sql, encoding="utf-8")
    words = ("run", "q.sql", "--store", "s", "--dialect", "risingwave", "--until-idle", "--batch-rows", "3")
    return on_shared_spark(*words, *more, cwd=folder)


def viewed(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a view as they stand in the store."""
    store = TopicStore(opened(folder / "s"))
    (effect,) = Catalogue(store, "risingwave").program("once").statements(sql)
    assert isinstance(effect.bound, BatchAsked)
    return StoreTables(store).rows(effect.bound.query)[1]


def stands(db: psycopg.Connection, sql: str) -> list[tuple[Any, ...]]:
    return db.execute(sql).fetchall()


DECLARED = """
CREATE TABLE t (k INT PRIMARY KEY, g INT, n INT);
CREATE TABLE u (k INT PRIMARY KEY, name VARCHAR);
CREATE TABLE log (id INT, n INT) APPEND ONLY;
CREATE MATERIALIZED VIEW sums AS SELECT g, sum(n) AS total FROM t GROUP BY g;
CREATE MATERIALIZED VIEW named AS SELECT t.k AS k, t.n AS n, u.name AS name FROM t LEFT JOIN u ON t.g = u.k;
CREATE MATERIALIZED VIEW large AS SELECT id, n FROM log WHERE n > 10;
"""
# Rows that change their group, and so the bucket that a join has them in; a group that goes, and one of NULL.
FIRST = """
INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30), (4, NULL, 40), (5, NULL, 1);
INSERT INTO u VALUES (1, 'one'), (2, 'two');
INSERT INTO log VALUES (1, 5), (2, 50);
UPDATE t SET g = 2 WHERE k = 1;
UPDATE t SET g = 3 WHERE k = 3;
DELETE FROM t WHERE k = 2;
"""
SECOND = """
INSERT INTO u VALUES (3, 'three');
UPDATE t SET g = 1, n = 7 WHERE k = 3;
DELETE FROM u WHERE k = 2;
DELETE FROM t WHERE k = 4;
INSERT INTO log VALUES (2, 50), (4, 5);
"""
QUERIES = {
    "sums": "SELECT g, total FROM sums ORDER BY g",
    "named": "SELECT k, n, name FROM named ORDER BY k",
    "large": "SELECT id, n FROM large ORDER BY id",
}


@pytest.mark.spark
def test_postgres(db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter2")
    to = f"connector = 'postgres', host = '{db.info.host}', user = 'judge', password = '$PW', database = 'postgres'"
    db.execute("CREATE TABLE pg_named (n INT, name TEXT, k INT PRIMARY KEY)")
    sinks = f"""
    CREATE SINK pg_sums FROM sums WITH ({to}, table = 'pg_sums', type = 'upsert', primary_key = 'g');
    CREATE SINK pg_named FROM named WITH ({to}, table = 'pg_named', type = 'upsert');
    CREATE SINK pg_direct AS SELECT t.k, u.name FROM t JOIN u ON t.g = u.k
      WITH ({to}, table = 'pg_direct', type = 'upsert', primary_key = 'k');
    CREATE SINK pg_large FROM large WITH ({to}, table = 'pg_large', type = 'append-only');
    """
    for text in (DECLARED + sinks + FIRST, DECLARED + sinks + FIRST + SECOND):
        said = run(tmp_path, text)
        assert said.code == 0, said.err
        for name, sql in QUERIES.items():
            found = stands(db, sql.replace(name, f"pg_{name}"))
            assert found == viewed(tmp_path, sql) and found, name
        direct = "SELECT k, name FROM {} ORDER BY k"
        joined = viewed(tmp_path, direct.format("named").replace("ORDER", "WHERE name IS NOT NULL ORDER"))
        assert stands(db, direct.format("pg_direct")) == joined
    columns = stands(db, "SELECT attname FROM pg_attribute WHERE attrelid = 'pg_sums'::regclass AND attnum > 0")
    assert columns == [("g",), ("total",)]  # no hidden key
    assert not any(b"hunter2" in p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file())


@pytest.mark.spark
def test_lakes(tmp_path: Path, catalog: IcebergCatalog) -> None:
    """Upsert into Delta; rows that are added into Iceberg, and rows that change and are added all the same."""
    catalog.create_namespace("n")
    fields = (NestedField(1, "id", IntegerType()), NestedField(2, "n", IntegerType()))
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    catalog.create_table("n.large", IcebergSchema(*fields), partition_spec=by_id)
    to = "connector = 'iceberg', catalog.name = 'lake', database.name = 'n', type = 'append-only'"
    sinks = f"""
    CREATE SINK d FROM named WITH (connector = 'deltalake', location = 'file://{tmp_path}/d', type = 'upsert');
    CREATE SINK i FROM large WITH ({to}, table.name = 'large');
    CREATE SINK forced FROM named WITH ({to}, table.name = 'named', force_append_only = 'true');
    CREATE SINK told FROM named;
    """
    for text in (DECLARED + sinks + FIRST, DECLARED + sinks + FIRST + SECOND):
        said = run(tmp_path, text)
        assert said.code == 0, said.err
        assert rows_of(DeltaTable(str(tmp_path / "d")).to_pyarrow_table()) == viewed(tmp_path, QUERIES["named"])
        assert rows_of(catalog.load_table("n.large").scan().to_arrow()) == viewed(tmp_path, QUERIES["large"])
        told = [(r["key"]["k"], r["value"]) for r in records("told", tmp_path / "s") if r["value"] is not None]
        each = sorted(((k, v["n"], v["name"]) for k, v in told), key=repr)
        assert rows_of(catalog.load_table("n.named").scan().to_arrow()) == each


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(pl.DataFrame(table).rows(), key=repr)


# ----------------------------------------------------------------- before Spark


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark begins")

    monkeypatch.setattr("braid.spark.conf.session", begun)


def refused(folder: Path, sink: str, *more: str) -> str:
    (folder / "q.sql").write_text(f"{DECLARED}CREATE SINK x FROM named WITH ({sink}, type = 'upsert');", "utf-8")
    with contextlib.chdir(folder):
        said = braid("run", "q.sql", "--store", "s", "--dialect", "risingwave", "--until-idle", *more)
    assert said.code == 1 and not (folder / "s" / "checkpoints").exists()
    return said.err


def test_a_table_is_looked_at_before_spark_begins(
    no_spark: None, db: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("CREATE TABLE small (k smallint PRIMARY KEY, n int, name text)")
    to = f"connector = 'postgres', host = '{db.info.host}', user = 'judge', database = 'postgres', table = 'small'"
    assert "public.small.k is smallint, and cannot hold all of INTEGER" in refused(tmp_path, to)
    assert "the environment has no NOT_SET" in refused(tmp_path, f"{to}, password = '$NOT_SET'")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").touch()
    assert "is no Delta table, and not empty" in refused(tmp_path, "connector = 'deltalake', location = 'd'")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install 'braid-sql[postgres]'" in refused(tmp_path, to)


def test_a_folder_is_filled_by_one_sink(no_spark: None, tmp_path: Path) -> None:
    to = "connector = 'deltalake', location = 'd', type = 'upsert'); CREATE SINK y FROM sums WITH ("
    assert "the sinks x and y name one folder" in refused(tmp_path, f"{to}connector = 'deltalake', location = 'd'")


def test_a_sink_in_a_plan_is_a_value() -> None:
    """Whatever is in its names, nothing of it is read again as a word of a command line."""
    to = "connector = 'postgres', host = 'h', port = '1', user = 'a b', database = 'x''y', table = 'T t'"
    sql = f"CREATE TABLE t (k INT PRIMARY KEY); CREATE SINK s FROM t WITH ({to}, type = 'upsert');"
    (query,) = (e.query for e in Program("risingwave").statements(sql) if e.query is not None)
    assert query.sink.into == Elsewhere("postgres", "public.T t", r"host=h port=1 user='a b' dbname='x\'y'")
    made = sink_at(query.sink.into)
    assert made == sink_of(str(query.sink.into)) and isinstance(made, PostgresSink)
    assert made.settings() == {"host": "h", "port": "1", "user": "a b", "dbname": "x'y"}


def test_secrets_of_a_password_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pw").write_text("hidden\n", encoding="utf-8")
    monkeypatch.setenv("MINE", "hidden")
    for text in (f"postgres:host=h password=@{tmp_path / 'pw'}#a.b", "postgres:host=h password=$MINE"):
        made = sink_of(text)
        assert isinstance(made, PostgresSink) and made.settings()["password"] == "hidden"
        assert "hidden" not in repr(made) and "hidden" not in made.described()


@pytest.mark.parametrize("secret", ["password = 'hunter2'", "jdbc.url='jdbc:postgresql://me:hunter2@db/d'",
                                    "jdbc.url = 'jdbc:postgresql://db/d?user=me&password=hunter2'",
                                    "s3.secret.key = 'hunter2'", "token='it''s hunter2'"])  # fmt: skip
def test_no_line_that_is_shown_has_a_secret(secret: str) -> None:
    """Whatever is wrong with it, and wherever."""
    program = Program("risingwave")
    for at in (f"connector = 'jdbc', {secret}", f"nonsense = 1, {secret}", f"{secret} nonsense"):
        with pytest.raises(SqlError) as e:
            list(program.statements(f"CREATE TABLE t (k INT PRIMARY KEY); CREATE SINK s FROM t WITH ({at});"))
        assert "*******" in e.value.render() and "hunter2" not in e.value.render()


# ------------------------------------------------------------------- other doors


@pytest.mark.spark
def test_sink_goes_before_the_statement(tmp_path: Path) -> None:
    made = "CREATE SINK x FROM named WITH (connector = 'deltalake', location = 'd', type = 'upsert');"
    said = run(tmp_path, DECLARED + FIRST + made, "--sink=x=console")
    assert said.code == 0, said.err
    assert '{"k":5,"n":1,"name":null,"_op":"+"}' in said.out and not (tmp_path / "d").exists()


@pytest.mark.spark
def test_session_and_prompt(tmp_path: Path) -> None:
    """And rows that are kept by key, though they only come: those of windows that are closed."""
    from braid.testing.on_spark import shared_session

    declared = """CREATE TABLE e (g INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) APPEND ONLY;
    CREATE MATERIALIZED VIEW w AS SELECT window_start, g, count(*) AS n FROM TUMBLE(e, ts, INTERVAL '1' MINUTE)
      GROUP BY window_start, g EMIT ON WINDOW CLOSE;
    INSERT INTO e VALUES (1, '2024-01-01 10:00:00'), (1, '2024-01-01 10:00:59'), (NULL, '2024-01-01 10:00:30');
    INSERT INTO e VALUES (1, '2024-01-01 10:02:00');
    """
    sink = "CREATE SINK {0} FROM w WITH (connector = 'deltalake', location = '{1}/{0}', type = 'upsert', {2});"
    with braid_session("risingwave", str(tmp_path / "s"), shared_session()) as session:
        for handle in session.execute(declared + sink.format("a", tmp_path, "primary_key = 'g, window_start'")):
            handle.await_idle()
        with pytest.raises(BraidError, match="runs queries only"):
            session.sql(sink.format("z", tmp_path, "snapshot = 'true'"))
        assert "upsert into delta:" in str(session.explain(sink.format("z", tmp_path, "snapshot = 'true'")))
        with pytest.raises(BraidError, match="a is a sink"):
            session.query("SELECT * FROM a")
    words = ("sql", "--dialect", "risingwave", "--store", tmp_path / "s")
    said = braid(*words, stdin=sink.format("b", tmp_path, "primary_key = 'window_start, g'") + " FLUSH;")
    assert said.code == 0, said.err
    for name in "ab":
        found = pl.DataFrame(DeltaTable(str(tmp_path / name)).to_pyarrow_table()).select("g", "n")
        assert sorted(found.rows(), key=repr) == [(1, 2), (None, 1)], name
