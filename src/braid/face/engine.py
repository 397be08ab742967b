"""The one owner of running queries: it starts, upgrades, pauses, stops and settles them, and reports on them.

In: bound queries, a store, what begins Spark. Out: running queries by name; `Report`, each thing once.
Rule: file, prompt and Python session only show. A query that runs here is not started again, and one that runs
elsewhere in this process is refused. What a user should know (a query that died, rows that were dropped, that came too
late or could not be read) is worded here, and is told at every door.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary, WeakValueDictionary

from braid.batch_sql.snapshots import Written
from braid.bind.bound import BatchQuery, Pull, QueryBound, RowsChanged, TablesAsked
from braid.bind.program import NewRecords, Program
from braid.errors import BraidError
from braid.face import waiting
from braid.face.assertions import Looked
from braid.face.effects import StoreWorld, append_records
from braid.face.formatting import readable, shown_as
from braid.face.metrics import unmet, warned
from braid.face.pull_queries import StorePullQueries
from braid.face.request import Prepared, Request
from braid.face.upgrade import LOCK, Upgrade
from braid.lower.lower import lower
from braid.plan.canonical import canonical
from braid.plan.logical import Query, sources
from braid.sinks.named import sink_at
from braid.spark.query_options import NO_OPTIONS, QueryOptions, RunOptions
from braid.stage import checkpoint as checkpoints
from braid.stage.inputs import Opened
from braid.store import ObjectStore
from braid.topics import retention
from braid.topics.begin import UNASKED, Begins
from braid.topics.files import check_name
from braid.topics.interface import Topics
from braid.topics.lock import StoreLock
from braid.topics.retention import Retention

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braid.spark.query import Progress, RunningQuery


@dataclass(frozen=True, slots=True)
class Report:
    """Something that the user should know of a query. `error`: it has died."""

    query: str
    text: str
    error: bool = False


@dataclass(slots=True)
class _Told:
    """What was told of one start of a query."""

    drops: dict[str, int] = field(default_factory=dict)  # by reason
    about: set[str] = field(default_factory=set)


_of_process: WeakValueDictionary[tuple[ObjectStore, str], RunningQuery] = WeakValueDictionary()  # by store and query


class Engine:
    """`spark` begins Spark, or gives what runs: it is called before each start. `drops_at`: how a user of this door
    asks for the drops of a query, `{}` being its name."""

    def __init__(
        self,
        store: Topics,
        spark: Callable[[], SparkSession],
        drops_at: str = "braid drops {}",
        begins: Begins = UNASKED,
    ) -> None:
        self.store, self.begins = store, begins
        self.drops_at = drops_at
        self.running: dict[str, RunningQuery] = {}
        self._spark = spark
        self._told: dict[str, _Told] = {}
        self._asked: dict[str, QueryOptions] = {}  # of those that run, as they were asked for
        self._before: dict[str, RunningQuery] = {}  # those that are stopped, and go on by the next start
        self._after: WeakKeyDictionary[RunningQuery, RunningQuery] = WeakKeyDictionary()

    @property
    def session(self) -> SparkSession:
        return self._spark()

    def begin(self) -> None:
        """Spark runs afterwards, and what that takes is taken."""
        self._spark()

    # ------------------------------------------------------------ lifecycle

    def runs(self, name: str) -> bool:
        """Whether the query runs here; one that runs elsewhere in this process is refused."""
        here, there = self.running.get(name), _of_process.get((self.store.root, name))
        if there is not None and there is not here and there.status() == "running":
            hint = "stop that session first, or give this one another store"
            raise BraidError(f"{name} runs in another session of this process", hint)
        return here is not None and here.status() == "running"

    def start(self, query: Query, options: QueryOptions = NO_OPTIONS) -> RunningQuery:
        """A query, from its checkpoint if it has one; as it is if it runs. The beginning is the engine's; the output is
        the statement's, unless another is wished for."""
        from braid.spark.query import start

        if self.runs(query.name):
            return self.running[query.name]
        made = start(self._spark(), lower(query), self.store.store, self._options(query, options))
        self._told[query.name], self._asked[query.name] = _Told(), options
        self.running[query.name] = _of_process[self.store.root, query.name] = made
        if (before := self._before.pop(query.name, None)) is not None:
            self._after[before] = made
        return made

    def _options(self, query: Query, options: QueryOptions) -> QueryOptions:
        """What is wished for, and what the engine settles."""
        written = frozenset(r.job.output.target for r in self.running.values() if r.job.output.is_topic)
        begins = replace(self.begins, whole=self.begins.whole | written)
        output = options.output or (sink_at(query.sink.into) if query.sink.into else None)
        return replace(options, begins=begins, output=output)

    def work_out(self, query: Query, options: QueryOptions) -> None:
        """A changed query is run beside the one whose place it is to take, to the end of what that has read."""
        from braid.spark.query import start

        running = start(self._spark(), lower(query), self.store.store, self._options(query, options))
        try:
            running.await_termination()
        finally:
            running.stop()

    def newest(self, running: RunningQuery) -> RunningQuery:
        """The query by which this one goes on; itself where it was not stopped to be changed."""
        while (after := self._after.get(running)) is not None:
            running = after
        return running

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """The query does not run meanwhile. The next start of its name goes on for it; where this fails, it goes on as
        it was."""
        if not self.runs(name):
            yield
            return
        running, options = self.running[name], self._asked[name]
        self.stop(name)
        self._before[name] = running
        try:
            yield
        except BaseException:
            with contextlib.suppress(BraidError):  # what is raised says why
                self.start(running.job.plan.query, options)
            raise

    def upgrade(self, old: Query, new: Query, folder: ObjectStore) -> None:
        """`new` takes the place of `old`, whose checkpoint in `folder` it goes on from."""
        with self.stopped(new.name):
            checkpoints.upgrade(folder, lower(old), lower(new))

    def pause(self, name: str) -> None:
        """The query reads nothing more; started again, it goes on."""
        if (running := self.running.get(name)) is not None:
            running.stop()

    def stop(self, name: str) -> None:
        """The query is not this engine's any more."""
        if (running := self.running.pop(name, None)) is not None:
            running.stop()

    def settle(self) -> None:
        """Until all that is there has been processed; who stands later may read those before."""
        for running in self.running.values():
            running.await_idle()

    def stop_all(self) -> None:
        """All queries end; started again, they go on from their checkpoints."""
        for running in self.running.values():
            running.stop()
        self.forget()

    def forget(self) -> None:
        """The queries are gone, as Spark is."""
        for name, running in self.running.items():
            if _of_process.get((self.store.root, name)) is running:
                del _of_process[self.store.root, name]
        for known in (self.running, self._told, self._asked, self._before):
            known.clear()

    def readers(self, source: str) -> list[str]:
        """The queries that run and read a source."""
        return [
            name
            for name, running in self.running.items()
            if running.status() == "running" and any(s.name == source for s in sources(running.job.plan.query.root))
        ]

    # --------------------------------------------------------------- telling

    def news(self) -> list[Report]:
        """What was not told before, query by query."""
        return [said for name in list(self.running) for said in self.news_of(name)]

    def news_of(self, name: str) -> Iterator[Report]:
        running, told = self.running[name], self._told.setdefault(name, _Told())
        p = running.progress()
        if (lost := _dropped(p, told.drops)) is not None:
            yield Report(name, f"{name} dropped {lost}: {self.drops_at.format(name)}")
        told.drops = dict(p.drops)
        for about, text in warned(name, p):
            if about not in told.about:
                told.about.add(about)
                yield Report(name, text)
        if "waiting" not in told.about and not running.busy():
            found = waiting.lines(name, running.waiting()) or list(unmet(name, running.progress()))
            if found:
                told.about.add("waiting")
                yield from (Report(name, text) for text in found)
        if "death" not in told.about and running.status() == "failed":
            told.about.add("death")
            yield Report(name, str(running.exception()), error=True)


