"""Two ways to end `braid run` while a transaction is open; `make crash KAFKA=1` has more.

In: the shared broker. Out: the oracle's records, each once.
Rule: what is killed, and when, is the harness's (`tests/crash/`).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from crash.harness import round_of
from crash.places import OnBroker
from crash.plan import Kill
from kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.kafka_short, pytest.mark.spark, pytest.mark.operations]


def test_two_kills(broker: Broker, tmp_path: Path) -> None:
    kills = [Kill("worker", 1, 0.1, begun=True), Kill("driver", 1, 0.1, begun=True)]
    with contextlib.closing(OnBroker(broker, own=False)) as at:
        report = round_of(5, kills, tmp_path, names=("WINDOWED",), at=at)
    assert report.kills.total() == 2
    assert report.records > 50
