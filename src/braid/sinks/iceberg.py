"""An Iceberg table, to which rows are added.

In: rows of a stream, in order. Out: rows of a table.
Rule: a batch is one snapshot, whose summary says which run wrote which batch, of what digest. It is committed once, on
top of the snapshot that was looked at, and is not tried again by itself: pyiceberg's own retries would add rows twice.
The table's property `braid.run` says whose it is. A result whose rows change is refused: to replace a row, a table is
read and written again file by file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from braid.errors import BraidError, printable
from braid.plan import logical
from braid.sinks.arrow import arrow_of, arrow_schema, small
from braid.sinks.interface import Batch
from braid.sinks.staged import Shape, StagedSink
from braid.topics.files import remove
from braid.topics.interface import Topics

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

OWNER, RUN, NUMBER, DIGEST = "braid.run", "braid.run", "braid.batch", "braid.digest"
ONCE = {"commit.retry.num-retries": "0"}
TRIES = 20  # commits of others that may come first
LATELY = 200  # snapshots in which the last batch's is looked for


@dataclass(frozen=True)
class IcebergSink(StagedSink):
    """`target`: CATALOG.NAMESPACE.TABLE; a catalog is what pyiceberg's configuration calls so."""

    @staticmethod
    def of(text: str) -> IcebergSink:
        if text.count(".") < 2 or not all(text.split(".")):
            raise BraidError(f"iceberg:{text} names no table", "write iceberg:CATALOG.NAMESPACE.TABLE")
        _library()
        return IcebergSink(text)

    def described(self) -> str:
        return f"the Iceberg table {self.target}"

    # ---------------------------------------------------------- before a start

    def check(self, columns: logical.Sink, run: str | None, goes_on: bool, overwrite: bool) -> None:
        if columns.kind == "table":
            hint = "write it to delta:… or postgres:…, or make it a stream (SELECT without GROUP BY, of streams)"
            raise BraidError(f"{columns.name} takes rows back, and a row of Iceberg is replaced file by file", hint)
        schema, there = arrow_schema(columns.name, Shape.of(columns), "Iceberg", times=True), self._table()
        if there is not None:
            _check_schema(self.target, there, schema)
        owner = None if there is None else there.properties.get(OWNER)
        if goes_on and owner != run:
            gone = f"the table {self.target} is not as this query left it: it has written there, and its marker is gone"
            raise BraidError(gone if owner is None else f"another run ({owner}) has written into {self.target} since")
        if owner is not None and owner != run and not overwrite:
            hint = "name another table, or write --overwrite to replace its rows"
            raise BraidError(f"the table {self.target} holds the results of another run ({owner})", hint)

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> IcebergSink:
        there, known = self._table(), {**ONCE, OWNER: run}
        if there is None:
            schema = arrow_schema(columns.name, Shape.of(columns), "Iceberg", times=True)
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(self._place[:-1])
            catalog.create_table(self._place, schema, properties=known)
        elif (owner := there.properties.get(OWNER)) != run:
            with there.transaction() as change:
                if owner is not None:
                    change.delete("true")  # all rows
                change.set_properties(known)
        return replace(self, root=topics.root)

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
            raise BraidError(f"the catalog {name} cannot be opened: {_line(e)}", hint) from None

    def _table(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog().load_table(self._place)
        except NoSuchTableError:
            return None

    # -------------------------------------------------------------- each batch

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        shape, paths = Shape.of(columns), self.paths(batch, staged)
        schema = arrow_schema(columns.name, shape, "Iceberg", times=True)
        for left in reversed(range(TRIES)):
            try:
                self._committed(batch, shape, schema, paths)
                break
            except CommitFailedException as e:  # somebody else came first: look again
                if not left:
                    raise BraidError(f"{self.target} does not take batch {batch.number}: {_line(e)}") from None
                time.sleep(0.1)
        for path in paths:
            remove(path)

    def _committed(self, batch: Batch, shape: Shape, schema: pa.Schema, paths: Sequence[str]) -> None:
        table = self._table()
        if table is None or table.properties.get(OWNER) != batch.run:
            raise BraidError(f"another run writes into the table {self.target} now", "name another table")
        if _is_written(self.target, table, batch) or not paths:
            return
        if any(table.properties.get(name) != value for name, value in ONCE.items()):
            raise BraidError(f"{self.target} would try a commit again by itself, and add rows twice", f"set {ONCE}")
        known = {RUN: batch.run, NUMBER: str(batch.number), DIGEST: batch.digest()}
        frame = shape.named(pl.concat([pl.read_parquet(path) for path in paths]))
        table.append(arrow_of(frame, schema), snapshot_properties=known)


def _lately(table: Table) -> Iterator[Mapping[str, Any]]:
    """What the summaries of the last snapshots say, the last one first."""
    at = table.current_snapshot()
    for _ in range(LATELY):
        if at is None:
            return
        if at.summary is not None:
            yield at.summary.additional_properties
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)


def _is_written(target: str, table: Table, batch: Batch) -> bool:
    last = next((x for x in _lately(table) if x.get(RUN) == batch.run), None)
    if last is None or int(last[NUMBER]) < batch.number:
        return False
    if int(last[NUMBER]) == batch.number and last[DIGEST] == batch.digest():
        return True
    what = f"batch {batch.number} of {batch.query} was written into {target} by somebody else"
    raise BraidError(what, "two runs go on from one checkpoint, or from an older copy of it")


def _check_schema(target: str, table: Table, schema: pa.Schema) -> None:
    """Refuses a table that cannot hold the columns."""
    known = {f.name: small(f.type) for f in table.schema().as_arrow()}
    for f in schema:
        if f.name not in known:
            raise BraidError(f"the table {target} has no column {f.name}", "add it, or name another table")
        if known[f.name] != small(f.type):
            what = f"{target}: {f.name} is {known[f.name]} there, and {f.type} here"
            raise BraidError(what, "name a table that is not there yet")
    more = next((f.name for f in table.schema().fields if f.required and f.name not in schema.names), None)
    if more is not None:
        raise BraidError(f"{target}: {more} needs a value, and the result has no such column", "name another table")


def _library() -> None:
    try:
        import pyiceberg  # noqa: F401
    except ImportError:
        raise BraidError("the sink iceberg: needs pyiceberg", "pip install 'braid-sql[iceberg]'") from None


def _line(e: Exception) -> str:
    return printable(" ".join(str(e).split()))[:300]
