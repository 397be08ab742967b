"""Formats whose schemas stand in a registry: bodies behind a schema id, by Confluent's wire format.

In: keys or values as bytes, the declared columns, a registry; typed columns and the schema they are written by. Out:
`codec.Decoded`; bytes, and why a row has none; the types of a schema's columns.
Rule: a byte 0, the id in four bytes, the highest first, then the body. Records of one id are decoded together. A record
whose id is unknown, or that has none, is malformed; one whose registry does not answer waits. What is here once a
format is an arm: `_decoded`, `_encoded`, `type_of`, `schema_text`, `misfit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import polars as pl

from braid.errors import Away, BraidError
from braid.expr.json_text import compact, loads
from braid.records import avro_schema
from braid.records.avro_schema import Avro, BadSchema
from braid.records.codec import Decoded, encode_values, in_place, nothing, stack
from braid.records.facet import ALONE, RecordSchema
from braid.records.registry import Registry, Schema, SchemaKind, UnknownSchema, referred
from braid.types import Column, Scalar, Struct, Type

KINDS: dict[str, SchemaKind] = {
    "AVRO": "AVRO",
    "JSON_SR": "JSON",
    "PROTOBUF": "PROTOBUF",
    "AVRO_NOSR": "AVRO",
    "PROTOBUF_NOSR": "PROTOBUF",
}  # the formats, and what their schemas are called in a registry
HEAD = 5
NAME_IT = "name it: --registry URL"
Others = tuple[tuple[str, str], ...]
Encoded = tuple[pl.Series, pl.Series]  # bytes; errors, null where there are some


@lru_cache(maxsize=256)
def avro(text: str, others: Others = ()) -> Avro:
    return avro_schema.parsed(text, [t for _, t in others])


def others_of(registry: Registry, schema: Schema) -> Others:
    """Names and texts of what a schema refers to, the farthest first."""
    return tuple(referred(registry, schema).items()) if schema.references else ()


# ------------------------------------------------------------------- reading


def decode(
    raw: pl.Series,
    columns: Sequence[Column],
    registry: Registry | None,
    format: str,
    *,
    bare: bool,
    chosen: RecordSchema | None = None,
) -> Decoded:
    """The columns of records' bytes. `chosen`: the schema of the declaration, which counts where it has an id."""
    if format in ALONE:
        return _unframed(raw, columns, KINDS[format], bare, chosen)
    there = known(registry, format)
    return _by_id(raw, columns, lambda part, id: _of_id(part, id, columns, there, KINDS[format], bare, chosen))


def known(registry: Registry | None, format: str) -> Registry:
    """The registry, refused where there is none."""
    if registry is None:
        raise BraidError(f"{format} needs a schema registry", NAME_IT)
    return registry


def texts(
    raw: pl.Series, registry: Registry, own: tuple[Schema, Sequence[Column], bool] | None = None
) -> tuple[pl.Series, pl.Series]:
    """JSON of records' bytes, with all that their schemas have; and why there is none. `own`: a schema of which the
    columns are known, and whether they are `bare`."""
    one = [Column("text", Scalar.VARCHAR)]

    def of_id(bodies: pl.Series, id: int) -> Decoded:
        try:
            schema = registry.by_id(id)
            others, name = others_of(registry, schema), ""
            if schema.kind == "PROTOBUF" and not bodies.bin.starts_with(b"\0").all():
                if len(bodies) > 1:  # another message of the schema than the first
                    return stack([of_id(bodies.slice(i, 1), id) for i in range(len(bodies))])
                name = _message_of(bodies[0], schema, others)
            if own is not None and schema.text == own[0].text:
                columns, bare = own[1:]
            else:
                columns, bare = columns_of(schema, others, name)
            frame, null, why = _of_id(bodies, id, columns, registry, schema.kind, bare, None)
        except Away:
            raise
        except BraidError as e:
            return nothing(one, len(bodies), e.message)
        made = encode_values(frame, [(c.name, c) for c in columns], unwrapped=bare)
        return made.set(why.is_not_null() | null, None).alias("text").to_frame(), null, why

    found, _, why = _by_id(raw, one, of_id)
    return found["text"], why


def _message_of(body: bytes, schema: Schema, others: Others) -> str:
    """Which message of a schema a body is; the first one where that is torn: it is told by who reads it."""
    from braid.records.proto_schema import file_of
    from braid.records.protobuf import split_indexes

    found, messages = split_indexes(body), file_of(schema.text, others).messages()
    at = found[0][0] if found is not None else 0
    return str(messages[at].full_name) if 0 <= at < len(messages) else ""


