"""DROP, SHOW, DESCRIBE, EXPLAIN.

In: the statement, the catalog. Out: what goes, or rows to show.
Rule: what others read is dropped only with CASCADE, or after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braid.batch_sql.duck_text import token
from braid.bind.bound import (
    BatchAsked,
    Bound,
    Declared,
    Described,
    Explained,
    Index,
    Nothing,
    QueryBound,
    Removed,
    Shown,
    View,
)
from braid.bind.catalog import Catalog
from braid.bind.risingwave.scope import Context
from braid.bind.settings import Settings
from braid.errors import SqlError
from braid.sql import ast
from braid.sql import ast_risingwave as rw

Bind = Callable[[ast.Statement, Catalog, Settings, str], Bound]


def drop(s: rw.DropRelation, context: Context) -> Bound:
    catalog = context.catalog
    going: dict[str, None] = {}
    notices: list[str] = []
    for n in s.names:
        name = n.parts[0]
        found = context.found(name)
        if found is None and s.if_exists:
            notices.append(f"{s.what} {name} does not exist: nothing to do")
            continue
        found = context.relation(name, n.span)
        if _what(found) != s.what:
            raise SqlError(f"{name} is a {_what(found)}", n.span, f"write DROP {_what(found).upper()} {name}")
        going[name] = None
        readers = _readers(name, catalog)
        if readers and not s.cascade and not set(readers) <= {x.parts[0] for x in s.names}:
            hint = f"DROP {', '.join(readers)} first, or write CASCADE"
            raise SqlError(f"{name} is read by {', '.join(readers)}", n.span, hint)
        going.update(dict.fromkeys(readers))
    going.update(dict.fromkeys(i.name for i in catalog.indexes.values() if i.table in going))
    if not going:
        return Nothing(tuple(notices))
    topics = tuple(catalog.sources[n].topic for n in going if n in catalog.sources)
    queries = tuple(q.name for q in catalog.queries.values() if q.sink in going)
    return Removed(tuple(going), queries, topics, tuple(notices))


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


def show(s: ast.Show, context: Context) -> Shown:
    catalog = context.catalog
    names: list[tuple[Any, ...]]
    match s.what:
        case "VIEWS":
            names = [(n,) for n in catalog.views]
        case "INDEXES":
            names = [(i.name, i.table, ", ".join(i.columns)) for i in catalog.indexes.values()]
            return Shown("INDEXES", ("name", "table", "columns"), tuple(sorted(names)))
        case what:
            kind = what.lower().removesuffix("s")
            of = [d for d in catalog.sources.values() if d.relation is not None and d.relation.what == kind]
            names = [(d.name,) for d in of]
    return Shown(s.what, ("name",), tuple(sorted(names)))


def describe(s: ast.Describe, context: Context) -> Shown | Described:
    found = context.relation(s.name, s.name_span)
    if not isinstance(found, Declared):
        raise SqlError(
            f"{s.name} is a {_what(found)}", s.name_span, "DESCRIBE a table, a source or a materialized view"
        )
    relation = found.relation
    assert relation is not None
    types = dict(relation.types)
    rows: list[tuple[Any, ...]] = [
        (c.name, types[c.name], _role(c.name, found), "hidden" if c.hidden else "") for c in found.columns
    ]
    return Described(found, False, ("column", "type", "role", "hidden"), tuple(rows))


def _role(name: str, d: Declared) -> str:
    relation = d.relation
    assert relation is not None
    if relation.watermark is not None and relation.watermark.column == name:
        return "watermark"
    if name in relation.key:
        return "primary key" if relation.what == "table" else "stream key"
    return ""


def explain(s: ast.Explain, context: Context, bind: Bind) -> Bound:
    target = s.target
    if isinstance(target, str):
        if target in context.catalog.queries:
            return Explained(target, None)
        context.relation(target, s.target_span)
        raise SqlError(f"no query writes {target}", s.target_span, "EXPLAIN a materialized view, or EXPLAIN SELECT …")
    bound = bind(target, context.catalog, context.settings, context.text)
    match bound:
        case QueryBound(query=query):
            return Explained(query.name, query)
        case BatchAsked(query=batch):
            read = ", ".join(dict.fromkeys(r.declared.name for r in batch.reads)) or "nothing"
            text = f"answered by DuckDB from a snapshot of {read}"
            return Shown("PLAN", ("plan",), ((text,),))
        case _:
            raise SqlError("EXPLAIN takes a query", target.span, "EXPLAIN SELECT …, or CREATE MATERIALIZED VIEW …")
