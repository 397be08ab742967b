"""Sums of DECIMAL beyond its digits: what goes again leaves the right sum, however the values are cut."""

from __future__ import annotations

import random
from decimal import Context, Decimal

import numpy as np
import polars as pl
import pytest

from braid.expr.nodes import Col
from braid.operators import totals
from braid.operators.accumulation import Groups
from braid.operators.accumulators import Accumulators
from braid.plan.groups import Aggregation
from braid.types import Decimal as DecimalType

EXACT = Context(prec=100)
MOST = 10**38 - 1


def _values(rng: random.Random, count: int) -> list[int | None]:
    large = rng.random() < 0.7
    kinds = [MOST, -MOST, 1, -1, 0, None, 10**19, rng.randint(-MOST, MOST)] if large else [1, -7, 10**15, None]
    return [rng.choice(kinds) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scale", [0, 7, 38])
def test_sums_and_means_are_those_of_python(seed: int, scale: int) -> None:
    rng = random.Random(seed)
    type_ = DecimalType(38, scale)
    values, signs = _values(rng, 40), [rng.choice([1, 1, 1, -1]) for _ in range(40)]
    group = sorted(rng.choice([0, 0, 1, 2]) for _ in range(40))
    held: dict[int, list[pl.Series]] = {}
    want = dict.fromkeys(range(3), 0)
    for low in range(0, 40, step := rng.choice([1, 7, 40])):
        part = slice(low, low + step)
        here = sorted(set(group[part]))
        first = np.array([group[part].index(g) for g in here])
        groups = Groups.led(first, np.array(signs[part]))
        nothing = [pl.Series([None], dtype=t) for t in totals.columns(type_)]
        before = [pl.concat([held.get(g, nothing)[i] for g in here]) for i in (0, 1)]
        value = pl.Series([None if v is None else Decimal(v).scaleb(-scale, EXACT) for v in values[part]],
                          dtype=pl.Decimal(38, scale))  # fmt: skip
        found = [x.filter(pl.Series(~groups.start)) for x in totals.running(groups, value, before)]
        for i, (g, v, sign) in enumerate(zip(group[part], values[part], signs[part], strict=True)):
            want[g] += sign * (v or 0)
            held[g] = [x.slice(i, 1) for x in found]
            got = totals.total(held[g], type_)[0]
            assert got == (Decimal(want[g]).scaleb(-scale, EXACT) if abs(want[g]) <= MOST else None)
            n = rng.choice([1, 2, 3, 7, 10**9])
            mean = totals.mean([*held[g], pl.Series([n])], DecimalType(38, max(scale, 16)))[0]
            units, half = divmod(abs(want[g]) * 10 ** (max(scale, 16) - scale), n)
            units += 2 * half >= n
            sized = Decimal(units if want[g] > 0 else -units).scaleb(-max(scale, 16), EXACT)
            assert mean == (sized if units <= MOST else None)


def test_what_an_older_version_kept_has_one_column() -> None:
    made = Accumulators((Aggregation(Col("s", DecimalType(38, 2)), "SUM", Col("x", DecimalType(38, 2))),))
    old = pl.DataFrame({"_a0_0": pl.Series([Decimal("1.25")], dtype=pl.Decimal(38, 2))})
    kept = made.kept(old)
    assert kept.schema == made.schema and made.kept(kept) is kept
    more = made.running(
        Groups.led(np.array([0]), np.array([1])), [pl.Series([Decimal("2.00")], dtype=pl.Decimal(38, 2))], kept
    )
    assert made.results(pl.DataFrame(more))[0].to_list() == [Decimal("1.25"), Decimal("3.25")]
