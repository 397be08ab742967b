"""A result's partition that several tasks write: the records of one task, in their order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braid.store import opened
from braid.topics import TopicStore
from cli_help import braid

RISINGWAVE = """-- dialect: risingwave
CREATE SOURCE l (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 second');
CREATE SOURCE r (k BIGINT, w BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 second');
CREATE MATERIALIZED VIEW o AS SELECT l.k, l.v, r.w FROM l LEFT JOIN r
  ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '1 second' AND l.ts + INTERVAL '1 second';
"""
KSQLDB = """
CREATE STREAM l (k BIGINT, v BIGINT, ts TIMESTAMP) WITH (kafka_topic='l', value_format='JSON', timestamp='ts');
CREATE STREAM r (k BIGINT, w BIGINT, ts TIMESTAMP) WITH (kafka_topic='r', value_format='JSON', timestamp='ts');
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.w AS w FROM l LEFT JOIN r
  WITHIN 1 SECOND GRACE PERIOD 1 SECOND ON l.k = r.k;
"""
ROWS = 60_000


def records(name: str, sql: str, tasks: int) -> tuple[list[tuple[object, ...]], int]:
    """What stands in the topic at the end, and of how many segments it is made."""
    (Path.cwd() / f"{name}.sql").write_text(sql)
    sources = ["--source", "l=l.jsonl", "--source", "r=r.jsonl"]
    said = braid("run", f"{name}.sql", "--store", f"{name}-{tasks}", *sources, "--end", "--tasks", str(tasks))
    assert said.code == 0, said.err
    store = TopicStore(opened(f"{name}-{tasks}"))
    topic = next(t for t in store.names() if t.lower() == "o")
    (end,) = store.end_offsets(topic)
    rows = store.parsed(topic, 0, 0, end).select("_offset", "_t", "_key", "_value").rows()
    return rows, len(list((Path(f"{name}-{tasks}") / "topics" / topic / "0").glob("*.jsonl")))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "sql"), [pytest.param("risingwave", RISINGWAVE, marks=pytest.mark.law), ("ksqldb", KSQLDB)]
)
def test_ranges_follow_each_other(name: str, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from braid.testing.on_spark import shared_session

    shared_session()
    monkeypatch.chdir(tmp_path)
    for kind, column in (("l", "v"), ("r", "w")):
        with open(f"{kind}.jsonl", "w") as f:
            for n in range(ROWS):
                time = f"2024-01-01 00:{n // 6000:02}:{n // 100 % 60:02}.{n % 100 * 10:03}"
                f.write(json.dumps({"k": n * 7919 % 20_000, column: n, "ts": time}) + "\n")
    want, one = records(name, sql, 1)
    got, many = records(name, sql, 3)
    assert len(want) >= ROWS and got == want
    assert many > one
