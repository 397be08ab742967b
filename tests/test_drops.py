"""What a dropped row shows, the same from the definitions as from the local runtime."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from braid.testing.driver import Driver

SQL = """
CREATE STREAM l (k INT KEY, a INT, b INT) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM r (k INT KEY, c INT) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, a / b AS q, c FROM l
  LEFT JOIN r WITHIN 10 MILLISECONDS GRACE PERIOD 0 SECONDS ON l.k = r.k;
"""


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_a_row_whose_window_never_began_shows_its_own_side(runtime: Literal["local", "reference"]) -> None:
    with Driver("sqlstream", runtime) as d:
        d.execute("""CREATE STREAM l (k INT, v INT); CREATE STREAM r (k INT, w INT);
            CREATE VIEW o AS SELECT STREAM l.v, r.w
            FROM l FULL JOIN r OVER (ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) ON l.k = r.k;""")
        d.write("L", None, {"K": 1, "V": 1}, 1000)
        d.write("R", None, {"K": 1, "W": 2}, 1000)
        d.finish()
        (told,) = d.drops("O")
    assert (told["topic"], told["reason"], told["value"]) == ("R", "unreached", {"R.K": 1, "R.W": 2})


@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_a_drop_shows_its_own_side(runtime: Literal["local", "reference"]) -> None:
    with Driver(runtime=runtime) as d:
        d.execute(SQL)
        d.write("l", key=None, value={"A": 6, "B": 3}, timestamp=100)
        d.write("l", key=4, value={"A": 6, "B": 0}, timestamp=104)
        d.write("l", key=5, value={"A": 6, "B": 3}, timestamp=50)
        d.write("r", key=9, value={"C": 1}, timestamp=120)
        d.write("r", key=9, value={"C": 1}, timestamp=20)
        drops = d.drops("o")
    late = "stream-stream left join"
    found = [(x["reason"], x["operator"], x["topic"], x["offset"], x["timestamp"]) for x in drops]
    assert sorted(found) == [
        ("expression", "select", "l", 1, 104),  # released by a record of r
        ("late", late, "l", 2, 50),
        ("late", late, "r", 1, 20),
        ("null key", "read L", "l", 0, 100),
    ]
    values: dict[Any, Any] = {(x["reason"], x["timestamp"]): (x["key"], x["value"]) for x in drops}
    assert values["late", 50] == (5, {"L.K": 5, "L.A": 6, "L.B": 3})
    assert values["late", 20] == (9, {"R.K": 9, "R.C": 1})
    assert values["null key", 100] == (None, {"A": 6, "B": 3})
    assert len({tuple(x) for x in drops}) == 1


CHAIN = """
SET defaults.topic.autocreate=true;
CREATE TABLE lhs(_key INT, id INT, a string) FORMAT (INT, JSON);
CREATE TABLE rhs(_key INT, id INT, b string) FORMAT (INT, JSON);
CREATE TABLE third(_key INT, id INT, c string) FORMAT (INT, JSON);
WITH both AS (SELECT STREAM lhs.id AS id, a, b FROM lhs {how} JOIN rhs ON lhs.id = rhs.id WITHIN 10ms);
INSERT INTO o SELECT STREAM both.a, both.b, third.c FROM both JOIN third ON both.id = third.id WITHIN 10ms;
"""


@pytest.mark.parametrize("runtime", ["local", "reference", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("how", ["LEFT", "INNER"])
def test_a_dropped_joined_row_names_its_record(runtime: Literal["local", "reference", "spark"], how: str) -> None:
    """The record that completed it, or (of a padded row) its own; and the join key."""
    with Driver(runtime=runtime, dialect="lenses") as d:
        d.execute(CHAIN.format(how=how))
        d.write("third", key=77, value={"id": 9, "c": "z"}, timestamp=150)
        d.write("lhs", key=70, value={"id": 9, "a": "x"}, timestamp=100)
        d.write("rhs", key=71, value={"id": 8, "b": "y"}, timestamp=100)
        d.write("lhs", key=72, value={"id": 1, "a": "p"}, timestamp=89)  # nobody can meet it any more
        d.write("lhs", key=73, value={"id": 2, "a": "q"}, timestamp=95)  # late, but it lives
        d.write("rhs", key=74, value={"id": 2, "b": "r"}, timestamp=94)
        drops = d.drops("o.1")
        assert d.read("o") == []
    told = [(x["reason"], x["operator"], x["topic"], x["offset"], x["timestamp"], x["key"]) for x in drops]
    last = "stream-stream inner join"
    late = {
        "LEFT": [("late", last, "lhs", 1, 89, 1)],
        "INNER": [("late", last, "lhs", 1, 89, 1), ("late", last, "rhs", 1, 95, 2)],
    }
    assert sorted(told) == late[how]


def test_a_late_row_at_the_end_of_its_window_says_what_would_keep_it() -> None:
    with Driver() as d:
        d.execute(SQL.replace("WITHIN 10 MILLISECONDS", "WITHIN (0 SECONDS, 10 MILLISECONDS)"))
        for time in (110, 101, 100, 99):
            d.write("l", key=1, value={"A": 6, "B": 3}, timestamp=time)
        told = {x["timestamp"]: x["message"] for x in d.drops("o")}
    assert told.keys() == {100, 99}
    assert told[100] == "rows are kept for less than 10 ms, their window: a GRACE PERIOD keeps them longer"
    assert told[99] is None


STEPS = {
    "project": "SELECT a + 0 AS sum, b / c AS q FROM t",
    "filter": "SELECT a FROM t WHERE b / c > 0",
    "aggregate": "SELECT a, sum(b / c) AS q FROM t GROUP BY a",
    "sum": "SELECT a, sum(b / c) AS q FROM (SELECT a, b, c FROM t WHERE a > 0) AS u GROUP BY a",
}


@pytest.mark.parametrize("runtime", ["local", "reference"])
@pytest.mark.parametrize("step", STEPS)
def test_a_row_that_fails_in_a_step_shows_what_it_was_given(runtime: Literal["local", "reference"], step: str) -> None:
    with Driver(runtime=runtime, dialect="risingwave") as d:
        d.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT);")
        d.execute(f"CREATE MATERIALIZED VIEW m AS {STEPS[step]};")
        d.execute("INSERT INTO t VALUES (1, 7, 6, 0), (2, 7, 6, 3);")
        (told,) = d.drops("m")
    of = "u" if step == "sum" else "t"
    assert told["message"] == f"{of}.b / {of}.c: division by zero"
    assert {name.partition(".")[2]: v for name, v in told["value"].items()}.items() >= {"a": 7, "b": 6, "c": 0}.items()
