"""Checkpoint and state in an object store: what a run there gives is what one in a folder gives, whatever is killed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")
pytest.importorskip("pyspark")

from braid.bind.program import Program
from braid.errors import BraidError
from braid.face.rescale import rescale
from braid.face.reset import reset
from braid.face.verify import verify
from braid.lower.lower import lower
from braid.spark import query as queries
from braid.spark.dataframes import Columns, Registered
from braid.spark.query_options import QueryOptions
from braid.stage import batches, offset_log, state_file
from braid.stage.checkpoint_runs import CheckpointRuns
from braid.store import opened
from braid.testing.on_spark import shared_session
from braid.topics import files
from braid.topics.interface import open_topics
from braid.topics.store_value import Store

pytestmark = [pytest.mark.spark, pytest.mark.objects, pytest.mark.operations]

SQL = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE STREAM j AS SELECT l.k AS k, v, w FROM l LEFT JOIN r WITHIN 5 SECONDS GRACE PERIOD 0 SECONDS ON l.k = r.k;
CREATE TABLE g AS SELECT k, COUNT(*) AS n, MAX(v) AS m FROM l GROUP BY k;
"""
QUERIES = [e.query for e in Program("ksqldb").statements(SQL) if e.query is not None]
STEPS = 4


@pytest.fixture
def room(place: str, gateway: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store in the object store. Tasks find it as the driver does; copies lie in a folder of the test's own."""
    environment = shared_session().sparkContext.environment
    ours = {**gateway.environment, "BRAID_CACHE": str(tmp_path / "cache")}
    monkeypatch.setenv("BRAID_CACHE", ours["BRAID_CACHE"])
    kept = dict(environment)
    environment.update(ours)
    yield place
    environment.clear()
    environment.update(kept)


def feed(root: str, step: int) -> None:
    rng, store = random.Random(step), open_topics(Store(opened(root)))
    for name, column in (("l", "V"), ("r", "W")):
        store.create(name, 2)
        rows = ((rng.randrange(9), i) for i in range(step * 40, step * 40 + 40))
        store.append(
            name,
            [{"key": k, "value": {column: f"{column}{i}"}, "timestamp": i * 100, "partition": k % 2} for k, i in rows],
        )


def run(root: str, number: int = 0, tasks: int | None = 2) -> Any:
    """`tasks` None: as many as it has."""
    options = QueryOptions(tasks=tasks, limit=30, trigger={"availableNow": True}, note=lambda _: None)
    running = queries.start(shared_session(), lower(QUERIES[number]), Store(opened(root)), options)
    running.await_termination()
    return running


def lines(root: str, number: int = 0) -> list[list[str]]:
    store, name = open_topics(Store(opened(root))), QUERIES[number].name
    return [store.parsed(name, p, 0, end, None)["_line"].to_list() for p, end in enumerate(store.end_offsets(name))]


def checkpoint(root: str, number: int = 0) -> str:
    return f"{root}/checkpoints/{QUERIES[number].name}"


@pytest.fixture(scope="module", params=range(len(QUERIES)))
def expected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[list[str]]]:
    root = str(tmp_path_factory.mktemp("folder"))
    for step in range(STEPS):
        feed(root, step)
        run(root, request.param)
    return request.param, lines(root, request.param)


def test_the_output_is_that_of_a_folder(room: str, expected: tuple[int, list[list[str]]], tmp_path: Path) -> None:
    """Also where a machine loses all its copies, and where batches are spread anew."""
    number, want = expected
    for step in range(STEPS):
        feed(room, step)
        run(room, number)
        if step == 1:
            shutil.rmtree(tmp_path / "cache")
        if step == 2:
            assert any("6 buckets" in x for x in rescale(opened(room), QUERIES[number].name, buckets=6, tasks=2))
    assert lines(room, number) == want
    assert [x for x in verify(opened(room)) if isinstance(x, BraidError)] == []
    folder = checkpoint(room, number)
    last = state_file.published(opened(folder))
    assert state_file.buckets(opened(folder), last) == 6
    assert [x["batch"] for x in offset_log.read(opened(folder), last)] == [*range(last + 1)]
    there = state_file.batches(opened(folder))
    named = {x for n in there[-2:] for x in state_file.objects_in(state_file.load(opened(folder), n))}
    assert {name for name, _ in opened(folder).list("runs")} == named
    assert {*there} == {n for last in there[-2:] for n in state_file.links_of(opened(folder), last)}


