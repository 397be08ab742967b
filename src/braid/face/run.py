"""`braid run`: a file of statements, carried out against a store.

In: SQL, a store, what to read from files, where results go. Out: running queries, a live progress line, a summary.
Rule: everything is parsed, bound and checked (names, files, checkpoints, Java) before anything is created or started;
then topics, INSERT … VALUES (once per store), queries in topological order. If one query fails the others finish their
batch and the run ends with the reason. Started again, it goes on from the checkpoints. A push query (SELECT … EMIT
CHANGES) has no checkpoint: it prints its rows, from the beginning of its sources.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Console

from braid.bind.bound import BatchQuery, Printed, Pull, QueryBound, RowsChanged
from braid.bind.program import Effect, NewRecords, first_match
from braid.dialects import dialect_named
from braid.errors import BraidError, QueryDied, Span, TooManyDrops, printable_lines
from braid.face.asserted import Asserted, looks_at
from braid.face.catalogue import Catalogue
from braid.face.effects import Rows, StoreWorld, append_records, carry_out
from braid.face.metrics import Metrics, progress_line, summary_line, warnings
from braid.face.once import Once
from braid.face.pulls import StorePulls
from braid.face.request import (
    Prepared,
    Request,
    check_asked,
    check_broker,
    check_checkpoints,
    checkpoint_of,
    prepare,
    source_files,
    target_of,
)
from braid.face.tabular import print_table
from braid.lower.lower import lower
from braid.plan.logical import Query
from braid.stage import checkpoint
from braid.topics.broker import delivery
from braid.topics.interface import Topics, open_topics
from braid.topics.lock import StoreLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braid.spark.job import Output
    from braid.spark.query import Progress, RunningQuery

TELL = 10.0  # s between two lines of progress where no terminal is
LAST_BATCH = 60.0  # s that queries have to finish a batch when another one has failed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, query by query. `interrupted`: Ctrl-C came."""

    done: Mapping[str, Progress]
    interrupted: bool = False


def run_program(request: Request, err: Console) -> Outcome:
    """Runs a program; returns what each query did."""
    prepared = prepare(request)
    check_asked(prepared, request)
    if prepared.queries:
        from braid.spark.conf import java_version

        java_version()
    store = open_topics(request.store, request.broker)
    if os.path.exists(store.root) and not os.path.isdir(store.root):
        raise BraidError(f"{request.store} is a file", "--store takes a folder")
    with (
        Metrics(request.metrics, request.metrics_port) as metrics,
        StoreLock(store.root, note=lambda text: err.print(text, markup=False)) as lock,
        tempfile.TemporaryDirectory(prefix="braid-files-") as parsed,
    ):
        resumed = check_checkpoints(prepared, request, store)
        check_broker(prepared, request, store)
        world = _World(store, prepared, request, err, parsed)
        program = Catalogue(store, request.dialect, request.functions).program("file")
        for effect in prepared.effects:
            world.do(effect)
            program.apply(effect)
        if not prepared.queries:
            if not request.quiet:
                err.print("done; the file has no query to run")
            return Outcome({})
        for name, batch in resumed.items():
            err.print(f"note: {name} goes on after batch {batch} of its checkpoint", markup=False)
        if not request.quiet:
            if request.broker is not None:
                err.print(f"results go to Kafka {delivery(request.broker)}", markup=False)
            err.print("starting Spark …")
        with (
            _session(request) as spark,
            tempfile.TemporaryDirectory(prefix="braid-push-") as scratch,
        ):
            if metrics.address is not None and not request.quiet:
                err.print(f"metrics: {metrics.address}", markup=False)
            jvm = _jvm_pid(spark)
            if jvm is not None:
                lock.add_pid(jvm)
            outcome = _Run(request, prepared, store, spark, err, scratch, metrics).go()
        for look in world.waiting:
            look()
        return outcome


