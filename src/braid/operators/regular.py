"""Regular join: the pairs of rows that stand on both sides, and the unmatched rows of preserved sides, padded.

In: changes of two multisets, with epochs. Out: net changes of their join, per epoch.
Rule: a pair weighs the product of its rows' weights and belongs to the later of their epochs. An entry of a preserved
side is padded in the epochs after which its degree, the weight of its partners, is zero. Both are sums over entries, so
entries that cancel need not be found first. (docs/rules/risingwave.md, "Regular joins")

*Matches* equal keys (NULL only where null-safe) for which the residual is true. What of it fails is NULL, and told of
the pair when it comes.
*Keeps* the entries of both sides. Rows with a NULL key are never kept.
*Emits* at the end of an epoch, one row a unit of weight; some epochs at a time.
*Forgets* entries that cancel, and those whose tick is below the watermark of their side, read after the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, NEVER
from braid.operators.clocks import Clocks
from braid.operators.multiset import (
    EPOCH,
    TICK,
    Bag,
    Failures,
    Reach,
    by_hash_and_tick,
    changes_of,
    distinct_keys,
    entries_of,
    in_rounds,
    known,
    meetings,
    null_in,
    only_adds,
    parted,
    sums_of,
    touched,
    zeros,
)
from braid.operators.pairing import keys_of, pairs_at_once, payload_of, piece_rows, pieces
from braid.operators.ranges import Crowded, Ints, begins, columns_of, distinct, hashes_of, keyed, rows_at
from braid.operators.watermarks import Cleaning, ticks_of
from braid.plan import logical
from braid.plan.bands import Band

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


@dataclass(frozen=True, slots=True)
class _Side:
    """A side. `new`: entries of the batch, by hash; `lone`: those that meet nothing; `old`: entries kept."""

    new: pl.DataFrame
    lone: pl.DataFrame
    old: Bag
    payload: list[str]

    def within(self, epochs: Ints) -> _Side:
        """Of the new rows only those of some epochs that follow each other."""
        new, lone = (x.filter(pl.col(EPOCH).is_between(epochs[0], epochs[-1])) for x in (self.new, self.lone))
        return replace(self, new=new, lone=lone)


@dataclass(frozen=True, slots=True)
class Regular:
    """`null_safe`: for each key column whether NULL equals NULL; `clean`: per side what it forgets by, if it does;
    `band`: how far apart rows that meet are, of what they are forgotten by; `gives`: pairs, or the left rows that
    have a partner, or those that have none."""

    how: logical.How
    null_safe: tuple[bool, ...]
    residual: Expr | None = None
    clean: tuple[Cleaning | None, Cleaning | None] = (None, None)
    band: Band | None = None
    gives: Literal["pairs", "matched", "unmatched"] = "pairs"

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        keys = keys_of(inputs[0])
        sides = [self._side(rows, i, state, keys) for i, rows in enumerate(inputs)]
        before = [replace(side, old=side.old.as_it_stands()) for side in sides]
        counts: dict[str, int] = {}
        for own, clean in zip(sides, self.clean, strict=True):
            own.old.add(own.new, own.payload, ordered=True)
            if clean is not None:
                own.old.forget(clean.limit(clocks))
                if own.old.expired:
                    counts["expired"] = counts.get("expired", 0) + own.old.expired
            own.old.close()
        lost: list[pl.DataFrame] = []
        return Result.of(self._changes(before, keys, lost), counts=counts, lost=lost)

    def _side(self, rows: pl.DataFrame, side: int, state: State, keys: list[str]) -> _Side:
        payload = payload_of(rows)
        clean = self.clean[side]
        entries = entries_of(rows, keys, None if clean is None else ticks_of(clean.value))
        never = null_in(entries, keys, self.null_safe)
        if self.band is not None:
            at = (self.band.left, self.band.right)[side]
            entries = entries.with_columns(ticks_of(at).alias(TICK))
            without = entries.select(compile.to_polars(at).is_null().alias("n"))["n"]
            never = without if never is None else never | without
        new, lone = parted(entries, never)
        return _Side(new, lone, Bag(state, SIDES[side], keys), payload)

    def _changes(self, sides: list[_Side], keys: list[str], lost: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """The changes, some epochs at a time: as many as give no more than a piece. `sides`: with the entries before
        the batch, to which those of the epochs that are done are added. `lost`: gets what is told of pairs."""
        payload = [*sides[0].payload, *(sides[1].payload if self.gives == "pairs" else [])]
        nothing = pl.concat([x.new.clear() for x in sides], how="diagonal").select(EPOCH, DIFF, HASH, *keys, *payload)
        most = piece_rows(*([side.new] for side in sides))
        left: list[Ints | None] = [None]  # epochs that are to be done together, the next ones last; None: all
        while left:
            epochs = left.pop()
            some = sides if epochs is None else [side.within(epochs) for side in sides]
            failures = Failures(self.residual, keys)
            try:
                made = iter([self._parts(some, keys, most, failures)])
            except Crowded as crowd:
                if epochs is None:  # whoever asks for more has let go of what the batch came in
                    yield changes_of(nothing, keys, payload)
                    epochs = distinct(np.concatenate([x[EPOCH].to_numpy() for s in sides for x in (s.new, s.lone)]))
                if len(epochs) > 1:
                    size = max(1, len(epochs) * most // (2 * crowd.pairs))
                    left += [epochs[i : i + size] for i in range(0, len(epochs), size)][::-1]
                    continue
                failures = Failures(self.residual, keys)
                made = self._of_one(some, keys, most, failures)
            for parts in made:
                rows = pl.concat([nothing, *(p for p in parts if p.height)], how="diagonal").select(nothing.columns)
                yield changes_of(rows, keys, payload)
            if (told := failures.told([*sides[0].payload, *sides[1].payload])) is not None:
                lost.append(told)
            if left:
                for side in some:
                    side.old.with_new(side.new)

    def _of_one(
        self, sides: Sequence[_Side], keys: list[str], most: int, failures: Failures
    ) -> Iterator[list[pl.DataFrame]]:
        """What one epoch changes, in pieces of at most `most` rows; at once where something is taken back, since that
        may cancel what stands in another piece."""
        rest = self._unmatched(sides, keys)
        if not all(side.old.only_adds() and only_adds(side.new) for side in sides) or not all(map(only_adds, rest)):
            yield [*(found for _, found in self._pairs(sides, keys, failures)), *rest]
            return
        for _, found in self._pairs(sides, keys, failures):
            yield from ([found[rows]] for rows in pieces(found.height, most))
        yield rest

    def _parts(self, sides: Sequence[_Side], keys: list[str], most: int, failures: Failures) -> list[pl.DataFrame]:
        """What some epochs change. `Crowded` where it is more than `most` rows."""
        parts = []
        looks = 2 * sides[0].new.height + sides[1].new.height
        seen = made = 0
        for looked, found in self._pairs(sides, keys, failures):
            parts.append(found)
            seen, made = seen + looked, made + found.height
            if made > most:
                raise Crowded(made * looks // seen)
        return parts + self._unmatched(sides, keys)

    def _unmatched(self, sides: Sequence[_Side], keys: list[str]) -> list[pl.DataFrame]:
        """What of both sides goes out padded, and what of that is taken back; of a semi-join what has a partner."""
        if self.gives == "matched":
            return [self._padded(sides, 0, keys)]
        parts = []
        for side in (0, 1):
            if self.how in (SIDES[side], "full"):
                parts += [sides[side].lone, self._padded(sides, side, keys)]
        return parts

    # ---------------------------------------------------------------- pairs

    def _ticks(self, looking: pl.DataFrame, side: int) -> tuple[Ints, Ints] | None:
        """Where rows of a side look."""
        return None if self.band is None else Reach(self.band.low, self.band.high).of(looking, side == 0)

    def _meetings(
        self, looking: pl.DataFrame, stored: pl.DataFrame, side: int, keys: list[str], most: int | None
    ) -> tuple[Ints, Ints]:
        return meetings(looking, stored, keys, self._ticks(looking, side), most)

    def _known(
        self, looking: pl.DataFrame, bag: Bag, side: int, keys: list[str], most: int | None
    ) -> tuple[Ints, pl.DataFrame] | None:
        return known(bag, looking, keys, self._ticks(looking, side), most)

    def _pairs(self, sides: Sequence[_Side], keys: list[str], failures: Failures) -> Iterator[tuple[int, pl.DataFrame]]:
        """How many rows looked, and the pairs that the residual lets through, in rounds. Where no pairs go out, they
        are read for what fails."""
        if self.gives != "pairs" and not failures:
            return
        for looked, pairs in self._together(sides, keys):
            failures.look(pairs)
            if self.gives == "pairs":
                yield looked, pairs.filter(self._true(pairs)) if self.residual is not None and pairs.height else pairs

    def _together(self, sides: Sequence[_Side], keys: list[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """New with new, new with old, old with new, in rounds: (how many rows looked, pairs)."""
        left, right = sides
        most = pairs_at_once([left.new], [right.new])
        for looking, (l, r) in in_rounds(left.new, lambda x, n: self._meetings(x, right.new, 0, keys, n), most):
            yield looking.height, self._joined(rows_at(looking, l), rows_at(right.new, r), sides, keys)
        for looking, met in in_rounds(left.new, lambda x, n: self._known(x, right.old, 0, keys, n), most):
            if met is not None:
                yield looking.height, self._joined(rows_at(looking, met[0]), met[1], sides, keys)
        for looking, met in in_rounds(right.new, lambda x, n: self._known(x, left.old, 1, keys, n), most):
            if met is not None:
                yield looking.height, self._joined(met[1], rows_at(looking, met[0]), sides, keys)

    def _joined(self, left: pl.DataFrame, right: pl.DataFrame, sides: Sequence[_Side], keys: list[str]) -> pl.DataFrame:
        """Pairs, row by row."""
        epoch = np.maximum(left[EPOCH].to_numpy(), right[EPOCH].to_numpy())
        weight = left[DIFF].to_numpy() * right[DIFF].to_numpy()
        both = [*columns_of(left, [HASH, *keys, *sides[0].payload]).get_columns()]
        both += columns_of(right, sides[1].payload).get_columns() if sides[1].payload else []
        return pl.DataFrame([pl.Series(EPOCH, epoch), pl.Series(DIFF, weight), *both])

    def _true(self, pairs: pl.DataFrame) -> pl.Series:
        assert self.residual is not None
        return compile.evaluate(pairs, [("_true", self.residual)])[0]["_true"].fill_null(False)

    # ---------------------------------------------------------------- padding

    def _padded(self, sides: Sequence[_Side], side: int, keys: list[str]) -> pl.DataFrame:
        """What padding changes: for each entry of the side, where its degree begins or ceases to be zero."""
        own, other = sides[side], sides[1 - side]
        entries = own.new
        if other.new.height:
            if (reach := self._ticks(other.new, 1 - side)) is not None:
                old = touched(own.old, other.new, keys, reach)
            else:
                met = known(own.old, distinct_keys([other.new], keys), keys)
                old = None if met is None else met[1]
            if old is not None:
                entries = by_hash_and_tick(pl.concat([entries, old.select(entries.columns)]))
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
        matched = self.gives == "matched"
        padded = ((degree_after == 0) != matched) & (epoch >= start[which])
        was = np.append(False, padded[:-1])
        first = begins(which)
        was[first] = ((start == NEVER) & ((degree == 0) != matched))[which[first]]
        change = padded.astype(np.int64) - was
        at = np.flatnonzero(change)
        made = rows_at(entries, which[at])
        weights = made[DIFF].to_numpy() * change[at]
        return made.with_columns(pl.Series(EPOCH, epoch[at]), pl.Series(DIFF, weights))

    def _degrees(self, entries: pl.DataFrame, sides: Sequence[_Side], side: int, keys: list[str]) -> Ints:
        """The degree of each entry before the batch. Without a residual it is one of the key."""
        other = sides[1 - side]
        if self.residual is not None:
            degrees = []
            for looking, met in in_rounds(entries, lambda x, n: self._known(x, other.old, side, keys, n)):
                which, weights = self._matching(looking, met, sides, side, keys)
                degrees.append(sums_of(which, weights, looking.height))
            return np.concatenate(degrees)
        own = keyed(hashes_of(entries), columns_of(entries, keys))
        if not own.plain:
            met = known(other.old, entries, keys)
            return sums_of(met[0], met[1][DIFF].to_numpy(), entries.height) if met else zeros(entries.height)
        one_each = rows_at(entries, own.starts[:-1])
        met = known(other.old, one_each, keys)
        by_key = sums_of(met[0], met[1][DIFF].to_numpy(), one_each.height) if met else zeros(one_each.height)
        return np.repeat(by_key, own.counts)

    def _partners(
        self, entries: pl.DataFrame, sides: Sequence[_Side], side: int, keys: list[str]
    ) -> tuple[Ints, Ints, Ints]:
        """New partners of the entries: (entry, epoch of the partner, its weight)."""
        other = sides[1 - side]
        parts, first = [(zeros(0), zeros(0), zeros(0))], 0
        for looking, (e, o) in in_rounds(entries, lambda x, n: self._meetings(x, other.new, side, keys, n)):
            theirs = rows_at(other.new, o)
            if self.residual is not None:
                ok = self._ok(rows_at(looking, e), theirs, sides, side, keys)
            else:
                ok = np.arange(len(e))
            theirs = rows_at(theirs, ok)
            parts.append((e[ok] + first, theirs[EPOCH].to_numpy(), theirs[DIFF].to_numpy()))
            first += looking.height
        which, epochs, weights = (np.concatenate(x) for x in zip(*parts, strict=True))
        return which, epochs, weights

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
