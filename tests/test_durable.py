"""`--durable`: what a batch needs is forced to disk before anybody can see it; and a torn word that one is done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext

import attempts
from braid.store import opened
from braid.topics import TopicStore, files
from moments import put, rows_of, run, start


class Disk:
    """What would be there after a loss of power: files as they were when forced, names as their folders were."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.forced: dict[int, int] = {}  # sizes by inode
        self.named: dict[str, set[str]] = {}  # by folder
        patch.setattr(os, "fsync", self._fsync)

    def _fsync(self, fd: int) -> None:
        found, path = os.fstat(fd), os.readlink(f"/proc/self/fd/{fd}")
        self.forced[found.st_ino] = found.st_size
        if os.path.isdir(path):
            self.named[path] = {*os.listdir(path)}

    def lacks(self, paths: Iterable[Path]) -> list[str]:
        """Those of these files that would be torn, or have no name."""
        return [
            str(p)
            for p in paths
            if self.forced.get(p.stat().st_ino) != p.stat().st_size or p.name not in self.named.get(str(p.parent), ())
        ]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def found(root: Path, *patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        some = [p for p in root.glob(pattern) if p.is_file()]
        assert some, pattern
        yield from some


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("name", ["CHAINED", "FOREIGN"])
def test_what_tasks_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, name: str, durable: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TaskContext, "_taskContext", None)  # and so it is again for the tests that come after
    assert [*attempts.main(name, 3, durable)]
    written = list(found(tmp_path / "s", "checkpoints/*/runs/*/*.arrow", f"topics/{name}/?/*.jsonl"))
    commits = list(found(tmp_path / "s", f"topics/{name}/.commits/*.json"))
    assert bool(disk.lacks(written)) != durable and bool(disk.lacks(commits)) != durable


@pytest.mark.spark
@pytest.mark.parametrize("to_files", [False, True])
def test_what_the_driver_writes(tmp_path: Path, disk: Disk, to_files: bool) -> None:
    root = tmp_path / "live"
    store = TopicStore(opened(root / "s"))
    store.create("l", 1)
    store.create("r", 1)
    lacking: list[str] = []

    def look(at: str) -> None:
        """When a batch can be seen its state is there, and what it reads."""
        if at in ("committed", "results committed") and checkpoint.exists():
            lacking.extend(disk.lacks(found(checkpoint, "state/*.json", "braid.json")))

    checkpoint = root / "s" / "checkpoints" / "O"
    for n in range(3):
        put(store, n)
        files.crash_hook = look
        try:
            start(root, to_files, {"availableNow": True}, durable=True).await_termination()
        finally:
            files.crash_hook = None
    assert not lacking
    commits = found(root, "out.jsonl/.commits/*.json") if to_files else found(root, "s/topics/O/.commits/*.json")
    assert not disk.lacks(commits)


@pytest.mark.spark
@pytest.mark.parametrize("torn", [b"", b"0\n"])
def test_a_torn_word_that_a_batch_is_done(tmp_path: Path, torn: bytes) -> None:
    """It is done again, and found done."""
    store = TopicStore(opened(tmp_path / "live" / "s"))
    store.create("l", 1)
    store.create("r", 1)
    for n in range(2):
        put(store, n)
        run(tmp_path / "live", False)
    before = rows_of(tmp_path / "live", False)
    commit = tmp_path / "live/s/checkpoints/O/state/published"
    commit.write_bytes(torn)
    run(tmp_path / "live", False)
    assert rows_of(tmp_path / "live", False) == before and commit.read_bytes() != torn
    put(store, 2)
    run(tmp_path / "live", False)
    assert rows_of(tmp_path / "live", False) > before
