"""An Iceberg table, to which rows are added.

In: rows of a stream, in order. Out: rows of a table.
Rule: a batch is one snapshot, whose summary says which run wrote which batch, of what digest. It is committed once, on
top of the snapshot that was looked at, and is not tried again by itself: pyiceberg's own retries would add rows twice.
The table's property `braid.run` says whose it is, `braid.last` which batch was written last, in which snapshot: the
present one must have come from that, as a rollback keeps properties. A result whose rows change is refused: to replace
a row, a table is read and written again file by file.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from braid.errors import BraidError, anew, library
from braid.plan import logical
from braid.sinks.arrow import ICEBERG, arrow_of, arrow_schema, check_schema
from braid.sinks.interface import Batch
from braid.sinks.staged import Seen, Shape, StagedSink, check_owner, check_required, commit, is_written, line_of, unlike
from braid.store.files import remove
from braid.topics.interface import Topics
from braid.topics.view import Written

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

OWNER, NUMBER, DIGEST = "braid.run", "braid.batch", "braid.digest"
CLAIM = "braid.claim"
LAST = "braid.last"  # batch, digest, snapshot and its sequence number
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
            _check_table(self.target, there)
            check_required(self.target, Shape.of(columns), columns, _required(there), "make the column optional")
        self.seen[:] = [Seen(_owner(there), _identity(there))]
        check_owner(self.target, _owner(there), run, goes_on, overwrite)

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        return _last(self.target, self.table(), run)

    def identified(self, columns: logical.Sink) -> str:
        return _identity(self.table())

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> IcebergSink:
        root = self.staged_in(topics)
        there = self.table() or self._made(columns, run)
        self._claimed(there, run)
        required = Shape.of(columns).among(_required(there))
        return replace(self, root=root, identity=_identity(there), required=required)

    def _made(self, columns: logical.Sink, run: str) -> Table:
        from pyiceberg.exceptions import TableAlreadyExistsError

        schema, catalog = arrow_schema(columns.name, Shape.of(columns), ICEBERG), self._catalog()
        try:
            catalog.create_namespace_if_not_exists(self._place[:-1])
        except Exception:  # whatever a catalog raises where somebody was faster
            if not catalog.namespace_exists(self._place[:-1]):
                raise
        try:
            return catalog.create_table(self._place, schema, properties={**ONCE, OWNER: run})
        except TableAlreadyExistsError:  # somebody was faster
            return catalog.load_table(self._place)

    def _claimed(self, there: Table, run: str) -> None:
        from pyiceberg.exceptions import CommitFailedException

        owner = _owner(there)
        self.check_claim(self.target, Seen(owner, _identity(there)), run)
        if owner == run:
            return
        try:
            with warnings.catch_warnings(), there.transaction() as change:
                warnings.simplefilter("ignore")  # that there are no rows
                if owner is not None:
                    change.delete("true")  # all rows
                # A snapshot goes on top of the one that was looked at, and properties alone on top of any.
                change.append(there.schema().as_arrow().empty_table(), snapshot_properties={CLAIM: run})
                change.set_properties({**ONCE, OWNER: run, LAST: ""})
        except CommitFailedException:  # somebody else has changed them since
            self.check_claim(self.target, Seen(_owner(self.table()), _identity(there)), run)
            raise

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

        others = (RESTError, ValueError, NotImplementedError, OSError, ArithmeticError)
        paths = self.paths(batch, staged)
        commit(self.target, batch, CommitFailedException, others, lambda: self._committed(batch, columns, paths))
        for path in paths:
            remove(path)

    def _committed(self, batch: Batch, columns: logical.Sink, paths: Sequence[str]) -> None:
        table, shape = self.table(), Shape.of(columns)
        if not paths:
            return
        if table is None:
            raise unlike(self.target, "it is gone", batch)
        owner, last = _owner(table), _last(self.target, table, batch.run)
        if is_written(self.target, batch, owner, last, _identity(table), self.identity):
            return
        if any(table.properties.get(name) != value for name, value in ONCE.items()):
            raise BraidError(f"{self.target} would try a commit again by itself, and add rows twice", f"set {ONCE}")
        known = {OWNER: batch.run, NUMBER: str(batch.number), DIGEST: batch.digest()}
        frame, schema = shape.named(pl.concat(map(pl.read_parquet, paths))), arrow_schema(columns.name, shape, ICEBERG)
        needs = _required(table)
        schema = pa.schema([f.with_nullable(f.name not in needs) for f in schema])
        with table.transaction() as change:
            change.append(arrow_of(frame, schema), snapshot_properties=known)
            made = change.table_metadata.current_snapshot()
            if made is not None:
                said = (batch.number, batch.digest(), made.snapshot_id, made.sequence_number or 0)
                change.set_properties({LAST: " ".join(map(str, said))})


def _owner(table: Table | None) -> str | None:
    return None if table is None else table.properties.get(OWNER)


def _required(table: Table) -> list[str]:
    return [f.name for f in table.schema().fields if f.required]


def _identity(table: Table | None) -> str:
    return "" if table is None else f"table {table.metadata.table_uuid}"


def _takes_less(t: pa.DataType) -> bool:
    """Whether a part of a value must be there."""
    parts = [t.field(n) for n in range(t.num_fields)]
    return any(not p.nullable or _takes_less(p.type) for p in parts)


def _check_table(name: str, table: Table) -> None:
    """What is inside of columns may be NULL; pyiceberg computes some partitions by another library."""
    from pyiceberg.transforms import IdentityTransform, VoidTransform

    simple = (IdentityTransform, VoidTransform)
    inner = next((f.name for f in table.schema().as_arrow() if _takes_less(f.type)), None)
    if inner is not None:
        what = f"the table {name}: what is inside of {inner} is required, and may be NULL in the result"
        raise BraidError(what, "make it optional, or name another table")
    more = next((f for f in table.spec().fields if not isinstance(f.transform, simple)), None)
    if more is not None and importlib.util.find_spec("pyiceberg_core") is None:
        what = (
            f"the table {name} is partitioned by {more.transform} ({more.name}), which pyiceberg does not compute alone"
        )
        raise BraidError(what, "pip install 'pyiceberg[pyiceberg-core]', or name a table without it")


def _last(name: str, table: Table | None, run: str) -> Written | None:
    """The last batch that the run has committed, and its digest; snapshots of others may have come since. Refused where
    the table was rolled back to before it."""
    said = "" if table is None or _owner(table) != run else table.properties.get(LAST, "")
    if table is None or not said:
        return _by_snapshots(table, run)
    number, digest, snapshot, sequence = said.split()
    if not _came_from(table, int(snapshot), int(sequence)):
        what = (
            f"the table {name} was rolled back to before batch {number}, whose snapshot {snapshot} is no part of it now"
        )
        raise BraidError(what, f"let it be at a snapshot that came from that one; or {anew()}, with --overwrite")
    return Written(int(number), digest)


def _came_from(table: Table, snapshot: int, sequence: int) -> bool:
    """Whether the present snapshot is this one, or came from it. Where it has expired, all that are left must have come
    later."""
    at, oldest = table.current_snapshot(), 0
    while at is not None:
        if snapshot in (at.snapshot_id, at.parent_snapshot_id):
            return True
        oldest = at.sequence_number or 0
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return table.snapshot_by_id(snapshot) is None and oldest > sequence


def _by_snapshots(table: Table | None, run: str) -> Written | None:
    """The same by what snapshots say, of a table that has no `braid.last` yet."""
    at = None if table is None else table.current_snapshot()
    while table is not None and at is not None:
        said = at.summary.additional_properties if at.summary is not None else {}
        if said.get(OWNER) == run:
            return Written(int(said[NUMBER]), said[DIGEST])
        at = None if at.parent_snapshot_id is None else table.snapshot_by_id(at.parent_snapshot_id)
    return None
