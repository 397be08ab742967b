"""`metrics.ring`: what was written is read, whatever was torn or spoilt; an hour, 10 MB; no fault ends a run."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.errors import BraidError
from braid.stage import ring
from braid.stage.ring import FOLDER, Ring, read
from braid.store import opened
from braid.store.folder import FolderStore


def document(n: int, more: str = "") -> dict[str, Any]:
    stages = [{"stage": 0, "rows_in": n * 7, "by": "L.K"}]
    return {"query": "Q", "batch": n, "at": 1000 + n, "stages": stages, "m": more}


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def silent(text: str) -> None:
    raise AssertionError(text)


def written(folder: Path, count: int, first: int = 0) -> list[dict[str, Any]]:
    made, one = [document(first + n) for n in range(count)], Ring(opened(folder), silent)
    for x in made:
        one.add(x)
    one.rest()
    return made


def segment(folder: Path) -> Path:
    (found,) = (folder / FOLDER).iterdir()
    return found


def test_what_was_written_is_read(tmp_path: Path) -> None:
    made = written(tmp_path, 100)
    found = read(opened(tmp_path))
    assert found.documents == made and not found.spoilt
    assert segment(tmp_path).stat().st_size < 100 * 150


def test_no_ring(tmp_path: Path) -> None:
    assert read(opened(tmp_path)) == ring.Found()


def test_two_runs_after_each_other(tmp_path: Path) -> None:
    made = written(tmp_path, 5) + written(tmp_path, 5, 5)
    assert read(opened(tmp_path)).documents == made
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_spoilt_bytes_are_told_and_cost_what_they_hit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """At most the record that was hit, with those packed by it, is lost; what is read was written."""
    folder = tmp_path_factory.mktemp("ring")
    made, path = written(folder, 70), segment(folder)
    there = bytearray(path.read_bytes())
    at, bit = data.draw(st.integers(0, len(there) - 1)), data.draw(st.integers(1, 255))
    there[at] ^= bit
    path.write_bytes(there)
    found = read(opened(folder))
    assert len(found.spoilt) == 1 and str(path) in found.spoilt[0]
    lost = [x for x in made if x not in found.documents]
    assert all(x in made for x in found.documents) and 1 <= len(lost) <= 32
    assert [x for x in made if x not in lost] == found.documents


def test_a_kill_in_the_middle_of_a_write(tmp_path: Path) -> None:
    """Wherever the last record ends; and the next run begins a segment behind it."""
    made, path = written(tmp_path, 4), segment(tmp_path)
    whole = path.read_bytes()
    begins = whole.rindex(b"BRr1")
    for end in range(begins + 1, len(whole)):
        path.write_bytes(whole[:end])
        found = read(opened(tmp_path))
        assert found.documents == made[:3] and len(found.spoilt) == 1
    more = written(tmp_path, 2, 9)
    assert read(opened(tmp_path)).documents == made[:3] + more


def test_bytes_that_somebody_put_in_or_took_out(tmp_path: Path) -> None:
    made, path = written(tmp_path, 6), segment(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(b"x" * 50 + whole + b"BRr1")
    found = read(opened(tmp_path))
    assert found.documents == made and "2 stretches of it are" in found.spoilt[0]
    path.write_bytes(whole[20:])  # the first, by which all others are packed
    assert read(opened(tmp_path)).documents == []
    path.rename(path.with_name(f"{int(path.name) + 1:016d}"))  # the checksum has its name
    assert read(opened(tmp_path)).documents == []


def test_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    one = Ring(opened(tmp_path), silent, clock)
    for n in range(200):
        one.add(document(n))
        clock.now += 60
    found = [x["batch"] for x in read(opened(tmp_path)).documents]
    assert found[-1] == 199 and 60 <= len(found) <= 82


def test_the_last_hour_of_a_run_that_died_outlives_the_next_start(tmp_path: Path) -> None:
    clock = Clock()
    Ring(opened(tmp_path), silent, clock).add(document(1))
    clock.now += 86_400
    one = Ring(opened(tmp_path), silent, clock)
    for n in range(2, 50):
        one.add(document(n))
        clock.now += 60
    assert read(opened(tmp_path)).documents[0]["batch"] == 1
    for n in range(50, 100):
        one.add(document(n))
        clock.now += 60
    assert read(opened(tmp_path)).documents[0]["batch"] != 1


def test_ten_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "MOST", 200_000)
    monkeypatch.setattr(ring, "SEGMENT_SIZE", 20_000)
    one, clock = Ring(opened(tmp_path), silent), 0
    for n in range(300):
        one.add(document(n, os.urandom(1000).hex()))
        clock = max(clock, sum(p.stat().st_size for p in (tmp_path / FOLDER).iterdir()))
    assert 150_000 < clock <= 200_000
    found = [x["batch"] for x in read(opened(tmp_path)).documents]
    assert found == list(range(found[0], 300))


def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    clock = Clock()
    one = Ring(opened(tmp_path), silent, clock)
    for n in range(6):
        one.add(document(n))
        clock.now -= 3 if n != 2 else 90_000
    assert [x["batch"] for x in read(opened(tmp_path)).documents] == list(range(6))


def test_a_full_disk_is_told_once_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(), list[str]()
    one = Ring(opened(tmp_path), said.append, clock)
    one.add(document(1))
    written_, full = FolderStore.append, [True]

    def append(self: FolderStore, name: str, data: bytes, fsync: bool = False) -> bool:
        if full[0]:
            written_(self, name, data[:9])
            raise OSError(errno.ENOSPC, "No space left on device")
        return written_(self, name, data, fsync)

    monkeypatch.setattr(FolderStore, "append", append)
    for n in (2, 3):
        one.add(document(n))
        clock.now += 61
    full[0] = False
    one.add(document(4))
    assert said == [f"{tmp_path}/{FOLDER} is not written: No space left on device; the query goes on"]
    found = read(opened(tmp_path))
    assert [x["batch"] for x in found.documents] == [1, 4] and found.spoilt


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    said = list[str]()
    Ring(opened(tmp_path), said.append).add(document(1))
    assert len(said) == 1 and "Permission denied" in said[0]


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("mine")
    said = list[str]()
    one = Ring(opened(tmp_path), said.append)
    one.add(document(1))
    one.rest()
    assert len(said) == 1 and "is not written" in said[0]
    assert (tmp_path / FOLDER).read_text() == "mine" and read(opened(tmp_path)).documents == []


def test_a_killed_process(tmp_path: Path) -> None:
    """SIGKILL while it writes as fast as it can."""
    program = (
        "import sys; from braid.store import opened; from braid.stage.ring import Ring\n"
        "one, n = Ring(opened(sys.argv[1]), print), 0\n"
        "while True: one.add({'batch': n, 'more': 'x' * 3000}); n += 1; n == 50 and print('going', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
    found = read(opened(tmp_path))
    assert [x["batch"] for x in found.documents] == list(range(len(found.documents))) and len(found.documents) >= 50


def test_how_a_query_ended_is_told_once_and_not_in_a_checkpoint_of_another_driver(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from braid.spark.history import History

    job: Any = SimpleNamespace(name="Q", replay=None)
    gone = BraidError("the query Q was reset or removed while this run was at work")
    History(job, "", opened(tmp_path / "Q"), silent, lambda: gone).end("it was lost", 0)
    assert not (tmp_path / "Q").exists()
    one = History(job, "", opened(tmp_path / "Q"), silent, lambda: None)
    one.end("the disk is full", 1)
    one.end("", 1)
    (found,) = read(opened(tmp_path / "Q")).documents
    assert (found["ended"], found["restarts"], found["error"]["text"]) == ("failed", 1, "the disk is full")
    job.replay = object()
    History(job, "", opened(tmp_path / "R"), silent, lambda: None).end("", 0)
    assert not (tmp_path / "R").exists()
