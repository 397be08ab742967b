"""The law for WINDOW BY of Lenses, as SQL: over streams, joins and LATERAL, and what reads the windows."""

from __future__ import annotations

import random

import pytest

from braid.bind.bound import QueryBound
from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.plan.logical import Query
from cuts import seq_cuts, some, time_cuts
from histories import random_history
from law import by_reference, difference, ran

TOPICS = """
SET defaults.topic.autocreate=true;
CREATE TABLE a(_key INT, V STRING, N INT) FORMAT (INT, JSON) PROPERTIES (partitions=2);
CREATE TABLE b(_key INT, V STRING, N INT) FORMAT (INT, JSON) PROPERTIES (partitions=1);
CREATE TABLE d(_key INT, V STRING, N INT) FORMAT (INT, JSON) PROPERTIES (partitions=1);
"""
WINDOWS = ("TUMBLE 5ms", "TUMBLE 30ms", "HOP 10ms,3ms", "HOP 7ms,7ms", "SESSION 3ms", "SESSION 20ms")
GRACES = ("", " GRACE BY 0s", " GRACE BY 4ms", " GRACE BY 30ms")
KEYS = ("_key", "N", "_key, V", "N % 2")
SHAPES = {
    "stream": "SELECT STREAM COUNT(*) AS c, SUM(N) AS s, AVG(N) AS m, LAST(V) AS l, N AS bare FROM a WHERE _key > 0",
    "kept": "SELECT STREAM COUNT(*) AS c, FIRST(N) AS f, COLLECT(V, 3) AS v, COLLECT_UNIQUE(N) AS u, MAXK(N, 2) AS x,"
    " MINK_UNIQUE(_key, 2) AS m, MINK(N, 2) AS n, TOPK(N, 2) AS t, BOTTOMK(N) AS b FROM a",
    "inner": "SELECT STREAM COUNT(*) AS c, LAST(v) AS l, SUM(n) AS s FROM inner_join AS a",
    "outer": "SELECT STREAM COUNT(n) AS c, v, LAST(n) AS l FROM outer_join AS a",
    "lateral": "SELECT STREAM COUNT(*) AS c, SUM(e) AS s FROM a LATERAL [N, _key] AS e",
}
JOINS = """
WITH inner_join AS (SELECT STREAM a.N, a.V, b.N AS n, b.V AS v FROM a JOIN b ON a.N = b.N WITHIN 5ms);
WITH t AS (SELECT TABLE * FROM d);
WITH outer_join AS (SELECT STREAM a.N, a.V, b.N AS n, b.V AS v FROM a LEFT JOIN b ON a.N = b.N WITHIN 5ms);
"""
ABOVE = {
    "": "SELECT STREAM * FROM w",
    "where": "SELECT TABLE c + 1 AS d FROM w WHERE c > 1",
    "rekeyed": "SELECT TABLE c AS _key, c AS d FROM w WHERE c < 4",
    "grouped": "SELECT TABLE COUNT(*) AS n, SUM(c) AS s FROM w GROUP BY _key",
    "by value": "SELECT TABLE COUNT(*) AS n, SUM(c) AS s FROM w GROUP BY c % 2",
    "looked up": "SELECT STREAM b.V AS v, w.c AS c FROM b LEFT JOIN w ON b.N = w.c",
    "joined": "SELECT TABLE w.c AS c, u.V AS v FROM w LEFT JOIN t AS u ON w.c = u.N",
}


def asked(rng: random.Random, shape: str) -> Query:
    program = Program("lenses", Catalog())
    above = rng.choice(list(ABOVE.values()))
    keys = [k for k in KEYS if "," not in k or "JOIN" not in above]  # only keys of one format are joined
    groups = f"{SHAPES[shape]} WINDOW BY {rng.choice(WINDOWS)}{rng.choice(GRACES)} GROUP BY {rng.choice(keys)}"
    script = f"{TOPICS}{JOINS}WITH w AS ({groups});\nINSERT INTO o {above};"
    (*_, last) = program.statements(script)
    assert isinstance(last.bound, QueryBound)
    return last.bound.query


def check(shape: str, seed: int, whole: bool) -> None:
    """`whole`: cut at every record, too, else at a few in a row."""
    rng = random.Random(f"{shape} {seed}")
    query = asked(rng, shape)
    history = random_history(rng, query, explicit=rng.random() < 0.5)
    want = by_reference(query, history)
    cuts = seq_cuts(rng, history) if history.explicit else time_cuts(rng, history)
    for i, cut in enumerate(cuts if whole else some(rng, cuts)):
        buckets = rng.choice([1, 2, 4, 8])
        got, _ = ran(query, history, cut, buckets, rng)
        assert got == want, difference(got.all, want.all, f"{shape} {seed}: cut {i}, {buckets} buckets\n{query.sql}")


@pytest.mark.parametrize("shape", SHAPES)
def test_law(shape: str) -> None:
    for seed in range(4):
        check(shape, seed, whole=False)


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_at_length(shape: str) -> None:
    for seed in range(1000, 1100):
        check(shape, seed, whole=True)
