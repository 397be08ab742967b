"""A job: all that the tasks of one running query know; and what is settled before it starts.

In: a plan, a store, wishes. Out: a `Job`, one text that travels to every task, and the folder of its checkpoint.
Rule: a job is made when a query starts and lives in memory only; nothing of it is ever read from a disk, so that nobody
can slip code into a checkpoint (the text is a pickle). What the first start chose (how the query is spread) holds for
ever; a wish that differs from it is refused, never taken silently. The document of the checkpoint is compared before
Spark opens anything.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import pickle
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pyspark

from braid.errors import BraidError, QueryRefused, anew
from braid.files import results as result_files
from braid.files.input import FileInput
from braid.files.watch import Files, FileWatch, Note, watched
from braid.lower.lower import lower
from braid.lower.physical import Plan, Stage
from braid.operators.filter import Filter
from braid.plan.canonical import canonical, wording
from braid.spark.columns import bucket_ids
from braid.spark.letters import Letters
from braid.spark.private import own_folder
from braid.stage import checkpoint
from braid.stage.call_order import Ranks, partition_ranks
from braid.stage.checkpoint import Document
from braid.stage.cut import LIMIT
from braid.stage.inputs import Input, TopicInput
from braid.topics import TopicStore, access, check_name, whereabouts
from braid.topics.access import Takes
from braid.topics.begin import UNASKED, Begins, Where, offsets_of
from braid.topics.broker import Broker
from braid.topics.files import members, whole
from braid.topics.interface import Topics, open_topics

OF_A_FRAME = 1 << 10  # partitions of one registered DataFrame, at most: part of a position


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
    """The sink: a topic of the store (`topic`) or of a broker (`kafka`), a folder of files, the console, or nothing
    (`none`). `takes`: what records the topic of a broker takes; `letters`: where drops go, too."""

    kind: str
    target: str
    partitions: int
    takes: Takes | None = None
    letters: Letters | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """`name`: the query. `run`: one life of its checkpoint; names of staged files begin with it.

    `ids`: Spark's key of each bucket, a row a stage; `out_ids`: of each output partition. `gathered`: the rows of an
    output partition come from several tasks, so there is one more exchange before the writer. `checkpoint`: where
    the state lies; where None, Spark's state store keeps it, with copies of runs in the folder `cache` of each node.
    `wire`: a folder that all tasks see, for large frames on their way from one to the next. `close`: all sources are
    closed when what they have has been read. `idle`: s after which a partition without records does not hold its
    source's clock. `broker`: where the topics lie, if not in the store; then `topics` has the identities of those that
    are read. `begin`: the offset at which the query begins, of each `leaf/partition`. `range_ids`: where several tasks
    write an output partition, each a range of positions: Spark's key of each partition in the first range, the second …
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
    ranks: Ranks
    fingerprint: str
    checkpoint: str | None = None
    cache: str = ""
    wire: str | None = None
    limit: int = LIMIT
    close: bool = False
    idle: float | None = None
    files: Mapping[int, FileInput] = field(default_factory=dict)
    frames: frozenset[int] = frozenset()
    order: Order | None = None
    broker: Broker | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    begin: Mapping[str, int] = field(default_factory=dict)
    range_ids: tuple[int, ...] = ()

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
        if stage.exchange is not None:
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


@functools.lru_cache(maxsize=64)
def store_of(root: str) -> TopicStore:
    """A store as this process sees it, with its view of the commits."""
    return TopicStore(root)


def topics_of(job: Job) -> Topics:
    """Where the job's topics lie."""
    return store_of(job.store) if job.broker is None else open_topics(job.store, job.broker, job.topics)


@functools.lru_cache(maxsize=16)
def inputs_of(text: str) -> dict[int, Input]:
    """The inputs of a job's leaves; those that are Spark DataFrames are not among them."""
    job = loads(text)
    topics, made = topics_of(job), dict[int, Input]()
    for leaf in job.plan.leaves:
        if leaf.number in job.frames:
            continue
        files = job.files.get(leaf.number)
        made[leaf.number] = files if files is not None else TopicInput(topics, leaf.source)
    return made


# -------------------------------------------------------------- before a start


AT_LEAST_ONCE = "at least once"
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
    broker: Broker | None = None
    begins: Begins = UNASKED
    idle: float | None = None

    def named(self) -> list[str]:
        """The recorded numbers that were asked for, as the checkpoint names them."""
        wishes = {"buckets": self.buckets, "outputs": self.partitions, "shuffle": self.tasks}
        return [name for name, wish in wishes.items() if wish is not None]


