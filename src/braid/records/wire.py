"""Keys and values as bytes on a broker: what the text formats write there.

In: bytes as they came, or the JSON texts that Braid works on (`formats`), and how the facet is written. Out: the other
of the two; why bytes are malformed.
Rule: JSON stands there as it is. DELIMITED and text is the text alone, a number in KAFKA's format so many bytes, big
endian, and here a JSON string or number. In formats with schemas (`framed`) who decodes has the bytes, and who looks
(`shown`) the JSON. What cannot be read is shown in base64, with its reason. A null is no bytes. Bytes of a facet that
nobody has declared, or reads, are JSON where they are, else text, else base64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from braid.records import formats, framed
from braid.records.codec import decode_values, utf8
from braid.records.facet import Encoding, Facet, KeyWindow
from braid.records.registry import Registry
from braid.records.values import json_text
from braid.types import Column, Scalar, Type

S = Scalar
NUMBERS: dict[Type, tuple[str, int, type[pl.DataType]]] = {
    S.INT: (">i4", 4, pl.Int32),
    S.BIGINT: (">i8", 8, pl.Int64),
    S.DOUBLE: (">f8", 8, pl.Float64),
}


@dataclass(frozen=True, slots=True)
class Wire:
    """How a key or a value is written. `type`: of the one value in KAFKA's format. `facet`, `columns`: in a format with
    schemas."""

    format: str
    type: Type | None = None
    facet: Facet | None = None
    columns: tuple[Column, ...] = ()


ANY = Wire("ANY")
BEHIND: Mapping[KeyWindow, tuple[str, ...]] = {"time": ("start",), "session": ("end", "start")}  # bounds behind a key


@dataclass(frozen=True, slots=True)
class Wires:
    """`window`: the kind of window that is part of the key."""

    key: Wire = ANY
    value: Wire = ANY
    window: KeyWindow | None = None


def wires(
    encoding: Encoding, keys: Sequence[Column], values: Sequence[Column], message_key: str | None = None
) -> Wires:
    """Of records with these columns. With a `message_key` the key is a text."""
    if not keys and message_key is not None:
        keys = [Column(message_key, S.VARCHAR)]
    return Wires(_wire(encoding, "key", keys), _wire(encoding, "value", values), encoding.window)


def _wire(encoding: Encoding, name: str, columns: Sequence[Column]) -> Wire:
    format = encoding.key if name == "key" else encoding.value
    if format == "NONE" or (format == "KAFKA" and not columns):
        return Wire("NONE")
    if name == "key" and not columns:
        return ANY
    if (format == "KAFKA" or name in encoding.binary) and len(columns) == 1:
        return Wire("KAFKA", columns[0].type)
    if format in framed.KINDS:
        count = len(columns)
        facet = encoding.of_keys(count) if name == "key" else encoding.of_values(count)
        return Wire(format, facet=facet, columns=tuple(columns))
    return Wire("ROW_ID" if name == "key" and encoding.key_in_value else format)


def of_bytes(data: pl.Series, wire: Wire) -> tuple[pl.Series, pl.Series]:
    """JSON texts, and why bytes are malformed (null where they are not). In formats with schemas the bytes."""
    match wire.format:
        case "NONE":
            return pl.repeat(None, len(data), dtype=pl.String, eager=True), _nothing(len(data))
        case "KAFKA":
            return _of_binary(data, wire.type)
        case "DELIMITED":
            return _of_text(data)
        case "ANY":
            return _of_any(data), _nothing(len(data))
        case "ROW_ID":
            return _checked(data, utf8(data), "")[0], _nothing(len(data))
        case "JSON":
            return _checked(data, utf8(data), "it is not UTF-8")
    return data, _nothing(len(data))


def shown(data: pl.Series, wire: Wire, registry: Registry | None) -> tuple[pl.Series, pl.Series]:
    """JSON texts for people, and why bytes are malformed. Where nobody has declared them, a schema id in front of them
    tells what they are."""
    if wire.facet is not None:
        texts, error = formats.shown(data, wire.columns, wire.facet, registry)
        return _checked(data, texts, error)
    texts, error = of_bytes(data, wire)
    if wire.format != "ANY" or registry is None:
        return texts, error
    headed = (data.bin.starts_with(b"\0") & (data.bin.size() > framed.HEAD)).fill_null(False)
    if not headed.any():
        return texts, error
    places = headed.arg_true()
    found, _ = framed.texts(data.gather(places), registry)
    either = pl.DataFrame({"a": found, "b": texts.gather(places)}).select(pl.coalesce("a", "b"))["a"]
    return texts.scatter(places, either), error


def to_bytes(texts: pl.Series, wire: Wire, registry: Registry | None = None, topic: str = "") -> pl.Series:
    """Bytes of JSON texts that were made by `formats.encode`, or by a person; what are bytes already stay."""
    if texts.dtype == pl.Binary:
        return texts
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
    assert wire.facet is not None
    return formats.to_bytes(texts, wire.columns, wire.facet, registry, topic)


def with_windows(keys: pl.Series, windows: pl.Series, kind: KeyWindow | None) -> pl.Series:
    """Keys as Kafka Streams writes them: bounds behind the key, 8 bytes each. A key without a window stands alone, and
    each where windows are no part of keys (None)."""
    if kind is None:
        return keys
    parts = [keys, *(_big_endian(windows.struct.field(b), S.BIGINT) for b in BEHIND[kind])]
    blobs = [x.to_arrow().cast(pa.large_binary()) for x in parts]
    whole = pl.Series("k", pc.binary_join_element_wise(*blobs, pa.scalar(b"", pa.large_binary())))
    return whole.zip_with(windows.is_not_null(), keys)


def without_windows(keys: pl.Series, kind: KeyWindow | None) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Such keys and their windows apart; and why a key has none. A window of `time` has no end."""
    if kind is None:
        return keys, pl.repeat(None, len(keys), dtype=pl.Null, eager=True), _nothing(len(keys))
    size = keys.bin.size().cast(pl.Int64).fill_null(0)
    bounds = BEHIND[kind]
    tail = 8 * len(bounds)
    short = size < tail
    found = pl.DataFrame([keys.set(short, None).alias("k"), (size - tail).clip(0).alias("n")])
    number = {
        b: pl.col("k").bin.slice(pl.col("n") + 8 * i, 8).bin.reinterpret(dtype=pl.Int64, endianness="big")
        for i, b in enumerate(bounds)
    }
    end = number.get("end", pl.lit(None, pl.Int64))
    made = found.select(
        pl.col("k").bin.slice(0, pl.col("n")).alias("k"),
        pl.when(pl.col("k").is_not_null()).then(pl.struct(start=number["start"], end=end)).alias("w"),
    )
    why = pl.select(pl.when(short).then(pl.lit("no window follows it")).alias("e"))["e"]
    return made["k"].zip_with(~short, keys), made["w"], why


