"""Rows that wait are counted, and their time is the time at which they go.

In: queries of which rows wait, random rows out of order, some taken back. Out: what is told of those that wait.
Rule: so many rows as are told to wait go out at the end of the input; none before the clock comes to the first's time,
and one then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from braid.face.waiting import lines
from braid.stage import waiting as waits
from braid.stage.call_order import Ranks, partition_ranks
from braid.stage.waiting import Waiting
from braid.testing.backend import LocalBackend
from braid.testing.driver import Driver

STREAMS = "".join(
    f"CREATE STREAM {n} (k INT KEY, v INT) WITH (kafka_topic='{n}', value_format='JSON', partitions={p});\n"
    for n, p in (("l", 1), ("r", 1), ("two", 2), ("other", 2))
)
JOIN = """CREATE STREAM o AS SELECT l.k AS k, l.v AS a, r.v AS b FROM l {} JOIN r
  WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k;"""
GROUP = "CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM l WINDOW {} GROUP BY k EMIT FINAL;"
KSQL = {how: STREAMS + JOIN.format(how) for how in ("LEFT", "RIGHT", "FULL")} | {
    "tumbling": STREAMS + GROUP.format("TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS)"),
    "hopping": STREAMS + GROUP.format("HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS, GRACE PERIOD 1 SECOND)"),
    "sessions": STREAMS + GROUP.format("SESSION (3 SECONDS, GRACE PERIOD 5 SECONDS)"),
}
LENSES = """
SET defaults.topic.autocreate=true;
CREATE TABLE l(_key INT, v INT) FORMAT (INT, JSON);
CREATE TABLE r(_key INT, v INT) FORMAT (INT, JSON);
WITH a AS (SELECT STREAM * FROM l);
WITH b AS (SELECT STREAM * FROM r);
INSERT INTO o SELECT STREAM a.v AS x, b.v AS y FROM a {} JOIN b WITHIN 10s;
"""
RISINGWAVE = """
CREATE TABLE l (k INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) APPEND ONLY;
CREATE TABLE r (k INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) APPEND ONLY;
CREATE MATERIALIZED VIEW o AS {};
"""
CLOSED = {
    "rows": "SELECT k, v, window_end FROM TUMBLE(l, ts, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE",
    "groups": """SELECT window_start, k, COUNT(*) AS n FROM TUMBLE(l, ts, INTERVAL '10' SECOND)
      GROUP BY window_start, k EMIT ON WINDOW CLOSE""",
    "outer": """SELECT l.v AS a, r.v AS b, l.ts FROM l LEFT JOIN r
      ON l.k = r.k AND l.ts BETWEEN r.ts AND r.ts + INTERVAL '10' SECOND EMIT ON WINDOW CLOSE""",
}


SQLSTREAM = """
CREATE STREAM l (k INT, v INT);
CREATE STREAM r (k INT, v INT);
CREATE TABLE t (k INT PRIMARY KEY, w INT);
CREATE VIEW o AS SELECT STREAM {};
"""
INSTANTS = {
    "a preserved stream": "l.v AS a, t.w AS b FROM l LEFT JOIN t ON l.k = t.k",
    "streams": "l.v AS a, r.v AS b FROM l OVER (RANGE INTERVAL '9' SECOND PRECEDING) JOIN r"
    " OVER (RANGE INTERVAL '9' SECOND PRECEDING) ON l.k = r.k",
    "rows": "l.v AS a, r.v AS b FROM l OVER (ROWS 3 PRECEDING) JOIN r OVER (ROWS 3 PRECEDING) ON l.k = r.k",
}


def told(driver: Driver) -> Sequence[Waiting]:
    """Of the one query."""
    backend = driver._backend
    assert isinstance(backend, LocalBackend)
    backend.pump()
    (running,) = backend.queries.values()
    states = {f"{s}/{b}": x for s, buckets in enumerate(running.local._states) for b, x in enumerate(buckets)}
    documents = {place: x.document() for place, x in states.items()}
    plan = running.local.plan
    counts = {leaf.number: backend.topics[leaf.source.topic].partitions for leaf in plan.leaves}
    ranks = {f"{leaf}/{p}": rank for (leaf, p), rank in partition_ranks(plan, counts).items()}
    return waits.waiting(plan, documents, lambda place: states[place].runs, Ranks(ranks, plan, None))


def rows_of(seed: int, count: int = 120) -> list[tuple[str, int, int, int]]:
    """(side, key, value, time): out of order by up to six seconds."""
    made = random.Random(seed)
    return [
        (made.choice("lr"), made.randrange(60), n, max(0, 1000 * n + made.randrange(-6000, 1))) for n in range(count)
    ]


def as_told(driver: Driver, write: Callable[[str, int, int, int], None]) -> None:
    """What is told of rows that wait is what comes. (A driver reads what is new.)"""
    (one,) = told(driver)
    driver.read("o")
    assert one.rows > 0 and one.exact and one.first is not None and one.now is not None
    for time, goes in ((one.first - one.reached, False), (one.first + (not one.reached), True)):
        if time > one.now:
            write("l", 99, 0, time)
            assert bool(driver.read("o")) is goes, time
    count = sum(x.rows for x in told(driver))
    for key, side in enumerate("lr", 97):  # whose rows wait themselves
        write(side, key, 0, 10**9)
    assert len(driver.read("o")) == count > 0


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("name", KSQL)
def test_ksqldb(name: str, buckets: int) -> None:
    with Driver("ksqldb", batch=7, buckets=buckets) as driver:
        driver.execute(KSQL[name])

        def write(side: str, k: int, v: int, t: int) -> None:
            driver.write(side, k, {"V": v}, t)

        for row in rows_of(5):
            write(*row)
        as_told(driver, write)


@pytest.mark.parametrize("how", ["LEFT", "RIGHT", "OUTER"])
def test_lenses(how: str) -> None:
    with Driver("lenses", batch=7, buckets=2) as driver:
        driver.execute(LENSES.format(how))

        def write(side: str, k: int, v: int, t: int) -> None:
            driver.write(side, k, {"v": v}, t)

        for row in rows_of(6):
            write(*row)
        found = told(driver)
        driver.read("o")
        driver.finish()
        assert len(driver.read("o")) == sum(x.rows for x in found) > 0


@pytest.mark.parametrize("name", CLOSED)
def test_risingwave(name: str) -> None:
    with Driver("risingwave", batch=7, buckets=2) as driver:
        driver.execute(RISINGWAVE.format(CLOSED[name]))

        def write(side: str, k: int, v: int, t: int) -> None:
            driver.write(side, None, {"k": k, "v": v, "ts": f"2024-01-01T00:{t // 60000:02}:{t / 1000 % 60:06.3f}"})

        for row in rows_of(7):
            write(*row)
        found = told(driver)
        driver.read("o")
        driver.finish()
        assert len(driver.read("o")) == sum(x.rows - x.never for x in found) > 0


@pytest.mark.parametrize("name", INSTANTS)
def test_sqlstream(name: str) -> None:
    """Streams that the joined clock has not come to: one of them goes on, the other stands still."""
    with Driver("sqlstream", batch=7, buckets=2) as driver:
        driver.execute(SQLSTREAM.format(INSTANTS[name]))
        driver.write("r", None, {"K": 1, "V": 1}, 20_000)
        for n in range(60):
            driver.write("l", None, {"K": n, "V": n}, 1000 * n)
        if "t ON" in INSTANTS[name]:  # its own clock has come to each row
            assert told(driver) == [] and len(driver.read("o")) == 60
            return
        (one,) = told(driver)
        assert one.exact and one.waits_for == "its instant" and one.now == 20_000
        assert one.rows == 39 + (name == "rows") * 2 and one.reached is (name == "streams")
        driver.read("o")
        driver.write("r", None, {"K": 25, "V": 1}, 25_000)  # up to here
        (less,) = told(driver)
        assert less.now == 25_000 and less.rows == one.rows - 5 and (len(driver.read("o")) > 0) is (name == "streams")
        driver.finish()
        assert told(driver) == []


PERIODS = {
    "groups": "k, COUNT(*) AS n FROM l GROUP BY k, STEP(l.ROWTIME BY INTERVAL '10' SECOND)",
    "rows": "k FROM l ORDER BY STEP(l.ROWTIME BY INTERVAL '10' SECOND), v DESC",
}


@pytest.mark.parametrize("name", PERIODS)
def test_periods_that_are_not_over(name: str) -> None:
    with Driver("sqlstream", batch=7, buckets=2) as driver:
        driver.execute(SQLSTREAM.format(PERIODS[name]))
        for n in range(57):
            driver.write("l", None, {"K": n % 3, "V": n}, 1000 * n)
        driver.read("o")
        (one,) = told(driver)
        assert (one.rows, one.first, one.now) == (3 if name == "groups" else 7, 60_000, 56_000)
        assert one.exact and one.reached and one.waits_for == "its period to end"
        driver.write("l", None, {"K": 1, "V": 0}, 59_999)
        assert not driver.read("o")
        driver.write("l", None, {"K": 1, "V": 0}, 60_000)
        assert len(driver.read("o")) == (3 if name == "groups" else 8)
        assert [x.rows for x in told(driver)] == [1]
        driver.finish()
        assert told(driver) == []


EXPIRING = {
    "LEFT": "l.v AS a, r.v AS b FROM l OVER w LEFT JOIN r OVER w ON l.k = r.k",
    "RIGHT": "l.v AS a, r.v AS b FROM l OVER w RIGHT JOIN r OVER w ON l.k = r.k",
    "FULL": "l.v AS a, r.v AS b FROM l OVER w FULL JOIN r OVER w ON l.k = r.k AND l.v < r.v",
    "chain": "l.v AS a, r.v AS b FROM l OVER w JOIN r OVER w ON l.k = r.k LEFT JOIN r OVER w AS x ON l.v = x.v",
}


@pytest.mark.parametrize("name", EXPIRING)
def test_rows_that_wait_for_the_end_of_their_life(name: str) -> None:
    """What is told of them is what the oracle gives alone for the rows that are there, if no other comes."""
    text = EXPIRING[name] + " WINDOW w AS (RANGE INTERVAL '9' SECOND PRECEDING)"
    sql = "SET 'braid.outer.emission' = 'expiry';" + SQLSTREAM.format(text)
    with Driver("sqlstream", batch=7, buckets=2) as driver:
        driver.execute(sql)
        for n, (side, k, v, t) in enumerate(sorted(rows_of(8), key=lambda row: row[3])):
            driver.write(side, None, {"K": k % 6, "V": v}, t)
            if n % 20 == 19:
                driver.read("o")
                found = told(driver)
                passed = [one for one in found if not one.reached]
                assert len(found) <= 2 and len(passed) <= 1
        assert len(passed) == 1 and passed[0].rows > 0
        ahead = sum(one.rows for one in found if one.reached)
        driver.finish()
        rest = [r.value for r in driver.read("o")]
        alone = [x for x in rest if x is not None and (x["A"] is None or x["B"] is None or name == "chain")]
        assert passed[0].rows <= len(alone) <= passed[0].rows + ahead
        assert told(driver) == []


def test_who_holds_it_up_is_told() -> None:
    """A partition that lags, a source without a record; and a state too large to be counted."""
    sql = STREAMS + JOIN.format("LEFT").replace("FROM l LEFT JOIN r", "FROM two AS l LEFT JOIN other AS r")
    with Driver("ksqldb") as driver:
        driver.execute(sql)
        for partition, time in ((1, 1_000), (0, 50_000)):
            driver.write("two", partition, {"V": 1}, time, partition=partition)
        (line,) = lines("O", told(driver), "wait")
        assert line == (
            "O: 2 rows wait for a match until the clock of TWO and OTHER, now 1970-01-01T00:00:01.000Z, passes"
            " 1970-01-01T00:00:16.000Z (the last of them 1970-01-01T00:01:05.000Z); TWO is held up by its partition 1,"
            " at 1970-01-01T00:00:01.000Z; OTHER has shown no record; wait"
        )
        most, waits.LOOKED = waits.LOOKED, 1
        try:
            assert lines("O", told(driver)) == ["O: up to 2 rows wait for a match"]
        finally:
            waits.LOOKED = most
