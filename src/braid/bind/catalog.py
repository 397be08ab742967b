"""The catalog: declared streams and tables, and the queries that run.

In: what `bind` gave (`apply`). Out: a new catalog. Nothing is ever changed in place.
Rule: names are looked up as the dialect folded them; what a name leads to is known here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from braid.bind.bound import (
    Again,
    Altered,
    BatchAsked,
    Bound,
    Connection,
    Declared,
    DeclaredColumn,
    Described,
    Dropped,
    Explained,
    Filled,
    Flushed,
    FunctionMade,
    Index,
    Inserted,
    Named,
    Nothing,
    Paused,
    Printed,
    Pull,
    QueryBound,
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
    connection_key,
    function_key,
    schema_key,
    type_name,
)
from braid.errors import Span, SqlError
from braid.expr.user import NONE, Functions
from braid.plan.logical import sources
from braid.records.registry import Registry
from braid.types import Type

__all__ = ["Catalog", "Declared", "DeclaredColumn", "RunningQuery"]


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A persistent query: which source it writes, which it reads, and between which topics."""

    name: str
    sink: str
    topic: str
    reads: tuple[str, ...]
    topics: tuple[str, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Sources and running queries by name, in the order of their making. `inserts`: INSERT INTOs so far, per sink.
    `named`: WITH queries. `types`: of CREATE TYPE; `schemas`: of CREATE SCHEMA; `written_functions`: of CREATE
    FUNCTION; `functions`: of the user. `paused`: queries. `stored`: topics that are there, with their partitions.
    `registry`: of schemas of records, where there is one. `fallen`: names that were declared and cannot be
    resolved, and why."""

    sources: Mapping[str, Declared] = field(default_factory=dict)
    queries: Mapping[str, RunningQuery] = field(default_factory=dict)
    inserts: Mapping[str, int] = field(default_factory=dict)
    named: Mapping[str, Named] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    indexes: Mapping[str, Index] = field(default_factory=dict)
    types: Mapping[str, Type] = field(default_factory=dict)
    connections: Mapping[str, Connection] = field(default_factory=dict)
    schemas: frozenset[str] = frozenset()
    written_functions: Mapping[str, FunctionMade] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    stored: Mapping[str, int] = field(default_factory=dict)
    registry: Registry | None = field(default=None, compare=False, repr=False)
    functions: Functions = field(default=NONE, compare=False, repr=False)
    fallen: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def unknown(self, name: str, span: Span, hint: str) -> SqlError:
        """The refusal of a name that no stream or table bears."""
        if name not in self.fallen:
            return SqlError(f"unknown stream or table {name}", span, hint)
        hint = "give the functions that it was declared with (--functions FILE), or declare it again"
        return SqlError(f"{name} was declared, but cannot be resolved here: {self.fallen[name]}", span, hint)

    def get(self, name: str) -> Declared | None:
        return self.sources.get(name)

    def by_topic(self, topic: str) -> Declared | None:
        """The source declared over a topic: the one a query writes before the others."""
        over = [d for d in self.sources.values() if d.topic == topic]
        return next((d for d in over if d.created_by is not None), over[0] if over else None)

    def readers(self, name: str) -> tuple[str, ...]:
        """The running queries, and the views without one, that read `name`."""
        queries = [q.name for q in self.queries.values() if name in q.reads]
        return (*queries, *(d.name for d in self.sources.values() if name in d.over and d.created_by is None))

    def writers(self, name: str) -> tuple[str, ...]:
        """The running queries that write `name`."""
        return tuple(q.name for q in self.queries.values() if q.sink == name)

    def path(self, start: str, goal: str) -> tuple[str, ...] | None:
        """Topics by which records of topic `start` come to topic `goal` through running queries; None: they do not."""
        seen: dict[str, tuple[str, ...]] = {start: (start,)}
        todo = [start]
        while todo:
            topic = todo.pop()
            if topic == goal:
                return seen[topic]
            for q in self.queries.values():
                if topic in q.topics and q.topic not in seen:
                    seen[q.topic] = (*seen[topic], q.topic)
                    todo.append(q.topic)
        return None

    def next_insert(self, sink: str) -> str:
        """The name of the next INSERT INTO query of `sink`."""
        return f"{sink}.{self.inserts.get(sink, 0) + 1}"

    def topics(self) -> Iterator[tuple[str, int | None]]:
        """Every topic of a source, with its declared number of partitions."""
        seen: dict[str, int | None] = dict(self.stored)
        for d in self.sources.values():
            seen[d.topic] = seen.get(d.topic) or d.partitions
        yield from sorted(seen.items())

    def without(self, name: str) -> Catalog:
        """The catalog as if nothing of this name had been made."""
        return self.apply(Dropped((name,), (name,)))

    def apply(self, bound: Bound) -> Catalog:
        """The catalog after a statement took effect."""
        match bound:
            case SourceDeclared(declared=d) | Altered(declared=d):
                return replace(self, sources={**self.sources, d.name: d})
            case QueryBound():
                return self._with_query(bound)
            case Named(name=name):
                return replace(self, named={**self.named, name: bound})
            case RowsChanged(target=d, creates=True):
                return replace(self, sources={**self.sources, d.name: d})
            case View(name=name):
                return replace(self, views={**self.views, name: bound})
            case Index(name=name):
                return replace(self, indexes={**self.indexes, name: bound})
            case Connection(name=name):
                return replace(self, connections={**self.connections, name: bound})
            case FunctionMade(name=name):
                return replace(self, written_functions={**self.written_functions, name: bound})
            case SchemaMade(name=name):
                return replace(self, schemas=self.schemas | {name})
            case Dropped(names=names, queries=stopped):
                return replace(
                    self,
                    written_functions={n: f for n, f in self.written_functions.items() if function_key(n) not in names},
                    schemas=frozenset(n for n in self.schemas if schema_key(n) not in names),
                    sources={n: d for n, d in self.sources.items() if n not in names},
                    views={n: v for n, v in self.views.items() if n not in names},
                    indexes={n: i for n, i in self.indexes.items() if n not in names},
                    types={n: t for n, t in self.types.items() if type_name(n) not in names},
                    connections={n: c for n, c in self.connections.items() if connection_key(n) not in names},
                    queries={n: q for n, q in self.queries.items() if n not in stopped},
                    paused=self.paused - set(stopped),
                )
            case Terminated(queries=stopped):
                return replace(self, queries={n: q for n, q in self.queries.items() if n not in stopped})
            case Paused(queries=names):
                return replace(self, paused=self.paused | set(names))
            case Resumed(queries=names):
                return replace(self, paused=self.paused - set(names))
            case TypeMade(name=name, type=made):
                return replace(self, types={**self.types, name: made})
            case Inserted() | Shown() | Described() | Explained() | SettingChanged() | Nothing():
                return self
            case Again(name=name, stopped=True):
                return replace(self, paused=self.paused | {name})
            case BatchAsked() | Pull() | TablesAsked() | Filled() | RowsChanged() | Flushed() | Again():
                return self
            case TopicAsserted() | SchemaAsserted() | RowAsserted() | Printed():
                return self
        assert_never(bound)

    def _with_query(self, bound: QueryBound) -> Catalog:
        if bound.transient:
            return self
        query, made = bound.query, self
        if bound.stopped:
            made = replace(made, paused=made.paused | {query.name})
        if bound.declared is not None:
            made = replace(made, sources={**made.sources, bound.declared.name: bound.declared})
        else:
            count = made.inserts.get(query.sink.name, 0) + 1
            made = replace(made, inserts={**made.inserts, query.sink.name: count})
        read = tuple(sources(query.root))
        names, topics = (*(s.name for s in read), *bound.over), tuple(s.topic for s in read)
        run = RunningQuery(query.name, query.sink.name, query.sink.topic, names, topics, query.sql)
        return replace(made, queries={**made.queries, query.name: run})
