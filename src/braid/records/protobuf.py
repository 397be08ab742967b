"""Protobuf bodies into columns and back, by a message of a schema.

In: a Binary series and the declared columns, or typed columns; a schema. Out: `codec.Decoded`; bodies, and why a row
has none.
Rule: whole columns, by ptars; a batch that it refuses is halved until the bad records are found, so that they cost no
others. What is not set is 0, '', false or empty; a message, an `optional` and a wrapper are null. Behind the id of a
schema stands which of its messages it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context
from decimal import Decimal as Number
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from braid.records.codec import Decoded, clean, nothing, stack
from braid.records.columnar import arrow_type, finished, halved, listed, plain, singles, zigzag
from braid.records.proto_schema import DATE, DECIMAL, TIME, TIMESTAMP, File, entry_of
from braid.records.values import WHOLE, reader
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

S = Scalar
_EXACT = Context(prec=100)  # more digits than a DECIMAL has
Encoded = tuple[pl.Series, pl.Series]


@lru_cache(maxsize=64)
def _handler(file: File, name: str) -> Any:
    """What reads and writes the messages of a name."""
    import ptars

    config = ptars.PtarsConfig(timestamp_tz=None, timestamp_unit="us", enum_repr="string")
    return ptars.HandlerPool([file.descriptor], config=config).get_for_message(file.message(name))


# ------------------------------------------------------------------- reading


def split_indexes(body: bytes) -> tuple[tuple[int, ...], int] | None:
    """Which message a body holds, as places from the outside in, and where it begins; None where that is torn."""
    try:
        count, at = zigzag(body, 0)
        if count == 0:
            return (0,), at
        if not 0 < count <= 20:
            return None
        places = []
        for _ in range(count):
            place, at = zigzag(body, at)
            places.append(place)
        return tuple(places), at
    except (IndexError, ValueError):
        return None


def decode_framed(bodies: pl.Series, columns: Sequence[Column], file: File) -> Decoded:
    """The columns of bodies that begin with places of messages."""
    if bodies.bin.starts_with(b"\0").all():
        return decode_bodies(bodies.bin.slice(1), columns, file, file.message().full_name)
    return stack([_decode_one(b, columns, file) for b in bodies.to_list()])


def _decode_one(body: bytes, columns: Sequence[Column], file: File) -> Decoded:
    found = split_indexes(body)
    messages = file.messages()
    if found is None or len(found[0]) != 1 or not 0 <= found[0][0] < len(messages):
        return nothing(columns, 1, "its schema has no such message")
    return decode_bodies(pl.Series([body[found[1] :]]), columns, file, messages[found[0][0]].full_name)


def decode_bodies(bodies: pl.Series, columns: Sequence[Column], file: File, name: str) -> Decoded:
    """The columns of bodies of one message, none of which is null."""
    message = file.message(name)
    wrong = _misread(message, columns, "")
    if wrong is not None:
        return nothing(columns, len(bodies), wrong)

    def at_once(some: pa.Array) -> Decoded:
        found = _handler(file, name).array_to_record_batch(some)
        return clean(pl.DataFrame([finished(_of_field(found, message, c, len(some)), c) for c in columns]))

    def alone(_: pa.Array, e: BaseException | None) -> Decoded:
        return nothing(columns, 1, str(e).splitlines()[0] if str(e) else type(e).__name__)

    array = bodies.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.binary())
    return stack(halved(array, at_once, alone))


def _field(message: Any, name: str) -> Any:
    """A field of a message: an exact match first, then one without case."""
    return message.fields_by_name.get(name) or next((f for f in message.fields if f.name.lower() == name.lower()), None)


def _of_field(found: pa.RecordBatch, message: Any, c: Column, n: int) -> pa.Array:
    f = _field(message, c.name)
    return pa.nulls(n, arrow_type(c.type)) if f is None else _converted(found.column(f.name), f, c.type)


_READS: dict[Scalar, tuple[str, ...]] = {
    S.BOOLEAN: ("bool",), S.INT: ("int32",), S.BIGINT: ("int32", "int64", "uint32", "uint64"),
    S.DOUBLE: ("float", "double"), S.VARCHAR: ("string", "bool", "int32", "int64", "uint32", "uint64"),
    S.BYTES: ("binary",), S.DATE: ("date32",), S.TIME: ("time64",), S.TIMESTAMP: ("timestamp",),
    S.SMALLINT: ("int32",), S.REAL: ("float", "double"), S.TIMESTAMPTZ: ("timestamp",),
}  # fmt: skip


def _misread(message: Any, columns: Sequence[Column], path: str) -> str | None:
    """Why messages cannot be read as these columns."""
    for c in columns:
        f = _field(message, c.name)
        where = f"{path}.{c.name}" if path else c.name
        why = None if f is None else _wrong(f, c.type, where)
        if why is not None:
            return why
    return None


def _wrong(f: Any, t: Type, where: str) -> str | None:
    entry = entry_of(f)
    what = "a map" if entry is not None else f"repeated {_word(f)}" if f.is_repeated else f"{_word(f)}"
    wrong = f"field {where}: {what} is no {t}"
    match t:
        case S.NULL:
            return None
        case Map(_, value):
            return wrong if entry is None else _one_wrong(entry.fields_by_name["value"], value, f"{where}[]", wrong)
        case Array(element):
            return wrong if entry is not None or not f.is_repeated else _one_wrong(f, element, f"{where}[]", wrong)
    return wrong if f.is_repeated else _one_wrong(f, t, where, wrong)


def _word(f: Any) -> str:
    return str(f.message_type.full_name) if f.message_type is not None else _kind(f)


def _kind(f: Any) -> str:
    names = {
        1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "uint64", 7: "uint32", 8: "bool", 9: "string",
        12: "binary", 13: "uint32", 14: "string", 15: "int32", 16: "int64", 17: "int32", 18: "int64",
    }  # fmt: skip
    return names.get(f.type, "group")


_OF_MESSAGE = {f"google.protobuf.{name}Value": kind for name, kind in (
    ("Double", "double"), ("Float", "float"), ("Int64", "int64"), ("UInt64", "uint64"), ("Int32", "int32"),
    ("UInt32", "uint32"), ("Bool", "bool"), ("String", "string"), ("Bytes", "binary"),
)} | {DATE: "date32", TIME: "time64", TIMESTAMP: "timestamp"}  # fmt: skip


def _one_wrong(f: Any, t: Type, where: str, wrong: str) -> str | None:
    m = f.message_type
    if isinstance(t, Decimal):
        return None if m is not None and m.full_name == DECIMAL else wrong
    if isinstance(t, Struct):
        plain = m is not None and m.full_name not in _OF_MESSAGE
        return _misread(m, t.fields, where) if plain else wrong
    if not isinstance(t, Scalar):
        return wrong
    kind = _kind(f) if m is None else _OF_MESSAGE.get(m.full_name)
    return None if kind in _READS.get(t, ()) or t is S.NULL else wrong


def _converted(x: pa.Array, f: Any, t: Type) -> pa.Array:
    """A column as ptars gives it, in the physical form of `t`."""
    match t:
        case Map(_, value):
            entry = entry_of(f)
            keys, items = (x.keys, x.items) if pa.types.is_map(x.type) else (x.values.field(0), x.values.field(1))
            both = [keys.cast(pa.string()), _one(items, entry.fields_by_name["value"], value)]
            return listed(x, pa.StructArray.from_arrays(both, names=["key", "value"]))
        case Array(element):
            return listed(x, _one(x.values, f, element))
    return _one(x, f, t)


def _one(x: pa.Array, f: Any, t: Type) -> pa.Array:
    match t:
        case S.NULL:
            return pa.nulls(len(x), pa.null())
        case Decimal():
            return _decimals(x, t)
        case Struct(fields):
            if pa.types.is_binary(x.type):  # a message within itself comes as bytes
                raise ValueError(f"the message {f.message_type.full_name} holds itself: declare its columns without it")
            made = [_of_struct(x, f.message_type, c) for c in fields]
            return pa.StructArray.from_arrays(made, names=[c.name for c in fields], mask=x.is_null())
        case S.BIGINT:
            return x.cast(pa.int64(), safe=False)  # as Java has unsigned numbers
        case S.SMALLINT:
            return x.cast(pa.int16())  # refuses what is out of range
        case S.DOUBLE:
            return x.cast(pa.float64())
        case S.REAL:
            return singles(x)
        case S.VARCHAR:
            return x.cast(pa.string())
        case S.DATE:
            return x.cast(pa.int32())
        case S.TIME | S.TIMESTAMP | S.TIMESTAMPTZ:
            return x.cast(pa.int64())
    return x


def _of_struct(x: pa.Array, message: Any, c: Column) -> pa.Array:
    f = _field(message, c.name)
    return pa.nulls(len(x), arrow_type(c.type)) if f is None else _converted(x.field(f.name), f, c.type)


def _decimals(x: pa.Array, t: Decimal) -> pa.Array:
    """Messages of unscaled bytes and a scale."""
    fit, out = reader(t), list[Number | None]()
    for v in x.to_pylist():
        out.append(None if v is None else fit(f"{int.from_bytes(v['value'], 'big', signed=True)}e-{v['scale']}"))
    return pa.array(out, pa.decimal128(38, t.scale)).cast(pa.decimal128(t.precision, t.scale))


# ------------------------------------------------------------------- writing


def indexes(file: File, name: str) -> bytes:
    """Which message of the schema a body is, as it stands in front of one: the first is a single 0."""
    at = [m.full_name for m in file.messages()].index(file.message(name).full_name)
    return _varint(2) + _varint(2 * at) if at else b"\0"  # how many places, and the place, both zigzag


def _varint(n: int) -> bytes:
    return bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + _varint(n >> 7)


def encode_bodies(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], file: File, which: str = "") -> Encoded:
    """A body for each row, of the message `which`, else of the schema's first. A null within a list has no place."""
    message = file.message(which)
    handler = _handler(file, message.full_name)
    n = frame.height
    mine = [(name, c, _field(message, c.name)) for name, c in columns]
    errors = pl.repeat(None, n, dtype=pl.String, eager=True).rename("error")
    for name, c, f in mine:
        if f is None:
            return _nowhere(n, f"field {c.name} is not in the message {message.full_name}")
        wrong = _wrong(f, c.type, c.name)
        if wrong is not None:
            return _nowhere(n, wrong)
        holes = _holes(frame[name], c.type)
        if holes is not None:
            why = pl.lit(f"field {c.name}: PROTOBUF has no null within a list")
            errors = pl.select(pl.coalesce(pl.lit(errors), pl.when(pl.lit(holes)).then(why)).alias("error"))["error"]
    by_field = {f.name: (name, c) for name, c, f in mine}
    arrays = []
    for field in handler.schema():
        f = message.fields_by_name[field.name]
        if field.name in by_field:
            name, c = by_field[field.name]
            arrays.append(_for(plain(frame[name], c.type), f, c.type, field.type))
        else:
            arrays.append(_absent(n, field.type))
    made = handler.record_batch_to_array(pa.RecordBatch.from_arrays(arrays, schema=_nullable(handler.schema(), arrays)))
    bodies = pl.Series("value", made.cast(pa.large_binary()))
    return bodies.set(errors.is_not_null(), None), errors


