"""ORDER BY … WITHIN: what is late and what goes out, by a definition of three lines."""

from __future__ import annotations

import random
from typing import Literal

import pytest

from braid.testing import Driver

BEGIN = 1_700_000_000_000
SQL = """
CREATE STREAM marks (at BIGINT, n INT) OPTIONS (PARTITIONS '{partitions}');
CREATE VIEW sorted AS SELECT STREAM at AS ROWTIME, at, n FROM marks ORDER BY at WITHIN INTERVAL '{slack}' SECOND;
CREATE VIEW counts AS SELECT STREAM t.n, COUNT(*) AS c FROM
  (SELECT STREAM at AS ROWTIME, n FROM marks ORDER BY at WITHIN INTERVAL '{slack}' SECOND) AS t
  GROUP BY t.n, FLOOR(t.ROWTIME TO MINUTE);
"""


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("runtime", ["local", "reference"])
def test_rows_go_out_in_order_or_are_late(seed: int, runtime: Literal["local", "reference"]) -> None:
    rng = random.Random(seed)
    partitions, slack = rng.choice([1, 1, 3]), rng.choice([0, 5, 60])
    latest, kept, late = [0] * partitions, list[tuple[int, int]](), 0
    batch, buckets = rng.choice([None, 1, 3]), rng.choice([1, 4])
    with Driver("sqlstream", runtime, batch=batch, buckets=buckets) as d:
        d.execute(SQL.format(partitions=partitions, slack=slack))
        for i in range(30):
            at, n, p = BEGIN + i * 4000 + rng.randint(-90, 90) * 1000, rng.randint(0, 2), rng.randrange(partitions)
            d.write("MARKS", None, {"AT": at, "N": n}, partition=p)
            if at < latest[p] - slack * 1000:
                late += 1
            else:
                kept.append((at, n))
            latest[p] = max(latest[p], at)
            if rng.random() < 0.05:
                d.restart()
        d.finish()
        made = [(r.timestamp, r.value["AT"], r.value["N"]) for r in d.read("SORTED") if isinstance(r.value, dict)]
        assert [t for t, _, _ in made] == sorted(at for at, _ in kept)
        assert sorted((at, n) for _, at, n in made) == sorted(kept)
        assert all(t == at for t, at, _ in made)
        assert len(d.drops("SORTED")) == len(d.drops("COUNTS")) == late
        counts = sum(r.value["C"] for r in d.read("COUNTS") if isinstance(r.value, dict))
        assert counts == len(kept)
