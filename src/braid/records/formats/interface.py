"""What a format is: how a key or a value of it looks as JSON text and as bytes, and what it holds.

In: typed columns; texts or bytes of records, and their `Facet`. Out: a frame with the columns, which rows have a null
value, why a row is malformed; texts or bytes.
Rule: the topics of the store hold JSON texts in every format, a broker holds bytes. A person is shown JSON and gives
JSON, wherever the topic lies. Who reads and writes asks the format, and not which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from braid.records import texts
from braid.records.codec import Decoded, decode_values, encode_values
from braid.records.facet import Manner, RecordSchema
from braid.records.octets import checked
from braid.records.registry import Registry, Schema
from braid.records.schemas.interface import Kind
from braid.records.texts import Piece
from braid.types import Array, Column, Map, Scalar, Struct, Type

Named = Sequence[tuple[str, Column]]  # columns of a frame, and the fields that they become
Texts = tuple[pl.Series, pl.Series]  # JSON texts, and why there is none
# How one column stands: as the declaration says, alone or in a record of its name; always alone; as a record; as a line
# of one field.
Single = Literal["either", "value", "record", "line"]


@dataclass(frozen=True, slots=True)
class Facet:
    """How keys, or values, are written. `name`: key or value, as subjects are called. `bare`: it is the value of the
    only column."""

    name: Literal["key", "value"]
    format: Format
    bare: bool
    delimiter: str = ","
    schema: RecordSchema | None = None

    @property
    def others(self) -> tuple[tuple[str, str], ...]:
        return self.schema.others if self.schema is not None else ()

    def decode(
        self, raw: pl.Series, columns: Sequence[Column], manner: Manner = "plain", registry: Registry | None = None
    ) -> Decoded:
        """The columns of texts, or of bytes."""
        if raw.dtype == pl.Binary:
            return self.format.decode_bytes(raw, columns, self, registry)
        return self.format.decode(raw, columns, self, manner)


@dataclass(frozen=True)
class Format:
    """`dialects`: those in which it has this name. The facts of a class: `of_values`: values may be written so, and not
    only keys; `grouped`: values may be joined and grouped in ksqlDB; `delimited`: a declaration chooses the character
    between fields; `binary`: numbers sort as their bytes do; `rewritten`: a text may be another one when it has been
    written and read; `foreign`: another program writes it into topics, nobody else, and no file is read so.

    As it stands here a format is JSON, as text and as bytes."""

    name: str
    dialects: tuple[str, ...]

    of_values: ClassVar[bool] = True
    grouped: ClassVar[bool] = True
    delimited: ClassVar[bool] = False
    binary: ClassVar[bool] = False
    rewritten: ClassVar[bool] = False
    foreign: ClassVar[bool] = False

    @property
    def single(self) -> Single:
        return "value"

    @property
    def whole(self) -> bool:
        """Whether a column is not read without the others of its facet."""
        return self.single in ("value", "line")

    @property
    def schemas(self) -> Kind | None:
        """The kind of its schemas, if it has some."""
        return None

    @property
    def registered(self) -> bool:
        """Whether its schemas stand in a registry."""
        return False

    def written_by(self, columns: Sequence[Column], facet: Facet) -> Schema | None:
        """The schema that columns are written by, if there is one."""
        return None

    def holds(self, t: Type) -> bool:
        """Whether a column may be of this type."""
        return not keyed_otherwise(t)

    def shape(self, wrapped: bool, delimiter: str) -> str:
        """What values are, for messages."""
        return "objects" if wrapped and self.single != "value" else "single values"

    # -- texts ----------------------------------------------------------------------------------------------------

    def decode(self, texts: pl.Series, columns: Sequence[Column], facet: Facet, manner: Manner) -> Decoded:
        """The columns of texts. Numbers lose nothing, whatever a dialect lets pass in JSON."""
        return decode_values(texts, columns, unwrapped=facet.bare, manner="texts" if manner == "lenient" else manner)

    def encode(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series:
        """The text of each row. What has no place in a schema is null."""
        return encode_values(frame, columns, unwrapped=facet.bare)

    def pieces(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> list[Piece]:
        """The same in pieces of rows of text; null as `null`."""
        return [texts.Column(self.encode(frame, columns, facet))]

    def may_refuse(self, facet: Facet) -> bool:
        """Whether rows of the declared types may have no place."""
        return False

    def unwritable(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series | None:
        """Why there is no place for a row, null where there is one; None: every row has one."""
        return None

    # -- bytes ----------------------------------------------------------------------------------------------------

    def taken(self, data: pl.Series, columns: Sequence[Column]) -> tuple[pl.Series, pl.Series]:
        """What is decoded of bytes that have come: texts, or the bytes; and why bytes are malformed."""
        return checked(data, "it is not UTF-8")

    def decode_bytes(
        self, data: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None
    ) -> Decoded:
        """The columns of bytes that were `taken` as they are."""
        raise NotImplementedError(f"{self.name} is read as text")

    def encode_bytes(
        self, frame: pl.DataFrame, columns: Named, facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        """The bytes of each row."""
        return self.to_bytes(self.encode(frame, columns, facet), [c for _, c in columns], facet, registry, topic)

    # -- for people -----------------------------------------------------------------------------------------------

    def shown(self, data: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None) -> Texts:
        """JSON texts of bytes, base64 where there is none, and why."""
        return self.taken(data, columns)

    def to_bytes(
        self, texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
    ) -> pl.Series:
        """Bytes of JSON texts that `encode` has made, or a person."""
        return texts.cast(pl.Binary)

    def completed(self, text: str, columns: Sequence[Column], facet: Facet) -> str:
        """A JSON text with what its schema gives where it has nothing."""
        return text


def nested(t: Type) -> bool:
    return isinstance(t, Array | Map | Struct)


def keyed_otherwise(t: Type) -> bool:
    """Is there a MAP in it whose keys are no texts?"""
    match t:
        case Map(key, value):
            return key is not Scalar.VARCHAR or keyed_otherwise(value)
        case Array(element):
            return keyed_otherwise(element)
        case Struct(fields):
            return any(keyed_otherwise(f.type) for f in fields)
    return False
