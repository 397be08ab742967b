"""FORMAT … ENCODE …: how records of a source, a table or a sink are written.

In: the clause, what is declared with it, the registry or a file with the schema. Out: columns of the schema; an
encoding.
Rule: values are by the clause. The key of a source or a table is JSON, or nobody's; that of a sink is written as its
values are. By `schema.location`, a file of this machine, records stand alone, without the id of a schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from braid.bind.bound import DeclaredColumn
from braid.bind.risingwave.scope import Context
from braid.bind.schemas import check_names
from braid.errors import BraidError, SqlError
from braid.expr.nodes import Expr
from braid.expr.postgres import typing as postgres
from braid.records import framed
from braid.records.encoding import Encoding
from braid.records.facet import RecordSchema
from braid.records.formats.named import BYTES, DEBEZIUM, FORMATS
from braid.records.registry import Schema, subject_of
from braid.records.schemas.interface import Kind, Others
from braid.sql import ast
from braid.sql.dialects.risingwave_values import type_named
from braid.types import Array, Scalar, Struct, Type, has_documents

REGISTRY = "schema.registry has no effect here: schemas are in the registry of the store, or of --registry"
MOST = 1 << 20  # bytes of a file with a schema


def columns_of(encode: ast.Encode, topic: str, context: Context) -> list[ast.ColumnDef]:
    """The columns that the schema of a topic's values has."""
    schema, others = _schema(encode, topic, context)
    try:
        found, is_record = framed.kind_of(schema).type_of(
            schema, others, False, encode.text("message") or "", Scalar.REAL
        )
    except BraidError as e:
        raise SqlError(e.message, encode.span, e.hint) from None
    if not is_record or not isinstance(found, Struct):
        raise SqlError(f"the schema of {topic} is no record of {encode.word}", encode.span, "declare the columns")
    made = []
    for c in found.fields:
        t = type_named(c.type)
        if t is None:
            hint = "declare the columns that you need"
            raise SqlError(f"column {c.name} is {c.type}, which is not supported yet", encode.span, hint)
        made.append(ast.ColumnDef(c.name, t.type, "VALUE", encode.span, written=t.name))
    return made


def _schema(encode: ast.Encode, topic: str, context: Context) -> tuple[Schema, Others]:
    kind = _kind(encode)
    if encode.text("schema.location") is not None:
        return Schema(kind.name, _of_file(encode)), ()
    registry, subject = context.catalog.registry, subject_of(topic, "value")
    if registry is None:
        raise SqlError(f"{encode.word} needs a schema registry", encode.span, framed.NAME_IT)
    latest = registry.latest(subject)
    if latest is None:
        hint = "declare the columns, or register their schema"
        raise SqlError(f"the registry has no schema for subject {subject}", encode.span, hint)
    if latest[1].kind != kind.name:
        message = f"the schema of {subject} is {latest[1].kind}, not {encode.word}"
        raise SqlError(message, encode.span, "correct the ENCODE")
    return latest[1], framed.others_of(registry, latest[1])


def has_schema(encode: ast.Encode) -> bool:
    return FORMATS[encode.word].schemas is not None


def _kind(encode: ast.Encode) -> Kind:
    kind = FORMATS[encode.word].schemas
    assert kind is not None
    return kind


def _of_file(encode: ast.Encode) -> str:
    """The text of the schema in a file."""
    where = encode.text("schema.location") or ""
    if not _kind(encode).lone:
        hint = "register the schema, and write schema.registry"
        raise SqlError(f"schema.location of {encode.word} is not supported yet", encode.span, hint)
    path = where.removeprefix("file://")
    if not where.startswith("file:///"):
        raise SqlError(f"schema.location cannot be {where!r}", encode.span, "write 'file:///path/of/a/schema.avsc'")
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read(MOST + 1)
        if len(text) > MOST:
            raise SqlError(f"{path} is no schema: it is too large", encode.span)
        _kind(encode).check(text)
    except OSError as e:
        raise SqlError(f"{path}: {e.strerror}", encode.span, "name a file with the schema") from None
    except UnicodeDecodeError:
        raise SqlError(f"{path} is not UTF-8 text", encode.span, "name a file with the schema") from None
    except BraidError as e:
        raise SqlError(f"{path}: {e.message}", encode.span, e.hint) from None
    return text


def of_values(encode: ast.Encode, name: str, before: Encoding) -> Encoding:
    """The encoding of a source's or a table's records."""
    if encode.text("schema.location") is not None:
        alone = next(f.name for f in FORMATS.values() if f.schemas == _kind(encode) and not f.registered)
        return replace(before, value=alone, value_schema=RecordSchema(_record_name(name), text=_of_file(encode)))
    messages = _kind(encode).messages
    full = (encode.text("message") or "") if messages else _record_name(name)
    return replace(before, value=encode.word, value_schema=RecordSchema(full))


