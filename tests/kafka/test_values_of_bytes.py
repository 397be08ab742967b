"""ENCODE BYTES on a real broker: values as they lie there, text or not, and INSERT.

In: a broker, records of bytes. Out: a view of them on the broker, in two runs.
Rule: names are fresh: the broker is shared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_help import rows_after
from kafka import clients
from kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ODD = b"\xff\x00\xfe"  # no text


def test_values_are_bytes(broker: Broker, tmp_path: Path) -> None:
    frames, seen = (clients.fresh(n).replace("-", "_") for n in ("frames", "seen"))
    clients.make_topic(broker.address, frames, 2)

    def send(value: bytes | None, time: int) -> None:
        clients.produce(broker.address, frames, [clients.Record(b"p", value, time)])

    text = f"""
    CREATE SOURCE {frames} (payload BYTEA) INCLUDE KEY AS probe
      WITH (connector = 'kafka', topic = '{frames}') FORMAT PLAIN ENCODE BYTES;
    CREATE MATERIALIZED VIEW {seen} AS
      SELECT encode(payload, 'hex') AS payload, count(probe) AS n FROM {frames} GROUP BY payload;"""
    asking = f"SELECT payload, n FROM {seen} ORDER BY payload;"
    where = ("--store", tmp_path / "d", "--kafka", broker.address)

    def stands() -> list[str]:
        return rows_after(text, asking, *where, dialect="risingwave", cwd=tmp_path)

    for n, value in enumerate((b"one", ODD, b"", None, b'"quoted"', b"null", ODD)):
        send(value, 10 + n)
    assert stands() == ["1", "2271756f74656422 1", "6e756c6c 1", "6f6e65 1", "ff00fe 2"]
    send(b"one", 30)
    assert stands() == ["1", "2271756f74656422 1", "6e756c6c 1", "6f6e65 2", "ff00fe 2"]
