"""A Delta table.

In: rows in order. Out: rows of a table: those of a stream are added, those of a table stand under their key, and a row
that is gone is deleted.
Rule: a batch is one commit of the table, with the application transaction `braid.RUN` at the batch's number; nothing is
tried again without a look at what was committed since. So a batch that was written is not written again, and of two
writers one is refused. The table's property `braid.run` says whose it is. A RESTORE keeps the transaction, so the
commit of the last batch is looked for among those that the present version came from. Tasks stage rows in the store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from braid.errors import BraidError, anew, library
from braid.files.results import alone
from braid.plan import logical
from braid.sinks.arrow import DELTA, arrow_of, arrow_schema, check_schema
from braid.sinks.interface import Batch
from braid.sinks.staged import (
    Seen,
    Shape,
    StagedSink,
    check_owner,
    check_required,
    commit,
    has_hidden,
    is_written,
    shape_of,
    unlike,
)
from braid.store import on_disk
from braid.store.files import remove
from braid.topics.files import reach
from braid.topics.interface import Topics
from braid.topics.view import Written
from braid.types import Scalar

if TYPE_CHECKING:
    from deltalake import DeltaTable

OWNER, NUMBER, DIGEST = "braid.run", "braid.batch", "braid.digest"
EMPTIES = "braid.empties"  # rows of the run before are being deleted
# Features of tables with which rows are added, replaced and deleted as without them.
WRITTEN = {"appendOnly", "invariants", "timestampNtz", "checkConstraints", "changeDataFeed", "domainMetadata",
           "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck"}  # fmt: skip
SMALL = 100  # batches whose files are made one
COMPUTED = ("delta.generationExpression", "delta.identity.start")  # what says so of a column
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
        return DeltaSink(os.path.abspath(on_disk(text)))

    def described(self) -> str:
        return f"the Delta table {self.target}"

    @property
    def folder(self) -> str:
        return self.target

    def written_to(self) -> str:
        return os.path.join(self.target, "part.parquet")

    # ---------------------------------------------------------- before a start

    def check(self, columns: logical.Sink, run: str | None, goes_on: bool, overwrite: bool) -> None:
        there = self.table()
        _check_features(self.target, there)
        shape = shape_of(columns, there is not None and has_hidden(columns, _names(there)))
        schema = arrow_schema(columns.name, shape, DELTA)
        if there is None and os.path.isdir(self.target) and os.listdir(self.target):
            raise BraidError(f"{self.target} is no Delta table, and not empty", "name another folder")
        if there is not None:
            check_schema(self.target, there.to_pyarrow_dataset().schema, schema)
            check_required(self.target, shape, columns, _required(there), "let the column be NULL")
            _check_rules(self.target, there, shape)
            _check_partitions(self.target, there, shape, {o.name for o in columns.key})
        self.seen[:] = [Seen(_owner(there), _identity(there))]
        check_owner(self.target, _owner(there), run, goes_on, overwrite)

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        return _last(self.table(), run)

    def identified(self, columns: logical.Sink) -> str:
        return _identity(self.table())

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> DeltaSink:
        root = self.staged_in(topics)
        os.makedirs(self.target, exist_ok=True)
        with alone(self.target):
            there = self.table() or self._made(columns, run)
            self._claimed(there, run)
        hidden = has_hidden(columns, _names(there))
        required = shape_of(columns, hidden).among(_required(there))
        return replace(self, root=root, identity=_identity(there), required=required, full=hidden)

    def _made(self, columns: logical.Sink, run: str) -> DeltaTable:
        from deltalake import DeltaTable

        schema = arrow_schema(columns.name, shape_of(columns, False), DELTA)
        return DeltaTable.create(self.target, schema, configuration={OWNER: run}, raise_if_key_not_exists=False)

    def _claimed(self, there: DeltaTable, run: str) -> None:
        """The table is this run's, and rows of another go; what one that is stopped leaves, the next start does."""
        from deltalake.exceptions import CommitFailedError

        owner = _owner(there)
        self.check_claim(self.target, Seen(owner, _identity(there)), run)
        if owner != run:
            known = {OWNER: run, EMPTIES: str(owner is not None)}
            try:
                there.alter.set_table_properties(known, raise_if_not_exists=False)
            except CommitFailedError:  # somebody else has changed them since
                self.check_claim(self.target, Seen(_owner(self.table()), _identity(there)), run)
                raise
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
        commit(self.target, batch, CommitFailedError, (DeltaError,), lambda: self._committed(batch, columns, paths))
        for path in paths:
            remove(path)

    def _committed(self, batch: Batch, columns: logical.Sink, paths: Sequence[str]) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        table, shape = self.table(), shape_of(columns, self.full)
        if not paths:
            return
        if table is None:
            raise unlike(self.target, "it is gone", batch)
        owner, last = _owner(table), _last(table, batch.run)
        if is_written(self.target, batch, owner, last, _identity(table), self.identity):
            return
        known = {OWNER: batch.run, NUMBER: str(batch.number), DIGEST: batch.digest()}
        app = Transaction(_app(batch.run), batch.number)
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


