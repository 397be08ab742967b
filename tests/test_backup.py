"""`braid backup` and `braid verify`: a copy of a store that is in use goes on as a crash at that moment would."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.store import opened
from braid.topics import TopicStore, files
from braid.topics.lock import StoreLock
from cli_help import Said, braid
from moments import check_copy, files_of, in_use, put, rows_of, run

pytestmark = [pytest.mark.spark, pytest.mark.operations]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a query that has finished two batches."""
    root = tmp_path_factory.mktemp("made")
    begin(root)
    for n in range(2):
        put(TopicStore(opened(root / "s")), n)
        run(root, False)
    return root


def begin(root: Path) -> TopicStore:
    store = TopicStore(opened(root / "s"))
    store.create("l", 1)
    store.create("r", 1)
    return store


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """One of its own, whose path no other test knows."""
    shutil.copytree(made, tmp_path / "own")
    return tmp_path / "own"


def verify(root: Path) -> Said:
    return braid("verify", "--store", root / "s")


def test_a_whole_store(store: Path) -> None:
    before = files_of(store)
    said = verify(store)
    assert said.code == 0 and not said.err, said
    *_, query, last = said.out.splitlines()
    assert query == "query O: finished batch 1, keeps 5 rows" and last == f"{store / 's'} is whole"
    assert files_of(store) == before


def first(root: Path, pattern: str) -> Path:
    return sorted(root.rglob(pattern))[0]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda root: first(root / "s/topics/l", "0/*.jsonl").write_bytes(b"{}\n"), "is not the segment that was"),
        (lambda root: first(root / "s/topics/l", "0/*.jsonl").unlink(), "it is missing"),
        (lambda root: first(root / "s/topics/O", ".commits/*2.json").unlink(), "holds no batch behind 0, and batch 1"),
        (lambda root: first(root / "s/topics/l", ".commits/*1.json").unlink(), "commit 1 of the topic 'l' is missing"),
        (lambda root: _flip(first(root, "runs/*/*.arrow")), "a state file is torn"),
        (lambda root: first(root, "runs/*/*.arrow").unlink(), "it is missing"),
        (lambda root: _flip(first(root, "state/1.json")), "it is not what its checksum says"),
        (lambda root: shutil.rmtree(root / "s/topics/r"), "partition 0 of the topic r is not there, and O has read"),
        (lambda root: shutil.rmtree(root / "s/topics/O"), "it holds nothing of this query, and batch 1 was written"),
    ],
)
def test_one_thing_is_wrong(store: Path, harm: Callable[[Path], object], said: str) -> None:
    harm(store)
    before = files_of(store)
    found = verify(store)
    assert found.code == 1 and said in found.err, found
    assert "wrong in" in found.err and "is whole" not in found.out
    assert files_of(store) == before


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_all_that_is_wrong_is_told(store: Path) -> None:
    _flip(first(store / "s/topics/l", "0/*.jsonl"))
    _flip(first(store, "runs/*/*.arrow"))
    assert "2 things are wrong" in verify(store).err


def test_a_store_in_use_is_not_verified(store: Path) -> None:
    with StoreLock(opened(store / "s")):
        said = verify(store)
    assert said.code == 1 and f"process {os.getpid()} runs queries" in said.err


def backup(root: Path, target: Path) -> Said:
    return braid("backup", target / "s", "--store", root / "s")


def test_a_copy_stands_for_the_store(store: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    said = backup(store, tmp_path / "copy")
    assert said.code == 0 and "is whole" in said.out, said
    assert not [p for p in (store / "s").iterdir() if p.name.startswith(".backup-")]
    of = lambda root: {k.removeprefix(str(root)): v for k, v in files_of(root / "s").items()}  # noqa: E731
    assert of(tmp_path / "copy") == of(store)
    put(TopicStore(opened(tmp_path / "copy/s")), 2)
    put(TopicStore(opened(store / "s")), 2)
    for root in (store, tmp_path / "copy"):
        run(root, False)
    assert rows_of(tmp_path / "copy", False) == rows_of(store, False)
    again = backup(store, tmp_path / "copy")
    assert again.code == 1 and "is there already" in again.err


def test_a_store_that_holds_nothing_yet(tmp_path: Path) -> None:
    with StoreLock(opened(tmp_path / "live/s")):
        pass
    (tmp_path / "copy").mkdir()
    said = backup(tmp_path / "live", tmp_path / "copy")
    assert said.code == 0 and "is whole" in said.out, said
    assert not files_of(tmp_path / "copy")


@pytest.mark.parametrize("point", ["linked", "copied"])
def test_a_backup_that_was_killed_leaves_no_copy(store: Path, tmp_path: Path, point: str) -> None:
    class Killed(BaseException):
        pass

    def die(at: str) -> None:
        if at == point:
            raise Killed

    (tmp_path / "copy").mkdir()
    files.crash_hook = die
    try:
        with pytest.raises(Killed):
            backup(store, tmp_path / "copy")
    finally:
        files.crash_hook = None
    assert not (tmp_path / "copy/s").exists()
    assert backup(store, tmp_path / "copy").code == 0


def test_copies_of_a_store_in_use(tmp_path: Path) -> None:
    """Batches come through while copies are taken; each copy goes on to what its own inputs give."""
    root, copies = tmp_path / "live", [tmp_path / f"copy{n}" for n in range(4)]
    with in_use(root) as running:
        seen = set[int]()
        for copy in copies:
            while running.progress().batch in seen:
                time.sleep(0.1)
            seen.add(running.progress().batch)
            copy.mkdir()
            said = backup(root, copy)
            assert said.code == 0 and "is whole" in said.out, said
    for copy in copies:
        check_copy(copy)
        assert verify(copy).code == 0
