"""MIN and MAX of rows that come and go, against multisets in plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from braid.bind.bound import QueryBound
from braid.bind.program import Program
from braid.errors import BraidError
from braid.operators.accumulation import Groups
from braid.operators.arrangement import MemoryRuns
from braid.operators.base import State
from braid.operators.changes import HASH
from braid.operators.extremes import Extreme, Values, ticks
from braid.plan.canonical import canonical, superseded, wording
from braid.plan.logical import Query, sources
from braid.stage.checkpoint import Document, check_plan, open_or_create
from braid.store import opened

KINDS: dict[str, tuple[pl.DataType, list[Any]]] = {
    "INT": (pl.Int32(), [-(2**31), -5, -1, 0, 1, 7, 2**31 - 1]),
    "DOUBLE": (pl.Float64(), [float("-inf"), -2.5, -1e-300, 0.0, 1e-300, 3.25, float("inf"), float("nan")]),
    "VARCHAR": (pl.String(), ["", "a", "b", "aaaaaaaaa", "aaaaaaaab", "aaaaaaaa", "ä", "zz", "zz\u0000"]),
    "DECIMAL": (pl.Decimal(38, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("9e20").quantize(Decimal("0.01"))]),
    "DATE": (pl.Date(), [date(1970, 1, 1) + timedelta(days=n) for n in (-400, -1, 0, 1, 20_000)]),
}


def _rank(value: Any) -> Any:
    return (math.isnan(value), value) if isinstance(value, float) else value


@pytest.mark.parametrize("kind", KINDS)
def test_ticks_rise_with_values(kind: str) -> None:
    t, values = KINDS[kind]
    made = ticks(pl.Series(sorted(values, key=_rank), dtype=t))
    assert (np.diff(made) >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_as_multisets_have_it(kind: str, seed: int) -> None:
    rng, (t, values) = random.Random(f"{kind} {seed}"), KINDS[kind]
    runs, manifest = MemoryRuns(), dict[str, Any]()
    stands: dict[int, Counter[Any]] = {g: Counter() for g in range(3)}
    for batch in range(25):
        changes: list[tuple[int, int, Any]] = []
        for _ in range(rng.choice([1, 1, 3, 20])):
            g = rng.randrange(3)
            there = [v for v, n in stands[g].items() if n > 0]
            gone = bool(there) and rng.random() < 0.5
            value = rng.choice(there) if gone else rng.choice([*values, None])
            stands[g][value] += -1 if gone else 1
            changes.append((g, -1 if gone else 1, value))
        changes.sort(key=lambda c: c[0])
        before = {g: Counter(c) for g, c in stands.items()}
        for g, d, v in changes:
            before[g][v] -= d
        want: dict[str, list[Any]] = {"MIN": [], "MAX": []}
        for g, d, v in changes:
            before[g][v] += d
            alive = sorted((x for x, n in before[g].items() if n > 0 and x is not None), key=_rank)
            want["MIN"].append(alive[0] if alive else None)
            want["MAX"].append(alive[-1] if alive else None)
        numbers = pl.Series([g for g, _, _ in changes])
        first = np.flatnonzero(np.append(True, np.diff(numbers.to_numpy()) != 0))
        groups = Groups.led(first, np.array([d for _, d, _ in changes]))
        # all groups of one hash in some histories
        rows = pl.DataFrame([(numbers * (seed % 3)).cast(pl.UInt64()).alias(HASH), numbers.alias("_k0")])
        held = Values(State(runs, f"b{batch}", manifest), "values0", ["_k0"], None)
        column = pl.Series([v for _, _, v in changes], dtype=t)
        least, largest = Extreme.of(groups, rows, column, held).after([False, True])
        held.close()
        for name, found in (("MIN", least), ("MAX", largest)):
            got = found.filter(pl.Series(~groups.start)).to_list()
            assert list(map(repr, got)) == list(map(repr, want[name])), (kind, seed, batch, name)
    if not any(n for c in stands.values() for n in c.values()):
        assert not runs.frames


def test_what_came_and_went_leaves_nothing() -> None:
    runs, manifest = MemoryRuns(), dict[str, Any]()
    for batch in range(200):
        sign, n = (1, batch) if batch < 100 else (-1, batch - 100)
        held = Values(State(runs, f"b{batch}", manifest), "values0", ["_k0"], None)
        groups = Groups.led(np.zeros(1, dtype=np.int64), np.full(50, sign))
        rows = pl.DataFrame([pl.repeat(7, 50, dtype=pl.UInt64(), eager=True).alias(HASH)]).with_columns(_k0=pl.lit(1))
        values = pl.Series(range(50 * n, 50 * n + 50), dtype=pl.Int64())
        (found,) = Extreme.of(groups, rows, values, held).after([True])
        held.close()
        if batch == 150:
            assert found.to_list()[-1] == 4999
    assert manifest["values0"]["runs"] == [] and not runs.frames


FOUR = """CREATE TABLE a (id INT PRIMARY KEY, g INT, x INT, y DOUBLE);
CREATE TABLE b (id INT PRIMARY KEY, x INT);
CREATE MATERIALIZED VIEW v AS SELECT a.g, min(a.x) AS p, max(a.x) AS q, min(a.y + b.x) AS r, max(b.x) AS s
  FROM a JOIN b ON a.id = b.id GROUP BY a.g;
