"""An Iceberg table, as it stands in its current snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.sinks.iceberg import IcebergSink
from braid.sinks.staged import line_of
from braid.tables.interface import Read, Table, of_columns, wanted

if TYPE_CHECKING:
    from pyiceberg.table import Table as There


@dataclass(frozen=True)
class IcebergTable(Table):
    there: IcebergSink

    @staticmethod
    def of(text: str) -> IcebergTable:
        return IcebergTable(IcebergSink.of(text))

    def described(self) -> str:
        return f"iceberg:{self.there.target}"

    def version(self) -> str | None:
        at = self._table().current_snapshot()
        return str(None if at is None else at.snapshot_id)

    def read(self, declared: Declared) -> Read:
        table, name = self._table(), self.there.target
        names = wanted(declared, [f.name for f in table.schema().fields], name)
        try:
            found = pl.DataFrame(table.scan(selected_fields=tuple(names)).to_arrow())
        except Exception as e:  # whatever its readers of files raise
            raise BraidError(f"{name} cannot be read: {line_of(e)}", "check the table and its files") from None
        return of_columns(declared, found.select(names), name)

    def _table(self) -> There:
        found = self.there.table()
        if found is None:
            raise BraidError(f"there is no Iceberg table {self.there.target}", "write iceberg:CATALOG.NAMESPACE.TABLE")
        return found
