"""The planner of batches reads the times that the next batch is cut by while one runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from braid.bind.program import Program
from braid.errors import BraidError
from braid.lower.lower import lower
from braid.spark.job import dumps
from braid.spark.preparing import prepared
from braid.spark.query_options import QueryOptions
from braid.spark.source import Planner
from braid.stage.inputs import TopicInput
from braid.store import opened
from braid.topics.store import TopicStore
from braid.topics.store_value import Store

SQL = """
CREATE STREAM l (k INT KEY, t BIGINT) WITH (kafka_topic='l', value_format='JSON', timestamp='t', partitions=2);
CREATE STREAM o AS SELECT * FROM l;
"""
LIMIT = 10_000
OPTIONS = QueryOptions(limit=LIMIT)


@pytest.mark.heavy
@pytest.mark.parametrize("fails", [False, True])
def test_times_are_read_ahead(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    store = TopicStore(opened(tmp_path))
    store.create("l", 2)
    rows = ({"partition": n % 2, "key": n, "value": {"T": 10 * n}, "timestamp": 1} for n in range(60_000))
    store.append("l", list(rows))
    (query,) = [e.query for e in Program("ksqldb").statements(SQL) if e.query is not None]
    job, *_ = prepared(lower(query), Store(store.root), 2, OPTIONS)
    readers, read, planner = list[str](), TopicInput._times_of, Planner(dumps(job))

    def told(self: TopicInput, partition: int, start: int, stop: int) -> Any:
        readers.append(threading.current_thread().name)
        if fails and readers[-1] == "times":
            raise BraidError("no registry answers", "wait")
        return read(self, partition, start, stop)

    monkeypatch.setattr(TopicInput, "_times_of", told)
    at, found, main = planner.beginning(), list[int](), threading.current_thread().name
    while (end := planner.latest(at)) != at:
        at = end
        if not found:
            assert readers.count(main) > 0
            before = readers.count(main)
        found.append(sum(at["next"].values()))
    assert found == [n * LIMIT for n in range(1, 7)]
    assert "times" in readers and (readers.count(main) == before) == (not fails)
