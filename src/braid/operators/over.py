"""Calls over the rows of a partition, which are worked out again where an epoch changes it.

In: changes of a multiset, with epochs. Out: per epoch the net changes of its rows with what the calls give them.
Rule: a row stands from the epoch in which it comes until that in which it goes. Each pair of a partition and an epoch
that touches it is a partition of its own, of the rows that stand then; all of these are answered at once. What goes out
is an answer less the one before it. (docs/rules/risingwave.md, "Calls over rows")

*Matches* nothing. *Keeps* the rows; of a top over what only comes the first ones alone.
*Emits* at the end of an epoch the rows that are other than before it, of a top those among the first.
*Forgets* rows that go, those behind a top that none leaves, and partitions below the watermark of a part of their key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr.nodes import Col
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, NEVER
from braid.operators.clocks import Clocks
from braid.operators.in_order import GROUP
from braid.operators.multiset import EPOCH, MOST, changes_of, distinct_keys, entries_of, netted
from braid.operators.over_calls import Partitions, answer
from braid.operators.pairing import keys_of, payload_of
from braid.operators.ranges import (
    Ints,
    alike,
    begins,
    columns_of,
    distinct,
    expand,
    grouped,
    hashes_of,
    numbered,
    order_of,
    rows_at,
)
from braid.operators.ranked import FOREVER, Rank, Ranked, Sorting
from braid.operators.watermarks import Passing, after
from braid.plan import over
from braid.types import polars_type

_ROW, _PAIR, _TOTAL, _UNTIL, _PLACE, _LEAVES = "_row", "_pair", "_total", "_until", "_place", "_leaves"


@dataclass(frozen=True, slots=True)
class Over:
    """Spread by the partition and a constant. `top`: the rank of which nobody reads more, and the column that has it;
    `forgets_behind`: rows behind it can never be among it."""

    sorting: Sorting
    calls: tuple[over.Windowed, ...]
    top: tuple[Rank, int, str] | None = None
    forgets_behind: bool = False
    passing: Passing | None = None
    reach: over.Reach | None = None

    @staticmethod
    def of(node: over.Over, passing: Passing | None) -> Over:
        key, top = tuple(c.name for c in node.key), None
        if node.top is not None:
            call = next(c for c in node.calls if c.aggregation.output == node.top.rank)
            top = Rank(call.function), node.top.most, node.top.rank.name
        return Over(Sorting(node.order, key), node.calls, top, node.forgets_behind, passing, node.reach)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        keys, payload = keys_of(rows), payload_of(rows)
        held = self._held(state, keys)
        new = entries_of(rows, keys)
        before = held.rows
        old = self._stood(held, new, keys) if new.height and held.runs else new.clear().drop(EPOCH)
        old = old.with_columns(pl.lit(NEVER, pl.Int64).alias(EPOCH)).select(new.columns)
        if new.height and self.forgets_behind:
            old, new = self._among(old, new, keys)
            held.add(new.filter(pl.col(_LEAVES) == FOREVER).drop(GROUP, _PLACE, _LEAVES))
        elif new.height:
            held.add(new)
        if self.passing is not None:
            held.pass_by(after(self.passing.watermarks, clocks))
        if new.height or held.rows < before:
            held.close()
        counts = {"expired": held.expired} if held.expired else {}
        return Result.of(self._changes(old, new, keys, payload), counts=counts)

    def _held(self, state: State, keys: Sequence[str]) -> Ranked:
        top = self.top[:2] if self.top is not None and self.forgets_behind else None
        return Ranked(state, "rows", keys, self.sorting, top, None if self.passing is None else self.passing.tick)

    def _stood(self, held: Ranked, new: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """Of the partitions that a batch touches the rows before it that can be read: all; from those on that the first
        row reaches which comes or goes; or those that are among the top, or come to be by what goes."""
        groups = distinct_keys([new], keys)
        if self.top is None and self.reach is None:
            return held.all(groups)
        order, number = grouped(pl.concat([columns_of(x, [HASH, *keys]) for x in (groups, new)]), keys)
        of_group = np.empty(len(order), dtype=np.int64)
        of_group[order] = number
        heads = np.empty(groups.height, dtype=np.int64)
        heads[of_group[: groups.height]] = np.arange(groups.height)
        if self.top is None:
            assert self.reach is not None
            return held.near(groups, new.with_columns(pl.Series(GROUP, heads[of_group[groups.height :]])), self.reach)
        rank, most, _ = self.top
        gone = np.zeros(groups.height, dtype=np.int64)
        weights = np.minimum(new[DIFF].to_numpy(), 0)
        np.add.at(gone, heads[of_group[groups.height :]], -weights)
        return held.best(groups, rank, most + gone)

    def _among(self, old: pl.DataFrame, new: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Of rows that only come those that are among the first after some epoch, with the one after which they are
        not."""
        assert self.top is not None
        rank, most, _ = self.top
        rows = _grouped(pl.concat([old, new]), keys, self.sorting).with_row_index(_PLACE)
        group = rows[GROUP].to_numpy()
        epochs = rows[EPOCH].to_numpy()
        leaves = rank.leaves(group, self.sorting.peers(rows, group), epochs, most)
        some = rows.with_columns(pl.Series(_LEAVES, leaves)).filter(pl.Series(epochs < leaves))
        return some.filter(pl.col(EPOCH) == NEVER), some.filter(pl.col(EPOCH) != NEVER)

    def _changes(
        self, old: pl.DataFrame, new: pl.DataFrame, keys: list[str], payload: list[str]
    ) -> Iterator[pl.DataFrame]:
        """In pieces of some epochs, in their order; the first one is empty."""
        outputs = [c.aggregation.output for c in self.calls]
        shown = [*payload, *(c.name for c in outputs)]
        nothing = new.clear().with_columns(pl.lit(None, polars_type(c.type)).alias(c.name) for c in outputs)
        yield changes_of(nothing.select(EPOCH, DIFF, HASH, *keys, *shown), keys, shown)
        todo = [(old, new)] if new.height else []
        while todo:
            before, come = todo.pop()
            lives, epochs = _Lives.of(before, come, keys, payload, self.sorting), distinct(come[EPOCH].to_numpy())
            if lives.size > MOST and len(epochs) > 1:  # what leaves an operator is in the order of its epochs
                todo += _parted(before, come, int(epochs[len(epochs) // 2]), keys)
                continue
            made = pl.concat(self._rounds(before, come, lives, keys, payload))
            yield changes_of(made.select(EPOCH, DIFF, HASH, *keys, *shown), keys, shown)

    def _rounds(
        self, old: pl.DataFrame, new: pl.DataFrame, lives: _Lives, keys: list[str], payload: list[str]
    ) -> Iterator[pl.DataFrame]:
        """The entries of some epochs, some partitions at a time."""
        if lives.size <= MOST or len(hashes := distinct(hashes_of(new))) < 2:
            yield self._answers(lives)
            return
        half = pl.col(HASH).fill_null(0) < int(hashes[len(hashes) // 2])
        for some in (half, ~half):
            before, come = old.filter(some), new.filter(some)
            yield from self._rounds(before, come, _Lives.of(before, come, keys, payload, self.sorting), keys, payload)

    def _answers(self, lives: _Lives) -> pl.DataFrame:
        """What the calls give in each pair, as entries: they come with the pair, and go with the next one of their
        partition. A row to which that gives the same stays."""
        rows, epochs, group = lives.rows, lives.pairs[EPOCH].to_numpy(), lives.pairs[GROUP].to_numpy()
        which, at = expand(rows[_PAIR].to_numpy(), lives.until)
        often = rows[_TOTAL].to_numpy()[which]
        which, at, single = np.repeat(which, often), np.repeat(at, often), np.repeat(often == 1, often)
        order = order_of(at)  # the rows stand in the order of their partitions
        read = rows_at(columns_of(rows, self._read), which[order])
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        found = rows_at(pl.DataFrame(answer(self.calls, Partitions.of(read, at[order], self.sorting))), back)
        stays = np.zeros(len(which), dtype=np.bool_)
        stays[:-1] = alike(found.head(-1), found.tail(-1)) & (which[:-1] == which[1:]) & single[:-1]
        last = np.append(begins(group)[1:], True)
        comes = (epochs[at] != NEVER) & ~np.append(False, stays)[:-1]
        goes = ~last[at] & ~stays
        if self.top is not None:
            among = (found[self.top[2]] <= self.top[1]).to_numpy()
            comes, goes = comes & among, goes & among
        return pl.concat(
            rows_at(rows, which[some])
            .hstack(rows_at(found, some))
            .with_columns(pl.Series(EPOCH, epochs[at[some] + step]), pl.lit(weight, pl.Int64).alias(DIFF))
            for some, step, weight in ((np.flatnonzero(comes), 0, 1), (np.flatnonzero(goes), 1, -1))
        )

    @property
    def _read(self) -> list[str]:
        """What the calls read of a row."""
        each = [*(o.value for o in self.sorting.columns), *(c.aggregation.arg for c in self.calls)]
        each += [x for c in self.calls for x in c.frame.bounds]
        return list(dict.fromkeys(c.name for c in each if isinstance(c, Col))) or [HASH]  # there are rows


@dataclass(frozen=True, slots=True)
class _Lives:
    """`rows`: in the order of their partitions, with the pair from which on so many of them stand, and `until`, the
    pair at which that ends; `pairs`: of a partition and an epoch, before the first of which stands one for what was
    before the batch."""

    rows: pl.DataFrame
    pairs: pl.DataFrame
    until: Ints

    @staticmethod
    def of(
        old: pl.DataFrame, new: pl.DataFrame, keys: Sequence[str], payload: Sequence[str], sorting: Sorting
    ) -> _Lives:
        rows = pl.concat([old, new.select(old.columns)])
        if _LEAVES in rows.columns:
            return _Lives._of_top(rows_at(rows, order_of(rows[_PLACE].to_numpy())))
        rows = _grouped(rows, keys, sorting)
        touched = rows.select(GROUP, EPOCH)
        every = touched.select(GROUP, pl.lit(NEVER, pl.Int64).alias(EPOCH))
        pairs = pl.concat([touched, every]).unique().sort(GROUP, EPOCH).with_row_index(_PAIR).cast({_PAIR: pl.Int64})
        rows = rows.join(pairs, on=[GROUP, EPOCH], how="left", maintain_order="left")
        same = [GROUP, *payload]
        lives = rows.group_by(same, maintain_order=True).agg(
            pl.col(HASH).first(),
            *(pl.col(k).first() for k in keys),
            pl.col(_PAIR).sort_by(EPOCH),
            pl.col(DIFF).sort_by(EPOCH),
        )
        lives = lives.with_row_index(_ROW).explode(_PAIR, DIFF)
        ends = pairs.group_by(GROUP).agg(pl.col(_PAIR).max() + 1).rename({_PAIR: _UNTIL})
        lives = lives.join(ends, on=GROUP, how="left", maintain_order="left").with_columns(
            pl.col(DIFF).cum_sum().over(_ROW).alias(_TOTAL),
            pl.col(_PAIR).shift(-1).over(_ROW).fill_null(pl.col(_UNTIL)).alias(_UNTIL),
        )
        lives = lives.filter(pl.col(_TOTAL) > 0)
        return _Lives(lives.drop(_ROW, _UNTIL, DIFF, GROUP), pairs, lives[_UNTIL].to_numpy())

    @staticmethod
    def _of_top(rows: pl.DataFrame) -> _Lives:
        """Of rows that say when they leave: that is an epoch of their partition, or none of these."""
        epochs, group, count = rows[EPOCH].to_numpy(), rows[GROUP].to_numpy(), rows.height
        known, code = numbered(np.concatenate([epochs, rows[_LEAVES].to_numpy(), [NEVER]]))
        step = len(known)
        pairs, pair = numbered(np.append(group * step + code[:count], group[begins(group)] * step))
        until = np.searchsorted(pairs, group * step + code[count:-1])
        lives = rows.drop(EPOCH, DIFF, GROUP, _PLACE, _LEAVES).with_columns(
            pl.Series(_PAIR, pair[:count]), pl.lit(1, pl.Int64).alias(_TOTAL)
        )
        return _Lives(lives, pl.DataFrame({GROUP: pairs // step, EPOCH: known[pairs % step]}), until)

    @property
    def size(self) -> int:
        """How many rows stand in all pairs together, those with equal ones once."""
        return int((self.until - self.rows[_PAIR].to_numpy()).sum())


def _grouped(rows: pl.DataFrame, keys: Sequence[str], sorting: Sorting) -> pl.DataFrame:
    """Partition by partition, in the order of each, with its number."""
    order, number = grouped(rows, keys)
    return sorting.sorted(rows_at(rows, order).with_columns(pl.Series(GROUP, number)), GROUP)


def _parted(
    old: pl.DataFrame, new: pl.DataFrame, middle: int, keys: Sequence[str]
) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """The same in two parts: the epochs from `middle` on, and those before, which are to be made first."""
    first = pl.col(EPOCH) < middle
    earlier, later = new.filter(first), new.filter(~first)
    stands = pl.concat([old, earlier]).with_columns(pl.lit(NEVER, pl.Int64).alias(EPOCH))
    if _LEAVES in stands.columns:
        between = stands.filter(pl.col(_LEAVES) >= middle)
    else:
        between = netted(stands, [c for c in stands.columns if c != DIFF])
    return [(_of(between, later, keys), later), (_of(old, earlier, keys), earlier)]


def _of(rows: pl.DataFrame, touched: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The rows of the partitions that are touched."""
    return rows.join(touched.select(HASH, *keys).unique(), on=[HASH, *keys], how="semi", nulls_equal=True)
