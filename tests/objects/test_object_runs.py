"""Queries from topics of an object store into topics there: what comes out is what comes out in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")
pytest.importorskip("pyspark")

from braid.errors import BraidError
from braid.topics.interface import open_topics
from cli_help import QUICK, braid, ended, launch, records, spawned

pytestmark = [pytest.mark.spark, pytest.mark.objects]

SQL = """
CREATE STREAM orders (k INT KEY, item INT, n INT) WITH (kafka_topic='orders', value_format='JSON', partitions=3);
CREATE TABLE items (i INT PRIMARY KEY, name VARCHAR) WITH (kafka_topic='items', value_format='JSON', partitions=3);
INSERT INTO items (i, name, ROWTIME) VALUES (100, 'none', 5);
CREATE STREAM named AS
    SELECT item, k, n, name FROM orders JOIN items ON item = i PARTITION BY item EMIT CHANGES;
CREATE TABLE counted AS SELECT name, COUNT(*) AS c, SUM(n) AS s FROM named GROUP BY name EMIT CHANGES;
"""


def filled(root: str) -> None:
    store = open_topics(root)
    for name, partitions in (("orders", 3), ("items", 3)):
        store.create(name, partitions)
    items = [{"key": i, "value": {"NAME": f"item {i}"}, "timestamp": i, "partition": i % 3} for i in range(20)]
    store.append("items", items)
    orders: list[dict[str, Any]] = [
        {"key": k, "value": {"ITEM": k % 20, "N": k}, "timestamp": 1000 + k, "partition": k % 3} for k in range(900)
    ]
    orders[77]["value"] = orders[500]["value"] = "not an object"
    for at in range(0, 900, 90):
        store.append("orders", orders[at : at + 90])


def told(root: object) -> list[Any]:
    """What is in the results, and what was dropped; of the rows of a partition in their order."""
    dropped = braid("drops", "named", "--store", root, "--format", "jsonl").out.splitlines()
    return [records("NAMED", str(root)), records("COUNTED", str(root)), sorted(map(json.loads, dropped), key=str)]


def test_a_run_that_is_killed_goes_on(place: str, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    options = ("--until-idle", "--batch-rows", 90, "--tasks", 2, *QUICK)
    filled(str(tmp_path / "folder"))
    done = spawned("run", "q.sql", "--store", "folder", *options, cwd=tmp_path)
    assert done.code == 0, done
    filled(place)
    there = ("run", "q.sql", "--store", place, *options)
    killed = launch(*there, cwd=tmp_path)
    deadline = time.monotonic() + 150
    store = open_topics(place)
    while time.monotonic() < deadline and killed.poll() is None:
        with contextlib.suppress(BraidError):
            if sum(store.end_offsets("NAMED")) > 100:
                break
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert 100 < sum(store.end_offsets("NAMED")) < 898
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "older")
    again = ended(launch(*there, cwd=tmp_path))
    assert again.code == 0 and "goes on after batch" in again.err, again
    want, found = told(tmp_path / "folder"), told(place)
    assert len(want[0]) == 898 and len(want[2]) == 2
    assert found[0] == want[0]
    assert found[1] == want[1]
    assert found[2] == want[2]
    assert not list(tmp_path.glob("s3*")) and not (tmp_path / "checkpoints").exists()

    for checkpoint in ("older", "another"):  # a driver that goes on from an older copy, and one without its checkpoint
        other = spawned(*there[:4], "--checkpoint", checkpoint, *options, cwd=tmp_path)
        assert other.code == 1 and "NAMED" in other.err and "starting Spark" not in other.err, other
    assert told(place) == found
