"""A join that fans out in one bucket, run as tasks on Spark run it, in a process that measures its memory.

In: a shape and how many rows meet. Out: a line of JSON: results, bytes of the largest packed piece, a digest of the
topic, MB in use before the row (or rows) that meet so many, and MB more than that at the highest.
Rule: what is measured is source, stages and writer, whole; only Spark's carrying of blobs between them is left out.

    python fanout.py one|crowd|table ROWS [PIECE_ROWS MOST]     the last two: what is made at once
    python fanout.py wide ROWS          so many rows a side of 500 kB, all of which meet
    python fanout.py sliding|… ROWS     a name of `HOT`: so many rows a side of five keys, each meets ten others or less
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from braid.bind.program import Program
from braid.expr.typing import call
from braid.lower.lower import lower
from braid.operators import matches, pairing
from braid.operators.arrangement import MemoryRuns
from braid.plan.joins import TableTableJoin
from braid.plan.logical import Filter, Node, Query
from braid.sinks.topic import TopicSink
from braid.spark import columns, source, stage, writer
from braid.spark.job import Job, ranks_of, sources_of, spread
from braid.stage.bucket import BucketState
from braid.stage.decode import decode
from braid.stage.ingest import Chunk
from braid.stage.measured import Piece
from braid.store import opened
from braid.topics import Staged, TopicStore, publish
from braid.topics.envelope import RAW, WINDOW
from braid.topics.store_value import Store
from braid.types import Scalar
from histories import Col, col, query, stream_stream, table
from histories import source as stream

HOUR = 3_600_000
WIDE = 500_000  # bytes of a row
STREAM = "CREATE STREAM {0} (k INTEGER, v VARCHAR(20), n INTEGER); "
KEYED = "CREATE STREAM {0} (k INT KEY, v STRING) WITH (kafka_topic='{0}', value_format='JSON', partitions=1); "
SECOND = "OVER (RANGE INTERVAL '1' SECOND PRECEDING)"
TABLE = "CREATE TABLE {0} (n INTEGER PRIMARY KEY, k INTEGER, v VARCHAR, t BIGINT); "
INTERVAL = (
    TABLE.format("a") + TABLE.format("b") + "CREATE MATERIALIZED VIEW o AS SELECT a.n, b.n AS m, a.v, b.v AS w "
    "FROM a JOIN b ON a.k = b.k AND a.t BETWEEN b.t - 1000 AND b.t + 1000;"
)
HOT = {
    "sliding": (
        "sqlstream",
        STREAM.format("a") + STREAM.format("b") + "CREATE VIEW o AS SELECT STREAM a.v, b.v AS w "
        f"FROM a {SECOND} AS a JOIN b {SECOND} AS b ON a.k = b.k;",
    ),
    "within": (
        "ksqldb",
        KEYED.format("a") + KEYED.format("b") + "CREATE STREAM o AS SELECT a.k AS k, a.v AS v, b.v AS w "
        "FROM a JOIN b WITHIN 1 SECOND GRACE PERIOD 1 HOUR ON a.k = b.k;",
    ),
    "interval": ("risingwave", INTERVAL),
    "epoch": ("risingwave", INTERVAL),  # all rows at one time, as those of a file are
    "updates": (
        "lenses",
        "SET defaults.topic.autocreate=true; CREATE TABLE a(_key INT, v STRING) FORMAT (INT, JSON); "
        "CREATE TABLE b(_key INT, v STRING) FORMAT (INT, JSON); WITH t AS (SELECT TABLE * FROM b); "
        "INSERT INTO o SELECT STREAM a.v AS v, t.v AS w FROM a JOIN t;",
    ),
}


def shape_of(name: str) -> Query:
    if name == "table":  # one row of B meets all rows of A
        a, b = table("A", partitions=1), table("B", partitions=1)
        key = (Col(".KEY10", Scalar.INT),)
        return query(TableTableJoin(a, b, "inner", (col(a, "A.N"),), (col(b, "B.K"),), key, by_key=False), key=key)
    root: Node = stream_stream(stream("A", partitions=1), stream("B", partitions=1), before=HOUR, after=HOUR)
    if name == "crowd":  # all meet all, and few pairs pass
        root = Filter(root, call("eq", [col(root, "A.V"), col(root, "B.V")]))
    return query(root)


def rows(count: int, key: str | None, n: str | None, time: int) -> pl.DataFrame:
    """So many records; `key` and `n`: None for the number of the record."""
    number = pl.int_range(count, eager=True).alias("_offset")
    text = number.cast(pl.String)
    value = '{"V":"value ' + text + '","N":' + (text if n is None else pl.repeat(n, count, eager=True)) + "}"
    made = pl.DataFrame([number, value.alias("_value")]).with_columns(
        pl.lit(time).alias("_t"),
        (text if key is None else pl.repeat(key, count, eager=True)).alias("_key"),
        pl.lit(None).alias("_headers"),
        pl.lit(None, WINDOW).alias("_window"),
        pl.lit(None).alias("_error"),
    )
    return made.select(pl.col(c).cast(t) for c, t in RAW.items())


def job_of(made: Query, store: TopicStore) -> Job:
    plan, topics = lower(made), (1, 1)
    store.create("out")
    ids, out_ids, gathered = spread(plan, 1, 1, 1)
    ranks = ranks_of(plan, topics, sources_of(plan, topics))
    out = TopicSink("out", 1, store.root)
    return Job(plan, "OUT", "run", Store(store.root), out, 1, 1, ids, out_ids, gathered, ranks, "")


def batch(job: Job, states: list[BucketState], number: int, records: dict[int, pl.DataFrame]) -> Iterator[columns.Blob]:
    """What leaves the last stage; `records` by leaf."""
    chunks = (Chunk(n, 0, job.ranks[f"{n}/0"], decode(job.plan.leaves[n].source, raw, 0)) for n, raw in records.items())
    blobs = list(columns.blobs_of(source.blobs(job, chunks)))
    for each, state in zip(job.plan.stages, states, strict=True):
        mine = [b for b in blobs if b.stage == each.number]
        blobs = [b for b in blobs if b.stage != each.number]
        blobs += stage.run(job, each, 0, state, mine, f"{number}-{each.number}", Piece(each.number))[0]
    yield from (b for b in blobs if b.stage == job.last)


def memory(what: str) -> int:
    """MB of this process: VmRSS now, VmHWM at the highest."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