def prepared(
    plan: Plan, store: str, cores: int, wishes: Wishes, one_node: bool = False
) -> tuple[Job, str, list[FileWatch]]:
    """The job, its checkpoint recorded or compared, and whoever looks for more files; the sink's topic is there
    afterwards. `one_node`: all tasks run on the driver's."""
    topics = open_topics(store, wishes.broker)
    name = check_name(plan.query.name, "query")
    folder = wishes.checkpoint or checkpoint_of(topics.root, name)
    sink = result_files.described(wishes.output.kind, wishes.output.target) if wishes.output else "topic"
    known = checkpoint.check_plan(folder, plan.query, sink, store=topics.root)
    if wishes.broker is not None:
        others = {*wishes.files, *wishes.frames}
        reads = (x.source.topic for x in plan.leaves if x.source.name not in others)
        access.check(topics, name, reads, None if wishes.output else plan.query.sink.topic)
    if known is not None and ("topics" in known.settings) != (wishes.broker is not None):
        way = "with --kafka" if wishes.broker is None else "without --kafka"
        raise BraidError(f"the query {name} has run {way}: its checkpoint knows other topics", f"run it {way} again")
    if known is not None and wishes.broker is not None:
        _check_delivery(name, known, wishes.broker)
    elsewhere = wishes.output is not None and wishes.output.kind not in ("topic", "kafka")
    if elsewhere or (known is not None and checkpoint.KEEPS not in known.settings):  # or it began without
        plan = plan.unkept()
    if plan.in_place and known is not None and checkpoint.IN_PLACE not in known.settings:
        plan = lower(plan.query, apart=True)
    goes_on = known is not None and checkpoint.last_batch(folder, known) is not None
    watches = {x.source.name: x for x in watched(plan, wishes.files, folder, wishes.up, wishes.note)}
    for watch in watches.values():
        watch.check()
    frames = _frames(plan, wishes.frames)
    partitions = [
        0 if x.number in frames else 1 if x.source.name in watches else topics.partitions(x.source.topic)
        for x in plan.leaves
    ]
    if known is not None and wishes.broker is not None:  # those that were added since come behind all others
        then = Counter(topic for topic, _ in known.sources)
        partitions = [min(n, then[x.source.topic]) for n, x in zip(partitions, plan.leaves, strict=True)]
    output = wishes.output or _topic(plan, topics, wishes.partitions, known.outputs if known else partitions[0] or 1)
    run = str(known.settings.get("run")) if known else f"{name}-{int(time.time()):08x}{uuid4().hex[:6]}"
    if output.kind in result_files.KINDS.values():
        result_files.check(output.target, run, goes_on, wishes.overwrite)
    few = _keepless(plan) or output.kind == "kafka"
    tasks = wishes.tasks or (min(cores, output.partitions) if few else cores)
    if wishes.broker is not None and wishes.broker.exactly_once:
        check_tasks(tasks, output)
    buckets = wishes.buckets or _buckets(plan, output.partitions, tasks)
    if known is None and wishes.tasks is None and not one_node:
        wishes.note(f"{name} has {tasks} tasks a stage from now on ({cores} run at once); --tasks sets another number")
    settings = {"dialect": plan.query.dialect, "run": run, "order": wishes.order is not None, "sink": sink}
    if plan.query.sink.keeps:
        settings[checkpoint.KEEPS] = True
    if plan.in_place:
        settings[checkpoint.IN_PLACE] = True
    others = {*watches, *wishes.frames}
    where = _where(plan, others, wishes.begins)
    if known is not None:
        _check_where(name, known, where, wishes.begins)
        settings |= {x: known.settings[x] for x in ("begin", "from") if x in known.settings}
    elif wishes.broker is not None or where:
        settings |= {"begin": _begin(plan, topics, others, where)} | ({"from": where} if where else {})
    if wishes.broker is not None:
        settings |= {"topics": _topics(plan, topics, others, known)}
        settings |= {} if wishes.broker.exactly_once else {"delivery": AT_LEAST_ONCE}
    flat = _flat(plan, output, output.partitions, buckets, tasks)
    document = Document(
        query=name,
        plan=canonical(plan.query),
        sql=wording(plan.query),
        settings=settings,
        buckets=buckets,
        outputs=output.partitions,
        shuffle=tasks,
        bucket_ids=flat,
        sources=sources_of(plan, partitions),
        spark=pyspark.__version__,
        files=tuple(sorted(watches)),
        store=whereabouts.identity(topics.root, folder),
    )
    kept = checkpoint.open_or_create(folder, document, wishes.named())
    plan = replace(plan, numbers=dict(kept.numbers))
    if kept.outputs != output.partitions:
        has = f"the topic {output.target} has {output.partitions} partitions, and had {kept.outputs} when {name} began"
        hint = f"a query writes into as many as there were, else keys would change theirs; {anew(folder)}"
        raise QueryRefused(has, hint)
    if kept.bucket_ids != _flat(plan, output, kept.outputs, kept.buckets, kept.shuffle):
        raise BraidError(f"{folder} spreads its state otherwise than this version of braid", "use the older one again")
    if output.kind in ("topic", "kafka") and not topics.exists(output.target):
        topics.create(output.target, output.partitions, plan.query.sink.kind == "table")
    if wishes.broker is not None and output.kind == "kafka":
        takes = access.takes(wishes.broker, output.target)
        output = replace(output, takes=takes, letters=_letters(topics, wishes.broker))
    for watch in watches.values():
        watch.begin()
    job = _job(
        plan,
        topics.root,
        run,
        output,
        kept.buckets,
        kept.shuffle,
        ranks=ranks_of(plan, partitions, kept.sources, len(frames)),
        fingerprint=kept.fingerprint,
        checkpoint=os.path.abspath(folder),
        wire=own_folder(os.path.join("wire", run)) if one_node else None,
        limit=wishes.limit or LIMIT,
        close=wishes.close,
        idle=wishes.idle,
        files={x.number: watches[x.source.name].read_as(x.source) for x in plan.leaves if x.source.name in watches},
        frames=frames,
        order=wishes.order,
        broker=wishes.broker,
        topics=kept.settings.get("topics", {}),
        begin={x: whole(n, "an offset") for x, n in members(kept.settings.get("begin", {})).items()},
    )
    return job, folder, list(watches.values())


