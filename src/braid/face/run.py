"""`braid run`: a file of statements, carried out against a store.

In: SQL, a store, what to read from files, where results go. Out: running queries, a live progress line, a summary.
Rule: everything is parsed, bound and checked (names, files, checkpoints, Java) before anything is created or started;
then topics, INSERT … VALUES (once per store), queries, all at once; in a run that ends by itself (`--until-idle`) one
begins when those are done whose output it reads. If one query fails the others finish their batch and the run ends with
the reason. Started again, it goes on from the checkpoints. A push query (SELECT … EMIT CHANGES) has no checkpoint: it
prints its rows, from the beginning of its sources.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.console import Console

from braid.bind.bound import BatchQuery, Declared, Printed, Pull, QueryBound, RowsChanged, TablesAsked
from braid.bind.dialects import dialect_named
from braid.bind.program import Effect, NewRecords, first_match
from braid.errors import BraidError, QueryDied, QueryRefused, Span, TooManyDrops, printable_lines
from braid.face.assertions import Asserted, looks_at
from braid.face.catalogue import Catalogue
from braid.face.effects import Rows, append_records, carry_out
from braid.face.engine import Engine, EngineWorld
from braid.face.formatting import counted
from braid.face.metrics import Metrics, progress_line, summary_line, summary_lines, warnings
from braid.face.once import Once
from braid.face.polls import Polls
from braid.face.pull_queries import StorePullQueries
from braid.face.request import (
    Prepared,
    Request,
    check_asked,
    check_broker,
    check_checkpoints,
    checkpoint_of,
    polls_of,
    prepare,
    source_files,
)
from braid.face.retain import Keeper
from braid.face.tabular import print_table
from braid.files.early import Early
from braid.plan.logical import Query, sources
from braid.sinks.console import ConsoleSink
from braid.sinks.interface import Sink
from braid.spark import health
from braid.spark.health import Health
from braid.spark.query_options import QueryOptions
from braid.store import ObjectStore, opened
from braid.store.objects import AGAIN
from braid.topics import checkpoint_paths
from braid.topics.drops import forget_drops
from braid.topics.interface import open_topics
from braid.topics.lock import StoreLock
from braid.topics.store import TopicStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braid.spark.query import Progress, RunningQuery
    from braid.stage.waiting import Waiting

TELL = 10.0  # s between two lines of progress where no terminal is
HEALTH = 2.0  # s between two looks at executors
LAST_BATCH = 60.0  # s that queries have to finish a batch when another one has failed
TOGETHER = 3  # queries of --until-idle: each starts some Python processes, which have ten seconds to be there


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, query by query, and which rows wait. `interrupted`: Ctrl-C came."""

    done: Mapping[str, Progress]
    waits: Mapping[str, Sequence[Waiting]] = field(default_factory=dict)
    interrupted: bool = False


