"""Partitions that are silent for so long do not hold the clock (`braid run --idle`).

In: a topic of two partitions, of which one goes on. Out: what the planner writes into its documents; what goes out.
Rule: a mark is decided when a batch is planned, and stands in its document: done again, the batch is the same.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.bind.bound import QueryBound
from braid.bind.program import Program
from braid.lower.lower import lower
from braid.operators.clocks import IDLE
from braid.plan.logical import Query
from braid.spark.job import dumps
from braid.spark.preparing import prepared
from braid.spark.query_options import QueryOptions, Reading
from braid.spark.source import Planner, _chunks, loads
from braid.stage.ingest import ingested
from braid.store import opened
from braid.topics.store import TopicStore
from braid.topics.store_value import Store

SQL = """
CREATE STREAM l (k INT KEY, v INT) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, v INT) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE STREAM o AS SELECT l.k AS k, l.v, r.v FROM l LEFT JOIN r WITHIN 1 SECONDS GRACE PERIOD 0 SECONDS ON l.k = r.k;
"""


def asked() -> Query:
    (query,) = [e.bound.query for e in Program("ksqldb").statements(SQL) if isinstance(e.bound, QueryBound)]
    assert isinstance(query, Query)
    return query


def write(store: TopicStore, partition: int, key: int, at: int) -> None:
    store.append("l", [{"partition": partition, "key": key, "value": {"V": key}, "timestamp": at}])


@pytest.fixture
def store(tmp_path: Path) -> TopicStore:
    made = TopicStore(opened(tmp_path))
    made.create("l", 2)
    made.create("r", 2)
    write(made, 0, 1, 1_000)
    write(made, 1, 2, 1_000)
    return made


OPTIONS = QueryOptions()


def test_documents(store: TopicStore) -> None:
    job, *_ = prepared(lower(asked()), Store(store.root), 2, replace(OPTIONS, idle=0.2))
    text = dumps(job)
    planner = Planner(text)
    first = planner.latest(planner.beginning())
    assert (first["idle"], first["silent"]) == ([], []) and planner.latest(first) == first
    time.sleep(0.25)
    write(store, 0, 3, 5_000)
    second = planner.latest(first)
    assert second["idle"] == second["silent"] == ["0/1", "1/0", "1/1"]
    marks = [c for s in planner.slices(first, second) for c in _chunks(text, loads(text), s) if c.idle]
    assert [(c.leaf, c.partition) for c in marks] == [(0, 1), (1, 0), (1, 1)]
    assert all((ingested(job.plan, c).steps["kind"] == IDLE).all() for c in marks)
    again = Planner(text)  # after a restart nothing is marked twice
    assert again.latest(second) == second
    time.sleep(0.25)
    third = again.latest(second)
    assert (third["idle"], third["silent"]) == (["0/0"], ["0/1", "1/0", "1/1", "0/0"])
    assert third["next"] == second["next"] and third["batch"] == second["batch"] + 1
    write(store, 1, 4, 6_000)  # one wakes
    fourth = again.latest(third)
    assert (fourth["idle"], fourth["silent"]) == ([], ["1/0", "1/1", "0/0"])
    never = Planner(dumps(replace(job, reading=Reading())))
    assert "silent" not in never.latest(third)


@pytest.mark.spark
def test_what_waits_for_a_silent_partition_goes_out(store: TopicStore) -> None:
    from braid.spark import query as queries
    from braid.testing.on_spark import shared_session

    write(store, 0, 3, 5_000)
    run = queries.start(shared_session(), lower(asked()), Store(store.root), QueryOptions(idle=1.0))
    try:
        deadline = time.monotonic() + 200
        while sum(store.end_offsets("O")) < 2 and time.monotonic() < deadline and run.status() == "running":
            time.sleep(0.1)
    finally:
        run.stop()
    assert sum(store.end_offsets("O")) == 2  # rows 1 and 2, padded; row 3 waits for a later time
