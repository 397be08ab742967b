"""The law over a broker: histories in topics, cut in any way, read across restarts, give what the reference gives.

In: random queries and histories of several partitions, written by another client, with aborted records in between.
Out: every record of the result, in order; and a join of a million records on each side, beside DuckDB's.
Rule: all of a history is there before it is read, so that there is one order. Offsets have gaps.
"""

from __future__ import annotations

import json
import random
import struct
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from confluent_kafka import Producer

from braid.lower.lower import lower
from braid.plan.logical import Node, Query, Source, sources
from braid.records.wire import kafka_partition, to_bytes
from braid.spark.query_options import QueryOptions
from braid.stage.call_order import Ranks, partition_ranks
from braid.stage.cut import Cut, beginning, part_name, plan_batch
from braid.stage.emit import wires_of
from braid.stage.ingest import Chunk
from braid.stage.inputs import Input, TopicInput
from braid.stage.local import LocalQuery
from braid.store import opened
from braid.topics.broker import Broker as Address
from braid.topics.interface import Topics, open_topics
from braid.topics.store_value import Store
from histories import SHAPES, History, Raw
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record
from kafka.test_run import until
from law import Line, difference, lines_of, reference_lines
from spark_help import case, run

pytestmark = pytest.mark.kafka

LATER = 1_000_000_000_000  # ms: Kafka takes 0 for now
ABORTED = Record(b"never", b"seen", LATER + 10_000_000)


def moved(shape: str, seed: int) -> tuple[Query, History]:
    """A random query over topics of its own, and what stands in them."""
    query, history = case(shape, seed)
    if any(x.window for x in sources(query.root)):
        history = replace(history, topics={topic: [keyed(p) for p in ps] for topic, ps in history.topics.items()})
    names = {topic: clients.fresh(topic) for topic in (*history.topics, "out")}

    def at(node: Node) -> Node:
        if not isinstance(node, Source):
            return node.over(at)
        encoding = replace(node.encoding, window="session") if node.window else node.encoding
        return replace(node, topic=names[node.topic], encoding=encoding)

    topics = {
        names[topic]: [[replace(r, time=r.time + LATER) for r in records] for records in partitions]
        for topic, partitions in history.topics.items()
    }
    sink = replace(query.sink, topic=names["out"])
    return replace(query, name=names["out"], root=at(query.root), sink=sink), replace(history, topics=topics)


def keyed(records: list[Raw]) -> list[Raw]:
    """Without those that have no key, which have no window on a broker."""
    return [r for r in records if r.key is not None]


def write(broker: Broker, history: History, rng: random.Random) -> None:
    """The history, a piece at a time; some pieces are followed by what was given up."""
    for topic, partitions in history.topics.items():
        clients.make_topic(broker.address, topic, len(partitions))
        rows = [record(r, p) for p, records in enumerate(partitions) for r in records]
        at = sorted(rng.sample(range(len(rows) + 1), min(2, len(rows) + 1)))
        for piece in (rows[: at[0]], rows[at[0] : at[-1]], rows[at[-1] :]):
            clients.produce(broker.address, topic, piece)
            gone = [replace(ABORTED, partition=rng.randrange(len(partitions))) for _ in range(rng.randrange(4))]
            if gone and rng.random() < 0.5:
                clients.produce_transaction(broker.address, topic, gone, commit=False)


def record(r: Raw, partition: int) -> Record:
    key = None if r.key is None else json.dumps(r.key).encode()
    if key is not None and r.window is not None:
        key += struct.pack(">qq", r.window[1], r.window[0])
    value = None if r.value is None else json.dumps(r.value).encode()
    headers = tuple((name, b64decode(x)) for name, x in json.loads(r.headers or "[]"))
    return Record(key, value, r.time, headers, partition)


def local_lines(query: Query, broker: Broker, folder: Path, rng: random.Random) -> list[Line]:
    """What the local runtime gives of the topics, in random batches; now and then all is opened anew."""
    plan, limit, buckets = lower(query), rng.choice([1, 3, 8, 20, 1000]), rng.choice([1, 2, 4])
    at, local, inputs, lines = beginning(), LocalQuery(plan, 1, buckets), list[tuple[int, Input]](), list[Line]()
    known: dict[str, str] = {}
    while True:
        if not inputs or rng.random() < 0.3:
            topics: Topics = open_topics(Store(opened(str(folder)), Address(broker.address)), known)
            known = {x.source.topic: topics.identity(x.source.topic) for x in plan.leaves}
            inputs = [(leaf.number, TopicInput(topics, leaf.source)) for leaf in plan.leaves]
            ranks = partition_ranks(plan, {leaf: x.partitions for leaf, x in inputs})
            local.restore(local.snapshot())
        named = Ranks({part_name(*place): n for place, n in ranks.items()}, plan, len(ranks))
        end = plan_batch(inputs, at, limit, (), named)
        if end is None:
            return lines
        made = local.run(chunks(inputs, at, end, named))
        lines += lines_of(made.records)
        at = end


def chunks(inputs: Sequence[tuple[int, Input]], at: Cut, end: Cut, ranks: Ranks) -> list[Chunk]:
    made = []
    for leaf, x in inputs:
        for p in range(x.partitions):
            place = part_name(leaf, p)
            first, last = at["next"].get(place, 0), end["next"][place]
            if last > first:
                made.append(Chunk(leaf, p, ranks[place], x.read(p, first, last)))
    return made


def check(shape: str, seed: int, broker: Broker, folder: Path) -> None:
    rng = random.Random(f"kafka {shape} {seed}")
    query, history = moved(shape, seed)
    write(broker, history, rng)
    want = reference_lines(query, history)
    got = local_lines(query, broker, folder, rng)
    assert got == want, difference(got, want, f"{shape} {seed}: {query.root}")
    for topic in history.topics:
        clients.delete_topic(broker.address, topic)


