"""Bytes of a broker that are text, as JSON texts and back.

In: bytes; JSON texts. Out: JSON texts, and why bytes are malformed (null where they are not); the text of JSON strings.
Rule: what cannot be read is shown in base64, with its reason. A null is no bytes.
"""

from __future__ import annotations

import polars as pl

from braid.records.codec import decode_values, utf8
from braid.records.values import json_text
from braid.types import Column, Scalar, Type


def no_errors(height: int) -> pl.Series:
    return pl.repeat(None, height, dtype=pl.String, eager=True)


def checked(data: pl.Series, why: str | pl.Series, texts: pl.Series | None = None) -> tuple[pl.Series, pl.Series]:
    """The texts (those that the bytes are, where none are given), in base64 where there is none; and `why`, there."""
    texts = utf8(data) if texts is None else texts
    if texts.null_count() == data.null_count():
        return texts, no_errors(len(data))
    bad = texts.is_null() & data.is_not_null()
    encoded = json_text(data.set(~bad, None).bin.encode("base64"), Scalar.VARCHAR)
    reasons = pl.repeat(why, len(data), dtype=pl.String, eager=True) if isinstance(why, str) else why
    frame = pl.DataFrame({"t": texts, "s": encoded, "b": bad, "w": reasons})
    return (
        frame.select(pl.coalesce("t", "s").alias("t"))["t"],
        frame.select(pl.when("b").then("w").otherwise(None).cast(pl.String).alias("e"))["e"],
    )


def quoted(data: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Texts as JSON strings."""
    texts = utf8(data)
    made, error = checked(data, "it is not UTF-8", texts)
    return json_text(texts, Scalar.VARCHAR).zip_with(error.is_null(), made), error


def value_of(texts: pl.Series, t: Type) -> pl.Series:
    """The values of bare JSON texts."""
    return decode_values(texts, [Column("x", t)], unwrapped=True)[0]["x"]


def unquoted(texts: pl.Series) -> pl.Series:
    """The bytes of the texts that JSON strings hold."""
    return value_of(texts, Scalar.VARCHAR).cast(pl.Binary)
