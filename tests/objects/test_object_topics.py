"""Topics in an object store: what holds of topics anywhere (`test_topics.py`), and what only an object store has."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("obstore")

from braid.errors import Away, BraidError
from braid.records.registry import Schema, UnknownSchema
from braid.store import cache, objects, opened
from braid.topics import Staged, StageWriters, clean_staging, documents, drops, log, object_topics, publish, stage
from braid.topics.object_topic_store import ObjectTopicStore
from braid.topics.object_topics import ObjectTopic
from braid.topics.registries import InObjects, StoreRegistry, of_store
from braid.topics.sealed import unsealed
from objects.faulty import Faulty
from sums import loaded, with_sum
from test_topics import (
    Crash,
    again,
    crash_at,
    lines_of,
    one_batch,
    record,
    test_a_large_segment_of_small_ones,
    test_a_reader_beside_a_writer_at_every_step,
    test_append_and_read,
    test_delete_and_create_again,
    test_long_segments_are_read_in_part,
    test_many_commits_are_folded,
    test_pieces_of_a_partition_follow_each_other,
    test_writers_and_readers_at_once,
    values,
)

__all__ = [
    "test_a_large_segment_of_small_ones",
    "test_a_reader_beside_a_writer_at_every_step",
    "test_append_and_read",
    "test_delete_and_create_again",
    "test_long_segments_are_read_in_part",
    "test_many_commits_are_folded",
    "test_pieces_of_a_partition_follow_each_other",
    "test_writers_and_readers_at_once",
]


@pytest.fixture
def on_server(place: str) -> ObjectTopicStore:
    return ObjectTopicStore(opened(place))


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.objects)])
def anywhere(place: str) -> ObjectTopicStore:
    """What tests of topics anywhere are given here."""
    return ObjectTopicStore(opened(place))


@pytest.fixture
def in_memory(memory: Faulty) -> ObjectTopicStore:
    return ObjectTopicStore(opened(f"s3://memory/{uuid.uuid4().hex}"))


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.objects)])
def store(request: pytest.FixtureRequest) -> ObjectTopicStore:
    found: ObjectTopicStore = request.getfixturevalue("in_memory" if request.param == "memory" else "on_server")
    return found


@pytest.fixture(autouse=True)
def _in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_topics, "BESIDE", False)


def topic_of(store: ObjectTopicStore, name: str = "t") -> ObjectTopic:
    found = store.topic(name)
    assert isinstance(found, ObjectTopic)
    return found


# -------------------------------------------------------------- what it costs


def test_a_batch_is_one_object_a_task_and_a_commit(in_memory: ObjectTopicStore, memory: Faulty) -> None:
    store = in_memory
    store.create("t", 3)
    one_batch(store, 0, [[1], [2], [3]], False)
    topic = store.topic("t")
    memory.asked.clear()
    staged: list[Staged] = []
    for task in range(2):
        writers = StageWriters(topic, "q", 1)
        for p in range(3):
            writers.of(p, task).write(lines_of([10 * task + p]))
        staged += writers.close()
    assert publish(topic, "q", 1, staged)
    assert [x.split()[0] for x in memory.asked] == ["GET", "PUT", "GET", "PUT", "PUT", "HEAD"], memory.asked
    assert values(store, "t") == [[1, 0, 10], [2, 1, 11], [3, 2, 12]]


def test_nobody_lists(in_memory: ObjectTopicStore, memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither who publishes or reads, nor who looks for the first time; and a look without news is one request."""
    monkeypatch.setattr(log, "FOLD", 5)
    store = in_memory
    store.create("t", 2)
    memory.asked.clear()
    for batch in range(33):
        one_batch(store, batch, [[batch], [batch]], False)
    late = again(store)
    assert late.end_offsets("t") == [33, 33] and late.read("t", 1, 0, 33).height == 33
    assert not [x for x in memory.asked if "list-type" in x]
    memory.asked.clear()
    late.topic("t").anew()
    assert len(memory.asked) == 1
    monkeypatch.setattr(object_topics, "AWAY", 0)
    late.topic("t").anew()
    assert len(memory.asked) == 1 + 2, "a rollup may stand for commits that have gone"
    memory.asked.clear()
    assert late.read("t", 1, 0, 33).height == 33
    time.sleep(2 * object_topics.SELDOM)
    late.known_end("t", 0)
    assert late.read("t", 1, 3, 30).height == 27
    assert not memory.asked  # it has all of it


