"""What a bounded query keeps: no more after a long history than its window holds.

In: each kind of bounded query, and rows whose time goes on by a second each. Out: the rows in its state.
Rule: what EXPLAIN calls bounded is forgotten; outputs cannot show that, as what is kept too long meets nothing.
"""

from __future__ import annotations

import pytest

import effort
from braid.testing.driver import Driver

pytestmark = pytest.mark.heavy
SECONDS = 1200 if effort.LAW else 400
MOST = 200  # rows of one store: some windows of ten seconds, a batch, and as much that has not been merged away

KSQL = """
CREATE STREAM l (k INT KEY, v INT) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM r (k INT KEY, v INT) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS {};
"""
KSQL_QUERIES = {
    how: f"""SELECT l.k AS k, l.v AS a, r.v AS b FROM l {how} JOIN r
      WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k"""
    for how in ("INNER", "LEFT", "RIGHT", "FULL")
}

LENSES = """
SET defaults.topic.autocreate=true;
SET braid.lenses.retention=10s;
CREATE TABLE l(_key INT, v INT) FORMAT (INT, JSON);
CREATE TABLE r(_key INT, v INT) FORMAT (INT, JSON);
WITH a AS (SELECT STREAM * FROM l);
WITH b AS (SELECT {kind} * FROM r);
INSERT INTO o SELECT STREAM a.v AS x, b.v AS y FROM a {join};
"""
LENSES_JOINS = {how: ("STREAM", f"{how} JOIN b WITHIN 10s") for how in ("INNER", "LEFT", "RIGHT", "OUTER")}
LENSES_JOINS["table"] = ("TABLE", "LEFT JOIN b")

SQLSTREAM = """
CREATE STREAM l (k INTEGER, v INTEGER);
CREATE STREAM r (k INTEGER, v INTEGER);
CREATE TABLE t (k INTEGER);
INSERT INTO t VALUES (1), (2);
CREATE VIEW o AS SELECT STREAM l.v AS a, r.v AS b FROM l {0} {how} JOIN r {0} ON l.k = r.k;
"""
FRAMES = {"range": "OVER (RANGE INTERVAL '10' SECOND PRECEDING)", "rows": "OVER (ROWS 5 PRECEDING)"}

SQLSTREAM_PERIODS = {
    "groups": "SELECT STREAM k, COUNT(DISTINCT v) AS n FROM l GROUP BY k, STEP(l.ROWTIME BY INTERVAL '10' SECOND)",
    "distinct": "SELECT STREAM DISTINCT k, STEP(l.ROWTIME BY INTERVAL '10' SECOND) AS s FROM l",
    "analytic": """SELECT STREAM SUM(v) OVER (PARTITION BY k RANGE INTERVAL '10' SECOND PRECEDING) AS s,
      AVG(v) OVER (PARTITION BY k ROWS 4 PRECEDING) AS a, LAG(v) OVER (ROWS 5 PRECEDING) AS b FROM l""",
    "windows that stagger": """SELECT STREAM v, COUNT(*) AS n FROM l
      WINDOWED BY STAGGER (PARTITION BY v RANGE INTERVAL '10' SECOND)""",
    "analytic of keys that go": """SELECT STREAM SUM(v) OVER (PARTITION BY v RANGE INTERVAL '10' SECOND PRECEDING) AS s,
      COUNT(*) OVER (RANGE INTERVAL '3' SECOND PRECEDING) AS n FROM l""",
    "sorted": "SELECT STREAM * FROM l ORDER BY STEP(l.ROWTIME BY INTERVAL '10' SECOND), v DESC",
}

