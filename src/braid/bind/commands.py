"""Binding: what a statement means; SHOW, DESCRIBE, EXPLAIN, DROP, SET once for every dialect, with hooks for its words.

In: a statement as written, the catalog, the settings. Out: a `Bound`; nothing is changed (`Catalog.apply` does that);
what to write instead of a statement that is not run yet.
Rule: the dialect ends here. Whatever is refused says where it stands and what to write instead. Every dialect shows the
same things and drops nothing that others read; what is its own stands in its `Dialect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from braid.bind import schemas
from braid.bind.bound import (
    BatchAsked,
    Bound,
    Declared,
    DeclaredColumn,
    Described,
    Dropped,
    Explained,
    Nothing,
    Pull,
    QueryBound,
    SettingChanged,
    Shown,
    TablesAsked,
)
from braid.bind.catalog import Catalog
from braid.bind.env import Env
from braid.bind.expressions import located
from braid.bind.settings import Settings, changed, shown
from braid.errors import SqlError, UnknownColumn
from braid.expr import user
from braid.expr.listing import check_names
from braid.guess import meant
from braid.plan.logical import Query
from braid.plan.names import alike
from braid.plan.rewrite import rewrite
from braid.sql import ast
from braid.sql.dialects.base import Words
from braid.sql.secrets import hidden

Rows = Iterable[tuple[Any, ...]]
Table = tuple[tuple[str, ...], Callable[[Env], Rows]]  # a header, and the rows below it


def instead(what: str) -> str:
    """What to write in place of a statement that is not supported."""
    match what.split():
        case ["CREATE", "SINK", "CONNECTOR"]:
            return "write files with: braid run FILE --sink NAME=FOLDER; or let Kafka Connect read the result's topic"
        case [*_, "CONNECTOR" | "CONNECTORS" | "PLUGINS"]:
            return "read files with: braid run FILE --source NAME=PATH; or let Kafka Connect write a topic (--kafka)"
        case ["ALTER", "SYSTEM"]:
            return "it is Confluent Cloud's: write SET 'name' = 'value'"
        case ["ALTER", *_]:
            return "declare it again: CREATE OR REPLACE STREAM s (…)"
        case ["SPOOL"]:
            return "what a script prints goes to a file by: braid sql < SCRIPT > FILE"
        case ["SHOW", *_]:
            return "SHOW STREAMS, TABLES, QUERIES, TOPICS or PROPERTIES"
        case _:
            return "DESCRIBE name, SHOW QUERIES and EXPLAIN name show what there is"


def no_query(written: ast.Name, env: Env) -> SqlError:
    """EXPLAIN of a name by which no query goes."""
    name, span, queries = str(written), written.span, env.catalog.queries
    if name in env.catalog.sources:
        return SqlError(f"no query writes {name}", span, f"DESCRIBE {name} shows its columns")
    hint = meant(name, queries, f"queries: {', '.join(queries) or 'none'}; or EXPLAIN SELECT …")
    return SqlError(f"unknown query {name}", span, hint)


def described(d: Declared) -> Rows:
    """A row for each column."""
    return [(c.name, str(c.type), _role(d, c)) for c in d.visible]


def _role(d: Declared, c: DeclaredColumn) -> str:
    match c.place:
        case "key":
            return "KEY" if d.kind == "stream" else "PRIMARY KEY"
        case "header" | "headers":
            return "HEADERS" if c.header is None else f"HEADER('{c.header}')"
        case _:
            return "VALUE, KEY" if d.message_key == c.name else "VALUE"


def sinks_first(readers: Sequence[str], env: Env, verb: str = "DROP") -> str:
    """The hint where queries read what is to go: `verb` and what they write."""
    return f"{verb} {', '.join(dict.fromkeys(env.catalog.queries[q].sink for q in readers))} first"


def _of_kind(kind: str) -> Table:
    def rows(env: Env) -> Rows:
        found = [d for d in env.catalog.sources.values() if d.kind == kind]
        return sorted((d.name, d.topic, d.encoding.key, d.encoding.value) for d in found)

    return ("name", "topic", "key format", "value format"), rows


SHOWS: Mapping[str, Table] = {
    "STREAMS": _of_kind("stream"),
    "TABLES": _of_kind("table"),
    "QUERIES": (
        ("name", "writes", "topic", "reads", "sql"),
        lambda env: [(q.name, q.sink, q.topic, ", ".join(q.reads), q.sql) for q in env.catalog.queries.values()],
    ),
    "TOPICS": (("topic", "partitions"), lambda env: env.catalog.topics()),
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect: its words, and what it says in its own way.

    `own`: binds the statements that only it has; None: it is one of those here.
    `find`: what a name means, refused where it means nothing; `full`: the name in full. `describe`: DESCRIBE's rows,
    under `columns`; `shows`: what SHOW lists besides, or otherwise; `takes`: the last column of SHOW PROPERTIES.
    `kinds`: does DROP say what it drops; `read_by`, `drop_first`: who reads it, and the hint then. `no_query`: EXPLAIN
    of a name without query; `queries`: what it takes. `finish`: what a query becomes. `ticks`: times are numbers of
    milliseconds where records are written and read one by one (docs/files-and-topics.md, "Values")."""

    words: Words
    own: Callable[[ast.Statement, Env], Bound | None]
    find: Callable[[ast.Name, Env], Declared]
    full: Callable[[ast.Name, Env], str] = lambda name, _: str(name)
    columns: tuple[str, ...] = ("column", "type", "role")
    describe: Callable[[Declared], Rows] = described
    shows: Mapping[str, Table] = field(default_factory=dict)
    takes: str = "possible"
    kinds: bool = True
    read_by: str = "query "
    drop_first: Callable[[Sequence[str], Env], str] = sinks_first
    no_query: Callable[[ast.Name, Env], SqlError] = no_query
    queries: str = "EXPLAIN SELECT …, CREATE … AS SELECT …, or a query's name"
    instead: Callable[[str], str] = instead
    finish: Callable[[Query], Query] = rewrite
    ticks: bool = False

    @property
    def name(self) -> str:
        return self.words.name


