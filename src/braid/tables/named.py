"""The tables that `--source NAME=…` names: the one list.

In: what stands behind the `=`. Out: a `Table`.
Rule: `KIND:WHAT` with a kind of the list; anything else is a path of files, which are a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braid.tables.delta import DeltaTable
from braid.tables.files import SnapshotTable
from braid.tables.iceberg import IcebergTable
from braid.tables.interface import Table
from braid.tables.postgres import PostgresTable

NAMED: Mapping[str, Callable[[str], Table]] = {
    "delta:": DeltaTable.of,
    "iceberg:": IcebergTable.of,
    "postgres:": PostgresTable.of,
    "snapshot:": SnapshotTable.of,
}


def is_table(text: str) -> bool:
    kind, colon, _ = text.partition(":")
    return kind + colon in NAMED


def table_of(text: str) -> Table:
    kind, colon, what = text.partition(":")
    return NAMED[kind + colon](what)
