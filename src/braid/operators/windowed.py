"""Rows of two streams that meet within a window: the new rows of a batch, the stored ones, and the pairs of them.

In: both sides' new rows (`Side`) and the arrangements of their stored ones. Out: pairs and padded rows (`Out`), as
numbers of rows of either side, then as rows with their columns.
Rule: a looking row sees of the other side the times from `lo` to `hi`; the later of two new rows is the looking one.
What may be seen, and who is padded when, is the operator's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from braid.operators.arrangement import ARRIVAL, Arrangement, Found
from braid.operators.changes import DIFF, HASH, HEADERS, NEVER, POS, SUB, TIME, result_sub
from braid.operators.clocks import Clock
from braid.operators.pairing import MISSING, gathered, joined_on, with_headers
from braid.operators.ranges import Flags, Ints, Keyed, Window, begins, meet, order_of, values_at

NONE = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Side:
    """One side of the join. Arrays without another word are of the new rows, in their order of arrival."""

    left: bool
    outer: bool
    clock: Clock
    back: int  # a partner may be so much older …
    ahead: int  # … or so much younger
    visible: int  # at the end of the batch the other side sees rows from this time on
    held: Arrangement
    columns: list[str]  # payload
    frame: pl.DataFrame
    place: Ints  # order of arrival in the batch, over both sides
    t: Ints
    late: Ints = field(default_factory=lambda: NONE)  # numbers of the rows that are too late to be stored
    lone: Ints = field(default_factory=lambda: NONE)  # numbers of the rows without a key that go out padded
    order: Ints = field(default_factory=lambda: NONE)  # numbers of the rows that join, by (hash, time, arrival)
    keyed: Keyed = field(init=False)  # the rows that join
    lo: Ints = field(default_factory=lambda: NONE)  # the times that a row may see of the other side
    hi: Ints = field(default_factory=lambda: NONE)
    clipped: bool = False  # some row's `lo` comes from retention
    matched: Flags = field(init=False)
    still: Ints = field(default_factory=lambda: NONE)  # numbers of the rows that are parked at the end of the batch
    parts: list[pl.DataFrame] = field(default_factory=list)  # rows that results are made of: the new, then stored ones

    @property
    def name(self) -> str:
        return "left" if self.left else "right"

    def add(self, found: Found) -> Ints:
        """Takes stored rows among those that results are made of; gives their numbers."""
        if found.rows is None:
            return NONE
        first = sum(p.height for p in self.parts)
        self.parts.append(found.rows)
        return np.arange(first, first + found.rows.height, dtype=np.int64)


@dataclass(slots=True)
class Pairs:
    """Matches: numbers of rows among the parts of each side, and whether the left one was looking."""

    left: Ints
    right: Ints
    by_left: Flags
    place: Ints  # of the looking row
    stored_t: Ints
    stored_n: Ints


@dataclass(slots=True)
class Out:
    """Rows that go out: numbers of their parts' rows (or `MISSING`), whose record they are, their place: of the looking
    row, or of the first row after a release."""

    left: Ints
    right: Ints
    by_left: Flags
    place: Ints

    def ordered(self, order: Ints) -> Out:
        return Out(self.left[order], self.right[order], self.by_left[order], self.place[order])

    def and_then(self, other: Out) -> Out:
        pairs = ((self.left, other.left), (self.right, other.right), (self.place, other.place))
        left, right, place = (np.concatenate(x) for x in pairs)
        return Out(left, right, np.concatenate([self.by_left, other.by_left]), place)


def alone_of(side: Side) -> Ints:
    """New rows of an outer side without a match."""
    return np.flatnonzero(~side.matched) if side.outer else NONE


def pairs_of(left: Side, right: Side, keys: Sequence[str], base: int) -> Pairs:
    """All matches, in no particular order: new rows with stored ones of the other side, and new ones with new ones."""
    l, r = left.order, right.order
    old_right = right.held.probe(left.keyed, left.lo[l], left.hi[l])
    old_left = left.held.probe(right.keyed, right.lo[r], right.hi[r])
    nl, nr = meet(left.keyed, right.keyed, keys, Window(right.t[r], left.t[l] - left.back, left.hi[l]))
    nl, nr = l[nl], r[nr]
    by_left = left.place[nl] > right.place[nr]
    if left.clipped or right.clipped:
        seen = np.where(by_left, right.t[nr] >= left.lo[nl], left.t[nl] >= right.lo[nr])
        nl, nr, by_left = nl[seen], nr[seen], by_left[seen]
    ql, qr = l[old_right.looking], r[old_left.looking]
    pairs = Pairs(
        left=np.concatenate([ql, left.add(old_left), nl]),
        right=np.concatenate([right.add(old_right), qr, nr]),
        by_left=np.concatenate([np.ones(len(ql), dtype=np.bool_), np.zeros(len(qr), dtype=np.bool_), by_left]),
        place=np.concatenate([left.place[ql], right.place[qr], np.where(by_left, left.place[nl], right.place[nr])]),
        stored_t=np.concatenate(
            [_numbers(old_right, TIME), _numbers(old_left, TIME), np.where(by_left, right.t[nr], left.t[nl])]
        ),
        stored_n=np.concatenate(
            [
                _numbers(old_right, ARRIVAL),
                _numbers(old_left, ARRIVAL),
                base + np.where(by_left, right.place[nr], left.place[nl]),
            ]
        ),
    )
    left.matched[pairs.left[pairs.by_left]] = True
    right.matched[pairs.right[~pairs.by_left]] = True
    return pairs


def _numbers(found: Found, column: str) -> Ints:
    return NONE if found.rows is None else found.rows[column].to_numpy()


def results(left: Side, right: Side, pairs: Pairs, padded: dict[bool, Ints]) -> Out:
    """Pairs and rows padded at once, by the place of the looking row, its pairs by the stored row's (time, arrival)."""
    lefts, rights, by_left, place = [pairs.left], [pairs.right], [pairs.by_left], [pairs.place]
    for side in (left, right):
        at = np.concatenate([padded[side.left], side.lone]) if len(side.lone) else padded[side.left]
        missing = np.full(len(at), MISSING, dtype=np.int64)
        lefts.append(at if side.left else missing)
        rights.append(missing if side.left else at)
        by_left.append(np.full(len(at), side.left))
        place.append(side.place[at])
    where = np.concatenate(place)
    order = order_of(where)
    _sort_within(order, where, pairs)
    return Out(np.concatenate(lefts), np.concatenate(rights), np.concatenate(by_left), where).ordered(order)


