"""As-of join: each left row with the nearest right row of its key.

In: changes of two multisets, with epochs. Out: net changes of their join, per epoch.
Rule: of a key's right rows the nearest that qualifies and stands is met; of equally near ones the first by `order`. A
right row's life is the epochs in which it stands. A left row goes through the right rows from the nearest on, and meets
each in those epochs that nearer ones have left open. (docs/rules/risingwave.md, "As-of joins")

*Matches* equal keys (NULL only where null-safe); NULL in a compared value matches nothing, and so does one that fails,
which is told of the row.
*Keeps* the entries of both sides.
*Emits* at the end of an epoch; LEFT pads a row where it meets nothing.
*Forgets* entries that cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, NEVER
from braid.operators.clocks import Clocks
from braid.operators.lives import LASTS
from braid.operators.multiset import (
    EPOCH,
    Bag,
    changes_of,
    come,
    distinct_keys,
    entries_of,
    known,
    netted,
    null_in,
    parted,
    zeros,
)
from braid.operators.pairing import MISSING, all_dropped, failed_rows, gathered, keys_of, payload_of
from braid.operators.ranges import Ints, begins, columns_of, grouped, narrow, rows_at
from braid.plan import epochs

AT = "_at"


@dataclass(frozen=True, slots=True)
class _Lives:
    """Right rows from the nearest on, key by key: `code` rises with distance, a row lives in the epochs [start, stop).
    Those of key g stand at `first[g]:first[g + 1]`."""

    rows: pl.DataFrame
    start: Ints
    stop: Ints
    code: Ints
    first: Ints


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Left entry `entry[i]` meets right row `right[i]` (or none: `MISSING`) in the epochs [since[i], until[i])."""

    entry: Ints
    right: Ints
    since: Ints
    until: Ints


