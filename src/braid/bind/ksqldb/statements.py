"""ksqlDB's statements around queries: types, functions.

In: a statement as written, the catalog. Out: a `Bound`; a refusal where the name means nothing, or something else.
Rule: types have names of their own; what was read with a type keeps it when the type goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from braid.bind.bound import (
    Altered,
    Declared,
    Described,
    Dropped,
    Nothing,
    Paused,
    Resumed,
    Shown,
    Terminated,
    TypeMade,
    type_name,
)
from braid.bind.commands import Rows, Table, described
from braid.bind.env import Env
from braid.bind.ksqldb.query import declared_named
from braid.bind.properties import check_holds
from braid.bind.schemas import check_names
from braid.bind.sources import KIND, declared_column, misread
from braid.errors import SqlError
from braid.expr.listing import listed
from braid.guess import meant
from braid.plan.logical import Kind
from braid.sql import ast

# ---------------------------------------------------------------------- types


def bind_create_type(s: ast.CreateType, env: Env) -> TypeMade | Nothing:
    known = env.catalog.types.get(s.name)
    if known is None:
        return TypeMade(s.name, s.type)
    if s.if_not_exists:
        return Nothing((f"type {s.name} exists: nothing to do",))
    hint = f"DROP TYPE {s.name} first, or write CREATE TYPE IF NOT EXISTS"
    raise SqlError(f"type {s.name} exists already: {known}", s.name_span, hint)


def bind_drop_type(s: ast.DropType, env: Env) -> Dropped | Nothing:
    name, known = str(s.name), env.catalog.types
    if name in known:
        return Dropped((type_name(name),))
    if s.if_exists:
        return Nothing((f"type {name} does not exist: nothing to do",))
    raise SqlError(f"unknown type {name}", s.name.span, meant(name, known, f"types: {', '.join(known) or 'none'}"))


# ----------------------------------------------------------------------- ALTER


def bind_alter(s: ast.AddColumns, env: Env) -> Altered:
    """What was declared, with columns behind its last."""
    found = declared_named(s.name, env)
    kind = KIND[s.kind]
    if found.kind != kind:
        hint = f"write ALTER {found.kind.upper()} {found.name}"
        raise SqlError(f"{found.name} is a {found.kind}", s.name.span, hint)
    if found.created_by is not None:
        hint = f"write the query with the new columns: CREATE OR REPLACE {s.kind} {found.name} AS SELECT …"
        raise SqlError(f"{found.name} is the result of a query", s.name.span, hint)
    if found.read_only:
        hint = f"DROP {s.kind} {found.name}, and declare it with the new columns"
        raise SqlError(f"{found.name} is a SOURCE {found.kind}", s.name.span, hint)
    added = tuple(declared_column(c, kind) for c in s.columns)
    names = [c.name for c in found.columns]
    for c, written in zip(added, s.columns, strict=True):
        if c.name in names:
            raise SqlError(f"{found.name} has a column {c.name} already", written.span, "take another name")
        names.append(c.name)
    made = replace(found, columns=(*found.columns, *added))
    values = [c for c in made.columns if c.place == "value"]
    check_holds(made.encoding, values, s.name.span)
    check_names(made.encoding, made.columns, s.name.span)
    return Altered(made, tuple(e.message for e in misread(made, env.catalog, {}, s.name.span)))


# -------------------------------------------------------------------- queries

OF_KSQLDB = re.compile(r"(?:CSAS|CTAS)_(.+)_[0-9]+")  # how ksqlDB calls the query that makes a stream or table


def bind_control(s: ast.Control, env: Env) -> Terminated | Paused | Resumed:
    queries = env.catalog.queries
    names = tuple(queries) if s.query is None else (_query(s.query, env),)
    match s.what:
        case "TERMINATE":
            return Terminated(names)
        case "PAUSE":
            return Paused(names)
        case _:
            return Resumed(tuple(n for n in names if n in env.catalog.paused))


def _query(written: ast.Name, env: Env) -> str:
    """The query that goes by a name, or that alone writes what bears it."""
    name, queries = str(written), env.catalog.queries
    of_ksqldb = OF_KSQLDB.fullmatch(name)
    for tried in (name, *([] if of_ksqldb is None else [of_ksqldb[1]])):
        found = [tried] if tried in queries else [q.name for q in queries.values() if q.sink == tried]
        if len(found) == 1:
            return found[0]
        if found:
            raise SqlError(f"{len(found)} queries write {tried}", written.span, f"name one: {', '.join(found)}")
    known = f"queries: {', '.join(queries) or 'none'}"
    if name in env.catalog.sources:
        raise SqlError(f"no query writes {name}", written.span, known)
    raise SqlError(f"unknown query {name}", written.span, meant(name, queries, known))


# ------------------------------------------------------------------ functions

FUNCTION = ("function", "kind", "takes")


def bind_describe_function(s: ast.DescribeFunction) -> Shown:
    known = {row[0]: row for row in listed()}
    if s.name not in known:
        raise SqlError(f"unknown function {s.name}", s.span, meant(s.name, known, "SHOW FUNCTIONS lists them", 3))
    return Shown("FUNCTION", FUNCTION, (known[s.name],))


# ----------------------------------------------------------------------- SHOW

KINDS: Mapping[str, Kind] = {"STREAMS": "stream", "TABLES": "table"}


def _columns_of_all(what: str) -> Table:
    """DESCRIBE STREAMS, DESCRIBE TABLES."""

    def rows(env: Env) -> Rows:
        return [(d.name, *row) for d in _of_kind(what, env) for row in described(d)]

    return ("name", "column", "type", "role"), rows


def _all_of_all(what: str) -> Table:
    """SHOW STREAMS EXTENDED, SHOW TABLES EXTENDED."""
    return ("name", "property", "value"), lambda env: [x for d in _of_kind(what, env) for x in extended(d, env)]


def _of_kind(what: str, env: Env) -> list[Declared]:
    return sorted((d for d in env.catalog.sources.values() if d.kind == KINDS[what]), key=lambda d: d.name)


def bind_extended(s: ast.Describe, env: Env) -> Described:
    found = declared_named(s.name, env)
    return Described(found, True, ("property", "value"), tuple((p, v) for _, p, v in extended(found, env)))


def extended(d: Declared, env: Env) -> list[tuple[str, str, str]]:
    """All that is known of a stream or table."""
    catalog = env.catalog
    known = dict(catalog.topics())
    rows = [("kind", f"SOURCE {d.kind}" if d.read_only else d.kind)]
    rows += [(f"column {c}", f"{t} {role}") for c, t, role in described(d)]
    rows += [("key format", d.encoding.key), ("value format", d.encoding.value), ("topic", d.topic)]
    rows += [("partitions", str(n)) for n in [known.get(d.topic)] if n is not None]
    rows += [("timestamp", d.timestamp.field)] if d.timestamp is not None else []
    if d.windowed is not None:
        rows += [("windows", d.windowed.kind + ("" if d.windowed.size is None else f", {d.windowed.size} ms"))]
    rows += [("written by", q) for q in catalog.writers(d.name)] + [("read by", q) for q in catalog.readers(d.name)]
    return [(d.name, *row) for row in [*rows, ("statement", d.sql)]]


def _queries(env: Env) -> Rows:
    made: list[tuple[str, str, str]] = []
    for q in env.catalog.queries.values():
        rows = [("state", "paused")] if q.name in env.catalog.paused else []
        rows += [("writes", q.sink), ("topic", q.topic), *(("reads", n) for n in q.reads), ("statement", q.sql)]
        made += [(q.name, *row) for row in rows]
    return made


def _topics(env: Env) -> Rows:
    catalog = env.catalog
    for topic, partitions in catalog.topics():
        writers = [q.name for q in catalog.queries.values() if q.topic == topic]
        readers = [q.name for q in catalog.queries.values() if topic in q.topics]
        yield topic, partitions, ", ".join(writers), ", ".join(readers)


SHOWS: dict[str, Table] = {
    "FUNCTIONS": (FUNCTION, lambda _: listed()),
    "TYPES": (("name", "type"), lambda env: [(n, str(t)) for n, t in sorted(env.catalog.types.items())]),
    **{f"{what} COLUMNS": _columns_of_all(what) for what in KINDS},
    **{f"{what} EXTENDED": _all_of_all(what) for what in KINDS},
    "QUERIES EXTENDED": (("name", "property", "value"), _queries),
    "TOPICS EXTENDED": (("topic", "partitions", "written by", "read by"), _topics),
}
