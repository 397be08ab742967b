"""An Iceberg table, to which rows are added.

In: rows of a stream, in order. Out: rows of a table.
Rule: a batch is one snapshot, whose summary says which run wrote which batch, of what digest. It is committed once, on
top of the snapshot that was looked at, and is not tried again by itself: pyiceberg's own retries would add rows twice.
The table's property `braid.run` says whose it is. A result whose rows change is refused: to replace a row, a table is
read and written again file by file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from braid.errors import BraidError, library
from braid.plan import logical
from braid.sinks.arrow import ICEBERG, arrow_of, arrow_schema, check_schema
from braid.sinks.interface import Batch
from braid.sinks.staged import Shape, StagedSink, check_owner, commit, is_written, line_of
from braid.topics.files import remove
from braid.topics.interface import Topics
from braid.topics.view import Written

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

OWNER, NUMBER, DIGEST = "braid.run", "braid.batch", "braid.digest"
ONCE = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True)
class IcebergSink(StagedSink):
    """`target`: CATALOG.NAMESPACE.TABLE; a catalog is what pyiceberg's configuration calls so."""

    @staticmethod
    def of(text: str) -> IcebergSink:
        if text.count(".") < 2 or not all(text.split(".")):
            raise BraidError(f"iceberg:{text} names no table", "write iceberg:CATALOG.NAMESPACE.TABLE")
        library("pyiceberg", "iceberg")
        return IcebergSink(text)

    def described(self) -> str:
        return f"the Iceberg table {self.target}"

    # ---------------------------------------------------------- before a start

    def check(self, columns: logical.Sink, run: str | None, goes_on: bool, overwrite: bool) -> None:
        if columns.kind == "table":
            hint = "write it to delta:… or postgres:…, or make it a stream (SELECT without GROUP BY, of streams)"
            raise BraidError(f"{columns.name} takes rows back, and a row of Iceberg is replaced file by file", hint)
        schema, there = arrow_schema(columns.name, Shape.of(columns), ICEBERG), self.table()
        if there is not None:
            check_schema(self.target, there.schema().as_arrow(), schema)
        check_owner(self.target, _owner(there), run, goes_on, overwrite)

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        return _last(self.table(), run)

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> IcebergSink:
        there, known = self.table(), {**ONCE, OWNER: run}
        if there is None:
            schema = arrow_schema(columns.name, Shape.of(columns), ICEBERG)
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(self._place[:-1])
            catalog.create_table(self._place, schema, properties=known)
        elif (owner := _owner(there)) != run:
            with there.transaction() as change:
                if owner is not None:
                    change.delete("true")  # all rows
                change.set_properties(known)
        return replace(self, root=self.staged_in(topics))

    @property
    def _place(self) -> tuple[str, ...]:
        return tuple(self.target.split(".")[1:])

    def _catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        name = self.target.partition(".")[0]
        try:
            return load_catalog(name)
        except Exception as e:  # whatever its library for this kind of catalog raises
            hint = f"name it in ~/.pyiceberg.yaml, or by PYICEBERG_CATALOG__{name.upper()}__URI"
            raise BraidError(f"the catalog {name} cannot be opened: {line_of(e)}", hint) from None

    def table(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog().load_table(self._place)
        except NoSuchTableError:
            return None

    # -------------------------------------------------------------- each batch

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        from pyiceberg.exceptions import CommitFailedException, RESTError

        paths = self.paths(batch, staged)
        commit(self.target, batch, CommitFailedException, RESTError, lambda: self._committed(batch, columns, paths))
        for path in paths:
            remove(path)

    def _committed(self, batch: Batch, columns: logical.Sink, paths: Sequence[str]) -> None:
        table, shape = self.table(), Shape.of(columns)
        if is_written(self.target, batch, _owner(table), _last(table, batch.run)) or table is None or not paths:
            return
        if any(table.properties.get(name) != value for name, value in ONCE.items()):
            raise BraidError(f"{self.target} would try a commit again by itself, and add rows twice", f"set {ONCE}")
        known = {OWNER: batch.run, NUMBER: str(batch.number), DIGEST: batch.digest()}
        frame, schema = shape.named(pl.concat(map(pl.read_parquet, paths))), arrow_schema(columns.name, shape, ICEBERG)
        table.append(arrow_of(frame, schema), snapshot_properties=known)


def _owner(table: Table | None) -> str | None:
    return None if table is None else table.properties.get(OWNER)


def _last(table: Table | None, run: str) -> Written | None:
    """The last batch that the run has committed, and its digest; snapshots of others may have come since."""
    at = None if table is None else table.current_snapshot()
    while table is not None and at is not None:
        said = at.summary.additional_properties if at.summary is not None else {}
        if said.get(OWNER) == run:
            return Written(int(said[NUMBER]), said[DIGEST])
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return None
