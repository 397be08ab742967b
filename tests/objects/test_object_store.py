"""The contract of a room: the same tests for a folder, for S3's calls in memory, and for a real S3 server."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")

from braid.errors import BraidError
from braid.store import ObjectStore, opened

MOST = 1 << 20


@pytest.fixture(params=["folder", "memory", pytest.param("server", marks=pytest.mark.objects)])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    match request.param:
        case "folder":
            return opened(str(tmp_path / "room"))
        case "memory":
            request.getfixturevalue("memory")
            return opened("s3://memory/a/path")
        case _:
            return opened(request.getfixturevalue("place"))


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_what_is_put_is_there(room: ObjectStore, tmp_path: Path) -> None:
    assert room.size("a/b") is None and list(room.list("")) == []
    room.put("a/b", written(tmp_path / "f", b"0123456789"))
    assert room.get("a/b", 10) == b"0123456789" and room.size("a/b") == 10
    assert room.range("a/b", 2, 3) == b"234" and room.range("a/b", 8, 100) == b"89"
    assert room.range("a/b", 10, 1) == b"" and room.range("a/b", 50, 1) == b"" and room.range("a/b", 2, 0) == b""
    room.put("a/b", written(tmp_path / "f", b"new"))
    assert room.get("a/b", 10) == b"new"
    room.put("a/empty", written(tmp_path / "f", b""))
    assert room.get("a/empty", 10) == b"" and room.size("a/empty") == 0


def test_what_is_not_there(room: ObjectStore, tmp_path: Path) -> None:
    room.put("a/b", written(tmp_path / "f", b"1"))
    for name in ("b", "a", "a/b/c", "a/bb"):
        assert room.size(name) is None
        with pytest.raises(FileNotFoundError):
            room.get(name, MOST)
        with pytest.raises(FileNotFoundError):
            room.range(name, 0, 1)
        room.delete(name)
    assert room.size("a/b") == 1


def test_a_name_is_created_once(room: ObjectStore) -> None:
    assert room.create("commits/1", b"one")
    assert not room.create("commits/1", b"two") and not room.create("commits/1", b"one")
    assert room.get("commits/1", MOST) == b"one"
    room.delete("commits/1", "commits/2")
    assert room.size("commits/1") is None and room.create("commits/1", b"two")
    assert room.get("commits/1", MOST) == b"two" and [*room.list("")] == [("commits/1", 3)]


def test_of_sixteen_writers_one_wins(room: ObjectStore) -> None:
    """All write the same bytes, so none can be told by them."""
    with ThreadPoolExecutor(16) as pool:
        for n in range(10):
            won = list(pool.map(lambda _, n=n: room.create(f"c/{n}", b"same" * 2000), range(16)))
            assert won.count(True) == 1
            assert room.get(f"c/{n}", MOST) == b"same" * 2000
    assert len([*room.list("c")]) == 10


def test_a_folder_is_listed(room: ObjectStore, tmp_path: Path) -> None:
    path = written(tmp_path / "f", b"12")
    names = {f"a/{n}" for n in range(230)} | {"a/x/y/z", "b/1", "ab/1", "c"}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: room.put(name, path), names))
    assert {name for name, _ in room.list("")} == names
    assert {name for name, _ in room.list("a")} == {x for x in names if x.startswith("a/")}
    assert [*room.list("a/x")] == [("a/x/y/z", 2)] and [*room.list("none")] == []


def test_more_than_asked_for_is_not_read(room: ObjectStore) -> None:
    room.create("x", b"12345")
    with pytest.raises(BraidError, match="x has 5 bytes"):
        room.get("x", 4)


ODD = ["", "/", "/etc/x", "..", ".", "../x", "a/../b", "a/./b", "a//b", "a/", "a\0b", "a\nb", "a b", "ä", "~scratch/x"]
ODD += ["a\\b", "a%2Fb", "a?b", "a#b", "x" * 201, "a/" * 260 + "a", "\ud800"]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("do", ["create", "get", "range", "size", "delete", "put"])
def test_odd_names_are_refused(tmp_path: Path, name: str, do: str) -> None:
    path = written(tmp_path / "f", b"1")
    calls: dict[str, Callable[[ObjectStore], Any]] = {
        "create": lambda r: r.create(name, b""),
        "put": lambda r: r.put(name, path),
        "get": lambda r: r.get(name, 1),
        "range": lambda r: r.range(name, 0, 1),
        "size": lambda r: r.size(name),
        "delete": lambda r: r.delete(name),
    }
    before = sorted(tmp_path.rglob("*"))
    for place in (str(tmp_path / "room"), "s3://bucket/path"):
        with pytest.raises(BraidError, match="is not a name"):
            calls[do](opened(place))
    assert sorted(tmp_path.rglob("*")) == before


def test_names_that_every_room_takes(room: ObjectStore, tmp_path: Path) -> None:
    path = written(tmp_path / "f", b"1")
    names = {".commits/00001.json", "a.b-c_d=e", "x" * 200, "/".join(["y" * 99] * 5), "...", "a/.b/..c"}
    for name in names:
        room.put(name, path)
    assert {name for name, _ in room.list("")} == names


def test_a_large_thing(room: ObjectStore, tmp_path: Path) -> None:
    """Larger than a part; its pieces are where they were."""
    path, size = tmp_path / "large", (20 << 20) + 17
    block = os.urandom(1 << 20)
    with path.open("wb") as f:
        for n in range(21):
            f.write(bytes([n]) + block[1:])
        f.truncate(size)
    room.put("large", str(path))
    assert room.size("large") == size
    with path.open("rb") as f:
        for start, length in ((0, 5), ((8 << 20) - 3, 6), ((16 << 20) - 1, 2 << 20), (size - 2, 50)):
            f.seek(start)
            assert room.range("large", start, length) == f.read(length)


def _putting(room: ObjectStore, path: str, began: Any) -> None:
    began.set()
    while True:
        room.put("torn", path)


def test_a_writer_is_killed(room: ObjectStore, tmp_path: Path) -> None:
    """While it writes, and at whatever moment: the old bytes are there, or the new ones, all of them."""
    old, new = b"a" * 3_000_000, b"b" * 2_000_000
    room.put("torn", written(tmp_path / "old", old))
    path = written(tmp_path / "new", new)
    spawning = multiprocessing.get_context("spawn")  # a fork of this process could use no object store
    for n in range(2):
        began = spawning.Event()
        writer = spawning.Process(target=_putting, args=(room, path, began))
        writer.start()
        assert began.wait(60)
        until = time.monotonic() + 0.1 + 0.4 * n
        while time.monotonic() < until:
            assert room.get("torn", 1 << 22) in (old, new)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        assert room.get("torn", 1 << 22) in (old, new)
    assert [name for name, _ in room.list("")] == ["torn"]


def test_a_room_can_be_pickled(room: ObjectStore) -> None:
    room.create("x", b"1")
    copy = pickle.loads(pickle.dumps(room))
    assert copy.get("x", MOST) == b"1" and copy.url == room.url


def test_a_link_in_a_folder_is_not_followed(tmp_path: Path) -> None:
    room = opened(str(tmp_path / "room"))
    room.create("a", b"1")
    (tmp_path / "room/b").symlink_to(tmp_path / "room/a")
    os.mkfifo(tmp_path / "room/pipe")
    for name in ("b", "pipe"):
        with pytest.raises(BraidError, match="not a plain file"):
            room.get(name, MOST)
    assert [*room.list("")] == [("a", 1)]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://", "write s3://BUCKET/PATH"),
        ("s3://b", "write s3://BUCKET/PATH"),
        ("s3://KEY:SECRET@bucket/x", "write s3://BUCKET/PATH"),
        ("az://c0ntainer/x?sig=SECRET", "write az://CONTAINER/PATH"),
        ("gs://bucket/../x", "write gs://BUCKET/PATH"),
        ("s3a://bucket/x", "write s3://…"),
        ("ftp://bucket/x", "there are s3://, gs://, az://, file://"),
        ("file://x/y", "three slashes"),
    ],
)
def test_other_places_are_refused(place: str, said: str) -> None:
    with pytest.raises(BraidError) as refused:
        opened(place)
    assert said in str(refused.value) and "SECRET" not in str(refused.value)


def test_places() -> None:
    assert opened("s3://bucket").url == "s3://bucket" and opened("gs://bucket/a/b=1/").url == "gs://bucket/a/b=1"
    assert opened("file:///a%20b").url == "/a b" and opened("/x").url == "/x"
