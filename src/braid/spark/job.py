"""A job: all that the tasks of one running query know.

In: what `preparing` has settled. Out: a `Job`, one text that travels to every task; how it is spread; its inputs.
Rule: a job is made when a query starts and lives in memory only; nothing of it is ever read from a disk, so that nobody
can slip code into a checkpoint (the text is a pickle).
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
from braid.sinks.interface import Sink
from braid.spark.columns import bucket_ids
from braid.spark.query_options import GivenOrder, Reading
from braid.stage.call_order import Ranks, partition_ranks
from braid.stage.epoch import Epoch
from braid.stage.inputs import Input
from braid.stage.offset_log import Replay
from braid.stage.registered import input_of
from braid.store import ObjectStore
from braid.topics import checkpoint_paths
from braid.topics.interface import Topics, open_topics, store_of
from braid.topics.store_value import Store

OF_A_FRAME = 1 << 10  # partitions of one registered DataFrame, at most: part of a position


@dataclass(frozen=True, slots=True)
class Job:
    """`name`: the query. `run`: one life of its checkpoint; names of staged files begin with it.

    `ids`: Spark's key of each bucket, a row a stage; `out_ids`: of each output partition. `gathered`: the rows of an
    output partition come from several tasks, so there is one more exchange before the writer. `checkpoint`: where
    the state lies; where None, Spark's state store keeps it, with copies of runs in the folder `cache` of each node.
    `wire`: a folder that all tasks see, for large frames on their way from one to the next. `reading`: how input is cut
    into batches. `topics`: the identities of those that are read from a broker. `begin`: the offset at which the query
    begins, of each `leaf/partition`. `range_ids`: where several tasks write an output partition, each a range of
    positions: Spark's key of each partition in the first range, the second … `durable`: what a batch keeps is forced to
    disk. `replay`: it reads what another has read, and its rows go `aside`. `epoch`: the driver's claim of the
    checkpoint.
    """

    plan: Plan
    name: str
    run: str
    store: Store
    output: Sink
    buckets: int
    tasks: int
    ids: tuple[tuple[int, ...], ...]
    out_ids: tuple[int, ...]
    gathered: bool
    ranks: Ranks
    fingerprint: str
    checkpoint: ObjectStore | None = None
    cache: str = ""
    wire: str | None = None
    reading: Reading = field(default_factory=Reading)
    files: Mapping[int, FileInput] = field(default_factory=dict)
    frames: frozenset[int] = frozenset()
    order: GivenOrder | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    begin: Mapping[str, int] = field(default_factory=dict)
    range_ids: tuple[int, ...] = ()
    durable: bool = False
    replay: Replay | None = None
    aside: Sink | None = None
    epoch: Epoch | None = None

    @property
    def tells_causes(self) -> bool:
        """Whether tasks say of each row that they write what it came of."""
        return self.plan.query.why and self.replay is None and self.order is None

    @property
    def to(self) -> Sink:
        """Where rows go now."""
        return self.output if self.aside is None else self.aside

    @property
    def ranges(self) -> int:
        """How many tasks may write an output partition in a batch."""
        return max(1, len(self.range_ids) // self.output.partitions)

    @property
    def last(self) -> int:
        """The number under which the writer knows its blobs."""
        return len(self.plan.stages)

    def after(self, stage: Stage, bucket: int) -> int:
        """Spark's key for what leaves the last stage."""
        return self.out_ids[bucket % self.output.partitions] if self.gathered else self.ids[stage.number][bucket]


def stateless(stage: Stage) -> bool:
    """Whether a stage keeps nothing, so that it needs no state store and not even its rows by bucket."""
    return not stage.keeps and all(isinstance(step.operator, Filter) for step in stage.steps)


def ranged(job: Job, stage: Stage) -> bool:
    """Whether several tasks write what a stage gives, each a range of positions."""
    return job.ranges > 1 and not stage.exchanges


def fused(job: Job) -> int | None:
    """The last stage, if it runs in the writer's task, in the same process: then each output partition's rows come from
    one task's buckets, and state asks for no task of Spark's own making."""
    last = job.plan.stages[-1]
    return last.number if not job.gathered and (stateless(last) or job.checkpoint is not None) else None


