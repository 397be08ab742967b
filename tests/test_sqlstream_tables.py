"""Tables of sqlstream, alone and beside streams: what pages of cases do not show.

In: statements. Out: the order of answers; which clocks a plan reads; whose names are meant."""

from __future__ import annotations

import pytest

from braid.bind.bound import QueryBound, Shown, TablesAsked
from braid.bind.program import Program, named_by
from braid.errors import SqlError
from braid.lower.lower import lower
from braid.plan.sliding import SlidingJoin
from braid.testing.driver import Driver

TABLES = """
CREATE TABLE rooms (no INTEGER NOT NULL, wing VARCHAR(4), beds INTEGER);
CREATE TABLE wings (wing VARCHAR(4), open BOOLEAN);
CREATE STREAM calls (no INTEGER, secs INTEGER);
"""


@pytest.mark.parametrize(
    ("order", "rows"),
    [
        ("wing, beds DESC", [1, 3, 2, 4]),
        ("beds NULLS FIRST, no", [2, 4, 3, 1]),
        ("wing DESC, beds, no", [4, 2, 3, 1]),
        ("1 DESC", [4, 3, 2, 1]),
        ("beds * -1 NULLS LAST", [1, 3, 4, 2]),
    ],
)
def test_answers_are_sorted(order: str, rows: list[int]) -> None:
    """A NULL is above all values, as in streams (S-141); further items may not be selected."""
    with Driver("sqlstream") as driver:
        driver.execute(TABLES)
        driver.execute("INSERT INTO rooms VALUES (4, NULL, 1), (2, 'B', NULL), (1, 'A', 9), (3, 'A', 2);")
        assert [no for (no,) in driver.query(f"SELECT no FROM rooms ORDER BY {order}")] == rows


def test_without_an_order_rows_stand_as_they_came() -> None:
    with Driver("sqlstream") as driver:
        driver.execute(TABLES)
        for n in (3, 1, 2, 1):
            driver.execute(f"INSERT INTO rooms VALUES ({n}, 'A', 0);")
        assert driver.query("SELECT no FROM rooms WHERE beds = 0") == [(3,), (1,), (2,), (1,)]


def _plan(sql: str) -> SlidingJoin:
    program = Program("sqlstream")
    (*_, effect) = program.statements(TABLES + sql)
    assert isinstance(effect.bound, QueryBound)
    plan = lower(effect.bound.query)
    for leaf in plan.leaves:
        assert leaf.clocked != leaf.source.captured, leaf.source.name
    return next(x for x in plan.query.root.walk() if isinstance(x, SlidingJoin))


def test_no_clock_is_read_of_a_table() -> None:
    """A file that holds one needs no column of times, whatever is made of its join with a stream."""
    _plan(
        "SELECT STREAM c.no, COUNT(*) AS n FROM calls AS c JOIN rooms AS r ON c.no = r.no "
        "GROUP BY c.no, FLOOR(ROWTIME TO MINUTE);"
    )
    _plan("SELECT STREAM no FROM calls WHERE no IN (SELECT no FROM rooms) AND no NOT IN (SELECT beds FROM rooms);")
    inner = "(SELECT STREAM c.no, r.wing FROM calls AS c JOIN rooms AS r ON c.no = r.no)"
    _plan(f"SELECT STREAM x.no FROM {inner} AS x JOIN wings AS w ON x.wing = w.wing;")


@pytest.mark.parametrize(
    ("where", "joins"),
    [
        ("no IN (SELECT no FROM rooms)", 1),
        ("no NOT IN (SELECT beds FROM rooms)", 3),  # either may be NULL
        ("no NOT IN (SELECT no FROM rooms)", 2),  # no row of the table is
        ("NOT EXISTS (SELECT 1 FROM rooms WHERE rooms.no = calls.no)", 1),
    ],
)
def test_what_is_never_null_is_not_looked_for(where: str, joins: int) -> None:
    root = _plan(f"SELECT STREAM no FROM calls WHERE {where};")
    assert sum(x.gives != "pairs" for x in root.walk() if isinstance(x, SlidingJoin)) == joins


def test_explain_says_what_is_read() -> None:
    program = Program("sqlstream")
    asked = "SELECT w.open FROM rooms AS r JOIN wings AS w ON r.wing = w.wing"
    (*_, plain, explained) = program.statements(f"{TABLES}{asked}; EXPLAIN {asked};")
    assert isinstance(plain.bound, TablesAsked)
    assert [d.name for d in plain.bound.reads] == ["ROOMS", "WINGS"]
    assert isinstance(explained.bound, Shown)
    assert explained.bound.rows == (("answered at once from all rows of ROOMS, WINGS",),)


def test_names_in_a_schema_are_meant_by_their_last_part() -> None:
    assert named_by("WEB.HITS", ["hosts", "hits"]) == "hits"
    assert named_by("WEB.HITS", ["web.hits"]) == "web.hits"
    assert named_by("hits", ["HITS", "hits"]) == "hits"
    assert named_by("WEB.HITS", ["its", "web"]) is None


def test_a_null_is_not_filled_in() -> None:
    with Driver("sqlstream") as driver:
        driver.execute(TABLES)
        driver.execute("INSERT INTO rooms VALUES (1, NULL, 4);")
        with pytest.raises(SqlError, match="NO cannot be NULL"):
            driver.execute("INSERT INTO rooms (no, beds) SELECT CHAR_LENGTH(wing), beds FROM rooms;")
        driver.execute("INSERT INTO rooms (beds, no) SELECT no, beds FROM rooms;")
        assert driver.query("SELECT * FROM rooms") == [(1, None, 4), (4, None, 1)]
