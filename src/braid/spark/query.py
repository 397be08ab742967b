"""A running query: started, watched, made visible batch by batch, and stopped.

In: a physical plan, a store, how to spread it. Out: a `RunningQuery` whose batches appear in its output, each once.
Rule: the checkpoint is compared before anything starts, and settings of the first start (buckets, tasks, partitions,
source numbers) hold for ever. One scan and the least number of exchanges: the plan is checked when it first runs. A
query that died of Spark's own doing (a Python process that was not up in time, lost executors) goes on from its
checkpoint, a few times between two batches.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from braid.errors import BraidError
from braid.files.watch import EVERY, FileWatch, Note, read_all, some_file_of_each
from braid.lower.physical import Plan
from braid.spark import columns, executors, task_metrics, writer
from braid.spark import job as jobs
from braid.spark.conf import on_one_node, settings_of_a_query
from braid.spark.failures import HINT, advice, of_spark, reason, was_away
from braid.spark.group import Group
from braid.spark.health import NONE
from braid.spark.history import History, ends_now
from braid.spark.job import Job, exchanges, inputs_of
from braid.spark.limit import Limit, limit
from braid.spark.pipeline import collected, read, through, written
from braid.spark.preparing import prepared
from braid.spark.query_options import NO_OPTIONS, QueryOptions
from braid.spark.scratch import Scratch
from braid.stage import batches, state_file
from braid.stage.cause_log import Piece
from braid.stage.checkpoint_runs import CheckpointRuns
from braid.stage.inputs import TopicInput
from braid.stage.measured import Dropped, Hot, Measured, Shape, Totals, add_up, measured, most
from braid.stage.state_writer import Outcome, StateWriter
from braid.stage.waiting import Waiting, waiting
from braid.store import ObjectStore
from braid.topics import access
from braid.topics.broker import PATIENCE, BrokerAway, patiently
from braid.topics.drops import clean_drops, read_drops
from braid.topics.interface import open_topics
from braid.topics.store_value import Store
from braid.topics.view import Written

Status = Literal["running", "stopped", "failed"]

RATE_WINDOW = 10.0  # s over which rates are taken
REMEMBERED = 100  # batches that wait to be taken
LAST_WORDS = 10.0  # s that a query whose batch has failed may take to end
STARTS = 4  # how often a query is started between two batches
BEAT = 5.0  # s between two looks, where no batch comes, whether another driver has taken over


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a query stands. Rates are of the last seconds; `lag` counts records that are there and not yet read;
    `last`: the last batch; `totals`: all since the query was started here; `hot`: by stage."""

    batch: int
    rows_in: int
    rows_out: int
    rows_in_per_second: float
    rows_out_per_second: float
    batch_ms: float
    state_rows: int
    state_bytes: int
    drops: Mapping[str, int]
    counts: Mapping[str, int]
    lag: int
    state_runs: int
    last: Measured | None
    totals: Totals
    hot: Mapping[int, Hot]
    restarts: int = 0
    under_way: float = 0.0  # s that the present batch has taken so far


@dataclass(slots=True)
class _Seen:
    """What tasks have said of the batches so far. `state`: the documents of all buckets after the last; `done`: batches
    that nobody has taken yet."""

    began: float = field(default_factory=time.monotonic)
    last: Measured | None = None
    totals: Totals = field(default_factory=Totals)
    state: state_file.Documents = field(default_factory=dict)
    recent: deque[tuple[float, int, int]] = field(default_factory=deque)
    done: deque[Measured] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Call:
    """What Spark calls for each batch, until the query is `over`. Spark keeps it as long as Python keeps Spark's handle
    of the query, which the query does: so a query that has ended lets go of it, or both stay for ever."""

    def __init__(self, publish: Callable[[DataFrame, int], None]) -> None:
        self._publish: Callable[[DataFrame, int], None] | None = publish

    def __call__(self, manifest: DataFrame, batch: int) -> None:
        if self._publish is not None:
            self._publish(manifest, batch)

    def over(self) -> None:
        self._publish = None


