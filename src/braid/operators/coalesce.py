"""Coalesce: a multiset as a table, with one change of a key per epoch.

In: changes of a multiset (or of an append input), with epochs. Out: per epoch and key the row that stands after it, or
a tombstone (none of `only_rows`); nothing where it ends as it began. Over an append input: its rows.
Rule: within an epoch tombstones come first, then rows, each by their key's canonical text; time is the epoch.
(docs/rules/risingwave.md, RW-6)

*Matches* nothing. *Keeps* nothing. *Emits* at the end of an epoch. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, POS, SUB, key_column, numbers_within, sequence_of
from braid.operators.clocks import Clocks
from braid.operators.multiset import changes_of, weighted
from braid.operators.pairing import keys_of, payload_of
from braid.operators.ranges import as_before, begins, columns_of, distinct, key_order, rows_at
from braid.plan import epochs
from braid.records.key import canonical_key, key_hash
from braid.types import Column, Type


@dataclass(frozen=True, slots=True)
class Coalesce:
    """Spread by the table's key. `types`: of the key's columns; `upsert`: a row replaces the one before it. `key`: the
    table's, where the rows are spread by another one, and those of one key lie in one bucket all the same."""

    types: tuple[Type, ...]
    upsert: bool
    key: tuple[Expr, ...] = ()
    only_rows: bool = False

    @staticmethod
    def of(node: epochs.Coalesce, in_place: bool = False) -> Coalesce:
        upsert, key = node.input.mode != "append", node.key if in_place else ()
        return Coalesce(tuple(e.type for e in node.key), upsert, key, node.only_rows)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        payload = payload_of(rows)
        if self.key:
            rows = self._by_key(rows, payload)
        keys = keys_of(rows)
        changes = changes_of(weighted(rows, [HASH, *keys, *payload]), keys, payload)
        if not changes.height:
            return Result(changes)
        text = canonical_key(changes, [Column(k, t) for k, t in zip(keys, self.types, strict=True)]).fill_null("")
        changes = changes.with_columns(text.alias("_text"))
        if self.key:
            changes = changes.with_columns(key_hash(text).alias(HASH))
        if self.upsert:  # of a row taken back and one added, the one added
            changes = _newest(changes)
        if self.only_rows:
            changes = changes.filter(pl.col(DIFF) == 1)
        epoch = sequence_of(pl.col(POS))  # 64 bits sort faster than 128
        order = changes.select(pl.arg_sort_by(epoch, DIFF, "_text", maintain_order=True)).to_series()
        changes = rows_at(changes, order.to_numpy())
        again = changes.select(pl.all_horizontal(pl.col(c) == pl.col(c).shift() for c in ("_text", DIFF, POS)))
        number = numbers_within(np.cumsum(~again.to_series().fill_null(False).to_numpy()))
        return Result(changes.with_columns(_sub(number).alias(SUB)).drop("_text"))

    def _by_key(self, rows: pl.DataFrame, payload: Sequence[str]) -> pl.DataFrame:
        """The rows under their own keys; a column of a hash that is not known yet."""
        made, _ = compile.evaluate(rows, [(key_column(i), e) for i, e in enumerate(self.key)])
        return columns_of(rows, [POS, DIFF, HASH, *payload]).hstack(made.get_columns())


def _newest(changes: pl.DataFrame) -> pl.DataFrame:
    """One change of each key and epoch: the row, if one comes; of several the last."""
    keys = columns_of(changes, [POS, "_text"])
    h = keys.hash_rows().to_numpy()
    order = key_order(h)
    ordered = rows_at(keys, order)
    same = as_before(ordered[POS]) & as_before(ordered["_text"])
    if (same != ~begins(h[order])[1:]).any():  # two keys of one hash
        changes = changes.sort(POS, "_text", DIFF, maintain_order=True)
        equal = (pl.col(c) == pl.col(c).shift(-1) for c in (POS, "_text"))
        return changes.filter(~pl.all_horizontal(equal).fill_null(False))
    rank = changes[DIFF].to_numpy()[order] * np.int64(len(order)) + np.arange(len(order))
    best = np.maximum.reduceat(rank, np.flatnonzero(np.append(True, ~same)))
    return rows_at(changes, distinct(order[best % len(order)]))


def _sub(number: npt.NDArray[np.int64]) -> pl.Expr:
    """`_sub` of rows at the end of their epoch, made as text, which is joined several times faster than bytes."""
    side = pl.when(pl.col(DIFF) == 1).then(pl.lit("\x021")).otherwise(pl.lit("\x020"))
    parts = [side, pl.col("_text"), pl.lit("\x00")]
    if number.max(initial=0):
        digits = pl.lit(pl.Series(number)).cast(pl.String).str.zfill(10)
        parts.append(pl.when(pl.lit(pl.Series(number > 0))).then(digits).otherwise(pl.lit("")))
    return pl.concat_str(parts).cast(pl.Binary)
