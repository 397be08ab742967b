"""NEXMark and TPC-H as views over tables whose rows come, change and go: what stands is what DuckDB says of these."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from braid.testing.driver import Driver
from effort import examples
from known_views import NEXMARK, NEXMARK_TABLES, TPCH, TPCH_TABLES, nexmark_changes, tpch_changes

pytestmark = pytest.mark.heavy


ALL = [*(("nexmark", q) for q in NEXMARK), *(("tpch", q) for q in TPCH)]
_LONG = [pytest.param(*x, marks=pytest.mark.law) for x in ALL[1::2]]  # the others in `make test`, too


@pytest.mark.parametrize(("of", "name"), [*ALL[::2], *_LONG])
def test_what_stands(of: str, name: str) -> None:
    tables, views, changes = {
        "nexmark": (NEXMARK_TABLES, NEXMARK, nexmark_changes),
        "tpch": (TPCH_TABLES, TPCH, tpch_changes),
    }[of]
    statements, seen, times = [*changes(random.Random(name), examples(180, 45))], 0, examples(4, 2)
    with Driver("risingwave", batch=15, buckets=3) as driver:
        driver.execute(f"{tables}CREATE MATERIALIZED VIEW o AS {views[name]};")
        for n in range(times):
            driver.execute("\n".join(statements[n * len(statements) // times : (n + 1) * len(statements) // times]))
            rows = Counter(map(str, driver.query("SELECT * FROM o")))
            assert rows == Counter(map(str, driver.query(views[name])))
            seen += rows.total()
    assert seen, "the rows must meet"
