"""Effects carried out: what a statement asks for, done to the tables and topics of a store.

In: effects of statements (`program.py`), the world they happen in. Out: what that world does.
Rule: the test driver, `braid run`, a session and the prompt differ only in their worlds: where topics lie, how a query
starts, who is shown rows. A statement that fails half-way is not in the program. The epoch of a table's record is its
timestamp: the time of day in ms, or one more than the last epoch of any table of the store. With a name a commit is
made once for ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, assert_never

import polars as pl

from braid.batch_sql.snapshots import Snapshots, Written, own_columns
from braid.bind import schemas
from braid.bind.bound import (
    Again,
    Altered,
    BatchAsked,
    BatchQuery,
    Connection,
    Declared,
    Described,
    Dropped,
    Explained,
    Filled,
    Flushed,
    FunctionMade,
    Index,
    Inserted,
    InsertedRow,
    Named,
    Nothing,
    Paused,
    Printed,
    Pull,
    QueryBound,
    Read,
    Resumed,
    RowAsserted,
    RowsChanged,
    SchemaAsserted,
    SchemaMade,
    SettingChanged,
    Shown,
    SourceDeclared,
    TablesAsked,
    Terminated,
    TopicAsserted,
    TypeMade,
    View,
)
from braid.bind.program import Effect, NewRecords, Program, new_records
from braid.errors import BraidError, Span, SqlError
from braid.face.assertions import PRINTED, Asserted, Looked, StoreLookout
from braid.face.tabular import time_text
from braid.operators.changes import DIFF, TIME
from braid.plan.logical import Query
from braid.records.registry import Registry
from braid.records.wire import Wires
from braid.stage import reset_marker
from braid.stage.call_order import Placed
from braid.stage.decode import key_of
from braid.stage.inputs import Opened
from braid.stage.registered import readable_of
from braid.topics import checkpoint_paths
from braid.topics.drops import forget_drops, publish_drops, stage_drops
from braid.topics.files import check_name
from braid.topics.interface import Topics
from braid.topics.registered import is_registered


class StoreTables:
    """The tables of one store, read as they stand at each call."""

    def __init__(self, store: Topics, files: Opened | None = None) -> None:
        """`files`: what opens the files of a table that is read from some, by its name."""
        self._store = store
        self._files, self._read = files or {}, dict[str, pl.DataFrame]()
        self._torn: dict[str, int] = {}  # lines that are no records, by topic
        there = lambda topic: topic in store.names()  # noqa: E731
        self._snapshots = Snapshots(self._records, self._rows_of_files, self._gone, there)

    def rows(self, query: BatchQuery) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of a query's columns, and its rows."""
        return [n for n, _ in query.columns], self._snapshots.answer(query, self._epoch)

    def left_out(self, query: BatchQuery) -> list[str]:
        """What to tell of records that the last `rows` of this query could not read."""
        read = {r.declared.name: r.declared.topic for r in query.reads}
        counts = {n: self._snapshots.unread.get(n, 0) + self._torn.get(t, 0) for n, t in read.items()}
        late = {n: self._snapshots.late.get(n, 0) for n in read}
        return [
            *(f"{_count(n)} of {name} cannot be read as it is declared: left out" for name, n in counts.items() if n),
            *(f"{_count(n)} of {name} came later than its watermark: left out" for name, n in late.items() if n),
        ]

    def change(self, change: RowsChanged, once: str | None = None) -> tuple[bool, Written]:
        """Carries out INSERT, UPDATE or DELETE, and what it wrote. False where the statement named `once` was done
        before."""
        topic = change.target.topic
        if topic not in self._store.names():
            self._store.create(topic, change.target.partitions or 1)
        written = self._snapshots.change(change, self._epoch)
        epoch = max(int(time.time() * 1000), self._last(self._store.names() if self._store.dense else [topic]) + 1)
        keys = [key_of(epoch, n) if key is None else key for n, (key, _) in enumerate(written.records)]
        texts, how = pl.Series(keys, dtype=pl.String), change.target.wires
        frame = pl.DataFrame(
            {
                "_key": keys,
                "_value": [value for _, value in written.records],
                "_t": [epoch] * len(keys),
                "_partition": self._store.placed(topic, texts, self._store.partitions(topic), how),
            },
            schema={"_key": pl.String, "_value": pl.String, "_t": pl.Int64, "_partition": pl.Int64},
        )
        done = self._store.append(topic, frame, query=once, how=how)
        if done and written.late:
            self._drop(change.target.name, epoch, written.late)
        return done, written

    def _drop(self, table: str, epoch: int, late: list[dict[str, Any]]) -> None:
        """Late rows can be read with `braid drops TABLE`."""
        values = [json.dumps(row["value"], default=str, ensure_ascii=False) for row in late]
        frame = pl.DataFrame([{n: v for n, v in row.items() if n != "value"} for row in late])
        frame = frame.with_columns(pl.Series("_value", values), pl.lit(epoch).alias("timestamp"))
        staged = stage_drops(self._store.root, table, epoch, 0, frame)
        assert staged is not None
        publish_drops(self._store.root, table, epoch, [staged])

    def _rows_of_files(self, declared: Declared) -> pl.DataFrame | None:
        """The rows that are well formed, each with its epoch."""
        framed = is_registered(declared.topic)
        if declared.name not in self._files and not framed:
            return None
        if declared.name not in self._read:
            source = declared.read_as(declared.name)
            opened = readable_of(self._store, source) if framed else self._files[declared.name](source)
            found = [opened.read(p, 0, end) for p, end in enumerate(opened.ends())]
            self._snapshots.unread[declared.name] = sum(len(x.error) - x.error.null_count() for x in found)
            columns = own_columns(declared, source)
            epoch = pl.col(TIME).cum_max()
            self._read[declared.name] = pl.concat(
                x.rows.with_columns(epoch).filter(x.error.is_null()).select(*columns, TIME, DIFF) for x in found
            )
        return self._read[declared.name]

    def _records(self, declared: Declared, start: int) -> list[Placed]:
        """The records of a table from the `start`-th on, in the order of their epochs; `seq` is the epoch."""
        topic = declared.topic
        if topic not in self._store.names():
            return []
        found: list[Placed] = []
        self._torn[topic] = 0
        ends = self._store.end_offsets(topic)
        for partition, (begin, end) in enumerate(zip(self._store.start_offsets(topic), ends, strict=True)):
            if begin == end:
                continue
            read = self._store.parsed(topic, partition, begin, end, declared.wires)
            good = read.filter(pl.col("error").is_null())
            self._torn[topic] += read.height - good.height
            columns = good.select("_offset", "_t", pl.col("_t").cum_max().alias("epoch"), "_key", "_value").iter_rows()
            found += [Placed(e, 0, 0, partition, n, key, value, t, None) for n, t, e, key, value in columns]
        found.sort(key=lambda r: (r.seq, r.partition, r.offset))
        return found[start:]

    def _gone(self, declared: Declared) -> int:
        """How many records of a topic were taken away: by their time, or since later ones have their keys."""
        topic = declared.topic
        if not self._store.dense or topic not in self._store.names():
            return 0
        return sum(self._store.end_offsets(topic)) - self._store.count(topic)

    def _last(self, names: Sequence[str]) -> int:
        """The last epoch of topics: of the whole store, but not of all that lies on a broker."""
        last = 0
        for name in names:
            ends = self._store.end_offsets(name)
            for partition, (begin, end) in enumerate(zip(self._store.start_offsets(name), ends, strict=True)):
                if begin < end:
                    newest = self._store.raw(name, partition, end - 1, end, Wires())
                    last = max(last, newest["_t"].max() or 0)  # type: ignore[assignment]
        return last

    def _epoch(self, read: Read) -> int | None:
        if read.at is not None:
            raise BraidError("time travel to a time of day is not supported in a store", "write now() - INTERVAL …")
        return int(time.time() * 1000) - read.back if read.back else None


