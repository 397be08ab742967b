"""A store in an object store beside one in a folder: throughput, the time of a small batch, requests a batch.

In: the S3 server of the tests, on this machine; one in memory that counts what it is asked. Out: lines, and two goals.
Rule: the same records, plan, tasks and buckets, from topic to topic; what is timed is what a batch takes, so the first
copies of the input on this machine are part of it.

    PYTHONPATH=src:tests python -m benchmarks.rooms [ROWS]
"""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from benchmarks.data import json_lines
from benchmarks.engines import plan_of, session
from benchmarks.harness import Sizes
from benchmarks.topics import SQL
from braid.face.copy import copy
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.interface import store_of
from braid.topics.store_value import Store
from objects.faulty import Faulty, faulty
from objects.gateway import BUCKET, own_gateway

ROWS = 1_000_000
FEW, BATCHES, WARM = 500, 30, 10  # records of a side of a small batch; batches; of these not counted
ENOUGH, MORE = 0.8, 100.0  # goals: of the folder's throughput; ms more a small batch
SECONDS = 10  # without records
KINDS = {"topics": r"/topics/", "state": r"/state/", "runs": r"/runs/", "cuts": r"/cuts/"}


def started(spark: Any, store: str, name: str, sizes: Sizes, limit: int, up: bool) -> Any:
    from braid.sinks.topic import TopicSink
    from braid.spark.query import start
    from braid.spark.query_options import QueryOptions

    trigger = None if up else {"availableNow": True}
    sink, checkpoint = TopicSink(name, sizes.cores), f"{store}/checkpoints/{name}"
    options = QueryOptions(output=sink, checkpoint=opened(checkpoint), tasks=sizes.cores, limit=limit, trigger=trigger)
    return start(spark, plan_of(SQL), Store(opened(store)), options)


def seconds(spark: Any, store: str, name: str, sizes: Sizes) -> float:
    """Of the batches of all that is there."""
    running = started(spark, store, name, sizes, sizes.batch, up=False)
    running.await_termination()
    told = running.take_batches(over=True)
    return sum(m.batch_ms for m in told) / 1000


def put(store: Any, number: int) -> None:
    for seed, topic in enumerate("lr"):
        for lines in json_lines(FEW, 1, 100, 10 * number + seed):
            store.append_lines(topic, lines)


def small(spark: Any, store: str, sizes: Sizes, steady: Callable[[bool], None] = lambda _: None) -> float:
    """The median of a steady small batch, in ms. `steady`: told when they begin, and after a while of silence."""
    topics = store_of(opened(store))
    for topic in "lr":
        topics.create(topic, 1)
    put(topics, 0)
    running = started(spark, store, "small", sizes, sizes.batch, up=True)
    for number in range(1, BATCHES + 1):
        running.await_idle()
        if number == WARM:
            steady(True)
            running.take_batches(over=True)
        put(topics, number)
        sleep(0.05)
    running.await_idle()
    steady(False)
    told = [m.batch_ms for m in running.take_batches(over=True)]
    sleep(SECONDS)
    steady(False)
    running.stop()
    return median(told)


def requests(spark: Any, sizes: Sizes, counting: Faulty) -> None:
    """What a batch, and a second without records, asks for."""
    marks = list[int]()
    small(spark, f"s3://{BUCKET}/{uuid.uuid4().hex}", sizes, lambda _: marks.append(len(counting.asked)))
    begin, end, after = marks
    batches = BATCHES - WARM + 1
    found = Counter(map(_kind, counting.asked[begin:end]))
    print(f"requests a batch, with those of who puts records: {sum(found.values()) / batches:.1f}", flush=True)
    for kind, n in sorted(found.items()):
        print(f"    {kind:20} {n / batches:6.1f}")
    print(f"requests a second without records: {(after - end) / SECONDS:.1f}", flush=True)


def _kind(asked: str) -> str:
    method, path = asked.split(" ", 1)
    method = "LIST" if "list-type" in path else method
    return f"{method} {next((k for k, pattern in KINDS.items() if re.search(pattern, path)), 'other')}"


@contextmanager
def input_of(rows: int, sizes: Sizes) -> Iterator[tuple[str, str]]:
    """The same input in a folder and in an object store."""
    with TemporaryDirectory(prefix="braid-bench-") as name, own_gateway() as server:
        os.environ.update(server.environment | {"BRAID_CACHE": f"{name}/cache"})
        folder, url = f"{name}/s", f"s3://{BUCKET}/{uuid.uuid4().hex}"
        store = TopicStore(opened(folder))
        for seed, topic in enumerate("lr"):
            store.create(topic, 1)
            for lines in json_lines(rows, sizes.files, sizes.keys, seed):
                store.append_lines(topic, lines)
        for _ in copy(opened(folder), opened(url)):
            pass
        yield folder, url


def main(rows: int) -> bool:
    from braid.spark.conf import end

    sizes = Sizes(rows=rows, batch=rows // 2, keys=rows // 20, memory="4g")
    with input_of(rows, sizes) as (folder, url):
        spark = session(sizes)  # its workers have this environment
        for number in range(2):  # the first warms up
            took = {where: seconds(spark, where, f"o{number}", sizes) for where in (folder, url)}
        times = took[folder] / took[url]
        print(f"{rows:,} records a side: {took[folder]:.1f} s in a folder, {took[url]:.1f} s in an object store")
        ms = [small(spark, f"{where}-small", sizes) for where in (folder, url)]
        print(f"a small batch: {ms[0]:.0f} ms in a folder, {ms[1]:.0f} ms in an object store", flush=True)
        end(spark)
    with faulty() as counting:
        os.environ.update(counting.environment)
        spark = session(sizes)
        requests(spark, sizes, counting)
        end(spark)
    more = ms[1] - ms[0]
    print(f"throughput {times:.2f} of a folder's (goal {ENOUGH}), {more:.0f} ms more a small batch (goal {MORE:.0f})")
    return times >= ENOUGH and more <= MORE


if __name__ == "__main__":
    sys.exit(0 if main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS) else 1)