@contextlib.contextmanager
def _session(request: Request) -> Iterator[SparkSession]:
    """A session for this run; its JVM goes with it. One that the process has already is taken, and left alone."""
    from braid.spark import conf
    from braid.spark.died import reason

    own = not conf.running()
    try:
        spark = conf.session(request.master, conf.CARRIER | dict(request.conf))
    except BraidError:
        raise
    except Exception as e:
        hint = f"look at --master and --conf; the log is {conf.default_log()}"
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


class _World(StoreWorld):
    """What the statements of a file do before its queries start. A source that is read from files has no topic; that of
    a query is made when it starts. INSERT, UPDATE and DELETE are done once per store (`once.py`)."""

    def __init__(self, store: Topics, prepared: Prepared, request: Request, err: Console, parsed: str) -> None:
        files = source_files(prepared, request, parsed)
        self._files = files.opened()
        super().__init__(store, self._files)
        self._from_files = files.topics()
        self._made = {q.sink.topic for q in prepared.queries}
        self._queries = {q.name for q in prepared.queries}
        words = dialect_named(request.dialect).words
        self._once = Once(store, self.tables, words, prepared.effects, request.old_statements)
        self._tell, self._err = request.tell, err
        self.waiting: list[Callable[[], None]] = []
        self._ticks, self._pulls = dialect_named(request.dialect).ticks, StorePulls(store)
        self.checkpoints = os.path.abspath(request.checkpoint) if request.checkpoint else self.checkpoints

    def delete_topic(self, name: str) -> None:
        if name not in self._made:
            super().delete_topic(name)

    def note(self, text: str) -> None:
        if self._tell:
            self._err.print(f"note: {text}", markup=False)

    def create_topic(self, name: str, partitions: int | None, compacted: bool) -> None:
        if name not in self._from_files and (name not in self._made or self.store.exists(name)):
            super().create_topic(name, partitions, compacted)

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
        elif written.late:
            self.note(f"{len(written.late)} rows for {name} (line {line}) were late: see braid drops")

    def answer(self, query: BatchQuery) -> None:
        if any(r.declared.topic in self._made for r in query.reads):
            self.waiting.append(lambda: self.ask(query))
        else:
            self.ask(query)

    def pull(self, pull: Pull) -> None:
        def ask() -> None:
            self.show(*self._pulls.answer(pull, self.checkpoints, self._ticks, self._files))

        self._when_made(pull.declared.topic, ask)

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

    def ask(self, query: BatchQuery) -> None:
        self.show(*self.tables.rows(query))
        for text in self.tables.left_out(query):
            self.note(text)

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


