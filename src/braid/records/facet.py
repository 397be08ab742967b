"""How one facet of a record, its key or its value, is written.

In: what a declaration says. Out: a `Facet`, which `formats` reads and writes by.
Rule: in a format with schemas a facet is written by the schema that its columns get, or by the one that was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
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
