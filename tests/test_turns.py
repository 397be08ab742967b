"""At most so many batches at once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from braid.bind.program import Program
from braid.lower.lower import lower
from braid.spark import query as queries
from braid.spark.limit import Limit
from braid.spark.query_options import QueryOptions
from braid.store import opened
from braid.testing.on_spark import shared_session
from braid.topics import TopicStore
from braid.topics.store_value import Store

SQL = "CREATE STREAM l (k BIGINT KEY, v BIGINT) WITH (kafka_topic='l', value_format='JSON', partitions=1);" + "".join(
    f"CREATE STREAM q{n} AS SELECT k, v + {n} AS v FROM l;" for n in range(3)
)


class Crowd:
    """Who is inside, and how many were at once."""

    def __init__(self) -> None:
        self._guard, self.now, self.most = threading.Lock(), 0, 0

    def __enter__(self) -> None:
        with self._guard:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self.now -= 1


def test_no_more_have_a_turn_than_may() -> None:
    turns, crowd = Limit(3), Crowd()

    def go(_: int) -> None:
        with turns.taken(lambda: False), crowd:
            time.sleep(0.02)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(go, range(40)))
    assert crowd.most == 3 and crowd.now == 0


def test_who_is_stopped_does_not_wait_and_takes_no_turn() -> None:
    turns = Limit(1)
    with turns.taken(lambda: False):
        with turns.taken(lambda: True):
            pass
        ended = threading.Event()

        def wait() -> None:
            with turns.taken(lambda: False):
                ended.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not ended.wait(0.2)
    waiting.join(10)
    assert ended.is_set()
    with pytest.raises(RuntimeError), turns.taken(lambda: False):
        raise RuntimeError
    with turns.taken(pytest.fail):  # a batch that failed has given its turn back
        pass


@pytest.mark.spark
def test_batches_of_several_queries_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, collected = Crowd(), queries.collected

    def watched(manifest: Any) -> list[tuple[str, str]]:
        with crowd:
            return collected(manifest)

    monkeypatch.setattr(queries, "collected", watched)
    turns = Limit(1)
    monkeypatch.setattr(queries, "limit", lambda _: turns)
    store = TopicStore(opened(tmp_path / "s"))
    store.create("l", 1)
    store.append_lines("l", [f'{{"key":{n},"value":{{"V":{n}}},"timestamp":{n}}}' for n in range(40)])
    made = [lower(e.query) for e in Program("ksqldb").statements(SQL) if e.query is not None]
    options = QueryOptions(tasks=1, limit=10, trigger={"availableNow": True})
    running = [queries.start(shared_session(), plan, Store(store.root), options) for plan in made]
    for query in running:
        query.await_termination()
    assert crowd.most == 1 and [sum(store.end_offsets(p.query.sink.topic)) for p in made] == [40, 40, 40]
