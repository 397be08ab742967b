"""Effects carried out: the one place that reads what a statement asks for.

In: effects of statements (`program.py`), the world they happen in. Out: what that world does.
Rule: the test driver, `braid run`, a session and the prompt differ only in their worlds: where topics lie, how a query
starts, who is shown rows. A statement that fails half-way is not in the program.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, assert_never

from braid.bind.bound import (
    Again,
    BatchAsked,
    BatchQuery,
    Described,
    Dropped,
    Explained,
    Flushed,
    IndexDefined,
    Inserted,
    Named,
    Nothing,
    QueryBound,
    Removed,
    RowsChanged,
    SettingChanged,
    Shown,
    SourceDeclared,
    ViewDefined,
)
from braid.bind.program import Effect, NewRecords, Program, new_records
from braid.face.tables import StoreTables
from braid.plan.logical import Query, Source
from braid.stage.inputs import Input
from braid.topics.names import check_name
from braid.topics.store import TopicStore

Rows = Sequence[Sequence[Any]]


class World(Protocol):
    """Where effects happen."""

    def note(self, text: str) -> None:
        """Something that the statement's author should know."""

    def create_topic(self, name: str, partitions: int | None) -> None:
        """The topic of a declared source, where it is missing. `partitions` None: nobody said how many."""

    def delete_topic(self, name: str) -> None:
        """Nothing happens where there is none."""

    def insert(self, records: NewRecords, line: int) -> None:
        """INSERT … VALUES of the statement in that line of its text."""

    def change(self, change: RowsChanged, line: int) -> None:
        """INSERT, UPDATE or DELETE of a table."""

    def answer(self, query: BatchQuery) -> None:
        """A query over tables as they stand."""

    def flush(self) -> None:
        """What has been written so far shall be in all that follows."""

    def start(self, bound: QueryBound) -> None:
        """A query, and the topic it writes; one that runs already goes on."""

    def stop(self, query: str, anew: bool) -> None:
        """The query is not wanted any more. `anew`: what it wrote goes, so one of its name begins at the beginning."""

    def explain(self, query: Query) -> None: ...

    def show(self, header: Sequence[str], rows: Rows) -> None: ...


def carry_out(effect: Effect, world: World) -> None:
    """What one statement asks for. Rows go to `world.show`."""
    bound, line = effect.bound, effect.statement.span.line
    for notice in effect.notices:
        world.note(f"{bound.query.name}: {notice}" if isinstance(bound, QueryBound) else notice)
    match bound:
        case SourceDeclared(declared=made):
            world.create_topic(made.topic, made.partitions)
        case QueryBound(query=query):
            if bound.replaces:
                _remove(world, (query.name,), (query.sink.topic,))
            world.start(bound)
        case Inserted():
            world.insert(new_records(bound), line)
        case RowsChanged(target=target):
            if bound.creates:
                world.create_topic(target.topic, target.partitions)
            world.change(bound, line)
        case BatchAsked(query=query):
            world.answer(query)
        case Dropped(topic=topic):
            _remove(world, bound.queries, (topic,) if bound.delete_topic and topic is not None else ())
        case Removed():
            _remove(world, bound.queries, bound.topics)
        case Explained(query=explained):
            assert explained is not None  # the program has found it
            world.explain(explained)
        case Shown(header=header, rows=rows) | Described(header=header, rows=rows):
            world.show(header, rows)
        case Flushed():
            world.flush()
        case Again(query=query) if query is not None:
            world.start(QueryBound(query))
        case ViewDefined() | IndexDefined() | Named() | SettingChanged() | Nothing() | Again():
            pass  # the program keeps them
        case _:
            assert_never(bound)


def carry_out_all(program: Program, sql: str, world: World, whole: bool = False) -> None:
    """Statements in turn; those before one that fails stand. `whole`: nothing happens before all of the text is
    bound."""
    if not whole:
        for effect in program.statements(sql):
            carry_out(effect, world)
        return
    trial = program.copy()
    effects = list(trial.statements(sql))
    program.variables.update(trial.variables)
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

    def __init__(self, store: TopicStore, files: Mapping[str, Callable[[Source], Input]] | None = None) -> None:
        """`files`: as `StoreTables` takes them."""
        self.store, self.tables = store, StoreTables(store, files)
        self.checkpoints = os.path.join(store.root, "checkpoints")

    def create_topic(self, name: str, partitions: int | None) -> None:
        if partitions is not None or not self.store.exists(check_name(name)):
            self.store.create(name, partitions or 1)

    def delete_topic(self, name: str) -> None:
        if self.store.exists(name):
            self.store.delete(name)

    def forget(self, query: str) -> None:
        """A query's checkpoint and drops go."""
        name = check_name(query)
        checkpoint = os.path.join(self.checkpoints, name)
        for folder in (checkpoint, f"{checkpoint}.files", os.path.join(self.store.root, "drops", name)):
            shutil.rmtree(folder, ignore_errors=True)

    def partitions(self, topic: str) -> int | None:
        return self.store.partitions(topic) if self.store.exists(topic) else None