def _count(n: int) -> str:
    return f"{n} record{'s' * (n != 1)}"


def append_records(store: Topics, inserted: NewRecords, once: str | None = None) -> bool:
    """Adds the records; False where the commit named `once` was made before."""
    if not store.exists(inserted.topic):
        store.create(inserted.topic, 1)
    records = inserted.records
    now = int(time.time() * 1000)
    keys = pl.Series("_key", [r.key for r in records], dtype=pl.String)
    frame = pl.DataFrame(
        {
            "_key": keys,
            "_value": [r.value for r in records],
            "_t": [now if r.timestamp is None else r.timestamp for r in records],
            "_partition": store.placed(inserted.topic, keys, store.partitions(inserted.topic), inserted.how),
        },
        schema_overrides={"_value": pl.String, "_t": pl.Int64},
    )
    return store.append(inserted.topic, frame, query=once, how=inserted.how)


# --------------------------------------------------------------------- effects


Rows = Sequence[Sequence[Any]]


class World(Protocol):
    """Where effects happen."""

    @property
    def registry(self) -> Registry | None:
        """Where schemas of what is written stand."""

    def note(self, text: str) -> None:
        """Something that the statement's author should know."""

    def create_topic(self, name: str, partitions: int | None, compacted: bool) -> None:
        """The topic of a declared source, where it is missing. `partitions` None: nobody said how many; `compacted`: a
        table's."""

    def keep(self, topic: str, ms: int) -> None:
        """So long a topic keeps its records, where it is not there yet."""

    def declared(self, made: Declared) -> None:
        """A source; its topic is there."""

    def delete_topic(self, name: str) -> None:
        """Nothing happens where there is none."""

    def insert(self, records: NewRecords, line: int) -> None:
        """INSERT … VALUES of the statement in that line of its text."""

    def change(self, change: RowsChanged, line: int) -> None:
        """INSERT, UPDATE or DELETE of a table."""

    def answer(self, query: BatchQuery) -> None:
        """A query over tables as they stand."""

    def pull(self, pull: Pull | TablesAsked) -> None:
        """A query over tables as they stand, or over all records of a stream."""

    def rows_of(self, asked: TablesAsked) -> Rows:
        """What a query over tables gives, to be written."""
        raise NotImplementedError

    def flush(self) -> None:
        """What has been written so far shall be in all that follows."""

    def start(self, bound: QueryBound) -> None:
        """A query, and the topic it writes; one that runs already goes on. One made `stopped` is paused."""

    def stop(self, query: str, anew: bool) -> None:
        """The query is not wanted any more. `anew`: what it wrote goes, so one of its name begins at the beginning."""

    def print_topic(self, asked: Printed) -> None: ...

    def check(self, asserted: Asserted, span: Span) -> None:
        """Raises `SqlError` at `span` where it is not so."""

    def pause(self, query: str) -> None:
        """The query reads nothing more, and keeps what it has."""

    def resume(self, query: Query) -> None:
        """A query that was paused goes on."""

    def explain(self, query: Query) -> None: ...

    def show(self, header: Sequence[str], rows: Rows) -> None: ...


