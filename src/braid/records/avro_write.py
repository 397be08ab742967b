"""Columns into Avro bodies, by a schema.

In: typed columns with the fields they become, a schema. Out: a Binary series of bodies, and why a row has none.
Rule: the writer row by row is the meaning; pyruhvro writes whole columns where it gives the same bytes. Fields are
found as the reader finds them; one that no column gives has its default, else null, else the row cannot be written.
"""

from __future__ import annotations

import decimal
import json
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from braid.records.avro_schema import NO_DEFAULT, Avro, AvroField, Beyond, branch_name, per_ms, rewritten
from braid.records.columnar import ENDS, plain
from braid.records.values import WHOLE
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type, physical_type

S = Scalar
Write = Callable[[Any, bytearray], None]
Encoded = tuple[pl.Series, pl.Series]  # bodies; errors, null where there is a body
_FEW = 16


class Unwritable(ValueError):
    """A value that the schema has no place for."""


def encode_bodies(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], schema: Avro, *, bare: bool) -> Encoded:
    """A body for each row. Each pair is a column of `frame` and the field it becomes."""
    made = pl.DataFrame([frame.get_column(name).alias(c.name) for name, c in columns])
    types = tuple(c for _, c in columns)
    if frame.height >= _FEW and columns:
        try:
            bodies = _at_once(made, types, schema, bare)
            return bodies, pl.repeat(None, frame.height, dtype=pl.String, eager=True)
        except ENDS:
            raise
        except BaseException:  # also panics of pyruhvro; what is wrong is told row by row
            pass
    return _one_by_one(made, types, schema, bare, frame.height)


# ------------------------------------------------------------- row by row


def _one_by_one(frame: pl.DataFrame, columns: tuple[Column, ...], schema: Avro, bare: bool, height: int) -> Encoded:
    physical = [frame[c.name].cast(physical_type(c.type)).to_list() for c in columns]
    rows = zip(*physical, strict=True) if columns else iter([()] * height)
    bodies: list[bytes | None] = []
    errors: list[str | None] = []
    write: Write | None = None
    for row in rows:
        body: bytearray | None = bytearray()
        error = None
        try:
            write = write or _writes(schema, columns[0].type if bare else Struct(columns))
            assert body is not None
            write(row[0] if bare else dict(zip((c.name for c in columns), row, strict=True)), body)
        except Unwritable as e:
            body, error = None, str(e)
        bodies.append(None if body is None else bytes(body))
        errors.append(error)
    return pl.Series("value", bodies, pl.Binary), pl.Series("error", errors, pl.String)


def _writes(a: Avro, t: Type) -> Write:
    """A function that appends the physical value of `t`, null or not, as the schema has it."""
    own = a.real
    if own.kind == "union":
        return _writes_union(own, t)
    one = _writes_one(own, t)

    def write(v: Any, out: bytearray) -> None:
        if v is None and own.kind != "null":
            raise Unwritable(f"null is no {own.logical or own.kind}")
        one(v, out)

    return write


def _writes_union(a: Avro, t: Type) -> Write:
    null = next((i for i, b in enumerate(a.branches) if b.kind == "null"), None)
    some = [(i, b.real) for i, b in enumerate(a.branches) if b.kind != "null"]
    if len(some) > 1 and isinstance(t, Struct):
        return _writes_branch(a, t, null, some)
    found: tuple[int, Write] | None = None
    why: Unwritable | None = None
    for i, b in some:
        try:
            found = i, _writes(b, t)
            break
        except Unwritable as e:
            why = why or e
    if found is None and null is None:
        raise why or Unwritable("the schema has an empty union")

    def write(v: Any, out: bytearray) -> None:
        if v is None and null is not None:
            _long(null, out)
        elif found is None:
            raise why or Unwritable("only null is allowed here")
        else:
            _long(found[0], out)
            found[1](v, out)

    return write


def _writes_branch(a: Avro, t: Struct, null: int | None, some: Sequence[tuple[int, Avro]]) -> Write:
    """A STRUCT of branches: the one that is not null."""
    named = {c.name.lower(): c for c in t.fields}
    ways = [
        (named[branch_name(b).lower()].name, i, _writes(b, named[branch_name(b).lower()].type))
        for i, b in some
        if branch_name(b).lower() in named
    ]

    def write(v: Any, out: bytearray) -> None:
        for name, i, one in ways:
            if v is not None and v[name] is not None:
                _long(i, out)
                one(v[name], out)
                return
        if null is None:
            raise Unwritable("no branch of a union is given")
        _long(null, out)

    return write


def _long(n: int, out: bytearray) -> None:
    n = (n << 1) ^ (n >> 63)
    while n > 0x7F:
        out.append((n & 0x7F) | 0x80)
        n >>= 7
    out.append(n)


