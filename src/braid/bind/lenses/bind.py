"""Statements of Lenses SQL: what each means.

In: a statement, the catalog, the settings, the script. Out: a `Bound`.
Rule: INSERT INTO … SELECT makes a query, of a target that exists or (defaults.topic.autocreate) is made; a SELECT alone
is shown; WITH only gives a name.
"""

from __future__ import annotations

from typing import Any

from braid.bind import schemas
from braid.bind.bound import (
    Bound,
    Declared,
    DeclaredColumn,
    Named,
    QueryBound,
)
from braid.bind.commands import Dialect, sinks_first
from braid.bind.env import PUSH, Env, check_cycle
from braid.bind.insert import widens
from braid.bind.lenses.facets import check_written, encoding_of, type_name
from braid.bind.lenses.query import Faceted, bind_query
from braid.bind.lenses.topics import bind_create, bind_values, check_topic, described
from braid.bind.lenses.windows import check_same, key_format
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr
from braid.guess import meant
from braid.plan.logical import Output, Query, Sink
from braid.plan.pushdown import pushed
from braid.records.encoding import Encoding
from braid.sql import ast
from braid.sql.dialects.lenses import LENSES


def _own(s: ast.Statement, env: Env) -> Bound | None:
    sql = env.text[s.span.start : s.span.end]
    match s:
        case ast.CreateTopic():
            return bind_create(s, env.catalog, sql)
        case ast.WithQuery():
            return _named(s, env)
        case ast.InsertSelect():
            return _insert(s, env, sql)
        case ast.Ask():
            made = bind_query(s.query, env)
            return _query(env, PUSH, made, _sink(PUSH, made, None), sql, transient=True)
        case ast.InsertValues():
            return bind_values(s, _declared(s.target, env))
    return None


def _declared(written: ast.Name, env: Env) -> Declared:
    name = str(written)
    found = env.catalog.get(name)
    if found is None:
        known = env.catalog.sources
        hint = meant(name, known, f"topics are {', '.join(known) or 'not declared yet'}")
        raise SqlError(f"unknown topic {name}", written.span, hint)
    return found


# -------------------------------------------------------------------- queries


def _named(s: ast.WithQuery, env: Env) -> Named:
    if s.name in env.catalog.named or s.name in env.catalog.sources:
        raise SqlError(f"{s.name} is the name of something else already", s.name_span, "choose another name")
    made = bind_query(s.query, env)
    return Named(s.name, s.query, env.settings.lenses, env.text, made.notices)


def _insert(s: ast.InsertSelect, env: Env, sql: str) -> QueryBound:
    topic, span = str(s.target), s.target.span
    if topic in env.catalog.named:
        raise SqlError(f"{topic} is a WITH query, not a topic", span, "INSERT INTO a topic")
    if s.value_format is not None:
        check_written(s.value_format.format, s.value_format.span)
    made = bind_query(s.query, env, (s.key_format, s.value_format))
    target = env.catalog.get(topic)
    name = env.catalog.next_insert(topic)
    if target is not None:
        sink = _fitted(target, made, s)
        check_cycle(made.node, sink, env.catalog, span)
        schemas.check_sink(sink, env.catalog.registry, span)
        return _query(env, name, made, sink, sql)
    if env.settings.lenses.autocreate != "true":
        hint = f"SET defaults.topic.autocreate=true; or CREATE TABLE {topic} first"
        raise SqlError(f"topic {topic} does not exist", span, hint)
    check_topic(topic, env.catalog, span)
    partitions = env.settings.lenses.partitions_of(topic) or made.partitions
    declared = _declares(topic, made, partitions, name, sql)
    sink = _sink(topic, made, partitions)
    schemas.check_sink(sink, env.catalog.registry, span)
    return _query(env, name, made, sink, sql, declared)


def _query(
    env: Env, name: str, made: Faceted, sink: Sink, sql: str, declared: Declared | None = None, transient: bool = False
) -> QueryBound:
    notices = tuple(dict.fromkeys(made.notices))
    query = Query(name, LENSES.name, sql, made.node, sink, notices)
    if env.settings.lenses.pushdown == "on":
        query = pushed(query)
    return QueryBound(query, declared, transient)


def _outputs(made: Faceted) -> tuple[Output, ...]:
    return tuple(Output(i.name, i.expr) for i in made.items)


def _sink(topic: str, made: Faceted, partitions: int | None) -> Sink:
    key = made.key.expr
    keys = () if key is None else (Output("_key", key),)
    values = _outputs(made)
    names = tuple(o.name for o in (*keys, *values))
    return Sink(topic, topic, made.kind, keys, values, _encoding(topic, made), (), partitions, None, None, names,
                window=_bounds(made))  # fmt: skip


