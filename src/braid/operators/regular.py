"""Regular join: the pairs of rows that stand on both sides, and the unmatched rows of preserved sides, padded.

In: changes of two multisets, with epochs. Out: net changes of their join, per epoch.
Rule: a pair weighs the product of its rows' weights and belongs to the later of their epochs. An entry of a preserved
side is padded in the epochs after which its degree, the weight of its partners, is zero. Both are sums over entries, so
entries that cancel need not be found first. (specs/risingwave.md 2.1)

*Matches* equal keys (NULL only where null-safe) for which the residual is true; one that is NULL or fails is not.
*Keeps* the entries of both sides. Rows with a NULL key are never kept.
*Emits* at the end of an epoch, one row a unit of weight.
*Forgets* entries that cancel, and those whose tick is below the watermark of their side, read after the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, NEVER
from braid.operators.clocks import Clocks
from braid.operators.entries import entries_of, in_rounds, known, meetings, null_in, parted, zeros
from braid.operators.epochs import EPOCH, Bag, by_hash, changes_of, distinct_keys, sums_of
from braid.operators.pairing import keys_of, payload_of
from braid.operators.ranges import Ints, begins, columns_of, hashes_of, keyed, rows_at
from braid.operators.watermarks import Cleaning, ticks_of
from braid.plan import logical

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


@dataclass(frozen=True, slots=True)
class _Side:
    """A side. `new`: entries of the batch, by hash; `lone`: those that meet nothing; `old`: entries kept."""

    new: pl.DataFrame
    lone: pl.DataFrame
    old: Bag
    payload: list[str]


@dataclass(frozen=True, slots=True)
class Regular:
    """`null_safe`: for each key column whether NULL equals NULL; `clean`: per side what it forgets by, if it does."""

    how: logical.How
    null_safe: tuple[bool, ...]
    residual: Expr | None = None
    clean: tuple[Cleaning | None, Cleaning | None] = (None, None)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        keys = keys_of(inputs[0])
        sides = [self._side(rows, i, state, keys) for i, rows in enumerate(inputs)]
        payload = [*sides[0].payload, *sides[1].payload]
        parts = self._pairs(sides, keys)
        for side in (0, 1):
            if self.how in (SIDES[side], "full"):
                parts.append(sides[side].lone)
                parts.append(self._padded(sides, side, keys))
        counts: dict[str, int] = {}
        for own, clean in zip(sides, self.clean, strict=True):
            own.old.add(own.new, own.payload)
            if clean is not None:
                own.old.forget(clean.limit(clocks))
                if own.old.expired:
                    counts["expired"] = counts.get("expired", 0) + own.old.expired
            own.old.close()
        schema = pl.concat([x.new.clear() for x in sides], how="diagonal").select(EPOCH, DIFF, HASH, *keys, *payload)
        made = pl.concat([schema, *(p for p in parts if p.height)], how="diagonal").select(schema.columns)
        return Result(changes_of(made, keys, payload), counts=counts)

    def _side(self, rows: pl.DataFrame, side: int, state: State, keys: list[str]) -> _Side:
        payload = payload_of(rows)
        clean = self.clean[side]
        tick = None if clean is None else ticks_of(clean.value)
        entries = entries_of(rows, keys, tick)
        new, lone = parted(entries, null_in(entries, keys, self.null_safe))
        return _Side(new, lone, Bag(state, SIDES[side], keys), payload)

    # ---------------------------------------------------------------- pairs

    def _pairs(self, sides: Sequence[_Side], keys: list[str]) -> list[pl.DataFrame]:
        """New with new, new with old, old with new; only those that the residual lets through outlive their round."""
        left, right = sides
        parts = []
        for looking in in_rounds(left.new, [hashes_of(right.new), *right.old.hashes()]):
            if right.new.height:
                l, r = meetings(looking, right.new, keys)
                parts.append(self._joined(rows_at(looking, l), rows_at(right.new, r), sides, keys))
            if (met := known(right.old, looking, keys)) is not None:
                parts.append(self._joined(rows_at(looking, met[0]), met[1], sides, keys))
        for looking in in_rounds(right.new, left.old.hashes()):
            if (met := known(left.old, looking, keys)) is not None:
                parts.append(self._joined(met[1], rows_at(looking, met[0]), sides, keys))
        return parts

    def _joined(self, left: pl.DataFrame, right: pl.DataFrame, sides: Sequence[_Side], keys: list[str]) -> pl.DataFrame:
        """Pairs, row by row, without those for which the residual is not true."""
        epoch = np.maximum(left[EPOCH].to_numpy(), right[EPOCH].to_numpy())
        weight = left[DIFF].to_numpy() * right[DIFF].to_numpy()
        both = [*columns_of(left, [HASH, *keys, *sides[0].payload]).get_columns()]
        both += columns_of(right, sides[1].payload).get_columns() if sides[1].payload else []
        made = pl.DataFrame([pl.Series(EPOCH, epoch), pl.Series(DIFF, weight), *both])
        return made.filter(self._true(made)) if self.residual is not None and made.height else made

    def _true(self, pairs: pl.DataFrame) -> pl.Series:
        assert self.residual is not None
        made, failed = compile.evaluate(pairs, [("_true", self.residual)])
        return made["_true"].fill_null(False) & ~failed

    # ---------------------------------------------------------------- padding

    def _padded(self, sides: Sequence[_Side], side: int, keys: list[str]) -> pl.DataFrame:
        """What padding changes: for each entry of the side, where its degree begins or ceases to be zero."""
        own, other = sides[side], sides[1 - side]
        entries = own.new
        if other.new.height:
            looking = distinct_keys([other.new], keys)
            if (old := known(own.old, looking, keys)) is not None:
                entries = by_hash(pl.concat([entries, old[1].select(entries.columns)]))
        if not entries.height:
            return entries
        degree = self._degrees(entries, sides, side, keys)
        start = entries[EPOCH].to_numpy()
        born = np.flatnonzero(start != NEVER)
        which, epoch, weight = self._partners(entries, sides, side, keys)
        which, epoch = np.concatenate([which, born]), np.concatenate([epoch, start[born]])
        weight = np.concatenate([weight, np.zeros(len(born), dtype=np.int64)])
        order = np.lexsort((epoch, which))
        which, epoch, weight = which[order], epoch[order], weight[order]
        total = np.cumsum(weight)
        first = begins(which)
        before_entry = np.repeat((total - weight)[first], np.diff(np.append(np.flatnonzero(first), len(which))))
        degree_after = degree[which] + total - before_entry
        last = np.append(begins(which)[1:] | begins(epoch)[1:], True) if len(which) else first  # of its entry and epoch
        which, epoch, degree_after = which[last], epoch[last], degree_after[last]
        padded = (degree_after == 0) & (epoch >= start[which])
        was = np.append(False, padded[:-1])
        first = begins(which)
        was[first] = ((start == NEVER) & (degree == 0))[which[first]]
        change = padded.astype(np.int64) - was
        at = np.flatnonzero(change)
        made = rows_at(entries, which[at])
        weights = made[DIFF].to_numpy() * change[at]
        return made.with_columns(pl.Series(EPOCH, epoch[at]), pl.Series(DIFF, weights))

    def _degrees(self, entries: pl.DataFrame, sides: Sequence[_Side], side: int, keys: list[str]) -> Ints:
        """The degree of each entry before the batch. Without a residual it is one of the key."""
        other = sides[1 - side]
        if self.residual is not None:
            met = known(other.old, entries, keys)
            which, weights = self._matching(entries, met, sides, side, keys)
            return sums_of(which, weights, entries.height)
        looking = keyed(hashes_of(entries), columns_of(entries, keys))
        if not looking.plain:
            met = known(other.old, entries, keys)
            return sums_of(met[0], met[1][DIFF].to_numpy(), entries.height) if met else zeros(entries.height)
        one_each = rows_at(entries, looking.starts[:-1])
        met = known(other.old, one_each, keys)
        by_key = sums_of(met[0], met[1][DIFF].to_numpy(), one_each.height) if met else zeros(one_each.height)
        return np.repeat(by_key, looking.counts)

    def _partners(
        self, entries: pl.DataFrame, sides: Sequence[_Side], side: int, keys: list[str]
    ) -> tuple[Ints, Ints, Ints]:
        """New partners of the entries: (entry, epoch of the partner, its weight)."""
        other = sides[1 - side]
        if not other.new.height:
            return zeros(0), zeros(0), zeros(0)
        e, o = meetings(entries, other.new, keys)
        theirs = rows_at(other.new, o)
        if self.residual is not None:
            ok = self._ok(rows_at(entries, e), theirs, sides, side, keys)
            e, theirs = e[ok], rows_at(theirs, ok)
        return e, theirs[EPOCH].to_numpy(), theirs[DIFF].to_numpy()

    def _matching(
        self,
        entries: pl.DataFrame,
        met: tuple[Ints, pl.DataFrame] | None,
        sides: Sequence[_Side],
        side: int,
        keys: list[str],
    ) -> tuple[Ints, Ints]:
        if met is None:
            return zeros(0), zeros(0)
        which, theirs = met
        ok = self._ok(rows_at(entries, which), theirs, sides, side, keys)
        return which[ok], theirs[DIFF].to_numpy()[ok]

    def _ok(self, own: pl.DataFrame, theirs: pl.DataFrame, sides: Sequence[_Side], side: int, keys: list[str]) -> Ints:
        """Numbers of the pairs for which the residual is true."""
        mine, their = columns_of(own, sides[side].payload), columns_of(theirs, sides[1 - side].payload)
        pairs = pl.DataFrame([*mine.get_columns(), *their.get_columns()])
        return np.flatnonzero(self._true(pairs).to_numpy()) if own.height else zeros(0)