def in_reach(count: int, numbered: bool, apart: int) -> pl.DataFrame:
    """So many records of five values of `k`, ten of each in two seconds by `t`; `numbered`: their keys are their
    numbers; `apart`: ms between their own times."""
    number = pl.int_range(count, eager=True)
    text, key = number.cast(pl.String), (number % 5).cast(pl.String)
    value = '{"k":' + key + ',"v":"value ' + text + '","n":' + text + ',"t":' + (number * 40).cast(pl.String) + "}"
    made = rows(count, "7", "7", HOUR)
    return made.with_columns(
        (text if numbered else key).alias("_key"), value.alias("_value"), (HOUR + number * apart).alias("_t")
    )


def hot(name: str, count: int) -> dict[str, int]:
    dialect, sql = HOT[name]
    (query,) = (x.query for x in Program(dialect).statements(sql) if x.query is not None)

    def records(job: Job, count: int) -> dict[int, pl.DataFrame]:
        made = in_reach(count, dialect == "risingwave", 0 if name == "epoch" else 40)
        return {leaf.number: made for leaf in job.plan.leaves}

    with tempfile.TemporaryDirectory() as folder:
        store = TopicStore(opened(folder))
        job = job_of(query, store)
        states = [BucketState(MemoryRuns()) for _ in job.plan.stages]
        list(batch(job, states, 0, records(job, 10)))  # warms up
        states = [BucketState(MemoryRuns()) for _ in job.plan.stages]
        return measured(store, job, states, records(job, count))


def wide(count: int) -> dict[str, int]:
    """Texts that do not pack, and those that pack to nothing."""
    made = rows(count, "7", "7", HOUR).with_columns(
        pl.Series(
            "_value", [f'{{"V":"{secrets.token_hex(WIDE // 4)}{"x" * (WIDE // 2)}","N":7}}' for _ in range(count)]
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        store = TopicStore(opened(folder))
        job = job_of(shape_of("wide"), store)
        states = [BucketState(MemoryRuns()) for _ in job.plan.stages]
        list(batch(job, states, 0, {0: made}))
        return measured(store, job, states, {1: made.with_columns(pl.lit(HOUR + 1).alias("_t"))})


def main(shape: str, count: int) -> dict[str, int]:
    if shape == "wide":
        return wide(count)
    with tempfile.TemporaryDirectory() as folder:
        store = TopicStore(opened(folder))
        job = job_of(shape_of(shape), store)
        states = [BucketState(MemoryRuns()) for _ in job.plan.stages]
        list(batch(job, states, 0, {0: rows(count, None if shape == "table" else "7", "7", HOUR)}))
        return measured(store, job, states, {1: rows(count if shape == "crowd" else 1, "7", "7", HOUR + 1)})


def measured(
    store: TopicStore, job: Job, states: list[BucketState], records: dict[int, pl.DataFrame]
) -> dict[str, int]:
    """Runs a batch to its commit; what it took."""
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    sizes = []

    def seen() -> Iterator[columns.Blob]:
        for blob in batch(job, states, 1, records):
            sizes.append(len(blob.blob))
            yield blob

    staged = [Staged.from_json(doc) for kind, doc in writer.write(job, 1, seen()) if kind == "staged"]
    more = memory("VmHWM") - before
    publish(store.topic("out"), job.run, 1, staged)
    (path,) = Path(store.root.url).glob("topics/out/0/*.jsonl")
    said = {"results": store.end_offsets("out")[0], "largest": max(sizes), "digest": zlib.crc32(path.read_bytes())}
    return said | {"before": before, "more": more}


if __name__ == "__main__":
    if len(sys.argv) > 3:
        pairing.PIECE_ROWS = stage.PIECE = int(sys.argv[3])
        pairing.PIECE_BYTES = 1 << 40
        matches.MOST = int(sys.argv[4])
    print(json.dumps((hot if sys.argv[1] in HOT else main)(sys.argv[1], int(sys.argv[2]))))
