"""Rows that are added up before they leave for their groups; what comes out, and in which order, is the same."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from braid.bind.program import Program
from braid.explain.documents import explain_query, render_text
from braid.lower import lower as lowering
from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.operators import folding
from braid.operators.changes import BASE, DIFF, LOW, POS, SUB, TIME
from braid.plan.logical import Query
from braid.stage.local import LocalQuery
from braid.stage.wire import Exchanging
from braid.testing import backend
from braid.testing.driver import Driver
from cuts import batches, seq_cuts
from effort import some
from histories import random_history
from law import by_reference, chunks_of, difference, lines_of
from test_in_place import HOP, TABLES, WINDOW
from test_law_epochs import in_epochs, random_query

STREAMS = "".join(
    f"CREATE TABLE {n} (k INT, g INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) APPEND ONLY;\n"
    for n in "lr"
)
MET = "l JOIN r ON l.k = r.k"
# the view, and whether its rows may be added up on their way
VIEWS = {
    "a count of a join": (f"SELECT COUNT(*) AS n, SUM(l.v) AS s, MIN(r.v) AS a, MAX(l.ts) AS b FROM {MET}", True),
    "of a table": ("SELECT COUNT(*) AS n, SUM(v) AS s, AVG(v) AS a, COUNT(v) AS c FROM t", True),
    "of an outer join of tables": ("SELECT COUNT(u.v) AS n, AVG(t.v) AS a FROM t LEFT JOIN u ON t.k = u.k", True),
    "by a condition": (f"SELECT l.v > r.v AS more, COUNT(*) AS n, SUM(r.v) AS s FROM {MET} GROUP BY l.v > r.v", True),
    "by the window of a hop": (
        f"SELECT window_start, COUNT(*) AS n, MAX(v) AS m FROM {HOP} GROUP BY window_start", True),
    "by the window of a row of a join": (
        f"SELECT w.window_end, SUM(r.v) AS s FROM {WINDOW} w JOIN r ON w.k = r.k GROUP BY w.window_end", True),
    "of a filter over a group": (
        "SELECT SUM(n) AS s FROM (SELECT k, COUNT(*) AS n FROM l GROUP BY k) x WHERE n > 1", True),
    "closed windows": (
        f"SELECT window_start, COUNT(*) AS n FROM {HOP} GROUP BY window_start EMIT ON WINDOW CLOSE", True),
    "a part that is read twice": (
        f"WITH p AS (SELECT l.k, l.v AS a, r.v AS b FROM {MET}) SELECT COUNT(*) AS n, MAX(a) AS m FROM p"
        " UNION ALL SELECT COUNT(b), MIN(b) FROM p GROUP BY k", True),
    "by a column": (f"SELECT l.g, COUNT(*) AS n, MAX(r.ts) AS m FROM {MET} GROUP BY l.g", True),
    "by a column that may be NULL": ("SELECT v, COUNT(*) AS n, SUM(k) AS s FROM t GROUP BY v", True),
    "the largest of what goes again": ("SELECT COUNT(*) AS n, MAX(v) AS m, MIN(k) AS l FROM t", True),
    "the largest of groups": (
        "SELECT n, MAX(s) AS m, MIN(g) AS l, COUNT(*) AS c FROM"
        " (SELECT k, MIN(g) AS g, COUNT(*) % 3 AS n, SUM(v) % 4 AS s FROM l GROUP BY k) x GROUP BY n", True),
    "different values": (
        "SELECT g, COUNT(*) AS n, COUNT(DISTINCT k) AS k, COUNT(DISTINCT v) FILTER (WHERE v < 3) AS v,"
        " COUNT(DISTINCT v) FILTER (WHERE v > 0) AS w, MAX(ts::VARCHAR) AS m FROM l GROUP BY g", True),
    "not what is rounded": (f"SELECT SUM(l.v::float8 / 3) AS s FROM {MET}", False),
    "not values in order": (f"SELECT array_agg(l.v ORDER BY l.v) AS s FROM {MET}", False),
    "not what is read into its stage": ("SELECT COUNT(*) AS n FROM l", False),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_whose_rows_are_added_up(name: str) -> None:
    view, folds = VIEWS[name]
    query = query_of(view)
    now = lower(query)
    assert any(x.folding for x in now.exchanges) is folds
    shown = render_text(explain_query(query, lambda topic: 1))
    assert ("several rows of a group in an epoch go as one" in shown) is folds
    before = _unfolded(query)
    steps = [[(s.number, s.inputs, s.columns) for x in plan.stages for s in x.steps] for plan in (now, before)]
    assert steps[0] == steps[1], "state lies where it lay"


def query_of(view: str) -> Query:
    found = Program("risingwave").statements(f"{STREAMS}{TABLES}CREATE MATERIALIZED VIEW o AS {view};")
    return [e.query for e in found if e.query is not None][-1]


def _unfolded(query: Query) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lowering, "folding", lambda node, by_epoch: None)
        return lower(query)


def _records(view: str, batch: int, buckets: int, length: int) -> list[Any]:
    chance = random.Random(view)
    with Driver("risingwave", batch=batch, buckets=buckets) as driver:
        driver.execute(f"{STREAMS}{TABLES}CREATE MATERIALIZED VIEW o AS {view};")
        for n in range(length):
            for topic in "lr":
                rows = [
                    f"({chance.choice(['0', '1', 'NULL'])}, {chance.randrange(2)}, {chance.choice([0, 1, 5, 'NULL'])},"
                    f" '2024-01-01 00:00:{chance.randrange(4 * n, 4 * n + 5):02}')"
                    for _ in range(chance.randrange(1, 6))
                ]
                driver.execute(f"INSERT INTO {topic} VALUES {', '.join(rows)};")
            for table in "tu":
                keys = chance.sample(range(9), chance.randrange(1, 5))
                driver.execute(f"DELETE FROM {table} WHERE id % 4 = {chance.randrange(4)};")
                made = (f"({k}, {chance.randrange(3)}, {chance.choice([1, 2, 'NULL'])})" for k in keys)
                driver.execute(f"INSERT INTO {table} VALUES {', '.join(made)};")
        return [(r.key, r.value, r.timestamp) for r in driver.read("o")]


@pytest.mark.parametrize("name", some(n for n, (_, folds) in VIEWS.items() if folds))
def test_all_plans_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rows an epoch, in batches and buckets of any number: each record, in its order, whether rows are added up
    always, never, where that spares some, or where the group is."""
    made = []
    for worth, batch, buckets in ((0.0, 3, 2), (math.inf, 7, 3), (folding.WORTH, 50, 4)):
        monkeypatch.setattr(folding, "WORTH", worth)
        made.append(_records(VIEWS[name][0], batch, buckets, 6))
    monkeypatch.setattr(backend, "lower", _unfolded)
    made += [_records(VIEWS[name][0], batch, buckets, 6) for batch, buckets in ((3, 2), (50, 4))]
    assert made[0] and all(x == made[0] for x in made)


