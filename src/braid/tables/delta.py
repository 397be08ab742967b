"""A Delta table, as it stands in its last version.

In: a folder with a log of Delta's. Out: its rows.
Rule: columns are found by the names that the files have (column mapping by name and by number), within structures too;
rows that a deletion vector leaves out are not there. Files whose names and numbers do not agree are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.sinks.delta import DeltaSink
from braid.sinks.staged import line_of
from braid.tables.interface import Read, Table, of_columns, wanted

if TYPE_CHECKING:
    from deltalake import DeltaTable as There

MODE = "delta.columnMapping.mode"
_NUMBER, _NAME, _IN_FILE = "delta.columnMapping.id", "delta.columnMapping.physicalName", b"PARQUET:field_id"


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
        table, path = self._table(), self.there.target
        fields = json.loads(table.schema().to_json())["fields"]
        names = wanted(declared, [f["name"] for f in fields], path)
        try:
            mode = table.metadata().configuration.get(MODE, "none")
            if mode == "id":
                _check_numbers(table, [f for f in fields if f["name"] in names])
            plain = mode == "none" and "deletionVectors" not in (table.protocol().reader_features or ())
            found = pl.DataFrame(
                table.to_pyarrow_table(columns=names) if plain else pa.table(table.scan(columns=names))
            )
        except BraidError:
            raise
        except Exception as e:  # whatever its readers of logs and files raise
            raise BraidError(f"{path} cannot be read: {line_of(e)}", "check the table") from None
        return of_columns(declared, found.select(names), path)

    def _table(self) -> There:
        found = self.there.table()
        if found is None:
            raise BraidError(f"{self.there.target} is no Delta table", "name the table's folder")
        return found


def _check_numbers(table: There, fields: Sequence[Mapping[str, Any]]) -> None:
    """Refuses files in which a column's number is another one's than its name says: rows are read by names."""
    partitions = table.metadata().partition_columns
    known = dict(_numbered(f for f in fields if f["name"] not in partitions))
    for uri in table.file_uris():
        schema = pq.read_schema(uri.removeprefix("file://"))
        for number, name in _found(schema):
            if known.get(number, name) != name:
                own = known[number]
                what = f"{table.table_uri} maps columns by number, and {uri} has {name} where the table has {own}"
                raise BraidError(
                    what, "write the table again (REORG TABLE … APPLY (PURGE)), or map its columns by name"
                )
        missing = next((name for number, name in known.items() if number not in dict(_found(schema))), None)
        if missing is not None and missing in schema.names:
            what = f"{table.table_uri} maps columns by number, and {missing} has none in {uri}"
            raise BraidError(what, "write the table again, or map its columns by name")


def _numbered(fields: Iterable[Mapping[str, Any]]) -> Iterable[tuple[int, str]]:
    """Numbers and physical names of fields, those within them too."""
    for f in fields:
        yield int(f["metadata"][_NUMBER]), str(f["metadata"][_NAME])
        t = f["type"]
        while isinstance(t, dict) and t["type"] in ("array", "map"):
            t = t["elementType"] if t["type"] == "array" else t["valueType"]
        if isinstance(t, dict) and t["type"] == "struct":
            yield from _numbered(t["fields"])


def _found(fields: Iterable[pa.Field]) -> Iterable[tuple[int, str]]:
    """The same of a file."""
    for f in fields:
        number = (f.metadata or {}).get(_IN_FILE)
        if number is not None:
            yield int(number), f.name
        t = f.type
        while pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_map(t):
            t = t.item_type if pa.types.is_map(t) else t.value_type
        if pa.types.is_struct(t):
            yield from _found(t)