def loose(
    plan: Plan,
    store: str,
    tasks: int,
    names: frozenset[str],
    broker: Broker | None = None,
    begins: Begins = UNASKED,
) -> Job:
    """A job whose checkpoint is the user's: nothing is recorded but in Spark's own."""
    topics = open_topics(store, broker)
    if broker is not None:
        access.check(topics, plan.query.name, (), None)
    frames = _frames(plan, names)
    partitions = [0 if x.number in frames else topics.partitions(x.source.topic) for x in plan.leaves]
    run = f"{plan.query.name}-{uuid4().hex[:12]}"
    buckets = 1 if _keepless(plan) else max(BUCKETS, tasks)  # not recorded: another number loses what is kept
    return _job(
        plan,
        topics.root,
        run,
        Output("frame", "", 1),
        buckets,
        tasks,
        ranks=ranks_of(plan, partitions, sources_of(plan, partitions), grows=False),
        fingerprint=hashlib.sha256(canonical(plan.query).encode()).hexdigest()[:16],
        cache=own_folder(os.path.join("state", run)),
        frames=frames,
        broker=broker,
        topics=_topics(plan, topics, names, None) if broker is not None else {},
        begin=_begin(plan, topics, names, _where(plan, names, begins)),
    )


def _letters(topics: Topics, broker: Broker) -> Letters | None:
    """The topic of dead letters, which is there afterwards."""
    name = broker.dead_letters
    if name is None:
        return None
    if not topics.exists(name):
        topics.create(name)
    return Letters(name, topics.partitions(name), access.takes(broker, name, letters=True))


def _check_delivery(name: str, known: Document, broker: Broker) -> None:
    """A query keeps its delivery: the markers of one that wrote without transactions are not where it is."""
    if ("delivery" in known.settings) == broker.exactly_once:
        way = "with --at-least-once" if broker.exactly_once else "without --at-least-once"
        raise BraidError(f"the query {name} has run {way}", f"run it {way} again, or braid reset {name} before it")


def _topics(plan: Plan, topics: Topics, files: Collection[str], known: Document | None) -> dict[str, str]:
    """What tells the topics that are read from later ones of their names; another one is refused."""
    read = {x.source.topic for x in plan.leaves if x.source.name not in files}
    now = {name: topics.identity(name) for name in sorted(read)}
    then = now if known is None else members(known.settings["topics"])
    for name in now.keys() & then.keys():
        if now[name] != then[name]:
            raise BraidError(
                f"the topic {name} was deleted and made anew since the query {plan.query.name} read it",
                f"braid reset {plan.query.name} lets the query begin again with the topic that is there",
            )
    return now


