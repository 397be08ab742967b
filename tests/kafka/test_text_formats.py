"""What the dialects say of topics that others fill, on a real broker: CSV of Lenses, foreign streams of SQLstream, and
the first row of a view of RisingWave.

In: a broker. Out: records.
Rule: names are fresh: the broker is shared.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_help import on_shared_spark
from kafka import clients
from kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def ran(text: str, dialect: str, broker: Broker, cwd: Path) -> str:
    words = ("--store", "d", "--kafka", broker.address, "--dialect", dialect, "--until-idle")
    said = on_shared_spark("run", "-e", text, *words, cwd=cwd)
    assert said.code == 0, said.err
    return said.err


def values(broker: Broker, topic: str) -> list[tuple[bytes | None, object]]:
    found = clients.consume(broker.address, topic)
    return [(r.key, None if r.value is None else json.loads(r.value)) for r in found]


def fresh(*names: str) -> list[str]:
    return [clients.fresh(n).replace("-", "_") for n in names]


def test_csv_of_lenses(broker: Broker, tmp_path: Path) -> None:
    parcels, heavy = fresh("parcels", "heavy")
    clients.make_topic(broker.address, parcels)
    rows = [b'1.5,"Oslo, east",2', b"2,,", b"0.25,Bergen,1", b"much,Bergen,1", b"3,Bergen"]
    clients.produce(broker.address, parcels, [clients.Record(b"a", v, 1000 + n) for n, v in enumerate(rows)])
    text = f"""CREATE TABLE {parcels}(_key STRING, weight DOUBLE, town STRING, pieces INT) FORMAT (STRING, CSV);
    SET defaults.topic.autocreate=true;
    INSERT INTO {heavy} SELECT STREAM weight * 2 AS twice, town, pieces FROM {parcels} WHERE weight > 1;"""
    said = ran(text, "lenses", broker, tmp_path)
    assert values(broker, heavy) == [
        (b"a", {"twice": 3.0, "town": "Oslo, east", "pieces": 2}),
        (b"a", {"twice": 4.0, "town": None, "pieces": None}),
    ]
    assert "2 malformed" in said, said


def test_foreign_streams_of_sqlstream(broker: Broker, tmp_path: Path) -> None:
    doors, lobby, alarms = fresh("doors", "lobby", "alarms")
    for topic in (doors, lobby, alarms):
        clients.make_topic(broker.address, topic)
    records = [(b"7;north;true", 1000), (b"4;;false", 2000), (b"4;south", 2500), (b'9;"a;b";false', 3000)]
    records.append((b"1;west;true", 90_000))  # until then the clock stands
    clients.produce(broker.address, doors, [clients.Record(None, v, t) for v, t in records])
    seen = [(b'{"BADGE": 9, "SEEN": 3100}', 5), (b'{"BADGE": 4, "SEEN": 60000}', 6)]
    clients.produce(broker.address, lobby, [clients.Record(None, v, t) for v, t in seen])
    text = f"""
    CREATE FOREIGN STREAM passages (badge INTEGER, "door" VARCHAR(9), opened BOOLEAN) SERVER KAFKA10_SERVER
      OPTIONS (TOPIC '{doors}', PARSER 'CSV', SEPARATOR ';', "SEED_BROKERS" 'elsewhere');
    CREATE FOREIGN STREAM visitors (badge INTEGER, seen TIMESTAMP) SERVER KAFKA10_SERVER
      OPTIONS (TOPIC '{lobby}', PARSER 'JSON', ROWTIME 'seen');
    CREATE FOREIGN STREAM alarms (badge INTEGER, "door" VARCHAR(9), late BIGINT) SERVER KAFKA10_SERVER
      OPTIONS (TOPIC '{alarms}', FORMATTER 'JSON');
    CREATE PUMP ring STARTED AS INSERT INTO alarms SELECT STREAM p.badge, p."door", CAST(v.badge AS BIGINT)
      FROM passages OVER (RANGE INTERVAL '1' SECOND PRECEDING) AS p
      JOIN visitors OVER (RANGE INTERVAL '1' SECOND PRECEDING) AS v ON p.badge = v.badge;"""
    said = ran(text, "sqlstream", broker, tmp_path)
    assert [v for _, v in values(broker, alarms)] == [{"BADGE": 9, "door": "a;b", "LATE": 9}]
    assert "1 malformed" in said, said


def test_a_view_of_one_group_has_its_row_from_the_start(broker: Broker, tmp_path: Path) -> None:
    t, v, w = fresh("t", "v", "w")
    text = f"""CREATE TABLE {t} (k INT PRIMARY KEY, x INT);
    CREATE MATERIALIZED VIEW {v} AS SELECT count(*) AS n, sum(x) AS s FROM {t};
    CREATE MATERIALIZED VIEW {w} AS SELECT n + 100 AS n FROM {v};"""
    for more, want in (("", [(0, None)]), (f"INSERT INTO {t} VALUES (1, 5);", [(0, None), (1, 5)])):
        for _ in range(2):
            ran(f"{text} {more}", "risingwave", broker, tmp_path)
            assert [(x["n"], x["s"]) for _, x in values(broker, v)] == want  # type: ignore[index]
        assert [x["n"] for _, x in values(broker, w)] == [n + 100 for n, _ in want]  # type: ignore[index]
