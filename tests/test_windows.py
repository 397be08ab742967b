"""Windows of groups: what is kept of those that are closed, and how EXPLAIN and `cat` show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braid.plan.windows import KINDS
from braid.sql.windows import CALLS, CLAUSES
from braid.store import opened
from braid.testing.driver import Driver
from braid.topics.store import TopicStore
from cli_help import braid

SQL = """
CREATE STREAM s (k INT KEY, n INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE o AS SELECT n, COUNT(*) AS c FROM s WINDOW HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 5 MILLISECONDS,
  GRACE PERIOD 10 MILLISECONDS) GROUP BY n HAVING COUNT(*) > 1{};
"""


def test_words_make_kinds() -> None:
    for name, clause in CLAUSES.items():
        KINDS[name].of(dict.fromkeys(clause.lengths, 1))
    for call in CALLS.values():
        KINDS[call.kind].of(dict.fromkeys((*call.lengths, "offset"), 1))
    assert {*CLAUSES, *(call.kind for call in CALLS.values())} == KINDS.keys()


@pytest.mark.heavy
@pytest.mark.parametrize("final", ["", " EMIT FINAL"])
def test_closed_windows_are_forgotten(final: str) -> None:
    with Driver("ksqldb", batch=100) as driver:
        driver.execute(SQL.format(final))
        for t in range(2500):
            driver.write("s", 1, {"N": t % 3}, t)
        live = [x for n in driver.explain("o", state=True)["nodes"] for x in n["live"].values()]
    assert live
    assert all(0 < x["rows"] < 400 for x in live), live  # of 1,500 groups


def test_explain_says_until_when() -> None:
    with Driver("ksqldb") as driver:
        driver.execute(SQL.format(" EMIT FINAL"))
        nodes = driver.explain("o")["nodes"]
    kept = [k for n in nodes for k in n["state"]]
    assert len(kept) == 3
    assert all(k["bounded"] for k in kept)


def test_cat_shows_windows(tmp_path: Path) -> None:
    store = TopicStore(opened(str(tmp_path)))
    store.create("t")
    rows = [("a", [0, 10], 1), ("a", [10, 20], 2), ("a", [0, 10], 3), ("b", [0, 10], 4), ("b", [0, 10], None)]
    store.append("t", [{"key": k, "window": w, "value": v, "timestamp": i} for i, (k, w, v) in enumerate(rows)])
    said = braid("cat", "t", "--store", tmp_path, "--latest", "--format", "jsonl").out.splitlines()
    assert [(r["key"], r["window"], r["value"]) for r in map(json.loads, said)] == [
        ("a", [10, 20], 2),
        ("a", [0, 10], 3),
    ]
    assert "a [1970-01-01T00:00:00.010Z, 1970-01-01T00:00:00.020Z)" in braid("cat", "t", "--store", tmp_path).out
    head, first, *_ = braid("cat", "t", "--store", tmp_path, "--format", "csv").out.splitlines()
    assert head == "partition,offset,timestamp,key,window.start,window.end,value"
    assert first == "0,0,0,a,0,10,1"