def _value(texts: pl.Series, t: Type) -> pl.Series:
    return decode_values(texts, [Column("x", t)], unwrapped=True)[0]["x"]


def prefixed(prefix: str, error: pl.Series) -> pl.Series:
    return prefix + error if error.null_count() < len(error) else error


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


def _checked(data: pl.Series, texts: pl.Series, why: str | pl.Series) -> tuple[pl.Series, pl.Series]:
    """The texts, in base64 where there is none; and `why`, there."""
    if texts.null_count() == data.null_count():
        return texts, _nothing(len(data))
    bad = texts.is_null() & data.is_not_null()
    encoded = json_text(data.set(~bad, None).bin.encode("base64"), S.VARCHAR)
    reasons = pl.repeat(why, len(data), dtype=pl.String, eager=True) if isinstance(why, str) else why
    frame = pl.DataFrame({"t": texts, "s": encoded, "b": bad, "w": reasons})
    return (
        frame.select(pl.coalesce("t", "s").alias("t"))["t"],
        frame.select(pl.when("b").then("w").otherwise(None).cast(pl.String).alias("e"))["e"],
    )


def _of_any(data: pl.Series) -> pl.Series:
    """As people read it: JSON, text, base64."""
    texts = utf8(data)
    texts = texts.set(texts.str.contains(_NO_TEXT).fill_null(False), None)
    found, _ = _checked(data, texts, "")
    fine = texts.is_null() | found.str.json_path_match("$").is_not_null() | (texts == "null")
    return found.zip_with(fine.fill_null(True), json_text(found, S.VARCHAR))


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