def _nowhere(n: int, why: str) -> Encoded:
    return pl.repeat(None, n, dtype=pl.Binary, eager=True), pl.repeat(why, n, dtype=pl.String, eager=True)


def _nullable(schema: pa.Schema, arrays: Sequence[pa.Array]) -> pa.Schema:
    return pa.schema([pa.field(f.name, a.type) for f, a in zip(schema, arrays, strict=True)])


def _holes(s: pl.Series, t: Type) -> pl.Series | None:
    """Rows with a null within a list, at any depth."""
    if not _lists_in(t):
        return None
    found = pl.Series("holes", [_has_hole(v, t) for v in s.to_list()], dtype=pl.Boolean)
    return found if found.any() else None


def _lists_in(t: Type) -> bool:
    match t:
        case Array():
            return True
        case Map(_, value):
            return _lists_in(value)
        case Struct(fields):
            return any(_lists_in(f.type) for f in fields)
    return False


def _has_hole(v: Any, t: Type) -> bool:
    if v is None:
        return False
    match t:
        case Array(element):
            return any(x is None or _has_hole(x, element) for x in v)
        case Map(_, value):
            return any(_has_hole(e["value"], value) for e in v)
        case Struct(fields):
            return any(_has_hole(v[f.name], f.type) for f in fields)
    return False


