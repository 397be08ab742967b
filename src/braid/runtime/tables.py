"""Tables as they stand: what batch queries read, and what INSERT, UPDATE and DELETE write.

In: the records of topics; statements whose rows a snapshot decides. Out: frames; records of one epoch, and late rows.
Rule: RW-5 and RW-43: whether a row is late is decided here, by the watermark before its epoch; a late row never reaches
the topic. The last record of a key stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from braid.duck import Tables, sql_types
from braid.errors import BraidError, SqlError
from braid.expr import codec, compile
from braid.expr.codec_values import json_value
from braid.expr.json_text import dumps
from braid.operators.changes import DIFF
from braid.plan.bound import BatchQuery, Bounded, Declared, Read, RowsChanged
from braid.runtime.decode import decode
from braid.runtime.explicit import Placed, raw_frame
from braid.runtime.row_ids import row_ids
from braid.types import Column, polars_type


@dataclass(frozen=True, slots=True)
class Written:
    """Records of one epoch, as key and value texts (a key that is None is to be made), and what RETURNING shows."""

    records: list[tuple[str | None, str | None]]
    returned: list[tuple[Any, ...]] | None
    late: list[dict[str, Any]]


@dataclass(slots=True)
class _Standing:
    """The rows of a topic that stand, how many records they are made of, and how many could not be read."""

    declared: Declared
    rows: pl.DataFrame
    count: int = 0
    unread: int = 0

    @staticmethod
    def empty(declared: Declared) -> _Standing:
        return _Standing(declared, _decoded(declared, []))

    def add(self, records: Sequence[Placed]) -> None:
        self.count += len(records)
        if records:
            new = _decoded(self.declared, records)
            self.unread += len(records) - new.height
            rows = pl.concat([self.rows, new])
            self.rows = _last(self.declared, rows).filter(pl.col(DIFF) == 1)


class Snapshots:
    """The tables of a store. `records(topic, start)`: the topic's records from the `start`-th on; `files`: the rows of
    a table that is read from files, in their order (columns of `declared`); None for others. `unread`: how many records
    of a table could not be read as it is declared, the last time it was asked."""

    def __init__(
        self,
        records: Callable[[str, int], list[Placed]],
        files: Callable[[Declared], pl.DataFrame | None] = lambda declared: None,
    ) -> None:
        self._records, self._files = records, files
        self._standing: dict[str, _Standing] = {}
        self._watermarks: dict[str, int] = {}
        self.unread: dict[str, int] = {}

    def forget(self, topic: str) -> None:
        self._standing.pop(topic, None)
        self._watermarks.pop(topic, None)

    def frame(self, declared: Declared, until: int | None = None) -> pl.DataFrame:
        """The rows that stand; `until`: after that epoch."""
        rows = self._files(declared)
        if rows is not None:
            return _last(declared, rows)
        if until is None:
            known = self._standing.get(declared.topic)
            standing = known if known is not None and known.declared == declared else _Standing.empty(declared)
            self._standing[declared.topic] = standing
            standing.add(self._records(declared.topic, standing.count))
        else:
            standing = _Standing.empty(declared)
            standing.add([r for r in self._records(declared.topic, 0) if r.seq <= until])
        self.unread[declared.name] = standing.unread
        return standing.rows.select(c.name for c in declared.columns)

    def answer(self, query: BatchQuery, past: Callable[[Read], int | None]) -> list[tuple[Any, ...]]:
        """The rows of a query. `past`: the epoch that a read wants, None for the last."""
        tables = Tables(query, self._frames(query, past))
        try:
            return tables.rows(query.sql)
        finally:
            tables.close()

    def change(self, change: RowsChanged, past: Callable[[Read], int | None]) -> Written:
        """The records of a statement; the watermark of its table moves."""
        tables = Tables(change.query, self._frames(change.query, past))
        try:
            return self._changed(change, tables)
        finally:
            tables.close()

    def judged(self, declared: Declared, rows: pl.DataFrame) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
        """The rows of one epoch that are not late, and those that are; the watermark moves behind them."""
        relation = declared.relation
        if relation is None or relation.watermark is None or not rows.height:
            return rows, []
        before = self._watermark(declared, relation.watermark)
        value = rows[relation.watermark.column].to_physical().cast(pl.Int64)
        ok = pl.Series([True] * rows.height)
        if before is not None:
            ok = (value >= before).fill_null(False)
        kept = rows.filter(ok)
        top = _highest(kept, relation.watermark)
        if top is not None:
            self._watermarks[declared.topic] = top if before is None else max(before, top)
        late = [
            {"reason": "late", "operator": "watermark", "topic": declared.topic, "clock": before, "value": row}
            for row in rows.filter(~ok).select(c.name for c in declared.visible).iter_rows(named=True)
        ]
        return kept, late

    def _watermark(self, declared: Declared, bounded: Bounded) -> int | None:
        """The watermark of a table; at first that of the rows it has."""
        if declared.topic not in self._watermarks:
            top = _highest(self.frame(declared), bounded)
            if top is not None:
                self._watermarks[declared.topic] = top
        return self._watermarks.get(declared.topic)

    def _frames(self, query: BatchQuery, past: Callable[[Read], int | None]) -> dict[Read, pl.DataFrame]:
        return {r: self.frame(r.declared, past(r)) for r in query.reads}

    def _changed(self, change: RowsChanged, tables: Tables) -> Written:
        target, types = change.target, sql_types(change.target)
        columns = {c.name: polars_type(c.type) for c in target.columns}
        late: list[dict[str, Any]] = []
        records: list[tuple[str | None, str | None]]
        match change.kind:
            case "insert":
                wanted = [(n, types[n], columns[n]) for n in change.columns]
                rows = tables.frame(change.query.sql, wanted)
                rows = rows.with_columns(pl.lit(None, t).alias(n) for n, t in columns.items() if n not in rows.columns)
                rows, late = self.judged(target, rows)
                _check_keys(target, rows, change.query)
                records = list(zip(keys_of(target, rows), values_of(target, rows), strict=True))
            case "update":
                old = [(c.name, types[c.name], columns[c.name]) for c in target.columns]
                new = [(f"_new {n}", types[n], columns[n]) for n in change.columns]
                both = tables.frame(change.query.sql, [*old, *new])
                before = both.select(list(columns))
                rows = both.with_columns(pl.col(f"_new {n}").alias(n) for n in change.columns).select(list(columns))
                _check_keys(target, rows, change.query)
                records = _replaced(target, before, rows, keyed=bool(set(change.columns) & set(_key(target))))
            case "delete":
                rows = tables.frame(change.query.sql, [(n, types[n], t) for n, t in columns.items()])
                records = [(key, None) for key in keys_of(target, rows, stored=True)]
        return Written(records, _returned(change, rows, tables), late)


def _highest(rows: pl.DataFrame, bounded: Bounded) -> int | None:
    """The highest watermark that rows show."""
    marks, _ = compile.evaluate(rows, [("mark", bounded.expr)])
    top = marks["mark"].to_physical().cast(pl.Int64).max()
    return top if isinstance(top, int) else None


def _replaced(
    target: Declared, before: pl.DataFrame, after: pl.DataFrame, keyed: bool
) -> list[tuple[str | None, str | None]]:
    """An update: the new rows, behind tombstones of the old ones where keys change."""
    gone: list[tuple[str | None, str | None]] = []
    if keyed:
        gone = [(key, None) for key in keys_of(target, before, stored=True)]
    return gone + list(zip(keys_of(target, after, stored=True), values_of(target, after), strict=True))


def _returned(change: RowsChanged, rows: pl.DataFrame, tables: Tables) -> list[tuple[Any, ...]] | None:
    if change.returning is None:
        return None
    tables.add(change.returning.written, rows)
    return tables.rows(change.returning.sql)


def _key(declared: Declared) -> tuple[str, ...]:
    return () if declared.relation is None else declared.relation.key


def _check_keys(declared: Declared, rows: pl.DataFrame, query: BatchQuery) -> None:
    if declared.relation is None or declared.relation.row_id or not rows.height:
        return
    for name in declared.relation.key:
        if rows[name].null_count():
            message = f"column {name} of the primary key of {declared.name} is null"
            raise SqlError(message, query.span, f"give {name} a value", query.text)


def keys_of(declared: Declared, rows: pl.DataFrame, stored: bool = False) -> list[str | None]:
    """The key of each row as its topic holds it; None where it is still to be made (unless `stored`)."""
    relation = declared.relation
    if relation is not None and relation.row_id and not stored:
        return [None] * rows.height
    columns = [(c.name, Column(c.name, c.type)) for c in declared.columns if c.place == "key"]
    bare = len(columns) == 1 and declared.encoding.key != "ROW_ID"
    return codec.encode_values(rows, columns, unwrapped=bare).to_list()


def values_of(declared: Declared, rows: pl.DataFrame) -> list[str]:
    columns = [(c.name, Column(c.name, c.type)) for c in declared.columns if c.place == "value"]
    if not columns:
        return ["{}"] * rows.height
    return codec.encode_values(rows, columns).to_list()


def _decoded(declared: Declared, records: Sequence[Placed]) -> pl.DataFrame:
    """Columns of the table and `_diff`, of the records that are well formed."""
    source = declared.read_as(declared.name)
    found = decode(source, raw_frame(records), 0)
    rows = found.rows
    if declared.encoding.key == "ROW_ID":
        partitions = rows.with_columns(pl.Series("_partition", [r.partition for r in records], dtype=pl.Int64))
        rows = rows.with_columns(partitions.select(row_ids(pl.col("_partition")).alias(c.name) for c in source.key))
    columns = [pl.col(c.name).alias(c.field) for c in source.columns if c.place in ("key", "value")]
    return rows.filter(found.error.is_null()).select(*columns, DIFF)


def _last(declared: Declared, rows: pl.DataFrame) -> pl.DataFrame:
    """The last row of each key of a table; all rows of an append-only one."""
    if declared.kind == "stream":
        return rows
    key = [c.name for c in declared.key]
    return rows.unique(key, keep="last", maintain_order=True) if key else rows.tail(1)


def row_of(declared: Declared, row: Mapping[str, Any]) -> pl.DataFrame:
    """One row from Python values (docs/files-and-topics.md, "Values"), for `judged`. `row`: by name in lower case."""
    columns = [Column(c.name, c.type) for c in declared.columns]
    try:
        text = dumps({c.name: json_value(row.get(c.name.lower()), c.type) for c in columns})
    except (TypeError, ValueError) as e:
        raise BraidError(f"this is no row of {declared.name}: {e}", _VALUES) from None
    frame, _, error = codec.decode_values(pl.Series([text]), columns, iso=True)
    if error[0] is not None:
        raise BraidError(f"this is no row of {declared.name}: {error[0]}", _VALUES)
    return frame


_VALUES = "dates and times are datetime values, ISO text, or numbers of days and milliseconds; a DECIMAL is a Decimal"
