"""JSON Schema.

In: bodies of JSON text, columns, schemas. Out: see `Kind`.
Rule: bodies and schemas are read and written in `json_sr`.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.records import json_sr
from braid.records.codec import Decoded
from braid.records.registry import Schema
from braid.records.schemas.interface import Encoded, Kind, Others
from braid.types import Column, Scalar, Type


class JsonKind(Kind):
    name = "JSON"

    def decoded(
        self, bodies: pl.Series, columns: Sequence[Column], schema: Schema, others: Others, bare: bool
    ) -> Decoded:
        return json_sr.decode_bodies(bodies, columns, bare=bare)

    def encoded(
        self, frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], schema: Schema, others: Others, bare: bool
    ) -> Encoded:
        bodies = json_sr.encode_bodies(frame, columns, bare=bare)
        return bodies, pl.repeat(None, frame.height, dtype=pl.String, eager=True)

    def text_of(self, columns: Sequence[Column], name: str, bare: bool, nulls: str) -> str:
        return json_sr.schema_of(columns, bare=bare)

    def type_of(
        self, schema: Schema, others: Others, fold: bool, name: str = "", float: Scalar = Scalar.DOUBLE
    ) -> tuple[Type | None, bool]:
        return json_sr.type_of(schema.text, others, fold)

    def misfit(self, new: Schema, of_new: Others, old: Schema, of_old: Others) -> str | None:
        now, before = self.type_of(new, of_new, fold=False)[0], self.type_of(old, of_old, fold=False)[0]
        return json_sr.unreadable(now, before)
