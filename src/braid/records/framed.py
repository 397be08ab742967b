"""Formats whose schemas stand in a registry: bodies behind a schema id, by Confluent's wire format.

In: keys or values as bytes, the declared columns, a registry; typed columns and the schema they are written by. Out:
`codec.Decoded`; bytes, and why a row has none; the types of a schema's columns.
Rule: a byte 0, the id in four bytes, the highest first, then the body. Records of one id are decoded together. A record
whose id is unknown, or that has none, is malformed; a registry that does not answer ends the query. What is here once a
format is an arm: `_decoded`, `_encoded`, `type_of`, `schema_text`, `misfit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import polars as pl

from braid.expr.json_text import dumps, loads
from braid.records.avro_schema import Avro, BadSchema
from braid.records.codec import Decoded
from braid.records.facet import RecordSchema
from braid.records.registry import Registry, Schema, SchemaKind, UnknownSchema, referred
from braid.types import Column, Type, polars_type

KINDS: dict[str, SchemaKind] = {"AVRO": "AVRO"}  # the formats, and what their schemas are called in a registry
HEAD = 5
Encoded = tuple[pl.Series, pl.Series]  # bytes; errors, null where there are some


@lru_cache(maxsize=256)
def avro(text: str, others: tuple[str, ...] = ()) -> Avro:
    from braid.records.avro_schema import parsed

    return parsed(text, others)


def others_of(registry: Registry, schema: Schema) -> tuple[str, ...]:
    """The texts of what a schema refers to."""
    return tuple(referred(registry, schema).values()) if schema.references else ()


# ------------------------------------------------------------------- reading


def decode(
    raw: pl.Series,
    columns: Sequence[Column],
    registry: Registry,
    format: str,
    *,
    bare: bool,
    chosen: RecordSchema | None = None,
) -> Decoded:
    """The columns of records' bytes. `chosen`: the schema of the declaration, which counts where it has an id."""
    head = raw.bin.head(HEAD)
    found: list[tuple[pl.Series, Decoded]] = []
    for (mark,), part in pl.DataFrame({"h": head, "n": pl.int_range(len(raw), eager=True)}).group_by("h"):
        places = part["n"].sort()
        if mark is None:
            found.append((places, _nothing(columns, len(places), None)))
        elif len(mark) < HEAD or mark[0] != 0:
            found.append((places, _nothing(columns, len(places), "there is no schema id in front of the record")))
        else:
            id = int.from_bytes(mark[1:], "big")
            bodies = raw.gather(places).bin.slice(HEAD)
            found.append((places, _of_id(bodies, id, columns, registry, KINDS[format], bare, chosen)))
    if len(found) == 1:
        return found[0][1]
    if not found:
        return _nothing(columns, 0, None)
    order = pl.concat([p for p, _ in found]).arg_sort()
    frames, nulls, why = zip(*(made for _, made in found), strict=True)
    return pl.concat(frames)[order], pl.concat(nulls).gather(order), pl.concat(why).gather(order)


def _nothing(columns: Sequence[Column], height: int, error: str | None) -> Decoded:
    """Records that give no columns: those that are null, or are malformed."""
    frame = pl.DataFrame([pl.Series(c.name, [None] * height, dtype=polars_type(c.type)) for c in columns])
    null = pl.Series("is_null_value", [error is None] * height, dtype=pl.Boolean)
    return frame, null, pl.Series("error", [error] * height, dtype=pl.String)


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
            return _nothing(columns, len(bodies), f"schema {id} is {schema.kind}, not {kind}")
        return _decoded(bodies, columns, schema, others_of(registry, schema), bare, chosen)
    except (UnknownSchema, BadSchema) as e:
        return _nothing(columns, len(bodies), f"schema {id}: {e.message}")


def _decoded(
    bodies: pl.Series,
    columns: Sequence[Column],
    schema: Schema,
    others: tuple[str, ...],
    bare: bool,
    chosen: RecordSchema | None,
) -> Decoded:
    from braid.records.avro import decode_bodies

    reader = avro(chosen.text, chosen.others) if chosen is not None and chosen.text else None
    return decode_bodies(bodies, columns, avro(schema.text, others), bare=bare, chosen=reader)