@dataclass(frozen=True, slots=True)
class AsOf:
    """Fields as those of the node."""

    outer: bool
    null_safe: tuple[bool, ...]
    left_at: Expr
    compare: epochs.Compare
    right_at: Expr
    order: tuple[Expr, ...]

    @staticmethod
    def of(node: epochs.AsOfJoin) -> AsOf:
        outer, on = node.how == "left", node.on.null_safe
        return AsOf(outer, on, node.left_at, node.compare, node.right_at, node.order)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        keys = keys_of(inputs[0])
        payloads = [payload_of(rows) for rows in inputs]
        bags = [Bag(state, side, keys) for side in ("left", "right")]
        new, lone, drops = [], [], list[pl.DataFrame]()
        for rows, at, side in zip(inputs, (self.left_at, self.right_at), ("left", "right"), strict=True):
            entries = entries_of(rows, keys, None)
            never = null_in(entries, keys, self.null_safe)
            made, failed = compile.evaluate(entries, [(AT, at)])
            without = made[AT].is_null()
            never = without if never is None else never | without
            came = come(entries.filter(failed), at, keys, payload_of(rows))
            if (told := failed_rows(came, pl.repeat(True, came.height, eager=True), [at], side)) is not None:
                drops.append(told)
            some, others = parted(entries, never)
            new.append(some)
            lone.append(others)
        nothing = pl.concat([x.clear() for x in new], how="diagonal").select(
            EPOCH, DIFF, HASH, *keys, *payloads[0], *payloads[1]
        )
        parts = [nothing, *([lone[0]] if self.outer else [])]
        if new[0].height or new[1].height:
            left, right = (self._with_old(bag, x, new, keys) for bag, x in zip(bags, new, strict=True))
            parts.append(self._changed(left, right, keys, payloads))
        for bag, entries, payload in zip(bags, new, payloads, strict=True):
            bag.add(entries, payload)
            bag.close()
        changed = pl.concat(parts, how="diagonal").select(nothing.columns)
        return Result(changes_of(changed, keys, [*payloads[0], *payloads[1]]), all_dropped(drops))

    def _with_old(self, bag: Bag, entries: pl.DataFrame, new: Sequence[pl.DataFrame], keys: list[str]) -> pl.DataFrame:
        """The entries and those of earlier batches whose keys the batch touches."""
        old = known(bag, distinct_keys(new, keys), keys)
        return entries if old is None else pl.concat([old[1].select(entries.columns), entries])

    def _changed(
        self, left: pl.DataFrame, right: pl.DataFrame, keys: list[str], payloads: Sequence[list[str]]
    ) -> pl.DataFrame:
        """What the batch changes: a piece that begins in it adds its pair, one that ends in it takes it back."""
        group, count = _groups(left, right, keys)
        codes_left, codes_right = self._codes(left, right)
        lives = self._lives(right, group[left.height :], count, codes_right, payloads[1])
        pieces = self._pieces(left, group[: left.height], codes_left, lives)
        if not self.outer:
            met = np.flatnonzero(pieces.right != MISSING)
            pieces = _Pieces(pieces.entry[met], pieces.right[met], pieces.since[met], pieces.until[met])
        begin, end = np.flatnonzero(pieces.since > NEVER), np.flatnonzero(pieces.until < LASTS)
        at = np.concatenate([begin, end])
        entry, epoch = pieces.entry[at], np.concatenate([pieces.since[begin], pieces.until[end]])
        sign = np.repeat(np.array([1, -1], dtype=np.int64), [len(begin), len(end)])
        own = rows_at(left, entry)
        made = own.with_columns(pl.Series(EPOCH, epoch), pl.Series(DIFF, own[DIFF].to_numpy() * sign))
        theirs = gathered([lives.rows], payloads[1], pieces.right[at])
        return made.hstack(theirs.get_columns())

    def _codes(self, left: pl.DataFrame, right: pl.DataFrame) -> tuple[Ints, Ints]:
        """The compared values as numbers that rise with the distance of right rows."""
        sides = ((left, self.left_at), (right, self.right_at))
        values = pl.concat([compile.evaluate(x, [(AT, e)])[0][AT] for x, e in sides])
        rank = values.rank("dense").to_numpy().astype(np.int64)
        rank = rank if self.compare in ("lt", "le") else -rank
        return rank[: left.height], rank[left.height :]

    def _lives(self, right: pl.DataFrame, group: Ints, count: int, codes: Ints, payload: list[str]) -> _Lives:
        ties = [f"_o{i}" for i in range(len(self.order))]
        made, _ = compile.evaluate(right, list(zip(ties, self.order, strict=True)))
        rows = right.with_columns(pl.Series("_g", group), pl.Series(AT, codes), *made.get_columns())
        rows = netted(rows, ["_g", EPOCH, *payload])
        number = _numbers(rows, ["_g", *payload])
        rows = rows.with_columns(pl.Series("_row", number)).sort("_row", EPOCH)
        stands = rows.select(pl.col(DIFF).cum_sum().over("_row").alias("s"))["s"].to_numpy() > 0
        row, epoch = rows["_row"].to_numpy(), rows[EPOCH].to_numpy()
        first = begins(row)
        was = np.append(False, stands[:-1]) & ~first
        starts = np.flatnonzero(stands & ~was)
        ends = np.flatnonzero(~stands & was)
        stop = np.full(len(starts), LASTS, dtype=np.int64)
        following = np.searchsorted(ends, starts)
        has_end = following < len(ends)
        has_end[has_end] &= row[ends[following[has_end]]] == row[starts[has_end]]
        stop[has_end] = epoch[ends[following[has_end]]]
        lives = rows_at(rows, starts).with_columns(pl.Series("_stop", stop))
        lives = lives.sort("_g", AT, *ties, nulls_last=True, maintain_order=True)
        first_of = np.searchsorted(lives["_g"].to_numpy(), np.arange(count + 1))
        return _Lives(lives, lives[EPOCH].to_numpy(), lives["_stop"].to_numpy(), lives[AT].to_numpy(), first_of)

    def _pieces(self, left: pl.DataFrame, group: Ints, codes: Ints, lives: _Lives) -> _Pieces:
        """Goes through the right rows, all left entries at once, one right row further in each round."""
        entry = np.arange(left.height, dtype=np.int64)
        since, until = left[EPOCH].to_numpy().copy(), np.full(left.height, LASTS, dtype=np.int64)
        end = lives.first[group + 1]
        at = narrow(lives.code, lives.first[group], end, codes, right=self.compare in ("lt", "gt"))
        made: list[tuple[Ints, Ints, Ints, Ints]] = []
        while len(entry):
            done = at >= end[entry]
            if done.any():
                made.append((entry[done], np.full(int(done.sum()), MISSING, dtype=np.int64), since[done], until[done]))
                entry, since, until, at = entry[~done], since[~done], until[~done], at[~done]
            low, high = np.maximum(since, lives.start[at]), np.minimum(until, lives.stop[at])
            met = low < high
            made.append((entry[met], at[met], low[met], high[met]))
            low, high = np.where(met, low, until), np.where(met, high, until)  # not met: all of it is left, as "before"
            before, after = since < low, high < until
            entry = np.concatenate([entry[before], entry[after]])
            at = np.concatenate([at[before], at[after]]) + 1
            since, until = np.concatenate([since[before], high[after]]), np.concatenate([low[before], until[after]])
        return _Pieces(*(np.concatenate(x) if x else zeros(0) for x in zip(*made, strict=True))) if made else _NONE


_NONE = _Pieces(zeros(0), zeros(0), zeros(0), zeros(0))


def _groups(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> tuple[Ints, int]:
    """The number of each row's key (left rows, then right ones), and how many keys there are."""
    rows = pl.concat([columns_of(x, [HASH, *keys]) for x in (left, right)])
    order, ids = grouped(rows, keys)
    made = np.empty(rows.height, dtype=np.int64)
    made[order] = ids
    return made, int(ids[-1]) + 1 if len(ids) else 0


def _numbers(rows: pl.DataFrame, by: list[str]) -> Ints:
    """A number for each row, the same for rows that agree in `by`."""
    at = rows.select(*by).with_row_index("_i").group_by(by, maintain_order=True).agg("_i")["_i"]
    made = np.empty(rows.height, dtype=np.int64)
    made[at.explode().to_numpy()] = np.repeat(np.arange(len(at), dtype=np.int64), at.list.len().to_numpy())
    return made
