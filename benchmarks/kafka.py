"""Kafka to Kafka: joins from a broker's topics to a topic, beside Spark's own Kafka connector and Spark's own joins.

In: a real broker of this run's own, topics of JSON or Avro records. Out: interval joins, by the times of records and
by a column, and a lookup into a table: Braid, exactly once, beside Spark, at least once.
Rule: both read the same topics, as many records a batch, and write a topic of as many partitions. What these hold at
the end is read back, and must be what DuckDB makes of the same rows. Where Spark's connector cannot be had, the page
says so, and Braid is measured alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import polars as pl

from benchmarks import broker as on_broker
from benchmarks.broker import Encode, Held, as_avro, as_json, avro_schema, fill, held, side, table
from benchmarks.engines import on_spark, plan_of, session, spark_run
from benchmarks.harness import Run, Sizes, Variant, summaries, take_turns
from benchmarks.report import Goal, Report, Table, held_back, of_parts, of_rates
from braid.spark.conf import end
from braid.topics.broker import Broker
from braid.topics.registries import Address
from braid.topics.registries import opened as registry_at

BRAID, SPARK = "Braid, exactly once", "Spark's connector and join, at least once"
W = 5_000  # ms
TINY = (20_000, 2, 1000)  # rows, minutes and keys to warm up with

SIDES = """
CREATE STREAM l (k BIGINT KEY, v BIGINT, s VARCHAR{t}) WITH (kafka_topic='{l}', key_format='JSON', {more});
CREATE STREAM r (k BIGINT KEY, v BIGINT, s VARCHAR{t}) WITH (kafka_topic='{r}', key_format='JSON', {more});
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.v AS rv, l.s AS s FROM l JOIN r
  WITHIN 5 SECONDS GRACE PERIOD 5 SECONDS ON l.k = r.k;
"""
LOOKUP = """
CREATE STREAM l (k BIGINT KEY, v BIGINT, s VARCHAR) WITH (kafka_topic='{l}', key_format='JSON', value_format='JSON');
CREATE TABLE d (k BIGINT PRIMARY KEY, v BIGINT, s VARCHAR)
  WITH (kafka_topic='{d}', key_format='JSON', value_format='JSON');
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, d.v AS rv, d.s AS s FROM l JOIN d ON l.k = d.k;
"""
COLUMNS = ("k", "v", "rv", "s")
SIDE = {"V": "long", "S": "string"}
RESULT = {"V": "long", "RV": "long", "S": "string"}
NEAR = f"select l.k, l.v, r.v as rv, l.s from l join r on l.k = r.k and r.t between l.t - {W} and l.t + {W}"
LOOKED_UP = "select l.k, l.v, d.v as rv, d.s from l join d on l.k = d.k"


@dataclass(frozen=True, slots=True)
class Case:
    """A join of topics. `topics`: by the name in the statement; `frames`: what was written there; `expected`: the same
    join in DuckDB's words; `schema`: of a value, as Spark reads it; `time`: of a record, in ms, as Spark has it."""

    title: str
    sql: str
    topics: Mapping[str, str]
    frames: Mapping[str, pl.DataFrame]
    expected: str
    schema: str = "V long, S string"
    time: str | None = "unix_millis(timestamp)"
    goal: float = 0.0
    avro: bool = False

    @property
    def rows(self) -> int:
        return sum(f.height for f in self.frames.values())

    def wanted(self) -> Held:
        import duckdb

        with duckdb.connect() as c:
            for name, frame in self.frames.items():
                c.register(name, frame.to_arrow())
            return held(c.sql(self.expected).pl(), COLUMNS)


# --------------------------------------------------------------------- engines


