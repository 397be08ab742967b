"""Archives for workers: what is in them, that they are the same again, and what is told of workers that lack it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

pytest.importorskip("pyspark")

from braid.errors import BraidError
from braid.spark import executors, packing, worker_env
from braid.spark.executors import unfit
from braid.spark.unpacking import NAMED
from braid.spark.worker_env import Lacking
from braid.spark.workers import unreachable


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with both archives, which are made once; libraries are but two small ones."""
    folder = tmp_path_factory.mktemp("packs")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "own_folder", lambda name: str(folder))
        patched.setattr(packing, "_libraries", lambda: (["click", "protobuf"], "abcdef"))
        packing.archives()
        yield folder


def test_libraries_are_those_that_braid_needs() -> None:
    names, _ = packing._libraries()
    assert {"polars", "polars-runtime-32", "pandas", "numpy", "python-dateutil", "confluent-kafka"} <= set(names)
    assert "httpx2" in names or "httpx" in names  # of confluent-kafka's registry client, an extra
    assert not {"pyspark", "py4j", "pytest", "ruff", "mypy", "sphinx", "braid-sql"} & set(names)


def test_an_archive_is_of_the_same_bytes_again(tmp_path: Path) -> None:
    files = list(packing._own())[:20]
    for name in "ab":
        packing._write(str(tmp_path / name), files)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]  # nothing else is left


def test_what_is_there_is_not_made_again(packs: Path) -> None:
    before = {path.name: path.stat().st_ino for path in packs.glob("*.zip")}
    assert sorted(os.path.basename(a.file) for a in packing.archives()) == sorted(before) and len(before) == 2
    assert {path.name: path.stat().st_ino for path in packs.glob("*.zip")} == before


def test_what_lies_in_a_pack_runs(packs: Path, tmp_path: Path) -> None:
    """By a Python that has nothing else: Braid and its libraries are found, compiled, and it is the same Braid."""
    for a in packing.archives():
        with zipfile.ZipFile(a.file) as z:
            z.extractall(tmp_path / "w" / a.folder)
    code = (
        "import braid.spark.packing as p, click, google.protobuf.message as m; "
        "print(p.digest(), p.__file__, m.__cached__, p.version())"
    )
    said = subprocess.run(
        [os.path.realpath(sys.executable), "-S", "-c", code],
        cwd=tmp_path / "w",
        env={"PYTHONPATH": packing.PATH},
        capture_output=True,
        text=True,
        check=True,
    )
    digest, file, cached, version = said.stdout.split()
    assert digest == packing.digest() and version == packing.version()
    assert file == str(tmp_path / "w" / packing.BRAID / "braid" / "spark" / "packing.py")
    assert Path(cached).is_file()


def test_old_packs_go_but_not_those_that_a_run_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "own_folder", lambda name: str(tmp_path))
    monkeypatch.setattr(packing, "_libraries", lambda: (["click"], "abcdef"))
    names = [f"braid-0.1-{n}-python3.11.zip" for n in range(4)]
    for n, name in enumerate(names):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (n, n))
    (tmp_path / "~left").mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys; from braid.spark.holding import hold; "
         f"print(hold({str(tmp_path / names[0])!r}), flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        os.utime(tmp_path / names[0], (0, 0))
        mine = sorted(os.path.basename(a.file) for a in packing.archives())
        left = sorted(n for n in os.listdir(tmp_path) if not n.startswith("."))
        assert left == sorted([names[0], names[3], *mine])
        assert other.stdin is not None
        other.stdin.close()


def test_a_copy_is_the_users(packs: Path, tmp_path: Path) -> None:
    lines = list(packing.told(packing.copied(str(tmp_path / "out"))))
    assert len(os.listdir(tmp_path / "out")) == 2
    assert lines[-1].startswith(f"spark-submit --conf spark.archives={tmp_path}/out/braid-")
    assert lines[-1].endswith("#__braid_libraries__ --conf spark.executorEnv.PYTHONPATH=__braid__:__braid_libraries__")


