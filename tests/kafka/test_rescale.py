"""`braid rescale` with the output on a broker: tasks that come find their markers, each row is there once.

In: a query that runs, is killed, is spread anew. Out: what another client reads of the result.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from braid.face.rescale import rescale
from braid.stage import batches
from braid.store import opened
from cli_help import braid as command
from cli_help import on_shared_spark
from kafka.broker import Broker
from kafka.test_run import Feed, joined, prepared, until, up

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_each_row_once_in_other_tasks(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    feed, store = Feed(broker, names, 7), str(tmp_path / "d")
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle", "--quiet")

    def run(*more: str) -> None:
        feed.more(40)
        done = on_shared_spark(*words, *more, cwd=tmp_path)
        assert done.code == 0, done.err
        assert joined(broker, names["o"]) == feed.join

    run("--tasks", "1")
    for tasks in (3, 1, 2, 3):  # those of the third that wrote before have markers of then
        assert "goes on in" in next(rescale(opened(store), names["o"], tasks=tasks))
        run()
    said = command("rescale", names["o"], "--tasks", "4", "--store", store)
    assert said.code == 1 and "4 tasks for 3 partitions of the output in Kafka" in said.err


def test_a_batch_that_tasks_may_have_written_is_finished_first(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    feed, folder = Feed(broker, names, 8), tmp_path / "d" / "checkpoints" / names["o"]

    def begun() -> bool:
        return batches.begun(opened(str(folder)))

    feed.more(60)
    run = up(tmp_path, broker, "q.sql", "--batch-rows", "10")
    assert until(begun)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    time.sleep(1)
    said = command("rescale", names["o"], "--tasks", "1", "--store", str(tmp_path / "d"))
    if begun():
        assert said.code == 1 and "has begun a batch and not finished it" in said.err
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle", "--quiet")
    assert on_shared_spark(*words, cwd=tmp_path).code == 0
    assert joined(broker, names["o"]) == feed.join
