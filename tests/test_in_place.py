"""Rows that stay in their bucket, since those of one wanted key lie together there already; and who must be moved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from braid.bind.program import Program
from braid.expr.nodes import Call, Case, Code, Col, Expr, Lit
from braid.lower.lower import lower
from braid.lower.physical import APART, OF_CHANGES, OF_JOINS, OF_TOPS
from braid.lower.spread import by_epoch, known_by, never_null
from braid.plan.epochs import Changes, Coalesce
from braid.plan.logical import Node, Project, Query
from braid.testing.driver import Driver
from braid.types import Scalar
from effort import examples

STREAMS = "".join(
    f"CREATE SOURCE {n} (k INT, g INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);\n"
    for n in "lr"
)
TABLES = "CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT);\nCREATE TABLE u (id INT PRIMARY KEY, k INT, v INT);\n"
WINDOW = "TUMBLE(l, ts, INTERVAL '10' SECOND)"
HOP = "HOP(l, ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
# the view, its stages, and those where all rows are moved
VIEWS = {
    "by the window alone": (f"SELECT window_start, COUNT(*) AS n FROM {WINDOW} GROUP BY window_start", 1, 2),
    "by a column and the window": (f"SELECT k, window_end, MAX(v) AS m FROM {WINDOW} GROUP BY k, window_end", 1, 2),
    "by the window of a hop": (f"SELECT window_start, COUNT(*) AS n FROM {HOP} GROUP BY window_start", 2, 2),
    "by a column and a hop": (f"SELECT g, window_start, COUNT(*) AS n FROM {HOP} GROUP BY g, window_start", 1, 2),
    "a group that holds the join's key": (
        "SELECT l.k, l.g, COUNT(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY l.k, l.g", 1, 2),
    "a group by the right side's key": ("SELECT r.k, COUNT(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY r.k", 1, 2),
    "a group by another column": ("SELECT l.g, COUNT(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY l.g", 2, 2),
    "a group by what the right side may lack": (
        "SELECT r.k, COUNT(*) AS n FROM l LEFT JOIN r ON l.k = r.k GROUP BY r.k", 2, 2),
    "streams": ("SELECT l.v AS a, r.v AS b FROM l JOIN r ON l.k = r.k", 1, 2),
    "a stream and a table": ("SELECT l.v AS a, t.v AS b FROM l JOIN t ON l.k = t.k", 2, 3),
    "a table preserved": ("SELECT t.v AS a, l.v AS b FROM t LEFT JOIN l ON l.k = t.k", 3, 3),
    "tables by their keys": ("SELECT t.v AS a, u.v AS b FROM t JOIN u ON t.id = u.id", 2, 3),
    "tables by another column": ("SELECT t.v AS a, u.v AS b FROM t JOIN u ON t.k = u.k", 4, 4),
    "groups of groups": (
        "SELECT m, COUNT(*) AS n FROM (SELECT k, MAX(v) AS m FROM l GROUP BY k) x GROUP BY m", 2, 2),
    "the top of a partition": (
        "SELECT k, v, n FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY v) AS n FROM l) x WHERE n < 3", 1, 2),
    "the row before it": ("SELECT k, v, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS n FROM l WHERE g = 1", 1, 2),
    "the top of rows that change their partition": (
        "SELECT id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t) x WHERE n < 3", 3, 3),
    "the top of a join": (
        "SELECT g, v, n FROM (SELECT l.g, r.v, ROW_NUMBER() OVER (PARTITION BY l.g ORDER BY r.v) AS n"
        " FROM l JOIN r ON l.k = r.k) x WHERE n < 3", 2, 3),
    "groups that empty": ("SELECT k, COUNT(*) AS n, MAX(v) AS m FROM t GROUP BY k", 2, 2),
    "groups of groups that empty": (
        "SELECT n, COUNT(*) AS c FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) x GROUP BY n", 3, 3),
    "what differs": ("SELECT g, COUNT(DISTINCT k) AS a, COUNT(DISTINCT v) AS b, MAX(v) AS c FROM l GROUP BY g", 3, 3),
    "what differs of rows that go": (
        "SELECT k, COUNT(DISTINCT v) AS a, COUNT(DISTINCT id) AS b FROM t GROUP BY k HAVING COUNT(*) > 1", 3, 3),
}  # fmt: skip


def query_of(view: str) -> Query:
    found = Program("risingwave").statements(f"{STREAMS}{TABLES}CREATE MATERIALIZED VIEW o AS {view};")
    return [e.query for e in found if e.query is not None][-1]


@pytest.mark.parametrize("name", VIEWS)
def test_stages(name: str) -> None:
    view, now, then = VIEWS[name]
    query = query_of(view)
    here, apart = lower(query), lower(query, in_place=APART)
    assert (len(here.stages), len(apart.stages)) == (now, then)
    assert bool(here.in_place) is (now < then or here != apart) and not apart.in_place
    assert all(
        here.in_place == x
        for x in (OF_TOPS, OF_CHANGES)
        if here != lower(query, in_place=x - 1) and here == lower(query, in_place=x)
    )


@pytest.mark.heavy
@pytest.mark.parametrize("name", VIEWS)
def test_both_plans_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come and go, in batches and buckets of any number: what stands at the end."""
    from braid.testing import backend

    view, *_ = VIEWS[name]
    made = []
    for in_place in (OF_CHANGES, OF_TOPS, OF_JOINS, APART):
        monkeypatch.setattr(backend, "lower", lambda query, in_place=in_place: lower(query, in_place=in_place))
        chance, ends = random.Random(name), []
        for batch, buckets in ((5, 1), (50, 4)):
            chance.seed(name)
            with Driver("risingwave", batch=batch, buckets=buckets) as driver:
                driver.execute(f"{STREAMS}{TABLES}CREATE MATERIALIZED VIEW o AS {view};")
                for n in range(examples(40, 25)):
                    row = {"k": chance.choice([0, 1, 2, None]), "g": chance.randrange(2), "v": chance.randrange(5)}
                    row["ts"] = f"2024-01-01 00:00:{chance.randrange(n // 2, n // 2 + 5):02}"
                    driver.write(chance.choice("lr"), None, row)
                    if chance.random() < 0.5:
                        key, name_of = chance.randrange(6), chance.choice("tu")
                        values = (key, chance.randrange(3), chance.randrange(9))
                        driver.execute(f"DELETE FROM {name_of} WHERE id = {key};")
                        driver.execute(f"INSERT INTO {name_of} VALUES {values};")
                ends.append(Counter(map(str, driver.query("SELECT * FROM o"))))
        assert ends[0] == ends[1] and ends[0]
        made.append(ends[0])
    assert made[0] == made[1] == made[2] == made[3]


