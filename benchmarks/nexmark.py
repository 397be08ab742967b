"""NEXMark by the stopwatch: `braid run` from the shell to its end, files in, a topic out, defaults.

In: how many events (`--rows`), rounds. Out: seconds of the whole command and of its parts, CPU, cores at work.
Rule: each engine as its users would set it (`nexmark_engines.py`), Braid as `make install` and `make java` leave it,
with the compiled core and the archive of the JVM's classes if these are there (the report says so), and nothing is
asked for that a new user would not write: JSON lines as they lie, no number of tasks, partitions or buckets. Parts:
what goes by before the first batch (Spark's start, files that are made ready), the batches, the end. A query whose
rows are not those of DuckDB fails.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, time

import duckdb
import polars as pl

from benchmarks.harness import Sizes
from benchmarks.nexmark_engines import FLINK, MINI_BATCH, ROCKSDB, Asked, Engine, flink, spark, watched
from benchmarks.nexmark_events import KINDS, halve, write
from benchmarks.nexmark_queries import COLUMNS, QUERIES, Query
from benchmarks.report import Goal, Report, Table
from braid.native import core
from braid.spark.jvm import archived
from braid.store import opened
from braid.topics import TopicStore

BUSY = 1.7  # cores of two
AHEAD = {"Flink, heap": 1.6, "Spark": 2.0}
INTERVAL = {"whole": 15.0, "cpu": 22.0}  # s, of 4 million events on two cores
SLOW = 75.0  # s: who takes longer takes no second turn (q7 with RocksDB takes more than six minutes)


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds: of all, before the first batch (of others: until the query was handed over), of batches; of CPU.
    `lacks`: rows that an engine has not written when it ends."""

    whole: float
    before: float
    batches: float
    cpu: float
    lacks: int = 0

    @property
    def cores(self) -> float:
        return self.cpu / self.whole


Turn = Callable[[], Took]


def run(sizes: Sizes) -> Report:
    own, beside, goals = list[tuple[str, ...]](), list[tuple[str, ...]](), list[Goal]()
    others: dict[str, Engine] = {"Spark": spark(), "Spark, RocksDB": spark(ROCKSDB)}
    if FLINK.exists():
        mini = flink("hashmap", MINI_BATCH)
        of_flink = {"Flink, heap": flink("hashmap"), "Flink, mini-batch": mini, "Flink, RocksDB": flink("rocksdb")}
        others = of_flink | others
    else:
        print(f"  without Flink, as there is no {FLINK.parent.parent.name}: make flink", flush=True)
    if sizes.engines:
        others = {name: others[name] for name in sizes.engines.split(";") if name in others}
    with TemporaryDirectory(prefix="braid-nexmark-") as made:
        folder = Path(made)
        write(sizes.rows, folder)
        halve(folder)
        size = sum((folder / f"{kind}.jsonl").stat().st_size for kind in KINDS)
        for query in QUERIES:
            took = _in_turn(_turns(query, folder, others), sizes.rounds)
            for name, mid in took.items():
                print(f"  {query.name}, {name}: {mid.whole:.1f} s, {mid.cpu:.1f} s of CPU", flush=True)
            for dialect in ("risingwave", "ksqldb"):
                if (mid := took.get(dialect)) is None:
                    continue
                figures = (mid.whole, mid.before, mid.batches, mid.whole - mid.before - mid.batches, mid.cpu)
                own.append((query.name, dialect, *(f"{x:.1f}" for x in figures), f"{mid.cores:.2f}"))
                goals.append(Goal(f"{query.name}, {dialect}: cores at work", mid.cores, ">=", BUSY))
                if query.name == "interval":
                    goals += [Goal(f"interval, {dialect}: {x} s", getattr(mid, x), "<=", INTERVAL[x]) for x in INTERVAL]
                for name, ahead in AHEAD.items():
                    if (other := took.get(name)) is not None:
                        what = f"{query.name}: {name} ÷ Braid, {dialect}, the whole command"
                        goals.append(Goal(what, other.whole / mid.whole, ">=", ahead))
            beside += [_beside(query.name, name, x, took["risingwave"]) for name, x in took.items() if name in others]
    events = f"{sizes.rows:,} events as JSON lines, {size / 1e6:,.0f} MB; {sizes.rounds} rounds, the median of each."
    events += f" Braid {'with' if archived() else 'without'} the archive of the JVM's classes,"
    events += f" {'with' if core() is not None else 'without'} the compiled core."
    heads = ("query", "dialect", "whole s", "before the first batch", "batches", "end", "CPU s", "cores at work")
    tables = [Table("NEXMark, the whole command", f"{events} Into a topic of the store.", heads, tuple(own))]
    heads = ("query", "engine", "whole s", "start", "CPU s", "cores", "÷ Braid", "without start", "rows it lacks")
    taken_back = ", ".join(q.name for q in QUERIES if not q.appends)
    nowhere = f"with Flink {taken_back} go nowhere, as its files take no row back"
    said = f"{events} Into files; {nowhere}. Ratios are to Braid in risingwave's words."
    tables.append(Table("Engines beside it", said, heads, tuple(beside)))
    return Report(tables, goals)


