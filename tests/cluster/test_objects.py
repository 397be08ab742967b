"""Queries on a cluster whose machines share nothing but an object store, and Kafka.

In: the crash tests' queries and input. Out: the oracle's records, whatever was killed.
Rule: no folder of the driver's is seen by a worker; a driver that is killed loses all its copies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(1200)]
pytest.importorskip("pyspark")
pytest.importorskip("obstore")

from cluster.nodes import Cluster  # noqa: E402
from cluster.test_plans import uncompacted  # noqa: E402
from crash.harness import round_of  # noqa: E402
from crash.places import InObjects, OnBroker, Place  # noqa: E402
from crash.plan import Kill  # noqa: E402
from kafka.broker import Broker  # noqa: E402

__all__ = ["uncompacted"]

NAMES = ("WINDOWED", "TABLES", "CHAINED")


def kills() -> Sequence[Kill]:
    return [Kill("executor", 2, 0.1), Kill("node", 2, 0.0), Kill("worker", 1, 0.1), Kill("driver", 2, 0.2)]


def carried_out(at: Place, folder: Path, three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    report = round_of(5, kills(), folder, three, names=NAMES, at=at)
    assert report.kills.total() == 4 and report.records > 300


def test_topics_and_state_in_an_object_store(
    three: Cluster, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried_out(InObjects(url), tmp_path, three, monkeypatch)


def test_topics_in_kafka_and_state_in_an_object_store(
    three: Cluster, url: str, uncompacted: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(OnBroker(uncompacted, own=False, store=url)) as topics:
        carried_out(topics, tmp_path, three, monkeypatch)