# ------------------------------------------------------------------- writing


def encode(
    frame: pl.DataFrame,
    columns: Sequence[tuple[str, Column]],
    schema: Schema,
    others: tuple[str, ...],
    id: int,
    *,
    bare: bool,
) -> Encoded:
    """The bytes of each row. A bare null is null."""
    bodies, errors = _encoded(frame, columns, schema, others, bare)
    head = b"\0" + id.to_bytes(4, "big")
    made = pl.select((pl.lit(head) + pl.lit(bodies)).alias("value"))["value"] if len(bodies) else bodies
    if bare:
        null = frame[columns[0][0]].is_null()
        return made.set(null, None), errors.set(null, None)
    return made, errors


def _encoded(
    frame: pl.DataFrame,
    columns: Sequence[tuple[str, Column]],
    schema: Schema,
    others: tuple[str, ...],
    bare: bool,
) -> Encoded:
    from braid.records.avro_write import encode_bodies

    return encode_bodies(frame, columns, avro(schema.text, others), bare=bare)


def passed(
    frame: pl.DataFrame,
    columns: Sequence[tuple[str, Column]],
    schema: Schema,
    others: tuple[str, ...] = (),
    *,
    bare: bool,
    whole: bool = False,
) -> tuple[pl.DataFrame, Sequence[Column], pl.Series]:
    """The columns as a reader by the same declaration finds them (`whole`: by all fields of the schema), named as the
    fields are, and what they are; and why a row could not be written."""
    bodies, errors = _encoded(frame, columns, schema, others, bare)
    types: Sequence[Column] = [c for _, c in columns]
    if whole and not bare:
        types = getattr(type_of(schema, others, fold=False)[0], "fields", types)
    nothing = bodies.is_null()
    found, _, why = _decoded(bodies.filter(~nothing), types, schema, others, bare, None)
    if nothing.any():
        order = pl.concat([(~nothing).arg_true(), nothing.arg_true()]).arg_sort()
        empty, _, _ = _nothing(types, int(nothing.sum()), None)
        found, why = pl.concat([found, empty])[order], pl.concat([why, errors.filter(nothing)]).gather(order)
    return found, types, pl.DataFrame({"a": errors, "b": why}).select(pl.coalesce("a", "b"))["a"]


# ------------------------------------------------------------------- schemas


def schema_text(columns: Sequence[Column], kind: SchemaKind, name: str, *, bare: bool) -> str:
    """The text of the schema that columns are written by; `name`: the full one of its record."""
    from braid.records.avro_schema import schema_of

    return schema_of(columns, name, bare=bare)


def record_name(facet: str, name: str) -> str:
    """The full name of the record that the keys, or values, of a stream or table are."""
    from braid.records.avro_schema import NAMESPACE, VALUE_NAME

    camel = "".join(part.capitalize() for part in name.split("_"))
    return VALUE_NAME if facet == "value" else f"{NAMESPACE}.{camel}Key"


def type_of(schema: Schema, others: tuple[str, ...], fold: bool) -> tuple[Type | None, bool]:
    """The type of what a schema holds, None where there is none; and whether that is a record. `fold`: names become
    upper case."""
    from braid.records.avro_schema import type_of as of_avro

    own = avro(schema.text, others)
    return of_avro(own, fold), own.only is not None and own.only.kind == "record"


def completed(text: str, schema: Schema, others: tuple[str, ...]) -> str:
    """A JSON text with the defaults of the fields that it has not."""
    from braid.records.avro_schema import with_defaults

    try:
        doc = loads(text)
    except ValueError:
        return text
    return dumps(with_defaults(avro(schema.text, others), doc))


def unnameable(columns: Sequence[Column], kind: SchemaKind) -> str | None:
    """The first name, at any depth, that the format does not take."""
    from braid.records.avro_schema import unnameable as by_avro

    return by_avro(columns)


def misfit(registry: Registry, new: Schema, old: Schema) -> str | None:
    """Why who reads by a new schema could not read what was written by an old one."""
    from braid.records.avro_schema import unreadable

    return unreadable(avro(new.text, others_of(registry, new)), avro(old.text, others_of(registry, old)))
