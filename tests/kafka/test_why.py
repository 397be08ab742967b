"""`braid why-not`, `why` and `doctor --query` of a query whose topics are on a real broker.

In: a broker. Out: answers.
Rule: names are fresh: the broker is shared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_help import braid, on_shared_spark
from kafka import clients
from kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_missing_rows_and_one_that_is_there(broker: Broker, tmp_path: Path) -> None:
    orders, payments, paid = (clients.fresh(n).replace("-", "_") for n in ("orders", "payments", "paid"))
    sent = {
        orders: [(b"1", b'{"AMOUNT": 5}', 1000), (b"2", b'{"AMOUNT": 6}', 2000), (b"3", b'{"AMOUNT": "x"}', 3000)],
        payments: [(b"1", b'{"SUM": 5}', 4000), (b"2", b'{"SUM": 6}', 90_000)],
    }
    for topic, records in sent.items():
        clients.make_topic(broker.address, topic)
        clients.produce(broker.address, topic, [clients.Record(k, v, t) for k, v, t in records])
    text = f"""
    CREATE STREAM o (id INT KEY, amount INT) WITH (kafka_topic='{orders}', format='JSON');
    CREATE STREAM p (id INT KEY, sum INT) WITH (kafka_topic='{payments}', format='JSON');
    CREATE STREAM paid WITH (kafka_topic='{paid}', format='JSON') AS SELECT o.id AS id, o.amount, p.sum
      FROM o JOIN p WITHIN 10 SECONDS ON o.id = p.id;"""
    where = ("--store", tmp_path / "d", "--kafka", broker.address)
    said = on_shared_spark("run", "-e", text, *where, "--dialect", "ksqldb", "--until-idle", cwd=tmp_path)
    assert said.code == 0, said.err

    def asked(command: str, *words: object) -> Any:
        answer = braid(command, *words, *where, "--json")
        assert answer.out, answer.err
        return json.loads(answer.out)

    for key, reason in ((1, "given"), (2, "outside the window"), (3, "malformed")):
        found = asked("why-not", "paid", "--key", key)["records"]
        assert reason in [x["reason"] for x in found], found
    counted = asked("why-not", "paid", "--since", 0, "--event-time")
    assert {x["reason"]: x["count"] for x in counted["reasons"]}["given"] == 2

    (row,) = asked("why", paid, "--offset", 0, "-p", 0)["rows"]
    assert row["value"] == {"AMOUNT": 5, "SUM": 5}, row
    assert row == asked("why", paid, "--key", 1)["rows"][0]
    assert f"{orders}:0:0" in braid("why", paid, "--key", 1, *where).out
    found = asked("doctor", "--query", "paid")["findings"]
    assert [x["kind"] for x in found] == ["drops"], found
