"""What the crash tests run: queries, their input, and what must be in their topics at the end.

In: a seed, how many records a partition. Out: SQL, the input, the lines of each output partition.
Rule: the lines come from the oracle (`braid.reference`), record by record, never from an undisturbed run. All input
lies there from the start: while a backlog is read the order, and so the output, does not depend on how it is cut.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

from braid.bind.program import Program
from braid.plan.logical import Query
from braid.reference import OutRecord, Reference
from histories import History, Raw, events

PARTITIONS = 2

SOURCES = """
CREATE STREAM l (k INT KEY, v VARCHAR, n INT) WITH (kafka_topic = '@l', value_format = 'JSON', partitions = 2);
CREATE STREAM r (k INT KEY, v VARCHAR, n INT) WITH (kafka_topic = '@r', value_format = 'JSON', partitions = 2);
CREATE TABLE a (k INT PRIMARY KEY, v VARCHAR, n INT) WITH (kafka_topic = '@a', value_format = 'JSON', partitions = 2);
CREATE TABLE b (k INT PRIMARY KEY, v VARCHAR, n INT) WITH (kafka_topic = '@b', value_format = 'JSON', partitions = 2);
"""
# An outer join that waits for GRACE; two tables with tombstones; a chain on two keys, so of two stages.
QUERIES = {
    "WINDOWED": """
CREATE STREAM windowed WITH (kafka_topic = '@WINDOWED') AS SELECT ROWKEY AS k, l.v AS lv, r.v AS rv FROM l FULL JOIN r
  WITHIN 3 SECONDS GRACE PERIOD 1 SECOND ON l.k = r.k;
""",
    "CHAINED": """
CREATE STREAM chained WITH (kafka_topic = '@CHAINED') AS SELECT l.n AS n, l.v AS lv, r.v AS rv, a.v AS av FROM l
  JOIN r WITHIN 2 SECONDS GRACE PERIOD 2 SECONDS ON l.k = r.k LEFT JOIN a ON l.n = a.k;
""",
    "TABLES": """
CREATE TABLE tables WITH (kafka_topic = '@TABLES') AS SELECT ROWKEY AS k, a.v AS av, b.v AS bv
  FROM a FULL JOIN b ON a.k = b.k;
""",
}

Lines = list[list[str]]


def history(seed: int, rows: int) -> History:
    """About `rows` records in each of eight partitions: late ones (some too late), ties, nulls, a key now and then."""
    rng = random.Random(f"crash {seed}")
    topics: dict[str, list[list[Raw]]] = {}
    for topic in "lrab":
        table = topic in "ab"
        topics[topic] = []
        for partition in range(PARTITIONS):
            now, records = 1_000_000.0 + rng.randint(0, 500), []
            for i in range(rows):
                now += rng.choice([0, 20, 60, 150, 170])
                late = rng.choice([500, 3_000, 9_000]) if rng.random() < 0.15 else 0
                key = rng.randrange(12) if table or rng.random() > 0.03 else None
                value: dict[str, object] | None = {"V": f"{topic}{partition}-{i}", "N": rng.choice([None, *range(12)])}
                if rng.random() < (0.2 if table else 0.03):
                    value = None
                records.append(Raw(0, key, value, int(now) - late))
            topics[topic].append(records)
    return History(topics, explicit=False, ends=False)


def sql(names: Sequence[str], prefix: str = "") -> str:
    """`prefix`: what the names of all topics begin with."""
    return (SOURCES + "".join(QUERIES[name] for name in names)).replace("@", prefix)


def line(key: object, value: object, time: int) -> str:
    """A record, as it lies in the store."""
    return json.dumps({"key": key, "value": value, "timestamp": time}, separators=(",", ":"))


def expected(made: History, names: Sequence[str], placed: Callable[[Sequence[str]], list[int]]) -> dict[str, Lines]:
    """The lines of each partition of each query's topic, as the oracle has them; `placed`: where keys go."""
    found = [e.query for e in Program("ksqldb").statements(sql(names)) if e.query is not None]
    return {q.name: _lines(q, Reference(q).process(events(q, made)), placed) for q in found}


def _lines(query: Query, rows: list[OutRecord], placed: Callable[[Sequence[str]], list[int]]) -> Lines:
    keys = [json.dumps(row.key[0]) for row in rows if row.key is not None]
    found: Lines = [[] for _ in range(PARTITIONS)]
    for row, key, partition in zip(rows, keys, placed(keys), strict=True):
        assert isinstance(row.time, int)
        names = [o.name for o in query.sink.values]
        value = None if row.values is None else {name: row.values[name] for name in names}
        found[partition].append(line(json.loads(key), value, row.time))
    return found


def difference(got: dict[str, Lines], want: dict[str, Lines]) -> str | None:
    """Where two results part: the topic, the partition, the offset; None where they do not."""
    for name, partitions in want.items():
        for p, lines in enumerate(partitions):
            mine = got[name][p] if p < len(got[name]) else []
            if mine == lines:
                continue
            at = next((i for i, (g, w) in enumerate(zip(mine, lines, strict=False)) if g != w), -1)
            at = min(len(mine), len(lines)) if at < 0 else at
            head = f"{name}, partition {p}, offset {at} ({len(mine)} records, {len(lines)} expected)"
            return f"{head}\n  want {lines[at : at + 3]}\n  got  {mine[at : at + 3]}"
    return None