RISINGWAVE = """
CREATE TABLE l (k INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) APPEND ONLY;
CREATE TABLE r (k INT, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) APPEND ONLY;
CREATE MATERIALIZED VIEW o AS {};
"""
RISINGWAVE_QUERIES = {
    "interval": """SELECT l.v AS a, r.v AS b FROM l JOIN r
      ON l.k = r.k AND l.ts BETWEEN r.ts AND r.ts + INTERVAL '10' SECOND""",
    "windows": """SELECT l.v AS a, r.v AS b, l.window_start FROM TUMBLE(l, ts, INTERVAL '10' SECOND) AS l
      JOIN TUMBLE(r, ts, INTERVAL '10' SECOND) AS r ON l.k = r.k AND l.window_start = r.window_start""",
    "closed": """SELECT k, v, window_end FROM TUMBLE(l, ts, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE""",
    "groups": """SELECT window_start, k, COUNT(*) AS n, MAX(v) AS m FROM TUMBLE(l, ts, INTERVAL '10' SECOND)
      GROUP BY window_start, k""",
    "closed groups": """SELECT window_start, k, COUNT(*) AS n FROM TUMBLE(l, ts, INTERVAL '10' SECOND)
      GROUP BY window_start, k EMIT ON WINDOW CLOSE""",
    "hops": """SELECT window_end, SUM(v) AS n FROM HOP(l, ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND)
      GROUP BY window_end HAVING COUNT(*) > 1""",
    "distinct": "SELECT DISTINCT k, ts FROM l",
    "outer interval": """SELECT l.v AS a, r.v AS b, l.ts FROM l FULL JOIN r
      ON l.k = r.k AND l.ts BETWEEN r.ts AND r.ts + INTERVAL '10' SECOND EMIT ON WINDOW CLOSE""",
    "extremes": """SELECT l.ts, COUNT(*) AS n, MAX(r.v) AS m FROM l LEFT JOIN r
      ON l.k = r.k AND l.ts BETWEEN r.ts AND r.ts + INTERVAL '10' SECOND GROUP BY l.ts""",
    "closed extremes": """SELECT l.window_start, MIN(r.v) AS m FROM TUMBLE(l, ts, INTERVAL '10' SECOND) AS l
      FULL JOIN TUMBLE(r, ts, INTERVAL '10' SECOND) AS r ON l.k = r.k AND l.window_start = r.window_start
      GROUP BY l.window_start EMIT ON WINDOW CLOSE""",
    "a view of groups": "SELECT window_start, SUM(n) AS n FROM g GROUP BY window_start",
    "over": """SELECT window_start, v, SUM(v) OVER (PARTITION BY window_start, k ORDER BY ts) AS s
      FROM TUMBLE(l, ts, INTERVAL '10' SECOND)""",
    "first rows": "SELECT v FROM (SELECT v, ROW_NUMBER() OVER (ORDER BY v DESC) AS n FROM l) x WHERE n <= 3",
}
NUMBERED = RISINGWAVE.replace("ts TIMESTAMP", "ts BIGINT").replace("INTERVAL '2' SECOND", "2")
NUMBERED_QUERIES = {
    "pairs": "SELECT l.v AS a, r.v AS b FROM l JOIN r ON l.k = r.k AND l.ts BETWEEN r.ts AND r.ts + 10",
    "padded": """SELECT coalesce(l.ts, r.ts) AS t, l.v AS a, r.v AS b FROM l FULL JOIN r
      ON l.k = r.k AND l.ts BETWEEN r.ts - 10 AND r.ts EMIT ON WINDOW CLOSE""",
    "groups": "SELECT ts + 10 AS t, COUNT(*) AS n FROM l GROUP BY ts + 10 EMIT ON WINDOW CLOSE",
}
GROUPS = f"CREATE MATERIALIZED VIEW g AS {RISINGWAVE_QUERIES['groups']};"
# What reads a watermark, and what of it is kept; late rows being dropped, and windows being made, keep nothing.
KEPT = {
    "interval": {"interval join left", "interval join right"},
    "windows": {"window join left", "window join right"},
    "closed": {"emit on window close waiting"},
    "groups": {"aggregate groups"},
    "closed groups": {"aggregate groups", "emit on window close waiting"},
    "hops": {"aggregate groups"},
    "distinct": {"aggregate groups"},
    "outer interval": {"interval join left", "interval join right", "emit on window close waiting"},
    "extremes": {"interval join left", "interval join right", "aggregate groups", "aggregate values0"},
    "closed extremes": {"window join left", "window join right", "aggregate groups", "aggregate values0",
                        "emit on window close waiting"},
    "a view of groups": {"aggregate groups", "changes rows"},
    "over": {"over rows"},
    "first rows": {"over rows"},
}  # fmt: skip