@dataclass(frozen=True, slots=True)
class Bench:
    spark: Any
    address: str
    registry: Any
    sizes: Sizes
    report: Report
    missing: str | None  # why Spark's connector cannot be had

    @property
    def broker(self) -> Broker:
        return Broker(self.address, registry=Address(self.registry.url) if self.registry is not None else None)

    def braid(self, case: Case, made: dict[str, str], folder: Path, limit: int | None = None) -> Run:
        made[BRAID] = output = f"o-{uuid4().hex[:8]}"
        schemas = self.broker.registry
        registry = registry_at(schemas) if schemas is not None else None
        plan = plan_of(case.sql.format(**case.topics), registry=registry)
        return on_spark(self.spark, plan, folder, self.sizes, output=output, limit=limit, broker=self.broker)

    def sparks(self, case: Case, made: dict[str, str], folder: Path) -> Run:
        """Spark's query: the lookup's table is read once, and kept in memory."""
        from pyspark.sql import functions as F

        made[SPARK] = output = f"o-{uuid4().hex[:8]}"
        on_broker.make(self.address, output, partitions=self.sizes.cores)
        each = str(self.sizes.batch // (1 if "d" in case.topics else 2))
        if "d" in case.topics:
            left = self.read(case, "l", maxOffsetsPerTrigger=each)
            other = self.read(case, "d").cache()
            joined = left.alias("l").join(other.alias("d"), "k").select("k", "l.V", F.col("d.V").alias("RV"), "d.S")
        else:
            columns = ("l.k", "l.V", F.col("r.V").alias("RV"), "l.S")
            joined = self.joined(case, {"maxOffsetsPerTrigger": each}).select(*columns)
        value = F.struct("V", "RV", "S")
        written = self._avro(output, value) if case.avro else F.to_json(value)
        out = joined.select(F.col("k").cast("string").alias("key"), written.alias("value"))
        run = spark_run(out, folder, topic={"kafka.bootstrap.servers": self.address, "topic": output})
        if "d" in case.topics:
            other.unpersist()
        return run

    def joined(self, case: Case, options: Mapping[str, str]) -> Any:
        """Spark's join of two streams within five seconds."""
        from pyspark.sql import functions as F

        near = f"interval {W // 1000} seconds"
        on = f"l.k = r.k and r.ts between l.ts - {near} and l.ts + {near}"
        left, right = (self.read(case, name, **options).alias(name) for name in "lr")
        return left.join(right, F.expr(on))

    def read(self, case: Case, name: str, **options: str) -> Any:
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        live = name != "d"
        reader = self.spark.readStream if live else self.spark.read
        options |= {"kafka.bootstrap.servers": self.address, "startingOffsets": "earliest"}
        raw = reader.format("kafka").option("subscribe", case.topics[name]).options(**options).load()
        if case.avro:
            value = from_avro(F.expr(f"substring(value, {on_broker.HEAD + 1})"), avro_schema(SIDE))
        else:
            value = F.from_json(F.col("value").cast("string"), case.schema)
        rows = raw.select(F.col("key").cast("string").cast("long").alias("k"), value.alias("x"), "timestamp")
        rows = rows.select("k", "x.*", "timestamp")
        if not live or "d" in case.topics:
            return rows
        return rows.withColumn("ts", F.expr(f"timestamp_millis({case.time})")).withWatermark("ts", "5 seconds")

    def _avro(self, topic: str, value: Any) -> Any:
        """A value as Avro, behind the id of its schema, which is registered."""
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import to_avro

        text = avro_schema(RESULT)
        id = self.registry.register(f"{topic}-value", text)
        return F.concat(F.lit(bytearray(on_broker.head(id))), to_avro(value, text))


# ------------------------------------------------------------------- comparing


def compared(bench: Bench, case: Case, rounds: int) -> None:
    print(f"  {case.title}", flush=True)
    wanted, outputs = case.wanted(), list[tuple[str, str]]()

    def noted(run: Callable[[Case, dict[str, str], Path], Run], to: Path) -> Run:
        made: dict[str, str] = {}
        found = run(case, made, to)
        outputs.extend(made.items())
        return replace(found, rows_out=wanted.rows)  # what came is compared below, row by row

    variants: dict[str, Variant] = {}
    if bench.missing is None:
        variants[SPARK] = partial(noted, bench.sparks)
    variants[BRAID] = partial(noted, bench.braid)
    figures = summaries(take_turns(variants, rounds, wanted.rows))
    for name, topic in outputs:
        found = read_back(bench, case, topic)
        if found != wanted:
            raise AssertionError(f"{name} wrote {found.rows:,} rows to {topic}, not the {wanted.rows:,} of the join")
    base = SPARK if bench.missing is None else None
    sizes = bench.sizes
    text = f"{case.rows:,} records, {sizes.keys:,} keys, {sizes.cores} partitions, batches of {sizes.batch:,}."
    bench.report.tables += [
        of_rates(case.title, text, figures, base),
        of_parts(f"{case.title}: where a batch of Braid spends its time", figures[BRAID].parts),
    ]
    if case.avro:
        rate = figures[BRAID].rate
        bench.report.goals.append(
            Goal(f"{case.title}: records/s", rate, ">=", 150_000, held_back(figures[BRAID].parts))
        )
    if base is not None and case.goal:
        back = held_back(figures[BRAID].parts)
        bench.report.goals.append(Goal(f"{case.title}: times Spark", figures[BRAID].ratio, ">=", case.goal, back))


def read_back(bench: Bench, case: Case, topic: str) -> Held:
    keys, values = on_broker.records(bench.address, topic)
    k = pl.Series("k", keys, dtype=pl.Binary).cast(pl.String).cast(pl.Int64)
    if case.avro:
        frame = on_broker.from_avro(values, bench.registry.schema(on_broker.id_of(values[0]))["schema"])
    else:
        texts = pl.Series(values, dtype=pl.Binary).cast(pl.String)
        frame = texts.str.json_decode(pl.Struct({"V": pl.Int64, "RV": pl.Int64, "S": pl.String})).struct.unnest()
    return held(frame.rename(str.lower).with_columns(k), COLUMNS)


def cases(bench: Bench, rows: int, files: int, keys: int) -> list[Case]:
    """The topics, filled, and the joins over them."""
    sides = {"l": side(rows, files, keys, 0), "r": side(rows, files, keys, 1)}
    if bench.registry is not None:
        sql = SIDES.replace("{t}", "").replace("{more}", "value_format='AVRO'")
        topics = {x: _filled(bench, x, frame, as_avro, "v", "s") for x, frame in sides.items()}
        return [Case("Interval join, Avro", sql, topics, sides, NEAR, avro=True)]
    known = table(keys)
    plain = {x: _filled(bench, x, frame, as_json, "v", "s") for x, frame in [*sides.items(), ("d", known)]}
    timed = {x: _filled(bench, x, frame, as_json, "v", "s", "t") for x, frame in sides.items()}
    by_times = SIDES.replace("{t}", "").replace("{more}", "value_format='JSON'")
    by_column = SIDES.replace("{t}", ", t BIGINT").replace("{more}", "value_format='JSON', timestamp='t'")
    looked_up = {"l": sides["l"], "d": known}
    return [
        Case("Interval join, times of records", by_times, {x: plain[x] for x in "lr"}, sides, NEAR, goal=4.5),
        Case(
            "Interval join, times in a column", by_column, timed, sides, NEAR, "V long, S string, T long", "T", 3.0
        ),
        Case("Stream-table lookup", LOOKUP, {x: plain[x] for x in "ld"}, looked_up, LOOKED_UP, goal=1.2),
    ]  # fmt: skip


def _filled(bench: Bench, name: str, frame: pl.DataFrame, form: Callable[..., Encode], *columns: str) -> str:
    """A topic of these rows."""
    topic = f"{name}-{uuid4().hex[:8]}"
    id = (bench.registry.register(f"{topic}-value", avro_schema(SIDE)),) if form is as_avro else ()
    fill(bench.address, topic, frame, form(*id, *columns), bench.sizes.cores)
    return topic


@contextmanager
def opened(sizes: Sizes, avro: bool = False, conf: Mapping[str, str] | None = None) -> Iterator[Bench]:
    """A broker of one's own (for `avro` a registry, too) and a session in a JVM of its own, with Spark's connector, if
    that can be had."""
    from kafka.broker import own_broker
    from kafka.fetch import Unavailable, spark_jars
    from kafka.registry import own_registry

    missing, more = None, dict(conf or {})
    try:
        more["spark.jars"] = ",".join(map(str, spark_jars()))
    except Unavailable as reason:
        missing = str(reason)
    with own_broker() as server, own_registry() if avro else nullcontext() as registry:
        spark = session(sizes, more=more)
        try:
            yield Bench(spark, server.address, registry, sizes, Report(), missing)
        finally:
            end(spark)


def run(sizes: Sizes, avro: bool = False) -> Report:
    with opened(sizes, avro) as bench:
        if bench.missing is not None:
            text = f"Spark's Kafka connector could not be fetched, so Braid was measured alone: {bench.missing}"
            bench.report.tables.append(Table("Without Spark's connector", text, ("",), ()))
        for case in cases(bench, *TINY):  # warms up
            with TemporaryDirectory() as to:
                bench.braid(case, {}, Path(to), limit=10_000)
            if bench.missing is None:
                with TemporaryDirectory() as to:
                    bench.sparks(case, {}, Path(to))
        for case in cases(bench, sizes.rows, sizes.files, sizes.keys):
            compared(bench, case, sizes.rounds)
        return bench.report
