"""Pull queries answered: rows of a table that stand, records of a stream, or tables, by Braid's own expressions.

In: a bound query; rows by the plan names of their columns, or the records of a topic. Out: the rows of the answer.
Of tables the plan is run once, over all their records, as one epoch.
Rule: a table's rows stand in the order of their keys and windows, a stream's in processing order, so that LIMIT takes
the same ones each time. A record that cannot be read, a stream's without a value and a table's without a key are left
out, and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from braid.bind.bound import Pull, TablesAsked
from braid.expr import compile
from braid.lower.lower import lower
from braid.operators.arrangement import MemoryRuns
from braid.operators.base import State
from braid.operators.changes import DIFF, HASH, TIME, key_column
from braid.operators.ranges import Hashes, columns_of, hashes_of
from braid.operators.rekey import hash_of_key
from braid.plan.drop_reasons import Reason
from braid.plan.logical import Source
from braid.records.values import json_text, python_value
from braid.stage.call_order import topic_ranks
from braid.stage.cut import LIMIT
from braid.stage.decode import Decoded
from braid.stage.emit import OF_WINDOW
from braid.stage.ingest import Chunk
from braid.stage.inputs import Readable
from braid.stage.local import LocalQuery
from braid.stage.materialized import Keeper, Materialized, key_of
from braid.types import WHOLE_NUMBERS, Scalar, Type, polars_type

Rows = list[tuple[Any, ...]]
PLAIN = (Scalar.BOOLEAN, *WHOLE_NUMBERS, Scalar.DOUBLE, Scalar.VARCHAR, Scalar.BYTES)
_PLACE, _PARTITION, _OFFSET = "_place", "_partition", "_offset"


@dataclass(slots=True)
class LeftOut:
    """The records that an answer leaves out, by what is wrong; `first`: with the first that cannot be read."""

    counts: Counter[str] = field(default_factory=Counter)
    first: str = ""

    def unreadable(self, errors: pl.Series) -> None:
        count = len(errors) - errors.null_count()
        if count and not self.first:
            self.first = errors.drop_nulls()[0]
        self.counts["cannot be read as it is declared"] += count

    def told(self, name: str) -> list[str]:
        """A sentence for each kind."""
        made = [f"{records(n)} of {name} {what}: left out" for what, n in self.counts.items() if n]
        return [f"{text}; the first: {self.first}" if "cannot" in text else text for text in made]


def records(n: int) -> str:
    return "1 record" if n == 1 else f"{n:,} records"


def hashes(pull: Pull) -> Hashes | None:
    """Of the keys that a row must have one of; None: of any. A constant that the key's type does not have is none."""
    if pull.keys is None:
        return None
    key, parts = pull.source.key, []
    for i, column in enumerate(key):
        type_, given = column.column.type, [one[i] for one in pull.keys]
        values = [compile.evaluate(pl.DataFrame(height=1), [("v", e)])[0]["v"] for e in given]
        fit = [_as(v, type_) for v in values]
        parts.append(pl.concat(fit).alias(key_column(i)))
    made = pl.DataFrame(parts).drop_nulls()
    exprs = [c.col for c in key]
    return np.unique(hashes_of(made.with_columns(hash_of_key(made, exprs, False))))


def _as(value: pl.Series, type_: Type) -> pl.Series:
    """The one value in another type; null where that does not have it."""
    made = value.cast(polars_type(type_), strict=False)
    return made if value.dtype == made.dtype or (made.cast(value.dtype, strict=False) == value).all() else made.clear(1)


# --------------------------------------------------------------------- tables


def of_table(pull: Pull, rows: pl.DataFrame) -> pl.DataFrame:
    """The answer over rows that stand, by plan names."""
    found = _passing(pull, rows)
    order = [c.name for c in (*pull.source.key, *pull.source.window) if c.name in found.columns]
    if order and found.height > 1:
        found = found.sort(order, nulls_last=False)
    return _columns(pull, found if pull.limit is None else found.head(pull.limit))


