"""Before a query starts: what is there, what was recorded, what was asked for, and the job that follows.

In: a plan, a store, the options of the query. Out: a `Job`, its checkpoint, and what looks for more files.
Rule: what the first start chose (how the query is spread) holds for ever; a wish that differs from it is refused, never
taken silently. Nothing is written before all is compared and the checkpoint's next epoch is claimed; where another
driver has gone on between the two, all is compared again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import pyspark

from braid.errors import BraidError, QueryRefused, anew
from braid.files.watch import FileWatch, watched
from braid.lower.physical import Plan
from braid.plan.canonical import canonical, wording
from braid.plan.logical import Source
from braid.sinks.interface import Sink, held_in
from braid.sinks.kafka import KafkaSink
from braid.sinks.nothing import NoSink
from braid.sinks.topic import TopicSink
from braid.spark.columns import bucket_ids
from braid.spark.job import Job, checkpoint_of, dumps, ranks_of, sources_of, spread, stateless
from braid.spark.private import own_folder
from braid.spark.query_options import BUCKETS, QueryOptions
from braid.spark.source import Planner
from braid.stage import batches, checkpoint, lineage, rescale, state_file, table_diff
from braid.stage.checkpoint import Document, GoneOn
from braid.stage.epoch import Epoch, claim
from braid.stage.lineage import Held
from braid.stage.registered import FrameInput
from braid.store import ObjectStore
from braid.topics import access, check_name, checkpoint_paths
from braid.topics.begin import UNASKED, Begins, Where, offsets_of
from braid.topics.files import members, whole
from braid.topics.interface import Topics, open_topics
from braid.topics.registered import is_registered
from braid.topics.store_value import Store

AT_LEAST_ONCE = "at least once"
Around = tuple[bool, Held | None]
CLAIMS = 5  # tries to claim a checkpoint that others change meanwhile


def prepared(
    plan: Plan, store: Store, cores: int, options: QueryOptions, one_node: bool = False
) -> tuple[Job, ObjectStore, list[FileWatch]]:
    """The job, its checkpoint recorded or compared, and whoever looks for more files; the sink's topic is there
    afterwards. `one_node`: all tasks run on the driver's."""
    for left in reversed(range(CLAIMS)):
        try:
            return _prepared(plan, store, cores, options, one_node)
        except GoneOn:
            if not left:
                raise
    raise AssertionError


def _prepared(
    plan: Plan, store: Store, cores: int, options: QueryOptions, one_node: bool
) -> tuple[Job, ObjectStore, list[FileWatch]]:
    """All is compared before the checkpoint is claimed, so that a start that is refused ends nobody's run."""
    folder, seen = _folder(plan, store, options)
    there = _known(plan, store, options, folder)
    plan = there.lowered(plan)
    last = None if there.known is None else batches.last_batch(folder, there.known)
    if folder.path is None and options.frames:
        raise BraidError(f"{there.name} reads DataFrames, and its checkpoint is {folder}", "give it a folder")
    planned = None if options.replay is None else options.replay.last()
    found = watched(plan, options.files, folder, options.up, options.note, planned)
    watches = {x.source.name: x for x in found}
    for watch in watches.values():
        watch.check()
    made = _spread(plan, there, watches, cores, one_node, last is not None)
    _check_new(there, made)
    around: Around = (True, None)
    if there.known is not None:
        before = partial(_job_of, plan, there, made, there.known, watches, one_node)
        around = _check_ties(plan, there, made, last, before)
        _check_document(plan, there, made, watches)
    epoch = claim(folder)
    try:
        if batches.seen(folder) != seen:
            raise GoneOn(f"another run of {there.name} has gone on meanwhile", "start this one again")
        return _claimed(plan, there, made, epoch, last, around, watches, one_node), folder, list(watches.values())
    except (BraidError, OSError):
        epoch.check()
        raise


def _claimed(
    plan: Plan,
    there: _There,
    made: _Spread,
    epoch: Epoch,
    last: int | None,
    around: Around,
    watches: Mapping[str, FileWatch],
    one_node: bool,
) -> Job:
    """The job of the driver that holds the epoch. `around`: what was found (`_check_ties`)."""
    whole, held = around
    if there.known is None:
        state_file.clear_remains(there.folder)
    else:
        if not whole:
            batches.forget_begun(there.folder, last)
        _adopted(there, last, held)
        checkpoint.renew(there.folder, there.known)
        _rescaled(plan, there, made, last, epoch)
    kept = _compared(plan, there, made, watches)
    plan = replace(plan, numbers=dict(kept.numbers))
    output = _opened(plan, there, made, kept, watches)
    job = _job_of(plan, there, made, kept, watches, one_node, output)
    return replace(job, aside=_aside(plan, there, output, made.run), epoch=epoch)


