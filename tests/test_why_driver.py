"""`Driver.why` and `Driver.why_not`: what the commands say, of the records of a test.

In: a join, its table, a group over it. Rule: all runtimes say the same; clock calls and ends count, as do records that
a query has not read.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest

from braid.errors import BraidError
from braid.testing import Driver

SQL = """
CREATE STREAM l (k INT KEY, c STRING, v INT) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, w INT) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE TABLE t (c STRING PRIMARY KEY, x STRING) WITH (kafka_topic='t', value_format='JSON', partitions=2);
CREATE STREAM o AS SELECT l.k AS k, l.c, t.x, r.w FROM l
  LEFT JOIN r WITHIN 10 SECONDS GRACE PERIOD 1 SECONDS ON l.k = r.k JOIN t ON l.c = t.c WHERE l.v > 1;
CREATE TABLE g AS SELECT x, COUNT(*) AS n FROM o GROUP BY x;
"""
S = 1000


def filled(d: Driver) -> None:
    d.execute("SET 'braid.mode' = 'native';" + SQL)
    d.write("t", "a", {"x": "A"})
    for k, c, v in ((1, "a", 5), (2, "a", 1), (3, "b", 5), (4, "A", 5), (5, "a", 5)):
        d.write("l", k, {"c": c, "v": v}, timestamp=k * S, partition=k % 2)
    d.write("r", 1, {"w": 1}, timestamp=2 * S)
    d.write("r", 3, {"w": 1}, timestamp=4 * S, partition=1)
    d.write("r", 5, {"w": 1}, timestamp=20 * S, partition=1)
    d.write("l", None, {"c": "a", "v": 5}, timestamp=9 * S)
    d.write("t", "b", {"x": "B"})
    d.clock("l", 18 * S)
    d.clock("r", 18 * S)


def answers(runtime: Literal["local", "spark", "reference"]) -> list[Any]:
    with Driver(runtime=runtime) as d:
        filled(d)
        rows = len(d.read("o")), len(d.read("g"))
        asked = [d.why_not("o", key=k, what_if=60) for k in (1, 2, 3, 4, 5)]
        every = d.why_not("o", since=0)
        found = [d.why("g", key="A"), d.why("o", key="a", depth=2)]
        return [rows, *(x.document() for x in (*asked, every, *found)), *map(str, (*asked, every, *found))]


def test_each_reason() -> None:
    rows, *said = answers("local")
    assert rows == (2, 2)
    keyed, every = said[:5], said[5]
    reasons = [[x["reason"] for x in d["records"] if x["topic"] == "l"] for d in keyed]
    assert reasons == [["given"], ["condition"], ["row came later"], ["no row"], ["given"]]
    assert keyed[2]["records"][0]["text"].endswith("one came later: t:0:1")
    assert keyed[3]["records"][0]["hint"] == "T has 'a': is it spelled otherwise?"
    assert {x["reason"]: x["count"] for x in every["reasons"]}["null key"] == 1
    group = said[6]["rows"][-1]
    assert group["value"] == {"N": 2} and group["tree"]["inputs"][0]["count"] == 2
    assert said[7]["rows"][-1]["released_by"] == "the clock of l:0, l:1, set to 1970-01-01T00:00:18.000Z"


def test_the_definitions_say_the_same() -> None:
    assert answers("reference") == answers("local")


@pytest.mark.spark
def test_so_does_spark() -> None:
    assert answers("spark") == answers("local")


def test_records_that_were_not_read() -> None:
    with Driver() as d:
        d.execute("CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        d.write("s", 1, {"v": 1})
        d.execute("SET 'auto.offset.reset' = 'latest'; CREATE STREAM o AS SELECT k, v FROM s WHERE v > 1;")
        d.write("s", 2, {"v": 1})
        (before,) = d.why_not("o", input="s:0:0").records
        (after,) = d.why_not("o", input="s:0:1").records
        assert (before.verdict.reason, after.verdict.reason) == ("before the start", "condition")


def test_what_cannot_be_asked() -> None:
    with Driver() as d:
        filled(d)
        for said, asked in (
            ("what of O is asked?", lambda: d.why_not("o")),
            ("no record that O has read has the key 9", lambda: d.why_not("o", key=9)),
            ("no query writes l", lambda: d.why("l", offset=0)),
            ("G has no record with the key C", lambda: d.why("g", key="C")),
            ("O has no record 0:99", lambda: d.why("o", offset=99, partition=0)),
            ("no query none", lambda: d.why_not("none", key=1)),
        ):
            with pytest.raises(BraidError, match=said):
                asked()
        d.execute("PAUSE o;")
        with pytest.raises(BraidError, match="O is paused"):
            d.why_not("o", key=1)


def test_a_value_that_is_null_is_read_back_as_none() -> None:
    with Driver() as d:
        d.execute("""
        CREATE STREAM s (k INT KEY, v INT, w STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);
        CREATE STREAM o WITH (wrap_single_value=false) AS SELECT k, v FROM s;
        CREATE STREAM p WITH (value_format='DELIMITED') AS SELECT k, v, w FROM s;
        """)
        d.write("s", 1, {"v": None, "w": ""})
        d.write("s", 2, {"v": 2, "w": None})
        for topic in ("o", "p"):
            for offset in range(2):
                (row,) = d.why(topic, offset=offset).rows
                assert row.sure and str(row.completed) == f"s:0:{offset}"


def test_a_record_is_asked_for_by_the_key_of_its_row() -> None:
    with Driver() as d:
        d.execute("""
        CREATE STREAM s (k INT KEY, v STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);
        CREATE STREAM o AS SELECT k, v FROM s WHERE k > 1 PARTITION BY v;
        """)
        d.write("s", 1, {"v": "one"})
        d.write("s", 2, {"v": "one"})
        assert [x.verdict.reason for x in d.why_not("o", key="one").records] == ["condition", "given"]


def test_what_nothing_is_said_of_waits_for_its_time() -> None:
    with Driver("sqlstream") as d:
        d.execute("""
        CREATE STREAM doors (name VARCHAR(8), n INT);
        CREATE VIEW o AS SELECT STREAM name, COUNT(*) AS c FROM doors AS d
          GROUP BY name, STEP(d.ROWTIME BY INTERVAL '10' SECOND);
        """)
        d.write("DOORS", None, {"NAME": "gate", "N": 1}, timestamp=31 * S)
        (mine,) = d.why_not("O", input="DOORS:0:0").records
        assert mine.verdict.outcome == "waiting", mine.verdict


def test_a_group_of_hundreds_of_records() -> None:
    with Driver(batch=50) as d:
        d.execute("""
        CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
        CREATE TABLE g AS SELECT v, COUNT(*) AS n FROM s GROUP BY v;
        """)
        for k in range(300):
            d.write("s", k, {"v": 1}, timestamp=k)
        (row,) = d.why("g", offset=len(d.read("g")) - 1).rows
        assert row.values == {"N": 300} and row.sure
        tree = row.tree
        while tree.inputs:
            (tree,) = tree.inputs
        assert tree.count == 300 and len(tree.leaves) == 20
