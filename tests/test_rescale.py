"""What a changed spread means for a query that has a checkpoint (`docs/scale.md`)."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.errors import BraidError
from braid.lower.lower import lower
from braid.sinks.kafka import KafkaSink
from braid.sinks.topic import TopicSink
from braid.spark.columns import spark_partition
from braid.spark.conf import workers_python
from braid.spark.job import ranks_of, sources_of
from braid.spark.preparing import loose, prepared
from braid.spark.query_options import QueryOptions
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.store_value import Store
from histories import query, source, stream_stream

PLAN = lower(query(stream_stream(source("A"), source("B"))))
NO_OPTIONS = QueryOptions()


@pytest.fixture
def store(tmp_path: Path) -> TopicStore:
    made = TopicStore(opened(tmp_path))
    made.create("a", 2)
    made.create("b", 2)
    return made


def test_a_source_with_more_partitions_is_refused(store: TopicStore) -> None:
    """A topic keeps its number of partitions; one that was made again is another topic."""
    prepared(PLAN, Store(store.root), 2, NO_OPTIONS)
    with pytest.raises(BraidError, match="has 2 partitions, not 3"):
        store.create("a", 3)
    store.delete("a")
    store.create("a", 3)
    with pytest.raises(BraidError, match="source a, partition 2: not in the checkpoint"):
        prepared(PLAN, Store(store.root), 2, NO_OPTIONS)


def test_partitions_that_are_added_stand_behind_all_others() -> None:
    """And among themselves, whenever each of them came."""
    ranks = ranks_of(PLAN, [2, 3], sources_of(PLAN, [2, 3]))
    assert ranks == {"0/0": 0, "0/1": 1, "1/0": 2, "1/1": 3, "1/2": 4}
    added = {place: pickle.loads(pickle.dumps(ranks))[place] for place in ("0/2", "1/7", "1/3", "0/3")}
    assert len(set(added.values())) == 4 and min(added.values()) > 4
    assert {place: ranks.added(n) for place, n in added.items()} == {
        place: tuple(map(int, place.split("/"))) for place in added
    }
    assert dict(ranks.items()) == {"0/0": 0, "0/1": 1, "1/0": 2, "1/1": 3, "1/2": 4}
    with pytest.raises(BraidError, match="too many"):
        ranks["1/20000"]


def test_more_cores_change_nothing(store: TopicStore) -> None:
    one, _, _ = prepared(PLAN, Store(store.root), 1, NO_OPTIONS)
    many, _, _ = prepared(PLAN, Store(store.root), 64, NO_OPTIONS)
    assert (one.tasks, many.tasks) == (1, 1) and one.ids == many.ids and one.run == many.run


def test_a_query_started_anew_takes_the_cores_that_there_are(store: TopicStore) -> None:
    prepared(PLAN, Store(store.root), 1, NO_OPTIONS)
    anew = QueryOptions(checkpoint=opened(str(Path(store.root.url) / "anew")))
    made, _, _ = prepared(PLAN, Store(store.root), 7, anew)
    assert made.output.partitions == 2 and made.tasks == 7 and made.buckets == 14


@pytest.mark.parametrize("cores", [1, 2, 3, 16, 100])
def test_every_task_has_a_bucket(store: TopicStore, cores: int) -> None:
    """Whatever the result's partitions are; those are written by one task each."""
    made, _, _ = prepared(PLAN, Store(store.root), cores, NO_OPTIONS)
    assert made.tasks == cores and made.gathered == (cores > 2)
    for ids in made.ids:
        assert {spark_partition(i, cores) for i in ids} == set(range(cores))
    assert len({spark_partition(i, cores) for i in made.out_ids}) == min(cores, 2)


def test_the_number_of_tasks_is_said_once(store: TopicStore) -> None:
    """On a cluster, where nobody asked for one: it holds for ever."""
    told: list[str] = []
    options = replace(NO_OPTIONS, note=told.append)
    job, _, _ = prepared(PLAN, Store(store.root), 3, options)
    assert job.tasks == 3
    (note,) = told
    assert note.startswith("OUT has 3 tasks a stage from now on (3 run at once)")
    prepared(PLAN, Store(store.root), 9, options)
    assert len(told) == 1


def test_no_number_of_tasks_is_said_where_it_was_asked_for(store: TopicStore) -> None:
    told: list[str] = []
    job, _, _ = prepared(PLAN, Store(store.root), 3, replace(NO_OPTIONS, note=told.append, tasks=5))
    assert job.tasks == 5 and not told
    with pytest.raises(BraidError, match="shuffle partitions of Spark: 5 in the checkpoint, 6 now"):
        prepared(PLAN, Store(store.root), 3, replace(NO_OPTIONS, tasks=6))


def test_more_tasks_than_partitions_in_kafka_are_refused() -> None:
    """Each has its marker at one of them: a batch ended with a topic that was not there."""
    KafkaSink("o", 2).check_tasks(2)
    TopicSink("o", 2).check_tasks(3)
    with pytest.raises(BraidError, match="3 tasks a stage were asked for, but o in Kafka has 2 partitions"):
        KafkaSink("o", 2).check_tasks(3)


@pytest.mark.parametrize(("tasks", "buckets"), [(1, 4), (4, 4), (8, 8), (200, 200)])
def test_buckets_under_a_checkpoint_of_the_users_never_change(store: TopicStore, tasks: int, buckets: int) -> None:
    """Nothing records them there: with others a newer version would not find what an older one has kept."""
    assert loose(PLAN, Store(store.root), tasks, frozenset()).buckets == buckets


def test_one_node_says_nothing_of_tasks(store: TopicStore) -> None:
    told: list[str] = []
    prepared(PLAN, Store(store.root), 3, replace(NO_OPTIONS, note=told.append), one_node=True)
    assert not told


@pytest.mark.parametrize(
    ("local", "environment", "conf", "python"),
    [
        (True, "/other/python", {}, None),
        (False, "/other/python", {}, "/other/python"),
        (False, None, {}, None),
        (True, None, {"spark.pyspark.python": "/named"}, "/named"),
        (False, "/other/python", {"spark.pyspark.python": "/named"}, "/named"),
    ],
)
def test_the_python_of_workers_is_the_users(
    local: bool, environment: str | None, conf: dict[str, str], python: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all tasks run here, that of the environment may have no Braid; ours has."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if environment is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", environment)
    assert workers_python(local, conf) == python