@dataclass(frozen=True, slots=True)
class _There:
    """A query before it starts: what was asked, where its topics and its checkpoint lie, what the checkpoint says
    (`known`; None: it is new), and its sink in the checkpoint's words."""

    options: QueryOptions
    topics: Topics
    name: str
    folder: ObjectStore
    sink: str
    known: Document | None

    def lowered(self, plan: Plan) -> Plan:
        """The plan as it runs here: one that has begun goes on as it began."""
        known, output = self.known, self.options.output
        elsewhere = output is not None and not output.is_topic
        if elsewhere or (known is not None and checkpoint.KEEPS not in known.settings):  # or it began without
            plan = plan.unkept()
        return plan if known is None else checkpoint.as_begun(plan, known)


@dataclass(frozen=True, slots=True)
class _Spread:
    """How a query is spread: `partitions` of its leaves, tasks, buckets; `run`: this life of its checkpoint."""

    output: Sink
    run: str
    partitions: Sequence[int]
    tasks: int
    buckets: int

    def ids(self, plan: Plan, outputs: int, buckets: int, tasks: int) -> tuple[int, ...]:
        """Spark's keys of all buckets and partitions, in one row."""
        ids, out_ids, _ = spread(plan, outputs, buckets, tasks, self.output.by_bytes)
        return tuple(i for row in (*ids, out_ids) for i in row)


def _folder(plan: Plan, store: Store, options: QueryOptions) -> tuple[ObjectStore, object]:
    """The checkpoint, and what is there, before anything else is looked at."""
    folder = options.checkpoint or checkpoint_of(store.objects, check_name(plan.query.name, "query"))
    return folder, batches.seen(folder)


def _known(plan: Plan, store: Store, options: QueryOptions, folder: ObjectStore) -> _There:
    """What there is; refused where the checkpoint is of another query, or of other topics."""
    topics = open_topics(store, durable=options.durable)
    name = plan.query.name
    sink = options.output.described() if options.output else "topic"
    known = checkpoint.check_plan(folder, plan.query, sink, store=topics.root)
    if store.in_kafka:
        others = _elsewhere(plan, (*options.files, *options.frames))
        reads = (x.source.topic for x in plan.leaves if x.source.name not in others)
        access.check(topics, name, reads, None if options.output else plan.query.sink.topic)
    if known is not None and ("topics" in known.settings) != store.in_kafka:
        way = "without --kafka" if store.in_kafka else "with --kafka"
        raise BraidError(f"the query {name} has run {way}: its checkpoint knows other topics", f"run it {way} again")
    if known is not None and store.in_kafka:
        _check_delivery(name, known, store)
    return _There(options, topics, name, folder, sink, known)


def _spread(
    plan: Plan, there: _There, watches: Mapping[str, FileWatch], cores: int, one_node: bool, goes_on: bool
) -> _Spread:
    """How it is to be spread, by what was asked for, else by the cores."""
    options, topics, known = there.options, there.topics, there.known
    frames = _frames(plan, options.frames)
    partitions = [
        0 if x.number in frames else 1 if x.source.name in watches else _partitions(topics, x.source)
        for x in plan.leaves
    ]
    recorded = options.replay.sources if options.replay is not None else known.sources if known is not None else None
    if recorded is not None:  # those that were added since come behind all others
        then = Counter(topic for topic, _ in recorded)
        grows = [topics.store.in_kafka or is_registered(x.source.topic) for x in plan.leaves]
        now = zip(partitions, grows, plan.leaves, strict=True)
        partitions = [min(n, then[x.source.topic]) if more else n for n, more, x in now]
    output = options.output or _topic(plan, topics, options.partitions, known.outputs if known else partitions[0] or 1)
    run = str(known.settings.get("run")) if known else f"{there.name}-{int(time.time()):08x}{uuid4().hex[:6]}"
    if options.replay is None:
        output.check(plan.query.sink, run if known else None, goes_on, options.overwrite)
    few = _keepless(plan) or output.by_bytes
    tasks = options.tasks or (min(cores, output.partitions) if few else cores)
    if topics.store.transactional:
        output.check_tasks(tasks)
    buckets = options.buckets or _buckets(plan, output.partitions, tasks)
    if known is None and options.tasks is None and not one_node:
        what = f"{there.name} has {tasks} tasks a stage from now on ({cores} run at once)"
        options.note(f"{what}; --tasks sets another number")
    return _Spread(output, run, partitions, tasks, buckets)