def carry_out(effect: Effect, world: World) -> None:
    """What one statement asks for. Rows go to `world.show`."""
    bound, line = effect.bound, effect.statement.span.line
    for notice in effect.notices:
        world.note(f"{bound.query.name}: {notice}" if isinstance(bound, QueryBound) else notice)
    match bound:
        case SourceDeclared(declared=made):
            schemas.register_source(made, world.registry)
            if bound.keeps is not None:
                world.keep(made.topic, bound.keeps)
            world.create_topic(made.topic, made.partitions, made.kind == "table")
            world.declared(made)
        case QueryBound(query=query):
            if bound.replaces:
                _remove(world, (query.name,), (query.sink.topic,))
            if not bound.transient:
                schemas.register_sink(query.sink, world.registry)
            if bound.keeps is not None:
                world.keep(query.sink.topic, bound.keeps)
            world.start(replace(bound, or_replace=_replaces(effect)))
        case Inserted() | Filled():
            world.insert(_records(bound, effect.statement.span, world), line)
        case RowsChanged(target=target):
            if bound.creates:
                world.create_topic(target.topic, target.partitions, target.kind == "table")
            world.change(bound, line)
        case BatchAsked(query=query):
            world.answer(query)
        case Pull() | TablesAsked():
            world.pull(bound)
        case Dropped():
            _remove(world, bound.queries, bound.topics)
            if (registry := world.registry) is not None:
                for subject in bound.subjects:
                    registry.forget(subject)
        case Explained(query=explained):
            assert explained is not None  # the program has found it
            world.explain(explained)
        case Shown(header=header, rows=rows) | Described(header=header, rows=rows):
            world.show(header, rows)
        case Flushed():
            world.flush()
        case Again(query=query, stopped=stopped) if query is not None:
            world.start(QueryBound(query, or_replace=_replaces(effect), stopped=stopped))
        case Terminated(queries=names):
            for name in names:
                world.stop(name, anew=False)
        case Paused(queries=names):
            for name in names:
                world.pause(name)
        case Resumed(plans=plans):
            for plan in plans:
                world.resume(plan)
        case Printed():
            world.print_topic(bound)
        case TopicAsserted() | SchemaAsserted() | RowAsserted():
            world.check(bound, effect.statement.span)
        case (
            TypeMade() | Altered() | View() | Index() | Named() | SettingChanged() | Nothing() | Again() | Connection()
            | SchemaMade() | FunctionMade()
        ):  # fmt: skip
            pass  # the program keeps them
        case _:
            assert_never(bound)


