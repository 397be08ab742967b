"""SHOW, DESCRIBE, EXPLAIN, and what to write instead of a statement that is not run yet.

In: the statement, the catalog, the settings. Out: `Shown`, `Described`, `Explained`.
Rule: every dialect shows the same things; only its settings are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from braid.bind.bound import Bound, Declared, Described, Explained, QueryBound, Shown
from braid.bind.from_ import Env
from braid.bind.settings import ALLOWED, value_of
from braid.errors import SqlError
from braid.sql import ast

Rows = list[tuple[Any, ...]]


def bind_show(s: ast.Show, env: Env, properties: Rows | None = None) -> Shown:
    """`properties`: the settings of a dialect that has its own."""
    rows: Rows
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
            rows = rows if properties is None else properties
            return Shown("PROPERTIES", ("name", "value", "possible"), tuple(rows))
        case _:
            raise SqlError(f"SHOW {s.what} is not supported yet", s.span, instead("SHOW"))


def bind_describe(d: Declared, extended: bool) -> Described:
    header = ("column", "type", "role")
    return Described(d, extended, header, tuple((c.name, str(c.type), _role(d, c.name)) for c in d.visible))


def _role(d: Declared, name: str) -> str:
    column = next(c for c in d.visible if c.name == name)
    match column.place:
        case "key":
            return "KEY" if d.kind == "stream" else "PRIMARY KEY"
        case "header" | "headers":
            return "HEADERS" if column.header is None else f"HEADER('{column.header}')"
        case _:
            return "VALUE, KEY" if d.message_key == name else "VALUE"


def bind_explain(s: ast.Explain, env: Env, bind: Callable[[ast.Statement], Bound]) -> Explained:
    target = s.target
    if isinstance(target, str):
        queries = env.catalog.queries
        found = [target] if target in queries else [q.name for q in queries.values() if q.sink == target]
        if found:
            return Explained(found[0], None)
        near = get_close_matches(target, queries, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"queries: {', '.join(queries) or 'none'}; or EXPLAIN SELECT …"
        if target in env.catalog.sources:
            raise SqlError(f"no query writes {target}", s.target_span, f"DESCRIBE {target} shows its columns")
        raise SqlError(f"unknown query {target}", s.target_span, hint)
    bound = bind(target)
    if not isinstance(bound, QueryBound):
        hint = "EXPLAIN SELECT …, CREATE … AS SELECT …, or a query's name"
        raise SqlError("EXPLAIN takes a query", target.span, hint)
    return Explained(bound.query.name, bound.query)


def instead(what: str) -> str:
    """What to write in place of a statement that is not supported."""
    match what.split():
        case ["CREATE", "TYPE"] | ["DROP", "TYPE"]:
            return "write the type where it is used: CREATE STREAM s (k INT KEY, a STRUCT<x INT, y INT>) WITH (…)"
        case ["CREATE", *_, "CONNECTOR"] | ["DROP", "CONNECTOR"]:
            return "bring records in with: braid put TOPIC FILE, or braid run FILE --source NAME=PATH"
        case ["CREATE", "SOURCE", kind]:
            return f"CREATE {kind} declares what a query can read"
        case ["ALTER", *_]:
            return "declare it anew: CREATE OR REPLACE STREAM s (k INT KEY, …) WITH (…)"
        case ["PAUSE" | "RESUME"]:
            return "DROP STREAM name stops a query; the same CREATE … AS goes on from its checkpoint"
        case ["ASSERT", *_]:
            return "say what must come in a case page, and run it with: braid test PAGE"
        case ["RUN", *_]:
            return "braid run FILE, or .read FILE at the prompt"
        case ["PRINT"]:
            return "look into a topic with: braid cat TOPIC"
        case ["TERMINATE"]:
            return "stop a query by dropping what it writes: DROP STREAM name"
        case ["SHOW", *_]:
            return "SHOW STREAMS, TABLES, QUERIES, TOPICS or PROPERTIES"
        case _:
            return "DESCRIBE name, SHOW QUERIES and EXPLAIN name tell what there is"