def _dropped(p: Progress, before: Mapping[str, int]) -> str | None:
    """How many rows more than before, and why."""
    return dropped_rows({reason: n - before.get(reason, 0) for reason, n in p.drops.items()})


def dropped_rows(drops: Mapping[str, int]) -> str | None:
    """How many rows, and why; None where there are none."""
    some = {reason: n for reason, n in sorted(drops.items()) if n > 0}
    count = sum(some.values())
    why = ", ".join(f"{n:,} {reason}" for reason, n in some.items())
    return f"{count:,} row{'s' * (count != 1)} ({why})" if some else None


class EngineWorld(StoreWorld):
    """What statements do where an engine runs the queries. A door adds how it shows rows and notes, and may say how
    many rows a statement wrote."""

    program: Program | None = None  # of a door that changes queries: it keeps their statements

    def __init__(
        self, engine: Engine, pulls: StorePullQueries, files: Opened, ticks: bool, looked: Looked | None
    ) -> None:
        """`files`: what opens sources that have no topic. `ticks`: a pull query shows dates and times as numbers."""
        super().__init__(engine.store, files, looked)
        self.engine = engine
        self._pulls, self._files, self._ticks = pulls, files, ticks

    def note(self, text: str) -> None:
        raise NotImplementedError

    def keep(self, topic: str, ms: int) -> None:
        if not self.store.dense:
            self.note(f"RETENTION_MS has no effect here: {topic} keeps what Kafka is configured to keep")
        elif not self.store.exists(topic) and topic not in retention.all_of(self.store.root):
            retention.want(self.store.root, topic, Retention(ms=ms))

    def wrote(self, count: int, name: str, kind: Literal["insert", "update", "delete"]) -> None:
        """A statement has written so many rows."""

    def counted(self, rows: int, seconds: float) -> None:
        """A SELECT has shown so many rows, after so long."""

    def insert(self, records: NewRecords, line: int) -> None:
        append_records(self.store, records)
        self.wrote(len(records.records), records.topic, "insert")

    def change(self, change: RowsChanged, line: int) -> None:
        _, written = self.tables.change(change)
        self.wrote(len(written.records), change.target.name, change.kind)
        self.tell_change(change, written)

    def tell_change(self, change: RowsChanged, written: Written, where: str = "") -> None:
        """Rows that were late, and those of RETURNING. `where`: of the statement in its file."""
        late, name = len(written.late), change.target.name
        if late:
            were = "row was" if late == 1 else "rows were"
            self.note(f"{late:,} {were} late for {name}{where}: {self.engine.drops_at.format(name)}")
        if change.returning is not None:
            self.show(change.returning.columns, written.returned or ())

    def answer(self, query: BatchQuery) -> None:
        began = time.monotonic()
        header, rows = self.tables.rows(query)
        self.show(header, rows)
        self.counted(len(rows), time.monotonic() - began)
        for text in self.tables.left_out(query):
            self.note(text)

    def pull(self, pull: Pull | TablesAsked) -> None:
        began = time.monotonic()
        header, rows, notes = self._pulls.answer(pull, self.checkpoints, self._ticks, self._files)
        types = [shown_as(c.expr) for c in pull.columns]
        shown = [list(map(readable, row, types)) for row in rows] if self._ticks else rows
        self.show(header, shown)
        self.counted(len(rows), time.monotonic() - began)
        for text in notes:
            self.note(text)

    def rows_of(self, asked: TablesAsked) -> list[tuple[Any, ...]]:
        _, rows, notes = self._pulls.answer(asked, self.checkpoints, False, self._files)
        for text in notes:
            self.note(text)
        return rows

    def flush(self) -> None:
        self.engine.settle()

    def start(self, bound: QueryBound) -> None:
        self.upgrade(bound)
        if bound.or_replace and self._is_other(bound.query):
            for line in self.changed([bound.query]):
                self.say(line)
        if bound.stopped:
            self.pause(bound.query.name)
        else:
            self.start_query(bound.query)

    def say(self, line: str) -> None:
        """What was done for a statement."""
        self.note(line)

    def request(self, dialect: str) -> Request:
        """How this door's queries are asked for."""
        asked = RunOptions(begins=self.engine.begins)
        return Request("", dialect, self.store.store, asked=asked)

    def changed(self, queries: Sequence[Query]) -> Iterator[str]:
        """Queries that have checkpoints of others go on, recomputed over what those have read."""
        if not queries:
            return
        assert self.program is not None
        self.engine.begin()  # the store is this process's from here on
        prepared, request = Prepared(self.program, (), tuple(queries)), self.request(queries[0].dialect)
        with StoreLock(self.store.root, name=LOCK):
            yield from Upgrade(request, prepared, self.engine, self.program.keep).take_over(queries)

    def _is_other(self, query: Query) -> bool:
        """Whether the query's checkpoint is of another one, or of an upgrade that did not come to its end."""
        folder = self.checkpoints.at(check_name(query.name))
        known = checkpoints.recorded(folder)
        begun = checkpoints.shadow(folder).has(checkpoints.READY)
        return begun or (known is not None and known.plan != canonical(query))

    def start_query(self, query: Query) -> None:
        self.engine.start(query)

    def upgrade(self, bound: QueryBound) -> None:
        """The query that `bound` takes the place of is stopped, and its checkpoint that of the new one."""
        if bound.upgrades is not None:
            folder = self.checkpoints.at(check_name(bound.query.name))
            self.engine.upgrade(bound.upgrades, bound.query, folder)

    def stop(self, query: str, anew: bool) -> None:
        self.engine.stop(query)
        if anew:
            self.forget(query)

    def pause(self, query: str) -> None:
        self.engine.pause(query)

    def resume(self, query: Query) -> None:
        self.start_query(query)