def _by_id(raw: pl.Series, columns: Sequence[Column], of_id: Callable[[pl.Series, int], Decoded]) -> Decoded:
    """The records of each id by what reads them: bodies, and the id."""
    head = raw.bin.head(HEAD)
    found: list[tuple[pl.Series, Decoded]] = []
    for (mark,), part in pl.DataFrame({"h": head, "n": pl.int_range(len(raw), eager=True)}).group_by("h"):
        places = part["n"].sort()
        if mark is None:
            found.append((places, nothing(columns, len(places), None)))
        elif len(mark) < HEAD or mark[0] != 0:
            found.append((places, nothing(columns, len(places), "there is no schema id in front of the record")))
        else:
            id = int.from_bytes(mark[1:], "big")
            bodies = raw.gather(places).bin.slice(HEAD)
            found.append((places, of_id(bodies, id)))
    if len(found) == 1:
        return found[0][1]
    if not found:
        return nothing(columns, 0, None)
    order = pl.concat([p for p, _ in found]).arg_sort()
    frame, nulls, why = stack([made for _, made in found])
    return frame[order], nulls.gather(order), why.gather(order)


def _unframed(
    raw: pl.Series, columns: Sequence[Column], kind: SchemaKind, bare: bool, schema: RecordSchema | None
) -> Decoded:
    """The columns of bodies alone, by the schema of the declaration, else by that which the columns get."""
    schema = schema or RecordSchema("")
    text = schema.text or schema_text(columns, kind, schema.name, bare=bare, nulls=schema.nulls)
    there = raw.is_not_null()
    made = _decoded(raw.filter(there), columns, Schema(kind, text), schema.others, bare, None)
    if there.all():
        return made
    return in_place(there, made, nothing(columns, int((~there).sum()), None))


def _of_id(
    bodies: pl.Series,
    id: int,
    columns: Sequence[Column],
    registry: Registry,
    kind: SchemaKind,
    bare: bool,
    chosen: RecordSchema | None,
) -> Decoded:
    try:
        schema = registry.by_id(id)
        if schema.kind != kind:
            return nothing(columns, len(bodies), f"schema {id} is {schema.kind}, not {kind}")
        others = others_of(registry, schema)
        if kind == "PROTOBUF":
            from braid.records import protobuf
            from braid.records.proto_schema import file_of

            return protobuf.decode_framed(bodies, columns, file_of(schema.text, others))
        return _decoded(bodies, columns, schema, others, bare, chosen)
    except (UnknownSchema, BadSchema) as e:
        return nothing(columns, len(bodies), f"schema {id}: {e.message}")


def _decoded(
    bodies: pl.Series,
    columns: Sequence[Column],
    schema: Schema,
    others: Others,
    bare: bool,
    chosen: RecordSchema | None,
) -> Decoded:
    match schema.kind:
        case "AVRO":
            from braid.records.avro import decode_bodies

            reader = avro(chosen.text, chosen.others) if chosen is not None and chosen.text else None
            return decode_bodies(bodies, columns, avro(schema.text, others), bare=bare, chosen=reader)
        case "JSON":
            from braid.records import json_sr

            return json_sr.decode_bodies(bodies, columns, bare=bare)
        case "PROTOBUF":
            from braid.records import protobuf
            from braid.records.proto_schema import file_of

            file = file_of(schema.text, others)
            return protobuf.decode_bodies(bodies, columns, file, file.message(schema.message).full_name)


# ------------------------------------------------------------------- writing


def encode(
    frame: pl.DataFrame,
    columns: Sequence[tuple[str, Column]],
    schema: Schema,
    others: Others,
    id: int | None,
    *,
    bare: bool,
) -> Encoded:
    """The bytes of each row, without an id the bodies alone. A bare null is null."""
    bodies, errors = _encoded(frame, columns, schema, others, bare)
    if id is not None:
        bodies = _headed(bodies, schema, others, id)
    if bare:
        null = frame[columns[0][0]].is_null()
        return bodies.set(null, None), errors.set(null, None)
    return bodies, errors


def _headed(bodies: pl.Series, schema: Schema, others: Others, id: int) -> pl.Series:
    head = b"\0" + id.to_bytes(4, "big")
    if schema.kind == "PROTOBUF":
        from braid.records.proto_schema import file_of
        from braid.records.protobuf import indexes

        head += indexes(file_of(schema.text, others), schema.message)
    return pl.select((pl.lit(head) + pl.lit(bodies)).alias("value"))["value"] if len(bodies) else bodies


def _encoded(
    frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], schema: Schema, others: Others, bare: bool
) -> Encoded:
    match schema.kind:
        case "AVRO":
            from braid.records.avro_write import encode_bodies

            return encode_bodies(frame, columns, avro(schema.text, others), bare=bare)
        case "JSON":
            from braid.records import json_sr

            bodies = json_sr.encode_bodies(frame, columns, bare=bare)
            return bodies, pl.repeat(None, frame.height, dtype=pl.String, eager=True)
        case "PROTOBUF":
            from braid.records import protobuf
            from braid.records.proto_schema import file_of

            return protobuf.encode_bodies(frame, columns, file_of(schema.text, others), schema.message)


