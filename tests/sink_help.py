"""What tests of sinks have in common: results batch by batch, statements and their rows, runs that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from braid.expr.nodes import Col
from braid.operators.changes import DIFF, HASH, TIME
from braid.plan.logical import Output, Sink
from braid.records.encoding import Encoding
from braid.store import opened
from braid.topics.store import TopicStore
from braid.types import Scalar
from cli_help import QUICK, braid, on_shared_spark

S = Scalar


def table_of(*columns: tuple[str, Any], key: Sequence[str] = ("K",), kind: Any = "table") -> Sink:
    outputs = {name: Output(name, Col(f"S.{name}", t)) for name, t in columns}
    keys = tuple(outputs[k] for k in key)
    values = tuple(o for name, o in outputs.items() if name not in key)
    return Sink("OUT", "out", kind, keys, values, Encoding("JSON", "JSON"), columns=tuple(outputs))


def changes(*rows: tuple[Any, ...]) -> pl.DataFrame:
    """Rows (sign, key, value) as the last stage gives them."""
    schema = {HASH: pl.UInt64, DIFF: pl.Int8, "_k0": pl.Int64, "v0": pl.String, TIME: pl.Int64}
    data = [(0, 1 if sign == "+" else -1, k, v, 0) for sign, k, v in rows]
    return pl.DataFrame(data, schema=schema, orient="row")


KEYED = table_of(("K", S.BIGINT), ("V", S.VARCHAR))


TYPES = """
CREATE STREAM S (I INT, B BIGINT, D DECIMAL(10, 2), F DOUBLE, T VARCHAR, O BOOLEAN, Y BYTES, DA DATE, TI TIME,
  TS TIMESTAMP, A ARRAY<INT>, M MAP<VARCHAR, INT>) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM OUT AS SELECT * FROM S;
"""
TYPED = {
    "I": -1, "B": 2**62, "D": "12.50", "F": -1e300, "T": 'ß "😀"\n\\., x', "O": True, "Y": "AP8=", "DA": 19000,
    "TI": 3_600_001, "TS": 1_700_000_000_123, "A": [1, None], "M": {"a": 1},
}  # fmt: skip


def put(folder: Path, topic: str, *values: Any, at: int = 0) -> None:
    lines = "\n".join(json.dumps({"value": v, "timestamp": at + i}) for i, v in enumerate(values))
    said = braid("put", topic, "--store", folder / "s", stdin=lines + "\n")
    assert said.code == 0, said.err


TABLE = """
CREATE TABLE A (K BIGINT PRIMARY KEY, V VARCHAR) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE TABLE B (K BIGINT PRIMARY KEY, W VARCHAR) WITH (kafka_topic='b', value_format='JSON', partitions=1);
CREATE TABLE OUT AS SELECT A.K AS K, V, W FROM A LEFT JOIN B ON A.K = B.K;
"""
STREAM = """
CREATE STREAM A (K BIGINT KEY, V VARCHAR) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE STREAM B (K BIGINT KEY, W VARCHAR) WITH (kafka_topic='b', value_format='JSON', partitions=1);
CREATE STREAM OUT AS SELECT A.K AS K, V, W
  FROM A LEFT JOIN B WITHIN 20 MILLISECONDS GRACE PERIOD 0 SECONDS ON A.K = B.K;
"""


def keyed(folder: Path, topic: str, pairs: Sequence[tuple[int, Any]], at: int) -> None:
    lines = "\n".join(json.dumps({"key": k, "value": v, "timestamp": at + i}) for i, (k, v) in enumerate(pairs))
    assert braid("put", topic, "--store", folder / "s", stdin=lines + "\n").code == 0


def planned(folder: Path) -> int:
    """How many batches a query has planned. (Old ones are removed: it is their number that counts.)"""
    return max((int(p.stem) + 1 for p in (folder / "s" / "checkpoints").glob("*/state/[0-9]*.json")), default=0)


def killed(
    folder: Path,
    count: int,
    seed: int,
    sink: Callable[[str], str],
    read: Callable[[str], list[tuple[Any, ...]]],
    sql: str = TABLE,
) -> None:
    """Runs that are killed, fed between; then the table has the rows of a run that was not. `sink`: what stands for the
    table of a name behind `--sink NAME=`; `read`: its rows, by their key. Every second run is killed at any moment, the
    others once they have planned a batch, however long that takes here."""
    rng, store = random.Random(seed), TopicStore(opened(folder / "s"))
    store.create("a", 1)
    store.create("b", 1)
    (folder / "q.sql").write_text(sql, encoding="utf-8")
    words = ["run", "q.sql", "--store", "s", "--dialect", "ksqldb"]
    command = [
        sys.executable,
        "-m",
        "braid",
        *words,
        *QUICK,
        "--quiet",
        f"--sink=OUT={sink('out')}",
        "--batch-rows",
        "20",
    ]
    for n in range(count):
        for topic, field in (("a", "V"), ("b", "W")):
            made = [(rng.randrange(50), rng.choice([None, {field: f"{n}"}, {field: f"{n}!"}])) for _ in range(60)]
            keyed(folder, topic, made, n * 1000)
        before = planned(folder)
        process = subprocess.Popen(command, cwd=folder, start_new_session=True)
        while n % 2 == 0 and process.poll() is None and planned(folder) == before:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 2) if n % 2 == 0 else rng.uniform(4, 9))
        assert process.poll() is None, f"kill {n} of seed {seed}"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert planned(folder) >= count / 2, "runs were killed before they did anything"
    assert subprocess.run([*command, "--until-idle"], cwd=folder, check=False).returncode == 0
    (folder / "q.sql").write_text(sql.replace("OUT", "PLAIN"), encoding="utf-8")
    assert on_shared_spark(*words, "--until-idle", f"--sink=PLAIN={sink('plain')}", cwd=folder).code == 0
    assert read("out") == read("plain") and len(read("out")) > 10
