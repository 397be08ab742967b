"""`make demo-kafka`, against DuckDB.

In: the demo in a folder of this test's own. Out: what its topics hold, read by confluent-kafka's Avro deserializer.
Rule: nothing of Braid's reads the results.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

from confluent_kafka.schema_registry.avro import AvroDeserializer  # noqa: E402

from kafka import clients, demo  # noqa: E402
from kafka.broker import Broker  # noqa: E402
from kafka.registry import Registry  # noqa: E402
from test_demo import JANUARY, compare  # noqa: E402


def test_the_demo_over_kafka(broker: Broker, registry: Registry, tmp_path: Path) -> None:
    """The fixtures say where servers cannot be had; the demo has its own."""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "COLUMNS": "200"}
    command = [sys.executable, "-m", "kafka.demo", str(tmp_path)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=env)
        assert said.returncode == 0, said.stderr
        found = re.search(r"A broker at (\S+), a registry at (\S+)", said.stdout)
        assert found is not None
        address, client = found[1], clients.schemas(found[2])
        read = AvroDeserializer(client)

        def values(topic: str) -> list[dict[str, Any]]:
            return [{**read(r.value, None), "_key": r.key.decode()} for r in clients.consume(address, topic)]

        counts = compare(JANUARY, values)
        assert f"{counts['planes']:,} with a known plane" in said.stdout
        assert f"dropped {demo.SPOILT} malformed, {counts['nobody']} null key" in said.stdout
        assert "no schema id in front of the record" in said.stdout
        lags = re.findall(r"^braid\.\w+ +(\w+) +([\d,]+) +([\d,]+) +(\d+)\s*$", said.stdout, re.MULTILINE)
        assert len(lags) == 7
        assert {lag for *_, lag in lags} == {"0"}
        assert said.stdout.rstrip().splitlines()[-1] == "  demo cat FLIGHTS_WITH_PLANE --tail 1"
    finally:
        demo.stopped(tmp_path)
