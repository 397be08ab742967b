"""RAW: a key that is bytes, whatever they mean.

In: bytes of a broker; JSON texts of the store; one column of bytes. Out: see `Format`.
Rule: in the topics of the store a JSON string stands for the bytes of its text, {"base64": "..."} for those that are no
UTF-8, and any other JSON for its own text.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.records.codec import Decoded, utf8
from braid.records.facet import Manner
from braid.records.formats.interface import Facet, Format
from braid.records.octets import no_errors, unquoted
from braid.records.registry import Registry
from braid.records.values import json_text
from braid.types import Column, Scalar

ROW_ID = r'^\{"_row_id": ?([0-9]{1,19})\}$'  # the number of a row, as a key
_OTHER = r'^\{"base64": ?"([A-Za-z0-9+/=]*)"\}$'


class Raw(Format):
    of_values = False
    foreign = True

    def decode(self, texts: pl.Series, columns: Sequence[Column], facet: Facet, manner: Manner) -> Decoded:
        (column,) = columns
        return of_text(texts).alias(column.name).to_frame(), texts.is_null(), no_errors(len(texts))

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        texts = utf8(data)
        other = '{"base64": "' + data.set(texts.is_not_null(), None).bin.encode("base64") + '"}'
        return json_text(texts, Scalar.VARCHAR).zip_with(texts.is_not_null(), other), no_errors(len(data))

    def to_bytes(
        self, texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        return of_text(texts)


class RowKey(Raw):
    """The same beside numbers of rows that statements have written."""

    foreign = False

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        texts, errors = super().taken(data, columns)
        own = utf8(data)
        return own.zip_with(own.str.contains(ROW_ID).fill_null(False), texts), errors


def of_text(texts: pl.Series) -> pl.Series:
    """The bytes that JSON texts stand for."""
    other = texts.str.extract(_OTHER).str.decode("base64", strict=False)
    quoted = texts.str.starts_with('"').fill_null(False)
    plain = texts.cast(pl.Binary).zip_with(~quoted, unquoted(texts.set(~quoted, None)))
    return other.zip_with(other.is_not_null(), plain)
