"""What stays behind on the way to the buckets is made again there: rows and steps as they were."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from braid.bind.program import Program
from braid.lower.lower import lower
from braid.lower.physical import Plan
from braid.stage.decode import RAW, decode
from braid.stage.ingest import Chunk, ingested
from braid.stage.wire import derived, full, full_steps, slim_steps, split

STREAMS = """
CREATE STREAM l (k VARCHAR KEY, v BIGINT, w DOUBLE) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM r (k VARCHAR KEY, v BIGINT, w DOUBLE) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE TABLE t (k VARCHAR PRIMARY KEY, v BIGINT) WITH (kafka_topic='t', value_format='JSON', partitions=1);
"""
QUERIES = {
    "by a key column": "SELECT l.k AS k, l.v AS v, r.v AS rv FROM l JOIN r WITHIN 5 SECONDS ON l.k = r.k",
    "by a value column": "SELECT l.v AS v, l.k AS k, r.w AS w FROM l LEFT JOIN r WITHIN 5 SECONDS ON l.v = r.v",
    "by an expression": "SELECT r.v AS v, l.k AS k, r.k AS rk FROM l JOIN r WITHIN 5 SECONDS ON ABS(l.v) = r.v",
    "by a double": "SELECT l.w AS w, l.k AS k, r.k AS rk FROM l JOIN r WITHIN 5 SECONDS ON l.w = r.w",
    "with a table": "SELECT l.k AS k, l.v AS v, t.v AS tv FROM l LEFT JOIN t ON l.k = t.k",
    "without a join": "SELECT k, v, w FROM l WHERE v > 1",
    "keyless": "SELECT v, w FROM l PARTITION BY v",
}
ROWS: list[tuple[int, str | None, str | None]] = [
    (5, '"a"', '{"V":1,"W":0.0}'),
    (3, '"b"', '{"V":-1,"W":-0.0}'),
    (9, None, '{"V":2,"W":"NaN"}'),
    (9, '"d"', None),
    (7, '"e"', '{"V":null,"W":1e300}'),
    (12, '"f"', "{oops"),
    (13, '"a"', '{"V":1,"W":null}'),
]


def _plan(select: str) -> Plan:
    statements = Program("ksqldb").statements(f"{STREAMS} CREATE STREAM o AS {select};")
    return lower(next(e.query for e in statements if e.query is not None))


def _chunk(plan: Plan, leaf: int, headers: bool, by_time: bool = False) -> Chunk:
    raw: dict[str, list[Any]] = {name: [] for name in RAW}
    for offset, (time, key, value) in enumerate(sorted(ROWS, key=lambda r: r[0]) if by_time else ROWS):
        values = (offset, time, key, value, '[["h","eA=="]]' if headers and offset == 1 else None, None)
        for name, x in zip(RAW, values, strict=True):
            raw[name].append(x)
    return Chunk(leaf, 0, leaf, decode(plan.leaves[leaf].source, pl.DataFrame(raw, schema=RAW), 0))


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("select", QUERIES.values(), ids=QUERIES.keys())
def test_rows_and_steps_come_back(select: str, headers: bool) -> None:
    plan = _plan(select)
    for leaf in plan.leaves:
        made = ingested(plan, _chunk(plan, leaf.number, headers))
        parts, whole = dict(split(made.rows, 3, False, derived(leaf))), dict(split(made.rows, 3))
        assert parts.keys() == whole.keys()
        for b, part in parts.items():
            assert set(part.columns).isdisjoint(derived(leaf))
            assert_frame_equal(full(leaf, part), whole[b])
            assert_frame_equal(full(leaf, whole[b]), whole[b])
        assert_frame_equal(full_steps(slim_steps(made.steps)), made.steps)


def test_a_key_that_is_a_column_travels_once() -> None:
    leaf = _plan(QUERIES["by a key column"]).leaves[0]
    assert "L.K" in derived(leaf) and not derived(leaf, rows=10)  # a few rows travel whole
    leaf = _plan(QUERIES["by a value column"]).leaves[0]
    assert "L.V" not in derived(leaf)  # null as a key, but not as a column, where a record's value is null


def test_values_of_steps_stay_behind_where_they_are_the_times_of_positions() -> None:
    plan = _plan(QUERIES["by a key column"])
    steps = ingested(plan, _chunk(plan, 0, False, by_time=True)).steps
    assert "value" not in slim_steps(steps).columns
    other = steps.with_columns(pl.col("value") - 1)
    assert_frame_equal(full_steps(slim_steps(other)), other)