def _absent(n: int, t: pa.DataType) -> pa.Array:
    """Values of a field that no column gives."""
    if pa.types.is_list(t) or pa.types.is_map(t):
        return pa.array([[]] * n, t)
    return pa.nulls(n, t)


def _for(x: pa.Array, f: Any, t: Type, want: pa.DataType) -> pa.Array:
    """A column as ptars wants it."""
    match t:
        case Map(_, value):
            return _map_for(x, f, value, want)
        case Array(element):
            values = _one_for(x.values, f, element, want.value_type)
            return pa.ListArray.from_arrays(x.offsets.cast(pa.int32()), values)  # a null list is an empty one
    return _one_for(x, f, t, want)


def _map_for(x: pa.Array, f: Any, value: Type, want: pa.DataType) -> pa.Array:
    entry, inside, offsets = entry_of(f), x.values, x.offsets.cast(pa.int32())
    of_value = entry.fields_by_name["value"]
    keys = inside.field(0).cast(pa.string())
    if pa.types.is_map(want):
        items = _one_for(inside.field(1), of_value, value, want.item_type)
        return pa.MapArray.from_arrays(offsets, pc.fill_null(keys, ""), items)
    items = _one_for(inside.field(1), of_value, value, want.value_type.field("value").type)
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([keys, items], names=["key", "value"]))


