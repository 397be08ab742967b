"""`braid reset`, `braid rm` and DROP … DELETE TOPIC with topics on a broker: what stays, what goes.

In: queries that have run. Out: topics, groups and transactions that the broker has afterwards.
Rule: what goes is looked for by a client that is not Braid's.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_help import Said, spawned
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SQL = """
CREATE STREAM {s} (k VARCHAR KEY, v VARCHAR) WITH (kafka_topic='{s}', value_format='JSON', partitions=1);
CREATE STREAM {o} WITH (kafka_topic='{o}') AS SELECT k, v FROM {s};
"""


def groups(broker: Broker, query: str) -> list[str]:
    client = clients.admin(broker.address)
    found = client.list_consumer_groups().result(clients.SECONDS)
    return sorted(g.group_id for g in found.valid if g.group_id.startswith(f"braid.{query}"))


def test_reset_and_rm(broker: Broker, tmp_path: Path) -> None:
    s, o = (clients.fresh(x).upper().replace("-", "_") for x in "so")
    (tmp_path / "q.sql").write_text(SQL.format(s=s, o=o))
    clients.make_topic(broker.address, s)
    rows = [Record(b"k%d" % i, json.dumps({"V": "x"}).encode(), i + 1) for i in range(5)]
    clients.produce(broker.address, s, rows)

    def braid(*words: str) -> Said:
        return spawned(*words, "--store", "d", "--kafka", broker.address, cwd=tmp_path)

    def run() -> int:
        assert braid("run", "q.sql", "--until-idle", "--master", "local[1]").code == 0
        return len(clients.consume(broker.address, o))

    assert run() == 5
    life = json.loads((tmp_path / "d" / "checkpoints" / o / "braid.json").read_text())["settings"]["run"]
    assert f"braid.{life}" in groups(broker, o)
    used = braid("rm", s)
    assert (used.code, f"{s} is in use: {o} reads it" in used.err) == (1, True)

    with clients.open_transaction(broker.address, f"braid.{life}.0") as orphan:
        clients.send(orphan, o, rows[:2])  # of a killed run, and nobody has ended it
        told = braid("reset", o)
        assert told.code == 0, told
        assert f"{o}: removed the group braid.{life} in Kafka" in told.out
        assert f"its topic {o} in Kafka stays as it is, and gets all results once more; --delete-topic" in told.out
        with pytest.raises(clients.KafkaException):
            orphan.commit_transaction(10)
    assert groups(broker, o) == []
    assert len(clients.consume(broker.address, o)) == 5

    assert run() == 10
    assert braid("reset", o, "--delete-topic").code == 0
    assert not clients.topic_exists(broker.address, o)
    assert (tmp_path / "d" / "checkpoints" / o).exists() is False
    assert groups(broker, o) == []

    assert run() == 5
    (tmp_path / "drop.sql").write_text(f"DROP STREAM {o} DELETE TOPIC;")
    dropped = braid("run", "drop.sql")
    assert dropped.code == 0, dropped
    assert not clients.topic_exists(broker.address, o)
    assert groups(broker, o) == []
    gone = braid("rm", s)
    assert gone.code == 0, gone
    assert f"removed topic {s}" in gone.out
    assert f"removed {s} from the catalogue (ksqldb)" in gone.out
    assert not clients.topic_exists(broker.address, s)


def test_a_reset_without_the_broker_says_what_stays(broker: Broker, tmp_path: Path) -> None:
    s, o = (clients.fresh(x).upper().replace("-", "_") for x in "so")
    (tmp_path / "q.sql").write_text(SQL.format(s=s, o=o))
    words = ("--store", "d", "--until-idle", "--master", "local[1]", "--kafka", broker.address)
    assert spawned("run", "q.sql", *words, cwd=tmp_path).code == 0
    told = spawned("reset", o, "--store", "d", cwd=tmp_path)
    assert f"{o}: its groups in Kafka stay, and what its tasks had begun; --kafka" in told.out
    assert f"{o}: its topic {o} in Kafka stays as it is" in told.out
    alone = spawned("reset", o, "--store", "d", "--delete-topic", cwd=tmp_path)
    assert (alone.code, "--delete-topic has no meaning without --kafka" in alone.err) == (1, True)