def of_bytes(s: ast.CreateTable, encode: ast.Encode, columns: Sequence[ast.ColumnDef], before: Encoding) -> Encoding:
    """The encoding of a source or a table whose records are one value of bytes."""
    if encode.kind != "PLAIN":
        raise SqlError(f"FORMAT {encode.kind} ENCODE BYTES is not supported yet", encode.span, "write FORMAT PLAIN")
    if [d.type for d in columns] != [Scalar.BYTES]:
        raise SqlError(
            "ENCODE BYTES has one column, of bytea", encode.span, f"write CREATE {s.what.upper()} {s.name} (data bytea)"
        )
    if s.primary_key:
        raise SqlError("ENCODE BYTES has no key", s.primary_key[0].span, "write INCLUDE KEY for that of the records")
    return replace(before, value=BYTES)


def of_changes(encode: ast.Encode, what: str, keys: Sequence[str], before: Encoding) -> Encoding:
    """The encoding of a table whose topic Debezium writes."""
    if encode.word != "JSON":
        raise SqlError(f"FORMAT DEBEZIUM ENCODE {encode.word} is not supported yet", encode.span, "write ENCODE JSON")
    if what != "table" or not keys:
        hint = "CREATE TABLE it, with the PRIMARY KEY that it has in its database"
        raise SqlError("FORMAT DEBEZIUM is of a table with a PRIMARY KEY", encode.span, hint)
    return replace(before, key=DEBEZIUM, value=DEBEZIUM)


def of_sink(encode: ast.Encode, name: str, columns: list[DeclaredColumn]) -> Encoding:
    """The encoding of a sink's records."""
    if encode.kind == "DEBEZIUM":
        raise SqlError("FORMAT DEBEZIUM of a sink is not supported yet", encode.span, "write FORMAT UPSERT ENCODE JSON")
    if encode.word == BYTES:
        raise SqlError("ENCODE BYTES of a sink is not supported yet", encode.span, "write ENCODE JSON")
    if not has_schema(encode):
        return Encoding()
    if encode.text("schema.location") is not None:
        raise SqlError("a sink takes its schema from the registry", encode.span, "leave schema.location out")
    messages = _kind(encode).messages
    names = ["", ""] if messages else [f"{_record_name(name)}Key", _record_name(name)]
    made = Encoding(encode.word, encode.word, key_schema=RecordSchema(names[0]), value_schema=RecordSchema(names[1]))
    keys = [c for c in columns if c.place == "key"]
    if any(c.hidden for c in keys) and (len(keys) > 1 or messages):
        raise SqlError(f"a key in {encode.word} has names: select its columns", encode.span, "or write ENCODE JSON")
    check_names(made, columns, encode.span)
    return made


def keeps_documents(encode: ast.Encode | None) -> bool:
    """Whether a sink writes a JSONB as a JSON value, not as a text: what RisingWave has by default."""
    if encode is None or (mode := encode.text("jsonb.handling.mode")) is None:
        return False
    if mode not in ("string", "dynamic"):
        raise SqlError(f"jsonb.handling.mode cannot be {mode}", encode.span, "write 'string' or 'dynamic'")
    if mode == "dynamic" and has_schema(encode):
        raise SqlError(f"{encode.word} has no JSONB", encode.span, "leave jsonb.handling.mode out")
    return mode == "dynamic"


def in_text(e: Expr) -> Expr:
    """A value with its documents as texts."""
    return postgres.cast(e, _text_of(e.type)) if has_documents(e.type) else e


def _text_of(t: Type) -> Type:
    return Array(_text_of(t.element)) if isinstance(t, Array) else Scalar.VARCHAR


def notices(encode: ast.Encode) -> list[str]:
    return [REGISTRY] if encode.text("schema.registry") is not None else []


def topic_of(properties: tuple[ast.Property, ...]) -> str | None:
    """The topic that the properties of connector 'kafka' name."""
    said = of_kafka(properties)
    if "topic" not in said or "connector" not in said or said["connector"].value.value != "kafka":
        return None
    return str(said["topic"].value.value)


def of_kafka(properties: tuple[ast.Property, ...]) -> dict[str, ast.Property]:
    """Properties by name; kafka.topic and so on are older names."""
    found: dict[str, ast.Property] = {}
    for p in properties:
        first = found.setdefault(p.name.removeprefix("kafka."), p)
        if first is not p:
            raise SqlError(f"{first.name} and {p.name} are one setting", p.span, "leave one of them out")
    return found


def _record_name(name: str) -> str:
    made = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return made if made[:1].isalpha() else f"_{made}"
