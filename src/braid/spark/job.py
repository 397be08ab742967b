"""A job: all that the tasks of one running query know.

In: a plan, where its inputs and its output lie, how it is spread. Out: one text that travels to every task.
Rule: a job is made when a query starts and lives in memory only; nothing of it is ever read from a disk, so that
nobody can slip code into a checkpoint (the text is a pickle).
"""

from __future__ import annotations

import base64
import functools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braid.files.input import FileInput
from braid.lower.physical import Plan, Stage
from braid.operators.filter import Filter
from braid.spark.columns import bucket_ids
from braid.stage.call_order import partition_ranks
from braid.stage.inputs import Input
from braid.stage.topic_input import TopicInput
from braid.topics import TopicStore


@dataclass(frozen=True, slots=True)
class Order:
    """Records come in an order given from outside (the test driver). `gate`: a file that says up to which number the
    query may read; `marks`: a file of clock calls and ends; `size`: at most so many records a batch; `since`: the
    number at which the query starts, for those that read a snapshot."""

    gate: str
    marks: str
    hops: int
    size: int | None
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """The sink: a topic of the store (`topic`), a folder of files, the console, or nothing (`none`)."""

    kind: str
    target: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Job:
    """`name`: the query. `run`: one life of its checkpoint; names of staged files begin with it.

    `ids`: Spark's key of each bucket, a row a stage; `out_ids`: of each output partition. `gathered`: the rows of an
    output partition come from several tasks, so there is one more exchange before the writer. `checkpoint`: where
    the state lies; where None, Spark's state store keeps it, with copies of runs in the folder `cache` of each node.
    `wire`: a folder that all tasks see, for large frames on their way from one to the next. `close`: all sources are
    closed when what they have has been read.
    """

    plan: Plan
    name: str
    run: str
    store: str
    output: Output
    buckets: int
    tasks: int
    ids: tuple[tuple[int, ...], ...]
    out_ids: tuple[int, ...]
    gathered: bool
    ranks: Mapping[str, int]
    fingerprint: str
    checkpoint: str | None = None
    cache: str = ""
    wire: str | None = None
    limit: int = 1_000_000
    close: bool = False
    files: Mapping[int, FileInput] = field(default_factory=dict)
    frames: frozenset[int] = frozenset()
    order: Order | None = None

    @property
    def last(self) -> int:
        """The number under which the writer knows its blobs."""
        return len(self.plan.stages)

    def after(self, stage: Stage, bucket: int) -> int:
        """Spark's key for what leaves the last stage."""
        return self.out_ids[bucket % self.output.partitions] if self.gathered else self.ids[stage.number][bucket]


def stateless(stage: Stage) -> bool:
    """Whether a stage keeps nothing, so that it needs no state store and not even its rows by bucket."""
    return all(isinstance(step.operator, Filter) for step in stage.steps)


def fused(job: Job) -> int | None:
    """The last stage, if it runs in the writer's task, in the same process: then each output partition's rows come from
    one task's buckets, and state asks for no task of Spark's own making."""
    last = job.plan.stages[-1]
    return last.number if stateless(last) or (job.checkpoint is not None and not job.gathered) else None


def spread(
    plan: Plan, outputs: int, buckets: int, tasks: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], bool]:
    """`ids`, `out_ids` and `gathered` of a job."""
    last = plan.stages[-1]
    out_ids = bucket_ids(outputs, outputs, tasks)
    gathered = tasks > outputs and buckets > outputs and not stateless(last) and not last.single
    even = bucket_ids(buckets, buckets, tasks)
    ids = []
    for stage in plan.stages:
        if stage.exchange is not None:
            ids.append(even)
        elif stateless(stage):
            ids.append(tuple(out_ids[b % outputs] for b in range(buckets)))
        else:
            ids.append(even if gathered else bucket_ids(buckets, outputs, tasks))
    return tuple(ids), out_ids, gathered


def exchanges(job: Job) -> int:
    """How many exchanges the job's physical plan has."""
    return sum(1 for s in job.plan.stages if s.exchange is None or not stateless(s)) + job.gathered


def sources_of(plan: Plan, partitions: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """(topic, partition) by rank; `partitions` by leaf. The checkpoint records them."""
    ranks = partition_ranks(plan, dict(enumerate(partitions)))
    made = {rank: (plan.leaves[leaf].source.topic, p) for (leaf, p), rank in ranks.items()}
    return tuple(made[rank] for rank in sorted(made))


def ranks_of(plan: Plan, partitions: Sequence[int], sources: Sequence[tuple[str, int]]) -> dict[str, int]:
    """The rank of each `leaf/partition`."""
    at = {source: rank for rank, source in enumerate(sources)}
    return {
        f"{leaf.number}/{p}": at[leaf.source.topic, p] for leaf in plan.leaves for p in range(partitions[leaf.number])
    }


def dumps(job: Job) -> str:
    return base64.b64encode(pickle.dumps(job)).decode()


@functools.lru_cache(maxsize=16)
def loads(text: str) -> Job:
    """The job; a worker that serves many tasks of a query opens it once."""
    job = pickle.loads(base64.b64decode(text))
    assert isinstance(job, Job)
    return job


@functools.lru_cache(maxsize=64)
def store_of(root: str) -> TopicStore:
    """A store as this process sees it, with its view of the commits."""
    return TopicStore(root)


@functools.lru_cache(maxsize=16)
def inputs_of(text: str) -> dict[int, Input]:
    """The inputs of a job's leaves; those that are Spark DataFrames are not among them."""
    job = loads(text)
    made: dict[int, Input] = {}
    for leaf in job.plan.leaves:
        if leaf.number in job.frames:
            continue
        files = job.files.get(leaf.number)
        made[leaf.number] = files if files is not None else TopicInput(store_of(job.store), leaf.source)
    return made