def _jvm_pid(spark: object) -> int | None:
    gateway = getattr(getattr(spark, "sparkContext", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    return int(process.pid) if process is not None else None


class _Run:
    """The queries of one run while they run."""

    def __init__(
        self,
        request: Request,
        prepared: Prepared,
        store: Topics,
        spark: SparkSession,
        err: Console,
        scratch: str,
        metrics: Metrics,
    ) -> None:
        self.request, self.prepared, self.store = request, prepared, store
        self.spark, self.err, self.scratch, self.metrics = spark, err, scratch, metrics
        self.running: dict[str, RunningQuery] = {}
        metrics.queries = self.running
        self._stop = Stop()
        self._over = threading.Event()
        self._began, self._done = time.monotonic(), False

    def go(self) -> Outcome:
        watch = threading.Thread(target=self._watch, daemon=True)
        with interrupts(self._stop):
            watch.start()
            try:
                if self.request.until_idle:
                    self._each_in_turn()
                else:
                    self._all_at_once()
                self._check_drops(over=not self._stop.asked)
                self._done = True
            except (QueryDied, TooManyDrops, BraidError):
                self._finish_batches()
                raise
            finally:
                interrupted = self._stop.asked
                self._over.set()
                watch.join(timeout=2)
                done = {name: q.progress() for name, q in self.running.items()}
                for query in self.running.values():
                    query.stop()
                self.metrics.tell(over=True)
                self.metrics.queries = {}
                if self.metrics.fault is not None:
                    self.err.print(f"warning: {self.metrics.fault}", style="yellow", markup=False)
                self._summary(done, interrupted)
        return Outcome(done, interrupted)

    def _start(self, query: Query) -> RunningQuery:
        from braid.spark.query import start

        push = query.name in self.prepared.push
        if push:
            shutil.rmtree(os.path.join(self.store.root, "drops", query.name), ignore_errors=True)
        old = self.prepared.replaced.get(query.name)
        if old is not None and not push:
            checkpoint.upgrade(self._folder(query), lower(old), lower(query))
        running = start(
            self.spark,
            lower(query),
            self.store.root,
            checkpoint=os.path.join(self.scratch, query.name) if push else self._folder(query),
            files=source_files(self.prepared, self.request).of(query),
            output=self._output(query, push),
            limit=self.request.batch_rows,
            tasks=self.request.tasks,
            overwrite=self.request.overwrite,
            close=self.request.end,
            idle=self.request.idle,
            note=lambda text: self.err.print(f"note: {text}", markup=False),
            trigger={"availableNow": True} if self.request.until_idle else None,
            broker=self.request.broker,
            begins=replace(self.request.begins, whole=frozenset(q.sink.topic for q in self.prepared.queries)),
        )
        self.running[query.name] = running
        return running

    def _folder(self, query: Query) -> str:
        return checkpoint_of(query, self.request, self.store)

    def _output(self, query: Query, push: bool) -> Output | None:
        from braid.spark.job import Output

        if push:
            return Output("console", "", 1)
        sink = first_match(query.sink.name, self.request.sinks)
        if sink is None:
            return None
        kind, target = target_of(self.request.sinks[sink])
        return Output(kind, target, 1)

    def _each_in_turn(self) -> None:
        for query in self.prepared.queries:
            if self._stop.asked:
                return
            running = self._start(query)
            while running.status() == "running" and not self._stop.within(0.05):
                if self._at_limit(query, running):
                    break
            self._check()
            running.stop()

    def _all_at_once(self) -> None:
        active = {q.name: q for q in self.prepared.queries}
        for query in self.prepared.queries:
            if not self._stop.asked:
                self._start(query)
        while active and not self._stop.within(0.1):
            self._check()
            for name, query in list(active.items()):
                if self._at_limit(query, self.running[name]):
                    active.pop(name)
                    self.running[name].stop()

    def _at_limit(self, query: Query, running: RunningQuery) -> bool:
        return query.sink.limit is not None and running.progress().rows_out >= query.sink.limit

    def _check(self) -> None:
        from braid.spark.conf import default_log

        for running in self.running.values():
            if running.status() == "failed":
                self.err.print(f"note: Spark's log is {default_log()}", markup=False)
                raise QueryDied(str(running.exception()))
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
        """Metrics; on a terminal the progress line, twice a second, elsewhere a line now and then."""
        on_terminal = self.err.is_terminal and not self.request.quiet
        told = time.monotonic()
        with self.err.status("") if on_terminal else contextlib.nullcontext() as status:
            while not self._over.wait(0.5):
                self.metrics.tell()
                if status is not None:
                    status.update("\n".join(self._lines()) or "starting …")
                elif time.monotonic() - told >= TELL:
                    told = time.monotonic()
                    for line in self._lines():  # to ask tells whether a broker is away
                        if not self.request.quiet:
                            self.err.print(line, markup=False)

    def _lines(self) -> list[str]:
        going = [(name, q) for name, q in list(self.running.items()) if q.status() == "running"]
        return [progress_line(name, q.progress()) for name, q in going]

    def _summary(self, done: Mapping[str, Progress], interrupted: bool) -> None:
        if self.request.quiet or not self.request.tell or not (done or self._done):
            return
        took = time.monotonic() - self._began
        again = "; the same command goes on from here" if interrupted else ""
        how = "stopped" if interrupted else "done" if self._done else "ended"  # by an error, which follows
        self.err.print(f"{how} after {took:.1f} s{again}")
        for name, p in done.items():
            self.err.print(f"  {summary_line(name, p)}", markup=False)
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
