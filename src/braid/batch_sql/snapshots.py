"""Tables as they stand: what batch queries read, and what INSERT, UPDATE and DELETE write.

In: the records of topics; statements whose rows a snapshot decides. Out: frames; records of one epoch, and late rows.
Rule: RW-5 and RW-43: a row below the watermark before its statement, or before it in its topic, is late. One that a
statement writes never reaches the topic; one that came there otherwise is not in the table, as queries see it. It is
the operator of running queries that judges (`operators.on_time`), so both see the same rows. The last record of a key
stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from braid.batch_sql.duck import Tables
from braid.bind.bound import BatchQuery, Bounded, Declared, Read, RowsChanged
from braid.errors import BraidError, SqlError
from braid.expr.json_text import dumps
from braid.expr.nodes import Col, Expr
from braid.operators.changes import DIFF, LOW, NEVER, POS, POS_TYPE, TIME, no_rows
from braid.operators.clocks import CLOCK, STEPS, Clocks, LeafClock
from braid.operators.on_time import OnTime
from braid.operators.watermarks import ABOVE_ALL, Watermark, ticks_of
from braid.plan.drop_reasons import Reason
from braid.plan.logical import Source
from braid.records import codec
from braid.records.python import json_value
from braid.stage.call_order import Placed, raw_frame
from braid.stage.decode import by_statement, decode, row_ids
from braid.types import WHOLE_NUMBERS, Column, polars_type


@dataclass(frozen=True, slots=True)
class Written:
    """Records of one epoch, as key and value texts (a key that is None is to be made), and what RETURNING shows."""

    records: list[tuple[str | None, str | None]]
    returned: list[tuple[Any, ...]] | None
    late: list[dict[str, Any]]


@dataclass(slots=True)
class _Standing:
    """The rows of a topic that stand, how many records they are made of, how many could not be read, how many were
    late."""

    declared: Declared
    rows: pl.DataFrame
    gate: Gate | None
    count: int = 0
    unread: int = 0
    late: int = 0

    @staticmethod
    def empty(declared: Declared) -> _Standing:
        return _Standing(declared, _decoded(declared, [])[0], Gate.of(declared))

    def add(self, records: Sequence[Placed]) -> None:
        self.count += len(records)
        if records:
            new, good = _decoded(self.declared, records)
            self.unread += len(records) - new.height
            if self.gate is not None:
                there = [r for r, well in zip(records, good, strict=True) if well]
                late = self.gate.late(new, [r.seq for r in there], [r.partition for r in there])
                late &= ~_judged(self.declared, there)
                new, self.late = new.filter(~late), self.late + int(late.sum())
            rows = pl.concat([self.rows, new])
            self.rows = _last(self.declared, rows).filter(pl.col(DIFF) == 1)


class Snapshots:
    """The tables of a store. `records(declared, start)`: a table's records from the `start`-th on; `files`: the rows of
    a table that is read from files, in their order (columns of `declared`, `_diff`, and `_t`: their epochs); None for
    others; `gone`: how many of the records that a topic once had are not there any more; `there`:
    whether there is a topic, and so the query that writes it has begun.
    `unread`: how many records of a table could not be read as it is declared, the last time it was asked; `late`: how
    many were."""

    def __init__(
        self,
        records: Callable[[Declared, int], list[Placed]],
        files: Callable[[Declared], pl.DataFrame | None] = lambda declared: None,
        gone: Callable[[Declared], int] = lambda declared: 0,
        there: Callable[[str], bool] = lambda topic: True,
    ) -> None:
        self._records, self._files, self._gone, self._there = records, files, gone, there
        self._standing: dict[str, _Standing] = {}
        self._without: dict[str, int] = {}  # so many records were gone when the rows that stand were read
        self.unread: dict[str, int] = {}
        self.late: dict[str, int] = {}

    def forget(self, topic: str) -> None:
        self._standing.pop(topic, None)

    def frame(self, declared: Declared, until: int | None = None) -> pl.DataFrame:
        """The rows that stand; `until`: after that epoch."""
        rows = self._files(declared)
        if rows is not None:
            return _last(declared, self._on_time(declared, rows)).filter(pl.col(DIFF) == 1).drop(DIFF)
        if until is None:
            standing = self._now(declared)
        else:
            standing = _Standing.empty(declared)
            standing.add([r for r in self._records(declared, 0) if r.seq <= until])
        self.unread[declared.name], self.late[declared.name] = standing.unread, standing.late
        rows = standing.rows.select(c.name for c in declared.columns)
        relation = declared.relation
        if relation is not None and relation.alone and not standing.count and self._there(declared.topic):
            return pl.DataFrame({n: [v] for n, v in relation.alone}, schema=rows.schema)
        return rows

    def _on_time(self, declared: Declared, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of files that are not late."""
        gate, epochs, rows = Gate.of(declared), rows[TIME], rows.drop(TIME)
        late = pl.Series([False] * rows.height)
        if gate is not None and rows.height:
            late = gate.late(rows, epochs, [0] * rows.height)
        self.late[declared.name] = int(late.sum())
        return rows.filter(~late)

    def _now(self, declared: Declared) -> _Standing:
        known, gone = self._standing.get(declared.topic), self._gone(declared)
        if self._without.get(declared.topic, gone) != gone:
            known = None  # all is read again
        self._without[declared.topic] = gone
        standing = known if known is not None and known.declared == declared else _Standing.empty(declared)
        self._standing[declared.topic] = standing
        standing.add(self._records(declared, standing.count))
        return standing

    def lift(self, declared: Declared, partitions: int, time: int) -> None:
        """From now on no partition of the table shows anything below `time` (ms)."""
        gate = self._now(declared).gate
        if gate is not None:
            gate.lift(range(partitions), time)

    def answer(self, query: BatchQuery, past: Callable[[Read], int | None]) -> list[tuple[Any, ...]]:
        """The rows of a query. `past`: the epoch that a read wants, None for the last."""
        tables = Tables(query, self._frames(query, past))
        try:
            return tables.rows(query.sql)
        finally:
            tables.close()

    def change(self, change: RowsChanged, past: Callable[[Read], int | None]) -> Written:
        """The records of a statement."""
        besides = () if change.returning is None else change.returning.asked
        tables = Tables(change.query, self._frames(change.query, past), besides)
        try:
            return self._changed(change, tables)
        finally:
            tables.close()

    def judged(self, declared: Declared, rows: pl.DataFrame) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
        """The rows of a new epoch that are not late, and those that are."""
        gate = self._now(declared).gate if Gate.of(declared) is not None else None  # a table without one is not read
        if gate is None or not rows.height:
            return rows, []
        lost = gate.next(rows)
        late = [
            {"reason": Reason.LATE, "operator": "watermark", "topic": declared.topic, "clock": gate.now, "value": row}
            for row in rows.filter(lost).select(c.name for c in declared.visible).iter_rows(named=True)
        ]
        return rows.filter(~lost), late

    def _frames(self, query: BatchQuery, past: Callable[[Read], int | None]) -> dict[Read, pl.DataFrame]:
        return {r: self.frame(r.declared, past(r)) for r in query.reads}

    def _changed(self, change: RowsChanged, tables: Tables) -> Written:
        target = change.target
        types = {c.name: c.type for c in target.columns}
        columns = {name: polars_type(t) for name, t in types.items()}
        late: list[dict[str, Any]] = []
        records: list[tuple[str | None, str | None]]
        match change.kind:
            case "insert":
                rows = _inserted(change, tables)
                rows, late = self.judged(target, rows)
                _check(target, rows, change.query)
                records = list(zip(keys_of(target, rows), values_of(target, rows), strict=True))
            case "update":
                old = list(types.items())
                new = [(f"_new {n}", types[n]) for n in change.columns]
                both = tables.frame(change.query.sql, [*old, *new])
                before = both.select(list(columns))
                rows = both.with_columns(pl.col(f"_new {n}").alias(n) for n in change.columns).select(list(columns))
                _check(target, rows, change.query)
                records = _replaced(target, before, rows, keyed=bool(set(change.columns) & set(_key(target))))
            case "delete":
                rows = tables.frame(change.query.sql, list(types.items()))
                records = [(key, None) for key in keys_of(target, rows, stored=True)]
        return Written(records, _returned(change, rows, tables), late)


