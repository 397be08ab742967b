"""Protobuf.

In: bodies that are messages, columns, schemas. Out: see `Kind`.
Rule: readers and writers are in `protobuf`, schemas in `proto_schema`; both are imported where they are needed, as
Google's library comes with them. A body behind an id tells by its `head` which message of the file it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.records import avro_schema
from braid.records.codec import Decoded
from braid.records.facet import RecordSchema
from braid.records.registry import Schema
from braid.records.schemas.interface import Encoded, Kind, Others
from braid.types import Column, Scalar, Type


class ProtobufKind(Kind):
    name = "PROTOBUF"
    messages = True
    refuses = True  # a list that holds a null

    def decoded(
        self, bodies: pl.Series, columns: Sequence[Column], schema: Schema, others: Others, bare: bool
    ) -> Decoded:
        from braid.records import protobuf
        from braid.records.proto_schema import file_of

        file = file_of(schema.text, others)
        return protobuf.decode_bodies(bodies, columns, file, file.message(schema.message).full_name)

    def unframed(
        self,
        bodies: pl.Series,
        columns: Sequence[Column],
        schema: Schema,
        others: Others,
        bare: bool,
        chosen: RecordSchema | None,
    ) -> Decoded:
        from braid.records import protobuf
        from braid.records.proto_schema import file_of

        return protobuf.decode_framed(bodies, columns, file_of(schema.text, others))

    def encoded(
        self, frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], schema: Schema, others: Others, bare: bool
    ) -> Encoded:
        from braid.records import protobuf
        from braid.records.proto_schema import file_of

        return protobuf.encode_bodies(frame, columns, file_of(schema.text, others), schema.message)

    def head(self, schema: Schema, others: Others) -> bytes:
        from braid.records.proto_schema import file_of
        from braid.records.protobuf import indexes

        return indexes(file_of(schema.text, others), schema.message)

    def message_of(self, body: bytes, schema: Schema, others: Others) -> str:
        from braid.records.proto_schema import file_of
        from braid.records.protobuf import split_indexes

        found, messages = split_indexes(body), file_of(schema.text, others).messages()
        at = found[0][0] if found is not None else 0
        return str(messages[at].full_name) if 0 <= at < len(messages) else ""

    def text_of(self, columns: Sequence[Column], name: str, bare: bool, nulls: str) -> str:
        from braid.records import proto_schema

        return proto_schema.schema_of(columns, name, nulls)

    def type_of(
        self, schema: Schema, others: Others, fold: bool, name: str = "", float: Scalar = Scalar.DOUBLE
    ) -> tuple[Type | None, bool]:
        from braid.records import proto_schema

        file = proto_schema.file_of(schema.text, others)
        return proto_schema.type_of(file, file.message(name), fold, float), True

    def unnameable(self, columns: Sequence[Column]) -> str | None:
        return avro_schema.unnameable(columns)

    def unholdable(self, columns: Sequence[Column]) -> Column | None:
        from braid.records.proto_schema import unholdable

        return next((c for c in columns if unholdable(c.type) is not None), None)

    def misfit(self, new: Schema, of_new: Others, old: Schema, of_old: Others) -> str | None:
        from braid.records import proto_schema

        now, before = (proto_schema.file_of(x.text, o).message() for x, o in ((new, of_new), (old, of_old)))
        return proto_schema.unreadable(now, before)