"""


def bound_query(sql: str) -> Query:
    *_, last = Program("risingwave").statements(sql)
    assert isinstance(last.bound, QueryBound)
    return last.bound.query


def test_four_of_them_over_a_join_read_it_once() -> None:
    assert [s.alias for s in sources(bound_query(FOUR).root)] == ["a", "b"]


def test_a_group_is_read_no_further_than_it_must() -> None:
    """A row more and the largest one less in a group of 200,000: a few rows are read of its runs."""
    runs, manifest = MemoryRuns(), dict[str, Any]()
    read: list[int] = []

    def batch(values: list[int], sign: int) -> int | None:
        number = len(read)
        held = Values(State(runs, f"b{number}", manifest), "values0", ["_k0"], None)
        seen = held._seen

        def counted(*args: Any) -> Any:
            entries, edges = seen(*args)
            read[-1] += entries.height
            return entries, edges

        read.append(0)
        rows = pl.DataFrame({HASH: pl.repeat(7, len(values), dtype=pl.UInt64(), eager=True), "_k0": [1] * len(values)})
        groups = Groups.led(np.zeros(1, dtype=np.int64), np.full(len(values), sign))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Values, "_seen", lambda self, *args: counted(*args))
            (found,) = Extreme.of(groups, rows, pl.Series(values, dtype=pl.Int64()), held).after([True])
        held.close()
        last: int | None = found[-1]
        return last

    assert batch([n * 7 % 200_003 for n in range(200_000)], 1) == 200_002
    assert batch([500_000], 1) == 500_000
    assert batch([500_000], -1) == 200_002
    assert batch([200_002], -1) == 200_001
    assert max(read) < 100


def test_a_plan_that_is_made_no_more_is_refused_by_name(tmp_path: Path) -> None:
    """MIN and MAX were as-of joins whose left side compares nothing; the words of the query are the same."""
    query = bound_query(FOUR)
    settings = {"dialect": "risingwave", "sink": "topic"}
    then = Document("v", '["AsOfJoin",{"left_at":null}]', wording(query), settings, 1, 1, 1, (0,), (("a", 0),), "4.2.1")
    open_or_create(opened(tmp_path / "v"), then)
    with pytest.raises(BraidError) as e:
        check_plan(opened(tmp_path / "v"), query, "topic")
    assert "the query v is carried out in another way than by an earlier 0.2.0" in e.value.message
    assert e.value.hint is not None and "braid upgrade FILE lets it go on" in e.value.hint
    assert not superseded(canonical(query))