@pytest.mark.parametrize("shape", SHAPES)
def test_law(shape: str, broker: Broker, tmp_path: Path) -> None:
    check(shape, 1, broker, tmp_path)


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_at_length(shape: str, broker: Broker, tmp_path: Path) -> None:
    for seed in range(2, 22):
        check(shape, seed, broker, tmp_path)


# ------------------------------------------------------------------- on Spark


def written(broker: Broker, query: Query, folder: Path) -> list[list[Line]]:
    """The records of each partition of the sink."""
    topics, how, found = (
        open_topics(Store(opened(str(folder)), Address(broker.address))),
        wires_of(query.sink),
        list[list[Line]](),
    )
    for p, end in enumerate(topics.end_offsets(query.sink.topic)):
        rows = topics.parsed(query.sink.topic, p, 0, end, how).with_columns(pl.lit(None).alias("window"))
        found.append(
            lines_of(rows.rename({"_key": "key", "_value": "value", "_t": "timestamp", "_headers": "headers"}))
        )
    return found


@pytest.mark.spark
@pytest.mark.parametrize(("shape", "seed"), [("ss", 9), ("ss-st", 3), ("tt", 5), ("st-aggregate", 2)])
def test_law_on_spark(shape: str, seed: int, broker: Broker, tmp_path: Path) -> None:
    """From the broker to the broker; stopped behind a batch, and started again."""
    from braid.spark import query as queries
    from braid.testing.on_spark import shared_session

    rng, spark = random.Random(f"kafka spark {shape} {seed}"), shared_session()
    query, history = moved(shape, seed)
    write(broker, history, rng)
    want = reference_lines(query, history)
    outputs = 2 if all(key is not None for key, *_ in want) else 1
    clients.make_topic(broker.address, query.sink.topic, outputs)  # not compacted
    options: dict[str, Any] = {"limit": 15, "partitions": outputs, "buckets": 4}
    address = Address(broker.address)
    first = queries.start(spark, lower(query), Store(opened(tmp_path), address), QueryOptions(**options))
    until(lambda: first.progress().batch >= 0 or first.status() != "running")
    first.stop()
    run(str(tmp_path), query, spark, address, **options)
    keys = pl.Series([key for key, *_ in want], dtype=pl.String)
    places = kafka_partition(to_bytes(keys, wires_of(query.sink).key), outputs).fill_null(0)
    expected = [[line for line, at in zip(want, places, strict=True) if at == p] for p in range(outputs)]
    for p, got in enumerate(written(broker, query, tmp_path)):
        assert got == expected[p], difference(got, expected[p], f"{shape} {seed}, partition {p}: {query.root}")


# ------------------------------------------------------------------ a million

MANY, KEYS, WITHIN = 1_000_000, 20_000, 2_000


def rows_of(seed: int) -> pl.DataFrame:
    """A key, a number and a time each."""
    n = pl.int_range(MANY, eager=True)
    return pl.DataFrame({"k": (n * (7919 + 2 * seed) + seed) % KEYS, "v": n, "t": LATER + n + n % 7})


def produced(broker: Broker, topic: str, rows: pl.DataFrame, name: str) -> None:
    producer = Producer(clients.settings(broker.address, linger_ms=50, compression_type="lz4"))
    for i, (k, v, t) in enumerate(rows.iter_rows()):
        while True:
            try:
                producer.produce(topic, f'{{"{name}":{v}}}', struct.pack(">i", k), k % 4, timestamp=t)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.law
@pytest.mark.spark
def test_a_million_on_each_side(broker: Broker, tmp_path: Path) -> None:
    """As many rows of each key as DuckDB joins, of the same numbers."""
    from cli_help import on_shared_spark

    l, r, o = (clients.fresh(x).upper().replace("-", "_") for x in "lro")
    sides = {l: rows_of(0), r: rows_of(1)}
    for (topic, rows), name in zip(sides.items(), "VW", strict=True):
        clients.make_topic(broker.address, topic, 4)
        produced(broker, topic, rows, name)
    (tmp_path / "q.sql").write_text(
        f"CREATE STREAM {l} (k INT KEY, v INT) WITH (kafka_topic='{l}', value_format='JSON', partitions=4);"
        f"CREATE STREAM {r} (k INT KEY, w INT) WITH (kafka_topic='{r}', value_format='JSON', partitions=4);"
        f"CREATE STREAM {o} AS SELECT l.k AS k, v, w FROM {l} l JOIN {r} r WITHIN 2 SECONDS GRACE PERIOD 1 MINUTE"
        " ON l.k = r.k;"
    )
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle", "--quiet")
    done = on_shared_spark(*words, "--batch-rows", 400_000, cwd=tmp_path)
    assert done.code == 0, done.err
    found = clients.consume(broker.address, o)
    keys = [struct.unpack(">i", r.key or b"")[0] for r in found]
    got = pl.DataFrame([json.loads(r.value or b"") for r in found]).with_columns(pl.Series("k", keys))
    db = duckdb.connect()
    for name, rows in zip(("a", "b"), sides.values(), strict=True):
        db.register(name, rows.to_arrow())
    joined = db.sql(f"""SELECT a.k AS k, count(*) AS n, sum(a.v * 31 + b.v) AS x FROM a JOIN b
        ON a.k = b.k AND abs(a.t - b.t) <= {WITHIN} GROUP BY ALL ORDER BY k""")
    sums = (pl.col("V") * 31 + pl.col("W")).sum().alias("x")
    summed = got.group_by("k").agg(pl.len().alias("n"), sums).sort("k")
    want = joined.fetchall()
    assert summed.rows() == want
    assert sum(n for _, n, _ in want) > 100_000