def _check_new(there: _There, made: _Spread) -> None:
    """A query that begins has not written yet."""
    output, topics = made.output, there.topics
    begins = there.known is None and there.options.replay is None
    if begins and output.is_topic and topics.dense and topics.exists(output.target):
        lineage.check_new(there.folder, there.name, output.target, topics)


def _check_ties(plan: Plan, there: _There, made: _Spread, last: int | None, job_of: Callable[[Sink], Job]) -> Around:
    """What lies around the checkpoint is of its history: False where a batch was begun, of records that are not there,
    and nobody has seen it; what the output holds."""
    folder, output, sink, held = there.folder, made.output, plan.query.sink, None
    if output.recalls and there.options.replay is None:
        held = held_in(output, sink, there.topics, made.run, there.options.adopt_table)
    would_read = lambda: _would_read(job_of(output), folder, last)  # noqa: E731
    return lineage.check(folder, there.name, last, there.topics, held, would_read), held


def _adopted(there: _There, last: int | None, held: Held | None) -> None:
    """A table that moved, and is to be taken as it stands, is the checkpoint's from now on."""
    if held is None or last is None or there.known is None or not (was := lineage.moved(there.folder, last, held)):
        return
    lineage.adopt(there.folder, last, held, there.known.buckets)
    what = f"{held.target} is taken as it is: {held.identity}, and was {was}"
    there.options.note(f"{what}; its marker says what the checkpoint says, and its rows were not compared")


def _would_read(job: Job, folder: ObjectStore, last: int | None) -> str | None:
    """The digest of the next batch as it would be planned now; None where there is none, or others have a say."""
    planner = Planner(dumps(job))
    at = planner.beginning() if last is None else batches.document_of(folder, last)
    made = at if job.order is not None or job.frames or job.files else planner.latest(at)
    return None if made is at else batches.digest_of([json.dumps(made)])


def _rescaled(plan: Plan, there: _There, made: _Spread, last: int | None, epoch: Epoch) -> None:
    """The query goes on in other buckets and tasks, if that was asked for."""
    if (known := there.known) is None or (wanted := rescale.asked(there.folder, known.query)) is None:
        return
    if last is not None:
        made.output.begin_tasks(there.topics, made.run, range(known.shuffle, wanted.tasks), last)
    ids = lambda buckets, tasks: made.ids(plan, known.outputs, buckets, tasks)  # noqa: E731
    rescale.carry_out(epoch, plan, known, last, ids)
    there.options.note(f"{there.name} goes on in {wanted}")


def _document(plan: Plan, there: _There, made: _Spread, watches: Mapping[str, FileWatch]) -> Document:
    """What the checkpoint is to hold."""
    output = made.output
    return Document(
        query=there.name,
        plan=canonical(plan.query),
        sql=wording(plan.query),
        settings=_settings(plan, there, made.run, watches),
        buckets=made.buckets,
        outputs=output.partitions,
        shuffle=made.tasks,
        bucket_ids=made.ids(plan, output.partitions, made.buckets, made.tasks),
        sources=sources_of(plan, made.partitions),
        spark=pyspark.__version__,
        files=tuple(sorted(watches)),
        store=checkpoint_paths.identity(there.topics.root, there.folder),
    )


def _check_document(plan: Plan, there: _There, made: _Spread, watches: Mapping[str, FileWatch]) -> None:
    """Refused where another query is recorded; of one that is to be rescaled its start tells, when that is done."""
    if (known := there.known) is None or rescale.asked(there.folder, known.query) is not None:
        return
    checkpoint.compare(there.folder, known, _document(plan, there, made, watches), there.options.named())
    _check_kept(plan, there, made, known)


def _compared(plan: Plan, there: _There, made: _Spread, watches: Mapping[str, FileWatch]) -> Document:
    """What the checkpoint holds from now on: recorded at the first start, compared at all others."""
    document = _document(plan, there, made, watches)
    kept = checkpoint.open_or_create(there.folder, document, there.options.named())
    _check_kept(plan, there, made, kept)
    return kept