def check(driver: Driver, query: str = "o") -> dict[str, int]:
    nodes = driver.explain(query, state=True)["nodes"]
    assert any(kept["bounded"] for n in nodes for kept in n["state"])
    found = {f"{n['op']} {name}": kept["rows"] for n in nodes for name, kept in n.get("live", {}).items()}
    assert 0 < max(found.values()) < MOST, found
    return found


@pytest.mark.parametrize("name", KSQL_QUERIES)
def test_ksqldb(name: str) -> None:
    with Driver("ksqldb", batch=50) as driver:
        driver.execute(KSQL.format(KSQL_QUERIES[name]))
        for s in range(SECONDS):
            driver.write("l", s % 7, {"V": s}, 1000 * s)
            driver.write("r", s % 5, {"V": s}, 1000 * s)
        check(driver)


@pytest.mark.parametrize("name", LENSES_JOINS)
def test_lenses(name: str) -> None:
    """A row of the left that finds no row in the table waits for it."""
    kind, join = LENSES_JOINS[name]
    with Driver("lenses", batch=50) as driver:
        driver.execute(LENSES.format(kind=kind, join=join))
        for s in range(SECONDS):
            driver.write("l", s % 7, {"v": s}, 1000 * s)
            driver.write("r", s % 5, {"v": s}, 1000 * s)
        check(driver, "o.1")


@pytest.mark.parametrize("how", ["INNER", "LEFT", "RIGHT", "FULL"])
@pytest.mark.parametrize("frame", FRAMES)
def test_sqlstream(frame: str, how: str) -> None:
    with Driver("sqlstream", batch=50) as driver:
        driver.execute(SQLSTREAM.format(FRAMES[frame], how=how))
        for s in range(SECONDS):
            driver.write("l", None, {"K": s % 7, "V": s}, 1000 * s)
            driver.write("r", None, {"K": s % 5, "V": s}, 1000 * s)
        check(driver)


@pytest.mark.parametrize("name", SQLSTREAM_PERIODS)
def test_sqlstream_periods(name: str) -> None:
    with Driver("sqlstream", batch=50) as driver:
        driver.execute(f"CREATE STREAM l (k INTEGER, v INTEGER);\nCREATE VIEW o AS {SQLSTREAM_PERIODS[name]};")
        for s in range(SECONDS):
            driver.write("l", None, {"K": s % 7, "V": s}, 1000 * s)
        check(driver)


@pytest.mark.parametrize("name", RISINGWAVE_QUERIES)
def test_risingwave(name: str) -> None:
    with Driver("risingwave") as driver:
        view = RISINGWAVE.format(RISINGWAVE_QUERIES[name])
        driver.execute(view.replace("CREATE MATERIALIZED VIEW o", f"{GROUPS} CREATE MATERIALIZED VIEW o"))
        for first in range(0, SECONDS, 50):
            for table, keys in (("l", 7), ("r", 5)):
                rows = (
                    f"({s % keys}, {s}, '2024-01-01 {10 + s // 3600}:{s // 60 % 60:02}:{s % 60:02}')"
                    for s in range(first, first + 50)
                )
                driver.execute(f"INSERT INTO {table} VALUES {', '.join(rows)};")
            driver.read("o")
        assert set(check(driver)) == KEPT[name]


@pytest.mark.parametrize("name", NUMBERED_QUERIES)
def test_risingwave_by_numbers(name: str) -> None:
    """A watermark may be that of a whole number."""
    with Driver("risingwave") as driver:
        driver.execute(NUMBERED.format(NUMBERED_QUERIES[name]))
        for first in range(0, SECONDS, 50):
            for table, keys in (("l", 7), ("r", 5)):
                rows = (f"({s % keys}, {s}, {s})" for s in range(first, first + 50))
                driver.execute(f"INSERT INTO {table} VALUES {', '.join(rows)};")
            driver.read("o")
        check(driver)
