"""`braid backup` and `braid restore` by way of a room: a folder, S3's calls in memory, a real S3 server."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from braid.face import backups
from braid.store import objects, opened
from braid.topics import TopicStore, files
from cli_help import Said, braid, ended, launch
from moments import files_of
from objects import faulty
from objects.faulty import Faulty
from sums import loaded, with_sum


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Topics, one of which has partitions without records."""
    made = TopicStore(opened(tmp_path / "s"))
    made.create("l", 3)
    more(tmp_path / "s", 0)
    return tmp_path / "s"


def more(store: Path, n: int) -> None:
    made = TopicStore(opened(store))
    if not made.exists("r"):
        made.create("r", 1)
    made.append("r", [{"key": n, "value": {"V": f"row {n} {x}"}, "timestamp": n} for x in range(100)])


@pytest.fixture(params=["folder", "memory", pytest.param("server", marks=pytest.mark.objects)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "folder":
            return f"file://{tmp_path}/room"
        case "memory":
            request.getfixturevalue("memory")
            return "s3://memory/p"
        case _:
            return str(request.getfixturevalue("place"))


def backup(store: Path, url: object) -> str:
    """The name of a new backup."""
    said = braid("backup", url, "--store", store)
    assert said.code == 0 and said.out.endswith(f"{url} is whole\n") and not said.err, said
    (name,) = [x.removeprefix("backup ") for x in said.out.splitlines() if x.startswith("backup ")]
    assert not [p for p in store.iterdir() if p.name.startswith(".backup-")]
    return name


def same(one: Path, other: Path) -> bool:
    """The same files and folders, of the same bytes."""

    def of(root: Path) -> tuple[dict[str, bytes], set[str]]:
        held = {k.removeprefix(str(root)): v for k, v in files_of(root).items()}
        return held, {str(p.relative_to(root)) for p in root.rglob("*") if p.is_dir()} - {".scratch"}

    return of(one) == of(other)


def test_what_is_restored_is_what_was(store: Path, url: str, tmp_path: Path) -> None:
    first = backup(store, url)
    shutil.copytree(store, tmp_path / "before")
    more(store, 1)
    second = backup(store, url)
    assert first < second and backups.names(opened(url)) == [first, second]
    said = braid("restore", url, tmp_path / "new")
    assert said.code == 0 and f"{tmp_path}/new is whole" in said.out and "topic r: 200 records" in said.out, said
    assert same(tmp_path / "new", store) and not same(tmp_path / "new", tmp_path / "before")
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    said = braid("restore", url, tmp_path / "old", "--at", first)
    assert said.code == 0 and same(tmp_path / "old", tmp_path / "before"), said
    more(tmp_path / "old", 5)
    assert not [p for p in tmp_path.iterdir() if "~" in p.name]


def test_a_second_backup_sends_what_is_new(store: Path, url: str) -> None:
    backup(store, url)
    had = {name for name, _ in opened(url).list("data")}
    said = braid("backup", url, "--store", store)
    assert ": 0 of " in said.out and {name for name, _ in opened(url).list("data")} == had
    more(store, 1)
    said = braid("backup", url, "--store", store)
    assert ": 2 of " in said.out, said  # a segment and its commit
    assert len({name for name, _ in opened(url).list("data")} - had) == 2


@pytest.mark.parametrize("point", ["linked", "sent"])
def test_a_backup_that_is_killed_is_none_and_is_begun_again(store: Path, url: str, tmp_path: Path, point: str) -> None:
    class Killed(BaseException):
        pass

    def die(at: str) -> None:
        if at == point:
            raise Killed

    files.crash_hook = die
    try:
        with pytest.raises(Killed):
            braid("backup", url, "--store", store)
    finally:
        files.crash_hook = None
    said = braid("restore", url, tmp_path / "new")
    assert said.code == 1 and "there is no backup at" in said.err
    backup(store, url)
    assert braid("restore", url, tmp_path / "new").code == 0 and same(tmp_path / "new", store)


def test_two_backups_at_once_are_two(store: Path, url: str) -> None:
    """Of two stores, so that no lock keeps them apart: the names come from one create each."""
    others = [shutil.copytree(store, store.parent / f"s{n}") for n in range(4)]
    room, found = opened(url), list[str]()
    backup(store, url)  # all contents are there

    def make(folder: Path) -> None:
        found.append(backups.made(room, backups.contents(str(folder))))

    threads = [threading.Thread(target=make, args=(folder,)) for folder in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*found}) == 4 and len(backups.names(room)) == 5


def test_a_clock_that_goes_back(store: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups.time, "time", lambda: 1_900_000_000.5)
    assert backup(store, url) == "2030-03-17T17-46-40Z"
    monkeypatch.setattr(backups.time, "time", lambda: 1_800_000_000.0)
    assert backup(store, url) == "2030-03-17T17-46-41Z"


def spoiled(url: str, spoil: Callable[[bytes], bytes | None], tmp_path: Path) -> str:
    """A content of the newest backup is changed, or gone; the file that it is of."""
    room = opened(url)
    _, what = backups.read(room, None)
    file = max(what.files, key=lambda f: f.size)
    data = spoil(room.get(file.content, 1 << 20))
    room.delete(file.content)
    if data is not None:
        (tmp_path / "spoiled").write_bytes(data)
        room.put(file.content, str(tmp_path / "spoiled"))
    return file.path


@pytest.mark.parametrize(
    ("spoil", "said", "resent"),
    [
        (lambda data: None, "is missing", True),
        (lambda data: data[:-1], "is torn", True),
        (lambda data: b"", "is torn", True),
        (lambda data: data[:-5] + b"?" + data[-4:], "is torn", False),  # of its size: it is not checked
    ],
)
def test_what_is_missing_or_torn_is_named(
    store: Path, url: str, tmp_path: Path, spoil: Callable[[bytes], bytes | None], said: str, resent: bool
) -> None:
    first = backup(store, url)
    more(store, 1)
    TopicStore(opened(store)).append("l", [{"key": 1, "value": {"V": "x" * 50_000}, "timestamp": 7}])
    backup(store, url)
    path = spoiled(url, spoil, tmp_path)
    found = braid("restore", url, tmp_path / "new")
    assert found.code == 1 and f"{path} {said}" in found.err and "nothing is restored" in found.err, found
    assert f"others are {first}: --at NAME" in found.err
    assert not (tmp_path / "new").exists() and not [p for p in tmp_path.iterdir() if "~" in p.name]
    assert braid("restore", url, tmp_path / "new", "--at", first).code == 0
    if resent:
        backup(store, url)
        assert braid("restore", url, tmp_path / "newer").code == 0 and same(tmp_path / "newer", store)


def refused(*words: object) -> str:
    said: Said = braid(*words)
    assert said.code == 1 and not said.out, said
    return said.err


def test_what_is_refused(store: Path, url: str, tmp_path: Path) -> None:
    assert "there is no backup at" in refused("restore", url, tmp_path / "new")
    assert "there is no store" in refused("backup", url, "--store", tmp_path / "none")
    name = backup(store, url)
    told = refused("restore", url, tmp_path / "new", "--at", "../x")
    assert "there is no backup ../x" in told and name in told
    assert "is there already" in refused("restore", url, store)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: {**x, "format": 2}, "made by a newer version"),
        (lambda x: {**x, "files": [["../x", 1, "0" * 64]]}, "a store has no file of the name '../x'"),
        (lambda x: {**x, "files": [["/etc/x", 1, "0" * 64]]}, "a store has no file of the name '/etc/x'"),
        (lambda x: {**x, "files": [["a\u001b[31m", 1, "0" * 64]]}, "a store has no file of the name"),
        (lambda x: {**x, "folders": ["a/../../x"]}, "a store has no file of the name 'a/../../x'"),
        (lambda x: {**x, "files": [["a", 1, "../../x"]]}, "a checksum is none"),
        (lambda x: {**x, "files": [["a", -1, "0" * 64]]}, "a size is not from 0"),
        (lambda x: {**x, "files": [["a", 1]]}, "cannot be read"),
        (lambda x: {**x, "files": [["a", 0, x["files"][0][2]], ["a/b", 0, x["files"][0][2]]]}, ""),
        (lambda x: [], "it is no object"),
        (lambda x: {}, "it has no 'format'"),
    ],
)
def test_a_document_that_somebody_else_made(
    store: Path, tmp_path: Path, change: Callable[[dict[str, object]], object], said: str
) -> None:
    url = f"file://{tmp_path}/room"
    name = backup(store, url)
    path = tmp_path / "room/backups" / f"{name}.json"
    path.write_bytes(with_sum(change(loaded(path))))
    found = braid("restore", url, tmp_path / "new")
    assert found.code == 1 and said in found.err and not (tmp_path / "new").exists(), found
    assert not (tmp_path.parent / "x").exists() and "\x1b" not in found.err