def passed(
    frame: pl.DataFrame,
    columns: Sequence[tuple[str, Column]],
    schema: Schema,
    others: Others = (),
    *,
    bare: bool,
    whole: bool = False,
) -> tuple[pl.DataFrame, Sequence[Column], pl.Series]:
    """The columns as a reader by the same declaration finds them (`whole`: by all fields of the schema), named as the
    fields are, and what they are; and why a row could not be written."""
    bodies, errors = _encoded(frame, columns, schema, others, bare)
    types: Sequence[Column] = [c for _, c in columns]
    if whole and not bare:
        types = getattr(type_of(schema, others, False, schema.message)[0], "fields", types)
    there = bodies.is_not_null()
    made = _decoded(bodies.filter(there), types, schema, others, bare, None)
    if not there.all():
        empty, null, _ = nothing(types, int((~there).sum()), None)
        made = in_place(there, made, (empty, null, errors.filter(~there)))
    found, _, why = made
    if bare:
        errors, why = errors.set(frame[columns[0][0]].is_null(), None), why.set(frame[columns[0][0]].is_null(), None)
    return found, types, pl.DataFrame({"a": errors, "b": why}).select(pl.coalesce("a", "b"))["a"]


# ------------------------------------------------------------------- schemas


def schema_text(columns: Sequence[Column], kind: SchemaKind, name: str, *, bare: bool, nulls: str = "") -> str:
    """The text of the schema that columns are written by; `name`: the full one of its record."""
    match kind:
        case "AVRO":
            return avro_schema.schema_of(columns, name, bare=bare)
        case "JSON":
            from braid.records import json_sr

            return json_sr.schema_of(columns, bare=bare)
        case "PROTOBUF":
            from braid.records import proto_schema

            return proto_schema.schema_of(columns, name, nulls)


def record_name(format: str, facet: str, name: str) -> str:
    """The full name of the record that the keys, or values, of a stream or table are."""
    if format != "AVRO":
        return ""
    camel = "".join(part.capitalize() for part in name.split("_"))
    return avro_schema.VALUE_NAME if facet == "value" else f"{avro_schema.NAMESPACE}.{camel}Key"


def type_of(
    schema: Schema, others: Others, fold: bool, name: str = "", float: Scalar = Scalar.DOUBLE
) -> tuple[Type | None, bool]:
    """The type of what a schema holds, None where there is none; and whether that is a record. `fold`: names become
    upper case. `name`: which message. `float`: what a number of 32 bits is."""
    match schema.kind:
        case "AVRO":
            own = avro(schema.text, others)
            return avro_schema.type_of(own, fold, float), own.only is not None and own.only.kind == "record"
        case "JSON":
            from braid.records import json_sr

            return json_sr.type_of(schema.text, others, fold)
        case "PROTOBUF":
            from braid.records import proto_schema

            file = proto_schema.file_of(schema.text, others)
            return proto_schema.type_of(file, file.message(name), fold, float), True


def columns_of(schema: Schema, others: Others, name: str = "") -> tuple[tuple[Column, ...], bool]:
    """The columns of what a schema holds, and whether that is one bare value. `name`: which message."""
    t, is_record = type_of(schema, others, fold=False, name=name)
    if t is None:
        raise BraidError("the schema has no column of a type that there is here")
    if is_record and isinstance(t, Struct):
        return t.fields, False
    return (Column("value", t),), True


def completed(text: str, schema: Schema, others: Others) -> str:
    """A JSON text with the defaults of the fields that it has not."""
    if schema.kind != "AVRO":
        return text
    try:
        doc = loads(text)
    except (ValueError, RecursionError):
        return text
    return compact(avro_schema.with_defaults(avro(schema.text, others), doc))


def unnameable(columns: Sequence[Column], kind: SchemaKind) -> str | None:
    """The first name, at any depth, that the format does not take."""
    return None if kind == "JSON" else avro_schema.unnameable(columns)


def unholdable(columns: Sequence[Column], kind: SchemaKind) -> Column | None:
    """The first column that the format has no form for."""
    if kind != "PROTOBUF":
        return None
    from braid.records.proto_schema import unholdable as by_protobuf

    return next((c for c in columns if by_protobuf(c.type) is not None), None)


def misfit(registry: Registry, new: Schema, old: Schema) -> str | None:
    """Why who reads by a new schema could not read what was written by an old one."""
    if new.kind == "AVRO":
        reader, writer = (avro(x.text, others_of(registry, x)) for x in (new, old))
        return avro_schema.unreadable(reader, writer)
    if new.kind == "PROTOBUF":
        from braid.records import proto_schema

        now_, before_ = (proto_schema.file_of(x.text, others_of(registry, x)).message() for x in (new, old))
        return proto_schema.unreadable(now_, before_)
    from braid.records import json_sr

    now, before = (type_of(x, others_of(registry, x), fold=False)[0] for x in (new, old))
    return json_sr.unreadable(now, before)
