"""Statements of RisingWave's SQL: what each means, what DROP takes along, what SHOW and DESCRIBE list.

In: a statement, the catalog, the settings. Out: a `Bound`.
Rule: the dialect ends in this package. What streams becomes a logical plan; what a snapshot answers becomes text for
DuckDB. What others read is dropped only with CASCADE, or after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from braid.batch_sql.duck_text import token
from braid.bind.bound import (
    BatchAsked,
    Bound,
    Declared,
    Dropped,
    Flushed,
    Index,
    Nothing,
    SchemaMade,
    View,
    connection_key,
    schema_key,
)
from braid.bind.catalog import Catalog
from braid.bind.commands import Dialect, Table
from braid.bind.env import Env
from braid.bind.in_schemas import PUBLIC, looked_in
from braid.bind.risingwave import batch, connections, sql_functions, tables
from braid.bind.risingwave.scope import Context
from braid.errors import SqlError
from braid.guess import meant
from braid.plan.tops import with_tops
from braid.sql import ast
from braid.sql.dialects.risingwave import RISINGWAVE

Rows = list[tuple[Any, ...]]


def _context(env: Env) -> Context:
    return Context(env.catalog, env.settings, env.text)


def _own(s: ast.Statement, env: Env) -> Bound | None:
    inlining = sql_functions.Inlining(env.catalog.written_functions)
    return sql_functions.noted(_bound(inlining.of(s), _context(env)), frozenset(inlining.used))


def _bound(s: ast.Statement, context: Context) -> Bound | None:
    if isinstance(s, ast.CreateTable | ast.CreateIndex | ast.CreateView):
        schema = () if s.schema is None else (s.schema,)
        s = replace(s, name=context.new_name(ast.Name((*schema, s.name), s.name_span)))
    match s:
        case ast.CreateSchema():
            return _create_schema(s, context)
        case ast.CreateFunction():
            return sql_functions.create(s, context)
        case ast.Drop(kind="FUNCTION"):
            return sql_functions.drop(s, context)
        case ast.Drop(kind="SCHEMA"):
            return _drop_schema(s, context)
        case ast.CreateTable():
            return tables.create_table(s, context)
        case ast.CreateIndex():
            return tables.create_index(s, context)
        case ast.CreateView():
            return tables.create_view(s, context)
        case ast.Insert():
            return batch.insert(s, context)
        case ast.Update():
            return batch.update(s, context)
        case ast.Delete():
            return batch.delete(s, context)
        case ast.Batch():
            return BatchAsked(batch.batch_query(s.rows, context))
        case ast.Flush():
            return Flushed()
        case ast.CreateConnection():
            return connections.create(s, context)
        case ast.Drop(kind="CONNECTION"):
            return connections.drop(s, context)
        case ast.Drop():
            return _drop(s, context)
        case ast.Alter():
            return Nothing((f"{s.what} changes nothing here",))
    return None


def _create_schema(s: ast.CreateSchema, context: Context) -> Bound:
    if s.name in (PUBLIC, *context.catalog.schemas):
        if s.if_not_exists:
            return Nothing((f"schema {s.name} exists already: nothing to do",))
        raise SqlError(f"schema {s.name} exists already", s.span, "write IF NOT EXISTS")
    if "." in s.name:
        raise SqlError(f"the name {s.name} holds a '.'", s.span, "a '.' separates schema and name")
    return SchemaMade(s.name)


def _drop(s: ast.Drop, context: Context) -> Bound:
    catalog = context.catalog
    going: dict[str, None] = {}
    notices: list[str] = []
    for n in s.names:
        what = s.kind.lower()
        no_schema = len(n.parts) == 2 and not looked_in(n.parts[:1], catalog.schemas)
        found = None if s.if_exists and no_schema else context.meant(n)
        if found is None and s.if_exists:
            notices.append(f"{what} {n} does not exist: nothing to do")
            continue
        found = context.relation(n)
        name = found.name
        if _what(found) != what:
            raise SqlError(f"{name} is a {_what(found)}", n.span, f"write DROP {_what(found).upper()} {name}")
        going[name] = None
        readers = _readers(name, catalog)
        if readers and not s.cascade and not set(readers) <= {x.name for x in map(context.meant, s.names) if x}:
            hint = f"DROP {', '.join(readers)} first, or write CASCADE"
            raise SqlError(f"{name} is read by {', '.join(readers)}", n.span, hint)
        going.update(dict.fromkeys(readers))
    return _dropped(going, catalog, notices)


def _drop_schema(s: ast.Drop, context: Context) -> Bound:
    """What is in it goes with CASCADE only, and what reads that."""
    catalog, notices = context.catalog, list[str]()
    going: dict[str, None] = {}
    for n in s.names:
        schema = n.parts[-1]
        if schema == PUBLIC:
            raise SqlError(f"{PUBLIC} stays", n.span, "DROP what is in it")
        if schema not in catalog.schemas:
            if not s.if_exists:
                raise SqlError(f"there is no schema {n}", n.span, meant(schema, catalog.schemas, "SHOW SCHEMAS"))
            notices.append(f"schema {n} does not exist: nothing to do")
            continue
        known = (*catalog.sources, *catalog.views, *catalog.indexes)
        inside = [x for x in known if x.startswith(f"{schema}.")]
        linked = [x for x in catalog.connections if x.startswith(f"{schema}.")]
        if (inside or linked) and not s.cascade:
            hint = "DROP these first, or write CASCADE"
            raise SqlError(f"schema {schema} holds {', '.join((*inside, *linked))}", n.span, hint)
        going.update(dict.fromkeys((*inside, *(r for x in inside for r in _readers(x, catalog)))))
        users = [u for x in linked for u in connections.users(x, context) if u not in going]
        if users:
            raise SqlError(f"connections of {schema} are used by {', '.join(users)}", n.span, "DROP these first")
        going.update(dict.fromkeys((*map(connection_key, linked), schema_key(schema))))
    return _dropped(going, catalog, notices)


def _dropped(names: Iterable[str], catalog: Catalog, notices: Sequence[str]) -> Bound:
    """All that goes: indexes go with their tables."""
    going = dict.fromkeys(names)
    going.update(dict.fromkeys(i.name for i in catalog.indexes.values() if i.table in going))
    if not going:
        return Nothing(tuple(notices))
    topics = tuple(catalog.sources[n].topic for n in going if n in catalog.sources)
    queries = tuple(q.name for q in catalog.queries.values() if q.sink in going)
    return Dropped(tuple(going), queries, topics, tuple(notices))


def _what(found: Declared | View | Index) -> str:
    match found:
        case View():
            return "view"
        case Index():
            return "index"
        case Declared(relation=relation):
            return relation.what if relation is not None else "table"


def _readers(name: str, catalog: Catalog) -> list[str]:
    """Everything that reads `name`, directly or not; its indexes go with it, unasked."""
    found: list[str] = []
    todo = [name]
    while todo:
        at = todo.pop()
        direct = [q.sink for q in catalog.queries.values() if at in q.reads]
        direct += [v.name for v in catalog.views.values() if any(r.declared.name == at for r in v.query.reads)]
        direct += [v.name for v in catalog.views.values() if any(n == token("v", at) for n, _ in v.query.views)]
        new = [d for d in dict.fromkeys(direct) if d not in found]
        found += new
        todo += new
    return found


def _listed(kind: str) -> Table:
    def rows(env: Env) -> Rows:
        found = env.catalog.sources.values()
        return sorted((d.name,) for d in found if d.relation is not None and d.relation.what == kind)

    return ("name",), rows


def _indexes(env: Env) -> Rows:
    return sorted((i.name, i.table, ", ".join(i.columns)) for i in env.catalog.indexes.values())


def _functions(env: Env) -> Rows:
    return sorted(
        (f.written.name.lower(), ", ".join(p.written for p in f.written.parameters), f.written.returns.written)
        for f in env.catalog.written_functions.values()
    )


def _found(name: ast.Name, env: Env) -> Declared:
    found = _context(env).relation(name)
    if not isinstance(found, Declared):
        raise SqlError(f"{name} is a {_what(found)}", name.span, "DESCRIBE a table, a source or a materialized view")
    return found


def _described(d: Declared) -> Rows:
    assert d.relation is not None
    types = dict(d.relation.types)
    shown = [(name, shown, _role(name, d), "") for name, _, shown in d.seen]
    return [*shown, *((c.name, types[c.name], _role(c.name, d), "hidden") for c in d.columns if c.hidden)]


def _role(name: str, d: Declared) -> str:
    relation = d.relation
    assert relation is not None
    if relation.watermark is not None and relation.watermark.column == name:
        return "watermark"
    if name in relation.key:
        return "primary key" if relation.what == "table" else "stream key"
    if name in {g.name for g in relation.generated}:
        return "generated"
    return ""


def _no_query(name: ast.Name, env: Env) -> SqlError:
    _context(env).relation(name)
    return SqlError(f"no query writes {name}", name.span, "EXPLAIN a materialized view, or EXPLAIN SELECT …")


DIALECT = Dialect(
    RISINGWAVE,
    _own,
    _found,
    columns=("column", "type", "role", "hidden"),
    describe=_described,
    shows={
        **{f"{kind.upper()}S": _listed(kind) for kind in ("table", "source", "materialized view", "sink")},
        "VIEWS": (("name",), lambda env: sorted((n,) for n in env.catalog.views)),
        "INDEXES": (("name", "table", "columns"), _indexes),
        "FUNCTIONS": (("name", "arguments", "returns"), _functions),
        "SCHEMAS": (("name",), lambda env: sorted((n,) for n in (PUBLIC, *env.catalog.schemas))),
        "CONNECTIONS": (
            ("name", "type", "properties"),
            lambda env: connections.listed(env.catalog.connections.values()),
        ),
    },
    no_query=_no_query,
    queries="EXPLAIN SELECT …, or CREATE MATERIALIZED VIEW …",
    instead=lambda _: "leave it out",
    finish=with_tops,
)
