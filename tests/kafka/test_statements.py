"""ksqlDB's statements around queries on a real broker: what took a query's place goes on from its offsets; ASSERT and
PRINT read what the topic holds.

In: a broker. Out: what commands say.
Rule: names are fresh: the broker is shared.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from braid.store import opened
from braid.topics.broker import Broker as OwnBroker
from braid.topics.kafka import KafkaTopics
from cli_help import Said, on_shared_spark
from kafka import clients
from kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_what_takes_the_place_of_a_query_goes_on_from_its_offsets(broker: Broker, tmp_path: Path) -> None:
    s, o = (clients.fresh(name).replace("-", "_") for name in "so")
    declared = f"CREATE STREAM {s} (k INT KEY, v INT) WITH (kafka_topic='{s}', value_format='JSON', partitions=1);"

    def run(*rows: int, query: str, checks: str = "") -> Said:
        inserts = "".join(f"INSERT INTO {s} (rowtime, k, v) VALUES ({n}, {n}, {n});" for n in rows)
        text = f"{declared} {inserts} {query} {checks}"
        words = ("--store", "d", "--kafka", broker.address, "--until-idle", "--quiet")
        return on_shared_spark("run", "-e", text, *words, cwd=tmp_path)

    first = run(1, 2, query=f"CREATE STREAM {o} WITH (kafka_topic='{o}') AS SELECT k, v FROM {s} WHERE v <> 2;")
    assert first.code == 0, first.err
    query = f"CREATE OR REPLACE STREAM {o} WITH (kafka_topic='{o}') AS SELECT k, v, v * 2 AS w FROM {s};"
    rows = [(1, 1, "NULL"), (3, 3, 6)]
    checks = "".join(f"ASSERT VALUES {o} (k, v, w) VALUES ({k}, {v}, {w});" for k, v, w in rows[1:])
    checks = f"ASSERT TOPIC '{o}' WITH (partitions=1); PRINT '{o}' FROM BEGINNING; {checks}"
    second = run(3, query=query, checks=checks)
    assert second.code == 1 and "record 1 of" in second.err and 'has key 1, not 3; value {"V": 1}' in second.err
    assert [line.split("  ")[1].strip() for line in second.out.splitlines()[1:]] == ["1", "3"]
    assert '{"V": 3, "W": 6}' in second.out and '"V": 2' not in second.out


def test_statements_are_done_once(broker: Broker, tmp_path: Path) -> None:
    """What was done has a marker by its name; one of 0.1.0 is refused."""
    topic = clients.fresh("t").replace("-", "_")
    topics = KafkaTopics(opened(tmp_path / "d"), OwnBroker(broker.address))
    inserted = f"CREATE TABLE {topic} (id INT PRIMARY KEY, v INT); INSERT INTO {topic} VALUES (1, 5);"

    def run(text: str) -> Said:
        words = ("--store", "d", "--kafka", broker.address, "--dialect", "risingwave")
        return on_shared_spark("run", "-e", text, *words, cwd=tmp_path)

    for skipped in (0, 1):
        said = run(inserted)
        assert said.code == 0 and said.err.count("was done before; skipped") == skipped, said.err
    old = [{"key": 1, "value": {"v": 5}, "timestamp": 1_700_000_000_000}]
    assert topics.append(topic, old, query=f"insert-{uuid4().hex[:24]}")
    said = run(inserted)
    assert said.code == 1 and "statements of braid 0.1.0 have filled" in said.err, said.err