def run_program(request: Request, err: Console) -> Outcome:
    """Runs a program; returns what each query did."""
    prepared = prepare(request)
    check_asked(prepared, request)
    if prepared.queries:
        from braid.spark.jvm import java_version

        java_version()
    store = open_topics(request.store)
    if (path := store.root.path) is not None and os.path.exists(path) and not os.path.isdir(path):
        raise BraidError(f"{request.store.objects} is a file", "--store takes a folder")
    with (
        Metrics(request.metrics, request.metrics_port) as metrics,
        StoreLock(store.root, note=lambda text: err.print(text, markup=False)) as lock,
        tempfile.TemporaryDirectory(prefix="braid-files-") as parsed,
        tempfile.TemporaryDirectory(prefix="braid-push-") as scratch,
        contextlib.ExitStack() as stack,
    ):
        resumed, watches = check_checkpoints(prepared, request, store)
        check_broker(prepared, request, store)
        stack.callback(Early([first for x in watches if (first := x.first_of_all()) is not None]).end)
        polls = polls_of(prepared, request, store, _notes(request, err))
        if request.checkpoint:
            checkpoint_paths.note(store.root, request.checkpoint)

        @functools.cache
        def spark() -> SparkSession:
            if not request.quiet:
                err.print("starting Spark …")
            begun = stack.enter_context(spark_session(request))
            if metrics.address is not None and not request.quiet:
                err.print(f"metrics: {metrics.address}", markup=False)
            jvm = jvm_pid(begun)
            if jvm is not None:
                lock.add_pid(jvm)
            return begun

        begins = replace(request.asked.begins, whole=frozenset(q.sink.topic for q in prepared.queries))
        engine = Engine(store, spark, begins=begins)
        world = _World(engine, prepared, request, err, parsed, polls)
        program = Catalogue(store, request.dialect, request.functions).program("file")
        polls.begin(program.catalog.sources.values())
        for effect in prepared.effects:
            world.do(effect)
            program.apply(effect)
        if not prepared.queries:
            if not request.quiet:
                err.print("done; the file has no query to run")
            return Outcome({})
        for name, batch in resumed.items():
            err.print(f"note: {name} goes on after batch {batch} of its checkpoint", markup=False)
        if request.store.in_kafka and not request.quiet:
            err.print(f"results go to Kafka {request.store.delivery}", markup=False)
        spark()
        if isinstance(store, TopicStore):
            keeper = Keeper(store, request.checkpoint, _notes(request, err))
            keeper.begin()
            stack.callback(keeper.end)
        stack.callback(polls.end)
        if not request.until_idle:
            polls.go_on(request.every)
        outcome = _Run(request, prepared, engine, err, scratch, metrics).go()
        for look in world.waiting:
            look()
        return outcome


@contextlib.contextmanager
def spark_session(request: Request) -> Iterator[SparkSession]:
    """A session for this run; its JVM goes with it. One that the process has already is taken, and left alone."""
    from braid.face.quick_start import make_behind
    from braid.spark import conf
    from braid.spark.failures import reason
    from braid.spark.jvm import CARRIER

    own = not conf.running()
    try:
        spark = conf.session(request.master, CARRIER | dict(request.conf))
    except BraidError:
        raise
    except Exception as e:
        hint = f"check --master and --conf; the log is {conf.default_log()}"
        raise BraidError(f"Spark does not start: {reason(str(e))}", hint) from e
    try:
        if own:
            conf.quiet(spark)
        yield spark
    except (BraidError, QueryDied, TooManyDrops):
        raise
    except Exception as e:
        if own and conf.jvm_gone():
            raise QueryDied(conf.jvm_lost()) from e
        raise
    finally:
        if own:
            conf.end(spark)
            make_behind(request.master)


def _notes(request: Request, err: Console) -> Callable[[str], None]:
    """What tells a note, where notes are wanted."""

    def note(text: str) -> None:
        if request.tell:
            err.print(f"note: {text}", markup=False)

    return note