class Folded:
    """A table that no query keeps: the last record of each key of its topic, as far as it has been read."""

    def __init__(self, source: Source) -> None:
        self._source, self._runs, self._manifest = source, MemoryRuns(), dict[str, Any]()
        self._keys, self._read, self._made = key_of(source), dict[int, int](), 0
        self.left_out = LeftOut()

    def take(self, decoded: Decoded) -> None:
        self.left_out.unreadable(decoded.error)
        rows = decoded.rows.filter(decoded.error.is_null())
        keys = [] if self._source.message_key is not None else list(self._source.key)
        values = [c for c in self._source.columns if c.place == "value"]
        made = rows.select(
            DIFF,
            TIME,
            *(pl.col(c.name).alias(key_column(i)) for i, c in enumerate(keys)),
            *(pl.col(c.name).alias(f"v{i}") for i, c in enumerate(values)),
            *(pl.col(c.name).alias(b) for c, b in zip(self._source.window, OF_WINDOW, strict=False)),
        )
        if self._source.message_key is not None:
            key = next(c for c in values if c.field == self._source.message_key)
            keys, made = [key], made.with_columns(rows[key.name].alias(key_column(0)))
        made = made.with_columns(hash_of_key(made, [c.col for c in keys], False))
        self.left_out.counts["has no key"] += made[HASH].null_count()
        self._made += 1
        keeper = Keeper(State(self._runs, str(self._made), self._manifest), self._keys)
        keeper.take(made.filter(pl.col(HASH).is_not_null()))
        keeper.rows.close()

    def read_on(self, x: Readable, starts: Sequence[int]) -> None:
        """Takes what the topic has, and has not been read."""
        for partition, (start, end) in enumerate(zip(starts, x.ends() if starts else [], strict=True)):
            at = max(start, self._read.get(partition, 0))
            for first in range(at, end, LIMIT):
                self.take(x.read(partition, first, min(first + LIMIT, end)))
            self._read[partition] = end

    def rows(self, h: Hashes | None) -> pl.DataFrame | None:
        return Materialized([(m, self._runs) for m in [self._manifest] if m], self._keys).rows(h)


# -------------------------------------------------------------------- streams


def of_stream(pull: Pull, parts: Iterable[tuple[int, Iterable[Decoded]]], left: LeftOut) -> pl.DataFrame:
    """The answer over the records of each partition, piece by piece; `left` is told what is left out of it."""
    found = [rows for partition, pieces in parts for rows in _of_partition(pull, partition, pieces, left)]
    if not found:
        return _columns(pull, pl.DataFrame(schema={c.name: polars_type(c.column.type) for c in pull.source.columns}))
    rows = pl.concat(found).sort(_PLACE, _PARTITION, _OFFSET)
    return _columns(pull, rows if pull.limit is None else rows.head(pull.limit))


def _of_partition(pull: Pull, partition: int, pieces: Iterable[Decoded], left: LeftOut) -> Iterable[pl.DataFrame]:
    """The records that pass, each with its place; of those as many as LIMIT may take."""
    before, given = None, 0
    for piece in pieces:
        rows = piece.rows.with_columns(pl.col(TIME).cum_max().alias(_PLACE), pl.lit(partition).alias(_PARTITION))
        if before is not None:
            rows = rows.with_columns(pl.max_horizontal(_PLACE, pl.lit(before)).alias(_PLACE))
        before = rows[_PLACE][-1] if rows.height else before
        left.unreadable(piece.error)
        rows = rows.filter(piece.error.is_null())
        left.counts["has no value"] += int((rows[DIFF] != 1).sum())
        passing = _passing(pull, rows.filter(pl.col(DIFF) == 1))
        given += passing.height
        yield columns_of(passing, [*(c.name for c in pull.source.columns), _PLACE, _PARTITION, _OFFSET])
        if pull.limit is not None and given >= pull.limit:
            return


