"""Queries over more sources than a position numbers: it numbers the readings of one topic."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from braid.testing.driver import Driver

MANY = 20


def ksqldb(rng: random.Random) -> tuple[str, Callable[[Driver], None]]:
    """A stream and tables, each of a topic of its own."""
    tables = [f"t{n}" for n in range(MANY - 1)]
    made = [f"CREATE TABLE {t} (k INT PRIMARY KEY, v INT) WITH (kafka_topic='{t}', value_format='JSON', partitions=1);"
            for t in tables]  # fmt: skip
    joined = " ".join(f"LEFT JOIN {t} ON s.k = {t}.k" for t in tables)
    values = ", ".join(f"{t}.v AS v{n}" for n, t in enumerate(tables))
    stream = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
    sql = f"{' '.join(made)} {stream} CREATE STREAM o AS SELECT s.k AS k, s.v AS v, {values} FROM s {joined};"

    def write(driver: Driver) -> None:
        for i in range(60):
            topic = "s" if rng.random() < 0.3 else rng.choice(tables)
            driver.write(topic, rng.choice([1, 2, None]), rng.choice([None, {"V": i}]), 10 * i)

    return sql, write


def risingwave(rng: random.Random) -> tuple[str, Callable[[Driver], None]]:
    """Two tables, each read ten times."""
    read = [rng.choice("ab") if 1 < n < MANY - 2 else "ab"[n % 2] for n in range(MANY)]
    while max(map(read.count, "ab")) > 16:
        read[read.index(max("ab", key=read.count))] = min("ab", key=read.count)
    joined = " ".join(f"{rng.choice(['JOIN', 'LEFT JOIN'])} {t} AS x{n} ON x{n}.id = x{n - 1}.v"
                      for n, t in enumerate(read[1:], 1))  # fmt: skip
    shown = ", ".join(f"x{n}.id AS i{n}" for n in range(MANY))
    sql = f"""CREATE TABLE a (id INT PRIMARY KEY, v INT); CREATE TABLE b (id INT PRIMARY KEY, v INT);
      CREATE MATERIALIZED VIEW o AS SELECT {shown} FROM {read[0]} AS x0 {joined};"""

    def write(driver: Driver) -> None:
        for _ in range(12):
            rows = ", ".join(f"({n}, {rng.choice([1, 2, 3])})" for n in rng.sample([1, 2, 3], 2))
            driver.execute(f"INSERT INTO {rng.choice('ab')} VALUES {rows};")

    return sql, write


def sqlstream(rng: random.Random) -> tuple[str, Callable[[Driver], None]]:
    """Streams that are late at times."""
    streams = [f"s{n}" for n in range(MANY)]
    made = " ".join(f"CREATE STREAM {s} (k INT, v{n} INT);" for n, s in enumerate(streams))
    over = "OVER (RANGE INTERVAL '1' SECOND PRECEDING)"
    joined = " ".join(f"LEFT JOIN {s} {over} AS {s} ON {s}.k = s0.k" for s in streams[1:])
    values = ", ".join(f"s{n}.v{n}" for n in range(MANY))
    sql = f"{made} CREATE VIEW o AS SELECT STREAM s0.k, {values} FROM s0 {over} AS s0 {joined};"

    def write(driver: Driver) -> None:
        for i in range(50):
            n = 0 if rng.random() < 0.2 else rng.randrange(MANY)
            driver.write(
                f"S{n}", None, {"K": rng.choice([1, 2]), f"V{n}": i}, 100 * max(0, i - rng.choice([0, 0, 3, 20]))
            )

    return sql, write


SHAPES = {"ksqldb": ksqldb, "risingwave": risingwave, "sqlstream": sqlstream}


@pytest.mark.parametrize("dialect", SHAPES)
def test_the_same_as_the_reference(dialect: str) -> None:
    """Rows, their order, and what is dropped, whatever the batches."""
    found = []
    for runtime, batch in (("reference", None), ("local", None), ("local", 7)):
        rng = random.Random(dialect)
        sql, write = SHAPES[dialect](rng)
        with Driver(dialect, runtime, batch, 3) as driver:  # type: ignore[arg-type]
            driver.execute(sql)
            write(driver)
            driver.finish()
            rows = [(r.key, r.value, r.timestamp) for r in driver.read("o" if dialect != "ksqldb" else "O")]
            found.append((rows, sorted(map(str, driver.drops("o" if dialect != "ksqldb" else "O")))))
    assert found[0][0]
    assert all(x[0] == found[0][0] for x in found)
    assert all(x[1] == found[1][1] for x in found[1:])
    if dialect == "sqlstream":
        assert len(found[0][1]) == len(found[1][1]) > 0
        for told in found[1][1]:
            topic = told.split("'topic': '")[1].split("'")[0]
            assert f"'{topic}.V{topic[1:]}'" in told, told
