"""Statements of a file are done once per store.

In: stores. Out: what a run says, and what topics hold. Rule: commits of 0.1.0, which are refused, are named `kind-` and
24 hexadecimal digits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.bind.dialects import dialect_named
from braid.bind.program import Program
from braid.face.once import named
from braid.store import opened
from braid.topics import TopicStore
from cli_help import Said, braid

T = "CREATE TABLE t (id INT PRIMARY KEY, v REAL, s VARCHAR);"
ROWS = T + "INSERT INTO t VALUES (1, 0.1, 'a'), (2, 0.5, NULL);"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(sql: str, *words: str, dialect: str = "risingwave") -> Said:
    return braid("run", "-e", sql, "--dialect", dialect, "--store", "s", *words)


def done(said: Said) -> int:
    assert said.code == 0, said.err
    return said.err.count("was done before; skipped")


def ends(topic: str = "t") -> list[int]:
    return TopicStore(opened("s")).end_offsets(topic)


def test_words_are_the_name(folder: Path) -> None:
    assert done(run(ROWS)) == 0
    other = ROWS.replace("INSERT INTO t", "insert  -- again\n into T").replace("(2, 0.5", "( 2,0.5")
    assert done(run(other)) == 1 and ends() == [2]
    assert done(run(ROWS.replace("0.1", "0.10"))) == 0 and ends() == [4]


def test_names_stay_as_they_are() -> None:
    """A name that changes makes every statement of every store come again."""
    twice = "DELETE FROM t; DELETE FROM t;"
    made = list(Program("risingwave").statements(f"{ROWS} UPDATE t SET v = v + 1 WHERE id = 1; {twice}"))
    assert [n.name for n in named(made, dialect_named("risingwave").words)] == [
        "insert.c942c7b23c51553a70c19d4b",
        "update.205c41d4b69c00be5713834d",
        "delete.65a27cfda84c67372413801d",
        "delete.e4f2069ac385d6fcf154a3fb",
    ]
    of_stream = "CREATE STREAM l (k INT KEY) WITH (kafka_topic='L1', value_format='JSON'); DEFINE n = '7';"
    made = list(
        Program("ksqldb").statements(of_stream + "INSERT INTO l (k) VALUES (7); INSERT INTO l (k) VALUES (${n});")
    )
    assert [n.name for n in named(made, dialect_named("ksqldb").words)] == [
        "insert.c7e8abeab043f088aa316127",
        "insert.ce41aad3641a7ca3a2db661b",
    ]


def test_a_statement_that_finds_no_rows_is_done_too(folder: Path) -> None:
    gone = T + "DELETE FROM t WHERE id = 3; UPDATE t SET s = 'b' WHERE id = 3;"
    assert done(run(gone)) == 0
    assert done(run(gone + "INSERT INTO t VALUES (3, 1, 'c');")) == 2
    assert done(run(gone + "INSERT INTO t VALUES (3, 1, 'c');")) == 3 and ends() == [1]


def test_what_0_1_0_has_filled_is_refused(folder: Path) -> None:
    """It gave other names: its statements would be done again."""
    assert run(T).code == 0
    rows = [{"key": 1, "value": {"v": 0.5, "s": "a"}, "timestamp": 1_700_000_000_000}]
    assert TopicStore(opened("s")).append("t", rows, query=f"insert-{1:024x}")
    said = run(ROWS)
    assert said.code == 1 and "statements of braid 0.1.0 have filled t" in said.err, said.err
    assert "on a new store (--store)" in said.err and ends() == [1]
    assert done(run(f"DROP TABLE t; {ROWS}")) == 0 and ends() == [2]