def test_a_copy_in_a_folder_is_restored(store: Path, tmp_path: Path) -> None:
    assert braid("backup", tmp_path / "copy", "--store", store).code == 0
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    assert braid("restore", tmp_path / "copy", tmp_path / "new").code == 0 and same(tmp_path / "new", store)
    assert "no place of backups" in refused("restore", tmp_path / "copy", tmp_path / "x", "--at", "y")
    assert "there is no store" in refused("restore", tmp_path / "none", tmp_path / "x")
    backup(store, f"file://{tmp_path}/room")
    assert braid("restore", tmp_path / "room", tmp_path / "newer").code == 0 and same(tmp_path / "newer", store)


def test_a_damaged_store_is_told(store: Path, url: str) -> None:
    next((store / "topics/r").rglob("0/*.jsonl")).write_bytes(b"{}\n")
    said = braid("backup", url, "--store", store)
    assert said.code == 1 and f"{store}/topics/r/0/" in said.err and "is not the segment that was" in said.err, said
    assert ".backup-" not in said.err


def test_a_server_that_goes_away(store: Path, memory: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(objects, "PATIENCE", 0.5)
    memory.faults.extend([None, None])
    memory.always = 503
    said = braid("backup", "s3://memory/p", "--store", store)
    assert (
        said.code == 1
        and "the server is overloaded or failing (503 SlowDown)" in said.err
        and said.err.count("error") == 1
    )
    memory.always = None
    for name, seconds in (("PATIENCE", 30), ("START", 30), ("_LONGEST_PAUSE", 0.2)):
        monkeypatch.setattr(objects, name, seconds)
    memory.faults.extend([503, "cut", 429, 500] * 3)
    said = braid("backup", "s3://memory/p", "--store", store)  # on a busy machine it says that it waits
    assert said.code == 0 and said.out.endswith("s3://memory/p is whole\n"), said
    memory.faults.extend([503, "cut", 429, "half", 500] * 3)
    assert braid("restore", "s3://memory/p", tmp_path / "new").code == 0 and same(tmp_path / "new", store)


def test_no_key_is_told_or_kept(store: Path, memory: Faulty, tmp_path: Path) -> None:
    backup(store, "s3://memory/p")
    held = b"".join(data for data, _ in memory.held.values()) + b"".join(files_of(store).values())
    assert faulty.SECRET.encode() not in held and faulty.KEY.encode() not in held
    memory.always, memory.echo = 403, f"{faulty.KEY} {faulty.SECRET} {os.environ['AWS_SECRET_ACCESS_KEY']}"
    for words in (("backup", "s3://memory/p", "--store", store), ("restore", "s3://memory/p", tmp_path / "new")):
        said = braid(*words)
        assert said.code == 1 and faulty.KEY not in said.err + said.out and faulty.SECRET not in said.err + said.out


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_is_ended_while_it_sends(
    store: Path, memory: Faulty, tmp_path: Path, how: signal.Signals
) -> None:
    """And the server is silent: nobody waits for it."""
    memory.faults.extend([None, None, None])
    memory.always = "hang"
    sending = launch("backup", "s3://memory/p", "--store", store, cwd=tmp_path)
    until = time.monotonic() + 60
    while len(memory.asked) < 4:
        assert time.monotonic() < until and sending.poll() is None
        time.sleep(0.02)
    sending.send_signal(how)
    said = ended(sending, 20)
    assert said.code in (130, -signal.SIGKILL) and memory.held, said
    assert (how == signal.SIGINT) == (not [p for p in store.iterdir() if p.name.startswith(".backup-")])
    memory.always = None
    assert "there is no backup at" in refused("restore", "s3://memory/p", tmp_path / "new")
    backup(store, "s3://memory/p")
    assert braid("restore", "s3://memory/p", tmp_path / "new").code == 0 and same(tmp_path / "new", store)
