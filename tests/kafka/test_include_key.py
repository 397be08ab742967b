"""INCLUDE KEY on a real broker: the bytes of keys as a column, and as the PRIMARY KEY of a table, in two partitions.

In: a broker, records under keys that are text, no text, and none. Out: a joined table on the broker, in two runs.
Rule: names are fresh: the broker is shared.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_help import rows_after
from kafka import clients
from kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ODD = b"\xff\x00\xfe"  # no text


def test_keys_are_bytes(broker: Broker, tmp_path: Path) -> None:
    pulses, worn, out, joined = (clients.fresh(n).replace("-", "_") for n in ("pulses", "worn", "out", "joined"))
    for topic in (pulses, worn, out):
        clients.make_topic(broker.address, topic, 2)

    def send(topic: str, key: bytes | None, value: dict[str, object] | None, time: int) -> None:
        made = None if value is None else json.dumps(value).encode()
        clients.produce(broker.address, topic, [clients.Record(key, made, time)])

    text = f"""
    CREATE SOURCE {pulses} (bpm INT) INCLUDE KEY AS device
      WITH (connector = 'kafka', topic = '{pulses}') FORMAT PLAIN ENCODE JSON;
    CREATE TABLE {worn} (name VARCHAR, PRIMARY KEY (device)) INCLUDE KEY AS device
      WITH (connector = 'kafka', topic = '{worn}') FORMAT UPSERT ENCODE JSON;
    CREATE MATERIALIZED VIEW {joined} AS SELECT encode(p.device, 'hex') AS device, w.name, count(*) AS n,
        max(p.bpm) AS most FROM {pulses} p LEFT JOIN {worn} w ON p.device = w.device GROUP BY p.device, w.name;
    CREATE SINK o FROM {joined} WITH (connector = 'kafka', topic = '{out}', primary_key = 'device,name')
      FORMAT UPSERT ENCODE JSON;"""
    asking = f"SELECT device, name, n, most FROM {joined} ORDER BY device NULLS FIRST, most;"
    where = ("--store", tmp_path / "d", "--kafka", broker.address)

    def stands() -> list[str]:
        return rows_after(text, asking, *where, dialect="risingwave", cwd=tmp_path)

    send(worn, b"d1", {"name": "Ann"}, 1)
    send(worn, ODD, {"name": "Bob"}, 2)
    for n, (key, bpm) in enumerate(((b"d1", 60), (ODD, 70), (None, 80), (b"d2", 90), (b"d1", 65), (b'{"id": 7}', 50))):
        send(pulses, key, {"bpm": bpm}, 10 + n)
    assert stands() == [
        "null null 1 80",
        "6431 Ann 2 65",
        "6432 null 1 90",
        "7b226964223a20377d null 1 50",
        "ff00fe Bob 1 70",
    ]
    send(worn, b"d1", None, 30)
    send(worn, ODD, {"name": "Rob"}, 31)
    send(pulses, ODD, {"bpm": 75}, 32)
    assert stands() == [
        "null null 1 80",
        "6431 null 2 65",
        "6432 null 1 90",
        "7b226964223a20377d null 1 50",
        "ff00fe Rob 2 75",
    ]
