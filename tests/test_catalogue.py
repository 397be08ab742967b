"""The store's catalogue: what was declared once need not be declared again, at whatever door one comes in."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from braid.bind.program import Mode, Program
from braid.errors import BraidError, SqlError
from braid.expr.loading import of_files
from braid.face.catalogue import Catalogue
from braid.face.shell import Shell
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.store_value import Store
from cli_help import braid
from sums import loaded, with_sum

S = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
O = "CREATE STREAM o AS SELECT k, v + 1 AS w FROM s;"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TopicStore:
    monkeypatch.chdir(tmp_path)
    return TopicStore(opened(tmp_path / "s"))


def program(store: TopicStore, mode: Mode = "cell", dialect: str = "ksqldb") -> Program:
    return Catalogue(store, dialect).program(mode)


def made(p: Program, sql: str) -> list[str]:
    return [type(e.bound).__name__ for e in p.statements(sql)]


DIALECTS = {
    "ksqldb": ([S, O, "CREATE TABLE n AS SELECT k, COUNT(*) AS c FROM o GROUP BY k;"], "DROP TABLE n;", ["S", "O"]),
    "risingwave": (
        [
            "CREATE TABLE s (k INT PRIMARY KEY, v INT);",
            "CREATE VIEW w AS SELECT v FROM s;",
            "CREATE MATERIALIZED VIEW o AS SELECT v FROM w;",
            "CREATE INDEX i ON s (v);",
        ],
        "DROP MATERIALIZED VIEW o;",
        ["s", "w", "i"],
    ),
    "sqlstream": (
        [
            "CREATE SCHEMA a;",
            "SET SCHEMA 'a';",
            "CREATE STREAM s (k INTEGER, v INTEGER);",
            "CREATE VIEW w AS SELECT STREAM k FROM s;",
        ],
        "DROP VIEW w;",
        ["a.S"],
    ),
    "lenses": (["CREATE TABLE s(_key INT, v INT) FORMAT (INT, JSON);"], "DROP TABLE s;", []),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_declaration_stands_for_the_next_reader(dialect: str, store: TopicStore) -> None:
    statements, dropped, left = DIALECTS[dialect]
    first = program(store, dialect=dialect)
    made(first, " ".join(statements))
    again = program(store, dialect=dialect)
    assert again.catalog.sources == first.catalog.sources
    assert list(again.catalog.views) == list(first.catalog.views)
    assert again.catalog.queries == first.catalog.queries and list(again.standing) == list(first.standing)
    made(again, dropped)
    assert [n.lower() for n in program(store, dialect=dialect).standing] == [n.lower() for n in left]


LAKE = "CREATE CONNECTION lake WITH (type = 'iceberg', catalog.uri = 'http://c:1', enable_config_load = true);"
TO_LAKE = (
    "CREATE SINK kept FROM lake WITH (connector = 'iceberg', type = 'append-only', connection = lake, "
    "database.name = 'd', table.name = 't');"
)


def test_a_connection_stands_for_the_next_reader(store: TopicStore) -> None:
    """It may be called as a table is, and is there for the sink that refers to it, as long as that is."""
    first = program(store, dialect="risingwave")
    (connection, *_) = first.statements(LAKE)
    assert connection.notices == (
        "enable_config_load has no effect here",
        "settings of a catalog are pyiceberg's: set PYICEBERG_CATALOG__LAKE__URI, or write ~/.pyiceberg.yaml",
    )
    made(first, "CREATE TABLE lake (a INT) APPEND ONLY;" + TO_LAKE)
    again = program(store, dialect="risingwave")
    assert again.catalog.connections == first.catalog.connections and again.catalog.fallen == {}
    assert [type(e.bound).__name__ for e in again.statements(LAKE + TO_LAKE)] == ["Connection", "Again"]
    with pytest.raises(SqlError, match="exists already, with another definition"):
        made(program(store, dialect="risingwave"), LAKE.replace("c:1", "c:2"))
    with pytest.raises(SqlError, match="used by kept"):
        made(again, "DROP CONNECTION lake;")
    made(again, "DROP SINK kept; DROP CONNECTION lake;")
    assert list(program(store, dialect="risingwave").standing) == ["lake"]
    assert list(program(store, dialect="risingwave").catalog.sources) == ["lake"]


@pytest.mark.parametrize(
    ("dialect", "statement", "old", "new"),
    [
        ("risingwave", "CREATE SOURCE x (t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECOND);", "'5'", "'9'"),
        ("risingwave", "CREATE SOURCE x (k INT, n INT AS k + 1);", "k + 1", "k + 2"),
        ("risingwave", "CREATE TABLE x (k INT PRIMARY KEY, n INT DEFAULT 1);", "DEFAULT 1", "DEFAULT 2"),
        ("risingwave", "CREATE SOURCE x (k INT) WITH (connector = 'kafka', scan.startup.mode = 'latest');",
         "'latest'", "'earliest'"),
        ("ksqldb", "CREATE STREAM x (k INT KEY, t BIGINT) WITH (kafka_topic='x', format='JSON', timestamp='t');",
         ", timestamp='t'", ""),
        ("ksqldb", "CREATE STREAM x (k INT KEY, t BIGINT) WITH (kafka_topic='x', format='JSON');", "JSON", "KAFKA"),
    ],
)  # fmt: skip
def test_a_source_that_says_something_else_is_another(
    dialect: str, statement: str, old: str, new: str, store: TopicStore
) -> None:
    """Not only its columns: nothing that is written is taken and then left as it was."""
    made(program(store, dialect=dialect), statement)
    for same in (statement, " " + statement.replace(" INT,", "  INTEGER,")):
        assert made(program(store, dialect=dialect), same) == ["SourceDeclared"]
    with pytest.raises(SqlError, match="exists already, with another definition"):
        made(program(store, dialect=dialect), statement.replace(old, new))


def test_the_same_statement_again_and_another_one(store: TopicStore) -> None:
    made(program(store), S + O)
    p = program(store)
    assert made(p, S.lower().replace("'json'", "'JSON'") + "-- again\n" + O) == ["SourceDeclared", "Again"]
    assert made(p, S.replace("v INT", "v  INTEGER")) == ["SourceDeclared"]  # the same declaration in other words
    with pytest.raises(SqlError, match="S exists already, with another definition") as e:
        made(p, S.replace("v INT", "v BIGINT"))
    assert "it was made by: CREATE STREAM s (k INT KEY, v INTEGER)" in str(e.value.hint) and e.value.column == 15
    other = O.replace("+ 1", "+ 2")
    with pytest.raises(SqlError, match="O exists already"):
        made(p, other)
    assert made(program(store, "file"), other) == ["QueryBound"]  # whether it may is for its checkpoint to say
    with pytest.raises(SqlError, match="O exists"):
        made(program(store, "file"), O + other)
    assert made(program(store, "once"), "SHOW STREAMS;") == ["Shown"]


def test_settings_and_variables_are_those_of_the_statement(store: TopicStore) -> None:
    text = "SET 'braid.late' = 'discard'; DEFINE t = 'topic'; " + S.replace("'s'", "'${t}'") + O
    made(program(store), text + "UNSET 'braid.late'; DEFINE t = 'other';")
    again = program(store)
    assert again.catalog.sources["S"].topic == "topic" and not again.variables
    assert again.settings == Program("ksqldb").settings
    assert again.standing["O"].sets == ("SET 'braid.late' = 'discard'",)


def test_all_doors_share_it(store: TopicStore) -> None:
    said = braid("run", "-e", S + "INSERT INTO s (k, v) VALUES (1, 2);", "--store", "s")
    assert said.code == 0, said.err
    assert braid("run", "-e", S, "--store", "s").code == 0
    assert "1 statement, no problem" in braid("check", "-e", O, "--store", "s").out
    assert "unknown" in braid("check", "-e", O, "--store", "elsewhere").err and not Path("elsewhere").exists()
    assert "read stream S" in braid("explain", "-e", O, "--store", "s").out
    shell = Shell(
        "ksqldb",
        Store(opened("s")),
        Console(file=(out := io.StringIO())),
        Console(file=io.StringIO()),
        False,
        "local[1]",
    )
    shell.run("SELECT * FROM s EMIT CHANGES;")
    assert out.getvalue().split() == ["K", "V", "1", "2"]
    TopicStore(opened("s")).create("put", 3)
    assert "put    3" in braid("run", "-e", "SHOW TOPICS;", "--store", "s").out
    assert "with another definition" in braid("run", "-e", S.replace("v INT", "v BIGINT"), "--store", "s").err


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"format": 2, "statements": []}', '{"format": 1, "statements": [{"name": 1}]}', "[" * 99999],
)
def test_a_spoilt_catalogue_is_named(text: str, store: TopicStore) -> None:
    made(program(store), S)
    path = Path(store.root.url) / "catalogue" / "ksqldb.json"
    path.write_text(text)
    with pytest.raises(BraidError, match="is no catalogue"):
        program(store)


def test_what_does_not_bind_any_more_is_left_out(store: TopicStore) -> None:
    made(program(store), S + O)
    path = Path(store.root.url) / "catalogue" / "ksqldb.json"
    document = loaded(path, "catalogue/ksqldb")
    document["statements"].append({"name": "X", "text": "CREATE NONSENSE x", "sets": [], "variables": {}})
    document["statements"].reverse()  # and the order does not matter
    path.write_bytes(with_sum(document, "catalogue/ksqldb"))
    assert list(program(store).standing) == ["S", "O"]


def test_what_was_made_with_a_type_keeps_it(store: TopicStore) -> None:
    typed = "CREATE STREAM s (k INT KEY, p `Pair`, n INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
    text = "CREATE TYPE `Pair` AS STRUCT<a INT, b STRING>; CREATE TYPE both AS STRUCT<p `Pair`, q `Pair`>;"
    made(program(store), text + typed + "CREATE STREAM o AS SELECT k, CAST(NULL AS BOTH) AS p FROM s;")
    first = program(store)
    assert made(first, text) == ["TypeMade", "TypeMade"]  # the same again
    with pytest.raises(SqlError, match="TYPE Pair exists already, with another definition"):
        made(first, "CREATE TYPE `Pair` AS INT;")
    made(first, "DROP TYPE `Pair`; CREATE TYPE `Pair` AS INT;")
    again = program(store)
    assert {n: str(t) for n, t in again.catalog.types.items()} == {
        "BOTH": "STRUCT<P STRUCT<A INTEGER, B VARCHAR>, Q STRUCT<A INTEGER, B VARCHAR>>",
        "Pair": "INTEGER",
    }
    assert again.catalog.sources == first.catalog.sources and again.queries.keys() == {"O"}


def test_types_of_types_do_not_double_for_ever() -> None:
    text = "CREATE TYPE t0 AS STRUCT<a INT, b INT>;"
    text += "".join(f"CREATE TYPE t{n} AS STRUCT<a t{n - 1}, b t{n - 1}>;" for n in range(1, 40))
    with pytest.raises(SqlError, match="expand to more than 10,000"):
        made(Program("ksqldb"), text)
    text = "CREATE TYPE t0 AS ARRAY<INT>;" + "".join(f"CREATE TYPE t{n} AS ARRAY<t{n - 1}>;" for n in range(1, 400))
    with pytest.raises(SqlError, match="levels of nesting"):
        made(Program("ksqldb"), text)


# ------------------------------------------------------------------ functions

SHOUT = """
from braid.functions import Column, deterministic


@deterministic
def shout(a: Column[str]) -> Column[str]:
    return a + "!"
"""


def test_what_needs_functions_is_named_where_they_are_not_given(store: TopicStore) -> None:
    Path("f.py").write_text(SHOUT, encoding="utf-8")
    loud = "CREATE STREAM loud AS SELECT k, SHOUT(CAST(v AS STRING)) AS w FROM s;"
    given = Catalogue(store, "ksqldb", of_files(("f.py",)))
    made(given.program("cell"), S + loud + "CREATE STREAM behind AS SELECT * FROM loud;")
    assert list(given.program("cell").catalog.sources) == ["S", "LOUD", "BEHIND"]
    without = program(store)
    assert list(without.catalog.sources) == ["S"]
    for sql, why in [
        (
            "CREATE STREAM x AS SELECT * FROM loud;",
            "LOUD was declared, but cannot be resolved here: unknown function SHOUT",
        ),
        ("DROP STREAM behind;", "BEHIND was declared, but cannot be resolved here: unknown stream or table LOUD"),
        ("CREATE STREAM x AS SELECT * FROM nobody;", "unknown stream or table NOBODY"),
    ]:
        with pytest.raises(SqlError) as e:
            made(without, sql)
        assert why in str(e.value)
