"""Sessions: which ones rows make, all at once as one after the other; what is kept of those that are closed."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

from braid.expr.nodes import Col
from braid.operators import sessions
from braid.operators.accumulators import Accumulators
from braid.operators.changes import TIME
from braid.operators.sessions import START, _accumulated, _in_turn, _Kept, _Made, _made, _New, _scanned
from braid.plan.groups import Aggregation
from braid.testing.driver import Driver
from braid.types import Scalar


def drawn(rng: random.Random) -> tuple[_Kept, _New, int]:
    """Sessions of some keys, no two of which meet, and rows behind a clock that rises."""
    gap, grace, span = rng.choice([1, 5, 20]), rng.choice([0, 0, 3, 20, 1000]), rng.choice([20, 100, 400])
    keys, n = rng.randint(1, 4), rng.randint(1, 80)
    now = rng.randint(0, span)
    kept: list[tuple[int, int, int]] = []
    for key in range(keys):
        at = now - grace - gap
        for _ in range(rng.randint(0, 4)):
            start = at + rng.randint(0, 10)
            kept.append((key, start, start + rng.choice([0, 0, 3, 50])))
            at = kept[-1][2] + gap + 1
    rows = []
    for _ in range(n):
        t = rng.randint(0, span) if rng.random() < 0.7 else now - rng.randint(0, 2 * (gap + grace) + 2)
        now = max(now, t) + rng.choice([0, 0, 0, 1])
        rows.append((rng.randrange(keys), t, now - gap - grace))
    return _Kept(*columns(kept)), _New(*columns(rows)), gap


def columns(rows: list[tuple[int, int, int]]) -> list[sessions.Ints]:
    return list(np.array(rows, dtype=np.int64).reshape(-1, 3).T)


@pytest.mark.parametrize("seed", range(300))
def test_all_at_once_as_one_after_the_other(seed: int) -> None:
    kept, new, gap = drawn(random.Random(seed))
    n = len(new.time)
    want = _Made(*(np.full(n, -1) for _ in range(3)), np.zeros(n, dtype=np.bool_))
    for key in range(int(new.group.max()) + 1):
        _in_turn(key, kept, new, gap, want)
    got = _made(kept, new, gap)
    assert got.late.tolist() == want.late.tolist()
    timely = ~want.late
    for field in ("first", "second", "end"):
        assert getattr(got, field)[timely].tolist() == getattr(want, field)[timely].tolist(), field


def test_few_keys_are_looked_at_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are late, but not nearly late before what is closed, are no reason."""
    keys: list[int] = []
    monkeypatch.setattr(sessions, "_in_turn", lambda g, *_: keys.append(g))
    rng = random.Random(1)
    rows = [(rng.randrange(100), t - rng.choice([0, 0, 3, 8, 30]), t - 10) for t in range(20_000)]
    _made(_Kept(*columns([])), _New(*columns(rows)), 5)
    assert len(keys) < 10


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(60))
def test_larger_sessions_go_on_as_chains_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways to the same accumulators."""
    rng = random.Random(seed)
    kept, new, gap = drawn(rng)
    made = _made(kept, new, gap)
    t, made = new.time[~made.late], made.timely(len(kept.group))
    x = Col("x", Scalar.INT)
    aggregations = [
        Aggregation(Col(f, x.type), f, x) for f in ("COUNT", "SUM", "AVG", "MIN", "MAX", "LATEST_BY_OFFSET")
    ]
    accumulators = Accumulators(tuple(aggregations), numbered=True)
    count, n = len(kept.group), len(t)
    plain = {c: d for c, d in accumulators.schema.items() if not isinstance(d, pl.Struct)}
    held = {c: pl.Series(rng.choices(range(9), k=count), dtype=d) for c, d in plain.items()}
    last = [rng.choice([None, {"n": i, "v": i % 5}]) for i in rng.sample(range(count), count)]
    held |= {c: pl.Series(last, dtype=d) for c, d in accumulators.schema.items() if c not in plain}
    stood = pl.DataFrame({TIME: kept.end, START: kept.start, **held})
    values = pl.DataFrame({f"{i}": pl.Series(rng.choices([None, 1, 2, 5], k=n), dtype=pl.Int32) for i in range(6)})
    numbers = count + np.arange(n)
    want = _scanned(made, stood, t, accumulators, values, numbers)
    monkeypatch.setattr(Accumulators, "scan", False)
    got = _accumulated(made, stood, t, accumulators, values, numbers)
    assert got.equals(want)


def test_a_session_grows_by_a_thousand_merges() -> None:
    """Every second row joins what has become of all before it with one that came alone."""
    with Driver("ksqldb") as driver:
        driver.execute("""
            CREATE STREAM s (k INT KEY, n INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
            CREATE TABLE o AS SELECT k, COUNT(*) AS c, SUM(n) AS total FROM s
              WINDOW SESSION (10 MILLISECONDS) GROUP BY k;
        """)
        driver.write("s", 1, {"N": 1}, 0)
        for i in range(1, 1000):
            driver.write("s", 1, {"N": 1}, 20 * i)
            driver.write("s", 1, {"N": 1}, 20 * i - 10)
        rows = [r for r in driver.read("o") if r.value is not None]
    assert rows[-1].window == (0, 19980)
    assert rows[-1].value == {"C": 1999, "TOTAL": 1999}


@pytest.mark.heavy
@pytest.mark.parametrize("final", ["", " EMIT FINAL"])
def test_closed_sessions_are_forgotten(final: str) -> None:
    with Driver("ksqldb", batch=100) as driver:
        driver.execute(f"""
            CREATE STREAM s (k INT KEY, n INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
            CREATE TABLE o AS SELECT n, COUNT(*) AS c FROM s
              WINDOW SESSION (2 MILLISECONDS, GRACE PERIOD 10 MILLISECONDS) GROUP BY n HAVING COUNT(*) > 1{final};
        """)
        for t in range(0, 2000, 2):
            driver.write("s", 1, {"N": t % 7}, t)
            driver.write("s", 1, {"N": t % 7}, t + 1)
        live = [x for n in driver.explain("o", state=True)["nodes"] for x in n["live"].values()]
        (told,) = [n for n in driver.explain("o")["nodes"] if n["op"] == "aggregate"]
    assert live
    assert all(0 < x["rows"] < 400 for x in live), live  # of 1,000 sessions, each with two bounds
    assert all(k["bounded"] for k in told["state"])