def _bounds(made: Faceted) -> tuple[Col, Col] | None:
    return None if made.windows is None else made.windows.bounds


def _encoding(topic: str, made: Faceted) -> Encoding:
    formats = made.key.format, made.value.format
    window = None if made.windows is None else made.windows.windowing.written
    return encoding_of(topic, formats, wrapped=made.value.whole is None, window=window)


def _declares(topic: str, made: Faceted, partitions: int | None, query: str, sql: str) -> Declared:
    """The topic that an INSERT makes, as later statements read it."""
    columns: list[DeclaredColumn] = []
    key = made.key.expr
    if key is not None:
        columns.append(DeclaredColumn("_key", key.type, "key", nullable=bool(made.key.nullable)))
    nullable = made.value.nullable
    columns += [DeclaredColumn(n, e.type, "value", nullable=n in nullable) for n, e in made.value.fields]
    if made.value.whole is not None:
        columns.append(DeclaredColumn("_value", made.value.whole.type, "value", nullable="" in nullable))
    windowed = None if made.windows is None else made.windows.windowing
    return Declared(topic, made.kind, topic, tuple(columns), _encoding(topic, made), partitions=partitions,
                    created_by=query, sql=sql, formats=(made.key.format, made.value.format),
                    windowed=windowed)  # fmt: skip


def _fitted(target: Declared, made: Faceted, s: ast.InsertSelect) -> Sink:
    """The result as an existing target has it: each of its fields by name, numbers widened."""
    assert target.formats is not None
    check_written(target.formats[1], s.target.span)
    for stored, format, what in (
        (s.key_format, target.formats[0], "key"),
        (s.value_format, target.formats[1], "value"),
    ):
        _check_stored(stored, format, what, target.name)
    check_same(target, made.windows, s.query.span)
    want_key = next((c for c in target.columns if c.place == "key"), None)
    want = {c.name: c for c in target.columns if c.place == "value"}
    key, values = made.key.expr, _outputs(made)
    fits = key is None or (want_key is not None and widens(key.type, want_key.type))
    fits = fits and all(o.name in want and widens(o.expr.type, want[o.name].type) for o in values)
    if not fits:
        hint = f"{target.name} has {_schema(target)}; the SELECT gives {_given(made)}: names and types must agree"
        raise SqlError(f"the SELECT does not fit {target.name}", s.query.span, hint)
    keys = () if key is None or want_key is None else (Output("_key", typing.cast(key, want_key.type)),)
    have = {o.name: o.expr for o in values}
    outputs = tuple(Output(n, _as(have.get(n), c)) for n, c in want.items())
    names = tuple(o.name for o in (*keys, *outputs))
    return Sink(target.name, target.topic, made.kind, keys, outputs, target.encoding, (), target.partitions, None, None,
                names, window=_bounds(made))  # fmt: skip


def _as(e: Expr | None, c: DeclaredColumn) -> Expr:
    return typing.literal(None, c.type) if e is None else typing.cast(e, c.type)


def _check_stored(stored: ast.StoreAs | None, format: str, what: str, topic: str) -> None:
    if stored is not None and stored.format != format:
        hint = f"write STORE {what.upper()} AS {format}, or leave it out"
        raise SqlError(f"the {what} of {topic} has format {format}", stored.span, hint)


def _schema(d: Declared) -> str:
    return ", ".join(f"{c.name} {type_name(c.type)}" for c in d.columns)


def _given(made: Faceted) -> str:
    key = () if made.key.expr is None else (Output("_key", made.key.expr),)
    return ", ".join(f"{o.name} {type_name(o.expr.type)}" for o in (*key, *_outputs(made)))


# ------------------------------------------------------------------- commands


def _topics(env: Env) -> list[tuple[Any, ...]]:
    return sorted((d.name, d.partitions, *_formats(d)) for d in env.catalog.sources.values())


def _formats(d: Declared) -> tuple[str, str]:
    key, value = d.formats or ("", "")
    return key_format(key, d.windowed), value


def _queries(env: Env) -> list[tuple[Any, ...]]:
    return [(q.name, q.topic, ", ".join(q.reads), q.sql) for q in env.catalog.queries.values()]


DIALECT = Dialect(
    LENSES,
    _own,
    _declared,
    columns=("field", "type", "facet"),
    describe=described,
    shows={
        "TABLES": (("topic", "partitions", "key format", "value format"), _topics),
        "QUERIES": (("name", "writes", "reads", "sql"), _queries),
    },
    takes="takes",
    kinds=False,
    drop_first=lambda readers, env: sinks_first(readers, env, "DROP TABLE"),
    instead=lambda _: "leave it out",
    ticks=True,
)
