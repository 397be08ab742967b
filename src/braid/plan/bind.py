"""Binding: what a statement means.

In: a statement as written, the catalog, the settings. Out: a `Bound`; nothing is changed (`Catalog.apply` does that).
Rule: the dialect ends here. Whatever is refused says where it stands and what to write instead.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import Any, assert_never

from braid.errors import SqlError
from braid.plan.bind_expr import located
from braid.plan.bind_insert import bind_insert_values
from braid.plan.bind_joins import Env
from braid.plan.bind_query import bind_create_as, bind_insert_select, bind_select, declared_named
from braid.plan.bind_source import KIND, bind_source
from braid.plan.bound import (
    Bound,
    Declared,
    Described,
    Dropped,
    Explained,
    QueryBound,
    SettingChanged,
    Shown,
)
from braid.plan.catalog import Catalog
from braid.plan.rewrite import rewrite
from braid.plan.settings import ALLOWED, Settings, changed, unset, value_of
from braid.sql import ast


def bind(statement: ast.Statement, catalog: Catalog, settings: Settings, text: str, dialect: str = "ksqldb") -> Bound:
    """What `statement` means. `text` is the script it was read from: errors and plans quote it."""
    try:
        return _bind(statement, Env(catalog, settings, text), dialect)
    except SqlError as error:
        raise located(error, statement.span).with_text(text) from error.__cause__


def _bind(s: ast.Statement, env: Env, dialect: str) -> Bound:
    sql = env.text[s.span.start : s.span.end]
    match s:
        case ast.CreateSource():
            return bind_source(s, env.catalog, env.settings, sql)
        case ast.CreateAs():
            made = bind_create_as(s, env, dialect, sql)
            return _rewritten(made) if isinstance(made, QueryBound) else made
        case ast.InsertSelect():
            return _rewritten(bind_insert_select(s, env, dialect, sql))
        case ast.InsertValues():
            return bind_insert_values(s, declared_named(s.target, env, s.target_span))
        case ast.Select():
            return _rewritten(bind_select(s, env, dialect, sql))
        case ast.Show():
            return _show(s, env)
        case ast.Describe():
            return _describe(s, env)
        case ast.Explain():
            return _explain(s, env, dialect)
        case ast.Drop():
            return _drop(s, env)
        case ast.Set(name=name, value=value):
            settings, notice = changed(env.settings, name, value)
            return SettingChanged(name, value, settings, () if notice is None else (notice,))
        case ast.Unset(name=name):
            settings, notice = unset(env.settings, name)
            return SettingChanged(name, None, settings, () if notice is None else (notice,))
        case ast.Unsupported(what=what):
            raise SqlError(f"{what} is not supported yet", s.span, _instead(what))
    assert_never(s)


def _rewritten(bound: QueryBound) -> QueryBound:
    return replace(bound, query=rewrite(bound.query))


def _instead(what: str) -> str:
    match what.split(maxsplit=1)[0]:
        case "PRINT":
            return "look into a topic with: braid cat TOPIC"
        case "TERMINATE":
            return "stop a query by dropping what it writes: DROP STREAM name"
        case "SHOW":
            return "SHOW STREAMS, TABLES, QUERIES, TOPICS or PROPERTIES"
        case _:
            return "leave it out"


def _show(s: ast.Show, env: Env) -> Shown:
    rows: list[tuple[Any, ...]]
    match s.what:
        case "STREAMS" | "TABLES" as what:
            kind = "stream" if what == "STREAMS" else "table"
            header = ("name", "topic", "key format", "value format")
            rows = [
                (d.name, d.topic, d.encoding.key, d.encoding.value)
                for d in env.catalog.sources.values()
                if d.kind == kind
            ]
            return Shown("STREAMS" if what == "STREAMS" else "TABLES", header, tuple(sorted(rows)))
        case "QUERIES":
            rows = [(q.name, q.sink, q.topic, ", ".join(q.reads), q.sql) for q in env.catalog.queries.values()]
            return Shown("QUERIES", ("name", "writes", "topic", "reads", "sql"), tuple(rows))
        case "TOPICS":
            return Shown("TOPICS", ("topic", "partitions"), tuple(env.catalog.topics()))
        case "PROPERTIES":
            rows = [(name, value_of(env.settings, name), ", ".join(ALLOWED[name])) for name in ALLOWED]
            return Shown("PROPERTIES", ("name", "value", "possible"), tuple(rows))
        case _:
            raise SqlError(f"SHOW {s.what} is not supported yet", s.span, _instead("SHOW"))


def _describe(s: ast.Describe, env: Env) -> Described:
    d = declared_named(s.name, env, s.span)
    header = ("column", "type", "role")
    return Described(d, s.extended, header, tuple((c.name, str(c.type), _role(d, c.name)) for c in d.visible))


def _role(d: Declared, name: str) -> str:
    column = next(c for c in d.visible if c.name == name)
    match column.place:
        case "key":
            return "KEY" if d.kind == "stream" else "PRIMARY KEY"
        case "header" | "headers":
            return "HEADERS" if column.header is None else f"HEADER('{column.header}')"
        case _:
            return "VALUE, KEY" if d.message_key == name else "VALUE"


def _explain(s: ast.Explain, env: Env, dialect: str) -> Explained:
    target = s.target
    if isinstance(target, str):
        queries = env.catalog.queries
        found = [target] if target in queries else [q.name for q in queries.values() if q.sink == target]
        if found:
            return Explained(found[0], None)
        near = get_close_matches(target, queries, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"queries: {', '.join(queries) or 'none'}; or EXPLAIN SELECT …"
        if target in env.catalog.sources:
            raise SqlError(f"no query writes {target}", s.span, f"DESCRIBE {target} shows its columns")
        raise SqlError(f"unknown query {target}", s.span, hint)
    bound = _bind(target, env, dialect)
    if not isinstance(bound, QueryBound):
        hint = "EXPLAIN SELECT …, CREATE … AS SELECT …, or a query's name"
        raise SqlError("EXPLAIN takes a query", target.span, hint)
    return Explained(bound.query.name, bound.query)


def _drop(s: ast.Drop, env: Env) -> Dropped:
    kind = KIND[s.kind]
    d = env.catalog.get(s.name)
    if d is None:
        if s.if_exists:
            return Dropped(None, kind, None, False, (), (f"{kind} {s.name} does not exist: nothing to do",))
        d = declared_named(s.name, env, s.span)
    if d.kind != kind:
        raise SqlError(f"{s.name} is a {d.kind}", s.span, f"write DROP {d.kind.upper()} {s.name}")
    readers = env.catalog.readers(s.name)
    if readers:
        sinks = dict.fromkeys(env.catalog.queries[q].sink for q in readers)
        hint = f"DROP {', '.join(sinks)} first"
        raise SqlError(f"{s.name} is read by query {', '.join(readers)}", s.span, hint)
    return Dropped(d.name, kind, d.topic, s.delete_topic, env.catalog.writers(s.name))
