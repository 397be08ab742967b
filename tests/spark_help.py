"""Queries and histories on real Spark, for tests; run as a program it is a driver of its own, for a cluster.

In: a query and a history of `histories.py`. Out: the records of its output, partition by partition.
Rule: what is written and read lies in a topic store, as in a real run.

    python spark_help.py SHAPE SEED STORE limit=N buckets=N [master=URL]     runs until all input is read
"""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from braid.lower.lower import lower
from braid.plan.logical import Query, sources
from braid.stage.local import LocalQuery
from braid.store import opened
from braid.topics import TopicStore, parse_envelope
from braid.topics.store_value import Store
from histories import History, random_history, random_query
from law import Line, chunks_of, lines_of


def case(shape: str, seed: int, length: int | None = None) -> tuple[Query, History]:
    """A random query and a partitioned history without ends (a topic has none)."""
    rng = random.Random(f"spark {shape} {seed}")
    query = random_query(rng, shape)
    while True:
        history = replace(random_history(rng, query, explicit=False, length=length), ends=False)
        if sum(1 for _ in history.records()) >= (length or 15) // 2:
            return query, history


def write_topics(store: TopicStore, query: Query, history: History) -> None:
    for source in sources(query.root):
        if source.topic in store.names():
            continue
        partitions = history.topics[source.topic]
        store.create(source.topic, len(partitions))
        for p, records in enumerate(partitions):
            lines = [
                json.dumps({"key": r.key, "value": r.value, "timestamp": r.time})[:-1]
                + (f', "headers": {r.headers}' if r.headers else "")
                + (f', "window": {list(r.window)}' if r.window else "")
                + "}"
                for r in records
            ]
            if lines:
                store.append_lines(source.topic, lines, p)


def output(store: TopicStore, topic: str = "out") -> list[list[Line]]:
    """The records of each partition."""
    found = []
    for p, end in enumerate(store.end_offsets(topic)):
        rows = parse_envelope(store.read(topic, p, 0, end)["_line"])
        names = {"_key": "key", "_value": "value", "_t": "timestamp", "_headers": "headers", "_window": "window"}
        found.append(lines_of(rows.rename(names)))
    return found


def in_one_batch(query: Query, history: History, outputs: int, buckets: int) -> list[list[Line]]:
    """What the local runtime gives, everything in one batch."""
    from cuts import batches

    plan = lower(query)
    local = LocalQuery(plan, outputs, buckets)
    found: list[list[Line]] = [[] for _ in range(outputs)]
    for batch in batches(history, []):
        records = local.run(chunks_of(plan, history, batch)).records
        for p, line in zip(records["partition"], lines_of(records), strict=True):
            found[p].append(line)
    return found


def run(store: str, query: Query, spark: Any, broker: Any = None, **options: Any) -> Any:
    """Runs a query on Spark until what is there now has been processed."""
    from braid.spark import query as queries
    from braid.spark.query_options import QueryOptions

    running = queries.start(
        spark, lower(query), Store(opened(store), broker), QueryOptions(trigger={"availableNow": True}, **options)
    )
    running.await_termination()
    return running


def main(shape: str, seed: str, store: str, *more: str) -> None:
    options = dict(x.split("=", 1) for x in more)
    from braid.spark import conf, jvm

    spark = conf.session(options.pop("master", "local[2]"), jvm.CARRIER | {"spark.driver.memory": "1g"})
    query, _ = case(shape, int(seed), int(options.pop("length", "0")) or None)
    run(store, query, spark, **{name: int(value) for name, value in options.items()})
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
