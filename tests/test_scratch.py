"""Spark's own checkpoint is scratch: what is laid out, and that nothing of it is needed or left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from braid.errors import BraidError  # noqa: E402
from braid.spark.private import own_folder  # noqa: E402
from braid.spark.scratch import Scratch  # noqa: E402
from braid.stage import batches, state_file  # noqa: E402
from braid.store import opened  # noqa: E402
from braid.topics import TopicStore  # noqa: E402
from moments import QUERY, put, rows_of, start  # noqa: E402


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = TopicStore(opened(tmp_path / "s"))
    store.create("l", 1)
    store.create("r", 1)
    return tmp_path


def folder(root: Path) -> str:
    return str(root / "s" / "checkpoints" / QUERY.name)


def ended(root: Path) -> Any:
    running = start(root, False, {"availableNow": True})
    running.await_termination()
    return running


def test_it_goes_with_the_query_and_is_laid_out_anew(root: Path) -> None:
    """What Spark finds is what it would have left: the offsets of the last two batches, and their commits."""
    for n in range(3):
        put(TopicStore(opened(root / "s")), n)
        running = ended(root)
        assert Path(running.scratch.path, "offsets", str(n)).is_file()
        assert not [*Path(running.scratch.path).rglob("*.crc")], "each is a process more"
        running.stop()
        assert not Path(running.scratch.path).exists()
    last, reads, begun = batches.laid_out(opened(folder(root)))
    assert last == 2 and reads is not None and begun is None
    scratch = Scratch(running.job, opened(folder(root)))
    scratch.lay_out()
    found = sorted(str(p.relative_to(scratch.path)) for p in Path(scratch.path).rglob("*") if p.is_file())
    assert found == ["commits/1", "commits/2", "metadata", "offsets/1", "offsets/2"]
    assert scratch.reads(2) == list(reads) and json.loads(reads[0])["batch"] == 2
    scratch.clear()
    assert not os.path.exists(os.path.join(folder(root), "spark"))


def test_a_batch_that_was_begun_reads_the_same_again(root: Path) -> None:
    """Whatever has come since. One of which nothing is recorded reads what is there now."""
    put(TopicStore(opened(root / "s")), 0)
    put(TopicStore(opened(root / "s")), 1)
    ended(root).stop()
    reads = state_file.reads(opened(folder(root)), 0)
    assert reads is not None
    before = rows_of(root, False)
    state_file.tell_published(opened(folder(root)), -1)  # as if it had been killed just before
    put(TopicStore(opened(root / "s")), 2)
    running = ended(root)
    assert batches.document_of(opened(folder(root)), 1)["batch"] == 1 and rows_of(root, False) > before
    assert state_file.reads(opened(folder(root)), 0) == reads
    running.stop()


def test_temporary_files_that_are_deleted_under_a_run(root: Path) -> None:
    put(TopicStore(opened(root / "s")), 0)
    running = start(root, False)
    running.await_idle()
    shutil.rmtree(running.scratch.path)
    put(TopicStore(opened(root / "s")), 1)
    with contextlib.suppress(BraidError):  # where a batch was under way
        running.await_idle()
    running.stop()
    put(TopicStore(opened(root / "s")), 2)
    ended(root).stop()
    assert sum(rows_of(root, False).values()) == 12


def test_what_killed_processes_left_goes(root: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = Path(own_folder("spark"), f"O-1~{int(dead.stdout)}~x")
    mine = Path(own_folder("spark"), f"O-1~{os.getpid()}~x")
    for path in (left, mine):
        (path / "offsets").mkdir(parents=True)
    put(TopicStore(opened(root / "s")), 0)
    ended(root).stop()
    assert mine.exists() and not left.exists()
    shutil.rmtree(mine)