def _check_kept(plan: Plan, there: _There, made: _Spread, kept: Document) -> None:
    """The query goes on in the partitions and keys in which it began."""
    name, folder, output = there.name, there.folder, made.output
    if kept.outputs != output.partitions:
        has = f"the topic {output.target} has {output.partitions} partitions, and had {kept.outputs} when {name} began"
        hint = f"a query writes into as many as there were, else keys would change theirs; {anew(folder.name)}"
        raise QueryRefused(has, hint)
    if kept.bucket_ids != made.ids(plan, kept.outputs, kept.buckets, kept.shuffle):
        raise BraidError(f"{folder} spreads its state otherwise than this version of braid", "use the older one again")


def _settings(plan: Plan, there: _There, run: str, watches: Mapping[str, FileWatch]) -> dict[str, Any]:
    """Whatever else gives the query its meaning."""
    options, topics, known = there.options, there.topics, there.known
    settings = {"dialect": plan.query.dialect, "run": run, "order": options.order is not None, "sink": there.sink}
    if plan.query.sink.keeps:
        settings[checkpoint.KEEPS] = True
    if plan.in_place:
        settings[checkpoint.IN_PLACE] = plan.in_place
    if plan.pruned:
        settings[checkpoint.PRUNED] = True
    if plan.shared:
        settings[checkpoint.SHARED] = True
    if deleted := {n: x.input.options.deleted for n, x in sorted(watches.items()) if x.input.options.deleted}:
        settings["deleted"] = deleted
    others = _elsewhere(plan, (*watches, *options.frames))
    where = _where(plan, others, options.begins)
    if options.replay is not None:
        settings |= options.replay.settings()
    elif known is not None:
        _check_where(there.name, known, where, options.begins)
        settings |= {x: known.settings[x] for x in ("begin", "from") if x in known.settings}
    elif topics.store.in_kafka or where or _shortened(plan, topics, others):
        settings |= {"begin": _begin(plan, topics, others, where)} | ({"from": where} if where else {})
    if topics.store.in_kafka:
        settings |= {"topics": _topics(plan, topics, others, known)}
        settings |= {} if topics.store.transactional else {"delivery": AT_LEAST_ONCE}
    return settings


def _opened(plan: Plan, there: _There, made: _Spread, kept: Document, watches: Mapping[str, FileWatch]) -> Sink:
    """The output, ready to be written. From here on the sink's topic is there, and files are read."""
    output, replayed = made.output, there.options.replay is not None
    if output.is_topic or not replayed:
        output = output.opened(there.topics, plan.query.sink, kept.settings.get("topics", {}), made.run)
    for watch in watches.values():
        watch.begin(more=not replayed)
    return output


def _aside(plan: Plan, there: _There, output: Sink, run: str) -> Sink | None:
    """Where the rows go of a query that works out anew what was written: those of a table into a store of their own,
    beside its checkpoint."""
    sink = plan.query.sink
    if there.options.replay is None:
        return None
    if sink.kind != "table":
        return NoSink()
    store = table_diff.shadow_topics(there.folder)
    return TopicSink(sink.topic, output.partitions).opened(store, sink, {}, run)


def _job_of(
    plan: Plan,
    there: _There,
    made: _Spread,
    kept: Document,
    watches: Mapping[str, FileWatch],
    one_node: bool,
    output: Sink,
) -> Job:
    """The job, by what is recorded; its files are those of their watches as they stand."""
    options, read = there.options, kept.settings.get("topics", {})
    frames = _frames(plan, options.frames)
    return _job(
        plan,
        there.topics.store,
        made.run,
        output,
        kept.buckets,
        kept.shuffle,
        ranks=ranks_of(plan, made.partitions, kept.sources, len(frames)),
        fingerprint=kept.fingerprint,
        checkpoint=there.folder,
        wire=own_folder(os.path.join("wire", made.run)) if one_node else None,
        reading=options.reading,
        files={x.number: watches[x.source.name].read_as(x.source) for x in plan.leaves if x.source.name in watches},
        frames=frames,
        order=options.order,
        durable=options.durable,
        replay=options.replay,
        topics=read,
        begin={x: whole(n, "an offset") for x, n in members(kept.settings.get("begin", {})).items()},
    )


