"""Formats whose records are lines of fields.

In: lines; columns. Out: see `Format`.
Rule: a line is no JSON, so it stands in its topic as a JSON string. Columns are told by their places. A format of this
kind says how lines are `read` and `written`, and what a field holds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import polars as pl

from braid.records.codec import Decoded, decode_values, encode_values
from braid.records.facet import Manner
from braid.records.formats.interface import Facet, Format, Named, Single, nested
from braid.records.octets import quoted, unquoted
from braid.records.registry import Registry
from braid.types import Column, Scalar, Type

_LINE = [Column("line", Scalar.VARCHAR)]
_PLAIN_STRING = r'^"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"$'  # JSON that every reader reads alike


class Lines(Format):
    rewritten = True

    @property
    def single(self) -> Single:
        return "line"

    @abstractmethod
    def read(self, lines: pl.Series, columns: Sequence[Column], facet: Facet) -> Decoded:
        """The columns of lines."""

    @abstractmethod
    def written(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series:
        """The line of each row."""

    def holds(self, t: Type) -> bool:
        return not nested(t)

    def shape(self, wrapped: bool, delimiter: str) -> str:
        return f"{self.name} lines"

    def decode(self, texts: pl.Series, columns: Sequence[Column], facet: Facet, manner: Manner) -> Decoded:
        return self.read(_lines(texts), columns, facet)

    def encode(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series:
        if not columns:
            return super().encode(frame, columns, facet)
        lines = self.written(frame, columns, facet)
        return encode_values(lines.alias("line").to_frame(), [("line", _LINE[0])], unwrapped=True)

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        return quoted(data)

    def to_bytes(
        self, texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        return unquoted(texts)


def _lines(texts: pl.Series) -> pl.Series:
    """The lines that JSON strings hold; what is none stays as it is."""
    strings = (texts.str.starts_with('"') & texts.str.ends_with('"')).fill_null(False)
    if not strings.any():
        return texts
    plain = texts.str.contains(_PLAIN_STRING).fill_null(False)
    lines = texts.set(~plain, None).str.json_decode(pl.String)
    odd = (strings & ~plain).arg_true()
    if len(odd):
        lines = lines.scatter(odd, decode_values(texts.gather(odd), _LINE, unwrapped=True)[0]["line"])
    return pl.DataFrame({"a": lines, "b": texts}).select(pl.coalesce("a", "b"))["a"]
