"""`braid run`: a file of statements, carried out against a store.

In: SQL, a store, what to read from files, where results go. Out: running queries, a live progress line, a summary.
Rule: everything is parsed, bound and checked (names, files, checkpoints, Java) before anything is created or started;
then topics, INSERT … VALUES (once per store), queries in topological order. If one query fails the others finish their
batch and the run ends with the reason. Started again, it goes on from the checkpoints. A push query (SELECT … EMIT
CHANGES) has no checkpoint: it prints its rows, from the beginning of its sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.console import Console

from braid import inserts, progress
from braid.catalogue import Catalogue
from braid.cli_errors import QueryDied, TooManyDrops
from braid.effects import Rows, StoreWorld, carry_out
from braid.errors import BraidError, SqlError
from braid.metrics import Metrics
from braid.plan.bound import Again, BatchAsked, BatchQuery, Inserted, QueryBound, RowsChanged
from braid.plan.canonical import canonical
from braid.plan.logical import Query, Source, StreamStreamJoin, inputs, sources
from braid.plan.lower import lower
from braid.program import Effect, NewRecords, Program, first_match
from braid.runtime import checkpoint, result_files, resume
from braid.runtime.driver_local import in_topological_order
from braid.runtime.file_list import look
from braid.runtime.files import needs_time, open_files
from braid.runtime.inputs import Input
from braid.tabular import print_table
from braid.topics.lock import StoreLock
from braid.topics.names import check_name
from braid.topics.store import TopicStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braid.spark.job import Files, Output
    from braid.spark.query import Progress, RunningQuery

TELL = 10.0  # s between two lines of progress where no terminal is
LAST_BATCH = 60.0  # s that queries have to finish a batch when another one has failed


@dataclass(frozen=True, slots=True)
class Request:
    """What `braid run` was asked for. `sources`, `sinks`: declared name -> path (or `console`). `batch_rows`: at most
    so many records a batch."""

    sql: str
    dialect: str
    store: str
    sources: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    checkpoint: str | None = None
    until_idle: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False
    batch_rows: int | None = None
    tell: bool = True  # what the statements announce, and the summary
    overwrite: bool = False  # folders of --sink that hold results of other runs are replaced
    metrics: str | None = None  # a file of JSON lines, `-` for stdout
    metrics_port: str | None = None
    max_drops: progress.MaxDrops | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program that has been checked whole: nothing has happened yet. `push`: names of queries that only print."""

    program: Program
    effects: tuple[Effect, ...]
    queries: tuple[Query, ...]  # in topological order
    push: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, query by query. `interrupted`: Ctrl-C came."""

    done: Mapping[str, Progress]
    interrupted: bool = False


def prepare(request: Request) -> Prepared:
    """Parses, binds and checks all statements."""
    program = Catalogue(TopicStore(request.store), request.dialect).program("file").copy()
    effects = tuple(program.statements(request.sql))
    for option, names in (("--source", request.sources), ("--sink", request.sinks)):
        for name in names:
            if first_match(name, program.catalog.sources) is None:
                known = ", ".join(program.catalog.sources) or "none"
                raise BraidError(f"{option} {name}: no such stream or table is declared", f"declared: {known}")
    for topic in program.topics():
        check_name(topic)
    _check_written(effects, program, request)
    queries, push = _queries(effects, program)
    for pattern in request.sources.values():
        look(pattern)
    for query in queries:
        _check_times(query.root, request.sources)
    _check_sinks(queries, request.sinks)
    order = in_topological_order(queries, lambda q: {s.topic for s in sources(q.root)}, lambda q: q.sink.topic)
    return Prepared(program, effects, tuple(order), push)


def _check_written(effects: Sequence[Effect], program: Program, request: Request) -> None:
    """What is read from files is not written: nobody would read it."""
    declared = program.catalog.sources
    in_files = [declared[n] for n in (first_match(x, declared) for x in request.sources) if n is not None]
    names = {d.topic: d.name for d in in_files}
    for effect in effects:
        match effect.bound:
            case Inserted(target=target) | RowsChanged(target=target) if target.topic in names:
                name, span = names[target.topic], effect.statement.span
                hint = f"add a file, or leave --source {name}=… out"
                raise SqlError(f"{name} is read from files, and cannot be written", span, hint, request.sql)
            case _:
                pass


def _queries(effects: Sequence[Effect], program: Program) -> tuple[list[Query], frozenset[str]]:
    """The queries that are still wanted at the end of the file; push queries numbered from the second on."""
    found: list[Query] = []
    push: list[str] = []
    for effect in effects:
        match effect.bound:
            case QueryBound(query=query, transient=True):
                push.append(query.name if not push else f"{query.name}.{len(push) + 1}")
                found.append(replace(query, name=push[-1]))
            case QueryBound(query=query) if program.queries.get(query.name) is query:
                found.append(query)
            case Again(name=name) if name in program.queries:
                found.append(program.queries[name])
            case _:
                pass
    return found, frozenset(push)


def _check_sinks(queries: Sequence[Query], sinks: Mapping[str, str]) -> None:
    """What goes to files or the console cannot be read by the next query."""
    folders: dict[str, str] = {}
    for name, target in sinks.items():
        writers = [q for q in queries if q.sink.name.lower() == name.lower()]
        if not writers:
            raise BraidError(f"--sink {name}: no query of this file writes it", "name what a CREATE … AS makes")
        if len(writers) > 1 and target != "console":
            both = " and ".join(q.name for q in writers)
            raise BraidError(f"--sink {name}: {both} write it, so it must go to a topic", f"leave --sink {name}=… out")
        topics = {q.sink.topic for q in writers}
        reader = next((q for q in queries if any(s.topic in topics for s in sources(q.root))), None)
        if reader is not None:
            raise BraidError(
                f"--sink {name}: {reader.name} reads it, so it must go to a topic", f"leave --sink {name}=… out"
            )
        if target != "console":
            folder = os.path.abspath(target)
            if folder in folders:
                raise BraidError(f"--sink {name} and --sink {folders[folder]} name one folder", "give each its own")
            folders[folder] = name
            result_files.kind_of(target)


def _target(sink: str) -> tuple[str, str]:
    """What a --sink names: the kind of output, and its folder."""
    return ("console", "") if sink == "console" else (result_files.kind_of(sink), os.path.abspath(sink))


def _check_times(node: object, bound: Mapping[str, str]) -> None:
    """A windowed join over files needs times."""
    stack = [node]
    while stack:
        at = stack.pop()
        if isinstance(at, StreamStreamJoin):
            for source in sources(at):
                if first_match(source.name, bound) is not None:
                    needs_time(source)
        stack += inputs(at)  # type: ignore[arg-type]


def run_program(request: Request, err: Console) -> Outcome:
    """Runs a program; returns what each query did."""
    prepared = prepare(request)
    _check_asked(prepared, request)
    if prepared.queries:
        from braid.spark.conf import java_version

        java_version()
    store = TopicStore(request.store)
    if os.path.exists(store.root) and not os.path.isdir(store.root):
        raise BraidError(f"{request.store} is a file", "--store takes a folder")
    with (
        Metrics(request.metrics, request.metrics_port) as metrics,
        StoreLock(store.root, note=lambda text: err.print(text, markup=False)) as lock,
        tempfile.TemporaryDirectory(prefix="braid-files-") as parsed,
    ):
        resumed = _check_checkpoints(prepared, request, store)
        world = _World(store, prepared, request, err, parsed)
        program = Catalogue(store, request.dialect).program("file")
        for effect in prepared.effects:
            carry_out(effect, world)
            program.apply(effect)
        if not prepared.queries:
            if not request.quiet:
                err.print("done; the file has no query to run")
            return Outcome({})
        for name, batch in resumed.items():
            err.print(f"note: {name} goes on after batch {batch} of its checkpoint", markup=False)
        if not request.quiet:
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
        for query in world.waiting:
            world.ask(query)
        return outcome


def _tables_in_files(prepared: Prepared, request: Request, cache: str) -> dict[str, Callable[[Source], Input]]:
    """What opens the files of each source that is bound to some, for queries over tables."""

    def opened(source: Source) -> Input:
        bound = first_match(source.name, request.sources)
        assert bound is not None
        return open_files(source, request.sources[bound], cache, _options(source, prepared))

    bound = [first_match(name, prepared.program.catalog.sources) for name in request.sources]
    return {name: opened for name in bound if name is not None}


def _check_asked(prepared: Prepared, request: Request) -> None:
    """What queries of this file write is there when they are done, and not before."""
    made = {q.sink.name for q in prepared.queries}
    for effect in prepared.effects:
        match effect.bound:
            case RowsChanged(target=target, query=query) if any(r.declared.name in made for r in query.reads):
                hint = "write it into a file of its own, and run that behind this one"
                raise BraidError(f"a statement that changes {target.name} reads a view of this file", hint)
            case BatchAsked(query=query) if (
                any(r.declared.name in made for r in query.reads) and not request.until_idle
            ):
                raise BraidError("a query over a view of this file waits for it to be done", "write --until-idle")


@contextlib.contextmanager
def _session(request: Request) -> Iterator[SparkSession]:
    """A session for this run; its JVM goes with it. One that the process has already is taken, and left alone."""
    from braid.spark import conf
    from braid.spark.query import reason

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


def _check_checkpoints(prepared: Prepared, request: Request, store: TopicStore) -> dict[str, int]:
    """Refuses checkpoints of other queries, and files that do not go on where the last run ended, before anything is
    made. Gives the last batch of those that are resumed."""
    resumed: dict[str, int] = {}
    known: dict[str, checkpoint.Document] = {}
    for query in prepared.queries:
        if query.name in prepared.push:
            continue
        folder = _checkpoint(query, request, store)
        sink = first_match(query.sink.name, request.sinks)
        kind, target = _target(request.sinks[sink]) if sink is not None else ("topic", "")
        to = result_files.described(kind, target)
        found = checkpoint.check_plan(folder, query.name, canonical(query), query.dialect, to)
        last = None
        if found is not None:
            known[query.name] = found
            last = resume.last_batch(folder, found)
            if last is not None:
                resumed[query.name] = last
        if target:
            run = str(found.settings.get("run")) if found is not None else None
            result_files.check(target, run, last is not None, request.overwrite)
    for query in prepared.queries:
        if query.name in prepared.push:
            continue
        folder = _checkpoint(query, request, store)
        for source in sources(query.root):
            bound = first_match(source.name, request.sources)
            if bound is not None:
                before = known[query.name].files.get(source.name, ()) if query.name in known else ()
                open_files(source, request.sources[bound], f"{folder}.files", _options(source, prepared), before)
    return resumed


def _files(query: Query, prepared: Prepared, request: Request) -> dict[str, Files]:
    """The files that stand for the topics of a query's sources."""
    from braid.spark.job import Files

    made: dict[str, Files] = {}
    for source in sources(query.root):
        bound = first_match(source.name, request.sources)
        if bound is not None:
            made[source.name] = Files(request.sources[bound], _options(source, prepared))
    return made


