"""What the crash tests run: queries, their input, and what must be in their topics at the end.

In: a seed, how many records a partition. Out: SQL, a topic store with the input, the lines of each output partition.
Rule: the lines come from the oracle (`braid.reference`), record by record, never from an undisturbed run. All input
lies there from the start: while a backlog is read the order, and so the output, does not depend on how it is cut.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from braid.bind.program import Program
from braid.plan.logical import Query
from braid.records.key import key_hash
from braid.reference import OutRecord, Reference
from braid.topics import TopicStore
from histories import History, Raw, events

PARTITIONS = 2

SOURCES = """
CREATE STREAM l (k INT KEY, v VARCHAR, n INT) WITH (kafka_topic = 'l', value_format = 'JSON', partitions = 2);
CREATE STREAM r (k INT KEY, v VARCHAR, n INT) WITH (kafka_topic = 'r', value_format = 'JSON', partitions = 2);
CREATE TABLE a (k INT PRIMARY KEY, v VARCHAR, n INT) WITH (kafka_topic = 'a', value_format = 'JSON', partitions = 2);
CREATE TABLE b (k INT PRIMARY KEY, v VARCHAR, n INT) WITH (kafka_topic = 'b', value_format = 'JSON', partitions = 2);
"""
# An outer join that waits for GRACE; two tables with tombstones; a chain on two keys, so of two stages.
QUERIES = {
    "WINDOWED": """
CREATE STREAM windowed AS SELECT ROWKEY AS k, l.v AS lv, r.v AS rv FROM l FULL JOIN r
  WITHIN 3 SECONDS GRACE PERIOD 1 SECOND ON l.k = r.k;
""",
    "CHAINED": """
CREATE STREAM chained AS SELECT l.n AS n, l.v AS lv, r.v AS rv, a.v AS av FROM l
  JOIN r WITHIN 2 SECONDS GRACE PERIOD 2 SECONDS ON l.k = r.k LEFT JOIN a ON l.n = a.k;
""",
    "TABLES": """
CREATE TABLE tables AS SELECT ROWKEY AS k, a.v AS av, b.v AS bv FROM a FULL JOIN b ON a.k = b.k;
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


def write(store: TopicStore, made: History) -> None:
    """The input's topics, in several segments each."""
    for topic, partitions in made.topics.items():
        store.create(topic, len(partitions))
        for p, records in enumerate(partitions):
            lines = [json.dumps({"key": r.key, "value": r.value, "timestamp": r.time}) for r in records]
            for start in range(0, len(lines), 100):
                store.append_lines(topic, lines[start : start + 100], p)


def sql(names: Sequence[str]) -> str:
    return SOURCES + "".join(QUERIES[name] for name in names)


def expected(made: History, names: Sequence[str]) -> dict[str, Lines]:
    """The lines of each partition of each output topic, as the oracle has them."""
    found = [e.query for e in Program("ksqldb").statements(sql(names)) if e.query is not None]
    return {q.sink.topic: _lines(q, Reference(q).process(events(q, made))) for q in found}


def _lines(query: Query, rows: list[OutRecord]) -> Lines:
    keys = [None if row.key is None else json.dumps(row.key[0]) for row in rows]
    hashes = key_hash(pl.Series("k", keys, dtype=pl.String))
    found: Lines = [[] for _ in range(PARTITIONS)]
    for row, key, hashed in zip(rows, keys, hashes, strict=True):
        assert key is not None and isinstance(row.time, int)
        names = [o.name for o in query.sink.values]
        value = None if row.values is None else {name: row.values[name] for name in names}
        record = {"key": json.loads(key), "value": value, "timestamp": row.time}
        found[hashed % PARTITIONS].append(json.dumps(record, separators=(",", ":")))
    return found


def written(store: Path, names: Sequence[str]) -> dict[str, Lines]:
    """What the output topics hold; one that is not there yet is empty."""
    topics = TopicStore(store)
    there = topics.names()
    return {
        name: [topics.read(name, p, 0, end)["_line"].to_list() for p, end in enumerate(topics.end_offsets(name))]
        if name in there
        else [[] for _ in range(PARTITIONS)]
        for name in names
    }


def counts(store: Path, names: Sequence[str]) -> list[int]:
    """How many records each of them has."""
    topics = TopicStore(store)
    there = topics.names()
    return [sum(topics.end_offsets(name)) if name in there else 0 for name in names]


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
