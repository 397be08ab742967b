"""CREATE STREAM | TABLE name (columns) WITH (…), over a topic whose schema is known or not.

In: the statement, the catalog. Out: `SourceDeclared`; what of a topic could never be read.
Rule: a stream's key is KEY, a table's PRIMARY KEY; `KEY='c'` of early releases makes a value column the key.
A column is readable if every JSON value of its known type is one of the declared type: some of the columns, wider
numbers, texts of anything, times as their numbers. Who declares another column of a topic that no query writes may
write it too; a query writes all there is. What nobody declared has no types. Misfits are malformed, and counted; where
all records would be, ksqldb says so, and sqlstream refuses the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from braid.bind import properties, schemas
from braid.bind.bound import Declared, DeclaredColumn, Nothing, SourceDeclared
from braid.bind.catalog import Catalog
from braid.bind.expressions import with_span
from braid.bind.insert import widens
from braid.bind.names import RESERVED, repeated
from braid.bind.properties import Properties
from braid.bind.settings import Settings
from braid.errors import Span, SqlError
from braid.plan.logical import Kind, Place
from braid.records.encoding import Encoding
from braid.records.formats.named import registered
from braid.sql import ast
from braid.types import Array, Decimal, Map, Scalar, Struct, Type, is_numeric

KIND: dict[ast.Kind, Kind] = {"STREAM": "stream", "TABLE": "table"}


def bind_source(s: ast.CreateSource, catalog: Catalog, settings: Settings, sql: str) -> SourceDeclared | Nothing:
    kind = KIND[s.kind]
    exists = existing(s, catalog)
    if isinstance(exists, Nothing):
        return exists
    p = properties.read(s.properties, properties.OF_SOURCES, s.name_span)
    topic = p.topic(s.name)
    columns = schemas.completed(p, tuple(declared_column(c, kind) for c in s.columns), topic, kind, catalog)
    if not columns:
        hint = f"write CREATE {s.kind} {s.name} (column TYPE, …) WITH (…), or a format with schemas, "
        hint += f"such as {registered()}"
        raise SqlError(f"{s.name} has no columns", s.name_span, hint)
    _check_twice(s.columns)
    if (c := repeated(columns, lambda c: c.name)) is not None:
        raise SqlError(f"{c.name} is in the key and in the value", s.name_span, "declare its columns yourself")
    message_key = _message_key(p, columns, kind, settings)
    keys = [c for c in columns if c.place == "key"]
    values = [c for c in columns if c.place == "value"]
    if kind == "table" and not keys and message_key is None:
        hint = f"mark it: {columns[0].name} {columns[0].type} PRIMARY KEY"
        raise SqlError(f"table {s.name} has no PRIMARY KEY", s.name_span, hint)
    encoding = properties.encoding(p, keys, values, None, settings)
    encoding = schemas.with_schemas(encoding, p, s.name, topic, catalog.registry)
    schemas.check_names(encoding, columns, s.name_span)
    if message_key is not None:
        encoding = _string_key(encoding, p)
    windowed = properties.windowing(p)
    if windowed is not None:
        if not keys:
            hint = "mark the column that was grouped: name TYPE KEY"
            raise SqlError(f"{s.name} has windows in its keys, but no key", p.span("WINDOW_TYPE"), hint)
        encoding = replace(encoding, window=windowed.written)
    declared = Declared(
        s.name, kind, topic, columns, encoding,
        properties.timestamp(p, [c for c in columns if c.place in ("key", "value")]),
        message_key, p.count("PARTITIONS"), None, sql, p.text("NULL_VALUE"), windowed=windowed,
        read_only=s.read_only,
    )  # fmt: skip
    _check_owned(exists, s)
    if exists is not None:
        _check_evolved(exists, declared, catalog, s.name_span)
    check_topic_name(declared.topic, p.span("KAFKA_TOPIC"))
    _check_value_format(s, p, settings)
    told = (e.message for e in misread(declared, catalog, {}, s.name_span))
    return SourceDeclared(declared, exists is not None, (*p.notices(), *told), p.count("RETENTION_MS"))


def _check_value_format(s: ast.CreateSource, p: properties.Properties, settings: Settings) -> None:
    """Who names the topic of others says how its values are written; ksqlDB has no default either."""
    said = properties.written_format(p, "value") or settings.value_format or settings.mode == "native"
    if "KAFKA_TOPIC" in p.items and not said:
        hint = "add value_format = 'JSON', or above it SET 'ksql.persistence.default.format.value' = 'JSON'"
        raise SqlError(f"{s.name} has no VALUE_FORMAT", s.name_span, hint)


def existing(s: ast.CreateSource | ast.CreateAs, catalog: Catalog) -> Declared | Nothing | None:
    """What already has the name: refused, unless the statement says what to do then."""
    found = catalog.get(s.name)
    if found is None:
        return None
    if s.if_not_exists:
        return Nothing((f"{found.kind} {s.name} exists: nothing to do",))
    if not s.or_replace:
        hint = f"write CREATE OR REPLACE {s.kind}, CREATE {s.kind} IF NOT EXISTS, or DROP it first"
        raise SqlError(f"{found.kind} {s.name} exists already", s.name_span, hint)
    if found.kind != KIND[s.kind]:
        hint = f"DROP {found.kind.upper()} {s.name} first"
        raise SqlError(f"{s.name} is a {found.kind}; it cannot be replaced by a {KIND[s.kind]}", s.name_span, hint)
    if isinstance(s, ast.CreateAs) and found.created_by not in catalog.queries:
        check_idle(found, catalog, s.name_span)
    if isinstance(s, ast.CreateSource) and found.created_by in catalog.queries:
        check_idle(found, catalog, s.name_span)
    return found


def _check_owned(found: Declared | None, s: ast.CreateSource) -> None:
    """A SOURCE is what another program writes: it is declared once."""
    if s.or_replace and (s.read_only or (found is not None and found.read_only)):
        hint = f"write CREATE SOURCE {s.kind}" if found is None else f"DROP {found.kind.upper()} {found.name} first"
        raise SqlError(f"a SOURCE {KIND[s.kind]} cannot be replaced: OR REPLACE is not for one", s.name_span, hint)


def check_idle(found: Declared, catalog: Catalog, span: Span, why: str = "") -> None:
    """Refuses that something takes the place of what queries use."""
    busy = (*catalog.readers(found.name), *catalog.writers(found.name))
    if busy:
        used = "query " + ", ".join(dict.fromkeys(busy))
        hint = f"DROP what the query writes first, or create a {found.kind} of another name"
        raise SqlError(f"{found.name} is used by {used}, and cannot be replaced{why}", span, hint)


def _check_evolved(old: Declared, new: Declared, catalog: Catalog, span: Span) -> None:
    """Value columns can come behind the last one; while queries use it nothing else changes."""
    keys, values = ([[c for c in d.columns if (c.place == "key") == k] for d in (old, new)] for k in (True, False))
    if values[0] != values[1][: len(values[0])] or keys[0] != keys[1]:
        message = f"{old.name} cannot be replaced: a column is removed, moved or of another type"
        raise SqlError(message, span, f"DROP {old.kind.upper()} {old.name} first")
    bare = {"columns": (), "sql": "", "partitions": None}
    if replace(old, **bare) != replace(new, **bare):  # type: ignore[arg-type]
        check_idle(old, catalog, span, ": its topic, formats or timestamp are others")


def check_topic_name(topic: str, span: Span, example: str = ": kafka_topic = 'name'", what: str = "topic name") -> None:
    """Names of topics are checked, and of what is kept under a name: none is a path."""
    bad = sorted({c for c in topic if not (c.isascii() and (c.isalnum() or c in "._-"))})
    if bad or topic in ("", ".", ".."):
        why = f"{', '.join(map(repr, bad))} in it" if bad else "not a name"
        raise SqlError(f"{what} {topic!r}: {why}", span, f"use letters, digits, '.', '_' and '-'{example}")


def declared_column(c: ast.ColumnDef, kind: Kind) -> DeclaredColumn:
    if c.name in RESERVED:
        hint = "pseudo columns need no declaration; choose another name"
        raise SqlError(f"{c.name} is a reserved column name", c.span, hint)
    if c.role == "KEY" and kind == "table":
        hint = f"write {c.name} {c.type} PRIMARY KEY"
        raise SqlError(f"the key of a table is its PRIMARY KEY; {c.name} is KEY", c.span, hint)
    if c.role == "PRIMARY KEY" and kind == "stream":
        hint = f"write {c.name} {c.type} KEY"
        raise SqlError(f"a stream has no PRIMARY KEY; {c.name} is one", c.span, hint)
    with with_span(c.span):
        if c.role in ("KEY", "PRIMARY KEY"):
            check_key_type(c.name, c.type)
            return DeclaredColumn(c.name, c.type, "key")
        if c.role == "HEADERS":
            return DeclaredColumn(c.name, c.type, _headers(c), header=c.header)
        return DeclaredColumn(c.name, c.type, "value")


def check_key_type(name: str, t: Type) -> None:
    """A key holds no MAP, at no depth: it has no order that both sides agree on."""
    match t:
        case Map():
            raise SqlError(f"key {name} holds a MAP", hint="use one of its values, such as m['id']")
        case Array(element):
            check_key_type(name, element)
        case Struct(fields):
            for f in fields:
                check_key_type(name, f.type)
        case _:
            pass


def _headers(c: ast.ColumnDef) -> Place:
    if c.header is not None:
        if c.type is not Scalar.BYTES:
            hint = f"write {c.name} BYTES HEADER('{c.header}')"
            raise SqlError(f"HEADER column {c.name} must be BYTES, not {c.type}", hint=hint)
        return "header"
    fine = isinstance(c.type, Array) and isinstance(c.type.element, Struct)
    if isinstance(c.type, Array) and isinstance(c.type.element, Struct):
        fields = [(f.name.upper(), f.type) for f in c.type.element.fields]
        fine = fields == [("KEY", Scalar.VARCHAR), ("VALUE", Scalar.BYTES)]
    if not fine:
        hint = f"write {c.name} ARRAY<STRUCT<key STRING, value BYTES>> HEADERS"
        raise SqlError(f"HEADERS column {c.name} has type {c.type}", hint=hint)
    return "headers"


def _check_twice(columns: tuple[ast.ColumnDef, ...]) -> None:
    if (c := repeated(columns, lambda c: c.name)) is not None:
        raise SqlError(f"column {c.name} is declared twice", c.span, "rename one of them")
    headers = [c for c in columns if c.role == "HEADERS"]
    if (c := repeated(headers, lambda c: c.header)) is not None:
        if c.header is None:
            hint = "keep one, or name single headers: HEADER('h')"
            raise SqlError(f"{c.name} is a second HEADERS column", c.span, hint)
        raise SqlError(f"{c.name} is a second column of HEADER('{c.header}')", c.span, "keep one of them")


def _message_key(p: Properties, columns: tuple[DeclaredColumn, ...], kind: Kind, settings: Settings) -> str | None:
    """`KEY='c'`: c is a VARCHAR value column that holds what the message key holds."""
    if "KEY" not in p.items:
        return None
    role = "PRIMARY KEY" if kind == "table" else "KEY"
    if settings.mode == "strict":
        hint = f"mark the column: name TYPE {role}; or leave braid.mode = 'strict'"
        raise SqlError("the property KEY is of early releases only", p.items["KEY"].span, hint)
    column = properties.column_named(p, "KEY", columns)
    assert column is not None
    if column.place == "key":
        raise SqlError(f"{column.name} is {role} already", p.items["KEY"].span, "leave the property key out")
    keys = [c for c in columns if c.place == "key"]
    if keys:
        message = f"KEY = {column.name}, but {keys[0].name} is {role}"
        hint = f"keep one of them: {role} of {keys[0].name}, or key = '{column.name}'"
        raise SqlError(message, p.items["KEY"].span, hint)
    if column.place != "value":
        raise SqlError(f"KEY = {column.name}, which is a header", p.span("KEY"), "name a VARCHAR value column")
    if column.type is not Scalar.VARCHAR:
        hint = f"declare {column.name} VARCHAR; for other types write {column.name} {column.type} {role}"
        raise SqlError(f"KEY must be a VARCHAR column; {column.name} is {column.type}", p.span("KEY"), hint)
    return column.name


def _string_key(e: Encoding, p: Properties) -> Encoding:
    """The message key of a KEY='c' source is a string in KAFKA format."""
    if "KEY_FORMAT" in p.items and e.key != "KAFKA":
        raise SqlError("with the property KEY the key format is KAFKA", p.span("KEY_FORMAT"), "leave key_format out")
    return replace(e, key="KAFKA")


# -------------------------------------------------------- topics that are known


S = Scalar
NUMBERS = {  # other types whose JSON values are numbers, or are read from some
    (S.TIMESTAMP, S.BIGINT), (S.BIGINT, S.TIMESTAMP), (S.INT, S.TIMESTAMP),
    (S.DATE, S.INT), (S.INT, S.DATE), (S.DATE, S.BIGINT),
    (S.TIME, S.INT), (S.INT, S.TIME), (S.TIME, S.BIGINT),
}  # fmt: skip
MOMENTS = (S.DATE, S.TIME, S.TIMESTAMP)
KEY_WORDS = {"stream": "KEY", "table": "PRIMARY KEY"}


def refuse(found: Iterable[SqlError]) -> None:
    """Raises the first."""
    for e in found:
        raise e


def misread(declared: Declared, catalog: Catalog, spans: Mapping[str, Span], at: Span) -> Iterator[SqlError]:
    """What of a topic can never be read as it is declared. `spans`: of columns; `at`: of the name."""
    known = catalog.by_topic(declared.topic)
    if known is None or known.name == declared.name:
        return
    shape, has = _shape(declared), _shape(known)
    if shape != has:
        hint = f"declare it as {known.name} is"
        yield SqlError(f"topic {known.topic} holds {has}; {declared.name} reads {shape}", at, hint)
        return
    keys = [", ".join(c.name for c in d.key) for d in (known, declared)]
    if all(keys) and (len(known.key) == 1) != (len(declared.key) == 1):
        hint = "declare all columns of the key, or none of them"
        yield SqlError(f"the key of topic {known.topic} is {keys[0]}; {declared.name} reads {keys[1]}", at, hint)
        return
    for column, there in _pairs(declared, known):
        span = spans.get(column.name, at)
        if there is None:
            columns = ", ".join(c.name for c in known.visible)
            message = f"topic {known.topic} has no column {column.name}: {known.created_by} writes {columns}"
            yield SqlError(message, span, "leave it out, or correct its name")
            continue
        where = f"column {there.name} of topic {known.topic}"
        in_key = there in known.key if column.place == "key" else there.place == "key"
        if in_key != (column.place == "key"):
            hint = f"write {column.name} {column.type}" + f" {KEY_WORDS[declared.kind]}" * in_key
            yield SqlError(f"{where} is in the {there.place}, not in the {column.place}", span, hint)
        elif not readable(there.type, column.type, declared.encoding.lenient):
            hint = f"write {column.name} {there.type}"
            yield SqlError(f"{where} is {there.type}; it cannot be read as {column.type}", span, hint)


def miswritten(made: Declared, catalog: Catalog, spans: Mapping[str, Span], at: Span) -> Iterator[SqlError]:
    """What of a query's rows those who are declared over their topic could never read. `spans`: of columns of the
    SELECT; `at`: of the name."""
    for reader in catalog.sources.values():
        if reader.topic != made.topic or reader.name == made.name:
            continue
        hint = "write another topic, or DROP " + reader.name
        shapes = _shape(made), _shape(reader)
        if shapes[0] != shapes[1]:
            message = f"{made.name} writes {shapes[0]} into topic {made.topic}; {reader.name} reads {shapes[1]}"
            yield SqlError(message, at, hint)
            continue
        if made.key and reader.key and (len(made.key) == 1) != (len(reader.key) == 1):
            keys = [", ".join(c.name for c in d.key) for d in (made, reader)]
            message = f"{made.name} writes topic {made.topic} by {keys[0]}; {reader.name} reads the key {keys[1]}"
            yield SqlError(message, at, hint)
            continue
        for column, there in _pairs(reader, made):
            if there is not None and not readable(there.type, column.type, reader.encoding.lenient):
                message = (
                    f"{made.name} writes {there.name} as {there.type} into topic {made.topic}; {reader.name} reads"
                )
                message += f" {column.name} as {column.type}"
                yield SqlError(message, spans.get(there.name, at), f"CAST it to {column.type}, or {hint}")


def _shape(d: Declared) -> str:
    """What a value is, where not an object of columns."""
    return d.encoding.value_format.shape(d.encoding.wrapped, d.encoding.delimiter)


def _pairs(declared: Declared, known: Declared) -> list[tuple[DeclaredColumn, DeclaredColumn | None]]:
    """Columns with those that hold their values: bare keys and values and delimited ones by position, else by name.
    With None: a query writes the topic, and no such column. Where nothing is known of a column it is left out."""
    pairs: list[tuple[DeclaredColumn, DeclaredColumn | None]] = []
    for place in ("key", "value"):
        wanted = [c for c in declared.visible if c.place == place]
        have = list(known.key) if place == "key" else [c for c in known.columns if c.place == place]
        other = {c.name.lower(): c for c in known.columns if c.place in ("key", "value")}
        e = declared.encoding
        named_fields = e.wrapped and e.value_format.single in ("either", "record")
        bare = len(wanted) == len(have) == 1 if place == "key" else not named_fields
        if bare:
            pairs += zip(wanted, have, strict=False)
            continue
        named = {c.name.lower(): c for c in have}
        for c in wanted:
            found = named.get(c.name.lower()) or other.get(c.name.lower())
            if found is not None or known.created_by is not None:
                pairs.append((c, found))
    return pairs


def readable(source: Type, target: Type, lenient: bool = False) -> bool:
    """Whether each JSON value of `source` is one of `target`. `lenient`: whether some are, numbers in texts too."""
    if source == target or S.NULL in (source, target) or target is S.VARCHAR:
        return True
    if lenient and (source is S.VARCHAR or is_numeric(source)) and (is_numeric(target) or target in MOMENTS):
        return True
    match source, target:
        case (Decimal(), S.DOUBLE):  # written as text
            return False
        case (Array(a), Array(b)):
            return readable(a, b, lenient)
        case (Map(k, v), Map(kk, vv)):
            return readable(k, kk, lenient) and readable(v, vv, lenient)
        case (Struct(fields), Map(S.VARCHAR, v)):
            return all(readable(f.type, v, lenient) for f in fields)
        case (Struct(fields), Struct(wanted)):
            types = {f.name.lower(): f.type for f in fields}
            return all(readable(types[n], f.type, lenient) for f in wanted if (n := f.name.lower()) in types)
    return (source, target) in NUMBERS or widens(source, target)