def test_folds_go_on_beside_the_writer(store: ObjectTopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_topics, "BESIDE", True)
    monkeypatch.setattr(log, "FOLD", 4)
    monkeypatch.setattr(object_topics, "KEPT", 5)
    store.create("t")
    topic, reader = topic_of(store), again(store)
    for batch in range(50):
        one_batch(store, batch, [[batch]], False)
        assert reader.topic("t").anew().ends() == [batch + 1]
    assert topic._keeping is not None
    topic._keeping.result(30)
    one_batch(store, 50, [[50]], False)
    topic._keeping.result(30)
    assert topic._folded == 48
    for look in (store, reader, again(store)):
        assert values(look, "t") == [list(range(51))]


# -------------------------------------------------------------- two at a time


def test_the_second_of_two_drivers_is_refused(store: ObjectTopicStore) -> None:
    """Both go on from one checkpoint: the batch of the first counts, whichever it is, and the other's is none."""
    store.create("t", 2)
    first, second = topic_of(again(store)), topic_of(again(store))
    for topic in (first, second):
        topic.view()
    assert publish(first, "q", 0, [stage(first, "q", 0, 0, lines_of([1]))], digest="a")
    assert not publish(second, "q", 0, [stage(second, "q", 0, 0, lines_of([1]))], digest="a")  # the same, once more
    assert publish(first, "q", 1, [stage(first, "q", 1, 0, lines_of([2]))], digest="b")
    with pytest.raises(BraidError, match="by another writer"):
        publish(second, "q", 1, [stage(second, "q", 1, 0, lines_of([3]))], digest="c")
    assert publish(first, "q", 2, [stage(first, "q", 2, 0, lines_of([4]))], digest="d")
    with pytest.raises(BraidError, match="by another writer"):
        publish(second, "q", 1, [stage(second, "q", 1, 0, lines_of([2]))], digest="b")  # it has slept for a while
    assert values(store, "t") == [[1, 2, 4], []]


