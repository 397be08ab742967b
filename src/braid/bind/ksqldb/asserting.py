"""ASSERT: what is looked up in the catalog is decided here; what must be looked at in topics is said to whoever can.

In: the statement, the catalog. Out: nothing, where what is declared is as the statement says; what to look at; a
refusal that says what is otherwise.
Rule: a declaration is compared with what the statement writes, and with no more. A row is the one that INSERT would
write: what is not named is null, but for ROWTIME, which is compared only where it is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from braid.bind import properties
from braid.bind.bound import (
    Declared,
    DeclaredColumn,
    Nothing,
    RowAsserted,
    SchemaAsserted,
    SourceDeclared,
    TopicAsserted,
)
from braid.bind.env import Env
from braid.bind.insert import ROWTIME, inserted_values, named_columns, row_of
from braid.bind.ksqldb.query import declared_named
from braid.bind.sources import KEY_WORDS, KIND, bind_source
from braid.errors import SqlError
from braid.plan.logical import BOUNDS
from braid.sql import ast

OF_TOPICS = ("PARTITIONS", "REPLICAS")


def bind_topic(s: ast.AssertTopic, env: Env) -> TopicAsserted:
    p = properties.read(s.properties, properties.COMMON, s.span)
    for name in p.items:
        if name not in OF_TOPICS:
            hint = "a topic has PARTITIONS and REPLICAS"
            raise SqlError(f"{name} is no property of a topic", p.items[name].span, hint)
    partitions, _ = p.count("PARTITIONS"), p.count("REPLICAS")
    timeout = env.settings.assert_topic if s.timeout is None else s.timeout
    return TopicAsserted(s.topic, partitions if s.exists else None, s.exists, timeout, p.notices())


def bind_schema(s: ast.AssertSchema, env: Env) -> SchemaAsserted:
    timeout = env.settings.assert_schema if s.timeout is None else s.timeout
    return SchemaAsserted(s.subject, s.id, s.exists, timeout)


# -------------------------------------------------------------- what is declared

SAYS: Mapping[str, Callable[[Declared], Any]] = {
    "KAFKA_TOPIC": lambda d: d.topic,
    "FORMAT": lambda d: (d.encoding.key, d.encoding.value),
    "KEY_FORMAT": lambda d: d.encoding.key,
    "VALUE_FORMAT": lambda d: d.encoding.value,
    "KEY_DELIMITER": lambda d: d.encoding.key_delimiter,
    "VALUE_DELIMITER": lambda d: d.encoding.delimiter,
    "WRAP_SINGLE_VALUE": lambda d: d.encoding.wrapped,
    "PARTITIONS": lambda d: d.partitions,
    "TIMESTAMP": lambda d: d.timestamp and d.timestamp.field,
    "TIMESTAMP_FORMAT": lambda d: d.timestamp and d.timestamp.format,
    "WINDOW_TYPE": lambda d: d.windowed and d.windowed.kind,
    "WINDOW_SIZE": lambda d: d.windowed and d.windowed.size,
    "KEY": lambda d: d.message_key,
    "NULL_VALUE": lambda d: d.null_value,
}


def bind_source_asserted(s: ast.AssertSource, env: Env) -> Nothing:
    written = s.declared
    found = declared_named(ast.Name((written.name,), written.name_span), env)
    if found.kind != KIND[written.kind]:
        raise SqlError(f"{found.name} is a {found.kind}", written.name_span, f"write ASSERT {found.kind.upper()}")
    wanted = _declared(written, found, env)
    if written.columns and _columns(wanted) != _columns(found):
        message = f"{found.name} has the columns {_columns(found)}"
        raise SqlError(message, written.columns[0].span, f"asserted are {_columns(wanted)}")
    for p in written.properties:
        if p.name in SAYS and SAYS[p.name](wanted) != SAYS[p.name](found):
            raise SqlError(f"{p.name} of {found.name} is {SAYS[p.name](found)}", p.span)
    return Nothing(())


def _declared(written: ast.CreateSource, found: Declared, env: Env) -> Declared:
    """What the statement would declare; with the columns that there are where it names none."""
    columns = written.columns or tuple(_written(c, found, written) for c in found.visible)
    settings = replace(env.settings, value_format=env.settings.value_format or "JSON")  # an ASSERT need not name it
    made = bind_source(replace(written, columns=columns), env.catalog.without(found.name), settings, "")
    assert isinstance(made, SourceDeclared)
    return made.declared


def _written(c: DeclaredColumn, found: Declared, s: ast.CreateSource) -> ast.ColumnDef:
    role = KEY_WORDS[found.kind] if c.place == "key" else "HEADERS" if c.place in ("header", "headers") else "VALUE"
    return ast.ColumnDef(c.name, c.type, role, s.name_span, c.header)  # type: ignore[arg-type]


def _columns(d: Declared) -> str:
    keys = [f"{c.name} {c.type} {KEY_WORDS[d.kind]}" for c in d.visible if c.place == "key"]
    return ", ".join([*keys, *(f"{c.name} {c.type}" for c in d.visible if c.place != "key")])


# ------------------------------------------------------------------------- rows


def bind_row(s: ast.AssertRow, env: Env) -> RowAsserted:
    target = declared_named(s.row.target, env)
    windows = [DeclaredColumn(n, t, place) for n, (place, t) in BOUNDS.items()] if target.windowed is not None else []
    if s.gone:
        known = [*target.key, *windows, ROWTIME]
    else:
        known = [*target.visible, *windows, ROWTIME]
    by_name = {c.name: c for c in known if not c.hidden}
    default = [c for p in (("key",) if s.gone else ("key", "value")) for c in known if c.place == p]
    columns = named_columns(target, s.row.columns, by_name, near=True) if s.row.columns else default
    (values,) = s.row.rows
    given = {c.name: v for _, c, v in inserted_values(values, columns, s.span)}
    bounds = tuple(given.get(n) for n in BOUNDS)
    window = None if None in bounds or not windows else (int(bounds[0] or 0), int(bounds[1] or 0))
    return RowAsserted(target, row_of(given, target), window, s.gone)