def _where(plan: Plan, files: Collection[str], begins: Begins) -> dict[str, Where]:
    """Where the leaves begin that do not begin at what is there first."""
    wanted = {
        str(x.number): begins.of(x.source.topic, x.source.kind == "stream", x.source.begin)
        for x in plan.leaves
        if x.source.name not in files
    }
    return {leaf: where for leaf, where in wanted.items() if where != "earliest"}


def _check_where(name: str, known: Document, where: Mapping[str, Where], begins: Begins) -> None:
    """A query that has begun somewhere does not begin elsewhere."""
    asked = begins.streams is not None or begins.topics
    if asked and json.loads(json.dumps(where)) != known.settings.get("from", {}):
        raise BraidError(f"the query {name} has begun elsewhere", f"leave --from out, or braid reset {name} before it")


def _begin(plan: Plan, topics: Topics, files: Collection[str], where: Mapping[str, Where]) -> dict[str, int]:
    """The offset at which each partition is begun. Leaves over one topic begin at the same."""
    found: dict[tuple[str, Where], list[int]] = {}
    for leaf in plan.leaves:
        which = leaf.source.topic, where.get(str(leaf.number), "earliest")
        if leaf.source.name not in files and which not in found:
            found[which] = offsets_of(topics, *which)
    return {
        f"{leaf.number}/{p}": offset
        for leaf in plan.leaves
        if leaf.source.name not in files
        for p, offset in enumerate(found[leaf.source.topic, where.get(str(leaf.number), "earliest")])
    }


def _job(plan: Plan, store: str, run: str, output: Output, buckets: int, tasks: int, **more: Any) -> Job:
    ids, out_ids, gathered = spread(plan, output.partitions, buckets, tasks, output.kind == "kafka")
    name, ranged = plan.query.name, -(-tasks // output.partitions) * output.partitions
    range_ids = bucket_ids(ranged, ranged, tasks) if gathered and output.kind == "topic" else ()
    return Job(plan, name, run, store, output, buckets, tasks, ids, out_ids, gathered, range_ids=range_ids, **more)


def _frames(plan: Plan, names: frozenset[str]) -> frozenset[int]:
    return frozenset(leaf.number for leaf in plan.leaves if leaf.source.name in names)


def checkpoint_of(store: str, name: str) -> str:
    """The folder of a query's checkpoint."""
    return os.path.join(store, "checkpoints", name)


def _topic(plan: Plan, topics: Topics, wanted: int | None, source: int) -> Output:
    """The sink's topic as it is, or will be: with the partitions asked for, declared, or of the left source."""
    sink = plan.query.sink
    there = topics.exists(sink.topic)
    have = topics.partitions(sink.topic) if there else wanted or sink.partitions or source
    if wanted is not None and have != wanted:
        raise BraidError(f"the topic {sink.topic} has {have} partitions, not {wanted}", "partitions are for ever")
    return Output("topic" if topics.dense else "kafka", sink.topic, have)


def check_tasks(tasks: int, output: Output) -> None:
    """Refuses more tasks than a topic in Kafka has partitions: the marker of each stands at a partition of its own."""
    if output.kind == "kafka" and tasks > output.partitions:
        has = f"{output.target} in Kafka has {output.partitions} partition{'s' * (output.partitions != 1)}"
        hint = f"--tasks {output.partitions} at most, or a topic with more partitions"
        raise BraidError(f"{tasks} tasks a stage were asked for, but {has}", hint)


def _keepless(plan: Plan) -> bool:
    """Whether no stage keeps anything, so that none but the writer's has rows by bucket."""
    return all(stateless(s) for s in plan.stages)


def _buckets(plan: Plan, outputs: int, tasks: int) -> int:
    """Two a task, so that odd numbers share out, and a multiple of the sink's partitions."""
    return outputs if _keepless(plan) else outputs * -(-max(BUCKETS, 2 * tasks) // outputs)


def _flat(plan: Plan, output: Output, outputs: int, buckets: int, tasks: int) -> tuple[int, ...]:
    ids, out_ids, _ = spread(plan, outputs, buckets, tasks, output.kind == "kafka")
    return tuple(i for row in (*ids, out_ids) for i in row)