class RunningQuery:
    """One started query. `begin` starts it on Spark and gives Spark's handle; see `launch`. `look`: at the machines a
    batch has run on, before it is made visible; `limit`: the tasks of a batch run in one."""

    def __init__(
        self,
        job: Job,
        text: str,
        folder: ObjectStore,
        begin: Callable[[RunningQuery], Any],
        look: Callable[[], None],
        limit: Limit,
        note: Note = print,
    ) -> None:
        self.job, self._note, self._look, self._limit = job, note, look, limit
        self._text, self._folder, self._begin = text, folder, begin
        self.scratch = Scratch(job, folder)
        self.calls = list[Call]()  # one for each start
        self._handle: Any = None
        self._starts, self._stopped = 0, False
        self._restarts = 0
        self._batch_began: float | None = None
        self._waiting = 0
        self._away = 0.0  # since when the broker was away, and no batch has come through
        self._silent = False  # whether that was seen without a batch
        self._starting = threading.Lock()
        self._failed: BraidError | None = None
        self._over = threading.Event()
        self._follower: threading.Thread | None = None
        self._ready = threading.Event()  # all files that were there at the start
        self._ready.set()
        assert job.epoch is not None, "a query without a checkpoint of ours is started by its user"
        self._writer = StateWriter(job.epoch, job.buckets, job.durable, job.to.identity, job.run)
        self._seen = _Seen()
        self._group = Group(job)
        self._upto: Mapping[str, int] = {}
        if job.store.in_kafka and job.replay is None:
            self._upto = batches.reached(folder).committed["next"] or job.begin
            self._group.tell(self._upto)
        self._told, self._looked = False, 0.0  # whether somebody takes batches; when it was looked who holds the epoch
        self._shape = Shape.of(job.plan, job.name, job.buckets)
        self._history = History(job, text, folder, note, self._writer.lost)
        self.health = NONE  # how the machines do, where somebody has looked
        self._checked = False
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        return self.job.name

    # ------------------------------------------------------------ lifecycle

    def lay_out(self) -> None:
        """All is as it was left, for Spark to go on with."""
        self._writer.begin()
        with self._guard:
            self._seen.state = self._writer.state
        self.scratch.lay_out()

    def launch(self) -> Any:
        """Spark's handle: of the first start, or of a new one where the last died of a process that came too late."""
        with self._starting:
            if self._handle is None or (not self._stopped and self._once_more()):
                self._starts += 1
                self._restarts += self._handle is not None
                self._handle = self._begin(self)
            return self._handle

    def _once_more(self) -> bool:
        """Whether the query died of what passes: a process that came too late, a server that was away."""
        if self._handle.isActive:  # one question to the JVM in place of three: it is asked twenty times a second
            return False
        if was_away(self._handle):
            now = time.monotonic()
            if not self._away:
                self._away = now
                self._note(f"{self.name} waits: {reason(str(self._handle.exception()))}")
            if now - self._away < PATIENCE:
                self._history.fault(reason(str(self._handle.exception())))
                time.sleep(1)
                return True
        if self._starts >= STARTS or (why := of_spark(self._handle) or self._overtaken()) is None:
            return False
        self._note(f"{self.name} is started again: {why}")
        self._history.fault(why)
        return True

    def _overtaken(self) -> str | None:
        """Why a query goes on elsewhere: the driver that it has taken over from had done one more batch."""
        if self._handle.isActive or not self._handle.exception() or self._writer.lost() is not None:
            return None
        return "the run before it has come farther" if self._writer.overtaken() else None

    def status(self) -> Status:
        if self._ended() is None:
            return "running"
        return "failed" if self.exception() is not None else "stopped"

    def _ended(self) -> Any:
        """Spark's handle of a query that has ended for good; None where it runs. One that ends just now is asked
        again, since it may be started again."""
        handle = self.launch()
        while not handle.isActive:
            before, handle = handle, self.launch()
            if handle is before:
                return handle
        return None

    def busy(self) -> bool:
        """Whether a batch is under way."""
        return bool(self._handle.isActive and self._handle.status["isTriggerActive"])

    def stop(self) -> None:
        """Ends the query; a batch that is under way is done again at the next start."""
        self._end()
        if self._follower is not None:
            self._follower.join()

    def _end(self) -> None:
        with self._starting:
            self._stopped = True
        self._over.set()
        try:
            self.exception()  # why it died, if it did: to be stopped is no error
            self._handle.stop()
        except (Py4JError, OSError):
            self._history.end("Spark's process is gone", self._restarts)
            raise
        self._history.end(str(self._failed or ""), self._restarts)
        for call in self.calls:
            call.over()
        self._group.close()
        self.scratch.clear()

    def follow(self, watches: Sequence[FileWatch], up: bool) -> None:
        """Makes ready what was there at the start, and, where the run stays `up`, looks for more files as long as it
        does. One that cannot be read on ends it."""

        def go() -> None:
            try:
                read_all(watches, self._over.is_set)
                self._ready.set()
                while up and not self._over.wait(EVERY):
                    for watch in watches:
                        watch.look()
            except Exception as e:
                error = e if isinstance(e, BraidError) else BraidError(f"{type(e).__name__}: {e}", HINT)
                self._failed = BraidError(f"query {self.name} failed: {error.message}", error.hint)
                self._end()
            finally:
                for watch in watches:
                    watch.leave()
                self._ready.set()

        self._ready.clear()

        self._follower = threading.Thread(target=go, name=f"files of {self.name}", daemon=True)
        self._follower.start()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Waits for the end; raises the reason if the query failed."""
        while True:
            handle = self.launch()
            done = _await(handle, timeout)
            if self.launch() is handle:
                self._raise()
                if done:
                    self._settle()
                return done

    def await_idle(self) -> None:
        """Waits until all input that is there now has been processed and published."""
        self._ready.wait()
        ends, deadline = self._there(), time.monotonic() + PATIENCE
        while True:
            handle = self.launch()
            try:
                handle.processAllAvailable()
            except Exception:
                _await(handle, LAST_WORDS)
                if self.launch() is not handle:
                    continue
                self._raise()
                raise
            self._raise()
            if all(self._upto.get(place, 0) >= end for place, end in ends.items()) or not handle.isActive:
                return self._settle()
            if time.monotonic() > deadline:
                raise BrokerAway(f"query {self.name} does not come to the end of its topics", "check the broker")
            time.sleep(0.2)  # the broker was away when Spark asked for more

    def _there(self) -> dict[str, int]:
        """Where the topics of a broker end now, of those that are read to their ends."""
        if not self.job.store.in_kafka or self.job.order is not None:
            return {}
        inputs = {n: x for n, x in inputs_of(self._text).items() if isinstance(x, TopicInput)}
        ends = {n: patiently(x.ends) for n, x in inputs.items() if n not in self.job.plan.captured}
        return {f"{leaf}/{p}": end for leaf, found in ends.items() for p, end in enumerate(found)}

    def _settle(self) -> None:
        self.job.to.settle()

    def exception(self) -> BraidError | None:
        """Why the query died."""
        if self._failed is None and (ended := self._ended()) is not None:
            found = ended.exception()
            if found is not None:
                text = str(found)
                self._failed = self._writer.lost() or BraidError(
                    f"query {self.name} failed: {reason(text)}", advice(text)
                )
                self._history.end(str(self._failed), self._restarts)
        return self._failed

    def _raise(self) -> None:
        error = self.exception()
        if error is not None:
            raise error

    # ------------------------------------------------------------- looking

    def drops(self) -> list[dict[str, Any]]:
        return read_drops(self.job.store.objects, self.name)

    def state(self) -> list[dict[str, Any]]:
        """Manifests of every step and bucket as of the last batch, for EXPLAIN --state."""
        return state_file.by_bucket(self._seen.state)

    def waiting(self) -> Sequence[Waiting]:
        """Rows that wait for a clock, as of the last batch; read from the checkpoint."""
        with self._guard:
            documents, waits = dict(self._seen.state), self._shape.waits(self._seen.state.values())
        if not waits:
            return ()
        try:
            runs = lambda place: CheckpointRuns(self._folder, place)  # noqa: E731
            return waiting(self.job.plan, documents, runs, self.job.ranks)
        except BraidError:  # a batch that came through since has cleared away what was looked at
            return ()

    def _beat(self) -> None:
        """A query that has nothing to do hears, too, that another driver has taken over."""
        now = time.monotonic()
        if now - self._looked > BEAT and self._failed is None and not self._stopped:
            self._looked = now
            self._history.rest()
            if (lost := self._writer.lost()) is not None:
                self._failed = lost
                self._end()

    def progress(self) -> Progress:
        self._beat()
        with self._guard:
            seen = self._seen
            now = time.monotonic()
            recent = [r for r in seen.recent if r[0] > now - RATE_WINDOW]
            span = min(RATE_WINDOW, max(now - seen.began, 0.001))
            held = [run for document in seen.state.values() for run in state_file.runs_in(document)]
            totals = copy.deepcopy(seen.totals)
            return Progress(
                seen.last.batch if seen.last is not None else -1,
                totals.rows_in,
                totals.rows_out,
                sum(r[1] for r in recent) / span,
                sum(r[2] for r in recent) / span,
                seen.last.batch_ms if seen.last is not None else 0.0,
                sum(rows for _, rows, _ in held),
                sum(size for *_, size in held),
                totals.drops,
                totals.counts,
                self._lag(),
                len(held),
                seen.last,
                totals,
                totals.hot(self._shape),
                self._restarts,
                now - self._batch_began if self._batch_began is not None else 0.0,
            )

    def take_batches(self, over: bool = False) -> list[Measured]:
        """The batches since this was last called. One is held back until Spark has told its trigger's times, or the
        next batch is there, or all is `over`."""
        with self._guard:
            done, self._told = self._seen.done, True
            self._timed()
            held_back = done and done[-1].spark_ms is None and not over
            taken = [done.popleft() for _ in range(len(done) - bool(held_back))]
            return taken

    def _timed(self) -> None:
        """Spark's times of the last batch, if it has told them."""
        last, seen = self._last_trigger(), self._seen.last
        if last is not None and seen is not None and last["batchId"] == seen.batch and "addBatch" in last["durationMs"]:
            seen.spark_ms = dict(last["durationMs"])

    def _last_trigger(self) -> Mapping[str, Any] | None:
        """What Spark says of it: nothing before the first, and nothing where its JVM is gone, which status() tells."""
        with contextlib.suppress(Py4JError, OSError):
            return self._handle.lastProgress if self._handle is not None else None
        return None

    def _lag(self) -> int:
        """Records that wait; as of the last look where the broker does not answer, which is told once."""
        try:
            self._waiting = self._waiting_now()
        except BrokerAway as e:
            if not self._away:
                self._away, self._silent = time.monotonic(), True
                self._note(f"{self.name} waits: {e.message}")
        else:
            if self._silent and not self._waiting:  # else the next batch tells it
                self._back()
        return self._waiting

    def _back(self) -> None:
        away, self._away, self._silent = self._away, 0.0, False
        if away:
            self._note(f"{self.name} goes on, after {time.monotonic() - away:.0f} s")

    def _waiting_now(self) -> int:
        last = self._last_trigger()
        ends = ends_now(self._text)
        done: dict[str, int] = {}
        if last is not None:
            done = next((d for s in last["sources"] if (d := _offsets(s.get("endOffset"))) is not None), {})
        return sum(max(0, end - done.get(place, 0)) for place, end in ends.items()) if last is not None else 0

    # ---------------------------------------------------------- each batch

    def publish(self, manifest: DataFrame, batch: int) -> None:
        """Spark's foreachBatch: runs the batch and makes it visible."""
        self._batch_began = time.monotonic()
        try:
            self._publish(manifest, batch)
        finally:
            self._batch_began = None

    def _publish(self, manifest: DataFrame, batch: int) -> None:
        if self._told:
            with self._guard:
                self._timed()  # of the batch before
        output, reads = self.job.output, self.scratch.reads(batch)
        with self._limit.taken(self._over.is_set):
            began = time.time()
            if output.at_once or (output.apart and self._folder.path is not None):  # what is in a bucket stays there
                batches.plan(self._folder, batch, reads)
            try:
                rows = collected(manifest)
            finally:
                self._look()
        columns.clear(self.job.wire)
        ran = time.time()
        told = [(kind, json.loads(doc)) for kind, doc in rows]
        said = [x for kind, found in told if kind == "counts" for x in found]
        if self.job.wire is None:
            said = task_metrics.reported(self._folder, said)
        digest = batches.digest_of(reads)
        kinds = {kind for kind, _ in rows}
        wrote = self.job.replay is None and "staged" in kinds
        causes = [Piece.of(x) for kind, found in told if kind == "causes" for x in found]
        after = self._writer.keep(reads, said, Outcome(wrote, "drops" in kinds, causes), batch, self._written)
        with self._guard:
            self._seen.state = self._writer.state
        writer.publish_batch(self.job, batch, rows, digest, after)
        self._writer.shown(batch)
        if self.job.store.in_kafka and self.job.replay is None:
            self._upto = batches.document_in(reads)["next"]
            self._group.tell(self._upto)
        self._noted(batch, told, said, (began * 1000, ran * 1000, time.time() * 1000), reads)
        if not self._checked and self._handle is not None:
            self._check()

    def _written(self) -> Written | None:
        """The last batch that the output holds, of a query whose checkpoint does not say it yet."""
        job, topics = self.job, open_topics(self.job.store)
        recalls = job.output.recalls and job.replay is None
        return job.output.last(topics, job.plan.query.sink, job.run) if recalls else None

    def _noted(
        self,
        batch: int,
        told: list[tuple[str, Any]],
        said: list[dict[str, Any]],
        span: tuple[float, float, float],
        reads: Sequence[str],
    ) -> None:
        out, drops, firsts, enough = 0, dict[str, int](), list[list[Any]](), dict[str, int]()
        for kind, found in told:
            if kind == "staged":
                out += found["extent"]["count"] if "extent" in found else found["rows"]
            elif kind == "drops":
                add_up(drops, found["reasons"])
                firsts += found["first"]
                enough = most(enough, found["enough"])
        first = {reason: Dropped(*told) for _, reason, *told in sorted(firsts, key=lambda x: -x[0])}
        around = self._history.around(said, reads, self._seen.state, self._restarts)
        with self._guard:
            seen = self._seen
            seen.last = measured(self._shape, batch, span, said, out, drops, first, enough, seen.state)
            seen.last.around = around
            seen.totals.add(seen.last)
            seen.done.append(seen.last)
            self._starts = 1
            now = time.monotonic()
            seen.recent.append((now, seen.last.rows_in, out))
            while seen.recent and seen.recent[0][0] < now - RATE_WINDOW:
                seen.recent.popleft()
        self._history.tell(self.document(seen.last))
        self._back()

    def document(self, batch: Measured) -> dict[str, Any]:
        """A batch as a JSON object, with how the machines do."""
        return batch.document() | {"run": self.health.document()}

    def _check(self) -> None:
        """One scan, and no exchange that was not planned: Spark's optimizer must not have got in between."""
        self._checked = True
        shown = self._handle._jsq.explainInternal(False)
        scans = len(re.findall(r"MicroBatchScan", shown))
        found = len(re.findall(r"\bExchange \w+", shown))
        if not self.job.frames and (scans > 1 or found != exchanges(self.job)):
            raise BraidError(f"query {self.name} runs with {scans} scans and {found} exchanges\n{shown}")


