"""`braid run`: a file of statements, carried out against a store.

In: SQL, a store, what to read from files, where results go. Out: running queries, a live progress line, a summary.
Rule: everything is parsed, bound and checked before anything is created or started; then topics, INSERT … VALUES (once
per store), queries in topological order. If one query fails the others finish their batch and the run ends with the
reason. Started again, it goes on from the checkpoints.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console

from braid.cli_errors import QueryDied
from braid.errors import BraidError
from braid.plan.logical import Query, Source, StreamStreamJoin, inputs, sources
from braid.plan.lower import lower
from braid.program import Effect, Program, first_match
from braid.runtime.driver_local import in_topological_order
from braid.runtime.file_list import look
from braid.runtime.files import needs_time
from braid.topics.lock import StoreLock
from braid.topics.store import TopicStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braid.spark.job import Files
    from braid.spark.query import Progress, RunningQuery


@dataclass(frozen=True, slots=True)
class Request:
    """What `braid run` was asked for. `sources`, `sinks`: declared name -> path (or `console`)."""

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


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program that has been checked whole: nothing has happened yet."""

    program: Program
    effects: tuple[Effect, ...]
    queries: tuple[Query, ...]  # in topological order


def prepare(request: Request) -> Prepared:
    """Parses, binds and checks all statements."""
    program = Program(request.dialect)
    effects = tuple(program.statements(request.sql))
    for option, names in (("--source", request.sources), ("--sink", request.sinks)):
        for name in names:
            if first_match(name, program.catalog.sources) is None:
                known = ", ".join(program.catalog.sources) or "none"
                raise BraidError(f"{option} {name}: no such stream or table is declared", f"declared: {known}")
    queries = [e.query for e in effects if e.query is not None and e.query.name in program.queries]
    for pattern in request.sources.values():
        look(pattern)
    for query in queries:
        _check_times(query.root, request.sources)
    order = in_topological_order(queries, lambda q: {s.topic for s in sources(q.root)}, lambda q: q.sink.topic)
    return Prepared(program, effects, tuple(order))


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


def run_program(request: Request, err: Console) -> dict[str, Progress]:
    """Runs a program; returns what each query did."""
    prepared = prepare(request)
    for effect in prepared.effects:
        for notice in effect.notices:
            err.print(f"note: {notice}", markup=False)
        _show(effect)
    store = TopicStore(request.store)
    with StoreLock(store.root, note=lambda text: err.print(text, markup=False)) as lock:
        _create_topics(prepared, request, store)
        _insert(prepared, store, err)
        if not prepared.queries:
            return {}
        from braid.spark.conf import session

        if not request.quiet:
            err.print("starting Spark …")
        spark = session(request.master, request.conf)
        jvm = _jvm_pid(spark)
        if jvm is not None:
            lock.add_pid(jvm)
        return _Run(request, prepared, store, spark, err).go()


def _show(effect: Effect) -> None:
    import click

    if effect.rows is not None:
        click.echo("\t".join(effect.header))
        for row in effect.rows:
            click.echo("\t".join("" if v is None else str(v) for v in row))
    if effect.explained is not None:
        from braid.explain import explain_query, render_text

        click.echo(render_text(explain_query(effect.explained, lambda _: None)))


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
    declared = prepared.program.catalog.sources[source.name]
    made = {"delimiter": source.encoding.delimiter}
    return made if declared.null_value is None else made | {"null_value": declared.null_value}


def _checkpoint(query: Query, request: Request, store: TopicStore) -> str:
    return os.path.join(request.checkpoint or os.path.join(store.root, "checkpoints"), query.name)


def _create_topics(prepared: Prepared, request: Request, store: TopicStore) -> None:
    """Topics of declared sources (unless they are read from files), with their declared partitions."""
    made_by_query = {q.sink.topic for q in prepared.queries}
    from_files = {
        prepared.program.catalog.sources[n].topic
        for n in (first_match(name, prepared.program.catalog.sources) for name in request.sources)
        if n is not None
    }
    existing = set(store.names())
    for effect in prepared.effects:
        for topic, partitions in effect.topics:
            if topic in made_by_query or topic in from_files or (topic in existing and partitions is None):
                continue
            store.create(topic, partitions or 1)


