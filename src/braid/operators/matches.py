"""Rows of two streams that meet within a window: the new rows of a batch, the stored ones, and the pairs of them.

In: both sides' new rows (`Side`) and the arrangements of their stored ones. Out: pairs and padded rows (`Out`), as
numbers of rows of either side, then as rows with their columns.
Rule: a looking row sees of the other side the times from `lo` to `hi`; the later of two new rows is the looking one.
What may be seen, and who is padded when, is the operator's to say. Pairs and rows are made some millions at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from braid.operators.arrangement import ARRIVAL, Arrangement, Found
from braid.operators.changes import DIFF, HASH, HEADERS, NEVER, POS, SUB, TIME, numbers_within, result_subs
from braid.operators.clocks import Clock
from braid.operators.pairing import MISSING, MOST, gathered, joined_on, piece_rows, pieces, with_headers
from braid.operators.ranges import (
    Crowded,
    Flags,
    Ints,
    Keyed,
    Window,
    columns_of,
    distinct,
    hashes_of,
    key_order,
    keyed,
    meet,
    order_of,
    repeated,
    rows_at,
    values_at,
)

NONE = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Side:
    """One side of the join. Arrays without another word are of the new rows, in their order of arrival."""

    left: bool
    outer: bool
    clock: Clock
    ends: Clock  # the clock that ends the wait of its rows
    now: int  # … at the end of the batch
    back: int  # a partner may be so much older …
    ahead: int  # … or so much younger
    held: Arrangement
    columns: list[str]  # payload
    frame: pl.DataFrame
    place: Ints  # order of arrival in the batch, over both sides
    t: Ints
    visible: int = NEVER  # at the end of the batch the other side sees rows from this time on
    late: Ints = field(default_factory=lambda: NONE)  # numbers of the rows that join and are too late to be stored
    lone: Ints = field(default_factory=lambda: NONE)  # numbers of the rows without a key that go out padded
    order: Ints = field(default_factory=lambda: NONE)  # numbers of the rows that join, by (hash, time, arrival)
    keyed: Keyed = field(init=False)  # the rows that join
    lo: Ints = field(default_factory=lambda: NONE)  # the times that a row may see of the other side
    hi: Ints = field(default_factory=lambda: NONE)
    prior: Flags | None = None  # which stand before the step of their place; None: none
    clipped: bool = False  # some row's `lo` is not of its window
    matched: Flags = field(init=False)
    over: Flags = field(init=False)  # which come when their wait is over, where that is asked of all
    apart: Flags | None = None  # which wait and meet nothing, whatever comes
    still: Ints = field(default_factory=lambda: NONE)  # numbers of the stored rows that wait at the end of the batch
    came: pl.Series = field(init=False)  # where the rows came from, as it is kept of rows that may wait
    parts: list[pl.DataFrame] = field(default_factory=list)  # rows that results are made of: the new, then stored ones

    @property
    def name(self) -> str:
        return "left" if self.left else "right"

    def prior_of(self, rows: Ints) -> Flags | None:
        """Which of some rows stand before the step of their place."""
        return None if self.prior is None else self.prior[rows]

    def sort(self, joins: Flags, keys: Sequence[str]) -> None:
        """Puts the rows that join in order."""
        h, at = hashes_of(self.frame), np.flatnonzero(joins)
        whole = len(at) == len(h)
        order = key_order(h if whole else h[at], self.t if whole else self.t[at])
        self.order = order if whole else at[order]
        self.keyed = keyed(h[self.order], rows_at(columns_of(self.frame, keys), self.order))
        self.lo, self.hi = self.t - self.back, self.t + self.ahead

    def clip(self, rows: Ints, floor: Ints) -> None:
        """Some rows see nothing below a time."""
        if (floor > self.lo[rows]).any():
            self.clipped = True
            self.lo[rows] = np.maximum(self.lo[rows], floor)

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

    def part(self, at: slice) -> Out:
        return Out(self.left[at], self.right[at], self.by_left[at], self.place[at])

    def and_then(self, other: Out) -> Out:
        pairs = ((self.left, other.left), (self.right, other.right), (self.place, other.place))
        left, right, place = (np.concatenate(x) for x in pairs)
        return Out(left, right, np.concatenate([self.by_left, other.by_left]), place)


def alone_of(side: Side) -> Ints:
    """New rows of an outer side without a match."""
    return np.flatnonzero(~side.matched) if side.outer else NONE


def pairs_of(
    left: Side, right: Side, keys: Sequence[str], base: int, most: int | None = None, among: range | None = None
) -> Pairs:
    """All matches, in no particular order: new rows with stored ones of the other side, and new ones with new ones.
    `among`: those whose looking row has such a place. `Crowded` where they are more than `most`; nothing is changed
    then."""
    l, left_looks = _looking(left, among)
    r, right_looks = _looking(right, among)
    old_right = right.held.probe(left_looks, left.lo[l], left.hi[l], most)
    old_left = left.held.probe(right_looks, right.lo[r], right.hi[r], most)
    nl, nr = _new_pairs(left, right, l, left_looks, keys, most)
    if among is not None:
        ahead = left.place[nl] > right.place[nr]
        more_r, more_l = _new_pairs(right, left, r, right_looks, keys, most)
        behind = left.place[more_l] < right.place[more_r]
        nl, nr = np.concatenate([nl[ahead], more_l[behind]]), np.concatenate([nr[ahead], more_r[behind]])
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


def _looking(side: Side, among: range | None) -> tuple[Ints, Keyed]:
    """The new rows that look, by (hash, time, arrival)."""
    if among is None:
        return side.order, side.keyed
    place = side.place[side.order]
    at = np.flatnonzero((place >= among.start) & (place < among.stop))
    return side.order[at], keyed(side.keyed.h[at], rows_at(side.keyed.keys, at))


def _new_pairs(
    side: Side, other: Side, rows: Ints, looking: Keyed, keys: Sequence[str], most: int | None
) -> tuple[Ints, Ints]:
    """New rows of a side, and the new rows of the other side in their windows, whichever came first."""
    window = Window(other.t[other.order], side.t[rows] - side.back, side.hi[rows])
    mine, theirs = meet(looking, other.keyed, keys, window, most)
    return rows[mine], other.order[theirs]


class Matches:
    """All matches of a batch, in rounds: for each the sides, whose parts have the stored rows that were met, the
    pairs, and the places of the looking rows. There is one round, unless a few keys are so crowded that the pairs would
    fill the memory: then each round is made when it is asked for, and again when it is asked for again."""

    def __init__(self, left: Side, right: Side, keys: Sequence[str], base: int) -> None:
        self._sides, self._keys, self._base = (left, right), keys, base
        self._whole: Pairs | None = None
        self._found: tuple[Arrangement, Arrangement] | None = None
        try:
            self._whole = pairs_of(left, right, keys, base, MOST)
        except Crowded:
            self._found = (left.held.as_it_stands(), right.held.as_it_stands())

    def settle(self) -> None:
        """Marks the new rows that have matches, of all rounds."""
        if self._whole is None:
            for _ in self:
                pass

    def __iter__(self) -> Iterator[tuple[Side, Side, Pairs, range]]:
        left, right = self._sides
        count = left.frame.height + right.frame.height
        if self._whole is not None:
            yield left, right, self._whole, range(0, count + 1)
        else:
            yield from self._rounds(range(0, count + 1))

    def _rounds(self, among: range) -> Iterator[tuple[Side, Side, Pairs, range]]:
        """As few rounds as come out with at most `MOST` pairs in a look; one row is never cut."""
        assert self._found is not None
        left, right = (copy(side) for side in self._sides)
        left.held, right.held = self._found
        left.parts, right.parts = list(left.parts), list(right.parts)
        try:
            pairs = pairs_of(left, right, self._keys, self._base, MOST if len(among) > 1 else None, among)
        except Crowded as crowd:
            step = max(1, len(among) // (1 + 2 * crowd.pairs // MOST))
            for start in range(among.start, among.stop, step):
                yield from self._rounds(range(start, min(start + step, among.stop)))
            return
        yield left, right, pairs, among


def _numbers(found: Found, column: str) -> Ints:
    return NONE if found.rows is None else found.rows[column].to_numpy()


def results(left: Side, right: Side, pairs: Pairs, padded: dict[bool, Ints], among: range) -> Out:
    """Pairs and rows padded at once, by the place of the looking row, its pairs by the stored row's (time, arrival)."""
    lefts, rights, by_left, place = [pairs.left], [pairs.right], [pairs.by_left], [pairs.place]
    for side in (left, right):
        lone = _within(side.place, side.lone, among)
        at = np.concatenate([padded[side.left], lone]) if len(lone) else padded[side.left]
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
    some = np.flatnonzero(np.isin(place, distinct(place[1:][wrong])))
    order[at[some]] = p[some][np.lexsort((n[some], t[some], place[some]))]