def _in_turn(turns: Mapping[str, Turn], rounds: int) -> Mapping[str, Took]:
    """The median of each, which take turns; who is slow takes one."""
    took: dict[str, list[Took]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            if not took[name] or took[name][-1].whole < SLOW:
                took[name].append(turn())
    return {name: Took(*(median(getattr(t, x) for t in found) for x in Took.__slots__)) for name, found in took.items()}


def _turns(query: Query, folder: Path, others: Mapping[str, Engine]) -> Mapping[str, Turn]:
    expected = _of_duckdb(query, folder)
    turns: dict[str, Turn] = {"risingwave": partial(_braid, query, "risingwave", _risingwave(query), folder, expected)}
    if query.ksqldb:
        turns["ksqldb"] = partial(_braid, query, "ksqldb", _ksqldb(query), folder, expected)
    for name, engine in others.items():
        text = query.of_spark if name.startswith("Spark") else query.of_flink
        if text:
            turns[name] = partial(_other, engine, query, text, folder, expected)
    return turns


def _other(engine: Engine, query: Query, text: str, folder: Path, expected: pl.DataFrame) -> Took:
    """An engine's turn: every row that it writes must be right; those that it lacks are counted."""
    asked = Asked(text, {kind: COLUMNS[kind] for kind in query.reads}, query.columns, query.appends)
    with TemporaryDirectory(prefix="braid-nexmark-run-") as made:
        ran = engine(asked, folder, Path(made))
    lacks = 0
    if ran.rows is not None:
        found, keys = _sorted(ran.rows), expected.columns
        counts = [x.group_by(keys).len() for x in (expected, found)]
        both = counts[0].join(counts[1], on=keys, how="full", nulls_equal=True, coalesce=True, suffix="_found")
        short = both.select(pl.col("len").fill_null(0).cast(pl.Int64) - pl.col("len_found").fill_null(0).cast(pl.Int64))
        if (short["len"] < 0).any():
            odd = both.filter(pl.col("len").fill_null(0) < pl.col("len_found")).head(3).rows()
            raise AssertionError(f"{query.name}: rows that DuckDB has not: {odd}")
        lacks = int(short["len"].sum())
    return Took(ran.whole, ran.start, ran.whole - ran.start, ran.cpu, lacks)


def _beside(query: str, name: str, x: Took, braid: Took) -> tuple[str, ...]:
    """`without start`: less Spark's, or Flink's, own; Braid's less all before its first batch."""
    ratio, rest = x.whole / braid.whole, x.batches / (braid.whole - braid.before)
    figures = (f"{x.whole:.1f}", f"{x.before:.1f}", f"{x.cpu:.1f}", f"{x.cores:.2f}", f"{ratio:.2f}", f"{rest:.2f}")
    return (query, name, *figures, f"{x.lacks:,}")


def _braid(query: Query, dialect: str, text: str, folder: Path, expected: pl.DataFrame) -> Took:
    with TemporaryDirectory(prefix="braid-nexmark-run-") as made:
        here = Path(made)
        (here / "q.sql").write_text(text)
        sources = [x for kind in query.reads for x in ("--source", f"{kind}={folder / kind}.jsonl")]
        command = [sys.executable, "-m", "braid", "run", str(here / "q.sql"), "--store", str(here / "store"), *sources]
        more = ["--dialect", dialect, "--end", "--quiet", "--metrics", str(here / "metrics")]
        began, start = monotonic(), time()
        cpu = watched([*command, *more], here / "said")
        whole = monotonic() - began
        batches = [json.loads(line) for line in (here / "metrics").read_text().splitlines()]
        first = (batches[0]["at"] - batches[0]["batch_ms"]) / 1000 - start
        found = _rows(query, dialect, here / "store")
        if not found.equals(expected):
            odd = expected.join(found, on=expected.columns, how="anti", nulls_equal=True).head(3).rows()
            raise AssertionError(f"{query.name}, {dialect}: {found.height:,} rows, not {expected.height:,}: {odd}")
        return Took(whole, first, sum(b["batch_ms"] for b in batches) / 1000, cpu)


def _rows(query: Query, dialect: str, store: Path) -> pl.DataFrame:
    """The rows that stand at the end in the topic `o`: of a view the last of each key, of a stream all, whose key is a
    column."""
    topics = TopicStore(opened(store))
    name = next(n for n in topics.names() if n.lower() == "o")
    parts = [
        topics.parsed(name, p, 0, end).select(key="_key", value="_value")
        for p, end in enumerate(topics.end_offsets(name))
    ]
    records = pl.concat(parts)
    if dialect == "risingwave":
        records = records.unique("key", keep="last").filter(pl.col("value").is_not_null())
    texts = {c: pl.String() if t.is_float() else t for c, t in query.columns.items()}  # a NUMERIC is written as text
    spelled = {c.upper() if dialect == "ksqldb" else c: t for c, t in texts.items()}
    read = records.select(pl.col("value").str.json_decode(pl.Struct(spelled)).struct.unnest())
    read = read.rename(str.lower)
    if dialect == "ksqldb":
        key = next(iter(query.columns))
        read = read.with_columns(records["key"].cast(query.columns[key]).alias(key))
    return _sorted(read.cast(dict(query.columns)))  # type: ignore[arg-type]


def _sorted(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col(pl.Float64).round(6)).sort(pl.all())


def _of_duckdb(query: Query, folder: Path) -> pl.DataFrame:
    with duckdb.connect() as c:
        for kind, columns in COLUMNS.items():
            c.execute(
                f"CREATE VIEW {kind} AS SELECT * FROM read_json('{folder / kind}.jsonl', columns={dict(columns)!r})"
            )
        found = c.sql(f"SELECT {', '.join(query.columns)} FROM ({query.duck or query.sql})").pl()
    return _sorted(found.cast(dict(query.columns)))  # type: ignore[arg-type]


def _risingwave(query: Query) -> str:
    late = "WATERMARK FOR date_time AS date_time - INTERVAL '5 seconds'"
    sources = "".join(f"CREATE SOURCE {kind} ({_typed(kind)}, {late});\n" for kind in query.reads)
    return f"{sources}CREATE MATERIALIZED VIEW o AS {query.sql};\n"


def _ksqldb(query: Query) -> str:
    how = "value_format = 'JSON', timestamp = 'date_time', partitions = 1"
    sources = "".join(
        f"CREATE STREAM {kind} ({_typed(kind)}) WITH (kafka_topic = '{kind}', {how});\n" for kind in query.reads
    )
    return f"{sources}CREATE STREAM o AS {query.ksqldb};\n" if query.ksqldb else ""


def _typed(kind: str) -> str:
    return ", ".join(f"{c} {t}" for c, t in COLUMNS[kind].items())
