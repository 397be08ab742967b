"""A Delta table, as it stands in its last version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.sinks.delta import DeltaSink
from braid.sinks.staged import line_of
from braid.tables.interface import Read, Table, of_columns, wanted

if TYPE_CHECKING:
    from deltalake import DeltaTable as There


@dataclass(frozen=True)
class DeltaTable(Table):
    there: DeltaSink

    @staticmethod
    def of(text: str) -> DeltaTable:
        return DeltaTable(DeltaSink.of(text))

    def described(self) -> str:
        return f"delta:{self.there.target}"

    def version(self) -> str | None:
        return str(self._table().version())

    def read(self, declared: Declared) -> Read:
        from deltalake.exceptions import DeltaError

        table, path = self._table(), self.there.target
        names = wanted(declared, [f.name for f in table.schema().fields], path)
        try:
            found = pl.DataFrame(table.to_pyarrow_table(columns=names))
        except (DeltaError, OSError) as e:
            raise BraidError(f"{path} cannot be read: {line_of(e)}", "look at the table") from None
        return of_columns(declared, found, path)

    def _table(self) -> There:
        found = self.there.table()
        if found is None:
            raise BraidError(f"{self.there.target} is no Delta table", "name the table's folder")
        return found
