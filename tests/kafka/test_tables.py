"""A table that lies elsewhere, over topics of a real broker: what a look finds is a batch of a compacted topic."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from pathlib import Path

import pytest

from cli_help import braid, on_shared_spark
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record
from kafka.registry import Registry

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SQL = """
CREATE TABLE c (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='{c}', value_format='JSON', partitions=1);
CREATE STREAM o (id INT KEY, item STRING) WITH (kafka_topic='{o}', value_format='JSON', partitions=1);
CREATE STREAM e WITH (kafka_topic='{e}') AS SELECT o.id, o.item, c.name FROM o LEFT JOIN c ON o.id = c.id;
"""


@pytest.mark.kafka_short
def test_orders_meet_a_file_that_is_written_anew(broker: Broker, tmp_path: Path) -> None:
    names = {x: clients.fresh(x) for x in "coe"}
    clients.make_topic(broker.address, names["o"])
    (tmp_path / "q.sql").write_text(SQL.format(**names), encoding="utf-8")
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle", "--source=C=snapshot:c.csv")

    def ran(text: str, item: str, ago: float) -> list[str | None]:
        """The names that all orders have got, when one more has come."""
        (tmp_path / "c.csv").write_text(text, encoding="utf-8")
        os.utime(tmp_path / "c.csv", (time.time() - ago, time.time() - ago))
        value = json.dumps({"ITEM": item}).encode()
        clients.produce(broker.address, names["o"], [Record(struct.pack(">i", 1), value)])
        said = on_shared_spark(*words, cwd=tmp_path)
        assert said.code == 0, said.err
        return [json.loads(r.value)["NAME"] for r in clients.consume(broker.address, names["e"])]

    assert ran("id,name\n1,Ann\n2,Bob\n", "pen", 60) == ["Ann"]
    assert ran("id,name\n1,Anna\n2,Bob\n", "ink", 40) == ["Ann", "Anna"]
    assert ran("id,name\n2,Bob\n3,Cid\n", "cap", 20) == ["Ann", "Anna", None]
    found = [(struct.unpack(">i", r.key)[0], r.value) for r in clients.consume(broker.address, names["c"])]
    assert [(k, v and json.loads(v)["NAME"]) for k, v in found] == [
        (1, "Ann"), (2, "Bob"), (1, "Anna"), (1, None), (3, "Cid"),
    ]  # fmt: skip


def test_a_topic_that_forgets_is_refused(broker: Broker, tmp_path: Path) -> None:
    names = {x: clients.fresh(x) for x in "coe"}
    for x in "co":
        clients.make_topic(broker.address, names[x])
    (tmp_path / "q.sql").write_text(SQL.format(**names), encoding="utf-8")
    (tmp_path / "c.csv").write_text("id,name\n1,Ann\n", encoding="utf-8")
    os.utime(tmp_path / "c.csv", (0, time.time() - 60))
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle", "--source=C=snapshot:c.csv")
    said = on_shared_spark(*words, cwd=tmp_path)
    assert said.code == 1 and f"the topic {names['c']} is not compacted" in said.err
    assert not clients.consume(broker.address, names["c"])


@pytest.mark.parametrize("format", ["AVRO", "JSON_SR", "PROTOBUF", "DELIMITED"])
def test_a_table_that_has_not_changed_writes_nothing(
    broker: Broker, registry: Registry, tmp_path: Path, format: str
) -> None:
    """What the broker says of earlier looks is what was written, in every format."""
    topic = clients.fresh("c")
    sql = f"""CREATE TABLE c (id INT PRIMARY KEY, name STRING, d DECIMAL(8, 2), x DOUBLE, at TIMESTAMP, day DATE)
        WITH (kafka_topic='{topic}', key_format='KAFKA', value_format='{format}', partitions=2);"""
    (tmp_path / "q.sql").write_text(sql, encoding="utf-8")
    rows = "1,Änn,1.50,0.1,1969-12-31T23:59:59.999,1900-01-01\n2,b,-3.00,NaN,2024-01-01T00:00:00,2024-02-29\n"
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--registry", registry.url)

    def looked(text: str, ago: float) -> str:
        (tmp_path / "c.csv").write_text(text, encoding="utf-8")
        os.utime(tmp_path / "c.csv", (time.time() - ago, time.time() - ago))
        with contextlib.chdir(tmp_path):
            said = braid(*words, "--until-idle", "--source=C=snapshot:c.csv")
        assert said.code == 0, said.err
        return said.err

    header = "id,name,d,x,at,day\n"
    assert "2 rows: 2 new" in looked(header + rows, 60)
    assert "2 rows: nothing changed" in looked(header + rows, 40)
    assert "3 rows: 1 new" in looked(header + rows + "3,c,0.00,-0.0,2024-01-01T00:00:00,2024-01-01\n", 20)
    assert len(clients.consume(broker.address, topic)) == 3
