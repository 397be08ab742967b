"""A program: statements in turn, each bound to the catalog that those before it left.

In: SQL text. Out: effects, one a statement: topics to create, a query to start or stop, records to insert, rows to
show.
Rule: binding changes nothing outside; effects are carried out by `effects.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from braid.bind import in_schemas, schemas
from braid.bind.bound import (
    Again,
    Altered,
    Bound,
    Connection,
    Declared,
    Dropped,
    Explained,
    FunctionMade,
    Index,
    Inserted,
    Named,
    QueryBound,
    Resumed,
    RowsChanged,
    SchemaMade,
    SettingChanged,
    SourceDeclared,
    Terminated,
    TypeMade,
    View,
    connection_key,
    function_key,
    schema_key,
    type_name,
)
from braid.bind.catalog import Catalog
from braid.bind.commands import Dialect, bind
from braid.bind.dialects import dialect_named
from braid.bind.settings import Settings
from braid.errors import BraidError, Span, SqlError
from braid.lower.lower import lower
from braid.plan.logical import Query
from braid.plan.upgrade import refusal
from braid.records.given import inserted
from braid.records.python import json_value
from braid.records.wire import Wires
from braid.sql import ast
from braid.sql.declare import quoted, typed
from braid.sql.dialects.base import Words
from braid.sql.parser import Scripts, parse, parse_all, plain
from braid.sql.secrets import hidden
from braid.types import Column, Type


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record of INSERT … VALUES: JSON texts, and its time (None: now)."""

    key: str | None
    value: str | None
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class NewRecords:
    """`how`: as a broker's records of the topic are written."""

    topic: str
    records: tuple[NewRecord, ...]
    how: Wires


@dataclass(frozen=True, slots=True)
class Effect:
    """What one statement asks for. EXPLAIN of a running query holds that query."""

    statement: ast.Statement
    bound: Bound
    text: str  # of the statement
    variables: Mapping[str, str] = field(default_factory=dict)  # that held there

    @property
    def query(self) -> Query | None:
        """The query that it starts, or that is explained."""
        return self.bound.query if isinstance(self.bound, QueryBound | Explained | Again) else None

    @property
    def notices(self) -> tuple[str, ...]:
        match self.bound:
            case QueryBound(query=query):
                return query.notices
            case _:
                return getattr(self.bound, "notices", ())


