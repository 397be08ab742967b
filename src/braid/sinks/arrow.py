"""Tables of Arrow, as lakes take them.

In: the shape of a result, staged rows. Out: a schema; rows in just these types.
Rule: a type that a lake does not have is refused with its column, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.sinks.staged import Shape
from braid.types import Array, Decimal, Map, Scalar, Struct, Type

S = Scalar
TYPES: Mapping[Type, pa.DataType] = {
    S.BOOLEAN: pa.bool_(),
    S.SMALLINT: pa.int16(),
    S.INT: pa.int32(),
    S.BIGINT: pa.int64(),
    S.REAL: pa.float32(),
    S.DOUBLE: pa.float64(),
    S.VARCHAR: pa.string(),
    S.BYTES: pa.binary(),
    S.DATE: pa.date32(),
    S.TIMESTAMP: pa.timestamp("us"),
    S.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}


def arrow_schema(name: str, shape: Shape, lake: str, times: bool = False) -> pa.Schema:
    """`lake`: its name, for people; `times`: whether it has times of a day, and no integers of 16 bits."""
    return pa.schema([pa.field(c.name, _type((name, c.name, lake), c.type, times)) for c in shape.columns])


def arrow_of(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    return frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema)


def small(t: pa.DataType) -> pa.DataType:
    """The type without 64-bit offsets, names of elements and what else does not change its values."""
    if pa.types.is_large_string(t):
        return pa.string()
    if pa.types.is_large_binary(t):
        return pa.binary()
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return pa.list_(pa.field("element", small(t.value_type)))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(f.name, small(f.type)) for f in t])
    return t


def _type(at: tuple[str, str, str], t: Type, times: bool) -> pa.DataType:
    match t:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Array(element):
            return pa.list_(_type(at, element, times))
        case Struct(fields):
            return pa.struct([pa.field(f.name, _type(at, f.type, times)) for f in fields])
        case Map(key, value):
            return pa.list_(
                pa.struct([pa.field("key", _type(at, key, times)), pa.field("value", _type(at, value, times))])
            )
        case S.TIME if times:
            return pa.time64("us")
        case S.SMALLINT if times:
            return pa.int32()
    if t not in TYPES:
        name, column, lake = at
        raise BraidError(f"{name}: {lake} has no type for the column {column}, {t}", "cast it to VARCHAR")
    return TYPES[t]
