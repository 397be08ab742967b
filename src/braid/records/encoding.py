"""How the records of a topic are written.

In: what a declaration says. Out: an `Encoding`, which plans hold; the `Facet`s that records are read and written by.
Rule: an encoding has the names of formats, as a plan is written down; a facet has the formats.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from braid.records.facet import KeyWindow, Manner, RecordSchema
from braid.records.formats.interface import Facet, Format
from braid.records.formats.named import FORMATS, KAFKA, NONE, ROW_KEY


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the records of a topic are written: the names of the formats of key and value.

    `key` ROW_ID: the only key column numbers the rows; where the key does not give it (`decode.key_of`), it is made of
    partition and offset. `key_in_value`: a record without a key has its key columns in its value. `iso`: dates and
    times may be ISO text, besides numbers. `lenient`: numbers may be texts, and whole ones have fractions.
    `key_schema`, `value_schema`: only in formats that have schemas. `binary`: facets (key, value) that are one value,
    which stands on a broker as its serializer writes it and not as JSON; elsewhere that makes no difference. `window`:
    keys are followed by one of this kind. `key_delimiter`: of keys, where it is another than that of values.
    `keeps_keys`: with ROW_ID, keys are also columns of bytes.
    """

    key: str = "JSON"
    value: str = "JSON"
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
    keeps_keys: bool = field(default=False, repr=False)

    @property
    def manner(self) -> Manner:
        """How its JSON is read."""
        return "iso" if self.iso else "lenient" if self.lenient else "plain"

    @property
    def foreign(self) -> bool:
        """Whether another program writes the records, and nobody else."""
        return self.key_format.foreign or self.value_format.foreign

    @property
    def key_format(self) -> Format:
        return FORMATS[self.key]

    @property
    def value_format(self) -> Format:
        return FORMATS[self.value]

    def bare(self, values: int) -> bool:
        """Whether a record's value is that of its only column, and no object."""
        return values == 1 and (not self.wrapped or self.value_format.single == "value")

    def of_keys(self, columns: int) -> Facet:
        """How keys of so many columns are written."""
        bare = columns == 1 and self.key_format.single != "record"
        format = ROW_KEY if self.keeps_keys else self.key_format
        return Facet("key", self._format("key", format, columns), bare, self.key_delimiter, self.key_schema)

    def of_values(self, columns: int) -> Facet:
        format = self._format("value", self.value_format, columns)
        return Facet("value", format, self.bare(columns), self.delimiter, self.value_schema)

    def _format(self, facet: str, format: Format, columns: int) -> Format:
        """One value that is `binary` is KAFKA's, and in that format no value is none."""
        if columns == 1 and facet in self.binary:
            return KAFKA
        return NONE if format == KAFKA and not columns else format