def _computed(node: Node, how: Callable[[Expr], Expr]) -> Node:
    """A view of groups whose numbers are made into others below their changes."""
    if isinstance(node, Changes):
        x = node.input
        return Changes(Project(x, tuple((c, how(c) if c.type is Scalar.BIGINT else c) for c in x.schema)))
    assert isinstance(node, Coalesce | Project)
    return replace(node, input=_computed(node.input, how))


def test_what_a_user_computed_is_kept() -> None:
    """A function may give another value when a row goes than when it came."""
    query, twice = query_of("SELECT k, COUNT(*) AS n FROM l GROUP BY k"), Code("twice", "", "f.py", "")
    calls = {None: OF_CHANGES, twice: APART}
    for code, expected in calls.items():
        root = _computed(query.root, lambda c, code=code: Call("neg", (c,), Scalar.BIGINT, code))
        assert lower(replace(query, root=root)).in_place == expected


def test_what_is_known_by_a_key() -> None:
    a, b, null = Col("a", Scalar.INT), Col("b", Scalar.INT), Lit(None, Scalar.INT)
    is_null, value = Call("is_null", (a,), Scalar.BOOLEAN), Call("COALESCE", (a, Lit(0, Scalar.INT)), Scalar.INT)
    shown = Case(((is_null, null),), value, Scalar.INT)
    assert known_by(a, (a,)) and known_by(a, (is_null, value)) and known_by(shown, (is_null, value, b))
    assert known_by(shown, (a,)) and known_by(Lit(0, Scalar.INT), ())
    assert not known_by(a, (value,)) and not known_by(a, (is_null,)) and not known_by(a, (b,))
    assert not known_by(a, (Call("neg", (a,), Scalar.INT),)) and not known_by(Call("neg", (a,), Scalar.INT), (a,))
    assert never_null(is_null) and never_null(value) and not never_null(a) and not never_null(shown)


def test_when_only_the_end_of_an_epoch_counts() -> None:
    assert by_epoch(query_of("SELECT k, COUNT(*) AS n, SUM(v) AS s, AVG(v) AS a FROM l GROUP BY k").root)
    over = "(SELECT k, MAX(v) AS v FROM l GROUP BY k) x"
    assert not by_epoch(query_of(f"SELECT t.v FROM {over} JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON x.k = t.id").root)
    assert not by_epoch(query_of("SELECT k, SUM(v::float8) AS n FROM l GROUP BY k").root)
