"""What a changed spread means for a query that has a checkpoint (`docs/scale.md`)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.errors import BraidError
from braid.lower.lower import lower
from braid.spark.job import Wishes, prepared, ranks_of, sources_of
from braid.topics import TopicStore
from histories import query, source, stream_stream

PLAN = lower(query(stream_stream(source("A"), source("B"))))
NO_WISHES = Wishes(None, None, None, None, None, None, {}, frozenset(), None)


@pytest.fixture
def store(tmp_path: Path) -> TopicStore:
    made = TopicStore(tmp_path)
    made.create("a", 2)
    made.create("b", 2)
    return made


def test_a_source_with_more_partitions_is_refused(store: TopicStore) -> None:
    """A topic keeps its number of partitions; one that was made again is another topic."""
    prepared(PLAN, store.root, 2, NO_WISHES)
    with pytest.raises(BraidError, match="has 2 partitions, not 3"):
        store.create("a", 3)
    store.delete("a")
    store.create("a", 3)
    with pytest.raises(BraidError, match="source a, partition 2: not in the checkpoint"):
        prepared(PLAN, store.root, 2, NO_WISHES)


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
    one, _, _ = prepared(PLAN, store.root, 1, NO_WISHES)
    many, _, _ = prepared(PLAN, store.root, 64, NO_WISHES)
    assert (one.tasks, many.tasks) == (1, 1) and one.ids == many.ids and one.run == many.run


def test_a_query_started_anew_takes_the_cores_that_there_are(store: TopicStore) -> None:
    prepared(PLAN, store.root, 1, NO_WISHES)
    anew = Wishes(str(Path(store.root) / "anew"), None, None, None, None, None, {}, frozenset(), None)
    made, _, _ = prepared(PLAN, store.root, 2, anew)
    assert made.tasks == 2 and made.buckets % made.output.partitions == 0
