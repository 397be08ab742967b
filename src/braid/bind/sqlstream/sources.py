"""Streams, tables and views: their names, CREATE STREAM | TABLE, and INSERT INTO … VALUES.

In: the statement, the catalog, the current schema. Out: names in full and what is declared under them;
`SourceDeclared`, `Inserted`.
Rule: the full name is `SCHEMA.NAME`, or `NAME` outside any schema; a name without schema means the current schema's,
then the one outside any schema, then the only one of that name. A stream has no key: its records are values with a
rowtime. INSERT gives a row its time in the column ROWTIME.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from braid.bind.bound import Declared, DeclaredColumn, Inserted, InsertedRow, SourceDeclared
from braid.bind.env import Env
from braid.bind.insert import inserted_values, named_columns, no_column
from braid.bind.properties import options_of
from braid.bind.sources import KIND, check_topic_name, misread, refuse
from braid.bind.sqlstream import foreign
from braid.bind.sqlstream.scope import rules
from braid.errors import Span, SqlError
from braid.guess import meant
from braid.plan.logical import PSEUDO, Timestamp
from braid.records.encoding import Encoding
from braid.sql import ast
from braid.types import Scalar

ROWTIME = DeclaredColumn("ROWTIME", Scalar.TIMESTAMP, "rowtime", not_null=True)
OPTIONS = ("TOPIC", "PARTITIONS", "ROWTIME")
JSON = Encoding("JSON", "JSON")


def bind_relation(s: ast.CreateRelation, env: Env) -> SourceDeclared:
    kind = KIND[s.kind]
    name = full_name(s.name, env)
    replaced = check_free(name, kind, s.or_replace, s.name.span, env)
    columns: list[DeclaredColumn] = []
    for c in s.columns:
        check_column(c.name, [x.name for x in columns], c.span)
        columns.append(DeclaredColumn(c.name, c.type, "value", not_null=c.name in s.not_null))
    options = (
        options_of(s.options, OPTIONS, lambda _: f"options are {', '.join(OPTIONS)}")
        if s.server is None
        else foreign.options(s)
    )
    topic = str(options["TOPIC"].value.value) if "TOPIC" in options else _topic_of(name, s, env)
    check_topic_name(topic, options["TOPIC"].span if "TOPIC" in options else s.name.span, ": OPTIONS (TOPIC 'name')")
    made = Declared(
        name, kind, topic, tuple(columns), JSON, _rowtime(options.get("ROWTIME"), columns),
        partitions=_partitions(options.get("PARTITIONS")), sql=env.text[s.span.start : s.span.end],
    )  # fmt: skip
    notices: tuple[str, ...] = ()
    if s.server is not None:
        made, notices = foreign.of_outside(made, options, s.options)
    refuse(misread(made, env.catalog, {c.name: c.span for c in s.columns}, s.name.span))
    return SourceDeclared(made, replaced, notices=notices)


def _topic_of(name: str, s: ast.CreateRelation, env: Env) -> str:
    """The topic of a name: characters that no topic may have are `_` in it, where no other topic is called so."""
    topic = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    other = None if topic == name else next((d for d in env.catalog.sources.values() if d.topic == topic), None)
    if other is not None and other.name != name:
        hint = f"name the topic of one of them: OPTIONS (TOPIC '{topic}2')"
        raise SqlError(f"the topic of {name} would be {topic}, which is that of {other.name}", s.name.span, hint)
    return topic


def check_free(name: str, kind: str, or_replace: bool, span: Span, env: Env) -> bool:
    """Refuses a name that is taken; True if what has it is to be replaced."""
    found = env.catalog.get(name)
    if found is None:
        return False
    if not or_replace:
        hint = f"write CREATE OR REPLACE {kind.upper()}, or DROP it first"
        raise SqlError(f"{found.kind} {name} exists already", span, hint)
    is_a = "view" if found.view else found.kind
    if is_a != kind:
        hint = f"DROP {is_a.upper()} {name} first"
        raise SqlError(f"{name} is a {is_a}; it cannot be replaced by a {kind}", span, hint)
    busy = [q for q in (*env.catalog.readers(name), *env.catalog.writers(name)) if q != found.created_by]
    if busy:
        used = ", ".join(dict.fromkeys(busy))
        raise SqlError(f"{name} cannot be replaced while {used} uses it", span, drop_first(busy, env))
    return True


def check_column(name: str, before: list[str], span: Span) -> None:
    if name in PSEUDO:
        hint = "every row has it; choose another name" if name == "ROWTIME" else "choose another name"
        raise SqlError(f"{name} is a reserved column name", span, hint)
    if name in before:
        raise SqlError(f"column {name} is declared twice", span, "rename one of them")


def _partitions(o: ast.Property | None) -> int | None:
    if o is None:
        return None
    value = str(o.value.value)
    if not value.isdigit() or not 0 < int(value) <= 10_000:
        raise SqlError(f"PARTITIONS cannot be '{value}'", o.span, "write a number from 1 to 10000")
    return int(value)


def _rowtime(o: ast.Property | None, columns: list[DeclaredColumn]) -> Timestamp | None:
    """The column that gives a row its rowtime."""
    if o is None:
        return None
    value = str(o.value.value)
    found = next((c for c in columns if c.name in (value, value.upper())), None)
    if found is None:
        raise SqlError(f"no column {value}", o.span, f"columns are {', '.join(c.name for c in columns)}")
    if found.type not in (Scalar.TIMESTAMP, Scalar.BIGINT):
        hint = f"declare {found.name} TIMESTAMP, or BIGINT for milliseconds since 1970"
        raise SqlError(f"column {found.name} is {found.type}, no rowtime", o.span, hint)
    return Timestamp(found.name)


# ------------------------------------------------------------------- INSERT rows


def bind_rows(s: ast.InsertValues, env: Env) -> Inserted:
    target = declared(s.target, env)
    if target.view:
        raise SqlError(f"{target.name} is a view", s.target.span, "insert into the stream that it reads")
    columns = insert_columns(target, s.columns)
    return Inserted(target.topic, target, tuple(_row(row, columns, target, s.span) for row in s.rows))


def insert_columns(target: Declared, written: tuple[ast.Name, ...]) -> list[DeclaredColumn]:
    """The columns that an INSERT fills, in order; without a list all but ROWTIME."""
    if not written:
        return list(target.visible)
    known = {c.name: c for c in (*target.visible, *((ROWTIME,) if target.kind == "stream" else ()))}
    found = named_columns(target, written, known)
    missing = [c.name for c in target.visible if c.not_null and c not in found]
    if missing:
        hint = f"{missing[0]} is declared NOT NULL: add it to the list"
        raise SqlError(f"no value for {target.name}.{missing[0]}", written[-1].span, hint)
    return found


def _row(row: tuple[ast.Expr, ...], columns: list[DeclaredColumn], target: Declared, span: Span) -> InsertedRow:
    values: dict[str, Any] = {}
    for e, c, value in inserted_values(row, columns, span, rules("VALUES", no_column)):
        if value is None and not (isinstance(e, ast.Literal) and e.value is None):
            raise SqlError(f"this is not a value of type {c.type}", e.span, f"{c.name} takes {c.type}")
        if value is None and c.not_null:
            raise SqlError(f"{c.name} cannot be NULL", e.span, f"give {c.name} a value")
        values[c.name] = value
    time = values.pop("ROWTIME", None)
    body = {c.name: values.get(c.name) for c in target.visible}
    return InsertedRow(None, body, None if time is None else _milliseconds(time))


def _milliseconds(time: datetime) -> int:
    """Rowtimes are milliseconds: what is finer falls away."""
    return int((time - datetime(1970, 1, 1)).total_seconds() * 1_000_000) // 1000


# ------------------------------------------------------------------------ names


def full_name(name: ast.Name, env: Env) -> str:
    """The full name of something new."""
    for part in name.parts:
        if "." in part:
            raise SqlError(f"the name {part} holds a '.'", name.span, "a '.' separates schema and name")
    schema = env.settings.sqlstream.schema if len(name.parts) == 1 else None
    return str(name) if schema is None else f"{schema}.{name}"


def declared(name: ast.Name, env: Env) -> Declared:
    """What a name in a statement means."""
    found = _found(name, env)
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        ways = " or ".join(d.name for d in found)
        raise SqlError(f"{name} is in several schemas", name.span, f"write {ways}, or SET SCHEMA first")
    known = {d.name.rpartition(".")[2]: d.name for d in env.catalog.sources.values()}
    exact = known.get(name.parts[-1])
    listed = f"CREATE STREAM {name} (…) first; declared: {', '.join(env.catalog.sources) or 'nothing yet'}"
    hint = meant(name.parts[-1], known, listed, ways=lambda n: known[n]) if exact is None else f"there is {exact}"
    raise env.catalog.unknown(str(name), name.span, hint)


def drop_first(users: Iterable[str], env: Env) -> str:
    """The hint where views, pumps and INSERTs use what is to go."""
    found = []
    for user in dict.fromkeys(users):
        query = env.catalog.queries.get(user)
        if user in env.catalog.sources:
            found.append(f"DROP VIEW {user}")
        elif query is not None and user.startswith(f"{query.sink}."):
            found.append(f"DROP STREAM {query.sink}")
        else:
            found.append(f"DROP PUMP {user}")
    return f"{'; '.join(dict.fromkeys(found))} first"


def _found(name: ast.Name, env: Env) -> list[Declared]:
    sources = env.catalog.sources
    written = str(name)
    if len(name.parts) > 1:
        return [sources[written]] if written in sources else []
    for full in (f"{env.settings.sqlstream.schema}.{written}", written):
        if full in sources:
            return [sources[full]]
    return [d for d in sources.values() if d.name.rpartition(".")[2] == written]
