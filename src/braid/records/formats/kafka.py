"""KAFKA: one value as Kafka's own serializers write it.

In: bytes of one column; its values. Out: see `Format`.
Rule: a number is so many bytes, the highest first; a text is itself, and so are bytes. NaN is one NaN, whatever its
bits. No value passes through JSON, but for people.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from braid.records.codec import Decoded, utf8
from braid.records.formats.interface import Facet, Format, Named, Texts
from braid.records.octets import checked, no_errors, value_of
from braid.records.registry import Registry
from braid.records.values import json_text
from braid.types import Column, Scalar, Type

S = Scalar
NUMBERS: dict[Type, tuple[str, int, type[pl.DataType]]] = {
    S.INT: (">i4", 4, pl.Int32),
    S.BIGINT: (">i8", 8, pl.Int64),
    S.DOUBLE: (">f8", 8, pl.Float64),
}


class Kafka(Format):
    grouped = False
    binary = True

    def holds(self, t: Type) -> bool:
        return t in NUMBERS or t in (S.VARCHAR, S.BYTES)

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        (column,) = columns
        return data, _values(data, column.type)[1]

    def decode_bytes(
        self, data: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None
    ) -> Decoded:
        (column,) = columns
        values, error = _values(data, column.type)
        return values.alias(column.name).to_frame(), data.is_null().alias("is_null_value"), error

    def encode_bytes(
        self, frame: pl.DataFrame, columns: Named, facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        ((name, column),) = columns
        return _bytes(frame.get_column(name), column.type)

    def shown(self, data: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None) -> Texts:
        (column,) = columns
        values, error = _values(data, column.type)
        return checked(data, error, json_text(values, column.type))

    def to_bytes(
        self, texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        (column,) = columns
        return _bytes(value_of(texts, column.type), column.type)


def _values(data: pl.Series, t: Type) -> tuple[pl.Series, pl.Series]:
    """The values of bytes, null where they are none; and why, there."""
    if t is S.BYTES:
        return data, no_errors(len(data))
    if t not in NUMBERS:
        texts = utf8(data)
        return texts, _where(texts.is_null() & data.is_not_null(), "it is not UTF-8")
    _, size, dtype = NUMBERS[t]
    bad = data.bin.size() != size
    error = _where(bad, f"it does not have the {size} bytes of {t}")
    values = (data.set(bad, None) if bad.any() else data).bin.reinterpret(dtype=dtype, endianness="big")
    return values.fill_nan(math.nan) if t is S.DOUBLE else values, error


def _where(bad: pl.Series, why: str) -> pl.Series:
    """The reason where it is so."""
    return pl.select(pl.when(bad).then(pl.lit(why)).alias("error"))["error"] if bad.any() else no_errors(len(bad))


def _bytes(values: pl.Series, t: Type) -> pl.Series:
    return big_endian(values, t) if t in NUMBERS else values.cast(pl.Binary)


def big_endian(values: pl.Series, t: Type) -> pl.Series:
    form, size, _ = NUMBERS[t]
    values = values.fill_nan(math.nan) if t is S.DOUBLE else values
    present = values.drop_nulls().to_numpy().astype(form)
    made = _pieces(np.frombuffer(present.tobytes(), np.uint8), size)
    if not values.null_count():
        return made
    place = values.is_not_null().cast(pl.UInt32).cum_sum() - 1
    return made.gather(place.set(values.is_null(), None)) if len(made) else made.extend_constant(None, len(values))


def _pieces(data: np.ndarray[Any, np.dtype[np.uint8]], size: int) -> pl.Series:
    """Bytes in pieces of one size."""
    count = len(data) // size
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, pa.py_buffer(data.tobytes())])
    return pl.Series(array)
