"""What a batch costs beside few and many buckets, partitions of a source, and tasks: time, CPU, bytes.

In: numbers of buckets, of partitions, of tasks. Out: for each the time of a batch, the CPU of the driver (Python and
JVM) and of its workers, the bytes that the driver keeps of it, as a slope from the least to the most.
Rule: a batch has the same few rows of the same few keys in all of them, so what grows is what nobody asked for. The
first batches, which touch all partitions, are left out.

    PYTHONPATH=src python -m benchmarks.slopes [buckets | partitions | tasks]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from benchmarks.engines import plan_of, session
from benchmarks.harness import Sizes
from benchmarks.processes import tree
from braid.stage import state_file
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.store_value import Store

SQL = """
CREATE STREAM l (k BIGINT KEY, v BIGINT) WITH (kafka_topic='l', value_format='JSON', partitions={partitions});
CREATE STREAM r (k BIGINT KEY, v BIGINT) WITH (kafka_topic='r', value_format='JSON', partitions={partitions});
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, r.v AS rv FROM l LEFT JOIN r
  WITHIN 1 HOUR GRACE PERIOD 1 HOUR ON l.k = r.k;
"""
FEW, MANY = 10, 1000
ROWS, KEYS, TOUCHED = 200, 10, 5  # of a batch: records of a side, keys, partitions of a source
WARM, BATCHES = 6, 14


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a batch: ms; CPU ms of the driver and of its workers; bytes of the file of its state, and of its offsets."""

    ms: float
    driver: float
    workers: float
    state: float
    offsets: float


def cpu() -> tuple[float, float]:
    """CPU seconds so far: of this process and its JVM, of all below them."""
    own, *below = tree()
    jvm = [p for p in below if p.name == "java"]
    return own.cpu + sum(p.cpu for p in jvm), sum(p.cpu for p in below if p not in jvm)


def records(batch: int, partitions: int) -> Iterator[tuple[int, str]]:
    """Of a batch: (partition, line); of the first: one for each partition."""
    count, begin = (ROWS, batch * ROWS) if batch else (partitions, 0)
    for n in range(count):
        at = n if not batch else (batch * TOUCHED + n % TOUCHED) % partitions
        yield at, f'{{"key":{n % KEYS},"value":{{"V":{n}}},"timestamp":{1_000_000 + begin + n}}}'


def put(store: TopicStore, batch: int, partitions: int) -> None:
    for topic in "lr":
        lines: dict[int, list[str]] = {}
        for partition, line in records(batch, partitions):
            lines.setdefault(partition, []).append(line)
        for partition, mine in lines.items():
            store.append_lines(topic, mine, partition)


def cost(spark: Any, buckets: int, partitions: int, tasks: int) -> Cost:
    """Of the steady batches of a run, which are put and done one after the other."""
    from braid.sinks.topic import TopicSink
    from braid.spark.query import start
    from braid.spark.query_options import QueryOptions

    with TemporaryDirectory(prefix="braid-bench-") as folder:
        store = TopicStore(opened(Path(folder) / "s"))
        for topic in "lr":
            store.create(topic, partitions)
        checkpoint = f"{folder}/checkpoint"
        options = QueryOptions(output=TopicSink("O", 2), checkpoint=opened(checkpoint), tasks=tasks, buckets=buckets)
        put(store, 0, partitions)
        running = start(spark, plan_of(SQL.format(partitions=partitions)), Store(store.root), options)
        taken, files, before = list[float](), list[tuple[int, int]](), (0.0, 0.0)
        for batch in range(1, WARM + BATCHES + 1):
            running.await_idle()
            if batch == WARM + 1:
                before = cpu()
                running.take_batches(over=True)
            put(store, batch, partitions)
            sleep(0.2)
            running.await_idle()
            newest = state_file.batches(opened(checkpoint))[-1]
            size = Path(state_file.path_of(opened(checkpoint), newest)).stat().st_size
            files.append((size, sum(map(len, state_file.reads(opened(checkpoint), newest) or ()))))
        after = cpu()
        told = running.take_batches(over=True)
        taken = [m.batch_ms for m in told]
        running.stop()
    own, others = (1000 * (b - a) / len(told) for a, b in zip(before, after, strict=True))
    return Cost(median(taken), own, others, *(median(x) for x in zip(*files, strict=True)))


def main(what: str) -> None:
    spark = session(Sizes(rows=1, cores=2))
    print("buckets partitions tasks  batch ms  CPU ms driver, workers  state B  offsets B", flush=True)
    runs = [(n, FEW, 2, "buckets") for n in (FEW, 100, MANY)] + [(FEW, n, 2, "partitions") for n in (FEW, 100, MANY)]
    runs += [(64, FEW, n, "tasks") for n in (2, 16, 64)]
    for buckets, partitions, tasks, kind in runs:
        if what in ("", kind):
            x = cost(spark, buckets, partitions, tasks)
            print(
                f"{buckets:7} {partitions:10} {tasks:5} {x.ms:9.0f} {x.driver:14.0f} {x.workers:8.0f}"
                f" {x.state:12,.0f} {x.offsets:10,.0f}",
                flush=True,
            )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
