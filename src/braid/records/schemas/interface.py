"""What a kind of schemas is: how bodies are read and written by one, and what it says of columns.

In: bodies of records and columns; schemas and what they refer to. Out: columns; bodies, and why a row has none; types;
texts of schemas.
Rule: a kind knows bodies alone. What stands in front of a body is told in `framed`; `head` is the kind's part of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from braid.records.codec import Decoded
from braid.records.facet import RecordSchema
from braid.records.registry import Schema
from braid.types import Column, Scalar, Type

Others = tuple[tuple[str, str], ...]  # names and texts of what a schema refers to, the farthest first
Encoded = tuple[pl.Series, pl.Series]  # bytes; errors, null where there are some


@dataclass(frozen=True)
class Kind(ABC):
    """`name`: what a registry calls it. `messages`: a body is one of several messages of its schema, also where it is
    of one column. `refuses`: rows of the types that a schema was made of may have no place in it. `lone`: the text of
    a schema can stand in a file."""

    name: ClassVar[str]
    messages: ClassVar[bool] = False
    refuses: ClassVar[bool] = False
    lone: ClassVar[bool] = False

    # -- records --------------------------------------------------------------------------------------------------

    @abstractmethod
    def decoded(
        self, bodies: pl.Series, columns: Sequence[Column], schema: Schema, others: Others, bare: bool
    ) -> Decoded:
        """The columns of bodies."""

    def unframed(
        self,
        bodies: pl.Series,
        columns: Sequence[Column],
        schema: Schema,
        others: Others,
        bare: bool,
        chosen: RecordSchema | None,
    ) -> Decoded:
        """The same of bodies that stood behind an id, with their `head`. `chosen`: the schema of the declaration."""
        return self.decoded(bodies, columns, schema, others, bare)

    @abstractmethod
    def encoded(
        self, frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], schema: Schema, others: Others, bare: bool
    ) -> Encoded:
        """The bodies of rows."""

    def head(self, schema: Schema, others: Others) -> bytes:
        """What stands between the id and a body."""
        return b""

    def message_of(self, body: bytes, schema: Schema, others: Others) -> str:
        """Which message of a schema a body with its `head` is; the first one where that is torn."""
        return ""

    # -- schemas --------------------------------------------------------------------------------------------------

    @abstractmethod
    def text_of(self, columns: Sequence[Column], name: str, bare: bool, nulls: str) -> str:
        """The text of the schema that columns are written by; `name`: the full one of its record."""

    def record_name(self, facet: str, name: str) -> str:
        """The full name of the record that the keys, or values, of a stream or table are."""
        return ""

    @abstractmethod
    def type_of(
        self, schema: Schema, others: Others, fold: bool, name: str = "", float: Scalar = Scalar.DOUBLE
    ) -> tuple[Type | None, bool]:
        """The type of what a schema holds, None where there is none; and whether that is a record. `fold`: names become
        upper case. `name`: which message. `float`: what a number of 32 bits is."""

    def completed(self, text: str, schema: Schema, others: Others) -> str:
        """A JSON text with the defaults of the fields that it has not."""
        return text

    def check(self, text: str) -> None:  # noqa: B027
        """Refuses the text of a file that is no schema."""

    def unnameable(self, columns: Sequence[Column]) -> str | None:
        """The first name, at any depth, that the kind does not take."""
        return None

    def unholdable(self, columns: Sequence[Column]) -> Column | None:
        """The first column that the kind has no form for."""
        return None

    @abstractmethod
    def misfit(self, new: Schema, of_new: Others, old: Schema, of_old: Others) -> str | None:
        """Why who reads by a new schema could not read what was written by an old one."""
