"""`braid upgrade` while a run goes on: it follows, whatever is killed, and takes over when the run has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from braid.store import opened
from braid.topics import TopicStore
from cli_help import QUICK, launch
from test_upgrade_tables import KSQLDB, begun, put, records, run, sound, stands

pytestmark = [pytest.mark.spark, pytest.mark.operations]

OLD = """CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM l GROUP BY k HAVING COUNT(*) > 2;
CREATE STREAM u AS SELECT k, v FROM l WHERE n > 1;"""
NEW = """CREATE TABLE t AS SELECT k, COUNT(*) AS c, SUM(n) AS s FROM l WHERE n > 1 GROUP BY k;
CREATE STREAM u AS SELECT k, v, n FROM l WHERE n > 0;"""


@pytest.fixture
def processes() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands; those that still run at the end are killed."""
    made = list[subprocess.Popen[str]]()

    def start(root: Path, sql: str, *words: str) -> subprocess.Popen[str]:
        name = f"{words[0]}.sql"
        (root / name).write_text(KSQLDB + sql)
        made.append(launch(words[0], name, "--store", "s", *words[1:], cwd=root))
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(there: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.1)


def heard(process: subprocess.Popen[str], text: str) -> None:
    """Reads what a process says up to a text."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"{text!r} was not said: {process.stderr.read() if process.stderr else ''}")


def batch(root: Path, query: str) -> int:
    path = root / f"s/checkpoints/{query}/state/published"
    return int(path.read_text()) if path.exists() else -1


def test_it_follows_a_run_and_takes_over_when_that_ends(
    tmp_path: Path, processes: Callable[..., subprocess.Popen[str]]
) -> None:
    begun(tmp_path, KSQLDB + OLD)
    (tmp_path / "s/.run.lock").unlink()  # it names the JVM that tests share, which lives on
    at = batch(tmp_path, "T")
    running = processes(tmp_path, OLD, "run", "--quiet", *QUICK)
    put(tmp_path, 3)
    until(lambda: min(batch(tmp_path, "T"), batch(tmp_path, "U")) > at)
    first = processes(tmp_path, NEW, "upgrade")
    heard(first, "what has changed is computed beside it")
    until((tmp_path / "s/checkpoints/T~next/state/published").exists)
    os.killpg(first.pid, signal.SIGKILL)
    at = batch(tmp_path, "T")
    put(tmp_path, 4)
    until(lambda: min(batch(tmp_path, "T"), batch(tmp_path, "U")) > at)
    second = processes(tmp_path, NEW, "upgrade")
    heard(second, "caught up: ")
    refused = run(tmp_path, KSQLDB + NEW, "upgrade")
    assert refused.code == 1 and f"in use by process {second.pid}" in refused.err
    at = max(batch(tmp_path, "T"), batch(tmp_path, "U"))
    put(tmp_path, 5)
    until(lambda: min(batch(tmp_path, "T"), batch(tmp_path, "U")) > at)
    had = records(tmp_path, "U")
    os.killpg(running.pid, signal.SIGKILL)
    heard(second, "T has taken the place of what it was")
    _, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert records(tmp_path, "U") == had
    put(tmp_path, 6)
    assert (said := run(tmp_path, KSQLDB + NEW)).code == 0, said.err
    assert stands(tmp_path) == sound(KSQLDB + NEW, 7)
    seen, store = list[str](), TopicStore(opened(tmp_path / "s"))
    for p, end in enumerate(store.end_offsets("U")):
        found = [json.loads(x)["value"] for x in store.read("U", p, 0, end)["_line"]]
        new = [i for i, x in enumerate(found) if "N" in x]
        assert new == [*range(new[0], len(found))], "behind the first of the new ones there are no old ones"
        seen += [x["V"] for x in found]
    assert len(seen) == len({*seen})
    rows = [json.loads(x)["value"] for p in (0, 1) for x in store.read("l", p, 0, 1000)["_line"]]
    for step in range(7):
        kept = {x["V"] for x in rows if x["V"].startswith(f"l{step}-") and x["N"] > (1 if step < 6 else 0)}
        assert kept == {x for x in seen if x.startswith(f"l{step}-")}
    assert "U goes on" in run(tmp_path, KSQLDB + NEW, "upgrade").out