def spread(
    plan: Plan, outputs: int, buckets: int, tasks: int, by_key: bool = False
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], bool]:
    """`ids`, `out_ids` and `gathered` of a job. `by_key`: the output's partitions follow from the bytes of its
    keys, not from buckets."""
    last = plan.stages[-1]
    out_ids = bucket_ids(outputs, outputs, tasks)
    gathered = tasks > outputs and buckets > outputs and not stateless(last) and not last.single
    gathered = gathered or (by_key and outputs > 1)
    even = bucket_ids(buckets, buckets, tasks)
    ids = []
    for stage in plan.stages:
        if stage.exchanges:
            ids.append(even)
        elif stateless(stage):
            ids.append(tuple(out_ids[b % outputs] for b in range(buckets)))
        else:
            ids.append(even if gathered else bucket_ids(buckets, outputs, tasks))
    return tuple(ids), out_ids, gathered


def exchanges(job: Job) -> int:
    """How many exchanges the job's physical plan has."""
    last = job.plan.stages[-1]
    before = sum(1 for s in job.plan.stages if not stateless(s))
    return before + (job.gathered or stateless(last))


def sources_of(plan: Plan, partitions: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """(topic, partition) by rank; `partitions` by leaf. The checkpoint records them."""
    ranks = partition_ranks(plan, dict(enumerate(partitions)))
    made = {rank: (plan.leaves[leaf].source.topic, p) for (leaf, p), rank in ranks.items()}
    return tuple(made[rank] for rank in sorted(made))


def ranks_of(
    plan: Plan, partitions: Sequence[int], sources: Sequence[tuple[str, int]], frames: int = 0, grows: bool = True
) -> Ranks:
    """The rank of each `leaf/partition`. `grows`: topics may get more partitions."""
    at = {source: rank for rank, source in enumerate(sources)}
    known = {
        f"{leaf.number}/{p}": at[leaf.source.topic, p] for leaf in plan.leaves for p in range(partitions[leaf.number])
    }
    return Ranks(known, plan, len(known) + frames * OF_A_FRAME if grows else None)


def rank_in_frame(job: Job, leaf: int, partition: int) -> int:
    """The rank of a partition of a registered DataFrame: behind the sources that Braid reads itself."""
    return len(job.ranks) + _in_order(job).index(leaf) * OF_A_FRAME + partition


def place_in_frame(job: Job, rank: int) -> tuple[int, int] | None:
    """The leaf and the partition that have a rank, of a registered DataFrame."""
    at, partition = divmod(rank - len(job.ranks), OF_A_FRAME)
    return (_in_order(job)[at], partition) if 0 <= at < len(job.frames) else None


def _in_order(job: Job) -> list[int]:
    """Leaves that are DataFrames: tables before streams, then by name."""
    sources = {n: job.plan.leaves[n].source for n in job.frames}
    return sorted(job.frames, key=lambda n: (sources[n].kind != "table", sources[n].name))


def dumps(job: Job) -> str:
    return base64.b64encode(pickle.dumps(job)).decode()


@functools.lru_cache(maxsize=16)
def loads(text: str) -> Job:
    """The job; a worker that serves many tasks of a query opens it once."""
    job = pickle.loads(base64.b64decode(text))
    assert isinstance(job, Job)
    return job


def topics_of(job: Job) -> Topics:
    """Where the job's topics lie."""
    return open_topics(job.store, job.topics) if job.store.in_kafka else store_of(job.store.objects)


@functools.lru_cache(maxsize=16)
def inputs_of(text: str) -> dict[int, Input]:
    """The inputs of a job's leaves; those that are Spark DataFrames are not among them."""
    job = loads(text)
    topics, made = topics_of(job), dict[int, Input]()
    for leaf in job.plan.leaves:
        if leaf.number in job.frames:
            continue
        files = job.files.get(leaf.number)
        made[leaf.number] = files if files is not None else input_of(topics, leaf.source)
    return made


def checkpoint_of(store: ObjectStore, name: str) -> ObjectStore:
    """A query's checkpoint in a store."""
    return checkpoint_paths.own(store).at(name)