# What a name that stands means for a statement that makes it: a mistake; in a `cell`, or at a prompt, the statement
# that made it may come again; in a `file`, a query may be another one too, which its checkpoint judges.
Mode = Literal["once", "cell", "file"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A statement that made what bears this name, with what it leaned on: SETs, types (as statements) and variables.
    `of`: it changed what bears that name, and goes with it; then its own name is its text. `anew`: of a query that does
    not run any more, and will begin anew. `by`: the query of an INSERT that made it, and is not kept itself."""

    name: str
    text: str
    sets: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    of: str = ""
    anew: bool = False
    by: str = ""


class Keeper(Protocol):
    """Who is told of what CREATE statements made, and of what is gone."""

    def made(self, standing: Standing) -> None: ...

    def gone(self, names: Sequence[str]) -> None: ...


@dataclass(slots=True)
class Program:
    """A catalog and settings that grow statement by statement. `standing`: by name; `sets`: texts of SETs so far;
    `scripts`: reads files for RUN SCRIPT. `reworks`: the door recomputes changed queries."""

    dialect: str
    catalog: Catalog = field(default_factory=Catalog)
    settings: Settings = field(default_factory=Settings)
    queries: dict[str, Query] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)  # DEFINE
    mode: Mode = "once"
    standing: dict[str, Standing] = field(default_factory=dict)
    sets: tuple[str, ...] = ()
    keeper: Keeper | None = None
    scripts: Scripts | None = None
    reworks: bool = False

    @property
    def spoken(self) -> Dialect:
        return dialect_named(self.dialect)

    def statements(self, sql: str) -> Iterator[Effect]:
        """Binds one statement after the other. The first that is refused raises `SqlError`; what came before stands. A
        statement counts when the next one is asked for: one that cannot be carried out does not."""
        script = parse(sql, self.spoken.words, self.variables, self.catalog.types, self.scripts)
        fresh: set[str] = set()  # made by this text
        for statement, variables, (text, file) in zip(script.statements, script.defined, script.places, strict=True):
            try:
                effect = replace(self.effect_of(statement, text, fresh), variables=variables)
            except SqlError as e:
                raise e.within(file) from None
            for constants in effect.bound.constants if isinstance(effect.bound, QueryBound) else ():
                yield from self.statements(constants)
            yield effect
            made = self.apply(effect)
            if made is not None and self.mode == "file":
                fresh.add(made)

    def effect_of(self, statement: ast.Statement, script: str, fresh: Collection[str] = ()) -> Effect:
        """What a statement of a text asks for. `fresh`: names that this text has made before it."""
        try:
            return self._effect_of(statement, script, fresh)
        except SqlError as e:
            raise hidden(e, self.spoken.words) from e.__cause__

    def _effect_of(self, statement: ast.Statement, script: str, fresh: Collection[str]) -> Effect:
        text = script[statement.span.start : statement.span.end]
        known = None if self.mode == "once" else self._known(statement, text, fresh)
        if known is None:
            return Effect(statement, self._bound(statement, script, self._as_before(statement)), text)
        return Effect(statement, self._again(statement, script, text, known), text)

    def _as_before(self, statement: ast.Statement) -> Catalog:
        """The catalog for a statement: what an INSERT has made in whose place this one is, is not there, as it was not
        then."""
        if self.mode != "once" and isinstance(statement, ast.InsertSelect):
            made = self.catalog.sources.get(str(statement.target))
            if made is not None and made.created_by == self.catalog.next_insert(made.name):
                return self.catalog.without(made.name)
        return self.catalog

    def _known(self, statement: ast.Statement, text: str, fresh: Collection[str]) -> str | None:
        """The name of what stands and is made again by this statement."""
        name, first = made_name(statement), text.split(None, 1)[0].upper()
        if (full := in_schemas.made(statement, self.settings, self.catalog.schemas)) is not None:
            return full if full in self.standing and full not in fresh else None
        alike = [s for s in self.standing.values() if s.text.split(None, 1)[0].upper() == first]
        known = self.spoken.words
        words = plain(text, known) if alike else None
        same = (s.name for s in alike if words is not None and plain(s.text, known) == words)
        found = next(same, None) or (None if name is None else first_match(name, self.standing))
        return found if found not in fresh else None

    def _again(self, statement: ast.Statement, script: str, text: str, name: str) -> Bound:
        """What a statement means that makes a name which stands."""
        before = self.standing[name].text
        same = plain(before, self.spoken.words) == plain(text, self.spoken.words) is not None
        if same and name in self.queries:
            query, why = self.queries[name], self.settings.why == "on"  # as is set now: no row follows from it
            query = query if query.why == why else replace(query, why=why)
            return Again(name, query, getattr(statement, "state", None) == "STOPPED")
        if same and (self.standing[name].of or self._altered(name)):
            return Again(name)
        if not same and (getattr(statement, "or_replace", False) or getattr(statement, "if_not_exists", False)):
            pump = isinstance(statement, ast.CreatePump)  # that takes the place of its own, and of no relation
            return self._bound(statement, script, self.catalog.without(name) if pump else self.catalog)
        bound = self._bound(statement, script, self.catalog.without(name))
        match bound:
            case RowsChanged() if same:
                return Again(name)
            case SourceDeclared(declared=made) if replace(made, sql="") == replace(self.catalog.sources[name], sql=""):
                return bound  # its topic may be missing
            case SourceDeclared(declared=made) if self._is_result(name, made):
                return Again(name)  # what a query makes, declared as that makes it
            case QueryBound() if self.mode == "file":
                return bound
            case _ if same:
                return bound
        way = "DROP it first"
        if name in self.queries:
            replaces = "CREATE OR REPLACE or " if hasattr(statement, "or_replace") else ""
            way = f"{replaces}braid upgrade FILE changes it"
        hint = f"{way}, or take another name; it was made by: {' '.join(before.split())}"
        span = getattr(statement, "name_span", statement.span)
        raise SqlError(f"{name} exists already, with another definition", span, hint, script)

    def _is_result(self, name: str, made: Declared) -> bool:
        """Whether it is what a query makes, declared as that makes it."""
        there = self.catalog.sources[name]
        return there.created_by is not None and _says(made) == _says(there)

    def _altered(self, name: str) -> bool:
        """Whether what is declared by this name was altered since."""
        found = self.catalog.sources.get(name)
        return found is not None and found.created_by is None and any(s.of == name for s in self.standing.values())

    def _bound(self, statement: ast.Statement, text: str, catalog: Catalog) -> Bound:
        try:
            bound = bind(statement, catalog, self.settings, text, self.spoken)
        except SqlError as e:
            raise e.with_text(text) from None
        schemas.check_there(bound, catalog.registry, statement.span, text)
        if isinstance(bound, Explained) and bound.query is None:
            return Explained(bound.name, self.queries[bound.name])
        if isinstance(bound, QueryBound) and bound.declared is not None and getattr(statement, "or_replace", False):
            return self._upgrading(bound, getattr(statement, "name_span", statement.span), text)
        if isinstance(bound, Resumed):
            return replace(bound, plans=tuple(self.queries[n] for n in bound.queries))
        return bound

    def _upgrading(self, bound: QueryBound, span: Span, text: str) -> Bound:
        """A query that takes the place of one that runs, and goes on from where that stands."""
        name, old = bound.query.name, self.queries.get(bound.query.name)
        if old is None or bound.replaces or self.standing[name].anew:
            return bound
        why = refusal(old, bound.query)
        if why is not None and self.reworks:
            return bound
        if why is not None:
            way = "braid upgrade FILE rebuilds it; or " if self.mode == "file" else ""
            hint = f"{way}DROP {name} and create it again, or write into another one"
            raise SqlError(f"{name} runs, and cannot be replaced by this: {why}", span, hint, text)
        return replace(bound, upgrades=old)

    def apply(self, effect: Effect) -> str | None:
        """The statement has taken effect; gives the name of what it made."""
        bound = effect.bound
        self.catalog = self.catalog.apply(bound)
        match bound:
            case QueryBound(query=query, declared=made, transient=False):
                self.queries[query.name] = query
                if made is not None and made.name != query.name:
                    self._stands(replace(self._standing(made.name, effect), by=query.name))
                return self._made(query.name, effect)
            case SourceDeclared(declared=made) | RowsChanged(target=made, creates=True):
                return self._made(made.name, effect)
            case Named(name=name) | View(name=name) | Index(name=name):
                return self._made(name, effect)
            case TypeMade(name=name):
                return self._made(type_name(name), effect)
            case Connection(name=name):
                return self._made(connection_key(name), effect)
            case FunctionMade(name=name):
                return self._made(function_key(name), effect)
            case SchemaMade(name=name):
                return self._made(schema_key(name), effect)
            case Again(name=name, query=query):
                if query is not None:
                    self.queries[name] = query
                if query is not None and self.standing[name].anew:
                    self._stands(replace(self.standing[name], anew=False))
                return name
            case Dropped(names=names, queries=stopped):
                self._gone((*names, *stopped), stopped)
            case Altered(declared=d):
                self._made(str(plain(effect.text, self.spoken.words) or effect.text), effect, of=d.name)
            case Terminated(queries=stopped):
                self.queries = {n: q for n, q in self.queries.items() if n not in stopped}
                for name in stopped:
                    self._ended(name, effect)
            case SettingChanged(settings=settings):
                self.settings, self.sets = settings, (*self.sets, effect.text)
            case _:
                pass
        return None

    def _made(self, name: str, effect: Effect, of: str = "") -> str:
        return self._stands(replace(self._standing(name, effect), of=of))

    def _standing(self, name: str, effect: Effect) -> Standing:
        variables = effect.variables if "${" in effect.text else {}
        return Standing(name, effect.text, (*self.sets, *self._types(effect.text, name)), variables)

    def _stands(self, made: Standing) -> str:
        """Takes the place of what bore the name, and of what changed that."""
        self.standing = {n: s for n, s in self.standing.items() if n == made.name or s.of != made.name}
        self.standing[made.name] = made
        if self.keeper is not None and (made.of or made.by or made.text.lstrip()[:6].upper() == "CREATE"):
            self.keeper.made(made)
        return made.name

    def keep(self, query: Query) -> None:
        """The statement of a query is kept before it has taken effect: its checkpoint will be of this one."""
        if self.keeper is not None and query.sql.lstrip()[:6].upper() == "CREATE":
            variables = self.variables if "${" in query.sql else {}
            sets = (*self.sets, *self._types(query.sql, query.name))
            self.keeper.made(Standing(query.name, query.sql, sets, variables))

    def begins_anew(self, queries: Sequence[str]) -> None:
        """These queries do not run any more, and begin anew by their statements; what they make stays declared."""
        for name in queries:
            if name in self.standing:
                self._stands(replace(self.standing[name], anew=True))

    def forget(self, names: Sequence[str]) -> None:
        """What bears these names is gone, and queries of these names are."""
        queries = tuple(name for name in names if name in self.queries)
        self.catalog = self.catalog.apply(Dropped(tuple(n for n in names if n in self.catalog.sources), queries))
        self._gone(names, queries)

    def _ended(self, query: str, effect: Effect) -> None:
        """A query ended for good; the stream or table that it made stands without it."""
        if query in self.catalog.sources:
            text = f"TERMINATE {quoted(self.spoken.words, query)}"
            self._stands(Standing(text, text, of=query))
        else:
            self._gone((query,), (query,))

    def _types(self, text: str, made: str) -> list[str]:
        """Statements that make the types which a text may name, as they are now, but for the one that it makes."""
        words = self.spoken.words
        read = plain(text, words)
        named = {w.strip(words.name_quotes) for w in read.split()} if read is not None else set(self.catalog.types)
        return [made_type(words, n, t) for n, t in self.catalog.types.items() if n in named and type_name(n) != made]

    def _gone(self, names: Sequence[str], stopped: Sequence[str]) -> None:
        if self.keeper is not None:
            self.keeper.gone(names)
        self.standing = {n: s for n, s in self.standing.items() if n not in names and s.of not in names}
        self.queries = {n: q for n, q in self.queries.items() if n not in stopped}

    def copy(self) -> Program:
        """A program of the same standing that goes its own way; nobody is told of it."""
        return replace(
            self, keeper=None, queries=dict(self.queries), variables=dict(self.variables), standing=dict(self.standing)
        )

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


def _says(d: Declared) -> object:
    """What a declaration says of the records of a topic."""
    return d.name, d.kind, d.topic, [(c.name, c.type, c.place) for c in d.visible]


def made_type(words: Words, name: str, t: Type) -> str:
    """The statement that makes a type."""
    return f"CREATE TYPE {quoted(words, name)} AS {typed(words, Column(name, t))}"


def made_name(statement: ast.Statement) -> str | None:
    """The name that a CREATE statement makes."""
    if isinstance(statement, ast.CreateType):
        return type_name(statement.name)
    if isinstance(statement, ast.CreateFunction):
        return function_key(f"{statement.name}/{len(statement.parameters)}")
    if isinstance(statement, ast.CreateSchema):
        return schema_key(statement.name)
    name = getattr(statement, "name", None)
    return str(name) if name is not None and type(statement).__name__.startswith("Create") else None


def first_match(name: str, known: Iterable[str]) -> str | None:
    """The known name that is `name`: an exact match first, then without case, then the only one in any schema."""
    known = list(known)
    if name in known:
        return name
    alike = [k for k in known if k.lower() == name.lower()]
    alike = alike or [k for k in dict.fromkeys(known) if k.lower().endswith(f".{name.lower()}")]
    return alike[0] if alike and (len(alike) == 1 or alike[0].lower() == name.lower()) else None


def named_by(name: str, given: Iterable[str]) -> str | None:
    """Which of the names that were given means this known one, as `first_match` has it."""
    given = list(given)
    return name if name in given else next((g for g in given if first_match(g, [name]) is not None), None)


def check_program(sql: str, program: Program) -> tuple[list[SqlError], int]:
    """Every problem of a text, in order, and how many statements it has. What a refused statement would have declared
    is unknown to those after it: that is no problem of theirs."""
    script, problems = parse_all(sql, program.spoken.words, None, program.catalog.types, program.scripts)
    fresh: set[str] = set()
    failed = {_wanted(e.text[e.text.rfind(";", 0, e.span.start) + 1 :]) for e in problems if e.text and e.span}
    for statement, (text, file) in zip(script.statements, script.places, strict=True):
        try:
            effect = program.effect_of(statement, text, fresh)
        except SqlError as e:
            if e.span is None or _plain(text[e.span.start : e.span.end]) not in failed:
                problems.append(e.within(file))
            failed.add(_wanted(text[statement.span.start :]))
            continue
        if (unfit := _unfit(effect, text)) is not None:
            problems.append(unfit.within(file))
        fresh.update({program.apply(effect) or ""})
    problems.sort(key=lambda e: (e.file, e.line or 0, e.column or 0))
    return problems, len(script.statements)


def _unfit(effect: Effect, text: str) -> SqlError | None:
    """Why a query that is bound cannot be run, as EXPLAIN and a run say it."""
    if effect.query is None:
        return None
    try:
        lower(effect.query)
    except BraidError as e:
        span = getattr(effect.statement, "name_span", effect.statement.span)
        return SqlError(e.message, span, e.hint, text)
    return None


_WANTED = re.compile(
    r"\b(?:STREAM|TABLE|VIEW|SOURCE|PUMP|TYPE|INTO)\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r"(?!(?:STREAM|TABLE|VIEW|INTO)\b)([\w.$\"`]+)",
    re.IGNORECASE,
)


def _wanted(text: str) -> str:
    """The name that a statement would have made which text begins with, be it CREATE or INSERT INTO."""
    found = _WANTED.search(text)
    return "" if found is None else _plain(found[1])


def _plain(name: str) -> str:
    """A name without case, quotes and schema; of what is no name nothing."""
    return name.rsplit(".", 1)[-1].strip('"`').lower() if re.fullmatch(r"[\w.$\"`]+", name) else "?"


def new_records(bound: Inserted) -> NewRecords:
    """The records of INSERT … VALUES as texts; in a format with schemas as they are when they have been through it."""
    target = bound.target
    keys = [Column(c.name, c.type) for c in target.columns if c.place == "key"]
    values = {c.name: Column(c.name, c.type) for c in target.columns if c.place == "value"}
    of_keys, of_values = target.encoding.of_keys(len(keys)), target.encoding.of_values(len(values))
    made = []
    for row in bound.rows:
        doc = {n: json_value(v, values[n].type) for n, v in row.value.items()}
        key, value = _key_text(row.key, keys, target, doc), _value_text(doc, values, target)
        key, value = inserted(key, keys, of_keys), inserted(value, list(values.values()), of_values)
        made.append(NewRecord(key, value, row.timestamp))
    return NewRecords(bound.topic, tuple(made), target.wires)


def _key_text(
    key: dict[str, Any] | None, keys: Sequence[Column], target: Declared, value: dict[str, Any]
) -> str | None:
    if target.message_key is not None:
        return _text(value.get(target.message_key))
    if key is None or all(v is None for v in key.values()):
        return None
    doc = {c.name: json_value(key[c.name], c.type) for c in keys}
    return _text(doc[keys[0].name] if len(keys) == 1 and target.encoding.key_format.single != "record" else doc)


def _value_text(doc: dict[str, Any], values: dict[str, Column], target: Declared) -> str | None:
    if target.encoding.bare(len(values)):
        return _text(next(iter(doc.values())))
    return _text(doc)


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
