"""No key at all.

In: anything. Out: nulls.
Rule: what stands there is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.records.formats.interface import Facet, Format
from braid.records.octets import no_errors
from braid.records.registry import Registry
from braid.types import Column


class Nothing(Format):
    of_values = False

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        return no_errors(len(data)), no_errors(len(data))

    def to_bytes(
        self, texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        return pl.repeat(None, len(texts), dtype=pl.Binary, eager=True)
