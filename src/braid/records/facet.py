"""How one facet of a record, its key or its value, is written.

In: what a declaration says. Out: a `Facet`, which `formats` reads and writes by.
Rule: in a format with schemas a facet is written by the schema that its columns get, or by the one that was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Format = Literal[
    "JSON", "DELIMITED", "KAFKA", "NONE", "ROW_ID", "AVRO", "JSON_SR", "PROTOBUF", "AVRO_NOSR", "PROTOBUF_NOSR"
]  # fmt: skip
# How JSON is read. plain: dates and times are numbers; iso: or ISO text; lenient: a number may be a text, and a whole
# one loses what is behind its point.
Manner = Literal["plain", "iso", "lenient"]
KeyWindow = Literal["time", "session"]  # what stands behind keys that windows are parts of
ALONE = ("AVRO_NOSR", "PROTOBUF_NOSR")  # no schema id stands in front of a record
PROTOBUFS = ("PROTOBUF", "PROTOBUF_NOSR")  # a facet is a message, also of one column


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The schema of a facet: made of the columns, its record called `name`; or the one that was chosen by its `id`: its
    text, and names and texts of those (`others`) that it uses. `nulls`: how Protobuf tells null from 0."""

    name: str
    id: int | None = None
    text: str = ""
    others: tuple[tuple[str, str], ...] = ()
    nulls: Literal["", "OPTIONAL", "WRAPPER"] = ""


@dataclass(frozen=True, slots=True)
class Facet:
    """`name`: key or value, as subjects are called. `bare`: it is the value of the only column."""

    name: Literal["key", "value"]
    format: Format
    bare: bool
    delimiter: str = ","
    schema: RecordSchema | None = None

    @property
    def others(self) -> tuple[tuple[str, str], ...]:
        return self.schema.others if self.schema is not None else ()


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the records of a topic are written.

    `key` ROW_ID: the only key column numbers the rows; where the key does not give it (`decode.key_of`), it is made of
    partition and offset. `key_in_value`: a record without a key has its key columns in its value. `iso`: dates and
    times may be ISO text, besides numbers. `lenient`: numbers may be texts, and whole ones have fractions.
    `key_schema`, `value_schema`: only in formats that have schemas. `binary`: facets (key, value) that are one value,
    which stands on a broker as its serializer writes it and not as JSON; elsewhere that makes no difference. `window`:
    keys are followed by one of this kind. `key_delimiter`: of keys, where it is another than that of values.
    """

    key: Format = "JSON"
    value: Format = "JSON"
    delimiter: str = ","  # of DELIMITED values
    wrapped: bool = True  # False: a single value column is the bare value
    key_in_value: bool = False
    iso: bool = False
    lenient: bool = field(default=False, repr=False)
    key_schema: RecordSchema | None = field(default=None, repr=False)
    value_schema: RecordSchema | None = field(default=None, repr=False)
    binary: tuple[str, ...] = field(default=(), repr=False)
    window: KeyWindow | None = field(default=None, repr=False)
    key_delimiter: str = field(default=",", repr=False)

    @property
    def manner(self) -> Manner:
        """How its JSON is read."""
        return "iso" if self.iso else "lenient" if self.lenient else "plain"

    def bare(self, values: int) -> bool:
        """Whether a record's value is that of its only column, and no object."""
        return values == 1 and (not self.wrapped or self.value == "KAFKA")

    def of_keys(self, columns: int) -> Facet:
        """How keys of so many columns are written."""
        return Facet("key", self.key, columns == 1 and self.key not in PROTOBUFS, self.key_delimiter, self.key_schema)

    def of_values(self, columns: int) -> Facet:
        return Facet("value", self.value, self.bare(columns), self.delimiter, self.value_schema)
