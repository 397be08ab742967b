"""Rekey: rows that lie together by another key already get the one that they are wanted by, where they are.

In: rows in processing order, spread so that those of one of the new keys are in one bucket. Out: the same rows with the
columns and the hash of the new key.
Rule: what an exchange by that key would give, but that nothing moves.

*Matches* nothing. *Keeps* nothing. *Emits* every row at its own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.expr.rows import runs
from braid.operators.base import Behind, Result, State
from braid.operators.changes import DIFF, HASH, key_column
from braid.operators.clocks import Clocks
from braid.operators.pairing import failed_rows, keys_of
from braid.operators.ranges import alike_rows, columns_of, repeated, rows_at
from braid.plan.node import Mode
from braid.plan.told import Told
from braid.records.key import canonical_key, key_hash
from braid.types import Column


@dataclass(frozen=True, slots=True)
class Rekey(Behind):
    """`keys`: of which every row has all parts; `by`: what the rows are spread by, made of the columns of these."""

    called = "re-key"
    mode: Mode
    keys: tuple[Expr, ...]
    by: tuple[Expr, ...] = ()

    @property
    def told(self) -> Told:
        return Told([], notes=["rows of one key lie in one bucket already"])

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        made, failed = with_key(inputs[0], self.keys)
        return Result(made, failed_rows(made, failed, self.keys))


def with_key(
    frame: pl.DataFrame, keys: Sequence[Expr], whole: bool = False, gone: Collection[int] = (), one: bool = False
) -> tuple[pl.DataFrame, pl.Series]:
    """The frame with exchange key columns and hash; and which rows had a key expression that failed.

    Rows without a key have a null hash: where the key's columns are all null or, if it must be `whole` (joins and
    groups), where any is; or they have a hash that they share (`one`). The keys of these numbers are null where a row
    is `gone` (`needing_a_value`). Of a row that is gone nothing can fail.
    """
    made, failed = _evaluated(frame, keys, gone)
    frame = _without_key(frame)
    return frame.hstack([hash_of_key(made, keys, whole, one), *made.get_columns()]), failed


def with_key_columns(frame: pl.DataFrame, keys: Sequence[Expr]) -> tuple[pl.DataFrame, pl.Series]:
    """The same without a hash."""
    made, failed = _evaluated(frame, keys)
    return _without_key(frame).hstack(made.get_columns()), failed


def _evaluated(frame: pl.DataFrame, keys: Sequence[Expr], gone: Collection[int] = ()) -> tuple[pl.DataFrame, pl.Series]:
    made, failed = compile.evaluate(frame, [(key_column(i), e) for i, e in enumerate(keys)])
    if gone:
        there = frame[DIFF] == 1
        made = made.with_columns(pl.when(there).then(pl.col(key_column(i))).alias(key_column(i)) for i in gone)
    if failed.any():
        failed = failed & (frame[DIFF] == 1)
    return made, failed


def _without_key(frame: pl.DataFrame) -> pl.DataFrame:
    others = {*keys_of(frame), HASH}
    return columns_of(frame, [c for c in frame.columns if c not in others])


def hash_of_key(made: pl.DataFrame, keys: Sequence[Expr], whole: bool, one: bool = False) -> pl.Series:
    """`_h` of rows that have the exchange key columns. Where rows with one key follow each other, as those of a window
    do, or are many, it is made once for them."""
    if one:
        return hash_of_key(made, keys, whole).fill_null(0)
    if not keys:
        return repeated(HASH, None, pl.UInt64, made.height)
    columns = [Column(key_column(i), e.type) for i, e in enumerate(keys)]
    found = runs(made.get_columns()) or alike_rows(made)
    if found is not None:
        first, run = found
        return hash_of_key(rows_at(made, first), keys, whole).gather(run).alias(HASH)
    text = canonical_key(made, columns)
    if whole and len(keys) > 1:
        there = pl.all_horizontal(pl.col(c.name).is_not_null() for c in columns)
        text = made.select(pl.when(there).then(text).alias("k"))["k"]
    return key_hash(text).alias(HASH)
