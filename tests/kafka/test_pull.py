"""Pull queries over a broker give what they give over the store: tables, windows, SOURCE tables, streams.

In: statements, INSERTs among them. Out: the rows of each question, while the queries run and when they have stopped.
Rule: the same texts, the same times; topics of three partitions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import braid
from braid.face.session import Session
from kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.filterwarnings("ignore::UserWarning")]

DECLARED = """
CREATE STREAM pull_s (k INT KEY, g STRING, v INT) WITH (kafka_topic='pull_s', value_format='JSON', partitions=3);
CREATE TABLE pull_g WITH (partitions=3) AS SELECT g, COUNT(*) AS n, SUM(v) AS total FROM pull_s GROUP BY g;
CREATE TABLE pull_w AS SELECT g, COUNT(*) AS n FROM pull_s WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY g;
CREATE TABLE pull_c AS SELECT g, total FROM pull_g;
CREATE SOURCE TABLE pull_t (g STRING PRIMARY KEY, n BIGINT) WITH (kafka_topic='PULL_G', value_format='JSON');
"""
ASKED = (
    "SELECT * FROM pull_g;",
    "SELECT total FROM pull_g WHERE g = 'g1';",
    "SELECT g, n FROM pull_g WHERE g IN ('g0', 'g2', 'none') AND n > 1;",
    "SELECT * FROM pull_w WHERE g = 'g0';",
    "SELECT g, WINDOWSTART FROM pull_w WHERE WINDOWEND > '2001-09-09T01:46:50' LIMIT 3;",
    "SELECT * FROM pull_c LIMIT 2;",
    "SELECT * FROM pull_t WHERE n > 0;",
    "SELECT k, v, ROWTIME FROM pull_s WHERE v < 9;",
)
BEGAN = 1_000_000_000_000  # Kafka takes 0 for now


def asked(session: Session) -> list[list[tuple[Any, ...]]]:
    return [session.query(sql) for sql in ASKED]


def fed(session: Session, first: int) -> None:
    for i in range(first, first + 6):
        at, k, g = BEGAN + i * 3000, i % 4, i % 3
        session.execute(f"INSERT INTO pull_s (ROWTIME, k, g, v) VALUES ({at}, {k}, 'g{g}', {i});")
    for _ in range(2):  # one query reads what another writes
        for handle in session._handles.values():
            handle.await_idle()


def answers(folder: str, kafka: str | None) -> list[list[list[tuple[Any, ...]]]]:
    with braid.connect("ksqldb", folder, kafka=kafka) as session:
        session.execute(DECLARED)
        fed(session, 0)
        found = [asked(session)]
        fed(session, 6)
        found.append(asked(session))
    with braid.connect("ksqldb", folder, kafka=kafka) as later:
        return [*found, asked(later)]


def test_a_broker_is_asked_as_the_store_is(fresh_broker: Broker, tmp_path: Path) -> None:
    on_broker = answers(str(tmp_path / "there"), fresh_broker.address)
    here = answers(str(tmp_path / "here"), None)
    assert on_broker == here
    assert here[2] == here[1] and all(here[1])
