"""A program: statements in turn, each bound to the catalog that those before it left.

In: SQL text. Out: effects, one a statement: topics to create, a query to start or stop, records to insert, rows to
show.
Rule: binding changes nothing outside; whoever takes an effect (the test driver, `braid run`, a session) carries it out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from braid.errors import BraidError, SqlError
from braid.expr import codec
from braid.plan import logical
from braid.plan.bind import bind
from braid.plan.bound import (
    BatchAsked,
    BatchQuery,
    Bound,
    Declared,
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
from braid.plan.catalog import Catalog
from braid.plan.logical import Query
from braid.plan.settings import Settings
from braid.sql import ast
from braid.sql.parser import parse, parse_all
from braid.types import Column


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record of INSERT … VALUES: JSON texts, and its time (None: now)."""

    key: str | None
    value: str | None
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class NewRecords:
    topic: str
    records: tuple[NewRecord, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """What one statement asks for. `topics`: (name, declared partitions or None) to create where missing; `rows` with
    `header`: what it shows; `explained`: a query whose plan it asks for; `batch`: a query over the tables as they
    stand; `change`: rows to write, which the tables decide."""

    statement: ast.Statement
    bound: Bound
    topics: tuple[tuple[str, int | None], ...] = ()
    inserted: NewRecords | None = None
    query: Query | None = None
    stopped: tuple[str, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: list[Any] | None = None
    explained: Query | None = None
    notices: tuple[str, ...] = ()
    batch: BatchQuery | None = None
    change: RowsChanged | None = None


@dataclass(slots=True)
class Program:
    """A catalog and settings that grow statement by statement."""

    dialect: str
    catalog: Catalog = field(default_factory=Catalog)
    settings: Settings = field(default_factory=Settings)
    queries: dict[str, Query] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)  # DEFINE

    def statements(self, sql: str) -> Iterator[Effect]:
        """Binds one statement after the other. The first that is refused raises `SqlError`; what came before stands."""
        script = parse(sql, self.dialect, self.variables)
        for statement in script.statements:
            try:
                bound = bind(statement, self.catalog, self.settings, script.text, self.dialect)
            except SqlError as e:
                raise e.with_text(script.text) from None
            effect = self._effect(statement, bound)
            self.catalog = self.catalog.apply(bound)
            yield effect

    def checked(self, sql: str) -> tuple[Effect, ...]:
        """The effects of all statements; if one is refused, none of them counts."""
        trial = Program(self.dialect, self.catalog, self.settings, dict(self.queries))
        effects = tuple(trial.statements(sql))
        self.catalog, self.settings, self.queries = trial.catalog, trial.settings, trial.queries
        return effects

    def _effect(self, statement: ast.Statement, bound: Bound) -> Effect:
        match bound:
            case SourceDeclared(declared=d):
                return Effect(statement, bound, ((d.topic, d.partitions),), notices=bound.notices)
            case QueryBound(query=query, declared=d):
                self.queries[query.name] = query
                partitions = d.partitions if d is not None else None
                topics = ((query.sink.topic, query.sink.partitions or partitions),)
                return Effect(statement, bound, topics, query=query, notices=query.notices)
            case Inserted(topic=topic, target=target):
                return Effect(statement, bound, inserted=NewRecords(topic, _records(bound, target)))
            case Shown(header=header, rows=rows):
                return Effect(statement, bound, header=header, rows=list(rows))
            case Described(header=header, rows=rows):
                return Effect(statement, bound, header=header, rows=list(rows))
            case Explained(name=name, query=query):
                found = query if query is not None else self.queries[name]
                return Effect(statement, bound, explained=found)
            case Dropped():
                for name in bound.queries:
                    self.queries.pop(name, None)
                gone = (bound.topic,) if bound.delete_topic and bound.topic is not None else ()
                return Effect(statement, bound, stopped=bound.queries, deleted_topics=gone, notices=bound.notices)
            case BatchAsked(query=batch):
                return Effect(statement, bound, batch=batch)
            case RowsChanged(target=target, creates=creates):
                new = ((target.topic, target.partitions),) if creates else ()
                return Effect(statement, bound, new, change=bound)
            case ViewDefined(notices=notices):
                return Effect(statement, bound, notices=notices)
            case Removed():
                for name in bound.queries:
                    self.queries.pop(name, None)
                return Effect(statement, bound, stopped=bound.queries, deleted_topics=bound.topics,
                              notices=bound.notices)  # fmt: skip
            case IndexDefined() | Flushed():
                return Effect(statement, bound)
            case SettingChanged(settings=settings):
                self.settings = settings
                return Effect(statement, bound, notices=bound.notices)
            case Nothing(notices=notices) | Named(notices=notices):
                return Effect(statement, bound, notices=notices)
        assert_never(bound)

    # ------------------------------------------------------------- look-ups

    def find(self, name: str) -> Declared | None:
        """The stream or table of this name: an exact match first, then without case."""
        found = first_match(name, self.catalog.sources)
        return self.catalog.sources[found] if found is not None else None

    def by_topic(self, topic: str) -> Declared | None:
        """The source declared over a topic: the one a query writes before the others."""
        over = [d for d in self.catalog.sources.values() if d.topic == topic]
        return next((d for d in over if d.created_by is not None), over[0] if over else None)

    def topics(self) -> list[str]:
        return [*(t for t, _ in self.catalog.topics()), *(q.sink.topic for q in self.queries.values())]

    def sources(self, query: Query) -> Sequence[logical.Source]:
        return tuple(logical.sources(query.root))

    def query_name(self, name: str) -> str:
        """The name of a running query; also that of a stream or table for the query that writes it."""
        found = first_match(name, self.queries)
        if found is not None:
            return found
        known = ", ".join(sorted(self.queries)) or "none"
        raise BraidError(f"no query {name}", f"running queries: {known}")

    def query_of(self, sql_or_name: str) -> Query:
        """A running query by name, or the query of a statement (bound, not started)."""
        if len(sql_or_name.split()) == 1:
            return self.queries[self.query_name(sql_or_name.strip().rstrip(";"))]
        trial = Program(self.dialect, self.catalog, self.settings, dict(self.queries))
        found: Query | None = None
        for effect in trial.statements(sql_or_name):
            found = effect.query or effect.explained or found
        if found is None:
            raise BraidError("there is no query in this statement", "explain a SELECT, CREATE … AS or INSERT INTO")
        return found


def first_match(name: str, known: Iterable[str]) -> str | None:
    """The known name that is `name`: an exact match first, then without case, then the only one in any schema."""
    known = list(known)
    if name in known:
        return name
    alike = [k for k in known if k.lower() == name.lower()]
    alike = alike or [k for k in dict.fromkeys(known) if k.lower().endswith(f".{name.lower()}")]
    return alike[0] if alike and (len(alike) == 1 or alike[0].lower() == name.lower()) else None


def check_program(sql: str, dialect: str) -> tuple[list[SqlError], int]:
    """Every problem of a text, in order, and how many statements it has. What a refused statement would have declared
    is unknown to those after it."""
    script, problems = parse_all(sql, dialect)
    program = Program(dialect)
    for statement in script.statements:
        try:
            bound = bind(statement, program.catalog, program.settings, script.text, dialect)
        except SqlError as e:
            problems.append(e.with_text(script.text))
            continue
        program._effect(statement, bound)
        program.catalog = program.catalog.apply(bound)
    problems.sort(key=lambda e: (e.line or 0, e.column or 0))
    return problems, len(script.statements)


def _records(bound: Inserted, target: Declared) -> tuple[NewRecord, ...]:
    keys = [Column(c.name, c.type) for c in target.columns if c.place == "key"]
    values = {c.name: Column(c.name, c.type) for c in target.columns if c.place == "value"}
    made = []
    for row in bound.rows:
        doc = {n: codec.json_value(v, values[n].type) for n, v in row.value.items()}
        made.append(NewRecord(_key_text(row.key, keys, target, doc), _value_text(doc, values, target), row.timestamp))
    return tuple(made)


def _key_text(
    key: dict[str, Any] | None, keys: Sequence[Column], target: Declared, value: dict[str, Any]
) -> str | None:
    if target.message_key is not None:
        return _text(value.get(target.message_key))
    if key is None or all(v is None for v in key.values()):
        return None
    doc = {c.name: codec.json_value(key[c.name], c.type) for c in keys}
    return _text(doc[keys[0].name] if len(keys) == 1 else doc)


def _value_text(doc: dict[str, Any], values: dict[str, Column], target: Declared) -> str | None:
    if target.encoding.value == "DELIMITED":
        line = target.encoding.delimiter.join("" if v is None else _delimited(v) for v in doc.values())
        return _text(line)
    if len(values) == 1 and (not target.encoding.wrapped or target.encoding.value == "KAFKA"):
        return _text(next(iter(doc.values())))
    return _text(doc)


def _delimited(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
