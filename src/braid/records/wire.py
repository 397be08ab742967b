"""Keys and values as bytes on a broker: what the text formats write there.

In: bytes as they came, or the JSON texts that Braid works on (`formats`), and how the facet is written. Out: the other
of the two; why bytes are malformed.
Rule: JSON stands there as it is. DELIMITED and text is the text alone, a number in KAFKA's format so many bytes, big
endian, and here a JSON string or number. What cannot be read is shown in base64, with its reason. A null is no bytes.
Bytes of a facet that nobody has declared are JSON where they are, else text, else base64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from braid.errors import BraidError
from braid.plan.logical import Encoding
from braid.records.codec import decode_values, utf8
from braid.records.values import json_text
from braid.types import Column, Scalar, Type

S = Scalar
BYTES = ("JSON", "DELIMITED", "KAFKA", "NONE", "ROW_ID")  # the formats that have bytes without a schema
NUMBERS: dict[Type, tuple[str, int, type[pl.DataType]]] = {
    S.INT: (">i4", 4, pl.Int32),
    S.BIGINT: (">i8", 8, pl.Int64),
    S.DOUBLE: (">f8", 8, pl.Float64),
}


@dataclass(frozen=True, slots=True)
class Wire:
    """How a key or a value is written. `type`: of the one value in KAFKA's format."""

    format: str
    type: Type | None = None


ANY = Wire("ANY")


@dataclass(frozen=True, slots=True)
class Wires:
    key: Wire = ANY
    value: Wire = ANY


def wires(encoding: Encoding, columns: Iterable[tuple[str, Type]], message_key: str | None = None) -> Wires:
    """Of records with these columns: key or value, and type. With a `message_key` the key is a text."""
    columns = list(columns)
    keys = [t for place, t in columns if place == "key"] or [S.VARCHAR] * (message_key is not None)
    return Wires(_wire(encoding, "key", keys), _wire(encoding, "value", [t for p, t in columns if p == "value"]))


def _wire(encoding: Encoding, name: str, types: Sequence[Type]) -> Wire:
    format = encoding.key if name == "key" else encoding.value
    if (format == "KAFKA" or name in encoding.binary) and len(types) == 1:
        return Wire("KAFKA", types[0])
    return Wire("NONE" if format == "NONE" or (format == "KAFKA" and not types) else format)


def no_registry(format: str) -> BraidError:
    """That a format cannot be read or written on a broker."""
    hint = "write JSON, DELIMITED or KAFKA; without --kafka the store's own registry holds the schemas"
    return BraidError(f"{format} needs a schema registry, which --kafka does not take yet", hint)


def of_bytes(data: pl.Series, wire: Wire) -> tuple[pl.Series, pl.Series]:
    """JSON texts, and why bytes are malformed (null where they are not)."""
    match wire.format:
        case "NONE":
            return pl.repeat(None, len(data), dtype=pl.String, eager=True), _nothing(len(data))
        case "KAFKA":
            return _of_binary(data, wire.type)
        case "DELIMITED":
            return _of_text(data)
        case "ANY":
            return _of_any(data), _nothing(len(data))
        case "JSON" | "ROW_ID":
            return _checked(data, utf8(data), "it is not UTF-8")
    raise no_registry(wire.format)


def to_bytes(texts: pl.Series, wire: Wire) -> pl.Series:
    """Bytes of JSON texts that were made by `formats.encode`, or by a person."""
    match wire.format:
        case "NONE":
            return pl.repeat(None, len(texts), dtype=pl.Binary, eager=True)
        case "KAFKA":
            assert wire.type is not None
            values = _value(texts, wire.type)
            return _big_endian(values, wire.type) if wire.type in NUMBERS else values.cast(pl.Binary)
        case "DELIMITED":
            return _value(texts, S.VARCHAR).cast(pl.Binary)
        case "ANY":
            strings = (texts.str.starts_with('"')).fill_null(False)
            plain = _value(texts.set(~strings, None), S.VARCHAR)
            return texts.zip_with(~strings, plain).cast(pl.Binary)
        case "JSON" | "ROW_ID":
            return texts.cast(pl.Binary)
    raise no_registry(wire.format)