class _World(EngineWorld):
    """What the statements of a file do before its queries start. A source that is read from files has no topic; that of
    a query is made when it starts. INSERT, UPDATE and DELETE are done once per store (`once.py`)."""

    def __init__(
        self, engine: Engine, prepared: Prepared, request: Request, err: Console, parsed: str, polls: Polls
    ) -> None:
        files = source_files(prepared, request, parsed)
        ticks = dialect_named(request.dialect).ticks
        super().__init__(engine, StorePullQueries(engine.store), files.opened(), ticks, None)
        self._from_files = files.topics()
        self._made = {q.sink.topic for q in prepared.queries}
        self._queries = {q.name for q in prepared.queries}
        words = dialect_named(request.dialect).words
        self._once = Once(self.store, words, prepared.effects)
        self._noted, self._err, self._request = _notes(request, err), err, request
        self._polls = polls
        self.waiting: list[Callable[[], None]] = []
        self.checkpoints = request.checkpoint or self.checkpoints

    def delete_topic(self, name: str) -> None:
        if name not in self._made:
            super().delete_topic(name)

    def note(self, text: str) -> None:
        self._noted(text)

    def create_topic(self, name: str, partitions: int | None, compacted: bool) -> None:
        if name not in self._from_files and (name not in self._made or self.store.exists(name)):
            super().create_topic(name, partitions, compacted)

    def declared(self, made: Declared) -> None:
        self._polls.begin([made])

    def do(self, effect: Effect) -> None:
        self._effect = effect
        carry_out(effect, self)

    def insert(self, records: NewRecords, line: int) -> None:
        done = self._once.done(self._effect) or not append_records(self.store, records, self._once.name(self._effect))
        if done:
            self.note(f"INSERT INTO {records.topic} (line {line}) was done before; skipped")

    def change(self, change: RowsChanged, line: int) -> None:
        name, written = change.target.name, None
        if not self._once.done(self._effect):
            new, written = self.tables.change(change, self._once.name(self._effect))
            written = written if new else None
        if written is None:
            self.note(f"{change.kind.upper()} of {name} (line {line}) was done before; skipped")
        else:
            self.tell_change(change, written, f" (line {line})")

    def answer(self, query: BatchQuery) -> None:
        if any(r.declared.topic in self._made for r in query.reads):
            self.waiting.append(lambda: super(_World, self).answer(query))
        else:
            super().answer(query)

    def pull(self, pull: Pull | TablesAsked) -> None:
        made = (d.topic for d in pull.reads if first_match(d.topic, self._made) is not None)
        self._when_made(next(made, None), lambda: super(_World, self).pull(pull))

    def check(self, asserted: Asserted, span: Span) -> None:
        self._when_made(looks_at(asserted), lambda: super(_World, self).check(asserted, span))

    def print_topic(self, asked: Printed) -> None:
        self._when_made(looks_at(asked), lambda: super(_World, self).print_topic(asked))

    def _when_made(self, topic: str | None, look: Callable[[], None]) -> None:
        """At once, or when the queries that write the topic are done."""
        if topic is not None and first_match(topic, self._made) is not None:
            self.waiting.append(look)
        else:
            look()

    def flush(self) -> None:
        pass  # no query has started, and one over what they write waits for them

    def start(self, bound: QueryBound) -> None:
        pass  # all of the file's queries start together

    def stop(self, query: str, anew: bool) -> None:
        if anew and query not in self._queries:  # of an earlier run
            self.forget(query)

    def pause(self, query: str) -> None:
        pass  # what is paused at the end of the file does not start

    def resume(self, query: Query) -> None:
        pass

    def explain(self, query: Query) -> None:
        import click

        from braid.explain.documents import explain_query, render_text

        click.echo(printable_lines(render_text(explain_query(query, self.partitions))))

    def show(self, header: Sequence[str], rows: Rows) -> None:
        print_table(header, rows)

    def counted(self, rows: int, seconds: float) -> None:
        if sys.stdout.isatty() and not self._request.quiet:
            self._err.print(counted(rows, seconds))