@pytest.mark.parametrize(
    ("error", "what", "told"),
    [
        ('Cannot run program "/x/python": error=2', "python", "the worker w has no Python /x/python"),
        ("ModuleNotFoundError: No module named 'braid.spark'", "braid", "does not have Braid"),
        ("ModuleNotFoundError: No module named 'polars'", "braid", "does not have the module polars, which Braid"),
        (f"ImportError: {worker_env.OTHER}", "braid", "does not have the Braid of this machine"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            None,
            "the worker w has Python 3.9, and this machine 3.11",
        ),
    ],
)
def test_what_a_worker_lacks_is_known_by_how_a_task_failed(error: str, what: str | None, told: str) -> None:
    found = unfit("w", error)
    assert isinstance(found, BraidError) and told in str(found)
    assert (found.what if isinstance(found, Lacking) else None) == what


def test_a_worker_that_was_only_busy_lacks_nothing() -> None:
    assert unfit("w", "ExecutorLostFailure (executor 1 exited)") is None


def test_a_master_that_does_not_answer() -> None:
    assert unreachable("spark://127.0.0.1:9,127.0.0.1:10") == "Connection refused"
    assert unreachable("yarn") is None


class Context:
    """What of a session equipping changes."""

    def __init__(self, python: str, daemon: str | None = None) -> None:
        self.applicationId, self.pythonExec = f"app-{uuid4().hex}", python
        self.conf = {"spark.python.daemon.module": daemon}
        self.environment: dict[str, str] = {"PYTHONPATH": "own"}
        self.sent: list[str] = []

    def addArchive(self, words: str) -> None:
        self.sent.append(words)

    def addFile(self, file: str) -> None:
        self.sent.append(file)

    def getConf(self) -> dict[str, str | None]:
        return self.conf


def test_our_own_daemon_unpacks_libraries_once_a_machine(packs: Path) -> None:
    context = Context("python3", worker_env.DAEMON)
    worker_env.equipped(context, Lacking("braid", "no braid", "do"), lambda text: None)
    braid, libraries = context.sent
    assert braid.endswith(f"#{packing.BRAID}") and "#" not in libraries
    assert context.environment["PYTHONPATH"] == "__braid__:own"
    assert context.environment[NAMED] == os.path.basename(libraries)


def test_each_is_done_once(packs: Path) -> None:
    context, notes = Context("python3"), list[str]()
    lacking = Lacking("braid", "no braid", "do")
    worker_env.equipped(context, lacking, notes.append)
    assert [x.partition("#")[2] for x in context.sent] == [packing.BRAID, packing.LIBRARIES]
    assert context.environment["PYTHONPATH"] == "__braid__:__braid_libraries__:own"
    assert len(notes) == 2
    with pytest.raises(Lacking, match="no braid"):
        worker_env.equipped(context, lacking, notes.append)


def test_a_python_that_the_user_named_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking, context = Lacking("python", "no python", "do"), Context("/opt/python")
    with pytest.raises(Lacking):
        worker_env.equipped(context, lacking, print)
    assert context.pythonExec == "/opt/python"
    monkeypatch.setenv("PATH", "/bin")
    worker_env.named_here()
    context = Context(sys.executable)
    worker_env.equipped(context, lacking, print)
    assert context.pythonExec == packing.PYTHON


def test_executors_are_waited_for_as_long_as_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """doctor says within how many seconds none came."""
    monkeypatch.setattr(executors, "there", lambda _: {})
    context = SimpleNamespace(master="spark://h:1", getConf=lambda: {})
    began, told = time.monotonic(), list[str]()
    with pytest.raises(BraidError, match="no executor of spark://h:1 has come within 1 s"):
        executors.await_all(context, told.append, 1.0)
    assert 1.0 <= time.monotonic() - began < 60.0 and told == []
