"""NEXMark by the stopwatch: `braid run` from the shell to its end, files in, a topic out, defaults.

In: how many events (`--rows`), rounds. Out: seconds of the whole command and of its parts, CPU, cores at work.
Rule: nothing is warm, and nothing is asked for that a new user would not write: JSON lines as they lie, no number of
tasks, partitions or buckets. Parts: what goes by before the first batch (Spark's start, files that are made ready), the
batches, the end. A query whose rows are not those of DuckDB fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep, time

import duckdb
import polars as pl

from benchmarks.harness import Sizes
from benchmarks.nexmark_events import KINDS, write
from benchmarks.processes import cpu_seconds
from benchmarks.report import Goal, Report, Table
from braid.topics import TopicStore

BUSY = 1.7  # cores of two
LONGEST = 1800  # s of one run

_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "person": {
        "id": "BIGINT", "name": "VARCHAR", "email_address": "VARCHAR", "credit_card": "VARCHAR", "city": "VARCHAR",
        "state": "VARCHAR", "date_time": "TIMESTAMP", "extra": "VARCHAR",
    },
    "auction": {
        "id": "BIGINT", "item_name": "VARCHAR", "description": "VARCHAR", "initial_bid": "BIGINT", "reserve": "BIGINT",
        "date_time": "TIMESTAMP", "expires": "TIMESTAMP", "seller": "BIGINT", "category": "BIGINT", "extra": "VARCHAR",
    },
    "bid": {
        "auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "channel": "VARCHAR", "url": "VARCHAR",
        "date_time": "TIMESTAMP", "extra": "VARCHAR",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """`reads`: which events; `sql`: in risingwave's words, and DuckDB's where `duck` is not given; `columns`: of the
    result, as they are compared; `ksqldb`: the same in that dialect, where it can say it."""

    name: str
    reads: tuple[str, ...]
    sql: str
    columns: Mapping[str, pl.DataType]
    ksqldb: str = ""
    duck: str = ""


def _windows(kind: str) -> str:
    """A tumbling window of ten seconds, in DuckDB's words."""
    start = "time_bucket(INTERVAL '10 seconds', date_time)"
    return f"(SELECT *, {start} AS window_start, {start} + INTERVAL '10 seconds' AS window_end FROM {kind})"


_Q3 = """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
  WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"""
_Q4 = """SELECT q.category, avg(q.final) AS average FROM
  (SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b ON a.id = b.auction
   WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q GROUP BY q.category"""
_Q7 = """SELECT b.auction, b.price, b.bidder, b.date_time FROM bid b
  JOIN (SELECT max(price) AS maxprice, window_end FROM {bids} GROUP BY window_end) m ON b.price = m.maxprice
  WHERE b.date_time BETWEEN m.window_end - INTERVAL '10 seconds' AND m.window_end"""
_Q8 = """SELECT p.id, p.name, p.window_start FROM
  (SELECT id, name, window_start, window_end FROM {persons} GROUP BY id, name, window_start, window_end) p
  JOIN (SELECT seller, window_start, window_end FROM {auctions} GROUP BY seller, window_start, window_end) a
  ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end"""
_Q20 = """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra, a.item_name, a.description,
  a.initial_bid, a.reserve, a.expires, a.seller, a.extra AS auction_extra
  FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10"""
_INTERVAL = """SELECT b.auction, b.bidder, b.price, a.item_name, a.seller FROM bid b JOIN auction a
  ON b.auction = a.id AND a.date_time BETWEEN b.date_time - INTERVAL '10 seconds'
                                         AND b.date_time + INTERVAL '10 seconds'"""
_LEFT = """SELECT b.bidder, b.auction, b.price, p.name FROM bid b LEFT JOIN person p
  ON b.bidder = p.id AND p.date_time BETWEEN b.date_time - INTERVAL '20 milliseconds'
                                         AND b.date_time + INTERVAL '20 milliseconds'"""
_K_INTERVAL = """SELECT b.auction AS auction, b.bidder AS bidder, b.price AS price, a.item_name AS item_name,
  a.seller AS seller FROM bid b JOIN auction a WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON b.auction = a.id"""
_K_LEFT = """SELECT b.bidder AS bidder, b.auction AS auction, b.price AS price, p.name AS name
  FROM bid b LEFT JOIN person p WITHIN 20 MILLISECONDS GRACE PERIOD 5 SECONDS ON b.bidder = p.id"""
