"""KAFKA: one value as Kafka's own serializers write it.

In: bytes of one column; its values. Out: see `Format`.
Rule: a number is so many bytes, the highest first; a text is itself, and so are bytes. NaN is one NaN, whatever its
bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from braid.records.formats.interface import Facet, Format
from braid.records.octets import checked, no_errors, quoted, value_of
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

    def holds(self, t: Type) -> bool:
        return t in NUMBERS or t in (S.VARCHAR, S.BYTES)

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        (column,) = columns
        return _texts(data, column.type)

    def to_bytes(
        self, texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        (column,) = columns
        values = value_of(texts, column.type)
        return big_endian(values, column.type) if column.type in NUMBERS else values.cast(pl.Binary)


def _texts(data: pl.Series, t: Type) -> tuple[pl.Series, pl.Series]:
    if t is S.BYTES:
        return json_text(data, S.BYTES), no_errors(len(data))
    if t not in NUMBERS:
        return quoted(data)
    _, size, dtype = NUMBERS[t]
    fits = (data.bin.size() == size).fill_null(False)
    values = data.set(~fits, None).bin.reinterpret(dtype=dtype, endianness="big")
    return checked(data, f"it does not have the {size} bytes of {t}", json_text(values, t))


def big_endian(values: pl.Series, t: Type) -> pl.Series:
    form, size, _ = NUMBERS[t]
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
    return pl.Series(array.cast(pa.binary()))