def _bytes(v: bytes, out: bytearray) -> None:
    _long(len(v), out)
    out += v


def _writes_one(a: Avro, t: Type) -> Write:
    kind = a.kind
    match t:
        case Scalar.NULL:
            return lambda v, out: None
        case Array(element) if kind == "array" and a.items is not None:
            return _writes_blocks(_writes(a.items, element), lambda v: v)
        case Map(S.VARCHAR, item) if kind == "map" and a.items is not None:
            inner = _writes(a.items, item)

            def entry(v: Any, out: bytearray) -> None:
                if v["key"] is None:
                    raise Unwritable("a key of a map is null")
                _bytes(v["key"].encode(), out)
                inner(v["value"], out)

            return _writes_blocks(entry, _last_of_each)
        case Map(key, item) if a.entries is not None and a.items is not None:
            pair = Struct((Column(a.entries[0].name, key), Column(a.entries[1].name, item)))
            names = [c.name for c in pair.fields]
            one = _writes(a.items, pair)
            return _writes_blocks(lambda v, out: one({names[0]: v["key"], names[1]: v["value"]}, out), _last_of_each)
        case Struct() if kind == "record":
            return _writes_record(a, t)
        case Decimal(scale=scale) if a.logical == "decimal":
            return _writes_decimal(a, scale)
        case S.VARCHAR if kind == "string":
            return lambda v, out: _bytes(v.encode(), out)
        case S.VARCHAR if kind == "enum":
            return _writes_symbol(a)
        case S.BYTES if kind == "bytes" and a.logical != "decimal":
            return _bytes
        case S.BYTES if kind == "fixed" and a.logical != "decimal":
            return _writes_fixed(a)
        case S.BOOLEAN if kind == "boolean":
            return lambda v, out: out.append(1 if v else 0)
        case S.SMALLINT | S.INT | S.BIGINT if kind in ("int", "long"):
            return _writes_whole(kind)
        case S.SMALLINT | S.INT | S.BIGINT | S.REAL | S.DOUBLE if kind in ("float", "double"):
            return _writes_real(kind)
        case S.DATE | S.TIME | S.TIMESTAMP | S.TIMESTAMPTZ if kind in ("int", "long"):
            unit, per = WHOLE[t].unit, per_ms(a)
            whole = _writes_whole(kind)
            return lambda v, out: whole(v * per // unit, out)
    raise Unwritable(f"{t} has no place in {a.called}")


def _last_of_each(entries: Sequence[Any]) -> list[Any]:
    return list({e["key"]: e for e in entries}.values())


def _writes_blocks(item: Write, items: Callable[[Any], Sequence[Any]]) -> Write:
    def write(v: Any, out: bytearray) -> None:
        found = items(v)
        if found:
            _long(len(found), out)
            for x in found:
                item(x, out)
        out.append(0)

    return write


def _writes_whole(kind: str) -> Write:
    def write(v: int, out: bytearray) -> None:
        if kind == "int" and not -(2**31) <= v < 2**31:
            raise Unwritable(f"{v} is out of range for an int")
        _long(v, out)

    return write


def _writes_real(kind: str) -> Write:
    form = "<d" if kind == "double" else "<f"

    def write(v: float, out: bytearray) -> None:
        try:
            out += struct.pack(form, float(v))
        except OverflowError:
            raise Unwritable(f"{v} is out of range for a float") from None

    return write


def _writes_symbol(a: Avro) -> Write:
    places = {s: i for i, s in enumerate(a.symbols)}

    def write(v: str, out: bytearray) -> None:
        if v not in places:
            raise Unwritable(f"{v!r} is no symbol of the enum {branch_name(a)}")
        _long(places[v], out)

    return write


def _writes_fixed(a: Avro) -> Write:
    def write(v: bytes, out: bytearray) -> None:
        if len(v) != a.size:
            raise Unwritable(f"{len(v)} bytes for fixed({a.size})")
        out += v

    return write


def _writes_decimal(a: Avro, scale: int) -> Write:
    if a.scale < scale:
        raise Unwritable(f"a scale of {scale} is more than the schema's {a.scale}")

    def write(v: decimal.Decimal, out: bytearray) -> None:
        sign, digits, exponent = v.as_tuple()
        n = int("".join(map(str, digits)) or "0") * 10 ** (int(exponent) + a.scale)
        if len(str(n)) > a.precision and n:
            raise Unwritable(f"{v} has too many digits for decimal({a.precision}, {a.scale})")
        n = -n if sign else n
        if a.kind == "fixed":
            out += n.to_bytes(a.size, "big", signed=True)
        else:
            _bytes(n.to_bytes(_size_of(n), "big", signed=True), out)

    return write


def _size_of(n: int) -> int:
    """The fewest bytes of a number with its sign."""
    return ((n if n >= 0 else ~n).bit_length() // 8) + 1


def _writes_record(a: Avro, t: Struct) -> Write:
    fields: list[tuple[str | None, Write]] = []
    for f in a.fields:
        column = _column_of(f, a, t.fields)
        if column is not None:
            fields.append((column.name, _named(f, _writes(f.type, column.type))))
        else:
            fields.append((None, _writes_default(f)))

    def write(v: Any, out: bytearray) -> None:
        for name, one in fields:
            one(None if name is None else v[name], out)

    return write


def _named(f: AvroField, one: Write) -> Write:
    def write(v: Any, out: bytearray) -> None:
        try:
            one(v, out)
        except Unwritable as e:
            raise Unwritable(str(e) if str(e).startswith("field ") else f"field {f.name}: {e}") from None

    return write


def _column_of(f: AvroField, a: Avro, columns: Sequence[Column]) -> Column | None:
    return next((c for c in columns if a.field(c.name) is f), None)


def _writes_default(f: AvroField) -> Write:
    value = f.default
    if value is NO_DEFAULT or (value is None and not f.type.nullable):
        if not f.type.nullable:

            def refuse(v: Any, out: bytearray) -> None:
                raise Unwritable(f"field {f.name} has no value and no default")

            return refuse
        value = None
    body = bytearray()
    _put(f.type.real, value, body)
    return lambda v, out: out.extend(body)


def _put(a: Avro, value: Any, out: bytearray) -> None:
    """A default, which is JSON; that of a union is of its first branch, or null."""
    match a.kind:
        case "union":
            at = next((i for i, b in enumerate(a.branches) if b.kind == "null"), 0) if value is None else 0
            _long(at, out)
            _put(a.branches[at].real, value, out)
        case "null":
            pass
        case "record":
            for f in a.fields:
                _put(f.type.real, value.get(f.name, f.default), out)
        case "array" | "map":
            assert a.items is not None
            if value:
                _long(len(value), out)
            for x in value:
                if a.kind == "map":
                    _bytes(x.encode(), out)
                _put(a.items.real, x if a.kind == "array" else value[x], out)
            out.append(0)
        case "bytes":
            _bytes(value.encode("latin-1"), out)
        case "fixed":
            out += value.encode("latin-1")
        case "string":
            _bytes(value.encode(), out)
        case "enum":
            _long(a.symbols.index(value), out)
        case "boolean":
            out.append(1 if value else 0)
        case "float" | "double":
            _writes_real(a.kind)(value, out)
        case _:
            _long(value, out)


# ------------------------------------------------------------------ at once


def _at_once(frame: pl.DataFrame, columns: tuple[Column, ...], schema: Avro, bare: bool) -> pl.Series:
    import pyruhvro

    text, types = _target(schema)
    own = schema.real
    if own.kind == "union":
        raise Beyond
    if bare:
        arrays = [_for(plain(frame[columns[0].name], columns[0].type), schema, columns[0].type, types[0])]
    else:
        arrays = []
        for f, field in zip(own.fields, types, strict=True):
            c = _column_of(f, own, columns)
            if c is None:
                if f.default is not None or not f.type.nullable:
                    raise Beyond
                arrays.append(pa.nulls(frame.height, field.type))
            else:
                arrays.append(_for(plain(frame[c.name], c.type), f.type, c.type, field))
    batch = pa.RecordBatch.from_arrays(arrays, schema=types)
    made = pyruhvro.serialize_record_batch(batch, text, 1)
    return pl.Series("value", pa.chunked_array(made).cast(pa.large_binary()))


@lru_cache(maxsize=64)
def _target(schema: Avro) -> tuple[str, pa.Schema]:
    import pyruhvro

    made = rewritten(schema)
    if schema.real.kind != "record":
        made = {"type": "record", "name": "Top", "fields": [{"name": "f0", "type": made}]}
    text = json.dumps(made)
    return text, pyruhvro.avro_to_arrow_schema(text)


def _for(x: pa.Array, a: Avro, t: Type, field: pa.Field, among: pa.Array | None = None) -> pa.Array:
    """A column as pyruhvro wants it for a schema. `among`: the column it lies in, whose nulls it may share."""
    own = a.only
    if own is None or (a.real.kind == "union" and not a.nullable) or pa.types.is_union(field.type):
        raise Beyond
    if not a.nullable and x.null_count:
        alone = x.is_null() if among is None else pc.and_(x.is_null(), among.is_valid())
        if pc.any(alone).as_py():
            raise Beyond
    match t:
        case Array(element) if own.kind == "array" and own.items is not None:
            inner = _for(_values(x), own.items, element, field.type.value_field)
            return _list(x, inner, field.type)
        case Map(key, value) if own.entries is not None and own.kind == "array":
            return _list(x, _pairs(x, own, (key, value), field.type.value_field), field.type)
        case Struct(fields) if own.kind == "record":
            return _record(x, own, fields, field.type)
        case Decimal(scale=scale) if own.logical == "decimal" and own.kind == "bytes" and own.scale == scale:
            return _digits(x, own.precision)
    return _scalar(x, own, t)


def _values(x: pa.Array) -> pa.Array:
    """The elements of lists, those of null rows too."""
    return x.values


def _list(x: pa.Array, values: pa.Array, type: pa.DataType) -> pa.Array:
    offsets = x.offsets.cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=type, mask=x.is_null() if x.null_count else None)


def _pairs(x: pa.Array, a: Avro, types: tuple[Type, Type], field: pa.Field) -> pa.Array:
    entries, inside = a.entries, x.values
    assert entries is not None
    if a.items is None or a.items.real.kind != "record":
        raise Beyond
    if len(inside) != len(pc.unique(inside.field(0))):  # a key that stands twice in a row
        rows = pl.Series("x", x)
        if (rows.list.eval(pl.element().struct.field("key").n_unique()).list.first() < rows.list.len()).any():
            raise Beyond
    both = [
        _for(inside.field(i), f.type, t, field.type.field(i))
        for i, (f, t) in enumerate(zip(entries, types, strict=True))
    ]
    return pa.StructArray.from_arrays(both, fields=list(field.type))


def _record(x: pa.Array, a: Avro, columns: Sequence[Column], type: pa.DataType) -> pa.Array:
    made = []
    for i, f in enumerate(a.fields):
        c = _column_of(f, a, columns)
        if c is None and (f.default is not None or not f.type.nullable):
            raise Beyond
        inner = type.field(i)
        if c is None:
            made.append(pa.nulls(len(x), inner.type))
        else:
            place = [n.name for n in columns].index(c.name)
            made.append(_for(x.field(place), f.type, c.type, inner, x))
    return pa.StructArray.from_arrays(made, fields=list(type), mask=x.is_null() if x.null_count else None)


def _scalar(x: pa.Array, a: Avro, t: Type) -> pa.Array:
    match t, a.kind:
        case (S.BOOLEAN, "boolean"):
            return x
        case (S.VARCHAR, "string"):
            return x.cast(pa.string())
        case (S.BYTES, "bytes") if a.logical != "decimal":
            return x.cast(pa.binary()).view(pa.string())
        case (S.SMALLINT | S.INT | S.BIGINT, "int" | "long"):
            return x.cast(pa.int32()).cast(pa.int64()) if a.kind == "int" else x.cast(pa.int64())
        case (S.REAL | S.DOUBLE, "double"):
            return x.cast(pa.float64())
        case (S.REAL, "float"):
            return x
        case (S.DATE | S.TIME | S.TIMESTAMP | S.TIMESTAMPTZ, "int" | "long") if isinstance(t, Scalar):
            unit, per = WHOLE[t].unit, per_ms(a)
            numbers = pl.Series("x", x).cast(pl.Int64)
            if per > unit:  # nanoseconds of far times have more than 64 bits
                raise Beyond
            return (numbers // (unit // per)).to_arrow()
    raise Beyond


def _digits(x: pa.Array, precision: int) -> pa.Array:
    """Decimals as the fewest bytes of their digits, the highest first, shown as text."""
    x = x.cast(pa.decimal128(38, x.type.scale))
    raw = np.frombuffer(x.buffers()[1], np.uint8).reshape(-1, 16)[x.offset : x.offset + len(x), ::-1]
    fill = np.where(raw[:, 0] >= 0x80, 255, 0).astype(np.uint8)[:, None]
    spare = (raw[:, :-1] == fill) & ((raw[:, 1:] >= 0x80) == (fill >= 0x80))
    skip = np.cumprod(spare, axis=1).sum(axis=1)
    if x.null_count:
        skip = np.where(np.asarray(x.is_null()), 16, skip)
    keep = np.arange(16)[None, :] >= skip[:, None]
    offsets = np.concatenate([[0], np.cumsum(16 - skip)]).astype(np.int32)
    valid = x.is_valid()
    bits = pa.array(valid).buffers()[1] if x.null_count else None
    return pa.Array.from_buffers(
        pa.string(), len(x), [bits, pa.py_buffer(offsets.tobytes()), pa.py_buffer(raw[keep].tobytes())]
    )
