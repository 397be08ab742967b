"""The one owner of running queries: it starts, upgrades, pauses, stops and settles them, and says what there is to say.

In: bound queries, a store, what begins Spark. Out: running queries by name; `Said`, each thing once.
Rule: file, prompt and Python session only show. A query that runs here is not started again, and one that runs
elsewhere in this process is refused. What a user should know (a query that died, rows that were dropped, that came too
late or could not be read) is worded here, and is told at every door.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from braid.batch_sql.snapshots import Written
from braid.bind.bound import BatchQuery, Pull, QueryBound, RowsChanged
from braid.bind.program import NewRecords
from braid.errors import BraidError
from braid.face import waiting
from braid.face.asserted import Looked
from braid.face.effects import StoreWorld, append_records
from braid.face.metrics import unmet, warned
from braid.face.pulls import StorePulls
from braid.face.shown import readable, shown_as
from braid.lower.lower import lower
from braid.plan.logical import Query, sources
from braid.sinks.named import sink_at
from braid.spark.wishes import NOTHING, Wishes
from braid.stage import checkpoint as checkpoints
from braid.stage.inputs import Opened
from braid.topics import retention
from braid.topics.begin import UNASKED, Begins
from braid.topics.broker import Broker
from braid.topics.files import check_name
from braid.topics.interface import Topics
from braid.topics.retention import Retention

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braid.spark.query import Progress, RunningQuery


@dataclass(frozen=True, slots=True)
class Said:
    """Something that the user should know of a query. `error`: it has died."""

    query: str
    text: str
    error: bool = False


@dataclass(slots=True)
class _Told:
    """What was told of one start of a query."""

    drops: dict[str, int] = field(default_factory=dict)  # by reason
    about: set[str] = field(default_factory=set)


_of_process: WeakValueDictionary[tuple[str, str], RunningQuery] = WeakValueDictionary()  # by store and query


class Engine:
    """`spark` begins Spark, or gives what runs: it is called before each start. `drops_at`: how a user of this door
    asks for the drops of a query, `{}` being its name."""

    def __init__(
        self,
        store: Topics,
        spark: Callable[[], SparkSession],
        drops_at: str = "braid drops {}",
        broker: Broker | None = None,
        begins: Begins = UNASKED,
    ) -> None:
        self.store, self.broker, self.begins = store, broker, begins
        self.drops_at = drops_at
        self.running: dict[str, RunningQuery] = {}
        self._spark = spark
        self._told: dict[str, _Told] = {}

    @property
    def session(self) -> SparkSession:
        return self._spark()

    # ------------------------------------------------------------ lifecycle

    def runs(self, name: str) -> bool:
        """Whether the query runs here; one that runs elsewhere in this process is refused."""
        here, there = self.running.get(name), _of_process.get((self.store.root, name))
        if there is not None and there is not here and there.status() == "running":
            hint = "stop that session first, or give this one another store"
            raise BraidError(f"{name} runs in another session of this process", hint)
        return here is not None and here.status() == "running"

    def start(self, query: Query, wishes: Wishes = NOTHING) -> RunningQuery:
        """A query, from its checkpoint if it has one; as it is if it runs. Broker and beginning are the engine's; the
        output is the statement's, unless another is wished for."""
        from braid.spark.query import start

        if self.runs(query.name):
            return self.running[query.name]
        written = frozenset(r.job.output.target for r in self.running.values() if r.job.output.is_topic)
        begins = replace(self.begins, whole=self.begins.whole | written)
        output = wishes.output or (sink_at(query.sink.into) if query.sink.into else None)
        wishes = replace(wishes, broker=self.broker, begins=begins, output=output)
        made = start(self._spark(), lower(query), self.store.root, wishes)
        self._told[query.name] = _Told()
        self.running[query.name] = _of_process[self.store.root, query.name] = made
        return made

    def upgrade(self, old: Query, new: Query, folder: str) -> None:
        """`new` takes the place of `old`, whose checkpoint in `folder` it goes on from."""
        self.stop(new.name)
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
        self.running.clear()
        self._told.clear()

    def readers(self, source: str) -> list[str]:
        """The queries that run and read a source."""
        return [
            name
            for name, running in self.running.items()
            if running.status() == "running" and any(s.name == source for s in sources(running.job.plan.query.root))
        ]

    # --------------------------------------------------------------- telling

    def news(self) -> list[Said]:
        """What was not told before, query by query."""
        return [said for name in list(self.running) for said in self.news_of(name)]

    def news_of(self, name: str) -> Iterator[Said]:
        running, told = self.running[name], self._told.setdefault(name, _Told())
        p = running.progress()
        if (lost := _dropped(p, told.drops)) is not None:
            yield Said(name, f"{name} dropped {lost}: {self.drops_at.format(name)}")
        told.drops = dict(p.drops)
        for about, text in warned(name, p):
            if about not in told.about:
                told.about.add(about)
                yield Said(name, text)
        if "waiting" not in told.about and not running.busy():
            found = waiting.lines(name, running.waiting()) or list(unmet(name, running.progress()))
            if found:
                told.about.add("waiting")
                yield from (Said(name, text) for text in found)
        if "death" not in told.about and running.status() == "failed":
            told.about.add("death")
            yield Said(name, str(running.exception()), error=True)


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

    def __init__(self, engine: Engine, pulls: StorePulls, files: Opened, ticks: bool, looked: Looked | None) -> None:
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

    def pull(self, pull: Pull) -> None:
        began = time.monotonic()
        header, rows, notes = self._pulls.answer(pull, self.checkpoints, self._ticks, self._files)
        types = [shown_as(c.expr) for c in pull.columns]
        shown = [list(map(readable, row, types)) for row in rows] if self._ticks else rows
        self.show(header, shown)
        self.counted(len(rows), time.monotonic() - began)
        for text in notes:
            self.note(text)

    def flush(self) -> None:
        self.engine.settle()

    def start(self, bound: QueryBound) -> None:
        self.upgrade(bound)
        self.start_query(bound.query)

    def start_query(self, query: Query) -> None:
        self.engine.start(query)

    def upgrade(self, bound: QueryBound) -> None:
        """The query that `bound` takes the place of is stopped, and its checkpoint that of the new one."""
        if bound.upgrades is not None:
            folder = os.path.join(self.checkpoints, check_name(bound.query.name))
            self.engine.upgrade(bound.upgrades, bound.query, folder)

    def stop(self, query: str, anew: bool) -> None:
        self.engine.stop(query)
        if anew:
            self.forget(query)

    def pause(self, query: str) -> None:
        self.engine.pause(query)

    def resume(self, query: Query) -> None:
        self.start_query(query)
