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
from braid.store import opened
from braid.topics.interface import open_topics
from braid.topics.store_value import Store
from cli_help import QUICK, Said, braid, ended, launch, on_shared_spark, records, spawned
from crash.harness import round_of
from crash.places import InObjects
from crash.plan import Kill

pytestmark = [pytest.mark.spark, pytest.mark.objects, pytest.mark.timeout(600), pytest.mark.operations]

SQL = """
CREATE STREAM orders (k INT KEY, item INT, n INT) WITH (kafka_topic='orders', value_format='JSON', partitions=3);
CREATE TABLE items (i INT PRIMARY KEY, name VARCHAR) WITH (kafka_topic='items', value_format='JSON', partitions=3);
INSERT INTO items (i, name, ROWTIME) VALUES (100, 'none', 5);
CREATE STREAM named AS
    SELECT item, k, n, name FROM orders JOIN items ON item = i PARTITION BY item EMIT CHANGES;
CREATE TABLE counted AS SELECT name, COUNT(*) AS c, SUM(n) AS s FROM named GROUP BY name EMIT CHANGES;
"""


def filled(root: str) -> None:
    store = open_topics(Store(opened(root)))
    for name, partitions in (("orders", 3), ("items", 3)):
        store.create(name, partitions)
    items = [{"key": i, "value": {"NAME": f"item {i}"}, "timestamp": i, "partition": i % 3} for i in range(20)]
    store.append("items", items)
    orders: list[dict[str, Any]] = [
        {"key": k, "value": {"ITEM": k % 20, "N": k}, "timestamp": 1000 + k, "partition": k % 3} for k in range(600)
    ]
    orders[77]["value"] = orders[500]["value"] = "not an object"
    for at in range(0, 600, 60):
        store.append("orders", orders[at : at + 60])


def in_process(*words: object, cwd: Path) -> Said:
    """Of what is refused before Spark starts."""
    with contextlib.chdir(cwd):
        return braid(*words)


def told(root: object) -> list[Any]:
    """What is in the results, and what was dropped; of the rows of a partition in their order."""
    dropped = braid("drops", "named", "--store", root, "--format", "jsonl").out.splitlines()
    return [records("NAMED", str(root)), records("COUNTED", str(root)), sorted(map(json.loads, dropped), key=str)]


def test_a_run_that_is_killed_goes_on(place: str, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    options = ("--until-idle", "--batch-rows", 60, "--tasks", 2, *QUICK)
    filled(str(tmp_path / "folder"))
    done = on_shared_spark("run", "q.sql", "--store", "folder", *options, cwd=tmp_path)
    assert done.code == 0, done
    filled(place)
    there = ("run", "q.sql", "--store", place, *options)
    killed = launch(*there, cwd=tmp_path)
    deadline = time.monotonic() + 150
    store = open_topics(Store(opened(place)))
    while time.monotonic() < deadline and killed.poll() is None:
        with contextlib.suppress(BraidError):
            if sum(store.end_offsets("NAMED")) > 100:
                break
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert 100 < sum(store.end_offsets("NAMED")) < 598
    room = opened(place)
    for name, _ in list(room.list("checkpoints")):
        assert room.create(name.replace("checkpoints", "older", 1), room.get(name, 1 << 30))
    again = ended(launch(*there, cwd=tmp_path))
    assert again.code == 0 and "goes on after batch" in again.err, again
    want, found = told(tmp_path / "folder"), told(place)
    assert len(want[0]) == 598 and len(want[2]) == 2
    assert found[0] == want[0]
    assert found[1] == want[1]
    assert found[2] == want[2]
    assert not list(tmp_path.glob("s3*")) and not (tmp_path / "checkpoints").exists()

    for checkpoint in (
        f"{place}/older",
        "another",
    ):  # a driver that goes on from an older copy, and one without its checkpoint
        other = in_process(*there[:4], "--checkpoint", checkpoint, *options, cwd=tmp_path)
        assert other.code == 1 and "NAMED" in other.err and "starting Spark" not in other.err, other
    assert told(place) == found


COUNT = """
CREATE STREAM orders (k INT KEY, item INT, n INT) WITH (kafka_topic='orders', value_format='JSON', partitions=3);
CREATE TABLE counted AS SELECT item, COUNT(*) AS c, SUM(n) AS s FROM orders GROUP BY item EMIT CHANGES;
"""


@pytest.mark.law
def test_two_drivers_that_do_not_see_each_other(place: str, tmp_path: Path) -> None:
    """Both go on from one checkpoint, at once, on machines that share only topics: each row is there once."""
    (tmp_path / "q.sql").write_text(COUNT)
    options = ("--until-idle", "--batch-rows", 60, "--tasks", 2, *QUICK)
    stores = {"folder": str(tmp_path / "folder"), "first": place}
    for checkpoint, root in stores.items():
        run = on_shared_spark if root != place else spawned  # of a folder, the locks are of this process
        store = open_topics(Store(opened(root)))
        store.create("orders", 3)
        for at in (0, 1):
            rows = range(300 * at, 300 * at + 300)
            found = [{"key": k, "value": {"ITEM": k % 7, "N": k}, "timestamp": k, "partition": k % 3} for k in rows]
            store.append("orders", found)
            if at == 0:
                done = run("run", "q.sql", "--store", root, "--checkpoint", checkpoint, *options, cwd=tmp_path)
                assert done.code == 0, done
    words = ("run", "q.sql", "--store", stores["folder"], "--checkpoint", "folder", *options)
    want = on_shared_spark(*words, cwd=tmp_path)
    assert want.code == 0, want
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    both = [
        launch(
            "run",
            "q.sql",
            "--store",
            place,
            "--checkpoint",
            name,
            *options,
            cwd=tmp_path,
            env={"BRAID_CACHE": str(tmp_path / f"cache-{name}")},
        )
        for name in ("first", "second")
    ]
    ends = [ended(process) for process in both]
    assert 0 in [x.code for x in ends], ends
    assert all(x.code == 0 or "another writer" in x.err for x in ends), ends
    assert records("COUNTED", place) == records("COUNTED", stores["folder"])


def second_machines(place: str, seed: int, folder: Path, count: int = 3) -> int:
    """How many of some runs were told that another machine has taken over; what comes out is the oracle's."""
    folder.mkdir()
    kills = [Kill("second", n, 0.2 * n, in_turn=n == 3) for n in range(1, count + 1)]
    return round_of(seed, kills, folder, at=InObjects(f"{place}/{seed}")).told


def test_a_second_machine_takes_over(place: str, tmp_path: Path) -> None:
    assert second_machines(place, 1, tmp_path / "m", 1)


@pytest.mark.law
@pytest.mark.timeout(7200)
def test_second_machines_take_over(place: str, tmp_path: Path) -> None:
    assert sum(second_machines(place, seed, tmp_path / str(seed)) for seed in range(2, 9)) > 15