def jvm_pid(spark: object) -> int | None:
    gateway = getattr(getattr(spark, "sparkContext", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    return int(process.pid) if process is not None else None


class _Run:
    """The queries of one run while they run."""

    def __init__(
        self, request: Request, prepared: Prepared, engine: Engine, err: Console, scratch: str, metrics: Metrics
    ) -> None:
        self.request, self.prepared, self.engine = request, prepared, engine
        self.err, self.scratch, self.metrics = err, scratch, metrics
        metrics.queries = engine.running
        self._failed: list[str] = []
        self._before: Health | None = None  # how the machines did when the first query began, maybe in an older session
        self._stop = Stop()
        self._over = threading.Event()
        self._began = time.monotonic()

    @property
    def running(self) -> Mapping[str, RunningQuery]:
        return self.engine.running

    def go(self) -> Outcome:
        watch = threading.Thread(target=self._watch, daemon=True)
        how = "ended"
        with interrupts(self._stop):
            watch.start()
            try:
                if self.request.until_idle:
                    self._to_the_end()
                else:
                    self._all_at_once()
                self._check_drops(over=not self._stop.asked)
                how = "done" if not self._failed else how
            except (QueryDied, TooManyDrops, BraidError):
                self._finish_batches()
                raise
            finally:
                how = "stopped" if self._stop.asked else how
                self._over.set()
                watch.join(timeout=2)
                done = {name: q.progress() for name, q in self.running.items()}
                ended = dict(self.running)
                self.metrics.queries = ended
                self.engine.stop_all()
                waits = {name: q.waiting() for name, q in ended.items()}
                self.metrics.tell(over=True)
                self.metrics.queries = {}
                if self.metrics.fault is not None:
                    self.err.print(f"warning: {self.metrics.fault}", style="yellow", markup=False)
                self._summary(done, waits, how)
        if self._failed:
            raise QueryDied(f"{' and '.join(self._failed)} failed, for the reason above")
        return Outcome(done, waits, self._stop.asked)

    def _begun(self, query: Query) -> RunningQuery | None:
        """The query, started; None where it cannot go on, is told, and others can."""
        try:
            return self._start(query)
        except QueryRefused as e:
            if self.request.fail_fast or len(self.prepared.queries) == 1:
                raise
            self.err.print(e.render(), style="red", markup=False)
            self._failed.append(query.name)
            return None

    def _start(self, query: Query) -> RunningQuery:
        push, root = query.name in self.prepared.push, self.engine.store.root
        if push:
            forget_drops(root, query.name)
        old = self.prepared.replaced.get(query.name)
        if old is not None and not push:
            self.engine.upgrade(old, query, self._folder(query))
        self._before = self._before or health.look(self.engine.session)
        options = QueryOptions.of(
            self.request.asked,
            checkpoint=opened(self.scratch).at(query.name) if push else self._folder(query),
            files=source_files(self.prepared, self.request).of(query),
            output=self._output(query, push),
            note=lambda text: self.err.print(f"note: {text}", markup=False),
            trigger={"availableNow": True} if self.request.until_idle else None,
        )
        return self.engine.start(query, options)

    def _folder(self, query: Query) -> ObjectStore:
        return checkpoint_of(query, self.request, self.engine.store)

    def _output(self, query: Query, push: bool) -> Sink | None:
        return ConsoleSink() if push else self.request.sink_for(query)

    def _to_the_end(self) -> None:
        """Up to `TOGETHER` at once, but for queries that wait for others: these see all that is written before they
        begin."""
        left, active = list(self.prepared.queries), dict[str, Query]()
        while (left or active) and not self._stop.within(0.05):
            ready = [q for q in left if not self._waits(q, [*active.values(), *left])]
            for query in ready[: max(0, TOGETHER - len(active))]:
                left.remove(query)
                if not self._stop.asked and self._begun(query) is not None:
                    active[query.name] = query
            self._check(last=not left and len(active) == 1)
            for name, query in list(active.items()):
                running = self.running[name]
                if running.status() == "stopped" or name in self._failed or self._at_limit(query, running):
                    active.pop(name)
                    running.stop()

    def _waits(self, query: Query, going: Sequence[Query]) -> bool:
        """Whether one that comes before it still writes what it reads, or where it writes."""
        order = [q.name for q in self.prepared.queries]
        before = [q for q in going if order.index(q.name) < order.index(query.name)]
        reads = {s.topic for s in sources(query.root)}
        return any(q.sink.topic in reads or self._place(q) == self._place(query) for q in before)

    def _place(self, query: Query) -> str:
        """Where its rows go."""
        return "console" if query.name in self.prepared.push else self.request.target(query) or query.sink.topic

    def _all_at_once(self) -> None:
        active = {q.name: q for q in self.prepared.queries}
        for query in self.prepared.queries:
            if not self._stop.asked and self._begun(query) is None:
                active.pop(query.name)
        while active and not self._stop.within(0.1):
            self._check(last=len(active) == 1)
            for name, query in list(active.items()):
                if name in self._failed:
                    active.pop(name)
                elif self._at_limit(query, self.running[name]):
                    active.pop(name)
                    self.running[name].stop()

    def _at_limit(self, query: Query, running: RunningQuery) -> bool:
        return query.sink.limit is not None and running.progress().rows_out >= query.sink.limit

    def _check(self, last: bool) -> None:
        """Looks for queries that have died. The others go on, where there are any and it was not asked otherwise."""
        from braid.spark.conf import default_log

        for name, running in list(self.running.items()):
            if name not in self._failed and running.status() == "failed":
                self.err.print(f"note: Spark's log is {default_log()}", markup=False)
                if self.request.fail_fast or (last and not self._failed):
                    raise QueryDied(str(running.exception()))
                self.err.print(f"error: {running.exception()}", style="red", markup=False)
                self._failed.append(name)
        self._check_drops()

    def _check_drops(self, over: bool = False) -> None:
        most = self.request.max_drops
        if most is None:
            return
        for name, p in ((name, q.progress()) for name, q in self.running.items()):
            dropped = sum(p.drops.values())
            if most.exceeded(dropped, p.rows_in, over):
                raise TooManyDrops(f"{name} dropped {dropped:,} of {p.rows_in:,} records; --max-drops allows {most}")

    def _finish_batches(self) -> None:
        """Some query has failed; the others come to the end of the batch they are at."""
        begun = {name: q.progress().batch for name, q in self.running.items()}
        deadline = time.monotonic() + LAST_BATCH
        while not self._stop.asked and time.monotonic() < deadline:
            if all(q.progress().batch > begun[n] or not q.busy() for n, q in self.running.items()):
                return
            time.sleep(0.05)

    # ------------------------------------------------------------ telling

    def _watch(self) -> None:
        """Tells until all is over, or Spark's JVM is gone: why, the main thread says, which meets that too."""
        from braid.spark import conf

        try:
            self._tell_till_over()
        except Exception:
            if not conf.jvm_gone():
                raise

    def _tell_till_over(self) -> None:
        """Metrics; on a terminal the progress line, twice a second, elsewhere a line now and then."""
        on_terminal = self.err.is_terminal and not self.request.quiet
        told = looked = time.monotonic()
        with self.err.status("") if on_terminal else contextlib.nullcontext() as status:
            while not self._over.wait(0.5):
                if time.monotonic() - looked >= HEALTH:
                    self._look()
                    looked = time.monotonic()
                self.metrics.tell()
                if status is not None:
                    status.update("\n".join(self._lines()) or "starting …")
                elif time.monotonic() - told >= TELL:
                    told = time.monotonic()
                    for line in self._lines():  # to ask tells whether a broker is away
                        if not self.request.quiet:
                            self.err.print(line, markup=False)

    def _look(self) -> None:
        """How the machines do; executors that went and came are told at once."""
        before = self.metrics.health
        now = health.look(self.engine.session, before).since(self._before)
        self.metrics.look(now)
        begun = any(q.progress().batch >= 0 for q in list(self.running.values()))
        for text in health.changes(before, now, begun):
            if not self.request.quiet:
                self.err.print(f"note: {text}", markup=False)

    def _lines(self) -> list[str]:
        going = [(name, q.progress()) for name, q in list(self.running.items()) if q.status() == "running"]
        lines = [progress_line(name, p) for name, p in going]
        again = sum(s.tallies.get(AGAIN, 0) for _, p in going for s in p.totals.stages.values())
        state = self.metrics.health.line(sum(p.restarts for _, p in going), again)
        return [*lines, state] if lines and state else lines

    def _summary(self, done: Mapping[str, Progress], waits: Mapping[str, Sequence[Waiting]], how: str) -> None:
        """What each query did; of `--quiet` what was lost, or cannot be meant."""
        if not self.request.tell or (how == "ended" and not done):
            return
        quiet, took = self.request.quiet, time.monotonic() - self._began
        again = "; the same command goes on from here" if how == "stopped" else ""
        if not quiet:
            self.err.print(f"{how} after {took:.1f} s{again}")
        for name, p in done.items():
            shown = [summary_line(name, p)] * bool(p.drops) if quiet else summary_lines({name: p}, waits)
            for text in shown:
                self.err.print(f"  {text}", markup=False)
            for text in warnings(name, p):
                self.err.print(f"  warning: {text}", style="yellow", markup=False)


class Stop:
    """Whether the user has asked for the end. A plain flag: a signal's handler may come while its own thread holds the
    lock of an event that it waits for, and to set that event would wait for ever."""

    def __init__(self) -> None:
        self.asked = False

    def within(self, seconds: float) -> bool:
        """Whether it is asked for by the end of so many seconds."""
        time.sleep(seconds)
        return self.asked


@contextlib.contextmanager
def interrupts(stop: Stop) -> Iterator[None]:
    """Ctrl-C and a polite `kill` ask to stop; a second Ctrl-C ends the program at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(*_: object) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {s: signal.signal(s, asked) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
