"""What is settled before a query starts: how it is spread, and that its checkpoint is its own.

In: a plan, a store, wishes. Out: a `Job` and the folder of its checkpoint.
Rule: what the first start chose holds for ever; a wish that differs from it is refused, never taken silently. The
document of the checkpoint is compared before Spark opens anything.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

import pyspark

from braid.errors import BraidError
from braid.files import results as result_files
from braid.files.watch import Files, FileWatch, Note, watched
from braid.lower.physical import Plan
from braid.plan.canonical import canonical, wording
from braid.spark.job import Job, Order, Output, ranks_of, sources_of, spread, stateless
from braid.spark.private import own_folder
from braid.stage import checkpoint, resume
from braid.stage.checkpoint import Document
from braid.stage.cut import LIMIT
from braid.topics import TopicStore, check_name

BUCKETS = 4  # of a stage with state, at least


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller of `start` asked for; None: whatever the checkpoint or the default says."""

    checkpoint: str | None
    output: Output | None
    partitions: int | None
    buckets: int | None
    tasks: int | None
    limit: int | None
    files: Mapping[str, Files]
    frames: frozenset[str]
    order: Order | None
    overwrite: bool = False  # a folder of another run's results is replaced
    up: bool = False  # the query stays up: files may still come
    close: bool = False  # all sources are closed behind what they have
    note: Note = print

    def named(self) -> list[str]:
        """The recorded numbers that were asked for, as the checkpoint names them."""
        wishes = {"buckets": self.buckets, "outputs": self.partitions, "shuffle": self.tasks}
        return [name for name, wish in wishes.items() if wish is not None]


def prepared(
    plan: Plan, store: str, cores: int, wishes: Wishes, one_node: bool = False
) -> tuple[Job, str, list[FileWatch]]:
    """The job, its checkpoint recorded or compared, and whoever looks for more files; the sink's topic is there
    afterwards. `one_node`: all tasks run on the driver's."""
    topics = TopicStore(store)
    name = check_name(plan.query.name, "query")
    folder = wishes.checkpoint or checkpoint_of(topics.root, name)
    sink = result_files.described(wishes.output.kind, wishes.output.target) if wishes.output else "topic"
    known = checkpoint.check_plan(folder, plan.query, sink)
    goes_on = known is not None and resume.last_batch(folder, known) is not None
    watches = {x.source.name: x for x in watched(plan, wishes.files, folder, wishes.up, wishes.note)}
    for watch in watches.values():
        watch.check()
    frames = _frames(plan, wishes.frames)
    partitions = [
        0 if x.number in frames else 1 if x.source.name in watches else topics.partitions(x.source.topic)
        for x in plan.leaves
    ]
    output = wishes.output or _topic(plan, topics, wishes.partitions, known.outputs if known else partitions[0] or 1)
    run = str(known.settings.get("run")) if known else f"{name}-{int(time.time()):08x}{uuid4().hex[:6]}"
    if output.kind in result_files.KINDS.values():
        result_files.check(output.target, run, goes_on, wishes.overwrite)
    buckets = wishes.buckets or _buckets(plan, output.partitions)
    tasks = wishes.tasks or min(cores, output.partitions)
    document = Document(
        query=name,
        plan=canonical(plan.query),
        sql=wording(plan.query),
        settings={"dialect": plan.query.dialect, "run": run, "order": wishes.order is not None, "sink": sink},
        buckets=buckets,
        outputs=output.partitions,
        shuffle=tasks,
        bucket_ids=_flat(plan, output.partitions, buckets, tasks),
        sources=sources_of(plan, partitions),
        spark=pyspark.__version__,
        files=tuple(sorted(watches)),
    )
    kept = checkpoint.open_or_create(folder, document, wishes.named())
    if kept.bucket_ids != _flat(plan, kept.outputs, kept.buckets, kept.shuffle) or kept.outputs != output.partitions:
        raise BraidError(f"{folder} spreads its state otherwise than this version of braid", "use the older one again")
    if output.kind == "topic" and output.target not in topics.names():
        topics.create(output.target, output.partitions)
    for watch in watches.values():
        watch.begin()
    ids, out_ids, gathered = spread(plan, kept.outputs, kept.buckets, kept.shuffle)
    job = Job(
        plan=plan,
        name=name,
        run=run,
        store=topics.root,
        output=output,
        buckets=kept.buckets,
        tasks=kept.shuffle,
        ids=ids,
        out_ids=out_ids,
        gathered=gathered,
        ranks=ranks_of(plan, partitions, kept.sources),
        fingerprint=kept.fingerprint,
        checkpoint=os.path.abspath(folder),
        wire=own_folder(os.path.join("wire", run)) if one_node else None,
        limit=wishes.limit or LIMIT,
        close=wishes.close,
        files={x.number: watches[x.source.name].read_as(x.source) for x in plan.leaves if x.source.name in watches},
        frames=frames,
        order=wishes.order,
    )
    return job, folder, list(watches.values())


def loose(plan: Plan, store: str, tasks: int, names: frozenset[str]) -> Job:
    """A job whose checkpoint is the user's: nothing is recorded but in Spark's own."""
    topics = TopicStore(store)
    frames = _frames(plan, names)
    partitions = [0 if x.number in frames else topics.partitions(x.source.topic) for x in plan.leaves]
    run = f"{plan.query.name}-{uuid4().hex[:12]}"
    buckets = 1 if all(stateless(s) for s in plan.stages) else max(BUCKETS, tasks)
    ids, out_ids, gathered = spread(plan, 1, buckets, tasks)
    return Job(
        plan=plan,
        name=plan.query.name,
        run=run,
        store=topics.root,
        output=Output("frame", "", 1),
        buckets=buckets,
        tasks=tasks,
        ids=ids,
        out_ids=out_ids,
        gathered=gathered,
        ranks=ranks_of(plan, partitions, sources_of(plan, partitions)),
        fingerprint=hashlib.sha256(canonical(plan.query).encode()).hexdigest()[:16],
        cache=own_folder(os.path.join("state", run)),
        limit=LIMIT,
        frames=frames,
    )


def _frames(plan: Plan, names: frozenset[str]) -> frozenset[int]:
    return frozenset(leaf.number for leaf in plan.leaves if leaf.source.name in names)


def checkpoint_of(store: str, name: str) -> str:
    """The folder of a query's checkpoint."""
    return os.path.join(store, "checkpoints", name)


def _topic(plan: Plan, topics: TopicStore, wanted: int | None, source: int) -> Output:
    """The sink's topic as it is, or will be: with the partitions asked for, declared, or of the left source."""
    sink = plan.query.sink
    there = sink.topic in topics.names()
    have = topics.partitions(sink.topic) if there else wanted or sink.partitions or source
    if wanted is not None and have != wanted:
        raise BraidError(f"the topic {sink.topic} has {have} partitions, not {wanted}", "partitions are for ever")
    return Output("topic", sink.topic, have)


def _buckets(plan: Plan, outputs: int) -> int:
    """A few, and a multiple of the sink's partitions."""
    return outputs if all(stateless(s) for s in plan.stages) else outputs * -(-BUCKETS // outputs)


def _flat(plan: Plan, outputs: int, buckets: int, tasks: int) -> tuple[int, ...]:
    ids, out_ids, _ = spread(plan, outputs, buckets, tasks)
    return tuple(i for row in (*ids, out_ids) for i in row)