_N, _S = pl.Int64(), pl.String()
_TEXTS = ("channel", "url", "extra", "item_name", "description", "auction_extra")
_OF_BID = {"auction": _N, "bidder": _N, "price": _N}
_WINDOW = "TUMBLE({kind}, date_time, INTERVAL '10 seconds')"
QUERIES = (
    Query("interval", ("bid", "auction"), _INTERVAL, _OF_BID | {"item_name": _S, "seller": _N}, _K_INTERVAL),
    Query("left, few match", ("bid", "person"), _LEFT, {"bidder": _N, "auction": _N, "price": _N, "name": _S}, _K_LEFT),
    Query("q3", ("auction", "person"), _Q3, {"name": _S, "city": _S, "state": _S, "id": _N}),
    Query("q4", ("auction", "bid"), _Q4, {"category": _N, "average": pl.Float64()}),
    Query(
        "q7",
        ("bid",),
        _Q7.format(bids=_WINDOW.format(kind="bid")),
        _OF_BID,
        duck=_Q7.format(bids=_windows("bid")),
    ),
    Query(
        "q8",
        ("person", "auction"),
        _Q8.format(persons=_WINDOW.format(kind="person"), auctions=_WINDOW.format(kind="auction")),
        {"id": _N, "name": _S},
        duck=_Q8.format(persons=_windows("person"), auctions=_windows("auction")),
    ),
    Query("q20", ("bid", "auction"), _Q20, _OF_BID | {n: _S for n in _TEXTS} | {"reserve": _N}),
)


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds: of all, before the first batch, of batches; of CPU."""

    whole: float
    before: float
    batches: float
    cpu: float

    @property
    def cores(self) -> float:
        return self.cpu / self.whole


def run(sizes: Sizes) -> Report:
    rows: list[tuple[str, ...]] = []
    goals: list[Goal] = []
    with TemporaryDirectory(prefix="braid-nexmark-") as made:
        folder = Path(made)
        write(sizes.rows, folder)
        size = sum((folder / f"{kind}.jsonl").stat().st_size for kind in KINDS)
        for query in QUERIES:
            expected = _of_duckdb(query, folder)
            for dialect, text in (("risingwave", _risingwave(query)), ("ksqldb", _ksqldb(query))):
                if not text:
                    continue
                took = [_braid(query, dialect, text, folder, expected) for _ in range(sizes.rounds)]
                mid = Took(*(median(getattr(t, name) for t in took) for name in Took.__slots__))
                print(f"  {query.name}, {dialect}: {mid.whole:.1f} s, {mid.cpu:.1f} s of CPU", flush=True)
                figures = (mid.whole, mid.before, mid.batches, mid.whole - mid.before - mid.batches, mid.cpu)
                rows.append((query.name, dialect, *(f"{x:.1f}" for x in figures), f"{mid.cores:.2f}"))
                goals.append(Goal(f"{query.name}, {dialect}: cores at work", mid.cores, ">=", BUSY))
    text = (
        f"{sizes.rows:,} events as JSON lines, {size / 1e6:,.0f} MB, into a topic of the store; {sizes.rounds} rounds."
    )
    heads = ("query", "dialect", "whole s", "before the first batch", "batches", "end", "CPU s", "cores at work")
    return Report([Table("NEXMark, the whole command", text, heads, tuple(rows))], goals)


def _braid(query: Query, dialect: str, text: str, folder: Path, expected: pl.DataFrame) -> Took:
    with TemporaryDirectory(prefix="braid-nexmark-run-") as made:
        here = Path(made)
        (here / "q.sql").write_text(text)
        sources = [x for kind in query.reads for x in ("--source", f"{kind}={folder / kind}.jsonl")]
        command = [sys.executable, "-m", "braid", "run", str(here / "q.sql"), "--store", str(here / "store"), *sources]
        more = ["--dialect", dialect, "--end", "--quiet", "--metrics", str(here / "metrics")]
        began, start = monotonic(), time()
        cpu = _watched([*command, *more], here / "said")
        whole = monotonic() - began
        batches = [json.loads(line) for line in (here / "metrics").read_text().splitlines()]
        first = (batches[0]["at"] - batches[0]["batch_ms"]) / 1000 - start
        found = _rows(query, dialect, here / "store")
        if not found.equals(expected):
            odd = expected.join(found, on=expected.columns, how="anti", nulls_equal=True).head(3).rows()
            raise AssertionError(f"{query.name}, {dialect}: {found.height:,} rows, not {expected.height:,}: {odd}")
        return Took(whole, first, sum(b["batch_ms"] for b in batches) / 1000, cpu)


def _watched(command: list[str], said: Path) -> float:
    """Carries a command out; the CPU seconds of it and all that it starts, a moment before its end."""
    with said.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        cpu, until = 0.0, monotonic() + LONGEST
        while process.poll() is None:
            cpu = max(cpu, cpu_seconds(process.pid))
            if monotonic() > until:
                process.kill()
            sleep(0.05)
    if process.returncode:
        raise AssertionError(f"{' '.join(command)}: {said.read_text()[-2000:]}")
    return cpu


def _rows(query: Query, dialect: str, store: Path) -> pl.DataFrame:
    """The rows that stand at the end in the topic `o`: of a view the last of each key, of a stream all, whose key is a
    column."""
    topics = TopicStore(store)
    name = next(n for n in topics.names() if n.lower() == "o")
    parts = [
        topics.parsed(name, p, 0, end).select(key="_key", value="_value")
        for p, end in enumerate(topics.end_offsets(name))
    ]
    records = pl.concat(parts)
    if dialect == "risingwave":
        records = records.unique("key", keep="last").filter(pl.col("value").is_not_null())
    texts = {c: _S if t.is_float() else t for c, t in query.columns.items()}  # a NUMERIC is written as text
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
        for kind, columns in _COLUMNS.items():
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
    return ", ".join(f"{c} {t}" for c, t in _COLUMNS[kind].items())