def _inserted(change: RowsChanged, tables: Tables) -> pl.DataFrame:
    """The rows of an INSERT; columns that it does not name are null."""
    types = {c.name: c.type for c in change.target.columns}
    rows = tables.frame(change.query.sql, [(n, types[n]) for n in change.columns])
    missing = [(n, polars_type(t)) for n, t in types.items() if n not in change.columns]
    return rows.with_columns(pl.lit(None, t).alias(n) for n, t in missing)


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


def _check(declared: Declared, rows: pl.DataFrame, query: BatchQuery) -> None:
    """Whether a record can be made of each row."""
    if declared.encoding.value_format.single == "value":
        name = next(c.name for c in declared.columns if c.place == "value")
        if rows[name].null_count():
            raise SqlError(
                f"{name} is null: a record is one value of bytes", query.span, f"give {name} a value", query.text
            )
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
    facet = declared.encoding.of_values(len(columns))
    facet = replace(facet, bare=facet.format.single == "value")
    return facet.format.encode(rows, columns, facet).to_list()


def _decoded(declared: Declared, records: Sequence[Placed]) -> tuple[pl.DataFrame, pl.Series]:
    """Columns of the table and `_diff`, of the records that are well formed; and which those are."""
    source = declared.read_as(declared.name)
    found = decode(source, raw_frame(records), 0)
    rows = found.rows
    if declared.encoding.key == "ROW_ID":
        partitions = rows.with_columns(pl.Series("_partition", [r.partition for r in records], dtype=pl.Int64))
        rows = rows.with_columns(partitions.select(row_ids(pl.col("_partition")).alias(c.name) for c in source.key))
    good = found.error.is_null()
    return rows.filter(good).select(*own_columns(declared, source), DIFF), good


