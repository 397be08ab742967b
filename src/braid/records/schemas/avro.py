"""Avro.

In: bodies of Avro's binary encoding, columns, schemas. Out: see `Kind`.
Rule: readers and writers are in `avro` and `avro_write`, schemas in `avro_schema`. The full names of records are
ksqlDB's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import polars as pl

from braid.expr.json_text import compact, loads
from braid.records import avro_schema
from braid.records.avro_schema import Avro
from braid.records.codec import Decoded
from braid.records.facet import RecordSchema
from braid.records.registry import Schema
from braid.records.schemas.interface import Encoded, Kind, Others
from braid.types import Column, Scalar, Type


@lru_cache(maxsize=256)
def parsed(text: str, others: Others = ()) -> Avro:
    return avro_schema.parsed(text, [t for _, t in others])


class AvroKind(Kind):
    name = "AVRO"
    lone = True

    def decoded(
        self, bodies: pl.Series, columns: Sequence[Column], schema: Schema, others: Others, bare: bool
    ) -> Decoded:
        return self.unframed(bodies, columns, schema, others, bare, None)

    def unframed(
        self,
        bodies: pl.Series,
        columns: Sequence[Column],
        schema: Schema,
        others: Others,
        bare: bool,
        chosen: RecordSchema | None,
    ) -> Decoded:
        from braid.records.avro import decode_bodies

        reader = parsed(chosen.text, chosen.others) if chosen is not None and chosen.text else None
        return decode_bodies(bodies, columns, parsed(schema.text, others), bare=bare, chosen=reader)

    def encoded(
        self, frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], schema: Schema, others: Others, bare: bool
    ) -> Encoded:
        from braid.records.avro_write import encode_bodies

        return encode_bodies(frame, columns, parsed(schema.text, others), bare=bare)

    def text_of(self, columns: Sequence[Column], name: str, bare: bool, nulls: str) -> str:
        return avro_schema.schema_of(columns, name, bare=bare)

    def record_name(self, facet: str, name: str) -> str:
        camel = "".join(part.capitalize() for part in name.split("_"))
        return avro_schema.VALUE_NAME if facet == "value" else f"{avro_schema.NAMESPACE}.{camel}Key"

    def type_of(
        self, schema: Schema, others: Others, fold: bool, name: str = "", float: Scalar = Scalar.DOUBLE
    ) -> tuple[Type | None, bool]:
        own = parsed(schema.text, others)
        return avro_schema.type_of(own, fold, float), own.only is not None and own.only.kind == "record"

    def completed(self, text: str, schema: Schema, others: Others) -> str:
        try:
            doc = loads(text)
        except (ValueError, RecursionError):
            return text
        return compact(avro_schema.with_defaults(parsed(schema.text, others), doc))

    def check(self, text: str) -> None:
        parsed(text)

    def unnameable(self, columns: Sequence[Column]) -> str | None:
        return avro_schema.unnameable(columns)

    def misfit(self, new: Schema, of_new: Others, old: Schema, of_old: Others) -> str | None:
        return avro_schema.unreadable(parsed(new.text, of_new), parsed(old.text, of_old))
