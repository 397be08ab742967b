"""A query that runs in steps on Spark, and copies of its store, checkpoint and output at many moments, for tests."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from braid.bind.program import Program
from braid.lower.lower import lower
from braid.sinks.files import FileSink
from braid.store import opened
from braid.topics import TopicStore, files
from braid.topics.store_value import Store

STATEMENTS = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE TABLE r (k INT PRIMARY KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, v, w FROM l LEFT JOIN r ON l.k = r.k;
"""
QUERY = next(e.query for e in Program("ksqldb").statements(STATEMENTS) if e.query is not None)
PARTS = ("l", "r", "o", "checkpoint", "sink")
STEPS = 5
INSIDE = ("staged", "committed", "results staged", "results committed")  # points at which a process may die


def put(store: TopicStore, step: int, of: str = "") -> None:
    """Records of a step; each step's are later than those before, so their order is the same in all batches."""
    rng = random.Random(f"{step}{of}")
    at = 1000 * step
    rows = [{"key": k, "value": {"W": f"w{step}{of}"}, "timestamp": at} for k in range(4) if rng.random() < 0.7]
    store.append("r", rows)
    rows = [
        {"key": k, "value": {"V": f"v{step}{of}-{n}"}, "timestamp": at + 10 + n}
        for n, k in enumerate(rng.choices(range(4), k=4))
    ]
    store.append("l", rows)


def run(root: Path, to_files: bool) -> None:
    """Until all input is read."""
    start(root, to_files, {"availableNow": True}).await_termination()


def start(root: Path, to_files: bool, trigger: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Results in files are always written by the same path, whatever lies there."""
    from braid.spark import query as queries
    from braid.spark.query_options import QueryOptions
    from braid.testing.on_spark import shared_session

    options = QueryOptions(trigger=trigger, **more)
    if to_files:
        there = root.parent / "out.jsonl"
        there.unlink(missing_ok=True)
        place(root, "sink").mkdir(exist_ok=True)
        there.symlink_to(place(root, "sink"))
        options = replace(options, output=FileSink.of(str(there)))
    return queries.start(shared_session(), lower(QUERY), Store(opened(str(root / "s"))), options)


def place(root: Path, part: str) -> Path:
    match part:
        case "checkpoint":
            return root / "s" / "checkpoints" / QUERY.name
        case "sink":
            return root / "out.jsonl"
        case _:
            return root / "s" / "topics" / (part if part != "o" else QUERY.sink.topic)


def copied(source: Path, target: Path, parts: tuple[str, ...] = PARTS) -> None:
    for part in parts:
        if place(source, part).exists():
            shutil.copytree(place(source, part), place(target, part), dirs_exist_ok=True)


def moments(root: Path, to_files: bool) -> list[Path]:
    """Copies of a run in steps: before and after each, and, of the third, inside; then the same from the second on with
    other records."""
    found: list[Path] = []
    live = root / "live"

    def copy() -> None:
        found.append(root / f"copy{len(found)}")
        copied(live, found[-1])

    def begin() -> TopicStore:
        return TopicStore(opened(live / "s"))

    def step(n: int, of: str = "", inside: bool = False) -> None:
        put(begin(), n, of)
        copy()
        files.crash_hook = (lambda at: copy() if at in INSIDE else None) if inside else None
        run(live, to_files)
        files.crash_hook = None
        copy()

    begin().create("l", 1)
    begin().create("r", 1)
    for n in range(STEPS - 2):
        step(n, inside=n == 2)
    fork = found[3]  # as it stood after the second step
    live = root / "again"  # this process knows the first by its path
    copied(fork, live)
    for n in range(2, STEPS):
        step(n, "b")
    return found


def rows_of(root: Path, to_files: bool) -> Counter[str]:
    if to_files:
        return Counter(x for p in (root / "out.jsonl").glob("part-*") for x in p.read_text().splitlines())
    store = TopicStore(opened(root / "s"))
    topic = QUERY.sink.topic
    ends = store.end_offsets(topic) if store.exists(topic) else []
    return Counter(x for p, end in enumerate(ends) for x in store.read(topic, p, 0, end)["_line"])


def files_of(root: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in root.rglob("*") if p.is_file() and not p.name.endswith(".lock")}


@contextmanager
def in_use(root: Path) -> Iterator[Any]:
    """A store on which the query runs, fed all the time; the query that runs."""
    store = TopicStore(opened(root / "s"))
    for name in ("l", "r"):
        store.create(name, 1)
    put(store, 0)
    running, over = start(root, False), threading.Event()

    def feed() -> None:
        n = 1
        while not over.wait(0.05):
            put(store, n)
            n += 1

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        yield running
    finally:
        over.set()
        feeding.join()
        running.stop()


def check_copy(copy: Path) -> None:
    """A copy of a store in use goes on to what its own inputs give."""
    run(copy, False)
    fresh = copy / "fresh"
    copied(copy, fresh, ("l", "r"))
    run(fresh, False)
    assert rows_of(copy, False) == rows_of(fresh, False) and rows_of(copy, False)
