"""Records behind the id of their schema, by Confluent's wire format; bodies that stand alone.

In: keys or values as bytes, the declared columns, a registry; typed columns and the schema they are written by. Out:
`codec.Decoded`; bytes, and why a row has none.
Rule: a byte 0, the id in four bytes, the highest first, then the body. Records of one id are decoded together. A record
whose id is unknown, or that has none, is malformed; one whose registry does not answer waits. What a body is, the kind
of its schema knows (`schemas`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from braid.errors import Away, BraidError
from braid.records.avro_schema import BadSchema
from braid.records.codec import Decoded, encode_values, in_place, nothing, stack
from braid.records.facet import RecordSchema
from braid.records.registry import Registry, Schema, UnknownSchema, referred
from braid.records.schemas.interface import Encoded, Kind, Others
from braid.records.schemas.named import KINDS
from braid.types import Column, Scalar, Struct

HEAD = 5
NAME_IT = "name it: --registry URL"


def kind_of(schema: Schema) -> Kind:
    found = KINDS.get(schema.kind)
    if found is None:
        raise BraidError(f"no schema of kind {schema.kind} can be read here", f"kinds are {', '.join(KINDS)}")
    return found


def others_of(registry: Registry, schema: Schema) -> Others:
    """Names and texts of what a schema refers to, the farthest first."""
    return tuple(referred(registry, schema).items()) if schema.references else ()


# ------------------------------------------------------------------- reading


def decode(
    raw: pl.Series,
    columns: Sequence[Column],
    registry: Registry,
    kind: Kind,
    *,
    bare: bool,
    chosen: RecordSchema | None = None,
) -> Decoded:
    """The columns of records' bytes. `chosen`: the schema of the declaration, which counts where it has an id."""
    return _by_id(raw, columns, lambda part, id: _of_id(part, id, columns, registry, kind, bare, chosen))


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
            kind = kind_of(schema)
            if kind.messages and not bodies.bin.starts_with(b"\0").all():
                if len(bodies) > 1:  # another message of the schema than the first
                    return stack([of_id(bodies.slice(i, 1), id) for i in range(len(bodies))])
                name = kind.message_of(bodies[0], schema, others)
            if own is not None and schema.text == own[0].text:
                columns, bare = own[1:]
            else:
                columns, bare = columns_of(schema, others, name)
            frame, null, why = _of_id(bodies, id, columns, registry, kind, bare, None)
        except Away:
            raise
        except BraidError as e:
            return nothing(one, len(bodies), e.message)
        made = encode_values(frame, [(c.name, c) for c in columns], unwrapped=bare)
        return made.set(why.is_not_null() | null, None).alias("text").to_frame(), null, why

    found, _, why = _by_id(raw, one, of_id)
    return found["text"], why


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


def decode_alone(
    raw: pl.Series, columns: Sequence[Column], kind: Kind, *, bare: bool, schema: RecordSchema | None = None
) -> Decoded:
    """The columns of bodies alone, by the schema of the declaration, else by that which the columns get."""
    schema = schema or RecordSchema("")
    text = schema.text or kind.text_of(columns, schema.name, bare, schema.nulls)
    there = raw.is_not_null()
    made = kind.decoded(raw.filter(there), columns, Schema(kind.name, text), schema.others, bare)
    if there.all():
        return made
    return in_place(there, made, nothing(columns, int((~there).sum()), None))


def _of_id(
    bodies: pl.Series,
    id: int,
    columns: Sequence[Column],
    registry: Registry,
    kind: Kind,
    bare: bool,
    chosen: RecordSchema | None,
) -> Decoded:
    try:
        schema = registry.by_id(id)
        if schema.kind != kind.name:
            return nothing(columns, len(bodies), f"schema {id} is {schema.kind}, not {kind.name}")
        return kind.unframed(bodies, columns, schema, others_of(registry, schema), bare, chosen)
    except (UnknownSchema, BadSchema) as e:
        return nothing(columns, len(bodies), f"schema {id}: {e.message}")


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
    kind = kind_of(schema)
    bodies, errors = kind.encoded(frame, columns, schema, others, bare)
    if id is not None and len(bodies):
        head = b"\0" + id.to_bytes(4, "big") + kind.head(schema, others)
        bodies = pl.select((pl.lit(head) + pl.lit(bodies)).alias("value"))["value"]
    if bare:
        null = frame[columns[0][0]].is_null()
        return bodies.set(null, None), errors.set(null, None)
    return bodies, errors


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
    kind = kind_of(schema)
    bodies, errors = kind.encoded(frame, columns, schema, others, bare)
    types: Sequence[Column] = [c for _, c in columns]
    if whole and not bare:
        types = getattr(kind.type_of(schema, others, False, schema.message)[0], "fields", types)
    there = bodies.is_not_null()
    made = kind.decoded(bodies.filter(there), types, schema, others, bare)
    if not there.all():
        empty, null, _ = nothing(types, int((~there).sum()), None)
        made = in_place(there, made, (empty, null, errors.filter(~there)))
    found, _, why = made
    if bare:
        errors, why = errors.set(frame[columns[0][0]].is_null(), None), why.set(frame[columns[0][0]].is_null(), None)
    return found, types, pl.DataFrame({"a": errors, "b": why}).select(pl.coalesce("a", "b"))["a"]


# ------------------------------------------------------------------- schemas


def columns_of(schema: Schema, others: Others, name: str = "") -> tuple[tuple[Column, ...], bool]:
    """The columns of what a schema holds, and whether that is one bare value. `name`: which message."""
    t, is_record = kind_of(schema).type_of(schema, others, fold=False, name=name)
    if t is None:
        raise BraidError("the schema has no column of a type that there is here")
    if is_record and isinstance(t, Struct):
        return t.fields, False
    return (Column("value", t),), True


def misfit(registry: Registry, new: Schema, old: Schema) -> str | None:
    """Why who reads by a new schema could not read what was written by an old one of its kind."""
    return kind_of(new).misfit(new, others_of(registry, new), old, others_of(registry, old))
