"""What a run tells whoever is on call: all workers are killed in the midst of it, and come back.

In: a run that stays up. Out: notes, JSON lines and Prometheus say so while nothing goes on; then it goes on, and each
row is there once.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(1200)]
pytest.importorskip("pyspark")

from braid.store import opened  # noqa: E402
from braid.topics import TopicStore  # noqa: E402
from cli_help import ended, launch  # noqa: E402
from cluster.nodes import CONF, WORKERS, Cluster  # noqa: E402
from crash import processes, world  # noqa: E402
from crash.harness import environment  # noqa: E402
from crash.places import InStore  # noqa: E402
from kafka.server import free_ports  # noqa: E402

PATIENCE = 300.0


def until(what: Callable[[], Any], process: Any, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.3)


def scraped(port: int) -> dict[str, float]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
    except OSError:
        return {}
    return {x.rpartition(" ")[0]: float(x.rpartition(" ")[2]) for x in lines if not x.startswith("#")}


def told(metrics: Path) -> list[dict[str, Any]]:
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return [json.loads(line)["run"] for line in lines]


def test_all_workers_are_killed(three: Cluster, at: Path) -> None:
    history = world.history(3, 40)
    store, some = InStore(at / "s"), {t: [p[:20] for p in ps] for t, ps in history.topics.items()}
    rest = {t: [p[20:] for p in ps] for t, ps in history.topics.items()}
    store.write(replace(history, topics=some))
    (at / "q.sql").write_text(world.sql(["WINDOWED"]), encoding="utf-8")
    (port,) = free_ports(1)
    words = ("run", "q.sql", "--store", "s", "--master", three.url, *CONF, "--metrics", "m.jsonl")
    process = launch(*words, "--metrics-port", port, cwd=at, env=environment(at))
    try:
        until(lambda: any(store.written(["WINDOWED"])["WINDOWED"]), process)
        until(lambda: scraped(port).get("braid_executors") == WORKERS, process)
        before = store.written(["WINDOWED"])["WINDOWED"]
        for number in range(WORKERS):
            three.kill_worker(number)
        store.write(replace(history, topics=rest))
        until(lambda: scraped(port).get("braid_executors") == 0, process)
        until(lambda: told(at / "m.jsonl")[-1]["executors"] == 0, process)
        until(lambda: scraped(port).get('braid_batch_under_way_seconds{query="WINDOWED"}', 0) > 5, process)
        assert scraped(port)["braid_executors_lost_total"] == WORKERS
        time.sleep(12)  # a line of progress where no terminal is
        for number in range(WORKERS):
            three.start_worker(number)
        until(lambda: scraped(port).get("braid_executors", 0) > 0, process)
        for side in "lr":
            TopicStore(opened(at / "s")).append_lines(side, [world.line(1, {"V": "last", "N": 1}, 2_000_000)], 0)
        last = world.line(1, {"LV": "last", "RV": "last"}, 2_000_000)
        until(lambda: any(last in rows for rows in store.written(["WINDOWED"])["WINDOWED"]), process)
        process.send_signal(signal.SIGINT)
        said = ended(process, 120)
    except BaseException:
        processes.end(process)
        raise
    finally:
        for number in set(range(WORKERS)) - three.up:
            three.start_worker(number)
        for number in range(WORKERS):
            three.wait_for(number)
    after = store.written(["WINDOWED"])["WINDOWED"]
    for old, new in zip(before, after, strict=True):
        assert new[: len(old)] == old and len(set(new)) == len(new)
    lines = said.err.splitlines()
    assert sum(" is lost" in line for line in lines) == WORKERS, said.err
    assert any("note: no executor is left: the batch goes on when a worker comes back" in line for line in lines)
    assert any("  next for " in line for line in lines) and any("no executor is left (3 lost)" in x for x in lines)
    assert any(" has come; there " in line for line in lines), said.err