def _records(bound: Inserted | Filled, span: Span, world: World) -> NewRecords:
    try:
        return new_records(bound if isinstance(bound, Inserted) else _filling(bound, world))
    except BraidError as e:
        raise e if isinstance(e, SqlError) else SqlError(e.message, span, e.hint) from None


def _filling(bound: Filled, world: World) -> Inserted:
    """The rows of INSERT … SELECT over tables."""
    names = [c.name for c in bound.asked.columns]
    rows = tuple(InsertedRow(None, dict(zip(names, x, strict=True)), None) for x in world.rows_of(bound.asked))
    for c in bound.target.visible:
        if c.not_null and any(row.value[c.name] is None for row in rows):
            raise SqlError(f"{c.name} cannot be NULL", bound.span, f"write WHERE {c.name} IS NOT NULL, or COALESCE")
    return Inserted(bound.target.topic, bound.target, rows)


def _replaces(effect: Effect) -> bool:
    return getattr(effect.statement, "or_replace", False) is True


def carry_out_all(program: Program, sql: str, world: World) -> None:
    """Statements in turn; those before one that fails stand."""
    for effect in program.statements(sql):
        carry_out(effect, world)


def bound_whole(program: Program, sql: str, as_file: bool = False) -> list[Effect]:
    """The effects of a text, all of which is bound before the first is carried out. `as_file`: its queries may be other
    ones than those of their names; its INSERTs are called as if they were the first."""
    trial = program.copy()
    if as_file:
        trial.mode, trial.catalog = "file", replace(trial.catalog, inserts={})
    effects = list(trial.statements(sql))
    program.variables.update(trial.variables)
    return effects


def carry_out_whole(program: Program, effects: Sequence[Effect], world: World) -> None:
    """What was bound before (`bound_whole`), in turn."""
    for effect in effects:
        carry_out(effect, world)
        program.apply(effect)


def _remove(world: World, queries: Sequence[str], topics: Sequence[str]) -> None:
    for name in queries:
        world.stop(name, anew=bool(topics))
    for topic in topics:
        world.delete_topic(topic)


class StoreWorld:
    """What is the same wherever topics lie in a store."""

    def __init__(
        self,
        store: Topics,
        files: Opened | None = None,
        looked: Looked | None = None,
    ) -> None:
        """`files`: as `StoreTables` takes them. `looked`: of the worlds before this one."""
        self.store, self.tables = store, StoreTables(store, files)
        self.looked = looked or Looked(StoreLookout(store))
        self.checkpoints = checkpoint_paths.own(store.root)

    @property
    def registry(self) -> Registry | None:
        return self.store.registry

    def create_topic(self, name: str, partitions: int | None, compacted: bool) -> None:
        if partitions is not None or not self.store.exists(check_name(name)):
            self.store.create(name, partitions or 1, compacted)

    def declared(self, made: Declared) -> None:
        pass

    def delete_topic(self, name: str) -> None:
        if self.store.exists(name):
            self.store.delete(name)

    def forget(self, query: str) -> None:
        """A query's checkpoint and drops go, what it wrote, and what it left at a broker."""
        name = check_name(query)
        checkpoint = self.checkpoints.at(name)
        known = reset_marker.of(checkpoint, self.store.root)
        if known is not None:
            reset_marker.mark(known)
            self.store.forget(name, known.run, known.tasks)
            if known.writes is not None and self.store.dense:
                self.delete_topic(known.writes)
        forget_drops(self.store.root, name)
        reset_marker.abandon(checkpoint)
        reset_marker.remove(checkpoint)

    def partitions(self, topic: str) -> int | None:
        return self.store.partitions(topic) if self.store.exists(topic) else None

    def check(self, asserted: Asserted, span: Span) -> None:
        self.looked.check(asserted, span)

    def print_topic(self, asked: Printed) -> None:
        self.show(PRINTED, [(time_text(t), *row) for t, *row in self.looked.printed(asked)])

    def show(self, header: Sequence[str], rows: Rows) -> None:
        raise NotImplementedError