@dataclass(frozen=True, slots=True)
class Freed:
    """Released rows in their order, with their positions and `_sub`."""

    out: Out
    pos: pl.Series
    sub: pl.Series

    def within(self, among: range) -> Freed:
        """Those whose place is in the range; they stand in the order of their places."""
        start, stop = np.searchsorted(self.out.place, [among.start, among.stop])
        at = slice(int(start), int(stop))
        return Freed(self.out.part(at), self.pos[at], self.sub[at])


def places_of_releases(sides: Sequence[Side], positions: pl.Series) -> Ints:
    """The place of the first new row behind a release: of those at its position the prior ones stand before it."""
    place = np.zeros(len(positions), dtype=np.int64)
    for side in sides:
        pos = side.frame[POS]
        first = pos.search_sorted(positions, side="left").to_numpy().astype(np.int64)
        place += first
        if side.prior is not None:
            count = np.append(0, np.cumsum(side.prior))
            place += count[pos.search_sorted(positions, side="right").to_numpy()] - count[first]
    return place


def changes_of(
    matches: Matches,
    padded: dict[bool, Ints],
    freed: Freed | None,
    key_columns: Sequence[str],
    names: Sequence[str],
) -> Iterator[pl.DataFrame]:
    """All output rows, in processing order, in pieces: pairs, rows padded at once, and released ones, which stand
    before the results of the step that releases them. `names`: plan columns of the join key."""
    for left, right, pairs, among in matches:
        mine = {s.left: _within(s.place, padded[s.left], among) for s in (left, right)}
        out = results(left, right, pairs, mine, among)
        yield from _pieces_of(left, right, out, freed.within(among) if freed else None, key_columns, names)


