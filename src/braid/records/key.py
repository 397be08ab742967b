"""Canonical key bytes, version 1, and their hash: the same for ever.

In: a frame and its key columns. Out: a String series (the UTF-8 of it are the key bytes), UInt64 hashes (xxh3_64).
Rule: one key column gives its JSON (`1`, `"abc"`), several a JSON object in declared order without blanks
(docs/files-and-topics.md, "Partitions"). -0.0 is 0.0, NaN is "NaN". A change here breaks every store and checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import polars_hash as plh

from braid.records.texts import Piece
from braid.records.values import in_json, json_object, json_text
from braid.types import Column, Scalar, Type

_PLAIN = (pl.Int32, pl.Int64, pl.Boolean)
BITS: dict[Type, type[np.unsignedinteger]] = {
    Scalar.INT: np.uint32,
    Scalar.BIGINT: np.uint64,
    Scalar.DOUBLE: np.uint64,
}


def canonical_key(frame: pl.DataFrame, columns: Sequence[Column]) -> pl.Series:
    """The key text of each row; null where the one key column, or every one of several, is null."""
    if len(columns) == 1:
        return json_text(frame.get_column(columns[0].name), columns[0].type, key=True).rename("key")
    if not columns:
        return pl.Series("key", [None] * frame.height, dtype=pl.String)
    texts = [_text(frame.get_column(c.name), c.type) for c in columns]
    out = json_object([c.name for c in columns], texts, frame.height).rename("key")
    missing = [t.values.is_null() for t in texts if not isinstance(t, str)]
    if len(missing) < len(texts):
        return out
    nothing = pl.select(pl.all_horizontal(missing)).to_series()
    return out.set(nothing, None) if nothing.any() else out


def _text(values: pl.Series, t: Type) -> Piece:
    """The JSON of values; one text where they are all the same, as the constant is that stands beside a key."""
    one = values.head(1)
    if values.dtype in _PLAIN and one.len() and one[0] is not None and values.eq_missing(one[0]).all():
        return str(json_text(one, t, key=True)[0])
    return in_json(values, t, key=True)


def byte_order(frame: pl.DataFrame, columns: Sequence[Column], binary: bool) -> pl.Series:
    """A text of each key that sorts as its bytes do, none below 0x20. `binary`: the number of one column is written as
    bytes, the highest first."""
    numbers = BITS.get(columns[0].type) if binary and len(columns) == 1 else None
    if numbers is None:
        return canonical_key(frame, columns).fill_null("")
    bits = pl.Series(frame.get_column(columns[0].name).to_numpy().view(numbers))
    return bits.cast(pl.String).str.zfill(20)


def key_hash(series: pl.Series) -> pl.Series:
    """xxh3_64 of the UTF-8 of each key text; null for null."""
    return series.to_frame("s").select(plh.col("s").nchash.xxh3_64().alias(series.name)).to_series()


def key_partition(texts: pl.Series, partitions: int) -> pl.Series:
    """The partition of each key text; 0 for null."""
    return (key_hash(texts) % partitions).fill_null(0).cast(pl.Int64)