def _value(texts: pl.Series, t: Type) -> pl.Series:
    return decode_values(texts, [Column("x", t)], unwrapped=True)[0]["x"]


def _nothing(height: int) -> pl.Series:
    return pl.repeat(None, height, dtype=pl.String, eager=True)


def _of_text(data: pl.Series) -> tuple[pl.Series, pl.Series]:
    texts = utf8(data)
    made, error = _checked(data, texts, "it is not UTF-8")
    return json_text(texts, S.VARCHAR).zip_with(error.is_null(), made), error


def _of_binary(data: pl.Series, t: Type | None) -> tuple[pl.Series, pl.Series]:
    if t is S.BYTES:
        return json_text(data, S.BYTES), _nothing(len(data))
    if t is None or t not in NUMBERS:
        return _of_text(data)
    _, size, dtype = NUMBERS[t]
    fits = (data.bin.size() == size).fill_null(False)
    values = data.set(~fits, None).bin.reinterpret(dtype=dtype, endianness="big")
    return _checked(data, json_text(values, t), f"it does not have the {size} bytes of {t}")


def _checked(data: pl.Series, texts: pl.Series, why: str) -> tuple[pl.Series, pl.Series]:
    """The texts, in base64 where there is none; and `why`, there."""
    if texts.null_count() == data.null_count():
        return texts, _nothing(len(data))
    bad = texts.is_null() & data.is_not_null()
    shown = json_text(data.set(~bad, None).bin.encode("base64"), S.VARCHAR)
    frame = pl.DataFrame({"t": texts, "s": shown, "b": bad})
    return (
        frame.select(pl.coalesce("t", "s").alias("t"))["t"],
        frame.select(pl.when("b").then(pl.lit(why)).otherwise(None).cast(pl.String).alias("e"))["e"],
    )


def _of_any(data: pl.Series) -> pl.Series:
    """As people read it: JSON, text, base64."""
    texts = utf8(data)
    texts = texts.set(texts.str.contains(_NO_TEXT).fill_null(False), None)
    shown, _ = _checked(data, texts, "")
    fine = texts.is_null() | shown.str.json_path_match("$").is_not_null() | (texts == "null")
    return shown.zip_with(fine.fill_null(True), json_text(shown, S.VARCHAR))


def _big_endian(values: pl.Series, t: Type) -> pl.Series:
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


# ------------------------------------------------------------------- partitions


_NO_TEXT = r"[\x00-\x08\x0e-\x1f]"  # nobody writes these in a text

M, R = np.uint32(0x5BD1E995), np.uint32(24)


def murmur2(keys: pl.Series) -> pl.Series:
    """The hash by which Kafka's Java client partitions (seed 0x9747b28c), as UInt32; null for null."""
    sizes = keys.bin.size()
    made = np.zeros(len(keys), np.uint32)
    for size in sizes.drop_nulls().unique().to_list():
        at = (sizes == size).fill_null(False).arg_true().to_numpy()
        raw = b"".join(keys.gather(at).to_list())
        made[at] = _hashes(np.frombuffer(raw, np.uint8).reshape(len(at), size) if size else None, size, len(at))
    return pl.Series("h", made, dtype=pl.UInt32).set(keys.is_null(), None)


def _hashes(
    data: np.ndarray[Any, np.dtype[np.uint8]] | None, size: int, count: int
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    h = np.full(count, np.uint32(0x9747B28C) ^ np.uint32(size), np.uint32)
    with np.errstate(over="ignore"):
        if data is not None:
            whole = size // 4 * 4
            words = np.ascontiguousarray(data[:, :whole]).view("<u4")
            for i in range(whole // 4):
                k = words[:, i] * M
                k ^= k >> R
                k *= M
                h *= M
                h ^= k
            rest = data[:, whole:].astype(np.uint32)
            for i in reversed(range(size - whole)):
                h ^= rest[:, i] << np.uint32(8 * i)
            if size > whole:
                h *= M
        h ^= h >> np.uint32(13)
        h *= M
        h ^= h >> np.uint32(15)
    return h


def kafka_partition(keys: pl.Series, partitions: int) -> pl.Series:
    """Where the Java producer puts a record with this key; null without one."""
    return ((murmur2(keys) & 0x7FFFFFFF) % partitions).cast(pl.Int32)
