"""What a store and a run report at the command line: rows that wait, drops of several queries, inner joins without a
pair, a check that does not contradict itself.

Rule: one run, many looks.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from cli_help import QUICK, Said, braid, on_shared_spark  # noqa: E402

SQL = """-- dialect: ksqldb
CREATE STREAM orders (id INT KEY, item STRING) WITH (kafka_topic='orders', value_format='JSON', partitions=2);
CREATE STREAM paid (id INT KEY, way STRING) WITH (kafka_topic='paid', value_format='JSON', partitions=2);
CREATE STREAM unpaid AS SELECT o.id AS id, o.item AS item, p.way AS way FROM orders o
  LEFT JOIN paid p WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON o.id = p.id;
CREATE STREAM named AS SELECT o.id AS id, o.item AS item, p.way AS way FROM orders o
  JOIN paid p WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON o.item = p.way;
CREATE TABLE counted AS SELECT id, COUNT(*) AS n FROM orders WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS)
  GROUP BY id EMIT FINAL;
"""
ORDERS = [(1, "pen", 1000), (2, "ink", 30_000), (3, "pad", 1500), (1, None, 2000), (4, "cup", 40_000), (2, 7.5, 31_000)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    folder = tmp_path_factory.mktemp("tells")
    (folder / "q.sql").write_text(SQL)
    store = folder / "s"
    lines = [
        {"key": k, "value": None if v is None else {"ITEM": v}, "timestamp": t, "partition": 0} for k, v, t in ORDERS
    ]
    braid("put", "orders", "--store", store, "--partitions", 2, stdin="".join(json.dumps(x) + "\n" for x in lines))
    paid = {"key": 1, "value": {"WAY": "card"}, "timestamp": 5000, "partition": 0}
    braid("put", "paid", "--store", store, "--partitions", 2, stdin=json.dumps(paid) + "\n")
    return folder, on_shared_spark("run", "q.sql", "--store", "s", "--until-idle", *QUICK, cwd=folder)


def test_an_inner_join_without_a_pair_is_told(ran: tuple[Path, Said]) -> None:
    _, said = ran
    assert said.code == 0, said.err
    assert (
        "NAMED: no rows have met in the inner join on O.ITEM = P.WAY; records read: 6 of ORDERS, 1 of PAID" in said.err
    )
    assert "UNPAID: no rows have met" not in said.err


def test_rows_that_wait(ran: tuple[Path, Said]) -> None:
    folder, _ = ran
    said = braid("waiting", "unpaid", "--store", folder / "s", "--format", "jsonl")
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [(r["timestamp"], r["until"], r["waits_for"], r["row"]["O.ITEM"]) for r in rows] == [
        (30_000, 45_000, "a match", "ink"),
        (31_000, 46_000, "a match", "7.5"),
        (40_000, 55_000, "a match", "cup"),
    ]
    assert [r["key"] for r in rows] == [2, 2, 4]
    shown = braid("waiting", "UNPAID", "--store", folder / "s", "--limit", 1).out
    assert "UNPAID: 3 rows wait for a match until the clock of ORDERS and PAID" in shown
    assert "1970-01-01T00:00:45.000Z  1970-01-01T00:00:30.000Z  a match" in shown and "… 2 more" in shown
    windows = [
        json.loads(x)
        for x in braid("waiting", "counted", "--store", folder / "s", "--format", "jsonl").out.splitlines()
    ]
    assert {(r["until"], r["row"]["ORDERS.ID"] if "ORDERS.ID" in r["row"] else r["key"]) for r in windows} and all(
        r["until"] % 10_000 == 5000 for r in windows
    )
    assert "no row of NAMED waits" in braid("waiting", "named", "--store", folder / "s").out
    assert "no query nothing has run" in braid("waiting", "nothing", "--store", folder / "s").err


def test_drops_of_a_file_and_of_a_key(ran: tuple[Path, Said]) -> None:
    folder, _ = ran
    whole = braid("drops", folder / "q.sql", "--store", folder / "s")
    assert whole.code == 0 and [x for x in whole.out.splitlines() if x.endswith(":")] == [
        "UNPAID:",
        "NAMED:",
        "COUNTED:",
    ]
    of_all = braid("drops", "--store", folder / "s", "--format", "jsonl").out
    found = [json.loads(x) for x in of_all.splitlines()]
    assert {r["query"] for r in found} == {"UNPAID", "NAMED", "COUNTED"}
    one = braid("drops", "unpaid", "--store", folder / "s", "--format", "jsonl", "--key", "1").out
    assert one and {json.loads(x)["key"] for x in one.splitlines()} == {1}
    assert "UNPAID dropped nothing with key 9" in braid("drops", "unpaid", "--key", "9", "--store", folder / "s").out
    assert "no query nothing has run" in braid("drops", "nothing", "--store", folder / "s").err


def test_a_check_does_not_say_no_problem_where_a_query_cannot_go_on(ran: tuple[Path, Said]) -> None:
    folder, _ = ran
    assert "5 statements, no problem" in braid("check", folder / "q.sql", "--store", folder / "s").out
    changed = SQL.replace("p.way AS way FROM orders o\n  LEFT", "p.way || '!' AS way FROM orders o\n  LEFT")
    (folder / "changed.sql").write_text(changed)
    said = braid("check", folder / "changed.sql", "--store", folder / "s")
    assert said.code == 1 and "5 statements, 1 query cannot go on\n" in said.out and "no problem" not in said.out
    assert "UNPAID cannot go on" in said.out and "NAMED goes on after batch" in said.out


def test_an_insert_into_what_was_there_is_found_by_its_checkpoint(tmp_path: Path) -> None:
    """No catalogue has its statement."""
    query = (
        "SELECT o.id AS id, o.item AS item, p.way AS way FROM orders o LEFT JOIN paid p"
        " WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON o.id = p.id;"
    )
    declared = "\n".join(SQL.splitlines()[:3])
    target = (
        "CREATE STREAM both (id INT KEY, item STRING, way STRING)"
        " WITH (kafka_topic='both', value_format='JSON', partitions=2);"
    )
    (tmp_path / "q.sql").write_text(f"{declared}\n{target}\nINSERT INTO both {query}\n")
    line = {"key": 3, "value": {"ITEM": "pad"}, "timestamp": 1500, "partition": 0}
    braid("put", "orders", "--store", tmp_path / "s", "--partitions", 2, stdin=json.dumps(line) + "\n")
    said = on_shared_spark("run", "q.sql", "--store", "s", "--until-idle", *QUICK, cwd=tmp_path)
    assert said.code == 0, said.err
    shown = braid("waiting", "both.1", "--store", tmp_path / "s")
    assert "BOTH.1: 1 row waits for a match" in shown.out, shown.err
    (told,) = (
        json.loads(x)
        for x in braid("waiting", "both.1", "--store", tmp_path / "s", "--format", "jsonl").out.splitlines()
    )
    assert (told["key"], told["until"]) == (3, 16_500)
