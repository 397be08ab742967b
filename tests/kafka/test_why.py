"""`braid why-not`, `why` and `doctor --query` of a query whose topics are on a real broker.

In: a broker. Out: answers.
Rule: names are fresh: the broker is shared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from braid.why import deriving
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


def test_a_row_that_its_topic_did_not_take(broker: Broker, tmp_path: Path) -> None:
    """What the definitions give is no row of the topic."""
    read, written = (clients.fresh(n).replace("-", "_") for n in ("read", "written"))
    clients.make_topic(broker.address, read)
    clients.make_topic(broker.address, written, 1, {"max.message.bytes": "2000"})
    values = [json.dumps({"V": v, "N": n}).encode() for v, n in (("short", 1), ("x" * 3000, 1), ("x" * 3000, 2))]
    clients.produce(broker.address, read, [clients.Record(b"%d" % i, v, i) for i, v in enumerate(values)])
    text = f"""
    CREATE STREAM s (id INT KEY, v STRING, n INT) WITH (kafka_topic='{read}', format='JSON');
    CREATE STREAM w WITH (kafka_topic='{written}', format='JSON') AS SELECT id, v FROM s WHERE n = 1;"""
    where = ("--store", tmp_path / "d", "--kafka", broker.address)
    said = on_shared_spark("run", "-e", text, *where, "--dialect", "ksqldb", "--until-idle", cwd=tmp_path)
    assert said.code == 0, said.err
    for key, reason in ((0, "given"), (1, "too large"), (2, "condition")):
        (found,) = json.loads(braid("why-not", "w", "--key", key, *where, "--what-if", 0, "--json").out)["records"]
        assert found["reason"] == reason, found
    shown = braid("why-not", "w", "--key", 1, "--what-if", 0, *where).out
    assert "✗ it gave 1 row of W under 1, which the topic did not take: " in shown and "bytes as a record" in shown
    counted = json.loads(braid("why-not", "w", "--since", 0, "--event-time", *where, "--json").out)["reasons"]
    assert {x["reason"]: x["count"] for x in counted} == {"given": 1, "too large": 1, "condition": 1}


def test_each_row_by_its_causes(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of the result have gaps, where its transactions end; a source gets a partition while nothing runs."""
    left, right, joined = (clients.fresh(n).replace("-", "_") for n in ("left", "right", "joined"))
    for topic, count in ((left, 2), (right, 2), (joined, 3)):
        clients.make_topic(broker.address, topic, count)
    text = f"""
    CREATE STREAM l (id INT KEY, v STRING) WITH (kafka_topic='{left}', format='JSON');
    CREATE STREAM r (id INT KEY, w STRING) WITH (kafka_topic='{right}', format='JSON');
    CREATE STREAM joined WITH (kafka_topic='{joined}', format='JSON') AS SELECT l.v + r.w AS both, r.w + l.v AS other
      FROM l LEFT JOIN r WITHIN 9 SECONDS GRACE PERIOD 1 SECONDS ON l.id = r.id PARTITION BY l.v + r.w;"""
    where = ("--store", tmp_path / "d", "--kafka", broker.address)

    def go_on(step: int) -> None:
        for topic, name in ((left, "V"), (right, "W")):
            times = [20_000 * step + 1000 * n for n in range(8)]
            sent = [
                clients.Record(b"%d" % (n % 3), b'{"%s": "%s%d"}' % (name.encode(), name.encode(), t), t)
                for n, t in enumerate(times)
            ]
            clients.produce(broker.address, topic, sent)
        run = ("run", "-e", text, *where, "--dialect", "ksqldb", "--until-idle", "--batch-rows", 5)
        said = on_shared_spark(*run, cwd=tmp_path)
        assert said.code == 0, said.err

    go_on(1)
    clients.add_partitions(broker.address, left, 3)
    go_on(2)
    monkeypatch.setattr(deriving, "WHOLE", 0)  # what the run has not left is found by nothing else
    count = 0
    shown = braid("cat", joined, *where, "--format", "jsonl")
    for x in map(json.loads, shown.out.splitlines()):
        said = braid("why", joined, "--offset", x["offset"], "-p", x["partition"], *where, "--json")
        assert said.code == 0, (x, said.err)
        (row,) = json.loads(said.out)["rows"]
        assert row["checked"] and row["value"] == x["value"], (x, row)
        count += 1
    assert count > 12