def _insert(prepared: Prepared, store: TopicStore, err: Console) -> None:
    """INSERT … VALUES, each once per store: its commit bears a name that follows from its text and place."""
    count: dict[str, int] = {}
    for effect in prepared.effects:
        if effect.inserted is None:
            continue
        topic = effect.inserted.topic
        span = effect.statement.span
        text = f"{topic}\n{effect.inserted.records!r}"
        number = count[text] = count.get(text, 0) + 1
        digest = hashlib.sha256(f"{text}\n{number}".encode()).hexdigest()
        name = f"insert-{digest[:24]}"
        now = int(time.time() * 1000)
        records = effect.inserted.records
        frame = pl.DataFrame(
            {
                "_key": [r.key for r in records],
                "_value": [r.value for r in records],
                "_t": [now if r.timestamp is None else r.timestamp for r in records],
            },
            schema={"_key": pl.String, "_value": pl.String, "_t": pl.Int64},
        )
        if not store.append(topic, frame, query=name):
            err.print(f"note: INSERT INTO {topic} (line {span.line}) was done before; skipped", markup=False)


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
    ) -> None:
        self.request, self.prepared, self.store = request, prepared, store
        self.spark, self.err = spark, err
        self.running: dict[str, RunningQuery] = {}
        self._stop = threading.Event()
        self._began = time.monotonic()

    def go(self) -> dict[str, Progress]:
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda *_: self._stop.set())
        watch = threading.Thread(target=self._watch, daemon=True)
        done: dict[str, Progress] = {}
        try:
            watch.start()
            if self.request.until_idle:
                self._each_in_turn(done)
            else:
                self._all_at_once(done)
        finally:
            interrupted = self._stop.is_set()
            self._stop.set()
            for query in self.running.values():
                query.stop()
            watch.join(timeout=2)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, before)
        self._summary(done, interrupted)
        return done

    def _start(self, query: Query) -> RunningQuery:
        from braid.spark.job import Output
        from braid.spark.query import start

        sink = first_match(query.sink.name, self.request.sinks)
        output = None
        if sink is not None:
            target = self.request.sinks[sink]
            output = Output("console", "", 1) if target == "console" else Output(_kind_of(target), target, 1)
        checkpoint = _checkpoint(query, self.request, self.store)
        files = _files(query, self.prepared, self.request)
        running = start(
            self.spark, lower(query), self.store.root, checkpoint=checkpoint, files=files, output=output
        )
        self.running[query.name] = running
        return running

    def _each_in_turn(self, done: dict[str, Progress]) -> None:
        for query in self.prepared.queries:
            if self._stop.is_set():
                return
            running = self._start(query)
            waiter = threading.Thread(target=_quietly, args=(running,), daemon=True)
            waiter.start()
            while waiter.is_alive() and not self._stop.is_set():
                waiter.join(timeout=0.1)
            self._check()
            done[query.name] = running.progress()
            running.stop()

    def _all_at_once(self, done: dict[str, Progress]) -> None:
        for query in self.prepared.queries:
            self._start(query)
        while not self._stop.wait(0.2):
            self._check()
        for name, running in self.running.items():
            done[name] = running.progress()

    def _check(self) -> None:
        for running in self.running.values():
            if running.status() == "failed":
                raise QueryDied(str(running.exception()))

    # ------------------------------------------------------------ telling

    def _watch(self) -> None:
        """The progress line, once a second, on a terminal only."""
        if self.request.quiet or not self.err.is_terminal:
            return
        with self.err.status("") as status:
            while not self._stop.wait(0.5):
                lines = [_line(name, q.progress()) for name, q in list(self.running.items()) if q.status() == "running"]
                status.update("\n".join(lines) or "starting …")

    def _summary(self, done: Mapping[str, Progress], interrupted: bool) -> None:
        if self.request.quiet:
            return
        took = time.monotonic() - self._began
        self.err.print(f"{'stopped' if interrupted else 'done'} after {took:.1f} s")
        for name, p in done.items():
            self.err.print(f"  {_summed(name, p)}", markup=False)


def _quietly(running: RunningQuery) -> None:
    try:
        running.await_idle()
    except BraidError:
        return  # `_check` tells it


def _kind_of(target: str) -> str:
    kinds = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
    return kinds.get(Path(target).suffix, "jsonl")


def _line(name: str, p: Progress) -> str:
    dropped = sum(p.drops.values())
    return (
        f"{name}  in {p.rows_in_per_second:,.0f}/s  out {p.rows_out_per_second:,.0f}/s  batch {p.batch} {p.batch_ms:.0f} ms"
        f"  state {p.state_rows:,} rows {p.state_bytes / 2**20:.1f} MiB  drops {dropped:,}  lag {p.lag:,}"
    )


def _summed(name: str, p: Progress) -> str:
    drops = ", ".join(f"{n:,} {reason}" for reason, n in sorted(p.drops.items()))
    text = f"{name}: {p.rows_in:,} records in, {p.rows_out:,} out, state {p.state_rows:,} rows"
    return text + (f"; dropped {drops} (braid drops {name})" if drops else "")


def summary_lines(done: Mapping[str, Progress]) -> Sequence[str]:
    """The summary's lines, for the demo."""
    return [_summed(name, p) for name, p in done.items()]
