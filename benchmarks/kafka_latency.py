"""From a record's producer to the consumer of its result, over a broker, while a thousand records come in a second.

In: a real broker, a thread that produces to two topics. Out: the time until a reader of committed records has the row
that a record made: Braid, exactly once, beside Spark's connector and join.
Rule: both get the same records at the same pace, one after the other, and poll as fast as they may. Each has a JVM of
its own, as its users start it (`braid run` has one that only carries, `jvm.CARRIER`), and runs twice: the first time
warms up. What comes in the first seconds is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import broker as on_broker
from benchmarks.engines import PROVIDER, STORES, plan_of
from benchmarks.harness import Sizes, percentile
from benchmarks.kafka import BRAID, SIDES, SPARK, Bench, Case, opened
from benchmarks.report import Goal, Report, Table, held_back, of_parts
from benchmarks.small import EACH, EVERY, watched
from braid.spark.jvm import CARRIER
from braid.stage.measured import Measured
from braid.store import opened as store_in
from braid.topics.store_value import Store

RECENT = 20  # batches of which the parts are told
Live = Callable[[Bench, Case, str, Path, float], list[float]]


def run(sizes: Sizes) -> Report:
    seconds = max(10.0, sizes.small_batches / 5)
    rows, found, report = [], dict[str, list[float]](), Report()
    lives: dict[str, tuple[Live, Mapping[str, str]]] = {BRAID: (_braid, CARRIER), SPARK: (_spark, {})}
    for name, (live, conf) in lives.items():
        with opened(sizes, conf=conf) as bench, TemporaryDirectory(prefix="braid-bench-") as folder:
            if live is _spark and bench.missing is not None:
                continue
            for turn in ("warm", "told"):
                output, case = f"o-{uuid4().hex[:8]}", _case(bench.address, sizes.cores)
                on_broker.make(bench.address, output, partitions=sizes.cores)
                found[name] = live(bench, case, output, Path(folder) / turn, seconds)
            report.tables += bench.report.tables[-1:]
        cells = (f"{percentile(found[name], share):,.0f}" for share in (0.5, 0.99))
        rows.append((name, *cells, f"{len(found[name]):,}"))
        print(f"    {name}: {percentile(found[name], 0.5):,.0f} ms from record to result", flush=True)
    text = f"Interval join, JSON; {EACH} records of each side every {1000 * EVERY:.0f} ms, {seconds:.0f} s long."
    columns = ("variant", "p50 ms", "p99 ms", "results")
    report.tables.insert(0, Table("From a record's producer to its result's reader", text, columns, tuple(rows)))
    back = held_back(_PARTS)
    report.goals += [
        Goal("Kafka to Kafka, 1,000 records/s: p50 ms", percentile(found[BRAID], 0.5), "<=", 450, back),
        Goal("Kafka to Kafka, 1,000 records/s: p99 ms", percentile(found[BRAID], 0.99), "<=", 1000, back),
    ]
    return report


_PARTS: dict[str, float] = {}


def _case(address: str, partitions: int) -> Case:
    mark = uuid4().hex[:6]
    topics = {x: f"{x}-{mark}" for x in "lr"}
    on_broker.make(address, *topics.values(), partitions=partitions)
    sql = SIDES.replace("{t}", "").replace("{more}", "value_format='JSON'")
    return Case("", sql, topics, {}, "")


def _braid(bench: Bench, case: Case, output: str, folder: Path, seconds: float) -> list[float]:
    from braid.sinks.kafka import KafkaSink
    from braid.spark.query import start
    from braid.spark.query_options import QueryOptions

    plan, cores = plan_of(case.sql.format(**case.topics)), bench.sizes.cores
    running = start(
        bench.spark,
        plan,
        Store(store_in(folder), bench.broker),
        QueryOptions(output=KafkaSink(output, cores), tasks=cores),
    )
    try:
        made = _live(bench.address, case, output, cores, seconds, lambda m: m.timestamp()[1])
    finally:
        running.stop()
    triggers = [p["durationMs"]["triggerExecution"] for p in running.launch().recentProgress if p["numInputRows"]]
    _PARTS.clear()
    _PARTS.update(_parts(running.take_batches(over=True)[-RECENT:], triggers[-RECENT:]))
    bench.report.tables.append(of_parts("Where a small batch of Braid spends its time", _PARTS))
    return made


def _parts(told: Sequence[Measured], triggers: Sequence[float]) -> dict[str, float]:
    """Milliseconds of a batch by what they were spent on, on average."""
    made: dict[str, float] = {}
    for m in told:
        for name, share in m.shares().items():
            made[name] = made.get(name, 0.0) + share * m.batch_ms / len(told)
    return made | {"around": max(0.0, fmean(triggers) - sum(made.values()))}


def _spark(bench: Bench, case: Case, output: str, folder: Path, seconds: float) -> list[float]:
    from pyspark.sql import functions as F

    from braid.spark.conf import changed

    options = {"kafka.fetch.max.wait.ms": "10"}  # else a poll of nothing waits for half a second
    joined = bench.joined(case, options)
    time = F.unix_millis(F.greatest("l.ts", "r.ts"))
    value = F.to_json(F.struct(F.col("l.V"), F.col("r.V").alias("RV"), F.col("l.S"), time.alias("T")))
    out = joined.select(F.col("l.k").cast("string").alias("key"), value.alias("value"))
    writer = out.writeStream.format("kafka").option("kafka.bootstrap.servers", bench.address).option("topic", output)
    settings = {PROVIDER: STORES["memory"], "spark.sql.streaming.multipleWatermarkPolicy": "max"}
    with changed(bench.spark, settings):
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        return _live(bench.address, case, output, bench.sizes.cores, seconds, lambda m: json.loads(m.value())["T"])
    finally:
        query.stop()


def _live(
    address: str, case: Case, output: str, partitions: int, seconds: float, time_of: Callable[[Any], int]
) -> list[float]:
    """Milliseconds from records to their results. `time_of`: of a result, when its later record was made."""
    common = {"bootstrap.servers": address, "log_level": 0}
    producer = Producer({**common, "linger.ms": 5, "partitioner": "murmur2_random"})
    settings = {"group.id": "latency", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**common, **settings, "fetch.queue.backoff.ms": 5, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(output, p, 0) for p in range(partitions)])

    def write(name: str, lines: list[str]) -> None:
        for line in lines:
            record = json.loads(line)
            value = json.dumps(record["value"])
            producer.produce(case.topics[name], value, str(record["key"]), timestamp=record["timestamp"])
        producer.poll(0)

    def results() -> Iterator[str]:
        for m in consumer.consume(10_000, 0.002):
            if m.error() is None:
                yield json.dumps({"timestamp": time_of(m)})

    try:
        return watched(write, results, seconds)
    finally:
        producer.flush(10)
        consumer.close()
