"""What `braid why` and `braid why-not` keep in memory: a page, and what is asked for, however long a topic is.

In: a join with a table, over few records and over many, of which most are in one batch. Rule: the peak of the command's
memory over many is that over few, and one page more; pages of any size give the same answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from braid.store import opened
from braid.topics import TopicStore
from braid.why import pages, reading
from cli_help import braid, on_shared_spark

pytestmark = pytest.mark.spark

SQL = """SET 'braid.mode' = 'native';
CREATE STREAM l (k INT KEY, c STRING, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE TABLE t (c STRING PRIMARY KEY, x STRING) WITH (kafka_topic='t', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, l.c, t.x, l.v, r.w FROM l
  JOIN r WITHIN 10 SECONDS GRACE PERIOD 1 SECONDS ON l.k = r.k
  JOIN t ON l.c = t.c WHERE l.k <> 5;"""
BESIDE = 100 << 20  # bytes


def ran(folder: Path, many: int) -> Path:
    """A store that a run has left: every third of r is too late for its window."""
    store = TopicStore(opened(folder / "s"))
    for name, partitions in (("l", 2), ("r", 2), ("t", 1)):
        store.create(name, partitions)
    store.append_lines("t", [json.dumps({"key": f"c{i}", "value": {"X": "x"}, "timestamp": 0}) for i in range(10)], 0)
    for first in range(0, many, 50_000):
        for p in range(2):
            mine = range(first + p, min(first + 50_000, many), 2)
            left = [{"key": i, "value": {"C": f"c{i % 10}", "V": "v" * 200}, "timestamp": i * 1000} for i in mine]
            right = [{"key": i, "value": {"W": "w" * 200}, "timestamp": (i + i % 3 * 9) * 1000} for i in mine]
            store.append_lines("l", [*map(json.dumps, left)], p)
            store.append_lines("r", [*map(json.dumps, right)], p)
    said = on_shared_spark(
        "run", "-e", SQL, "--dialect", "ksqldb", "--store", "s", "--until-idle", "--quiet", cwd=folder
    )
    assert said.code == 0, said.err
    return folder / "s"


def asked(root: Path) -> list[list[str]]:
    since = ["--since", "1970-01-01T00:10:00Z", "--until", "1970-01-01T00:12:00Z", "--event-time"]
    of = [["why-not", "o", "--key", "701"], ["why-not", "o", *since], ["why", "O", "--offset", "400", "-p", "0"]]
    return [[*x, "--json", "--store", str(root)] for x in of]


def peak(words: list[str]) -> int:
    """Of the memory of a command, in bytes."""
    code = (
        "import resource, subprocess, sys\n"
        f"subprocess.run([sys.executable, '-m', 'braid', *{words}], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


@pytest.mark.operations
def test_a_long_topic_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    few, many = (ran(tmp_path / name, count) for name, count in (("few", 2_000), ("many", 200_000)))
    for short, long in zip(asked(few), asked(many), strict=True):
        assert peak(long) < peak(short) + BESIDE, long


@pytest.mark.operations
def test_pages_of_any_size_give_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = ran(tmp_path, 2_000)

    def answers() -> list[Mapping[str, Any]]:
        return [json.loads(braid(*words).out) for words in asked(root)]

    whole = answers()
    for size in (7, 512):
        monkeypatch.setattr(reading, "AT_ONCE", size)
        assert answers() == whole
    assert pages.AT_ONCE > 2_000
    missing = {x["reason"]: x["count"] for x in whole[1]["reasons"]}
    assert missing["outside the window"] > 10 and missing["given"] > 100