def loose(
    plan: Plan,
    store: Store,
    tasks: int,
    names: Collection[str],
    begins: Begins = UNASKED,
) -> Job:
    """A job whose checkpoint is the user's: nothing is recorded but in Spark's own."""
    topics = open_topics(store)
    if store.in_kafka:
        access.check(topics, plan.query.name, (), None)
    frames = _frames(plan, names)
    partitions = [0 if x.number in frames else _partitions(topics, x.source) for x in plan.leaves]
    names = _elsewhere(plan, names)
    run = f"{plan.query.name}-{uuid4().hex[:12]}"
    buckets = 1 if _keepless(plan) else max(BUCKETS, tasks)  # not recorded: another number loses what is kept
    return _job(
        plan,
        store,
        run,
        NoSink(),
        buckets,
        tasks,
        ranks=ranks_of(plan, partitions, sources_of(plan, partitions), grows=False),
        fingerprint=hashlib.sha256(canonical(plan.query).encode()).hexdigest()[:16],
        cache=own_folder(os.path.join("state", run)),
        frames=frames,
        topics=_topics(plan, topics, names, None) if store.in_kafka else {},
        begin=_begin(plan, topics, names, _where(plan, names, begins)),
    )


def _check_delivery(name: str, known: Document, store: Store) -> None:
    """A query keeps its delivery: the markers of one that wrote without transactions are not where it is."""
    if ("delivery" in known.settings) == store.transactional:
        way = "with --at-least-once" if store.transactional else "without --at-least-once"
        raise BraidError(f"the query {name} has run {way}", f"run it {way} again, or braid reset {name} before it")


def _topics(plan: Plan, topics: Topics, files: Collection[str], known: Document | None) -> dict[str, str]:
    """What tells the topics that are read from later ones of their names; another one is refused."""
    read = {x.source.topic for x in plan.leaves if x.source.name not in files}
    now = {name: topics.identity(name) for name in sorted(read)}
    then = now if known is None else members(known.settings["topics"])
    for name in now.keys() & then.keys():
        if now[name] != then[name]:
            raise BraidError(
                f"the topic {name} was deleted and created again since the query {plan.query.name} read it",
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


def _shortened(plan: Plan, topics: Topics, files: Collection[str]) -> bool:
    """Whether a topic does not begin at 0 any more."""
    read = {x.source.topic for x in plan.leaves if x.source.name not in files}
    return any(any(topics.start_offsets(topic)) for topic in sorted(read))


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


def _job(plan: Plan, store: Store, run: str, output: Sink, buckets: int, tasks: int, **more: Any) -> Job:
    ids, out_ids, gathered = spread(plan, output.partitions, buckets, tasks, output.by_bytes)
    name, ranged = plan.query.name, -(-tasks // output.partitions) * output.partitions
    range_ids = bucket_ids(ranged, ranged, tasks) if gathered and output.ranged else ()
    return Job(plan, name, run, store, output, buckets, tasks, ids, out_ids, gathered, range_ids=range_ids, **more)


def _frames(plan: Plan, names: Collection[str]) -> frozenset[int]:
    return frozenset(leaf.number for leaf in plan.leaves if leaf.source.name in names)


def _elsewhere(plan: Plan, names: Iterable[str]) -> set[str]:
    """The sources that are no topics: those of these names, and registered DataFrames."""
    return {*names, *(leaf.source.name for leaf in plan.leaves if is_registered(leaf.source.topic))}


def _partitions(topics: Topics, source: Source) -> int:
    if is_registered(source.topic):
        return FrameInput(topics.root, source).partitions
    return topics.partitions(source.topic)


def _topic(plan: Plan, topics: Topics, wanted: int | None, source: int) -> Sink:
    """The sink's topic as it is, or will be: with the partitions asked for, declared, or of the left source."""
    sink = plan.query.sink
    there = topics.exists(sink.topic)
    have = topics.partitions(sink.topic) if there else wanted or sink.partitions or source
    if wanted is not None and have != wanted:
        raise BraidError(
            f"the topic {sink.topic} has {have} partitions, not {wanted}", "the number of partitions never changes"
        )
    return TopicSink(sink.topic, have) if topics.dense else KafkaSink(sink.topic, have)


def _keepless(plan: Plan) -> bool:
    """Whether no stage keeps anything, so that none but the writer's has rows by bucket."""
    return all(stateless(s) for s in plan.stages)


def _buckets(plan: Plan, outputs: int, tasks: int) -> int:
    """Two a task, so that odd numbers share out, and a multiple of the sink's partitions."""
    return outputs if _keepless(plan) else outputs * -(-max(BUCKETS, 2 * tasks) // outputs)
