"""Formats with schemas.

In: columns, and the schema that they get or that was chosen; bytes; a registry. Out: see `Format`.
Rule: they are bytes where there is a broker. In the topics of the store they are JSON that has been through the bytes
once. A record is written by the schema that its columns get, or by the one that was chosen; what another producer has
written by a later version is read all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from braid.errors import BraidError
from braid.records import framed
from braid.records.codec import Decoded, decode_values, encode_values
from braid.records.facet import Manner
from braid.records.formats.interface import Facet, Format, Named, Single, Texts
from braid.records.malformed import cut
from braid.records.octets import checked, no_errors
from braid.records.registry import Registry, Schema, subject_of
from braid.records.schemas.interface import Kind, Others
from braid.types import Column


@dataclass(frozen=True)
class Schemed(Format):
    """`kind`: of its schemas. `framed`: the id of its schema, which a registry has, stands in front of each record."""

    kind: Kind
    framed: bool = True

    rewritten = True

    @property
    def single(self) -> Single:
        return "record" if self.kind.messages else "either"

    @property
    def whole(self) -> bool:
        return not (self.framed or self.kind.messages)

    @property
    def schemas(self) -> Kind:
        return self.kind

    @property
    def registered(self) -> bool:
        return self.framed

    def shape(self, wrapped: bool, delimiter: str) -> str:
        if not self.framed:
            return super().shape(wrapped, delimiter)
        return f"{self.name} {'records' if wrapped else 'values'}"

    def written_by(self, columns: Sequence[Column], facet: Facet) -> Schema:
        assert facet.schema is not None
        s = facet.schema
        if not s.text:
            return Schema(self.kind.name, self.kind.text_of(columns, s.name, facet.bare, s.nulls))
        return Schema(self.kind.name, s.text, message=s.name if self.kind.messages else "")

    # -- texts ----------------------------------------------------------------------------------------------------

    def decode(self, texts: pl.Series, columns: Sequence[Column], facet: Facet, manner: Manner) -> Decoded:
        if facet.schema is not None and facet.schema.text:
            texts = self._completed(texts, self.written_by(columns, facet), facet.others)
        return super().decode(texts, columns, facet, manner)

    def encode(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series:
        if not columns:
            return super().encode(frame, columns, facet)
        schema = self.written_by([c for _, c in columns], facet)
        whole = facet.schema is not None and facet.schema.id is not None  # with the fields that no column gives
        found, held, why = framed.passed(frame, columns, schema, facet.others, bare=facet.bare, whole=whole)
        if not whole and not self.kind.refuses and why.null_count() < len(why):  # it was made for these columns
            raise RuntimeError(f"{self.name}: {why.drop_nulls()[0]}")
        return encode_values(found, [(c.name, c) for c in held], unwrapped=facet.bare)

    def may_refuse(self, facet: Facet) -> bool:
        return facet.schema is not None and (facet.schema.id is not None or self.kind.refuses)

    def unwritable(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series | None:
        if not columns or not self.may_refuse(facet):
            return None
        schema = self.written_by([c for _, c in columns], facet)
        _, errors = framed.encode(frame, columns, schema, facet.others, None, bare=facet.bare)
        return errors if errors.null_count() < len(errors) else None

    def completed(self, text: str, columns: Sequence[Column], facet: Facet) -> str:
        return self.kind.completed(text, self.written_by(columns, facet), facet.others)

    def _completed(self, texts: pl.Series, schema: Schema, others: Others) -> pl.Series:
        made = [t if t is None else self.kind.completed(t, schema, others) for t in texts]
        return pl.Series(made, dtype=pl.String)

    # -- bytes ----------------------------------------------------------------------------------------------------

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        return data, no_errors(len(data))

    def decode_bytes(
        self, data: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None
    ) -> Decoded:
        if not self.framed:
            return framed.decode_alone(data, columns, self.kind, bare=facet.bare, schema=facet.schema)
        there = self._there(registry)
        return framed.decode(data, columns, there, self.kind, bare=facet.bare, chosen=facet.schema)

    def encode_bytes(
        self, frame: pl.DataFrame, columns: Named, facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        if not columns:
            return super().encode_bytes(frame, columns, facet, registry, topic)
        schema = self.written_by([c for _, c in columns], facet)
        id = facet.schema.id if facet.schema is not None else None
        if id is None and self.framed:
            id = self._there(registry).register(subject_of(topic, facet.name), schema)
        return framed.encode(frame, columns, schema, facet.others, id, bare=facet.bare)[0]

    def _there(self, registry: Registry | None) -> Registry:
        """The registry, refused where there is none."""
        if registry is None:
            raise BraidError(f"{self.name} needs a schema registry", framed.NAME_IT)
        return registry

    # -- for people -----------------------------------------------------------------------------------------------

    def shown(self, data: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None) -> Texts:
        if self.framed:
            chosen = facet.schema is not None and facet.schema.id is not None  # then it has more fields than columns
            own = None if chosen else (self.written_by(columns, facet), columns, facet.bare)
            texts, why = framed.texts(data, self._there(registry), own)
        else:
            frame, null, why = self.decode_bytes(data, columns, facet, registry)
            made = encode_values(frame, [(c.name, c) for c in columns], unwrapped=facet.bare)
            texts = made.set(null | why.is_not_null(), None)
        return checked(data, why, texts)

    def to_bytes(
        self, texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        """By the last schema of the topic, else by that of the columns. What does not fit is refused."""
        id, schema, others, bare = None, self.written_by(columns, facet), facet.others, facet.bare
        if self.framed:
            there, subject = self._there(registry), subject_of(topic, facet.name)
            chosen = facet.schema.id if facet.schema is not None else None
            latest = there.latest(subject) if chosen is None else (chosen, schema)
            if latest is not None and latest[1].kind == schema.kind and latest[1].text != schema.text:
                name = facet.schema.name if facet.schema is not None and self.kind.messages else ""
                id, schema = latest[0], replace(latest[1], message=name)
                others = framed.others_of(there, schema)
                columns, bare = framed.columns_of(schema, others, name)
            elif chosen is not None:
                id, (columns, bare) = chosen, framed.columns_of(schema, others, schema.message)
            else:
                id = there.register(subject, schema)
        frame, null, why = decode_values(self._completed(texts, schema, others), columns, unwrapped=bare)
        named = [(c.name, c) for c in columns]
        made, unfit = framed.encode(frame, named, schema, others, id, bare=bare)
        wrong = pl.DataFrame({"a": why, "b": unfit.set(null, None)}).select(pl.coalesce("a", "b"))["a"]
        for text, reason in zip(texts, wrong, strict=True):
            if reason is not None:
                raise BraidError(f"the {facet.name} {cut(text)} does not fit its schema: {reason}", "check its fields")
        return made.set(null, None)