def bind(statement: ast.Statement, catalog: Catalog, settings: Settings, text: str, dialect: Dialect) -> Bound:
    """What `statement` means. `text` is the script it was read from: errors and plans quote it."""
    if catalog.functions.named:
        check_names(catalog.functions, dialect.name)
    try:
        with user.known(catalog.functions):
            return bind_statement(statement, Env(catalog, settings, text), dialect)
    except SqlError as error:
        made = hidden(located(error, statement.span).with_text(text), dialect.words)
        raise (made.in_quotes(text) if isinstance(made, UnknownColumn) else made) from error.__cause__


def bind_statement(s: ast.Statement, env: Env, d: Dialect) -> Bound:
    """What a statement means in a dialect."""
    bound = d.own(s, env)
    if bound is None:
        return _command(s, env, d)
    if not isinstance(bound, QueryBound):
        return bound
    return replace(bound, query=replace(checked(d.finish(bound.query)), why=env.settings.why == "on"))


def checked(query: Query) -> Query:
    """A plan in which every column has a name of its own: where one had that of another, rows would be wrong."""
    twice = alike(query.root)
    if twice:
        hint = "a fault of Braid: please report it, with the statement; other aliases will do"
        raise SqlError(f"two columns of the plan are called {', '.join(twice)}", hint=hint)
    return query


def _command(s: ast.Statement, env: Env, d: Dialect) -> Bound:
    match s:
        case ast.Show():
            return _show(s, env, d)
        case ast.Describe():
            found = d.find(s.name, env)
            return Described(found, s.extended, d.columns, tuple(d.describe(found)))
        case ast.Explain():
            return _explain(s, env, d)
        case ast.Drop():
            return _drop(s, env, d)
        case ast.Set(name=name, value=value):
            return _set(name, value, env, d)
        case ast.Unset(name=name):
            return _set(name, None, env, d)
        case ast.Unsupported(what=what, never=never):
            raise SqlError(f"{what} is not supported{'' if never else ' yet'}", s.span, d.instead(what))
    raise AssertionError(f"{type(s).__name__} is a statement of another dialect")


def _set(name: str, value: str | None, env: Env, d: Dialect) -> SettingChanged:
    settings, notice = changed(env.settings, d.name, name, value)
    return SettingChanged(name, value, settings, () if notice is None else (notice,))


def _show(s: ast.Show, env: Env, d: Dialect) -> Shown:
    if s.what == "PROPERTIES":
        return Shown(s.what, ("name", "value", d.takes), tuple(shown(env.settings, d.name)))
    found = d.shows.get(s.what) or SHOWS.get(s.what)
    if found is None:
        raise SqlError(f"SHOW {s.what} is not supported yet", s.span, instead("SHOW"))
    header, rows = found
    return Shown(s.what, header, tuple(rows(env)))


def _explain(s: ast.Explain, env: Env, d: Dialect) -> Explained | Shown:
    target = s.target
    if isinstance(target, ast.Name):
        name, queries = str(target), env.catalog.queries
        found = [name] if name in queries else [q.name for q in queries.values() if q.sink == name]
        if not found:
            raise d.no_query(target, env)
        return Explained(found[0], None)
    match bind_statement(target, env, d):
        case QueryBound(query=query):
            return Explained(query.name, query)
        case BatchAsked(query=batch):
            read = ", ".join(dict.fromkeys(r.declared.name for r in batch.reads)) or "nothing"
            return Shown("PLAN", ("plan",), ((f"answered by DuckDB from a snapshot of {read}",),))
        case Pull(declared=read, keys=keys):
            how = "all of it is read" if keys is None else f"{len(keys)} of its keys are looked up"
            return Shown("PLAN", ("plan",), ((f"answered from {read.kind} {read.name}: {how}",),))
        case TablesAsked(reads=tables):
            named = ", ".join(d.name for d in tables)
            return Shown("PLAN", ("plan",), ((f"answered at once from all rows of {named}",),))
    raise SqlError("EXPLAIN takes a query", target.span, d.queries)


def _drop(s: ast.Drop, env: Env, d: Dialect) -> Dropped | Nothing:
    (written,) = s.names
    name, kind = d.full(written, env), s.kind.lower()
    if s.if_exists and env.catalog.get(name) is None:
        notice = f"{kind} {name}" if d.kinds else name
        return Nothing((f"{notice} does not exist: nothing to do",))
    found = d.find(written, env)
    is_a = "view" if found.view else found.kind
    if d.kinds and is_a != kind:
        raise SqlError(f"{found.name} is a {is_a}", written.span, f"write DROP {is_a.upper()} {found.name}")
    readers = [q for q in env.catalog.readers(found.name) if q != found.name]  # a view is a query of its name
    if readers:
        message = f"{found.name} is read by {d.read_by}{', '.join(readers)}"
        raise SqlError(message, written.span, d.drop_first(readers, env))
    if s.delete_topic and found.read_only:
        hint = f"leave DELETE TOPIC out; braid rm {found.topic} deletes the topic"
        raise SqlError(f"{found.name} is a SOURCE {kind}: its topic is not its own", written.span, hint)
    made = Dropped((found.name,), env.catalog.writers(found.name))
    return replace(made, topics=(found.topic,), subjects=schemas.subjects_of(found)) if s.delete_topic else made
