"""A Delta table, as it stands in its last version."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.sinks.staged import library, line_of
from braid.tables.interface import Read, Table, of_columns, wanted

if TYPE_CHECKING:
    from deltalake import DeltaTable as There


@dataclass(frozen=True)
class DeltaTable(Table):
    path: str

    @staticmethod
    def of(text: str) -> DeltaTable:
        if not text or "://" in text:
            raise BraidError(
                f"delta:{text} is no folder", "write delta:PATH; a table in an object store is not there yet"
            )
        library("deltalake", "delta")
        return DeltaTable(os.path.abspath(text))

    def described(self) -> str:
        return f"delta:{self.path}"

    def version(self) -> str | None:
        return str(self._there().version())

    def read(self, declared: Declared) -> Read:
        from deltalake.exceptions import DeltaError

        there = self._there()
        names = wanted(declared, [f.name for f in there.schema().fields], self.path)
        try:
            found = pl.from_arrow(there.to_pyarrow_table(columns=names))
        except (DeltaError, OSError) as e:
            raise BraidError(f"{self.path} cannot be read: {line_of(e)}", "look at the table") from None
        assert isinstance(found, pl.DataFrame)
        return of_columns(declared, found, self.path)

    def _there(self) -> There:
        from deltalake import DeltaTable as There
        from deltalake.exceptions import DeltaError

        try:
            return There(self.path)
        except (DeltaError, OSError) as e:
            raise BraidError(f"{self.path} is no Delta table: {line_of(e)}", "name the table's folder") from None
