"""Tables of Arrow, as lakes take them.

In: the shape of a result, staged rows. Out: a schema; rows in just these types.
Rule: a type that a lake does not have is refused with its column, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.sinks.staged import Shape
from braid.types import Array, Decimal, Map, Scalar, Struct, Type

S = Scalar


@dataclass(frozen=True)
class Lake:
    """`name`: for people; `types`: those of its columns, but for DECIMAL and what nests."""

    name: str
    types: Mapping[Type, pa.DataType]


DELTA = Lake(
    "Delta",
    {
        S.BOOLEAN: pa.bool_(),
        S.SMALLINT: pa.int16(),
        S.INT: pa.int32(),
        S.BIGINT: pa.int64(),
        S.REAL: pa.float32(),
        S.DOUBLE: pa.float64(),
        S.VARCHAR: pa.string(),
        S.BYTES: pa.binary(),
        S.JSONB: pa.string(),
        S.DATE: pa.date32(),
        S.TIMESTAMP: pa.timestamp("us"),
        S.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    },
)
ICEBERG = Lake("Iceberg", {**DELTA.types, S.SMALLINT: pa.int32(), S.TIME: pa.time64("us")})


def arrow_schema(name: str, shape: Shape, lake: Lake) -> pa.Schema:
    """Of the result `name`."""
    return pa.schema([pa.field(c.name, _type(f"{name}: {lake.name}", c.name, c.type, lake)) for c in shape.columns])


def arrow_of(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    return frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema)


def check_schema(table: str, there: pa.Schema, schema: pa.Schema) -> None:
    """Refuses a table that is there and cannot hold the columns."""
    known = {f.name: _small(f.type) for f in there}
    for f in schema:
        if f.name not in known:
            raise BraidError(f"the table {table} has no column {f.name}", "add it, or name another table")
        if known[f.name] != _small(f.type):
            what = f"{table}: {f.name} is {known[f.name]} there, and {f.type} here"
            raise BraidError(what, "name a table that is not there yet")
    more = next((f.name for f in there if not f.nullable and f.name not in schema.names), None)
    if more is not None:
        raise BraidError(f"{table}: {more} needs a value, and the result has no such column", "name another table")


def _small(t: pa.DataType) -> pa.DataType:
    """The type without 64-bit offsets, names of elements and what else does not change its values."""
    if pa.types.is_large_string(t):
        return pa.string()
    if pa.types.is_large_binary(t):
        return pa.binary()
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return pa.list_(pa.field("element", _small(t.value_type)))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(f.name, _small(f.type)) for f in t])
    return t


def _type(says: str, column: str, t: Type, lake: Lake) -> pa.DataType:
    def inside(t: Type) -> pa.DataType:
        return _type(says, column, t, lake)

    match t:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Array(element):
            return pa.list_(inside(element))
        case Struct(fields):
            return pa.struct([pa.field(f.name, inside(f.type)) for f in fields])
        case Map(key, value):
            return pa.list_(pa.struct([pa.field("key", inside(key)), pa.field("value", inside(value))]))
    if t not in lake.types:
        raise BraidError(f"{says} has no type for the column {column}, {t}", "cast it to VARCHAR")
    return lake.types[t]