def _check_rules(name: str, table: DeltaTable, shape: Shape) -> None:
    """The table takes the values of the result, and lets rows change, where they do."""
    if shape.keys and table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        hint = "let its property delta.appendOnly be false, or name another table"
        raise BraidError(f"the table {name} only takes rows that are added, and those of the result change", hint)
    made = {f.name for f in table.schema().fields if any(x in f.metadata for x in COMPUTED)}
    if (own := next((x.name for x in shape.columns if x.name in made), None)) is not None:
        raise BraidError(f"{name}: {own} is computed there, and takes no value of the result", "leave it out")


def _check_partitions(name: str, table: DeltaTable, shape: Shape, key: set[str]) -> None:
    """A partition holds its value as a text, in which the empty text is NULL: two keys would be one."""
    by = table.metadata().partition_columns
    for own, x in zip(shape.own, shape.columns, strict=True):
        if x.name in by and x.type is Scalar.BYTES:
            what = f"the table {name} is partitioned by {x.name}, and bytes in a partition of Delta are read as others"
            raise BraidError(what, "name a table that is partitioned by another column, or by none")
        if x.name in by and x.type is Scalar.VARCHAR and (own in key or x.name in shape.keys):
            what = f"the table {name} is partitioned by {x.name}, a text of the key: in a partition of Delta '' is NULL"
            raise BraidError(what, "name a table that is partitioned by another column, or by none")


def _names(table: DeltaTable) -> list[str]:
    return [f.name for f in table.schema().fields]


def _required(table: DeltaTable) -> list[str]:
    return [f.name for f in table.schema().fields if not f.nullable]


def _identity(table: DeltaTable | None) -> str:
    return "" if table is None else f"table {table.metadata().id}"


def _app(run: str) -> str:
    return f"braid.{run}"


def _last(table: DeltaTable | None, run: str) -> Written | None:
    """The last batch of a run that was committed; its digest as long as the log has its commit. Refused where the table
    was restored to a version before that."""
    done = None if table is None else table.transaction_version(_app(run))
    if table is None or done is None:
        return None
    return Written(done, _said(table, run, done))


def _said(table: DeltaTable, run: str, done: int) -> str:
    """The digest of the batch, by the commits that the present version came from, newest first; empty where the log has
    that commit no more."""
    for some in (LATELY, LATELY * 50, None):
        commits = {int(x["version"]): x for x in table.history(some)}
        at, back = table.version(), None
        while (commit := commits.get(at)) is not None:
            if _is_of(commit, run, done):
                return str(commit[DIGEST])
            back = _restored(commit)
            at = at - 1 if back is None else back
    if back is not None or any(_is_of(x, run, done) for x in commits.values()):
        what = (
            f"the table {table.table_uri} was restored (RESTORE) to before batch {done}, whose rows are not there now"
        )
        raise BraidError(what, f"restore it to a version that has them; or {anew()}, with --overwrite")
    return ""


def _is_of(commit: Mapping[str, Any], run: str, done: int) -> bool:
    return commit.get(NUMBER) == str(done) and commit.get(OWNER, run) == run


def _restored(commit: Mapping[str, Any]) -> int | None:
    """The version that came again; one before all others where it is not told; None where none did."""
    if commit.get("operation") != "RESTORE":
        return None
    version = commit.get("operationParameters", {}).get("version")
    return int(version) if str(version).isdecimal() else -1


def _merged(table: DeltaTable, last: pl.DataFrame, shape: Shape, schema: pa.Schema, how: Any) -> None:
    """Each key as it stands behind the batch."""
    nulls = {k for k in shape.keys if last[k].null_count()}
    equal = [
        f"(t.`{k}` = s.`{k}`" + (f" OR t.`{k}` IS NULL AND s.`{k}` IS NULL)" if k in nulls else ")") for k in shape.keys
    ]
    values = {f"`{c.name}`": f"s.`{c.name}`" for c in shape.columns}
    op = shape.op
    source = arrow_of(last, schema.append(pa.field(op, pa.string())))
    merge = table.merge(source, " AND ".join(equal), source_alias="s", target_alias="t", commit_properties=how)
    merge = merge.when_matched_delete(f"s.`{op}` = '-'").when_matched_update(values, f"s.`{op}` = '+'")
    version = table.version()
    merge.when_not_matched_insert(values, f"s.`{op}` = '+'").execute()
    if table.version() == version:  # nothing has changed, and nothing was committed; the transaction is
        by = table.metadata().partition_columns
        table.create_write_transaction([], "append", table.schema(), by, commit_properties=how)
