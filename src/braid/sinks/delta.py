"""A Delta table.

In: rows in order. Out: rows of a table: those of a stream are added, those of a table stand under their key, and a row
that is gone is deleted.
Rule: a batch is one commit of the table, with the application transaction `braid.RUN` at the batch's number; nothing is
tried again without a look at what was committed since. So a batch that was written is not written again, and of two
writers one is refused. The table's property `braid.run` says whose it is. Tasks stage rows in the store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from braid.errors import BraidError, library
from braid.plan import logical
from braid.sinks.arrow import DELTA, arrow_of, arrow_schema, check_schema
from braid.sinks.interface import Batch
from braid.sinks.staged import Shape, StagedSink, check_owner, commit, is_written
from braid.topics.files import reach, remove
from braid.topics.interface import Topics
from braid.topics.view import Written

if TYPE_CHECKING:
    from deltalake import DeltaTable

OWNER, NUMBER, DIGEST = "braid.run", "braid.batch", "braid.digest"
EMPTIES = "braid.empties"  # rows of the run before are being deleted
# Features of tables with which rows are added, replaced and deleted as without them.
WRITTEN = {"appendOnly", "invariants", "timestampNtz", "checkConstraints", "changeDataFeed", "domainMetadata",
           "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck"}  # fmt: skip
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
        library("deltalake", "delta")
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
        shape, there = Shape.of(columns), self.table()
        _check_features(self.target, there)
        schema = arrow_schema(columns.name, shape, DELTA)
        if there is None and os.path.isdir(self.target) and os.listdir(self.target):
            raise BraidError(f"{self.target} is no Delta table, and not empty", "name another folder")
        if there is not None:
            check_schema(self.target, there.to_pyarrow_dataset().schema, schema)
        check_owner(self.target, _owner(there), run, goes_on, overwrite)

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        return _last(self.table(), run)

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> DeltaSink:
        from deltalake import DeltaTable

        there = self.table()
        if there is None:
            schema, known = arrow_schema(columns.name, Shape.of(columns), DELTA), {OWNER: run}
            DeltaTable.create(self.target, schema, configuration=known, raise_if_key_not_exists=False)
        else:
            self._claimed(there, run)
        return replace(self, root=self.staged_in(topics))

    def _claimed(self, there: DeltaTable, run: str) -> None:
        """The table is this run's, and rows of another go; what one that is stopped leaves, the next start does."""
        owner = _owner(there)
        if owner != run:
            known = {OWNER: run, EMPTIES: str(owner is not None)}
            there.alter.set_table_properties(known, raise_if_not_exists=False)
            reach("table claimed")
        if there.metadata().configuration.get(EMPTIES) == str(True):
            there.delete()
            reach("table emptied")
            there.alter.set_table_properties({EMPTIES: str(False)}, raise_if_not_exists=False)

    def table(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        return DeltaTable(self.target) if DeltaTable.is_deltatable(self.target) else None

    # -------------------------------------------------------------- each batch

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        paths = self.paths(batch, staged)
        commit(self.target, batch, CommitFailedError, DeltaError, lambda: self._committed(batch, columns, paths))
        for path in paths:
            remove(path)

    def _committed(self, batch: Batch, columns: logical.Sink, paths: Sequence[str]) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        table, shape = self.table(), Shape.of(columns)
        if is_written(self.target, batch, _owner(table), _last(table, batch.run)) or table is None or not paths:
            return
        known, app = {NUMBER: str(batch.number), DIGEST: batch.digest()}, Transaction(_app(batch.run), batch.number)
        how = CommitProperties(known, max_commit_retries=0, app_transactions=[app])
        frame, schema = shape.named(pl.concat(map(pl.read_parquet, paths))), arrow_schema(columns.name, shape, DELTA)
        if shape.keys:
            _merged(table, frame.unique([*shape.keys], keep="last", maintain_order=True), shape, schema, how)
        else:
            write_deltalake(table, arrow_of(frame, schema), mode="append", commit_properties=how)
        if batch.number % SMALL == SMALL - 1:
            self._compacted()

    def _compacted(self) -> None:
        """Small files become one; where somebody else is at it, the next time."""
        from deltalake.exceptions import DeltaError

        table = self.table()
        try:
            if table is not None:
                table.optimize.compact()
        except DeltaError:
            return


def _check_features(target: str, table: DeltaTable | None) -> None:
    """Refuses a table that other writers have made so that this one cannot write it."""
    if table is None:
        return
    known = table.protocol()
    features = {*(known.writer_features or ()), *(known.reader_features or ())}
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    odd = sorted(features - WRITTEN)
    if odd:
        what = f"the Delta table {target} has the feature {odd[0]}, which is not written"
        raise BraidError(what, "name a table without it, or one that is not there yet")


def _owner(table: DeltaTable | None) -> str | None:
    return None if table is None else table.metadata().configuration.get(OWNER)


def _app(run: str) -> str:
    return f"braid.{run}"


def _last(table: DeltaTable | None, run: str) -> Written | None:
    """The last batch of a run that was committed; its digest as long as one of the last commits tells it."""
    done = None if table is None else table.transaction_version(_app(run))
    if table is None or done is None:
        return None
    return Written(done, next((str(x[DIGEST]) for x in table.history(LATELY) if x.get(NUMBER) == str(done)), ""))


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
