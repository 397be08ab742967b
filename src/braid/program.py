"""A program: statements in turn, each bound to the catalog that those before it left.

In: SQL text. Out: effects, one a statement: topics to create, a query to start or stop, records to insert, rows to
show.
Rule: binding changes nothing outside; effects are carried out by `effects.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from braid.errors import BraidError, SqlError
from braid.expr import codec
from braid.plan.bind import bind
from braid.plan.bound import (
    Again,
    Bound,
    Declared,
    Dropped,
    Explained,
    Index,
    IndexDefined,
    Inserted,
    Named,
    QueryBound,
    Removed,
    SettingChanged,
    SourceDeclared,
    View,
    ViewDefined,
)
from braid.plan.catalog import Catalog
from braid.plan.logical import Query
from braid.plan.settings import Settings
from braid.sql import ast
from braid.sql.parser import parse, parse_all, plain
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
    """What one statement asks for. EXPLAIN of a running query holds that query."""

    statement: ast.Statement
    bound: Bound
    text: str | None  # of the statement, as `plain` has it

    @property
    def query(self) -> Query | None:
        """The query that it starts, or that is explained."""
        return self.bound.query if isinstance(self.bound, QueryBound | Explained) else None

    @property
    def notices(self) -> tuple[str, ...]:
        match self.bound:
            case QueryBound(query=query):
                return query.notices
            case _:
                return getattr(self.bound, "notices", ())


@dataclass(slots=True)
class Program:
    """A catalog and settings that grow statement by statement.

    `again`: a CREATE or INSERT INTO … SELECT that stands word for word is no mistake, but asks for what is there.
    """

    dialect: str
    catalog: Catalog = field(default_factory=Catalog)
    settings: Settings = field(default_factory=Settings)
    queries: dict[str, Query] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)  # DEFINE
    again: bool = False
    texts: dict[str, str | None] = field(default_factory=dict)  # of the statements that made what stands, by name

    def statements(self, sql: str) -> Iterator[Effect]:
        """Binds one statement after the other. The first that is refused raises `SqlError`; what came before stands. A
        statement counts when the next one is asked for: one that cannot be carried out does not."""
        script = parse(sql, self.dialect, self.variables)
        for statement in script.statements:
            text = plain(script.text[statement.span.start : statement.span.end], self.dialect)
            standing = next((n for n, t in self.texts.items() if t == text is not None), None) if self.again else None
            bound: Bound = self._bound(statement, script.text) if standing is None else Again(standing)
            yield Effect(statement, bound, text)
            self.apply(bound, text)

    def _bound(self, statement: ast.Statement, text: str) -> Bound:
        try:
            bound = bind(statement, self.catalog, self.settings, text, self.dialect)
        except SqlError as e:
            raise e.with_text(text) from None
        if isinstance(bound, Explained) and bound.query is None:
            return Explained(bound.name, self.queries[bound.name])
        return bound

    def apply(self, bound: Bound, text: str | None) -> None:
        """The statement has taken effect."""
        self.catalog = self.catalog.apply(bound)
        match bound:
            case SourceDeclared(declared=declared):
                self.texts[declared.name] = text
            case QueryBound(query=query, transient=False):
                self.texts[query.name] = text
            case Named(name=name) | ViewDefined(view=View(name=name)) | IndexDefined(index=Index(name=name)):
                self.texts[name] = text
            case Dropped(name=name, queries=stopped):
                self.texts = {n: t for n, t in self.texts.items() if n != name and n not in stopped}
            case Removed(names=names, queries=stopped):
                self.texts = {n: t for n, t in self.texts.items() if n not in names and n not in stopped}
            case _:
                pass
        match bound:
            case QueryBound(query=query):
                self.queries[query.name] = query
            case Dropped(queries=stopped) | Removed(queries=stopped):
                self.queries = {name: q for name, q in self.queries.items() if name not in stopped}
            case SettingChanged(settings=settings):
                self.settings = settings
            case _:
                pass

    def copy(self) -> Program:
        """A program of the same standing that goes its own way."""
        return replace(self, queries=dict(self.queries), variables=dict(self.variables), texts=dict(self.texts))

    # ------------------------------------------------------------- look-ups

    def find(self, name: str) -> Declared | None:
        """The stream or table of this name: an exact match first, then without case."""
        found = first_match(name, self.catalog.sources)
        return self.catalog.sources[found] if found is not None else None

    def topics(self) -> list[str]:
        return [*(t for t, _ in self.catalog.topics()), *(q.sink.topic for q in self.queries.values())]

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
        found: Query | None = None
        for effect in self.copy().statements(sql_or_name):
            found = effect.query or found
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
        program.apply(bound, None)
    problems.sort(key=lambda e: (e.line or 0, e.column or 0))
    return problems, len(script.statements)


def new_records(bound: Inserted) -> NewRecords:
    """The records of INSERT … VALUES as texts."""
    target = bound.target
    keys = [Column(c.name, c.type) for c in target.columns if c.place == "key"]
    values = {c.name: Column(c.name, c.type) for c in target.columns if c.place == "value"}
    made = []
    for row in bound.rows:
        doc = {n: codec.json_value(v, values[n].type) for n, v in row.value.items()}
        made.append(NewRecord(_key_text(row.key, keys, target, doc), _value_text(doc, values, target), row.timestamp))
    return NewRecords(bound.topic, tuple(made))


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
