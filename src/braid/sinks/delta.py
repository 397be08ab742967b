"""A Delta table.

In: rows in order. Out: rows of a table: those of a stream are added, those of a table stand under their key, and a row
that is gone is deleted.
Rule: a batch is one commit of the table, with the application transaction `braid.RUN` at the batch's number; nothing is
tried again without a look at what was committed since. So a batch that was written is not written again, and of two
writers one is refused. The table's property `braid.run` says whose it is. Tasks stage rows in the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from braid.errors import BraidError, printable
from braid.plan import logical
from braid.sinks.arrow import arrow_of, arrow_schema
from braid.sinks.interface import Batch
from braid.sinks.staged import Shape, StagedSink
from braid.topics.files import remove
from braid.topics.interface import Topics

if TYPE_CHECKING:
    from deltalake import DeltaTable

OWNER, NUMBER, DIGEST = "braid.run", "braid.batch", "braid.digest"
TRIES = 20  # commits of others that may come first
SMALL = 100  # batches whose files are made one
LATELY = 20  # commits in which the last batch's is looked for


@dataclass(frozen=True)
class DeltaSink(StagedSink):
    """`target`: the folder of the table."""

    @staticmethod
    def of(text: str) -> DeltaSink:
        if not text or "://" in text:
            raise BraidError(
                f"delta:{text} is no folder", "write delta:PATH; a table in an object store is not there yet"
            )
        _library()
        return DeltaSink(os.path.abspath(text))

    def described(self) -> str:
        return f"the Delta table {self.target}"

    @property
    def folder(self) -> str:
        return self.target

    def written_to(self) -> str:
        return os.path.join(self.target, "part.parquet")

    # ---------------------------------------------------------- before a start

    def check(self, columns: logical.Sink, run: str | None, goes_on: bool, overwrite: bool) -> None:
        shape, there = Shape.of(columns), self._table()
        schema = arrow_schema(columns.name, shape, "Delta")
        if there is None and os.path.isdir(self.target) and os.listdir(self.target):
            raise BraidError(f"{self.target} is no Delta table, and not empty", "name another folder")
        if there is not None:
            _check_schema(self.target, there, schema)
        owner = None if there is None else there.metadata().configuration.get(OWNER)
        if goes_on and owner != run:
            gone = f"the table {self.target} is not as this query left it: it has written there, and its marker is gone"
            raise BraidError(gone if owner is None else f"another run ({owner}) has written into {self.target} since")
        if owner is not None and owner != run and not overwrite:
            hint = "name another table, or write --overwrite to replace its rows"
            raise BraidError(f"the table {self.target} holds the results of another run ({owner})", hint)

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> DeltaSink:
        from deltalake import DeltaTable

        there = self._table()
        if there is None:
            schema, known = arrow_schema(columns.name, Shape.of(columns), "Delta"), {OWNER: run}
            DeltaTable.create(self.target, schema, configuration=known, raise_if_key_not_exists=False)
        elif (owner := there.metadata().configuration.get(OWNER)) != run:
            if owner is not None:
                there.delete()
            there.alter.set_table_properties({OWNER: run}, raise_if_not_exists=False)
        return replace(self, root=topics.root)

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        return DeltaTable(self.target) if DeltaTable.is_deltatable(self.target) else None

    # -------------------------------------------------------------- each batch

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        shape, paths = Shape.of(columns), self.paths(batch, staged)
        for left in reversed(range(TRIES)):
            try:
                self._committed(batch, shape, arrow_schema(columns.name, shape, "Delta"), paths)
                break
            except CommitFailedError as e:  # somebody else came first: look again
                if not left:
                    raise BraidError(f"{self.target} does not take batch {batch.number}: {_line(e)}") from None
                time.sleep(0.1)
            except DeltaError as e:
                raise BraidError(f"{self.target} does not take batch {batch.number}: {_line(e)}") from None
        for path in paths:
            remove(path)

    def _committed(self, batch: Batch, shape: Shape, schema: pa.Schema, paths: Sequence[str]) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        table = self._table()
        if table is None or table.metadata().configuration.get(OWNER) != batch.run:
            raise BraidError(f"another run writes into the table {self.target} now", "name another table")
        if _is_written(self.target, table, batch) or not paths:
            return
        app = f"braid.{batch.run}"
        known = {NUMBER: str(batch.number), DIGEST: batch.digest()}
        how = CommitProperties(known, max_commit_retries=0, app_transactions=[Transaction(app, batch.number)])
        frame = shape.named(pl.concat([pl.read_parquet(path) for path in paths]))
        if shape.keys:
            _merged(table, frame.unique([*shape.keys], keep="last", maintain_order=True), shape, schema, how)
        else:
            write_deltalake(table, arrow_of(frame, schema), mode="append", commit_properties=how)
        if batch.number % SMALL == SMALL - 1:
            self._compacted()

    def _compacted(self) -> None:
        """Small files become one; where somebody else is at it, the next time."""
        from deltalake.exceptions import DeltaError

        table = self._table()
        try:
            if table is not None:
                table.optimize.compact()
        except DeltaError:
            return


def _is_written(target: str, table: DeltaTable, batch: Batch) -> bool:
    done = table.transaction_version(f"braid.{batch.run}")
    if done is None or done < batch.number:
        return False
    found = (x.get(DIGEST) for x in table.history(LATELY) if x.get(NUMBER) == str(batch.number))
    if done == batch.number and next(found, digest := batch.digest()) == digest:
        return True
    what = f"batch {batch.number} of {batch.query} was written into {target} by somebody else"
    raise BraidError(what, "two runs go on from one checkpoint, or from an older copy of it")


def _merged(table: DeltaTable, last: pl.DataFrame, shape: Shape, schema: pa.Schema, how: Any) -> None:
    """Each key as it stands behind the batch."""
    nulls = {k for k in shape.keys if last[k].null_count()}
    equal = [
        f"(t.`{k}` = s.`{k}`" + (f" OR t.`{k}` IS NULL AND s.`{k}` IS NULL)" if k in nulls else ")") for k in shape.keys
    ]
    values = {f"`{c.name}`": f"s.`{c.name}`" for c in shape.columns}
    source = arrow_of(last, schema.append(pa.field("_op", pa.string())))
    merge = table.merge(source, " AND ".join(equal), source_alias="s", target_alias="t", commit_properties=how)
    merge = merge.when_matched_delete("s._op = '-'").when_matched_update(values, "s._op = '+'")
    merge.when_not_matched_insert(values, "s._op = '+'").execute()


def _check_schema(target: str, table: DeltaTable, schema: pa.Schema) -> None:
    """Refuses a table that cannot hold the columns."""
    there = table.to_pyarrow_dataset().schema
    known = {f.name: f for f in there}
    for f in schema:
        if f.name not in known:
            raise BraidError(f"the table {target} has no column {f.name}", "add it, or name another table")
        if not known[f.name].type.equals(f.type):
            what = f"{target}: {f.name} is {known[f.name].type} there, and {f.type} here"
            raise BraidError(what, "name a table that is not there yet")
    more = next((f.name for f in there if not f.nullable and f.name not in schema.names), None)
    if more is not None:
        raise BraidError(f"{target}: {more} needs a value, and the result has no such column", "name another table")


def _library() -> None:
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise BraidError("the sink delta: needs deltalake", "pip install 'braid-sql[delta]'") from None


def _line(e: Exception) -> str:
    return printable(" ".join(str(e).split()))[:300]