def _one_for(x: pa.Array, f: Any, t: Type, want: pa.DataType) -> pa.Array:
    match t:
        case Decimal(precision, scale):
            return _decimals_for(x, precision, scale)
        case Struct(fields):
            made = []
            for i in range(want.num_fields):
                field = want.field(i)
                inner = f.message_type.fields_by_name[field.name]
                at = next((j for j, c in enumerate(fields) if _field(f.message_type, c.name) is inner), None)
                if at is None:
                    made.append(_absent(len(x), field.type))
                else:
                    made.append(_for(x.field(at), inner, fields[at].type, field.type))
            names = [want.field(i).name for i in range(want.num_fields)]
            return pa.StructArray.from_arrays(made, names=names, mask=x.is_null() if x.null_count else None)
        case S.DATE:
            return x.cast(pa.int32()).cast(pa.date32())
        case S.TIME:
            return x.cast(pa.int64()).cast(pa.time64("ns"))
        case S.TIMESTAMP | S.TIMESTAMPTZ:
            unit = WHOLE[S.TIMESTAMP].unit  # as ksqlDB has it: milliseconds
            numbers = pl.Series("x", x).cast(pl.Int64)
            return (numbers // unit * unit).to_arrow().cast(pa.timestamp("us"))
    return x.cast(want)


def _decimals_for(x: pa.Array, precision: int, scale: int) -> pa.Array:
    unscaled = [None if v is None else _bytes_of(int(v.scaleb(scale, _EXACT))) for v in x.to_pylist()]
    made = [None if v is None else {"value": v, "precision": precision, "scale": scale} for v in unscaled]
    return pa.array(made, pa.struct([("value", pa.binary()), ("precision", pa.uint32()), ("scale", pa.int32())]))


def _bytes_of(n: int) -> bytes:
    return n.to_bytes(((n if n >= 0 else ~n).bit_length() // 8) + 1, "big", signed=True)