KEYS: dict[str, Callable[[int], int]] = {
    "all different": lambda n: n,
    "some again": lambda n: n if n % 4 else n % 16,
    "half of them hot": lambda n: n if n % 2 else n % 20,
    "hot": lambda n: n % 5,
}


@pytest.mark.parametrize(("keys", "count"), [*zip(KEYS, (3000, 3000, 1600, 50), strict=True)])
def test_rows_that_leave(keys: str, count: int) -> None:
    """Ten epochs of 300 rows: as many leave as there are keys in each, and all where that spares few."""
    key = KEYS[keys]
    query = query_of("SELECT l.k, COUNT(*) AS n, SUM(l.v) AS s, MAX(r.v) AS m FROM l JOIN r ON l.g = r.g GROUP BY l.k")
    (exchange,) = (x for x in lower(query).exchanges if x.folding)
    values = [n % 7 if n % 3 else None for n in range(3000)]
    columns = {
        POS: [(n // 300) * LOW + n for n in range(3000)],
        SUB: [None] * 3000,
        TIME: range(3000),
        DIFF: [1] * 3000,
    }
    columns |= {"l.k": [key(n) for n in range(3000)], "l.v": values, "r.v": values}
    rows = pl.DataFrame(columns, schema=BASE | {c: pl.Int32() for c in ("l.k", "l.v", "r.v")})
    out, lost = Exchanging(exchange).piece(rows)
    assert exchange.folding is not None
    made = [f"_a{i}_0" for i, a in enumerate(exchange.folding.aggregations) if a.arg is None or a.function != "COUNT"]
    out = out.rename(dict(zip(made, ("n", "s", "m"), strict=True)))
    assert not lost.height and out.height == count
    assert out.select(POS, SUB).equals(out.select(POS, SUB).sort(POS, SUB)) and out[SUB].null_count() == 0
    counted = rows.with_columns(_k1="l.k", n=pl.lit(1, pl.Int64), s=pl.col("l.v").cast(pl.Int64), m="r.v")
    assert _by_epoch(out).equals(_by_epoch(counted))


def _by_epoch(rows: pl.DataFrame) -> pl.DataFrame:
    epochs = rows.group_by(pl.col(POS) // pl.lit(LOW, pl.Int128), "_k1")
    return epochs.agg(pl.col("n", "s").sum(), pl.col("m", TIME).max()).sort(POS, "_k1")


@pytest.mark.parametrize("worth", [0.0, folding.WORTH, math.inf])
def test_a_query_goes_on_with_it_and_without(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the definitions; what either plan has kept lies where it lies, and is read again at any batch."""
    monkeypatch.setattr(folding, "WORTH", worth)
    folded = 0
    for seed in range(40):
        rng = random.Random(f"folding {seed}")
        query = random_query(rng, "grouped")
        plans = [_unfolded(query), lower(query)]
        if not any(x.folding for x in plans[1].exchanges):
            continue
        folded += 1
        history = in_epochs(random_history(rng, query, explicit=True, length=30), 3)
        want, lines = by_reference(query, history).lines, []
        local = LocalQuery(plans[0], 1, 2)
        for batch in batches(history, seq_cuts(rng, history)[0]):
            if rng.random() < 0.3:
                local.restore(local.snapshot())
            if rng.random() < 0.3:
                plans.reverse()
                local = local.upgraded(plans[0])
            lines += lines_of(local.run(chunks_of(local.plan, history, batch)).records)
        assert lines == want, difference(lines, want, f"{seed}: {query.root}")
    assert folded > 3


LARGE = "9" * 37
SUMMED = """
CREATE TABLE l (k INT, d NUMERIC(38, 0), w VARCHAR) APPEND ONLY;
CREATE TABLE r (k INT) APPEND ONLY;
CREATE MATERIALIZED VIEW o AS SELECT SUM(l.d) AS s, AVG(l.d) AS a, SUM(l.w::INT) AS w FROM l JOIN r ON l.k = r.k;
"""


def _summed(batch: int) -> tuple[list[Any], list[Any]]:
    with Driver("risingwave", batch=batch, buckets=3) as driver:
        driver.execute(SUMMED)
        driver.execute("INSERT INTO r VALUES (1), (2), (3), (4);")
        large = ", ".join(f"({k}, {LARGE}, '{k}')" for k in (1, 2, 3, 4))
        driver.execute(f"INSERT INTO l VALUES {large}, (1, 1, 'no number'), (2, -{LARGE}, NULL);")
        driver.execute(f"INSERT INTO l VALUES {', '.join(f'({1 + n % 4}, {LARGE}, 1::varchar)' for n in range(12))};")
        driver.execute(f"INSERT INTO l VALUES {', '.join(f'({1 + n % 4}, -{LARGE}, 1::varchar)' for n in range(14))};")
        drops = [(d["reason"], d["message"]) for d in driver.drops("o")]
        return [(r.value, r.timestamp) for r in driver.read("o")], sorted(drops, key=str)


def test_sums_of_more_digits_than_a_number_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are exact, also where those of an epoch do not fit; what does not, and what fails, is told."""
    made = []
    for how in (lower, _unfolded):
        monkeypatch.setattr(backend, "lower", how)
        made += [_summed(batch) for batch in (1, 50)]
    assert all(x[0] == made[0][0] for x in made)
    assert made[0][0][-1][0]["s"] == int(LARGE) + 1
    one_by_one, folded = made[-1][1], made[0][1]
    assert set(folded) == set(one_by_one) and made[1][1] == folded
    assert len(folded) == 1 + 3 < len(one_by_one), "once an epoch"
