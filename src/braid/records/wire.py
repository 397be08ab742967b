"""Keys and values on a broker: bytes of each facet, windows behind keys, partitions.

In: bytes as they came, or JSON texts; how the facet is written. Out: what is decoded, and why bytes are malformed;
texts for people; bytes.
Rule: what bytes are, the format of the facet knows. Bytes of a facet that nobody has declared, or reads, are JSON where
they are, else text, else base64; where a schema id stands in front of them, it tells what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from braid.records import framed
from braid.records.codec import utf8
from braid.records.encoding import Encoding
from braid.records.facet import KeyWindow
from braid.records.formats.interface import Facet
from braid.records.formats.kafka import big_endian
from braid.records.formats.named import NONE, ROW_ID
from braid.records.octets import checked, no_errors, unquoted
from braid.records.registry import Registry
from braid.records.values import json_text
from braid.types import Column, Scalar

S = Scalar


@dataclass(frozen=True, slots=True)
class Wire:
    """How a key or a value is written; without a `facet` nobody has declared it."""

    facet: Facet | None = None
    columns: tuple[Column, ...] = ()


ANY = Wire()
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
    of_key, of_value = encoding.of_keys(len(keys)), encoding.of_values(len(values))
    if encoding.key_in_value and of_key.format.schemas is None:
        of_key = replace(of_key, format=ROW_ID)
    known = keys or of_key.format == NONE
    return Wires(Wire(of_key, tuple(keys)) if known else ANY, Wire(of_value, tuple(values)), encoding.window)


def of_bytes(data: pl.Series, wire: Wire) -> tuple[pl.Series, pl.Series]:
    """What is decoded, JSON texts or the bytes as they are, and why bytes are malformed (null where they are not)."""
    if wire.facet is None:
        return _of_any(data), no_errors(len(data))
    return wire.facet.format.taken(data, wire.columns)


def shown(data: pl.Series, wire: Wire, registry: Registry | None) -> tuple[pl.Series, pl.Series]:
    """JSON texts for people, and why bytes are malformed."""
    if wire.facet is not None:
        return wire.facet.format.shown(data, wire.columns, wire.facet, registry)
    texts, error = _of_any(data), no_errors(len(data))
    if registry is None:
        return texts, error
    headed = (data.bin.starts_with(b"\0") & (data.bin.size() > framed.HEAD)).fill_null(False)
    if not headed.any():
        return texts, error
    places = headed.arg_true()
    found, _ = framed.texts(data.gather(places), registry)
    either = pl.DataFrame({"a": found, "b": texts.gather(places)}).select(pl.coalesce("a", "b"))["a"]
    return texts.scatter(places, either), error


def to_bytes(texts: pl.Series, wire: Wire, registry: Registry | None = None, topic: str = "") -> pl.Series:
    """Bytes of JSON texts that a person wrote, or a format."""
    if wire.facet is not None:
        return wire.facet.format.to_bytes(texts, wire.columns, wire.facet, registry, topic)
    strings = (texts.str.starts_with('"')).fill_null(False)
    return texts.cast(pl.Binary).zip_with(~strings, unquoted(texts.set(~strings, None)))


def with_windows(keys: pl.Series, windows: pl.Series, kind: KeyWindow | None) -> pl.Series:
    """Keys as Kafka Streams writes them: bounds behind the key, 8 bytes each. A key without a window stands alone, and
    each where windows are no part of keys (None)."""
    if kind is None:
        return keys
    parts = [keys, *(big_endian(windows.struct.field(b), S.BIGINT) for b in BEHIND[kind])]
    blobs = [x.to_arrow().cast(pa.large_binary()) for x in parts]
    whole = pl.Series("k", pc.binary_join_element_wise(*blobs, pa.scalar(b"", pa.large_binary())))
    return whole.zip_with(windows.is_not_null(), keys)


def without_windows(keys: pl.Series, kind: KeyWindow | None) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Such keys and their windows apart; and why a key has none. A window of `time` has no end."""
    if kind is None:
        return keys, pl.repeat(None, len(keys), dtype=pl.Null, eager=True), no_errors(len(keys))
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


def prefixed(prefix: str, error: pl.Series) -> pl.Series:
    return prefix + error if error.null_count() < len(error) else error


def _of_any(data: pl.Series) -> pl.Series:
    """As people read it: JSON, text, base64."""
    texts = utf8(data)
    texts = texts.set(texts.str.contains(_NO_TEXT).fill_null(False), None)
    found, _ = checked(data, "", texts)
    fine = texts.is_null() | found.str.json_path_match("$").is_not_null() | (texts == "null")
    return found.zip_with(fine.fill_null(True), json_text(found, S.VARCHAR))


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