@pytest.mark.parametrize("point", ["staged", "committed"])
def test_a_driver_that_dies_inside_a_batch(room: str, expected: tuple[int, list[list[str]]], point: str) -> None:
    """Its successor finds the state of the batch there, and takes it."""
    number, want = expected

    def die(at: str) -> None:
        if at == point and state_file.batches(opened(checkpoint(room, number)))[-1:] == [1]:
            raise RuntimeError("killed")

    for step in range(STEPS):
        feed(room, step)
        if step == 0:
            files.crash_hook = die
            try:
                with pytest.raises(BraidError, match="failed"):
                    run(room, number)
            finally:
                files.crash_hook = None
            assert batches.begun(opened(checkpoint(room, number)))
        run(room, number)
    assert lines(room, number) == want


def test_what_is_torn_or_missing_is_named(room: str) -> None:
    feed(room, 0)
    run(room)
    kept, folder = opened(room), checkpoint(room)
    last = state_file.published(opened(folder))
    (place, text), *_ = state_file.texts(opened(folder), last).items()
    runs, one = CheckpointRuns(opened(folder), place), state_file.runs_in(json.loads(text))[0][0]
    name = f"checkpoints/J/{state_file.object_of(place, one)}"
    whole = kept.get(name, 1 << 30)

    def put(data: bytes) -> None:
        kept.delete(name)
        assert kept.create(name, data)

    for bad in (whole[: len(whole) // 2], bytes(len(whole))):
        put(bad)
        with pytest.raises(BraidError, match="a state file is torn"):
            runs.check(one)
        assert any("is torn" in x.message for x in verify(opened(room)) if isinstance(x, BraidError))
    kept.delete(name)
    feed(room, 1)
    with pytest.raises(BraidError, match=f"{name} is damaged: it is missing"):
        run(room)
    put(whole)
    kept.delete(f"checkpoints/J/state/{last}.json")
    with pytest.raises(BraidError, match=f"state/{last}.json is damaged: it is missing"):
        run(room)
    assert place


def test_a_driver_that_woke_beside_its_successor_writes_nothing(room: str) -> None:
    """It saves a state of its own behind the same batch: who comes second is told so."""
    feed(room, 0)
    run(room)
    folder, last = checkpoint(room), state_file.published(opened(checkpoint(room)))
    state, tie = state_file.load(opened(folder), last), state_file.Tie("1" * 64, None)
    assert state_file.save(opened(folder), last + 1, state, tie, ["a"], 4)
    assert not state_file.save(opened(folder), last + 1, {}, tie, ["a"], 4)
    with pytest.raises(BraidError, match=r"was computed in .* by another run"):
        state_file.save(opened(folder), last + 1, state, state_file.Tie("2" * 64, None), ["b"], 4)
    assert state_file.load(opened(folder), last + 1) == state


def test_reset(room: str) -> None:
    feed(room, 0)
    run(room)
    before = lines(room)
    for _ in reset(Store(opened(room)), "J"):
        pass
    assert not [*opened(f"{room}/checkpoints").list("")] and not open_topics(Store(opened(room))).exists("J")
    run(room)
    assert lines(room) == before


def test_dataframes_need_a_checkpoint_in_a_folder(room: str) -> None:
    """Spark keeps its logs of their sources there, as files."""
    frame = shared_session().readStream.format("rate").load()
    options = QueryOptions(frames={"L": Registered(frame, Columns(False))}, tasks=2, note=lambda _: None)
    with pytest.raises(BraidError, match=f"G reads DataFrames, and its checkpoint is {checkpoint(room, 1)}") as e:
        queries.start(shared_session(), lower(QUERIES[1]), Store(opened(room)), options)
    assert e.value.hint == "give it a folder"
