"""Statements of a file are done once per store, by any version; what 0.1.0 has done is known, or refused by name.

In: stores as 0.1.0 and this version write them. Out: what a run says, and what topics hold. Rule: commits of 0.1.0 are
named `kind-` and 24 hexadecimal digits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.bind.dialects import dialect_named
from braid.bind.program import Program
from braid.face.once import named
from braid.topics import TopicStore
from cli_help import Said, braid

T = "CREATE TABLE t (id INT PRIMARY KEY, v REAL, s VARCHAR);"
ROWS = T + "INSERT INTO t VALUES (1, 0.1, 'a'), (2, 0.5, NULL);"
UNKNOWN = "is not known: the store has some that 0.1.0 did"


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
    return TopicStore("s").end_offsets(topic)


def by_old(topic: str, kind: str, number: int, *records: tuple[object, object], time: int = 1_700_000_000_000) -> None:
    """A statement as 0.1.0 has done it."""
    rows = [{"key": k, "value": v, "timestamp": time + number} for k, v in records]
    assert TopicStore("s").append(topic, rows, query=f"{kind}-{number:024x}")


def old_table() -> None:
    assert run(T).code == 0
    by_old("t", "insert", 1, (1, {"v": 0.10000000149011612, "s": "a"}), (2, {"v": 0.5, "s": None}))


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


def test_an_insert_of_0_1_0_is_known_by_its_rows(folder: Path) -> None:
    old_table()
    by_old("t", "insert", 2, (3, {"v": 1.0, "s": "c"}))
    more = ROWS + "INSERT INTO t (s, id) VALUES ('d', 4); INSERT INTO t VALUES (3, 1, 'c');"
    assert done(run(more)) == 2 and ends() == [4]
    assert done(run(more)) == 3 and ends() == [4]


def test_rows_that_were_rolled_up_are_known(folder: Path) -> None:
    old_table()
    for n in range(2, 100):
        by_old("t", "insert", n, (n + 1, {"v": 1.0, "s": "c"}))
    more = T + "".join(f"INSERT INTO t VALUES ({n}, 1, 'c');" for n in (3, 50, 100, 101))
    assert done(run(more)) == 3 and ends() == [101]


def test_what_cannot_be_known_is_refused_until_it_is_said(folder: Path) -> None:
    old_table()
    by_old("t", "update", 3, (1, {"v": 2.0, "s": "a"}))
    changed = ROWS + "UPDATE t SET v = 2 WHERE id = 1;"
    before = {p: p.stat().st_mtime_ns for p in Path("s/topics").rglob("*")}
    said = run(changed)
    assert said.code == 1 and f"whether this UPDATE of t was done before {UNKNOWN}" in said.err, said.err
    assert "--old-statements done" in said.err and "--old-statements do;" in said.err
    assert {p: p.stat().st_mtime_ns for p in Path("s/topics").rglob("*")} == before
    assert done(run(changed, "--old-statements", "done")) == 2 and ends() == [3]
    new = changed + "UPDATE t SET v = 3 WHERE id = 1;"
    assert done(run(new)) == 2 and ends() == [4]  # all that 0.1.0 has done is known now
    assert done(run(new)) == 3 and ends() == [4]


def test_what_is_new_is_done_when_it_is_said(folder: Path) -> None:
    old_table()
    by_old("t", "delete", 3, (1, None))
    new = T + "DELETE FROM t WHERE id = 2;"
    assert UNKNOWN in run(new).err
    assert done(run(new, "--old-statements", "do")) == 0 and ends() == [4]
    assert done(run(new)) == 1 and ends() == [4]


@pytest.mark.parametrize("rows", ["SELECT id + 10, v, s FROM t", "VALUES (7, 1 / 3.0, 'x')"])
def test_an_insert_that_computes_is_refused(folder: Path, rows: str) -> None:
    old_table()
    assert UNKNOWN in run(f"{T} INSERT INTO t {rows};").err
    assert done(run(f"{ROWS} INSERT INTO t {rows};")) == 1  # none is left that it could be


def test_a_table_that_is_made_anew_is_empty(folder: Path) -> None:
    old_table()
    assert done(run(f"DROP TABLE t; {ROWS}")) == 0 and ends() == [2]


def test_late_rows_are_no_other_rows(folder: Path) -> None:
    made = "CREATE TABLE e (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) APPEND ONLY;"
    assert run(made).code == 0
    by_old("e", "insert", 1, ({"_row_id": 1}, {"id": 1, "ts": 1704103210000}))
    by_old("e", "insert", 2, ({"_row_id": 2}, {"id": 3, "ts": 1704103220000}))
    made += "INSERT INTO e VALUES (1, '2024-01-01 10:00:10');"
    made += "INSERT INTO e VALUES (2, '2024-01-01 10:00:00'), (3, '2024-01-01 10:00:20');"  # the first was late
    assert done(run(made)) == 2 and ends("e") == [2]


def test_records_of_ksqldb_are_known_by_key_value_and_time(folder: Path) -> None:
    made = "CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=1);"
    assert run(made, dialect="ksqldb").code == 0
    by_old("l", "insert", 0, (1, {"V": "a"}), time=5)
    by_old("l", "insert", 1, (1, {"V": "a"}), time=5)
    one = "INSERT INTO l (rowtime, k, v) VALUES (6, 1, 'a');"
    made += one + "INSERT INTO l (k, v) VALUES (1, 'a'); INSERT INTO l (rowtime, k, v) VALUES (7, 1, 'a');" + one
    assert done(run(made, dialect="ksqldb")) == 2 and ends("l") == [4]
    assert done(run(made, dialect="ksqldb")) == 4 and ends("l") == [4]
