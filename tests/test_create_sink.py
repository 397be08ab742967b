"""CREATE SINK of risingwave: tables of a real PostgreSQL, of Delta and Iceberg, beside the rows of the views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from braid.bind.bound import BatchAsked
from braid.face.catalogue import Catalogue
from braid.face.effects import StoreTables
from braid.topics.store import TopicStore
from cli_help import Said, on_shared_spark
from postgres.server import Missing, running


@pytest.fixture(scope="module")
def server() -> Iterator[psycopg.Connection]:
    try:
        with running() as connection:
            connection.execute("SET client_min_messages = error")
            yield connection
    except Missing as e:
        pytest.skip(str(e))


@pytest.fixture
def db(server: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """The server, empty."""
    server.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    yield server


def run(folder: Path, sql: str, *more: str) -> Said:
    (folder / "q.sql").write_text(sql, encoding="utf-8")
    words = ("run", "q.sql", "--store", "s", "--dialect", "risingwave", "--until-idle", "--batch-rows", "3")
    return on_shared_spark(*words, *more, cwd=folder)


def viewed(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a view as they stand in the store."""
    store = TopicStore(folder / "s")
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
def test_postgres(db: psycopg.Connection, tmp_path: Path) -> None:
    to = f"connector = 'postgres', host = '{db.info.host}', user = 'judge', database = 'postgres'"
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
