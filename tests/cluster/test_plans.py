"""Plans on a cluster whose machines share nothing but Kafka (and, for now, the folder of the store).

In: the crash tests' queries and input, and every operator in every dialect. Out: the oracle's records, whatever was
killed.
Rule: what is killed, and when, is the harness's (`tests/crash`); several queries at a time.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(1200)]
pytest.importorskip("pyspark")

from cli_help import ended, launch  # noqa: E402
from cluster.nodes import CONF, Cluster  # noqa: E402
from crash import processes  # noqa: E402
from crash.harness import round_of  # noqa: E402
from crash.places import InStore, OnBroker  # noqa: E402
from crash.plan import Kill  # noqa: E402
from every_operator import ALL, Queries, queries, unbroken, written  # noqa: E402
from kafka.broker import Broker, own_broker  # noqa: E402
from kafka.conftest import had  # noqa: E402

LONG = 1000  # s: a busy machine
BETWEEN = 20.0  # s from a kill to the next
KILLS = 4


@pytest.fixture(scope="module")
def uncompacted() -> Iterator[Broker]:
    """A broker on which all that was written can be seen."""
    with had(own_broker({"log.cleaner.enable": "false"})) as server:
        yield server


def test_three_queries_from_kafka_to_kafka_in_spite_of_kills(three: Cluster, at: Path, uncompacted: Broker) -> None:
    """An outer join that waits, two tables, a chain of two stages, at once: one run goes on through all kills but the
    driver's, and another ends it."""
    kills = [
        Kill("executor", 2, 0.1),
        Kill("node", 2, 0.0, begun=True),
        Kill("worker", 1, 0.1),
        Kill("driver", 2, 0.2),
    ]
    with contextlib.closing(OnBroker(uncompacted, own=False)) as topics:
        report = round_of(3, kills, at, three, names=("WINDOWED", "TABLES", "CHAINED"), at=topics)
    assert report.kills.total() == 4 and report.records > 300


def test_workers_go_and_come_and_one_stands_still(three: Cluster, at: Path) -> None:
    """With speculation: while the Python of one worker stands still, its tasks are done elsewhere, and what it does
    later counts for nothing."""
    kills = [
        Kill("gone", 1, 0.1),
        Kill("stall", 1, 0.0),
        Kill("come", 1, 0.0),
        Kill("executor", 1, 0.2),
    ]
    report = round_of(7, kills, at, three, names=("CHAINED",), at=InStore(at / "s", speculates=True))
    assert report.kills.total() == 4 and report.died == 0 and report.records > 100


def test_every_operator_of_every_dialect(three: Cluster, at: Path) -> None:
    """Two dialects at a time, in small batches, while an executor is killed now and then."""
    rng = random.Random(11)
    with ThreadPoolExecutor(2) as pool:
        running = {x.dialect: pool.submit(carried_out, x, at / x.dialect, three) for x in ALL}
        for _ in range(KILLS):
            time.sleep(BETWEEN)
            processes.kill_one(three.executors(), rng)
        wrong = {name: found for name, done in running.items() if (found := done.result()) is not None}
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())


def carried_out(of: Queries, folder: Path, three: Cluster) -> str | None:
    """Runs a dialect's statements over all of its input; what is not as the oracle has it."""
    folder.mkdir()
    sql, records = of.early[0] + of.later[0], [*of.early[1], *of.later[1]]
    of.write(folder, sql, records)
    words = [*of.command(), "--master", three.url, *CONF, "--batch-rows", "6"]
    said = ended(launch(*words, cwd=folder), LONG)
    if said.code:
        return f"exit {said.code}\n{said.err}"
    want = unbroken(replace(of, early=("", ()), later=(sql, records)), folder)
    topics = {q.name: q.sink.topic for q in queries(of)}
    other = [name for name in sorted(want) if written(topics[name], of, folder) != want[name]]
    return f"{', '.join(other)} differ from the oracle's" if other else None