def own_columns(declared: Declared, source: Source) -> list[pl.Expr]:
    """The columns of a table by their names, of rows as its source is read."""
    own = {c.name for c in declared.columns}
    return [pl.col(c.name).alias(c.field) for c in source.columns if c.field in own]


def _judged(declared: Declared, records: Sequence[Placed]) -> pl.Series:
    """Which records a statement has written, and judged."""
    if declared.relation is None or declared.relation.what != "table":
        return pl.repeat(False, len(records), dtype=pl.Boolean, eager=True)
    keys = pl.DataFrame({"k": [r.key for r in records]}, schema={"k": pl.String})
    return keys.select(by_statement(pl.col("k")))["k"]


def _last(declared: Declared, rows: pl.DataFrame) -> pl.DataFrame:
    """The last row of each key of a table, none of a row without one: its views drop it; all rows of an append-only
    one."""
    if declared.kind == "stream":
        return rows
    key = [c.name for c in declared.key]
    if not key:
        return rows.tail(1)
    return rows.filter(~pl.all_horizontal(pl.col(key).is_null())).unique(key, keep="last", maintain_order=True)


def row_of(declared: Declared, row: Mapping[str, Any]) -> pl.DataFrame:
    """One row from Python values (docs/files-and-topics.md, "Values"), for `judged`. `row`: by name in lower case."""
    columns = [Column(c.name, c.type) for c in declared.columns]
    try:
        text = dumps({c.name: json_value(row.get(c.name.lower()), c.type) for c in columns})
    except (TypeError, ValueError) as e:
        raise BraidError(f"this is no row of {declared.name}: {e}", _VALUES) from None
    frame, _, error = codec.decode_values(pl.Series([text]), columns, manner="iso")
    if error[0] is not None:
        raise BraidError(f"this is no row of {declared.name}: {error[0]}", _VALUES)
    return frame


_VALUES = "dates and times are datetime values, ISO text, or numbers of days and milliseconds; a DECIMAL is a Decimal"


# ------------------------------------------------------------------- late rows


class Gate:
    """The watermark of one table, moved on by the rows that are shown to it."""

    def __init__(self, watermark: Bounded, value: Expr) -> None:
        column = Col(watermark.column, value.type)
        self._operator, self._mark = OnTime(value, Watermark(0, column, column)), watermark.expr
        self._ticks_a_ms = 1 if column.type in WHOLE_NUMBERS else 1000
        self._kept: dict[str, Any] = {}

    @staticmethod
    def of(declared: Declared) -> Gate | None:
        """None for a table without a watermark."""
        if declared.relation is None or declared.relation.watermark is None:
            return None
        watermark = declared.relation.watermark
        return Gate(watermark, next(e for n, e, _ in declared.seen if n == watermark.column))

    @property
    def now(self) -> int | None:
        """The watermark after all rows so far, in ms of a time; None while there is none."""
        clock = self._now()
        return clock // self._ticks_a_ms if clock > NEVER else None

    def late(self, rows: pl.DataFrame, epochs: Sequence[int] | pl.Series, partitions: Sequence[int]) -> pl.Series:
        """Which of the rows are late, each by the watermark before it; the watermark moves on."""
        high = pl.Series("e", epochs, dtype=POS_TYPE)
        place = pl.col("e") * pl.lit(LOW, POS_TYPE) + pl.int_range(pl.len()).cast(POS_TYPE)
        placed = rows.with_columns(high.to_frame().select(place.alias(POS)))
        parts = pl.Series("part", partitions, dtype=pl.Int32)
        clocks = self._moved(placed.select(POS, parts, ticks_of(self._mark).alias("value")))
        return pl.Series(self._operator.late(placed, clocks)[0])

    def next(self, rows: pl.DataFrame) -> pl.Series:
        """Which of these rows would be late in a statement after all others; nothing moves."""
        return pl.Series(self._operator.below(rows, np.full(rows.height, self._now())))

    def lift(self, partitions: Sequence[int], time: int) -> None:
        """The partitions show nothing below `time` (ms) any more."""
        shown = {POS: [0] * len(partitions), "part": partitions, "value": [time * self._ticks_a_ms] * len(partitions)}
        self._moved(pl.DataFrame(shown, schema={POS: POS_TYPE, "part": pl.Int32(), "value": pl.Int64()}))

    def _now(self) -> int:
        return Clocks(no_rows(STEPS), self._kept).end(LeafClock(0))

    def _moved(self, shown: pl.DataFrame) -> Clocks:
        known = shown.filter(pl.col("value") < ABOVE_ALL)
        steps = known.with_columns(pl.lit(0, pl.Int16).alias("leaf"), pl.lit(CLOCK, pl.Int8).alias("kind"))
        clocks = Clocks(steps.select(list(STEPS)), self._kept)
        self._kept = clocks.state()
        return clocks