def _within(place: Ints, at: Ints, among: range) -> Ints:
    """Those of the rows whose place is in the range."""
    return at[(place[at] >= among.start) & (place[at] < among.stop)]


def _pieces_of(
    left: Side, right: Side, out: Out, freed: Freed | None, key_columns: Sequence[str], names: Sequence[str]
) -> Iterator[pl.DataFrame]:
    number = numbers_within(out.place)
    own = np.where(out.by_left, out.left, left.frame.height + out.right)
    pos = left.frame[POS].clone().append(right.frame[POS])
    sub = left.frame[SUB].clone().append(right.frame[SUB])

    def places(at: slice) -> tuple[pl.Series, pl.Series]:
        """Position and `_sub` of results."""
        return values_at(pos, own[at]), result_subs(sub, own[at], number[at], ~out.by_left[at])

    if freed is not None:
        order = order_of(np.concatenate([2 * freed.out.place, 2 * out.place + 1]))
        all_pos, all_sub = (
            values_at(a.append(b), order)
            for a, b in zip((freed.pos.clone(), freed.sub.clone()), places(slice(None)), strict=True)
        )
        out = freed.out.and_then(out).ordered(order)
    times = [np.append(np.concatenate([p[TIME].to_numpy() for p in s.parts]), NEVER) for s in (left, right)]
    for at in pieces(len(out.place), piece_rows(left.parts, right.parts)):
        part = out.part(at)
        t = np.maximum(times[0][part.left], times[1][part.right])
        l, r = (gathered(s.parts, s.columns, rows) for s, rows in ((left, part.left), (right, part.right)))
        here = places(at) if freed is None else (all_pos[at], all_sub[at])
        rows = _keys(left, right, part, key_columns).hstack(
            [
                here[0].alias(POS),
                here[1].alias(SUB),
                pl.Series(TIME, t),
                repeated(DIFF, 1, pl.Int8, len(t)),
            ]
        )
        yield joined_on(rows, l, r, key_columns, names)


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
