"""JSON: the text of a topic is the format itself.

In: texts; columns. Out: see `Format`.
Rule: only here a dialect may let more pass than is written: `Manner`.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.records.codec import Decoded, decode_values, value_pieces
from braid.records.facet import Manner
from braid.records.formats.interface import Facet, Format, Named, Single
from braid.records.octets import checked, no_errors
from braid.records.texts import Piece
from braid.types import Column


class Plain(Format):
    """What is JSON as it stands."""

    def pieces(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> list[Piece]:
        return super().pieces(frame, columns, facet) if facet.bare else value_pieces(frame, columns)


class Json(Plain):
    @property
    def single(self) -> Single:
        return "either"

    def decode(self, texts: pl.Series, columns: Sequence[Column], facet: Facet, manner: Manner) -> Decoded:
        return decode_values(texts, columns, unwrapped=facet.bare, manner=manner)


class RowId(Plain):
    """The number of a row, or a key that a value may stand in for: what cannot be read is none."""

    of_values = False

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        return checked(data, "")[0], no_errors(len(data))
