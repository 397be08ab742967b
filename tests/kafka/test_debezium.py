"""A table whose topic Debezium writes, on a real broker: rows by their keys, in two partitions, deletes and tombstones.

In: a broker, records as a connector writes them. Out: a joined table on the broker.
Rule: names are fresh: the broker is shared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_help import rows_after
from kafka import clients
from kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def change(op: str, row: dict[str, Any] | None, wide: bool) -> bytes:
    made = {"before": None, "after": row, "source": {"table": "stock"}, "op": op, "ts_ms": 1}
    return json.dumps({"schema": {"type": "struct"}, "payload": made} if wide else made).encode()


@pytest.mark.parametrize("wide", [False, True])
def test_changes_of_a_database(broker: Broker, tmp_path: Path, wide: bool) -> None:
    stock, out, name, joined = (clients.fresh(n).replace("-", "_") for n in ("stock", "out", "name", "joined"))
    for topic in (stock, out):
        clients.make_topic(broker.address, topic, 2)

    def key(sku: int) -> bytes:
        made = {"sku": sku}
        return json.dumps({"schema": {}, "payload": made} if wide else made).encode()

    def send(op: str, sku: int, pieces: int | None, time: int) -> None:
        row = None if op == "d" else {"sku": sku, "pieces": pieces, "at": 1_700_000_000_000_000 + time}
        records = [clients.Record(key(sku), change(op, row, wide), time)]
        if op == "d":
            records.append(clients.Record(key(sku), None, time))
        clients.produce(broker.address, stock, records)

    text = f"""
    CREATE TABLE {stock} (sku INT PRIMARY KEY, pieces INT, at TIMESTAMP)
      WITH (connector = 'kafka', topic = '{stock}') FORMAT DEBEZIUM ENCODE JSON;
    CREATE TABLE {name} (sku INT PRIMARY KEY, name VARCHAR);
    INSERT INTO {name} VALUES (1, 'one'), (2, 'two'), (3, 'three');
    CREATE MATERIALIZED VIEW {joined} AS SELECT n.name, s.pieces FROM {stock} s JOIN {name} n ON s.sku = n.sku;
    CREATE SINK o FROM {joined} WITH (connector = 'kafka', topic = '{out}', primary_key = 'name')
      FORMAT UPSERT ENCODE JSON;"""
    asking = f"SELECT name, pieces FROM {joined} ORDER BY name;"
    where = ("--store", tmp_path / "d", "--kafka", broker.address)

    def stands() -> list[str]:
        return rows_after(text, asking, *where, dialect="risingwave", cwd=tmp_path)

    for n, (op, sku, pieces) in enumerate((("r", 1, 5), ("r", 2, 6), ("c", 3, 7), ("u", 1, 8), ("d", 2, None))):
        send(op, sku, pieces, 1000 + n)
    assert stands() == ["one 8", "three 7"]
    send("c", 2, 9, 2000)
    send("d", 3, None, 2001)
    assert stands() == ["one 8", "two 9"]
