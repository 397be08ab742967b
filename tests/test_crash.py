"""`braid run` interrupted and killed: started again, the result is that of a run that nobody disturbed.

Ctrl-C, then `kill -9` of everything, on the demo's flights and weather, in batches of a few thousand rows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from importlib.resources import files
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from braid.topics import TopicStore  # noqa: E402
from cli_help import NOISE, QUICK, ended, launch, on_shared_spark  # noqa: E402

DATA = Path(str(files("braid.demo"))) / "data"
SQL = """
CREATE STREAM flights (
  tailnum VARCHAR KEY, carrier VARCHAR, flight INT, origin VARCHAR, departed BIGINT
) WITH (kafka_topic = 'flights', value_format = 'JSON', partitions = 1, timestamp = 'departed');
CREATE STREAM weather (origin VARCHAR KEY, hour BIGINT, temp DOUBLE)
  WITH (kafka_topic = 'weather', value_format = 'JSON', partitions = 1, timestamp = 'hour');
CREATE STREAM o WITH (partitions = 2) AS
  SELECT f.origin AS origin, f.carrier AS carrier, f.flight AS flight, w.hour AS report, w.temp AS temp
  FROM flights f LEFT JOIN weather w WITHIN (1 HOUR, 0 SECONDS) GRACE PERIOD 10 MINUTES ON f.origin = w.origin;
"""
FILES = [word for n in ("flights", "weather") for word in ("--source", f"{n}={DATA / n}.csv.gz")]
ROWS = 4000  # a batch; about seven of them


def _words(store: str, *more: object) -> list[object]:
    return ["run", "q.sql", "--store", store, "--until-idle", *FILES, *QUICK, *more]


def _committed(store: Path) -> int:
    return len(list(store.glob("checkpoints/O/spark/commits/[0-9]*")))


def _started(folder: Path, batches: int) -> subprocess.Popen[str]:
    """A run that has committed so many batches and is at work on the next."""
    process = launch(*_words("s", "--batch-rows", ROWS), cwd=folder)
    deadline = time.monotonic() + 500
    while process.poll() is None and _committed(folder / "s") < batches and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    time.sleep(0.1)
    return process


def _lines(store: Path) -> list[list[bytes]]:
    """The records of each partition, byte for byte."""
    topic = TopicStore(store)
    return [topic.read("O", p, 0, end)["_line"].cast(str).to_list() for p, end in enumerate(topic.end_offsets("O"))]


def test_interrupted_and_killed(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)

    process = _started(tmp_path, 1)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to all of the group
    said = ended(process)
    assert said.code == 130 and "stopped after" in said.err and "goes on from here" in said.err
    after = _committed(tmp_path / "s")
    assert after < 7

    process = _started(tmp_path, after + 2)
    os.killpg(process.pid, signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == -signal.SIGKILL and not any(n in out + err for n in NOISE)
    assert f"O goes on after batch {after - 1}" in err
    assert "O" in TopicStore(tmp_path / "s").names()
    assert 0 < sum(TopicStore(tmp_path / "s").end_offsets("O")) < 27_000

    done = on_shared_spark(*_words("s", "--batch-rows", ROWS), cwd=tmp_path)
    assert done.code == 0, done.err
    whole = on_shared_spark(*_words("whole"), cwd=tmp_path)
    assert whole.code == 0, whole.err
    assert _lines(tmp_path / "s") == _lines(tmp_path / "whole")
    assert _committed(tmp_path / "s") >= 6 and _committed(tmp_path / "whole") == 1