def test_many_race_for_a_number(store: ObjectTopicStore) -> None:
    store.create("t")
    writers = [again(store) for _ in range(8)]
    for writer in writers:
        writer.end_offsets("t")
    barrier = threading.Barrier(8)

    def write(n: int) -> None:
        for k in range(5):
            barrier.wait()
            writers[n].append("t", [record(100 * n + k)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    (found,) = values(store, "t")
    assert sorted(v["V"] for v in found) == sorted(f"v{100 * n + k}" for n in range(8) for k in range(5))


@pytest.mark.parametrize("named", [True, False])
def test_who_wakes_long_after_writes_behind_all_others(
    store: ObjectTopicStore, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """The number that it creates was there, and is gone with its rollup."""
    monkeypatch.setattr(log, "FOLD", 4)
    monkeypatch.setattr(object_topics, "KEPT", 3)
    store.create("t")
    asleep, reader = again(store), again(store)
    for look in (asleep, reader):
        assert look.end_offsets("t") == [0]
    for i in range(18):
        store.append("t", [record(i)])
    assert asleep.append("t", [record(99)], "late" if named else None)
    want = [[{"V": f"v{i}"} for i in (*range(18), 99)]]
    for look in (store, reader, asleep):
        assert values(look, "t") == want
        assert [x["V"] for x in read_all(look)] == [x["V"] for x in want[0]]


def read_all(store: ObjectTopicStore) -> list[dict[str, str]]:
    topic = store.topic("t")
    topic.anew()
    lines = store.read("t", 0, 0, topic.ends()[0])["_line"].to_list()
    return [json.loads(line)["value"] for line in lines]


def test_a_commit_whose_rollup_came_at_once_stands(
    in_memory: ObjectTopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others fold it before its writer has looked whether it stands."""
    monkeypatch.setattr(log, "FOLD", 3)
    store = in_memory
    store.create("t")
    slow, other = topic_of(store), again(store)
    stands = slow._stands

    def late(number: int, mark: str) -> bool:
        for i in range(4):
            other.append("t", [record(10 * number + i)])
        return stands(number, mark)

    monkeypatch.setattr(slow, "_stands", late)
    store.append("t", [record(1)])
    (found,) = values(store, "t")
    assert [v["V"] for v in found] == ["v1", "v10", "v11", "v12", "v13"]


# ---------------------------------------------------------------- what is torn


def packs(store: ObjectTopicStore) -> list[str]:
    return [name for name, _ in store.root.list(f"{topic_of(store).path}/data")]


def written(store: ObjectTopicStore, name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    store.root.put(name, str(tmp_path / "x"))


def test_torn_objects_are_noticed(store: ObjectTopicStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create("t", 2)
    one_batch(store, 0, [[1, 2, 3], [4]], False)
    name = next(n for n in packs(store) if b'"value":2' in store.root.get(n, 1 << 20))
    data = store.root.get(name, 1 << 20)
    broken: list[tuple[bytes | None, str]] = [
        (data[:50], "ends after 50 bytes"),
        (data.replace(b'"value":2', b'"value":7'), "checksum"),
        (None, "is missing"),
    ]
    for k, (content, why) in enumerate(broken):
        monkeypatch.setenv("BRAID_CACHE", str(tmp_path / f"cache{k}"))
        if content is None:
            store.root.delete(name)
        else:
            written(store, name, content, tmp_path)
        with pytest.raises(BraidError, match=why) as e:
            again(store).read("t", 0, 0, 3)
        assert f"{store.root.url}/{name}" in e.value.message and e.value.hint
        written(store, name, data, tmp_path)
    assert values(store, "t") == [[1, 2, 3], [4]]


def test_damaged_commits_are_named(store: ObjectTopicStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create("t")
    one_batch(store, 0, [[1]], False)
    name = f"{topic_of(store).commits}/{1:020d}.json"
    good = json.loads(unsealed(store.root.get(name, 1 << 20)))
    lies = good["segments"][0] | {"file": "../../secrets/key"}
    for k, content in enumerate(
        [b"{", b"[]", json.dumps(good).encode(), with_sum(good | {"id": 7}), with_sum(good | {"segments": [lies]})]
    ):
        monkeypatch.setenv("BRAID_CACHE", str(tmp_path / f"cache{k}"))
        written(store, name, content, tmp_path)
        with pytest.raises(BraidError) as e:
            again(store).read("t", 0, 0, 1)
        assert e.value.hint and "\n" not in e.value.message
        assert e.value.message.startswith(f"{store.root}/{name} is damaged")


@pytest.mark.parametrize(
    ("file", "why"), [("q-1/0/0.jsonl", "lies elsewhere"), ("../../../outside", "is no object's name")]
)
def test_a_folders_topic_takes_no_commit_of_a_room(tmp_path: Path, file: str, why: str) -> None:
    from braid.topics import TopicStore

    store = TopicStore(opened(tmp_path))
    store.create("t")
    store.append("t", [record(1)])
    commit = next((tmp_path / "topics/t/.commits").iterdir())
    x = loaded(commit)
    x["segments"][0] |= {"file": file, "at": 0}
    commit.write_bytes(with_sum(x))
    with pytest.raises(BraidError, match=why):
        TopicStore(opened(tmp_path)).end_offsets("t")


# -------------------------------------------------------------- who is stopped


def test_what_a_killed_writer_left_goes(store: ObjectTopicStore) -> None:
    store.create("t", 2)
    one_batch(store, 0, [[1], [2]], False)
    topic = store.topic("t")
    lost = stage(topic, "q", 1, 0, lines_of([9]))  # an attempt that was given up
    assert one_batch(store, 1, [[3], [4]], False)
    ahead = stage(topic, "q", 2, 0, lines_of([5]))  # of a batch that may still be published
    other = stage(topic, "p", 0, 0, lines_of([6]))
    files = {n.split("/data/")[1] for n in packs(store)}
    assert {lost.file, ahead.file, other.file} <= files
    clean_staging(again(store).topic("t"), "q")
    assert {n.split("/data/")[1] for n in packs(store)} == files - {lost.file}
    assert publish(topic, "q", 2, [ahead]) and values(store, "t") == [[1, 3, 5], [2, 4]]


def test_a_deletion_that_was_killed(store: ObjectTopicStore) -> None:
    store.create("t")
    store.append("t", [record(1)])
    with crash_at(0), pytest.raises(Crash, match="topic ended"):
        store.delete("t")
    other = again(store)
    with pytest.raises(BraidError, match="no topic"):
        other.append("t", [record(2)])
    assert other.names() == []
    other.create("t", 2)
    other.append("t", [record(3)])
    assert values(other, "t") == [[{"V": "v3"}], []]


def test_what_was_staged_for_a_topic_is_not_of_its_successor(store: ObjectTopicStore) -> None:
    store.create("t")
    other = again(store)
    topic = other.topic("t")
    staged = stage(topic, "q", 0, 0, lines_of([1]))
    store.delete("t")
    store.create("t")
    for writer in (topic, again(store).topic("t")):
        with pytest.raises(BraidError, match="no topic"):
            publish(writer, "q", 0, [staged])
    assert values(store, "t") == [[]]
    assert store.sizes() == {"t": 1}


def test_commits_go_with_the_objects_that_a_rollup_made_needless(
    store: ObjectTopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "FOLD", 5)
    monkeypatch.setattr(object_topics, "KEPT", 7)
    store.create("t", 2)
    early = again(store)
    for batch in range(32):
        one_batch(store, batch, [[batch], [batch, batch]], False)
        if batch < 3:
            early.topic("t").anew()  # it knows objects that are gone later
    old = [n for n in packs(store) if "/data/q/" in n]
    assert {int(os.path.basename(n)[:20]) for n in old} == set(range(25, 32))
    assert len([n for n in packs(store) if "/data/=rolled/" in n]) == 6
    want = [list(range(32)), [b for b in range(32) for _ in (1, 2)]]
    for look in (early, store, again(store)):
        assert values(look, "t") == want
        assert early.read("t", 1, 0, 64).height == 64


# --------------------------------------------------------------- many partitions


def unfolded(store: ObjectTopicStore, monkeypatch: pytest.MonkeyPatch, folder: Path, partitions: int) -> ObjectTopic:
    """Ten commits that nobody has folded, on a machine that has read none of them."""
    monkeypatch.setattr(log, "FOLD", 10)
    store.create("t", partitions)
    with monkeypatch.context() as never:
        never.setattr(ObjectTopic, "fold", lambda self, view: None)
        for batch in range(10):
            writers = StageWriters(topic_of(store), "q", batch)
            for p in range(partitions):
                writers.of(p, 0).write(lines_of([batch * 100 + p] * (p % 3)))
            publish(topic_of(store), "q", batch, writers.close())
    monkeypatch.setenv("BRAID_CACHE", str(folder / "another"))
    return topic_of(again(store))


def in_all(partitions: int) -> list[list[int]]:
    return [[batch * 100 + p for batch in range(10) for _ in range(p % 3)] for p in range(partitions)]


def test_what_is_folded_is_fetched_by_one_request_an_object(
    in_memory: ObjectTopicStore, memory: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic = unfolded(in_memory, monkeypatch, tmp_path, 30)
    last = topic.anew().last
    memory.asked.clear()
    topic._all_folded(last)
    asked = [x for x in memory.asked if "/data/" in x and x.startswith("GET")]
    assert len(asked) == 10, asked
    found = topic.settled()
    assert [len(part) for part in found.parts] == [0 if p % 3 == 0 else 1 for p in range(30)]
    assert values(in_memory, "t") == in_all(30)


@pytest.mark.parametrize("piece", [1, 100, 300])
def test_pieces_of_an_object_end_where_they_are_large(
    in_memory: ObjectTopicStore, memory: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, piece: int
) -> None:
    """Whatever one request may give: each segment comes, once."""
    monkeypatch.setattr(object_topics, "_PIECE", piece)
    topic = unfolded(in_memory, monkeypatch, tmp_path, 7)
    memory.asked.clear()
    topic._all_folded(topic.anew().last)
    assert len([x for x in memory.asked if "/data/" in x and x.startswith("GET")]) >= 10
    assert values(in_memory, "t") == in_all(7)


@pytest.mark.parametrize("what", ["a bit", "cut", "gone"])
def test_a_damaged_object_is_not_folded(
    in_memory: ObjectTopicStore, memory: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """What lies beside the damage is; who reads the damaged segment is told."""
    topic = unfolded(in_memory, monkeypatch, tmp_path, 4)
    last = topic.anew().last
    hurt = topic.known().parts[2][5]
    (name,) = [n for n in memory.held if n.endswith(f"/data/{hurt.staged}")]
    data, more = memory.held[name]
    assert hurt.at is not None
    middle = hurt.at + hurt.extent.size // 2
    if what == "gone":
        del memory.held[name]
    else:
        spoilt = bytes([*data[:middle], data[middle] ^ 1, *data[middle + 1 :]]) if what == "a bit" else data[:middle]
        memory.held[name] = spoilt, more
    topic._all_folded(last)
    parts = topic.settled().parts
    assert len(parts[2]) > 1 and len(parts[1]) == (1 if what != "gone" else len(parts[1]))
    monkeypatch.setenv("BRAID_CACHE", str(tmp_path / "a third"))
    with pytest.raises(BraidError):
        values(in_memory, "t")


# ---------------------------------------------------------------- the server


@pytest.mark.heavy
@pytest.mark.parametrize("fault", [503, 500, 429, "cut", "half", "done, cut", "done, 500"])
def test_faults_that_pass_are_not_noticed(
    in_memory: ObjectTopicStore, memory: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: int | str
) -> None:
    monkeypatch.setattr(log, "FOLD", 4)
    store = in_memory
    store.create("t", 2)

    def each_call(do: Callable[[], object]) -> None:
        memory.faults.extend([fault, None] * 30)
        do()
        memory.faults.clear()

    for batch in range(5):
        each_call(lambda: one_batch(store, batch, [[batch], []], False))  # noqa: B023
    monkeypatch.setenv("BRAID_CACHE", str(tmp_path / "another"))
    each_call(lambda: values(store, "t"))
    assert values(store, "t") == [list(range(5)), []]


def test_a_server_that_is_away(in_memory: ObjectTopicStore, memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PATIENCE", 0.5)
    store = in_memory
    store.create("t")
    memory.always = 503
    for call in (lambda: store.append("t", [record(1)]), lambda: again(store).end_offsets("t"), store.names):
        with pytest.raises(Away) as e:
            call()
        assert "the server is overloaded or failing" in e.value.message and "\n" not in e.value.message
    memory.always = None
    store.append("t", [record(1)])
    assert values(store, "t") == [[{"V": "v1"}]]


# ------------------------------------------------------------------ the cache


def test_the_cache_is_private_bounded_and_needless(
    in_memory: ObjectTopicStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BRAID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BRAID_CACHE_BYTES", "20000")
    store = again(in_memory)
    lock = Path(cache.local_folder(store.root)) / ".run.lock"
    lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock.touch()
    store.create("t")
    for batch in range(30):
        one_batch(
            store,
            batch,
            [
                [batch] * 100,
            ][:1],
            False,
        )
    assert values(store, "t") == [[b for b in range(30) for _ in range(100)]]
    files = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert files and sum(p.stat().st_size for p in files) < 40_000
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0 and lock.exists()
    for p in files:
        if p.suffix == ".jsonl":
            p.write_bytes(p.read_bytes()[:-3])
        elif p.suffix == ".json":
            p.write_bytes(b"{")
    assert store.read("t", 0, 0, 3000).height == 3000  # what is damaged is fetched again
    assert again(store).end_offsets("t") == [3000]
    shutil.rmtree(tmp_path / "cache")
    assert store.read("t", 0, 0, 3000).height == 3000
    store.append("t", [record(5)])
    assert store.end_offsets("t") == [3001]


def test_a_user_without_a_home_has_a_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BRAID_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/nobody")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache.root().startswith(f"{tmp_path}/braid-cache-")
    shutil.rmtree(cache.root())
    (tmp_path / f"braid-cache-{os.geteuid()}").symlink_to(tmp_path)  # of somebody else, perhaps
    with pytest.raises(BraidError, match="not a folder of this user's"):
        cache.root()


def test_what_is_said_of_its_size_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_CACHE_BYTES", "10 GB")
    with pytest.raises(BraidError, match="BRAID_CACHE_BYTES"):
        cache.most()


# ------------------------------------------------------------- beside topics


def test_two_who_change_a_document(store: ObjectTopicStore) -> None:
    def count(_: int) -> None:
        for _ in range(5):
            documents.changed(store.root, "notes/n", lambda b: b'{"n":%d}' % (json.loads(b or b'{"n":0}')["n"] + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert documents.document(store.root, "notes/n") == b'{"n":20}'
    assert len(list(store.root.list("documents/notes/n"))) == 20
    documents.changed(store.root, "notes/n", lambda _: None)
    assert documents.document(store.root, "notes/n") == b'{"n":20}'
    assert documents.document(store.root, "notes/m") is None


def test_schemas(store: ObjectTopicStore) -> None:
    first, second = of_store(store.root), StoreRegistry(InObjects(store.root))
    text = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
    with pytest.raises(UnknownSchema):
        first.by_id(1)
    id = first.register("t-value", Schema("AVRO", text))
    assert second.register("t-value", Schema("AVRO", text)) == id
    other = second.register("u~/ü-value", Schema("AVRO", text.replace('"a"', '"b"')))
    assert other != id and first.by_id(other).text == text.replace('"a"', '"b"')
    assert first.latest("u~/ü-value") == (other, Schema("AVRO", text.replace('"a"', '"b"')))
    first.forget("t-value")
    assert second.latest("t-value") is None and second.by_id(id).text == text


def test_drops(store: ObjectTopicStore) -> None:
    root, frame = store.root, pl.DataFrame({"reason": ["late", "malformed"], "_raw": [None, b"\xff"]})
    assert drops.with_drops(root) == [] and drops.read_drops(root, "q") == []
    names = [drops.stage_drops(root, "q", 0, task, frame, run="q-1") for task in range(2)]
    assert drops.read_drops(root, "q") == []
    for _ in range(2):  # the second time as a batch that is done again
        drops.publish_drops(root, "q", 0, [n for n in names if n], run="q-1")
        assert [x["reason"] for x in drops.read_drops(root, "q")] == ["late", "malformed"] * 2
        names = [drops.stage_drops(root, "q", 0, task, frame, run="q-1") for task in range(2)]
    drops.clean_drops(root, "q", 0)
    assert len(list(store.root.list("drops"))) == 1 and drops.with_drops(root) == ["q"]
    drops.write_drops(root, "q", 1, 0, frame, run="q-1")
    assert [x["raw"] for x in drops.read_drops(root, "q") if "raw" in x] == ["/w=="] * 3
    drops.forget_drops(root, "q")
    assert drops.with_drops(root) == []


def test_drops_that_lie_where_older_versions_put_them(store: ObjectTopicStore) -> None:
    """Their names had `=` for `~`. A batch that is done again is not there twice."""
    name, line = f"q-1~{0:020d}.jsonl", b'{"reason":"late","key":null,"value":null,"message":null}\n'
    head = b'{"crc":"%08x"}\n' % zlib.crc32(line, zlib.crc32(name.encode()))
    lies = f"drops/q/shown/{name.replace('~', '=')}"
    store.root.write(lies, head + line)
    store.root.write("drops/q/staged/q-1=00000000000000000000=000000=abcdef01.jsonl", line)
    assert drops.with_drops(store.root) == ["q"] and drops.batches(store.root, "q", "q-1") == {0}
    assert [x["reason"] for x in drops.read_drops(store.root, "q")] == ["late"]
    drops.clean_drops(store.root, "q", 0)
    assert [name for name, _ in store.root.list("drops")] == [lies]
    staged = drops.stage_drops(store.root, "q", 0, 0, pl.DataFrame({"reason": ["late"]}), run="q-1")
    drops.publish_drops(store.root, "q", 0, [staged] if staged else [], run="q-1")
    assert len(drops.read_drops(store.root, "q")) == 1
    store.root.write(lies, head + line.replace(b"late", b"lite"))
    store.root.delete(f"drops/q/{name}")
    with pytest.raises(BraidError, match="is not what its checksum says"):
        drops.read_drops(store.root, "q")


def test_names(store: ObjectTopicStore) -> None:
    names: Sequence[str] = ["a", "A", "x" * 200, "-.-", "_", "..."]
    for name in names:
        store.create(name)
        store.append(name, [record(1)])
        store.append(name, [record(2)], "q" * 180)
        assert clean_staging(store.topic(name), "q" * 180) == 0 and again(store).read(name, 0, 0, 9).height == 2
    assert store.names() == sorted(names)
    assert store.sizes() == dict.fromkeys(sorted(names), 1)
