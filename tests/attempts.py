"""Every task of a query done once more, in another process and with its input in another order: what leaves each stage.

In: a query's name, a seed of the order. Out: a line a batch, stage and task, with a digest of the rows
that Spark would shuffle; and one with what the topic holds.
Rule: the tasks' own functions run, on a checkpoint of their own, with a context such as Spark's worker makes. A line
differs where the bytes do.

    PYTHONHASHSEED=7 python attempts.py 7 CHAINED
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pyspark import TaskContext

from braid.bind.program import Program
from braid.lower.lower import lower
from braid.spark import columns, source, stage, task_metrics, writer
from braid.spark.columns import Blob, spark_partition
from braid.spark.job import Job, dumps, loads
from braid.spark.preparing import prepared
from braid.spark.query_options import QueryOptions
from braid.stage import batches, state_file
from braid.store import opened
from braid.topics.store_value import Store
from crash import world
from crash.places import InStore

TASKS = 2
QUERIES = {
    "CHAINED": world.QUERIES["CHAINED"].replace("@", ""),
    # Two halves of a GROUP BY, with an exchange of what is taken back; some rows fail, and are drops.
    "GROUPED": """
CREATE TABLE grouped AS SELECT 10 / n AS g, COUNT(*) AS c, SUM(n) AS s, COLLECT_LIST(v) AS v FROM a GROUP BY 10 / n;
""",
    # A foreign key: rows of the left table go to the right one's keys and back.
    "FOREIGN": """
CREATE TABLE foreign AS SELECT a.k AS k, a.v AS av, b.v AS bv, 7 / a.n AS q FROM a LEFT JOIN b ON a.n = b.k;
""",
}


def main(name: str, seed: int, durable: bool = False) -> Iterator[str]:
    rng = random.Random(seed)
    InStore(Path("s")).write(world.history(1, 60))
    (query,) = (
        e.query
        for e in Program("ksqldb").statements(world.SOURCES.replace("@", "") + QUERIES[name])
        if e.query is not None
    )
    options = QueryOptions(tasks=TASKS, limit=100, durable=durable)
    job, folder, _ = prepared(lower(query), Store(opened("s")), TASKS, options)
    text = dumps(job)
    planner, at = source.Planner(text), source.Planner(text).beginning()
    while (until := planner.latest(at)) is not at:
        batch = until["batch"]
        slices = planner.slices(at, until)
        blobs: list[Blob] = []
        for number in rng.sample(range(len(slices)), len(slices)):
            with task(batch, number):
                blobs += columns.blobs_of(source.read(text, slices[number]))
        yield f"{batch} source {digest(blobs)}"
        for step in job.plan.stages[:-1]:
            blobs = list(exchanged(text, step.number, batch, blobs, rng))
            yield f"{batch} {step.number} {digest(blobs)}"
        manifest = list(written(text, batch, blobs, rng))
        said = task_metrics.reported(folder, [x for kind, doc in manifest if kind == "counts" for x in json.loads(doc)])
        assert all("spent" in x for x in said) and not folder.names(task_metrics.FOLDER)
        kept = state_file.changed(state_file.load(folder, batch - 1), said)
        state_file.save(folder, batch, kept, reads=[json.dumps(until)])
        yield f"{batch} state {hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()}"
        writer.publish_batch(job, batch, manifest, batches.digest_of([json.dumps(until)]))
        at = until
    yield f"topic {InStore(Path('s')).written([query.name])}"


@contextlib.contextmanager
def task(batch: int, number: int) -> Iterator[None]:
    """A context as the worker of a task has it."""
    context = TaskContext._getOrCreate()
    context._partitionId = number
    context._localProperties = {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": "5-0"}
    yield


def by_task(blobs: Iterable[Blob], rng: random.Random) -> Iterator[tuple[int, list[Blob]]]:
    """Spark's exchange: all of a key in one task, in any order; and tasks in any order."""
    mixed = sorted(blobs, key=lambda _: rng.random())
    for number in rng.sample(range(TASKS), TASKS):
        yield number, [b for b in mixed if spark_partition(b.bucket, TASKS) == number]


def exchanged(text: str, number: int, batch: int, blobs: Iterable[Blob], rng: random.Random) -> Iterator[Blob]:
    """What the tasks of a stage make of what those before sent."""
    for partition, mine in by_task(blobs, rng):
        with task(batch, partition):
            yield from stage.through(loads(text), number, mine)


def written(text: str, batch: int, blobs: Iterable[Blob], rng: random.Random) -> Iterator[tuple[str, str]]:
    job: Job = loads(text)
    for partition, mine in by_task(blobs, rng):
        with task(batch, partition):
            yield from writer.write(job, batch, stage.through(job, job.plan.stages[-1].number, mine))


def digest(blobs: Iterable[Blob]) -> str:
    """Of rows in any order, as Spark's checksum is."""
    parts = (hashlib.sha256(repr((b.stage, b.frame, b.bucket, b.kind, b.blob)).encode()).digest() for b in blobs)
    return hashlib.sha256(b"".join(sorted(parts))).hexdigest()


if __name__ == "__main__":
    seed, *queries = sys.argv[1:]
    made = []
    for query in queries:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            made.append("\n".join(main(query, int(seed))))
    print("\n\n".join(made))