def pieces(x: Readable, starts: Sequence[int]) -> Iterable[tuple[int, Iterable[Decoded]]]:
    """All that an input has now, by partition."""
    for p, (start, end) in enumerate(zip(starts, x.ends() if starts else [], strict=True)):
        yield p, (x.read(p, first, min(first + LIMIT, end)) for first in range(start, end, LIMIT))


# --------------------------------------------------------------------- tables

Records = Callable[[Source], Iterable[tuple[int, Iterable[Decoded]]]]


def of_tables(asked: TablesAsked, read: Records) -> tuple[pl.DataFrame, list[str]]:
    """The answer over all records of the tables, partition by partition, and what to tell of those left out."""
    plan = lower(asked.query)
    ranks, lost, chunks = topic_ranks(plan), dict[str, LeftOut](), list[Chunk]()
    for leaf in plan.leaves:
        left, n = LeftOut(), 0
        lost[leaf.source.name] = left
        for partition, pieces in read(leaf.source):
            for piece in pieces:
                left.unreadable(piece.error)
                left.counts["has no value"] += int((piece.rows[DIFF] != 1).sum())
                good = piece.rows.filter(piece.error.is_null() & (piece.rows[DIFF] == 1))
                places = pl.int_range(n, n + good.height, eager=True).alias("n")
                order = places.to_frame().select(seq=0, hops=0, rank=ranks[leaf.number], n="n")
                errors = pl.Series([None], dtype=pl.String).new_from_index(0, good.height)
                chunks.append(Chunk(leaf.number, partition, partition, Decoded(good, errors), order.cast(pl.Int64)))
                n += good.height
    rows, dropped = LocalQuery(plan, 1, 1).results(chunks)
    told = [text for name, left in lost.items() for text in left.told(name)]
    if failed := dropped.height:
        told.append(f"{Reason.EXPRESSION.sentence}, {failed:,} times: it is NULL there")
    return _sorted(asked, _standing(asked, rows)), told


def _standing(asked: TablesAsked, rows: pl.DataFrame) -> pl.DataFrame:
    """The last row of each key."""
    if not rows.height:
        return pl.DataFrame(schema={f"v{i}": polars_type(o.expr.type) for i, o in enumerate(asked.query.sink.values)})
    keys = [key_column(i) for i in range(len(asked.query.sink.key))]
    return rows.unique(keys, keep="last", maintain_order=True).filter(pl.col(DIFF) == 1)


def _sorted(asked: TablesAsked, rows: pl.DataFrame) -> pl.DataFrame:
    shown = len(asked.columns)
    if asked.order:
        by = [f"v{shown + i}" for i in range(len(asked.order))]
        down = [o.descending for o in asked.order]
        rows = rows.sort(by, descending=down, nulls_last=[not o.begins_with_null for o in asked.order],
                         maintain_order=True)  # fmt: skip
    return rows.select(pl.col(f"v{i}").alias(f"{i}") for i in range(shown))


# -------------------------------------------------------------------- answers


def _passing(pull: Pull, rows: pl.DataFrame) -> pl.DataFrame:
    if pull.predicate is None or not rows.height:
        return rows
    return rows.filter(compile.evaluate(rows, [("p", pull.predicate)])[0]["p"].fill_null(False))


def _columns(pull: Pull, rows: pl.DataFrame) -> pl.DataFrame:
    return compile.evaluate(rows, [(str(i), c.expr) for i, c in enumerate(pull.columns)])[0]


def header(pull: Pull | TablesAsked) -> list[str]:
    return [c.name for c in pull.columns]


def values(pull: Pull | TablesAsked, answer: pl.DataFrame, ticks: bool) -> Rows:
    """The rows of an answer in Python (docs/files-and-topics.md, "Values"); `ticks`: dates and times are numbers."""
    columns = [_values(answer[str(i)], c.expr.type, ticks) for i, c in enumerate(pull.columns)]
    return list(zip(*columns, strict=True))


def _values(s: pl.Series, t: Type, ticks: bool) -> Sequence[Any]:
    if t in PLAIN:
        return s.to_list()
    texts = json_text(s, t)
    return [None if x is None else python_value(json.loads(x), t, ticks) for x in texts]
