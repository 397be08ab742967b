"""Where a query begins on a broker: what is found there is kept, before the first batch too.

In: topics with records, aborted ones among them. Out: offsets; what another client reads of the result.
Rule: as `tests/test_begin.py`, for topics that lie elsewhere.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from braid.store import opened
from braid.topics.begin import Where, offsets_of
from braid.topics.broker import Broker as Address
from braid.topics.interface import open_topics
from braid.topics.store_value import Store
from cli_help import on_shared_spark
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record
from kafka.test_run import lag, until, up

pytestmark = [pytest.mark.kafka]


def record(v: int, ms: int, partition: int) -> Record:
    return Record(b"k", json.dumps({"V": v}).encode(), ms, [], partition)


def test_offsets(broker: Broker, tmp_path: Path) -> None:
    t = clients.make_topic(broker.address, partitions=2)
    clients.produce(broker.address, t, [record(1, 10, 0), record(2, 40, 0), record(3, 30, 0), record(4, 20, 1)])
    clients.produce_transaction(broker.address, t, [record(9, 50, 1)], commit=False)
    topics = open_topics(Store(opened(str(tmp_path)), Address(broker.address)))
    found: dict[Where, list[int]] = {"earliest": [0, 0], "latest": [3, 3], 30: [1, 3], 0: [0, 0], 41: [3, 3]}
    for where, offsets in found.items():
        # an aborted record may be the first of its time: nothing of [1, 3) of partition 1 is there
        assert offsets_of(topics, t, where) in (offsets, [offsets[0], 1]), where


@pytest.mark.spark
def test_begins_once(broker: Broker, tmp_path: Path) -> None:
    s, o, p = (clients.fresh(x).upper().replace("-", "_") for x in "sop")
    (tmp_path / "q.sql").write_text(
        f"CREATE STREAM {s} (k STRING KEY, v INT) WITH (kafka_topic='{s}', value_format='JSON', partitions=2);"
        f"SET 'auto.offset.reset' = 'latest'; CREATE STREAM {o} AS SELECT * FROM {s};"
        f"UNSET 'auto.offset.reset'; CREATE STREAM {p} AS SELECT * FROM {s};"
    )
    clients.make_topic(broker.address, s, 2)
    clients.produce(broker.address, s, [record(1, 1_000, 0), record(2, 2_000, 1)])
    run = up(tmp_path, broker)
    kept = tmp_path / "d" / "checkpoints" / o / "braid.json"
    assert until(kept.exists)
    time.sleep(1)
    assert lag(broker, o, s) == 0
    run.send_signal(signal.SIGKILL)  # nothing of O has been read
    run.wait()
    clients.produce(broker.address, s, [record(3, 500, 0)])
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle")
    done = on_shared_spark(*words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert (lag(broker, o, s), lag(broker, p, s)) == (0, 0)
    assert [json.loads(r.value) for r in clients.consume(broker.address, o)] == [{"V": 3}]
    assert sorted(json.loads(r.value)["V"] for r in clients.consume(broker.address, p)) == [1, 2, 3]
    other = on_shared_spark(*words, "--from", f"{s}:0=1", cwd=tmp_path)
    assert (other.code, "has begun elsewhere" in other.err) == (1, True)
    clients.delete_topic(broker.address, o)
    clients.delete_topic(broker.address, p)
    words = ("run", "q.sql", "--store", "e", "--kafka", broker.address, "--until-idle")
    done = on_shared_spark(*words, "--from", f"{s}:0=1,1=1", cwd=tmp_path)
    assert done.code == 0, done.err
    for topic in (o, p):  # what the command says goes before what the SQL says
        assert [json.loads(r.value) for r in clients.consume(broker.address, topic)] == [{"V": 3}]
    wrong = on_shared_spark(
        "run", "q.sql", "--store", "f", "--kafka", broker.address, "--from", f"{s}:0=7", cwd=tmp_path
    )
    assert (wrong.code, "has no offset 7 in partition 0" in wrong.err) == (1, True)