def start(spark: SparkSession, plan: Plan, store: Store, options: QueryOptions = NO_OPTIONS) -> RunningQuery:
    """Starts a query, or goes on from its checkpoint."""
    options = replace(options, tasks=options.tasks or executors.asked(spark))
    context = spark.sparkContext
    if store.in_kafka:
        access.check_speculation(context.getConf().get("spark.speculation", None))
    alone = on_one_node(context.master)
    root = store.objects
    places = {root, options.checkpoint.parent if options.checkpoint else root}
    shared = {x.path for x in places if x.path is not None}
    urls = [x.url for x in places if x.path is None and not x.url.startswith(f"{root.url}/")]
    if options.output is not None and options.output.folder is not None:
        shared.add(os.path.dirname(options.output.folder))
    inputs = () if alone else some_file_of_each(options.files)
    needs = executors.Needs(sorted(shared), inputs, urls)
    cores = context.defaultParallelism if alone else executors.ready(spark, needs, options.note)
    job, folder, watches = prepared(plan, store, cores, options, alone)
    text = jobs.dumps(job)

    def begin(running: RunningQuery) -> Any:
        running.lay_out()
        job.to.claim(job.plan.query.sink, job.run)
        if job.replay is None:
            clean_drops(job.store.objects, job.name, state_file.published(folder))
        columns.clear_abandoned(job.wire)
        with settings_of_a_query(spark, job.tasks, not job.frames):
            frame = written(through(read(spark, job, text, options.frames), job, text), job, text)
            running.calls.append(Call(running.publish))
            stream = frame.writeStream.foreachBatch(running.calls[-1])
            stream = stream.option("checkpointLocation", running.scratch.url).queryName(job.run)
            return (stream.trigger(**options.trigger) if options.trigger else stream).start()

    def look() -> None:
        if not alone:
            executors.look(spark, needs)

    running = RunningQuery(job, text, folder, begin, look, limit(context.defaultParallelism), options.note)
    running.launch()
    if watches and options.replay is None:
        running.follow(watches, options.up)
    return running


# ---------------------------------------------------------------- details


def _offsets(document: Any) -> dict[str, int] | None:
    """The offsets in a document of ours; None where it is another source's."""
    found = json.loads(document) if isinstance(document, str) else document
    return found["next"] if isinstance(found, dict) and "plan" in found else None


def _await(handle: Any, timeout: float | None) -> bool:
    """Whether a query has ended within the time-out."""
    try:
        return handle.awaitTermination(timeout) is not False
    except Exception:  # its reason is asked for by the caller
        return True
