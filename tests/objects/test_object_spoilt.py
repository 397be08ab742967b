"""Each object of a store is what was written, or that is said by name, by `braid verify` and by who reads it next."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("obstore")

import effort
from braid.errors import BraidError
from braid.face.verify import verify
from braid.records.registry import Schema
from braid.store import ObjectStore, opened
from braid.topics import documents, drops, log, object_topics, retention
from braid.topics.object_topic_store import ObjectTopicStore
from braid.topics.registries import InObjects, StoreRegistry, of_store
from braid.topics.retention import Retention
from objects.faulty import Faulty
from spoiling import Spoilt, named, spoils

COMMITS = 10
NEWEST = (f"commits/{COMMITS:020d}.json", "retention/00000000000000000002.json", "registry/00000000000000000002.json")


@pytest.fixture(params=["memory", pytest.param("server", marks=[pytest.mark.objects, pytest.mark.law])])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setattr(log, "FOLD", 4)
    monkeypatch.setattr(object_topics, "BESIDE", False)
    if request.param == "server":
        return opened(request.getfixturevalue("place"))
    _: Faulty = request.getfixturevalue("memory")
    return opened(f"s3://memory/{uuid.uuid4().hex}")


def filled(room: ObjectStore) -> None:
    store = ObjectTopicStore(room)
    for name in ("t", "u"):
        store.create(name, 2)
        for n in range(COMMITS):
            rows = [{"key": k, "value": {"V": f"{name}{n}"}, "timestamp": k, "partition": k % 2} for k in range(3)]
            store.append(name, rows)
    for ms in (10**12, 10**13):
        retention.want(opened(room.url), "t", Retention(ms=ms))
    for name in ("a", "b"):
        of_store(opened(room.url)).register(
            f"{name}-value", Schema("AVRO", f'{{"type":"record","name":"{name}","fields":[]}}')
        )
    frame = pl.DataFrame({"reason": ["late"], "message": ["x"]})
    for batch in range(2):
        staged = drops.stage_drops(opened(room.url), "q", batch, 0, frame)
        assert staged is not None
        drops.publish_drops(opened(room.url), "q", batch, [staged])


def all_of(room: ObjectStore) -> dict[str, bytes]:
    return {name: room.get(name, 1 << 20) for name, _ in room.list("")}


def put_in(room: ObjectStore, name: str, data: bytes | None, folder: Path) -> None:
    if data is None:
        return room.delete(name)
    (folder / "data").write_bytes(data)
    room.put(name, str(folder / "data"))


def rows(room: ObjectStore) -> object:
    """All that users see of it."""
    store, schemas = ObjectTopicStore(room), StoreRegistry(InObjects(room))
    records = {name: [store.read(name, p, 0, 99)["_line"].to_list() for p in range(2)] for name in ("t", "u")}
    known = [schemas.latest(f"{name}-value") for name in ("a", "b")]
    return records, retention.all_of(room), known, drops.read_drops(room, "q")


def refused(look: Callable[[], object]) -> str:
    try:
        found = look()
    except BraidError as e:
        return e.message
    return "; ".join(x.message for x in found if isinstance(x, BraidError)) if isinstance(found, list) else ""


def test_a_spoilt_object_is_named_or_makes_no_difference(
    room: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(room)
    monkeypatch.setenv("BRAID_CACHE", str(tmp_path / "first"))
    sound, files = rows(room), all_of(room)
    assert not refused(lambda: list(verify(opened(room.url))))
    made: list[Spoilt] = list(spoils(files, int(effort.LAW), None if effort.LAW else 3))
    for n, (way, name, data) in enumerate(made):
        if way == "gone" and (name.endswith(NEWEST) or name.startswith("drops/")):
            continue  # nothing behind it tells of it; of drops the query's state does
        monkeypatch.setenv("BRAID_CACHE", str(tmp_path / f"cache{n}"))
        put_in(room, name, data, tmp_path)
        wrong = refused(lambda: list(verify(opened(room.url))))
        assert not wrong or named(name, wrong), (way, name, wrong)
        if not wrong or not refused(lambda: rows(room)):
            assert rows(room) == sound, (way, name, wrong)
        put_in(room, name, files[name], tmp_path)
    assert not refused(lambda: list(verify(opened(room.url)))) and rows(room) == sound


def test_housekeeping_takes_no_topic_whose_name_is_gone_for_a_deleted_one(room: ObjectStore) -> None:
    from braid.face.orphans import sweep

    filled(room)
    ObjectTopicStore(room).delete("u")
    assert [*sweep(opened(room.url))] and not refused(lambda: list(verify(opened(room.url))))
    before = all_of(room)
    room.delete("names/t")
    assert "names/t is missing" in refused(lambda: list(verify(opened(room.url))))
    with pytest.raises(BraidError, match="names/t is missing"):
        list(sweep(opened(room.url)))
    assert all_of(room).keys() == before.keys() - {"names/t"}


def test_a_commit_that_is_gone_hides_none_behind_it(
    room: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(room)
    (gone,) = (name for name in all_of(room) if name.startswith("topics/t/") and f"/{COMMITS - 1:020d}.json" in name)
    room.delete(gone)
    monkeypatch.setenv("BRAID_CACHE", str(tmp_path / "cache"))
    assert f"{COMMITS - 1:020d}.json is missing" in refused(lambda: list(verify(opened(room.url))))
    with pytest.raises(BraidError, match="is missing"):
        documents.document(opened(room.url), "x")
        ObjectTopicStore(room).end_offsets("t")
