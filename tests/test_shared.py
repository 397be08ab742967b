"""Parts of a query that are read more than once are run once; what comes out, and in which order, stays the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from braid.explain.documents import explain_query, render_text
from braid.lower.lower import lower
from braid.lower.physical import APART, OF_CHANGES
from braid.plan.canonical import canonical
from braid.plan.logical import Source
from braid.stage import checkpoint
from braid.testing import backend
from braid.testing.driver import Driver
from test_in_place import STREAMS, TABLES, query_of

PAIRS = "SELECT l.k, l.g, l.v AS a, r.v AS b FROM l JOIN r ON l.k = r.k"
SUMS = "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM l GROUP BY k"
CHANGING = "SELECT t.k, t.v AS a, u.v AS b FROM t LEFT JOIN u ON t.k = u.k"
LAST = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY v, g, ts)"
# the view, how many sources it names, how many of them are read
VIEWS = {
    "two groups over one join": (
        f"WITH p AS ({PAIRS}) SELECT x.k, x.n, y.m FROM (SELECT k, COUNT(*) AS n FROM p GROUP BY k) x"
        " JOIN (SELECT k, MAX(b) AS m FROM p GROUP BY k) y ON x.k = y.k", 4, 2),
    "by keys of their own": (
        f"WITH p AS ({PAIRS}) SELECT x.g, x.n, y.m FROM (SELECT g, COUNT(*) AS n FROM p GROUP BY g) x"
        " LEFT JOIN (SELECT a, SUM(b) AS m FROM p GROUP BY a) y ON x.n = y.a", 4, 2),
    "rows beside their group": (
        f"WITH p AS ({PAIRS}) SELECT p.a, p.b, y.m FROM p JOIN (SELECT k, MAX(b) AS m FROM p GROUP BY k) y"
        " ON p.k = y.k AND p.b = y.m", 4, 2),
    "groups with themselves": (
        f"WITH s AS ({SUMS}) SELECT a.k, a.n, b.k AS other FROM s a JOIN s b ON a.n = b.n AND a.k < b.k", 2, 1),
    "groups by their own key": (f"WITH s AS ({SUMS}) SELECT a.k, a.n, b.m FROM s a JOIN s b ON a.k = b.k", 2, 1),
    "the group of groups": (
        f"WITH s AS ({SUMS}) SELECT s.k, s.m FROM s JOIN (SELECT MAX(m) AS most FROM s) x ON s.m = x.most", 2, 1),
    "three times": (
        f"WITH s AS ({SUMS}) SELECT a.k, b.n, c.m FROM s a JOIN s b ON a.k = b.k LEFT JOIN s c ON b.n = c.m", 3, 1),
    "all parts of a union": (
        f"WITH p AS ({PAIRS}) SELECT k, a FROM p UNION ALL SELECT k, b FROM p UNION ALL SELECT g, a FROM p", 6, 2),
    "one in another": (
        f"WITH s AS ({SUMS}), q AS (SELECT s.k, s.n, t.v FROM s JOIN t ON s.k = t.k)"
        " SELECT a.k, a.v, b.n AS o, c.m FROM q a JOIN q b ON a.v = b.v JOIN s c ON c.k = b.k", 5, 2),
    "tables that change": (
        f"WITH c AS ({CHANGING}) SELECT x.a, x.b, y.n FROM c x JOIN (SELECT b, COUNT(*) AS n FROM c GROUP BY b) y"
        " ON x.b = y.b", 4, 2),
    "who has none": (
        f"WITH c AS ({CHANGING}) SELECT x.k, x.a FROM c x WHERE NOT EXISTS (SELECT 1 FROM c y WHERE y.a = x.b)", 4, 2),
    "sums of what is rounded": (
        f"WITH p AS ({PAIRS}) SELECT x.k, x.s, y.m FROM (SELECT k, SUM(a::float8 / 3) AS s FROM p GROUP BY k) x"
        " JOIN (SELECT k, MAX(b) AS m FROM p GROUP BY k) y ON x.k = y.k", 4, 2),
    "ranks": (
        f"WITH o AS (SELECT k, v, g FROM (SELECT *, {LAST} AS n FROM l) x WHERE n <= 2)"
        " SELECT a.k, a.v, b.v AS w FROM o a JOIN o b ON a.k = b.k AND a.v < b.v", 2, 1),
    "windows": (
        "WITH w AS (SELECT window_start AS s, k, COUNT(*) AS n FROM TUMBLE(l, ts, INTERVAL '10' SECOND)"
        " GROUP BY window_start, k) SELECT w.s, w.k, w.n FROM w JOIN (SELECT s, MAX(n) AS most FROM w GROUP BY s) x"
        " ON w.s = x.s AND w.n = x.most", 2, 1),
    "closed windows": (
        "WITH w AS (SELECT window_start AS s, k, COUNT(*) AS n FROM TUMBLE(l, ts, INTERVAL '2' SECOND)"
        " GROUP BY window_start, k) SELECT a.s, a.k, a.n, b.k AS other FROM w a JOIN w b ON a.s = b.s AND a.n = b.n"
        " EMIT ON WINDOW CLOSE", 2, 1),
    "what is filtered behind it": (
        f"WITH p AS ({PAIRS}) SELECT x.k, y.m FROM (SELECT k, COUNT(*) AS n FROM p WHERE a > 1 GROUP BY k) x"
        " JOIN (SELECT k, MAX(b) AS m FROM p WHERE a > 2 GROUP BY k) y ON x.k = y.k", 4, 2),
    "not joins of other columns": (
        "SELECT x.k, y.m FROM (SELECT l.k, COUNT(*) AS n FROM l JOIN r ON l.k = r.k GROUP BY l.k) x"
        " JOIN (SELECT l.k, MAX(r.v) AS m FROM l JOIN r ON l.k = r.g GROUP BY l.k) y ON x.k = y.k", 4, 4),
    "not a source alone": ("SELECT x.k, x.v, y.v AS w FROM l x JOIN l y ON x.k = y.v", 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_read(name: str) -> None:
    view, named, read = VIEWS[name]
    query = query_of(view)
    now, alone = lower(query), lower(query, alone=True)
    assert canonical(now.query) == canonical(alone.query) == canonical(query)
    assert len(now.leaves) == len(alone.leaves) == named
    assert sum(not leaf.spared for leaf in now.leaves) == read and not any(leaf.spared for leaf in alone.leaves)
    assert bool(now.shared) is (read < named) and not alone.shared
    assert len([x for x in now.run() if isinstance(x, Source)]) == read
    assert [leaf.reading for leaf in now.leaves] == [leaf.reading for leaf in alone.leaves]
    kept = {now.stored.get(c.name, c.name) for stage in now.stages for s in stage.steps for c in s.columns}
    assert all(name.startswith("c") or name.startswith("_") for name in kept), "names of the SQL's own words"
    for stage in now.stages:
        assert all(x.stage > stage.number for x in stage.exchanges)
        assert bool(stage.exchanges) is (stage.number < len(now.stages) - 1)


def test_a_plan_shows_each_part_once() -> None:
    query = query_of(VIEWS["two groups over one join"][0])
    document = explain_query(query, lambda topic: 1)
    lines = render_text(document).splitlines()
    numbers = [n["id"] for n in document["nodes"]]
    assert len([x for x in lines if "read stream l" in x]) == len([x for x in lines if "read stream r" in x]) == 1
    assert [x.strip("│├└─ ") for x in lines if x.endswith(", as above")] == ["[7] project, as above"]
    assert sorted(set(numbers)) == sorted(numbers) and all(x in numbers for n in document["nodes"] for x in n["inputs"])


@pytest.mark.parametrize("name", VIEWS)
def test_a_query_that_has_begun_goes_on_as_it_began(name: str) -> None:
    query = query_of(VIEWS[name][0])
    now, alone, older = lower(query), lower(query, alone=True), lower(query, in_place=APART, whole=True, alone=True)
    settings = {checkpoint.PRUNED: True, checkpoint.IN_PLACE: OF_CHANGES, checkpoint.SHARED: True}

    def begun(*marks: str) -> checkpoint.Document:
        kept = {mark: settings[mark] for mark in marks}
        return checkpoint.Document(query.name, canonical(query), "", kept, 1, 1, 1, (0,), (), "4.2")

    assert checkpoint.as_begun(now, begun(*settings)) == now
    assert checkpoint.as_begun(now, begun(checkpoint.PRUNED, checkpoint.IN_PLACE)) == alone
    if now.pruned and (now.in_place or alone.in_place):
        assert checkpoint.as_begun(now, begun()) == older
    shown = explain_query(query, lambda topic: 1, [], begun(checkpoint.PRUNED, checkpoint.IN_PLACE))
    assert [n["id"] for n in shown["nodes"]] == [*range(alone.sink + 1)]


def _records(view: str, chance: random.Random, batch: int, buckets: int) -> list[Any]:
    with Driver("risingwave", batch=batch, buckets=buckets) as driver:
        driver.execute(f"{STREAMS}{TABLES}CREATE MATERIALIZED VIEW o AS {view};")
        for n in range(16):
            row = {"k": chance.choice([0, 1, 2, None]), "g": chance.randrange(2), "v": chance.randrange(5)}
            row["ts"] = f"2024-01-01 00:00:{chance.randrange(n // 2, n // 2 + 5):02}"
            driver.write(chance.choice("lr"), None, row)
            if chance.random() < 0.5:
                key, table = chance.randrange(6), chance.choice("tu")
                values = (key, chance.randrange(3), chance.randrange(9))
                driver.execute(f"DELETE FROM {table} WHERE id = {key}; INSERT INTO {table} VALUES {values};")
        return [(r.key, r.value, r.timestamp) for r in driver.read("o")]


@pytest.mark.heavy
@pytest.mark.parametrize("name", VIEWS)
def test_both_plans_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come and go, in batches and buckets of any number: each record, in its order."""
    made = []
    for alone in (False, True):
        monkeypatch.setattr(backend, "lower", lambda query, alone=alone: lower(query, alone=alone))
        for batch, buckets in ((5, 1), (50, 4)):
            made.append(_records(VIEWS[name][0], random.Random(name), batch, buckets))
    assert made[0] and all(x == made[0] for x in made)
