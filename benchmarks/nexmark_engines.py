"""Engines beside Braid over NEXMark's events, each a whole command: Flink SQL with two kinds of state, Spark's joins.

In: a query, the folder of the events. Out: seconds and CPU, the rows that were written.
Rule: the same lines, two cores, what a user of that engine would set: Flink streams, with exactly-once checkpoints
every ten seconds, object reuse, parallelism 2, from two files a kind (it has a reader for each), into files, and once
more with mini-batches; Spark runs with two shuffle partitions until its input is read, into files, its state on the
heap or in RocksDB with a changelog. What an engine cannot say it is not asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import MappingProxyType

import polars as pl

from benchmarks.nexmark_events import HALVES
from benchmarks.processes import cpu_seconds

HERE = Path(__file__).parent
FLINK = HERE.parent / ".venv-flink" / "bin" / "python"
LONGEST = 1800  # s of one run
_FLINK = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "table.local-time-zone": "UTC",
}
MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "5000",
}
_STATE = "spark.sql.streaming.stateStore."
ROCKSDB = {
    f"{_STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}rocksdb.changelogCheckpointing.enabled": "true",
}
_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "6g",
}
_OF_FLINK = {"BIGINT": "BIGINT", "VARCHAR": "STRING", "TIMESTAMP": "TIMESTAMP(3)"}
_OF_SPARK = {"BIGINT": "BIGINT", "VARCHAR": "STRING", "TIMESTAMP": "TIMESTAMP"}


@dataclass(frozen=True, slots=True)
class Ran:
    """Seconds of the whole command, until the query was handed over, of CPU; the rows, None where they went nowhere."""

    whole: float
    start: float
    cpu: float
    rows: pl.DataFrame | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A query in an engine's words. `reads`: events by kind, with their columns; `result`: columns of the result;
    `appends`: whether its rows only come."""

    sql: str
    reads: Mapping[str, Mapping[str, str]]
    result: Mapping[str, pl.DataType]
    appends: bool = True


Engine = Callable[[Asked, Path, Path], Ran]


def flink(state: str, more: Mapping[str, str] = MappingProxyType({})) -> Engine:
    """With its state in `hashmap` or `rocksdb`, and `more` settings."""

    def ran(asked: Asked, events: Path, here: Path) -> Ran:
        tables = [_flink_source(kind, columns, events) for kind, columns in asked.reads.items()]
        sql = {pl.Int64(): "BIGINT", pl.String(): "STRING", pl.Float64(): "DOUBLE"}
        columns = ", ".join(f"`{name}` {sql[t]}" for name, t in asked.result.items())
        files = f"'connector' = 'filesystem', 'path' = '{here / 'out'}', 'format' = 'json'"
        goes = files if asked.appends else "'connector' = 'blackhole'"
        tables.append(f"CREATE TABLE o ({columns}) WITH ({goes})")
        own = {"state.backend.type": state, "execution.checkpointing.dir": f"file://{here / 'checkpoints'}"}
        settings = {**_FLINK, **own, **more}
        names = ", ".join(f"`{name}`" for name in asked.result)
        document = {
            "settings": settings,
            "tables": tables,
            "insert": f"INSERT INTO o SELECT {names} FROM ({asked.sql})",
        }
        whole, start, cpu = _timed([str(FLINK), "-P", str(HERE / "nexmark_flink.py")], document, here)
        return Ran(whole, start, cpu, _written(here / "out", asked.result) if asked.appends else None)

    return ran


def spark(more: Mapping[str, str] = MappingProxyType({})) -> Engine:
    """Its joins of streams, with `more` settings."""

    def ran(asked: Asked, events: Path, here: Path) -> Ran:
        sources = {}
        for kind, columns in asked.reads.items():
            (here / kind).mkdir()
            os.symlink(events / f"{kind}.jsonl", here / kind / f"{kind}.json")
            sources[kind] = (str(here / kind), ", ".join(f"{name} {_OF_SPARK[t]}" for name, t in columns.items()))
        document = {
            "settings": {**_SPARK, **more},
            "sources": sources,
            "query": f"SELECT {', '.join(asked.result)} FROM ({asked.sql})",
            "sink": str(here / "out"),
            "checkpoint": str(here / "checkpoint"),
        }
        whole, start, cpu = _timed([sys.executable, "-P", str(HERE / "nexmark_spark.py")], document, here)
        return Ran(whole, start, cpu, _written(here / "out", asked.result))

    return ran


def _flink_source(kind: str, columns: Mapping[str, str], events: Path) -> str:
    typed = ", ".join(f"{name} {_OF_FLINK[t]}" for name, t in columns.items())
    late = "WATERMARK FOR date_time AS date_time - INTERVAL '5' SECOND"
    files = f"'connector' = 'filesystem', 'path' = '{events / HALVES / kind}', 'format' = 'json'"
    return f"CREATE TABLE {kind} ({typed}, {late}) WITH ({files}, 'json.timestamp-format.standard' = 'SQL')"


def _timed(command: Sequence[str], document: Mapping[str, object], here: Path) -> tuple[float, float, float]:
    """Seconds of all, until the query was handed over, of CPU."""
    (here / "asked.json").write_text(json.dumps(document))
    said, began = here / "said", monotonic()
    cpu = watched([*command, str(here / "asked.json")], said)
    whole = monotonic() - began
    told = [json.loads(line) for line in said.read_text().splitlines() if line.startswith('{"submitted"')]
    return whole, told[0]["submitted"], cpu


def watched(command: Sequence[str], said: Path) -> float:
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


def _written(folder: Path, result: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """What an engine has written: JSON lines in files whose names neither begin with a dot nor with a line."""
    files = [
        p for p in sorted(folder.rglob("*")) if p.is_file() and p.name[0] not in "._" and "_metadata" not in str(p)
    ]
    frames = [pl.read_ndjson(p, schema=dict(result)) for p in files if p.stat().st_size]
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict(result))
