"""Plans on a cluster whose machines share nothing but Kafka (and, for now, the folder of the store).

In: the crash tests' queries and input. Out: the oracle's records, whatever was killed.
Rule: what is killed, and when, is the harness's (`tests/crash`); several queries at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]
pytest.importorskip("pyspark")

from cluster.nodes import Cluster  # noqa: E402
from crash.harness import round_of  # noqa: E402
from crash.places import OnBroker  # noqa: E402
from crash.plan import Kill  # noqa: E402
from kafka.broker import Broker, own_broker  # noqa: E402
from kafka.conftest import had  # noqa: E402


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
        Kill("node", 2, 0.2),
        Kill("executor", 2, 0.0, begun=True),
        Kill("worker", 1, 0.1),
        Kill("driver", 2, 0.2),
    ]
    with contextlib.closing(OnBroker(uncompacted, own=False)) as topics:
        report = round_of(3, kills, at, three, names=("WINDOWED", "TABLES", "CHAINED"), at=topics)
    assert report.kills.total() == 5 and report.records > 300
