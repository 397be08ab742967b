"""Temporal join: each left row with the right rows of its key as they stood before the row's epoch.

In: changes of two multisets, with epochs. Out: what the left changes have met, per epoch.
Rule: a left row of epoch e sees right changes of epochs before e. Right changes emit nothing. A left row that is taken
back takes back what it met, which is remembered; one that is replaced does so too, and looks again.
(docs/rules/risingwave.md, "Temporal joins")

*Matches* equal keys (NULL only where null-safe) for which the residual is true. What of it fails is NULL, and told of
the pair when the left row looks.
*Keeps* the entries of the right side and, unless the left side only appends, what each left row has met.
*Emits* at the end of an epoch; LEFT pads a row that meets nothing.
*Forgets* entries that cancel, and what a left row has met when it is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Col, Expr
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH
from braid.operators.clocks import Clocks
from braid.operators.multiset import (
    EPOCH,
    TICK,
    Bag,
    Failures,
    changes_of,
    entries_of,
    known,
    meetings,
    netted,
    null_in,
    parted,
)
from braid.operators.pairing import keys_of, payload_of
from braid.operators.ranges import columns_of, hashes_of, keyed, rows_at
from braid.plan import epochs
from braid.records.key import canonical_key, key_hash
from braid.types import Column

ROW, FROM = "_row", "_from"  # a left row as text; the epoch in which the row that is taken back came


@dataclass(frozen=True, slots=True)
class Temporal:
    """`left`: the columns of a left row, all of them. `remembers`: left rows may be taken back."""

    outer: bool
    null_safe: tuple[bool, ...]
    residual: Expr | None
    left: tuple[Col, ...]
    remembers: bool

    @staticmethod
    def of(node: epochs.TemporalJoin) -> Temporal:
        remembers = node.left.mode != "append"
        return Temporal(node.how == "left", node.on.null_safe, node.residual, node.left.schema, remembers)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        keys = keys_of(inputs[0])
        payload = [*payload_of(inputs[0]), *payload_of(inputs[1])]
        table = Bag(state, "right", keys)
        left, right = (entries_of(rows, keys) for rows in inputs)
        left, lone = parted(left, null_in(left, keys, self.null_safe))
        right, _ = parted(right, null_in(right, keys, self.null_safe))
        nothing = pl.concat([left.clear(), right.clear()], how="diagonal").select(EPOCH, DIFF, HASH, *keys, *payload)
        failures = Failures(self.residual, keys)
        found = self._met(left.filter(pl.col(DIFF) > 0), right, table, keys, failures)
        met = pl.concat([nothing, found], how="diagonal_relaxed")
        if failures and self.remembers:  # a row that takes the place of another like it is not told again
            self._met(left.filter(pl.col(DIFF) < 0), right, table, keys, failures)
        table.add(right, payload_of(inputs[1]))
        table.close()
        if self.remembers:
            met = self._with_memory(met, left.filter(pl.col(DIFF) < 0), state, keys, payload)
        parts = [met, *([lone] if self.outer else [])]
        made = pl.concat(parts, how="diagonal").select(nothing.columns)
        return Result(changes_of(made, keys, payload), failures.told(payload))

    # ---------------------------------------------------------------- looking

    def _met(
        self, left: pl.DataFrame, right: pl.DataFrame, table: Bag, keys: list[str], failures: Failures
    ) -> pl.DataFrame:
        """What new left rows meet, in their epochs; padded where that is nothing."""
        left = left.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("_i"))
        parts = [left.clear()]
        l, r = meetings(left, right, keys)
        earlier = right[EPOCH].to_numpy()[r] < left[EPOCH].to_numpy()[l]
        parts.append(self._pairs(rows_at(left, l[earlier]), rows_at(right, r[earlier]), failures))
        if (found := known(table, left, keys)) is not None:
            parts.append(self._pairs(rows_at(left, found[0]), found[1], failures))
        pairs = pl.concat(parts, how="diagonal")
        pairs = netted(pairs, [c for c in pairs.columns if c != DIFF])
        if self.outer:
            missed = np.setdiff1d(np.arange(left.height), pairs["_i"].to_numpy())
            pairs = pl.concat([pairs, rows_at(left, missed)], how="diagonal")
        return pairs.drop("_i", TICK)

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        weight = left[DIFF] * right[DIFF]
        theirs = columns_of(right, payload_of(right))
        made = left.with_columns(weight.alias(DIFF)).hstack(theirs.get_columns())
        if self.residual is None or not made.height:
            return made
        failures.look(made)
        return made.filter(compile.evaluate(made, [("_true", self.residual)])[0]["_true"].fill_null(False))

    # ---------------------------------------------------------------- memory

    def _with_memory(
        self, met: pl.DataFrame, gone: pl.DataFrame, state: State, keys: list[str], payload: list[str]
    ) -> pl.DataFrame:
        """The same and what rows that are gone take back: what they met earlier in the batch, or before it."""
        memory = Bag(state, "met", keys)
        met, gone = self._named(met), self._named(gone)
        back = [met.clear()]
        if gone.height:
            came = met.select(ROW, EPOCH, pl.col(EPOCH).alias(FROM)).unique().sort(EPOCH)
            wanted = gone.select(ROW, EPOCH, HASH, *keys, TICK).sort(EPOCH)
            wanted = wanted.join_asof(came, on=EPOCH, by=ROW, allow_exact_matches=False, check_sortedness=False)
            wanted = wanted.with_columns(pl.col(EPOCH).alias("_when"))
            here = wanted.filter(pl.col(FROM).is_not_null()).select(ROW, pl.col(FROM).alias(EPOCH), "_when")
            taken = met.join(here, on=[ROW, EPOCH]).with_columns(pl.col("_when").alias(EPOCH))
            back.append(taken.select(met.columns))
            before = self._remembered(wanted.filter(pl.col(FROM).is_null()), memory, keys)
            back.append(met.clear() if before is None else before.select(met.columns))
        all_rows = pl.concat([met, *(b.with_columns(-pl.col(DIFF)) for b in back)])
        memory.add(all_rows, payload)
        memory.close()
        return all_rows.drop(ROW, TICK)

    def _named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Left rows with what they are known by: their text, and its hash as their tick."""
        text = self._text(rows)
        tick = (key_hash(text) // 4).cast(pl.Int64)  # above NEVER
        return rows.with_columns(text.alias(ROW), tick.alias(TICK))

    def _text(self, rows: pl.DataFrame) -> pl.Series:
        known_columns = [Column(c.name, c.type) for c in self.left if c.name in rows.columns]
        return canonical_key(rows, known_columns).fill_null("").alias(ROW)

    def _remembered(self, gone: pl.DataFrame, memory: Bag, keys: list[str]) -> pl.DataFrame | None:
        """What rows have met before this batch, in the epochs in which they are gone."""
        gone = rows_at(gone, np.argsort(hashes_of(gone), kind="stable"))
        ticks = gone[TICK].to_numpy()
        found = memory.probe(keyed(hashes_of(gone), columns_of(gone, keys)), ticks, ticks)
        if found.rows is None:
            return None
        own = rows_at(gone, found.looking)
        rows = found.rows.with_columns(own["_when"].alias(EPOCH), self._text(found.rows))
        rows = rows.filter(pl.Series(rows[ROW] == own[ROW]))
        return netted(rows, [c for c in rows.columns if c != DIFF])
