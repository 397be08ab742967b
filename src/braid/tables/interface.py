"""A table that lies elsewhere, as whoever looks at it sees it.

In: a declaration. Out: the rows that stand there now, typed as declared.
Rule: a table is read whole and as of one moment, or not at all: a row that is no row of the declaration refuses the
look, so that no row is taken for gone that could not be read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.files.input import columns_of, declared_columns, fitting, matched
from braid.types import Column


class Unready(BraidError):
    """Somebody writes it just now: the next look may find it whole."""


@dataclass(frozen=True, slots=True)
class Read:
    """Rows by the declaration's fields, and of each why it is malformed."""

    rows: pl.DataFrame
    error: pl.Series

    def sound(self, where: str) -> pl.DataFrame:
        """The rows, all of which are well formed."""
        bad = self.error.is_not_null().arg_true()
        if len(bad):
            more = f", and {len(bad) - 1:,} more" if len(bad) > 1 else ""
            what = f"{where}: row {int(bad[0]) + 1} is malformed: {self.error[int(bad[0])]}{more}"
            raise BraidError(what, "mend it, or declare the column as what it is; the table stays as it was")
        return self.rows


class Table(ABC):
    """`whole`: what is there is always somebody's word, as it comes with a commit; of files it may be half of it."""

    whole: ClassVar[bool] = True

    @abstractmethod
    def described(self) -> str:
        """What people call it; without secrets."""

    @abstractmethod
    def version(self) -> str | None:
        """What tells one state from another, and costs next to nothing; None where only reading tells."""

    @abstractmethod
    def read(self, declared: Declared) -> Read:
        """What stands there now."""


def of_columns(declared: Declared, frame: pl.DataFrame, where: str) -> Read:
    """Rows of columns as they have them there, found by name without case."""
    source = declared.read_as(declared.name)
    columns = columns_of(source)
    fields = [Column(c.field, c.column.type) for c in columns]
    at = fitting(source, columns, frame.schema, where)
    made, error = declared_columns(frame, [None if i is None else frame.columns[i] for i in at], fields)
    return Read(pl.DataFrame([s.alias(c.name) for s, c in zip(made, fields, strict=True)]), error)


def wanted(declared: Declared, names: Sequence[str], where: str) -> list[str]:
    """The columns, as they are called there, that the declaration names."""
    source = declared.read_as(declared.name)
    return [names[i] for i in matched(source, columns_of(source), names, where) if i is not None]
