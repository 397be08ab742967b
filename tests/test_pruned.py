"""Columns of a sub-query that nobody reads are neither carried nor kept; the query's text stays what it was."""

from __future__ import annotations

import pytest

from braid.lower.lower import lower
from braid.plan.canonical import canonical
from braid.testing import backend
from braid.testing.driver import Driver
from test_in_place import STREAMS, TABLES, query_of

# the view, and the columns of `l` that are read
VIEWS = {
    "a filter": ("SELECT r.v, x.v AS w FROM r JOIN (SELECT * FROM l WHERE k = 1) x ON r.k = x.k", {"k", "v", "ts"}),
    "two levels": (
        "SELECT r.v, y.w FROM r JOIN (SELECT k, v + 1 AS w, g FROM (SELECT * FROM l) x) y ON r.k = y.k",
        {"k", "v", "ts"},
    ),
    "by a hidden column": ("SELECT r.v FROM r LEFT JOIN (SELECT * FROM l) x ON r.k = x.g", {"g", "ts"}),
    "under groups": ("SELECT x.k, COUNT(*) AS n FROM (SELECT * FROM l WHERE v > 1) x GROUP BY x.k", {"k", "v", "ts"}),
    "a union has all": ("SELECT k FROM (SELECT k, g FROM l UNION ALL SELECT k, v FROM r) x", {"k", "g", "ts"}),
    "a union that is distinct": ("SELECT k FROM (SELECT k, g FROM l UNION SELECT k, v FROM r) x", {"k", "g", "ts"}),
    "a table": ("SELECT r.v FROM r JOIN (SELECT * FROM t WHERE k > 0) x ON r.k = x.k", set()),
    "no column": ("SELECT COUNT(*) AS n FROM (SELECT * FROM l) x", {"ts"}),
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_read(name: str) -> None:
    view, columns = VIEWS[name]
    query = query_of(view)
    now, whole = lower(query), lower(query, whole=True)
    assert canonical(now.query) == canonical(whole.query) == canonical(query) and now.stored == whole.stored
    assert now.pruned is (name != "a union has all") and not whole.pruned
    assert [s.number for x in now.stages for s in x.steps] == [s.number for x in whole.stages for s in x.steps]
    read = {c.name.partition(".")[2] for leaf in now.leaves if leaf.source.topic == "l" for c in leaf.columns}
    assert {c for c in read if not c.startswith("_")} == columns


@pytest.mark.parametrize("name", VIEWS)
def test_both_plans_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for whole in (False, True):
        monkeypatch.setattr(backend, "lower", lambda query, whole=whole: lower(query, whole=whole))
        for batch, buckets in ((3, 2), (50, 1)):
            with Driver("risingwave", batch=batch, buckets=buckets) as driver:
                driver.execute(f"{STREAMS}{TABLES}CREATE MATERIALIZED VIEW o AS {VIEWS[name][0]};")
                for n in range(12):
                    row = {"k": n % 3, "g": n % 2, "v": n % 5, "ts": f"2024-01-01 00:00:{n:02}"}
                    driver.write("lr"[n % 2], None, row)
                    driver.execute(f"DELETE FROM t WHERE id = {n % 4}; INSERT INTO t VALUES ({n % 4}, {n % 3}, {n});")
                ends.append(sorted(map(str, driver.query("SELECT * FROM o"))))
    assert ends[0] and all(end == ends[0] for end in ends)