def _sort_within(order: Ints, where: Ints, pairs: Pairs) -> None:
    """Sorts the pairs of each looking row by the stored row, where they come from several runs and do not stand so."""
    at = np.flatnonzero(order < len(pairs.place))
    p = order[at]
    place, t, n = where[p], pairs.stored_t[p], pairs.stored_n[p]
    wrong = (place[1:] == place[:-1]) & ((t[1:] < t[:-1]) | ((t[1:] == t[:-1]) & (n[1:] < n[:-1])))
    if not wrong.any():
        return
    some = np.flatnonzero(np.isin(place, np.unique(place[1:][wrong])))
    order[at[some]] = p[some][np.lexsort((n[some], t[some], place[some]))]


def numbers_within(place: Ints) -> Ints:
    """The number of each row among those of its place (they stand together)."""
    first = np.flatnonzero(begins(place))
    return np.arange(len(place)) - np.repeat(first, np.diff(np.append(first, len(place))))


@dataclass(frozen=True, slots=True)
class Freed:
    """Released rows in their order, with their positions and `_sub`."""

    out: Out
    pos: pl.Series
    sub: pl.Series


def changes_of(
    left: Side, right: Side, out: Out, freed: Freed | None, key_columns: Sequence[str], names: Sequence[str]
) -> pl.DataFrame:
    """All output rows, in processing order: `out` are the results; released rows stand before the results of the step
    that releases them. `names`: plan columns of the join key."""
    number = numbers_within(out.place)
    own = np.where(out.by_left, out.left, left.frame.height + out.right)
    pos = values_at(left.frame[POS].clone().append(right.frame[POS]), own)
    sub = left.frame[SUB].clone().append(right.frame[SUB])
    if sub.null_count() == len(sub):
        sub = pl.Series(SUB, [None], dtype=pl.Binary).new_from_index(0, len(own))
    else:
        sub = result_sub(values_at(sub, own), pl.Series(number))
    if freed is not None:
        order = order_of(np.concatenate([2 * freed.out.place, 2 * out.place + 1]))
        out = freed.out.and_then(out).ordered(order)
        pos, sub = values_at(freed.pos.append(pos), order), values_at(freed.sub.append(sub), order)

    times = [np.append(np.concatenate([p[TIME].to_numpy() for p in s.parts]), NEVER) for s in (left, right)]
    t = np.maximum(times[0][out.left], times[1][out.right])
    l, r = (gathered(s.parts, s.columns, at) for s, at in ((left, out.left), (right, out.right)))
    rows = _keys(left, right, out, key_columns).hstack(
        [
            pos.alias(POS),
            sub.alias(SUB),
            pl.Series(TIME, t),
            pl.repeat(1, len(t), dtype=pl.Int8, eager=True).alias(DIFF),
        ]
    )
    return joined_on(rows, l, r, key_columns, names)


def _keys(left: Side, right: Side, out: Out, key_columns: Sequence[str]) -> pl.DataFrame:
    """Hash, key columns and headers of the rows. The keys of a pair are equal: the left one's will do."""
    keys = [HASH, *key_columns]
    has_headers = any(HEADERS in p.columns for s in (left, right) for p in s.parts)
    if not has_headers and not (out.left == MISSING).any():
        return gathered(left.parts, keys, out.left)
    columns = [*keys, HEADERS] if has_headers else keys
    both = [with_headers(p) if has_headers else p for p in (*left.parts, *right.parts)]
    offset = sum(p.height for p in left.parts)
    return gathered(both, columns, np.where(out.by_left, out.left, offset + out.right))
