"""What `why-not` says of a row that is missing, reason by reason, in each dialect: by key, by record, by time.

In: joins of two streams or tables and a table. Rule: the reason is the one for which the records were made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from braid.testing import Driver
from braid.why.words import Answer

S = 1000


def reasons(d: Driver, query: str, keys: Mapping[str, tuple[str, ...]]) -> None:
    """The reasons of the records of each key."""
    for key, wanted in keys.items():
        assert tuple(x.verdict.reason for x in d.why_not(query, key=key, what_if=0).records) == wanted, key


def counts(d: Driver, query: str) -> Mapping[str, int]:
    return {x["reason"]: x["count"] for x in d.why_not(query, since=0).document()["reasons"]}


def one(answer: Answer) -> Any:
    (found,) = answer.records
    return found


@pytest.fixture
def ksqldb() -> Iterator[Driver]:
    with Driver("ksqldb") as d:
        d.execute("""
        CREATE STREAM l (k STRING KEY, c STRING, v INT) WITH (kafka_topic='l', value_format='JSON', partitions=1);
        CREATE STREAM r (k STRING KEY, w INT) WITH (kafka_topic='r', value_format='JSON', partitions=1);
        CREATE TABLE t (c STRING PRIMARY KEY, x STRING) WITH (kafka_topic='t', value_format='JSON', partitions=1);
        CREATE STREAM o AS SELECT l.k AS k, l.c, t.x, r.w, l.v FROM l
          JOIN r WITHIN 10 SECONDS GRACE PERIOD 2 SECONDS ON l.k = r.k JOIN t ON l.c = t.c WHERE l.v > 10;
        """)
        yield d


def left(d: Driver, k: str | None, time: int, c: str = "a", v: Any = 20) -> None:
    value = {"k": k, "c": c, "v": v}
    d.write("l", k if d._program.dialect != "sqlstream" else None, value, timestamp=time * S)


def right(d: Driver, k: str | None, time: int) -> None:
    d.write("r", k if d._program.dialect != "sqlstream" else None, {"k": k, "w": 1}, timestamp=time * S)


def test_ksqldb(ksqldb: Driver) -> None:
    d = ksqldb
    for c, value in (("a", {"x": "A"}), ("del", {"x": "D"}), ("del", None)):
        d.write("t", c, value)
    for k, c, v in (("ok", "a", 20), ("where", "a", 5), ("notab", "zz", 20), ("case", "A ", 20), ("gone", "del", 20)):
        left(d, k, 100, c, v)
        right(d, k, 101)
    left(d, None, 101)
    left(d, "malformed", 101, v="many")
    left(d, "out", 102)
    right(d, "out", 113)
    left(d, "Nobody", 103)
    right(d, "nobody", 103)
    left(d, "late table", 105, "lat")
    right(d, "late table", 105)
    d.write("t", "lat", {"x": "L"})
    left(d, "late", 50)
    left(d, "late partner", 120)
    left(d, "clock", 200)
    right(d, "clock", 200)
    right(d, "late partner", 121)
    left(d, "waits", 201)
    wanted = {
        "ok": ("given",) * 2, "where": ("condition",) * 2, "notab": ("no row",) * 2, "case": ("no row",) * 2,
        "gone": ("deleted",) * 2, "malformed": ("malformed",), "out": ("outside the window",) * 2,
        "Nobody": ("no partner",), "late table": ("row came later",) * 2, "late": ("late",),
        "late partner": ("expired", "late"), "waits": ("no partner yet",),
    }  # fmt: skip
    reasons(d, "o", wanted)
    assert one(d.why_not("o", input="l:0:5")).verdict.reason == "null key"
    assert one(d.why_not("o", key="waits")).verdict.text.startswith("no partner in R under its key 'waits' so far")
    assert one(d.why_not("o", key="waits")).verdict.outcome == "waiting"
    assert one(d.why_not("o", key="Nobody")).verdict.hint == "R has 'nobody': is it spelled otherwise?"
    assert counts(d, "o")["null key"] == 1 and counts(d, "o")["no partner yet"] == 1


def test_keys_of_another_type() -> None:
    """A number is no text, and 1 is not 01."""
    with Driver("ksqldb") as d:
        d.execute("""
        SET 'braid.mode' = 'native';
        CREATE STREAM l (k INT KEY, v INT) WITH (kafka_topic='l', value_format='JSON', partitions=1);
        CREATE STREAM r (k STRING KEY, w INT) WITH (kafka_topic='r', value_format='JSON', partitions=1);
        CREATE STREAM o AS SELECT r.k, r.w, l.v FROM l
          JOIN r WITHIN 10 SECONDS GRACE PERIOD 2 SECONDS ON CAST(l.k AS STRING) = r.k;
        """)
        d.write("l", 1, {"v": 1}, timestamp=0)
        d.write("r", "01", {"w": 1}, timestamp=0)
        d.write("r", " 1", {"w": 1}, timestamp=0)
        d.clock("l", 99 * S)
        d.clock("r", 99 * S)
        (mine, *_) = d.why_not("o", key=1).records
        assert mine.verdict.hint in ("R has '01': is it spelled otherwise?", "R has ' 1': is it spelled otherwise?")


def test_sqlstream() -> None:
    """Records have no keys there: those are asked for by which rows meet in windows."""
    with Driver("sqlstream") as d:
        d.execute("""
        CREATE TABLE t (c VARCHAR(8) NOT NULL, x VARCHAR(8));
        INSERT INTO t VALUES ('a', 'A');
        CREATE STREAM l (k VARCHAR(8), c VARCHAR(8), v INTEGER);
        CREATE STREAM r (k VARCHAR(8), w INTEGER);
        CREATE VIEW o AS SELECT STREAM l.k AS k, r.w FROM l OVER (RANGE INTERVAL '10' SECOND PRECEDING)
          JOIN r OVER (RANGE INTERVAL '10' SECOND PRECEDING) ON l.k = r.k WHERE l.v > 10;
        CREATE VIEW p AS SELECT STREAM l.k AS k, t.x FROM l JOIN t ON l.c = t.c;
        """)
        left(d, "ok", 100)
        right(d, "ok", 101)
        left(d, "where", 102, v=5)
        right(d, "where", 102)
        left(d, "out", 102)
        right(d, "out", 113)
        left(d, "Nobody", 113, "zz")
        right(d, "nobody", 113)
        left(d, "late", 90)
        left(d, "clock", 150)
        right(d, "clock", 150)
        left(d, "waits", 151)
        wanted = {
            "ok": ("given",) * 2, "where": ("condition", "partner missing"), "out": ("outside the window",) * 2,
            "Nobody": ("no partner",), "late": ("late",), "waits": ("no partner yet",),
        }  # fmt: skip
        reasons(d, "O", wanted)
        assert one(d.why_not("O", key="Nobody")).verdict.hint == "R has 'nobody': is it spelled otherwise?"
        assert "K = 'nobody' instead of 'Nobody'" in str(d.why_not("O", key="Nobody"))
        assert one(d.why_not("P", key="zz")).verdict.text.startswith("no partner in T under its key 'zz'")


def test_sqlstream_of_three() -> None:
    """A join of three meets twice: what a row lacks is what it lacks there."""
    with Driver("sqlstream") as d:
        d.execute("""
        CREATE STREAM a (k VARCHAR(8), g INTEGER);
        CREATE STREAM b (k VARCHAR(8), n INTEGER, m VARCHAR(8));
        CREATE STREAM c (n INTEGER, m VARCHAR(8));
        CREATE VIEW o AS SELECT STREAM a.k AS k, c.n FROM a OVER (RANGE INTERVAL '10' SECOND PRECEDING)
          JOIN b OVER (RANGE INTERVAL '10' SECOND PRECEDING) ON a.k = b.k
          JOIN c OVER (RANGE INTERVAL '10' SECOND PRECEDING) ON b.n = c.n AND b.m = c.m;
        """)
        for topic, value in (
            ("a", {"k": "ok"}), ("b", {"k": "ok", "n": 1, "m": "X"}), ("c", {"n": 1, "m": "X"}),
            ("a", {"k": "first"}), ("b", {"k": "second", "n": 1, "m": "X"}), ("c", {"n": 7, "m": "Y"}),
            ("a", {"k": "third"}), ("b", {"k": "third", "n": 8, "m": "X"}), ("c", {"n": 5, "m": "W"}),
            ("a", {"k": "fourth"}), ("b", {"k": "fourth", "n": 7, "m": "y"}),
        ):  # fmt: skip
            d.write(topic, None, value, timestamp=100 * S)
        for topic in "abc":
            d.write(topic, None, {"k": "clock", "n": 0, "m": "0"}, timestamp=200 * S)
        for key, other, hint in (
            ("first", "B under its key 'first'", None),
            ("second", "A under its key 'second'", None),
            ("third", "C under its key 8, 'X'", None),
            ("7, Y", "B under its key 7, 'Y'", "B has '7, y': is it spelled otherwise?"),
            ("7,'Y'", "B under its key 7, 'Y'", "B has '7, y': is it spelled otherwise?"),
            ("5, W", "B under its key 5, 'W'", None),
        ):
            said = {x.verdict.text: x.verdict.hint for x in d.why_not("O", key=key, what_if=0).records}
            assert said == {f"no partner in {other}, in all that was read": hint}, key


def test_lenses() -> None:
    with Driver("lenses") as d:
        d.execute("""
        SET defaults.topic.autocreate=true;
        CREATE TABLE l(_key STRING, k STRING, c STRING, v INT) FORMAT (STRING, JSON);
        CREATE TABLE r(_key STRING, k STRING, w INT) FORMAT (STRING, JSON);
        CREATE TABLE t(_key STRING, x STRING) FORMAT (STRING, JSON);
        INSERT INTO o SELECT STREAM l.k AS k, r.w AS w FROM l JOIN r ON l.k = r.k WITHIN 10s WHERE l.v > 10;
        WITH ts AS (SELECT TABLE * FROM t);
        WITH ls AS (SELECT STREAM * FROM l);
        INSERT INTO p SELECT STREAM ls.k, ts.x FROM ls JOIN ts ON ls.c = ts._key;
        """)
        for c, value in (("a", {"x": "A"}), ("del", {"x": "D"}), ("del", None)):
            d.write("t", c, value)
        left(d, "ok", 100)
        right(d, "ok", 101)
        left(d, "where", 102, v=5)
        right(d, "where", 102)
        left(d, "out", 102)
        right(d, "out", 113)
        left(d, "nobody", 113, "del")
        left(d, "late", 90)
        left(d, "clock", 150, "lat")
        right(d, "clock", 150)
        d.write("t", "lat", {"x": "L"})
        left(d, "waits", 151, "none")
        wanted = {
            "ok": ("given",) * 2, "where": ("condition", "partner missing"), "out": ("outside the window",) * 2,
            "nobody": ("no partner",), "late": ("late",), "waits": ("no partner yet",),
        }  # fmt: skip
        reasons(d, "o.1", wanted)
        reasons(d, "p.1", {"nobody": ("deleted",), "clock": ("row came later",), "waits": ("no row",)})


RISINGWAVE = """
CREATE TABLE l (k VARCHAR PRIMARY KEY, c VARCHAR, v INT);
CREATE TABLE r (id INT PRIMARY KEY, k VARCHAR, w INT);
CREATE TABLE t (c VARCHAR PRIMARY KEY, x VARCHAR);
CREATE MATERIALIZED VIEW o AS SELECT l.k, l.c, t.x, r.w FROM l JOIN r ON l.k = r.k JOIN t ON l.c = t.c WHERE l.v > 10;
CREATE MATERIALIZED VIEW g AS SELECT c, COUNT(*) AS n FROM o GROUP BY c;
INSERT INTO t VALUES ('a', 'A'), ('del', 'D');
DELETE FROM t WHERE c = 'del';
INSERT INTO l VALUES ('ok', 'a', 20), ('where', 'a', 5), ('nobody', 'a', 20), ('notab', 'zz', 20), ('gone', 'del', 20);
INSERT INTO r VALUES (1, 'ok', 1), (2, 'where', 1), (3, 'notab', 1), (4, 'gone', 1), (5, NULL, 1);
"""


def test_risingwave() -> None:
    with Driver("risingwave") as d:
        d.execute(RISINGWAVE)
        wanted = {
            "ok": ("given",) * 2, "where": ("condition", "partner missing"), "nobody": ("no row",),
            "notab": ("no row",) * 2, "gone": ("deleted",) * 2, "5": ("null key",),
        }  # fmt: skip
        reasons(d, "o", wanted)
        assert "was deleted, by t:0:2" in d.why_not("o", key="gone").records[0].verdict.text
        assert d.why_not("o", input="t:0:1").records[0].verdict.text.endswith("; it was deleted by t:0:2")


def test_a_group_is_asked_for_by_its_key() -> None:
    """It may be NULL, so it is written in two parts; nobody asks for these."""
    with Driver("risingwave") as d:
        d.execute(RISINGWAVE)
        (mine,) = d.why_not("g", key="a").records
        assert mine.verdict.text == "it gave 1 row of g under 'a'."
