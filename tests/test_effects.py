"""One reading of a statement: at every door it does the same.

Rule: statements that need no Spark, through the test driver, `braid run`, a session and the prompt.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from braid.errors import BraidError
from braid.face.session import Session
from braid.face.shell import Shell
from braid.store import opened
from braid.testing.driver import Driver
from braid.topics.store import TopicStore
from braid.topics.store_value import Store
from cli_help import braid


@dataclass(frozen=True, slots=True)
class Seen:
    """The topics that are there after the statements, and the rows that the last of them showed, as texts."""

    topics: list[str]
    rows: list[list[str]]


def at_driver(sql: str, dialect: str, _: Path) -> Seen:
    with Driver(dialect=dialect) as d:
        rows = d.execute(sql) or []
        return Seen(sorted(d._backend.topics), [list(map(str, r)) for r in rows])  # type: ignore[attr-defined]


def at_run(sql: str, dialect: str, folder: Path) -> Seen:
    (folder / "q.sql").write_text(sql)
    said = braid("run", folder / "q.sql", "--dialect", dialect, "--store", folder / "s", "--quiet")
    assert said.code == 0, said.err
    return Seen(TopicStore(opened(folder / "s")).names(), [line.split() for line in said.out.splitlines()][1:])


def at_session(sql: str, dialect: str, folder: Path) -> Seen:
    session = Session(dialect, opened(str(folder / "s")), cast(Any, None))
    first, _, last = sql.rstrip().rstrip(";").rpartition(";")
    session.execute(first)
    rows = session.query(last) if last.split()[0] == "SELECT" else session.execute(last) and []
    return Seen(TopicStore(opened(folder / "s")).names(), [list(map(str, r)) for r in rows])


def at_prompt(sql: str, dialect: str, folder: Path) -> Seen:
    out, err = io.StringIO(), io.StringIO()
    shell = Shell(
        dialect, Store(opened(str(folder / "s"))), Console(file=out), Console(file=err), live=False, master="local[1]"
    )
    for statement in sql.rstrip().rstrip(";").split(";"):
        shell.run(f"{statement};")
    shell.close()
    assert not shell.failed, err.getvalue()
    lines = [line.split() for line in out.getvalue().splitlines()]
    return Seen(TopicStore(opened(folder / "s")).names(), [x for x in lines if x[1:2] not in (["row"], ["rows"])][1:])


DOORS = pytest.mark.parametrize("door", [at_driver, at_run, at_session, at_prompt])
Door = Callable[[str, str, Path], Seen]

STREAM = "CREATE STREAM a (k INT KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions=2);"
INSERT = "INSERT INTO a (rowtime, k, v) VALUES (1, 1, 1);"


@DOORS
@pytest.mark.parametrize(("dropped", "left"), [("DROP STREAM a DELETE TOPIC;", []), ("DROP STREAM a;", ["t"])])
def test_drop(door: Door, dropped: str, left: list[str], tmp_path: Path) -> None:
    assert door(STREAM + INSERT + dropped, "ksqldb", tmp_path).topics == left


@DOORS
def test_a_dropped_table_starts_empty(door: Door, tmp_path: Path) -> None:
    table = "CREATE TABLE t (a INT PRIMARY KEY, b INT);"
    sql = table + "INSERT INTO t VALUES (1, 1), (2, 2); DROP TABLE t;" + table + "SELECT count(*) AS n FROM t;"
    assert door(sql, "risingwave", tmp_path) == Seen(["t"], [["0"]])


@DOORS
def test_rows_of_tables(door: Door, tmp_path: Path) -> None:
    sql = """CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);
        UPDATE t SET b = 20 WHERE a = 2; DELETE FROM t WHERE a = 1; CREATE TABLE u AS SELECT b AS c FROM t; FLUSH;
        SELECT a, b, c FROM t JOIN u ON b = c ORDER BY a;"""
    assert door(sql, "risingwave", tmp_path) == Seen(["t", "u"], [["2", "20", "20"], ["3", "3", "3"]])


def test_session_and_prompt_forget_a_statement_that_fails_half_way(tmp_path: Path) -> None:
    """The topic has other partitions: found when the statement is carried out."""
    again = "CREATE STREAM b (k INT KEY) WITH (kafka_topic='t', value_format='JSON', partitions=3);"
    session = Session("ksqldb", opened(str(tmp_path / "s")), cast(Any, None))
    with pytest.raises(BraidError, match="has 2 partitions, not 3"):
        session.execute(STREAM + again + "DROP STREAM a DELETE TOPIC;")
    assert list(session._program.catalog.sources) == ["A"] and TopicStore(opened(tmp_path / "s")).names() == ["t"]
    out = io.StringIO()
    shell = Shell(
        "ksqldb",
        Store(opened(str(tmp_path / "s"))),
        Console(file=out),
        Console(file=out),
        live=False,
        master="local[1]",
    )
    shell.run(STREAM + again)
    assert shell.failed and list(shell.program.catalog.sources) == ["A"]


def test_a_refused_statement_keeps_a_session_from_all_of_its_text(tmp_path: Path) -> None:
    session = Session("ksqldb", opened(str(tmp_path / "s")), cast(Any, None))
    with pytest.raises(BraidError, match="unknown column W"):
        session.execute(STREAM + "CREATE STREAM o AS SELECT k, w FROM a;")
    assert not session._program.catalog.sources and TopicStore(opened(tmp_path / "s")).names() == []


def test_variables_of_a_session_stay(tmp_path: Path) -> None:
    session = Session("ksqldb", opened(str(tmp_path / "s")), cast(Any, None))
    session.execute("DEFINE topic = 't';")
    session.execute(STREAM.replace("'t'", "'${topic}'"))
    assert TopicStore(opened(tmp_path / "s")).names() == ["t"]


def test_what_is_no_query_does_nothing_in_query(tmp_path: Path) -> None:
    session = Session("risingwave", opened(str(tmp_path / "s")), cast(Any, None))
    with Driver(dialect="risingwave") as driver:
        for door in (session, driver):
            with pytest.raises(BraidError, match="this is not a query over tables"):
                door.query("CREATE TABLE t (a INT PRIMARY KEY);")
            with pytest.raises(BraidError, match="t"):
                door.query("SELECT * FROM t;")
    assert TopicStore(opened(tmp_path / "s")).names() == []


def test_a_topic_is_listed_once(tmp_path: Path) -> None:
    with Driver() as d:
        d.execute(STREAM + "CREATE STREAM o AS SELECT * FROM a;")
        with pytest.raises(BraidError) as refused:
            d.read("nothing")
    assert refused.value.hint == "known: O, t"