def _options(source: Source, prepared: Prepared) -> dict[str, str]:
    declared = prepared.program.catalog.sources.get(source.name)
    made = {"delimiter": source.encoding.delimiter}
    if declared is None or declared.null_value is None:
        return made
    return made | {"null_value": declared.null_value}


def _checkpoint(query: Query, request: Request, store: TopicStore) -> str:
    parent = os.path.abspath(request.checkpoint) if request.checkpoint else os.path.join(store.root, "checkpoints")
    return os.path.join(parent, query.name)


class _World(StoreWorld):
    """What the statements of a file do before its queries start. A source that is read from files has no topic; that of
    a query is made when it starts. INSERT, UPDATE and DELETE are done once per store: their commits bear names that
    follow from their texts and places."""

    def __init__(self, store: TopicStore, prepared: Prepared, request: Request, err: Console, parsed: str) -> None:
        super().__init__(store, _tables_in_files(prepared, request, parsed))
        declared = prepared.program.catalog.sources
        bound = [first_match(name, declared) for name in request.sources]
        self._from_files = {declared[n].topic for n in bound if n is not None}
        self._made = {q.sink.topic for q in prepared.queries}
        self._queries = {q.name for q in prepared.queries}
        self._count: Counter[str] = Counter()
        self._tell, self._err = request.tell, err
        self.waiting: list[BatchQuery] = []
        self.checkpoints = os.path.abspath(request.checkpoint) if request.checkpoint else self.checkpoints

    def delete_topic(self, name: str) -> None:
        if name not in self._made:
            super().delete_topic(name)

    def note(self, text: str) -> None:
        if self._tell:
            self._err.print(f"note: {text}", markup=False)

    def create_topic(self, name: str, partitions: int | None) -> None:
        if name not in self._from_files and (name not in self._made or self.store.exists(name)):
            super().create_topic(name, partitions)

    def insert(self, records: NewRecords, line: int) -> None:
        once = self._once("insert", f"{records.topic}\n{records.records!r}")
        if not inserts.append(self.store, records, once):
            self.note(f"INSERT INTO {records.topic} (line {line}) was done before; skipped")

    def change(self, change: RowsChanged, line: int) -> None:
        text = f"{change.kind}\n{change.target.name}\n{change.columns}\n{change.query.sql}"
        done, written = self.tables.change(change, self._once(change.kind, text))
        name = change.target.name
        if not done:
            self.note(f"{change.kind.upper()} of {name} (line {line}) was done before; skipped")
        elif written.late:
            self.note(f"{len(written.late)} rows for {name} (line {line}) were late: see braid drops")

    def _once(self, kind: str, text: str) -> str:
        self._count[text] += 1
        digest = hashlib.sha256(f"{text}\n{self._count[text]}".encode()).hexdigest()
        return f"{kind}-{digest[:24]}"

    def answer(self, query: BatchQuery) -> None:
        if any(r.declared.topic in self._made for r in query.reads):
            self.waiting.append(query)
        else:
            self.ask(query)

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

    def explain(self, query: Query) -> None:
        import click

        from braid.explain import explain_query, render_text

        click.echo(render_text(explain_query(query, self.partitions)))

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
        store: TopicStore,
        spark: SparkSession,
        err: Console,
        scratch: str,
        metrics: Metrics,
    ) -> None:
        self.request, self.prepared, self.store = request, prepared, store
        self.spark, self.err, self.scratch, self.metrics = spark, err, scratch, metrics
        self.running: dict[str, RunningQuery] = {}
        metrics.queries = self.running
        self._stop = threading.Event()
        self._over = threading.Event()
        self._began = time.monotonic()

    def go(self) -> Outcome:
        watch = threading.Thread(target=self._watch, daemon=True)
        with _interrupts(self._stop):
            watch.start()
            try:
                if self.request.until_idle:
                    self._each_in_turn()
                else:
                    self._all_at_once()
                self._check_drops(over=not self._stop.is_set())
            except (QueryDied, TooManyDrops, BraidError):
                self._finish_batches()
                raise
            finally:
                interrupted = self._stop.is_set()
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
        running = start(
            self.spark,
            lower(query),
            self.store.root,
            checkpoint=os.path.join(self.scratch, query.name) if push else self._folder(query),
            files=_files(query, self.prepared, self.request),
            output=self._output(query, push),
            limit=self.request.batch_rows,
            overwrite=self.request.overwrite,
            trigger={"availableNow": True} if self.request.until_idle else None,
        )
        self.running[query.name] = running
        return running

    def _folder(self, query: Query) -> str:
        return _checkpoint(query, self.request, self.store)

    def _output(self, query: Query, push: bool) -> Output | None:
        from braid.spark.job import Output

        if push:
            return Output("console", "", 1)
        sink = first_match(query.sink.name, self.request.sinks)
        if sink is None:
            return None
        kind, target = _target(self.request.sinks[sink])
        return Output(kind, target, 1)

    def _each_in_turn(self) -> None:
        for query in self.prepared.queries:
            if self._stop.is_set():
                return
            running = self._start(query)
            while running.status() == "running" and not self._stop.wait(0.05):
                if self._at_limit(query, running):
                    break
            self._check()
            running.stop()

    def _all_at_once(self) -> None:
        active = {q.name: q for q in self.prepared.queries}
        for query in self.prepared.queries:
            if not self._stop.is_set():
                self._start(query)
        while active and not self._stop.wait(0.1):
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
        while not self._stop.is_set() and time.monotonic() < deadline:
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
                elif not self.request.quiet and time.monotonic() - told >= TELL:
                    told = time.monotonic()
                    for line in self._lines():
                        self.err.print(line, markup=False)

    def _lines(self) -> list[str]:
        going = [(name, q) for name, q in list(self.running.items()) if q.status() == "running"]
        return [progress.line(name, q.progress()) for name, q in going]

    def _summary(self, done: Mapping[str, Progress], interrupted: bool) -> None:
        if self.request.quiet or not self.request.tell:
            return
        took = time.monotonic() - self._began
        again = "; the same command goes on from here" if interrupted else ""
        self.err.print(f"{'stopped' if interrupted else 'done'} after {took:.1f} s{again}")
        for name, p in done.items():
            self.err.print(f"  {progress.summed(name, p)}", markup=False)
            told = [
                *progress.warnings(name, p),
                *(f"{name}: hot keys: {x}; see docs/metrics.md" for x in progress.hot(p)),
            ]
            for text in told:
                self.err.print(f"  warning: {text}", style="yellow", markup=False)


@contextlib.contextmanager
def _interrupts(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and a polite `kill` set `stop`; a second Ctrl-C ends the program at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {s: signal.signal(s, asked) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
