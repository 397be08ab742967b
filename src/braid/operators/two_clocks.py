"""Stream-stream join by two clocks: a row lives until the clock of the other side has left its window behind.

In: changes of both streams in processing order, the clocks. Out: pairs and padded rows in processing order; late rows.
Rule: a row moves its own side's clock, meets the living rows of the other side, then lives itself. Since a side's clock
never falls, a row sees of the other side what is not older than the row itself, or than its side's clock less the
grace, whichever is later, by more than the window. (docs/rules/lenses.md, "Two streams")

*Matches* equal keys with right time within [left - before, left + after], both ends included; never a row without a key
or one that fails the condition of its side.
*Keeps* of each side the rows that live: time >= the other side's clock - window - grace; of an outer side (deferred)
also who still waits for a match, in agendas ordered by close.
*Emits* pairs at the later arrival, ordered by the stored row's (time, arrival); padding of an outer side in the place
of the step that ends a life, ordered by (time, place of the record), or at once where life is over on arrival (eager:
always).
*Forgets* a row at the end of its life.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.arrangement import ARRIVAL, CLOSE, Agenda, Arrangement
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, HEADERS, POS, SUB, TIME, key_column, origins, prior, released_from
from braid.operators.clocks import Clock, Clocks
from braid.operators.pairing import (
    MISSING,
    all_dropped,
    dropped_rows,
    in_arrival_order,
    nothing_joined,
    payload_of,
    with_headers,
)
from braid.operators.ranges import (
    Flags,
    Hashes,
    Ints,
    begins,
    columns_of,
    hashes_of,
    key_order,
    keyed,
    rows_at,
    values_at,
)
from braid.operators.windowed import NONE, Freed, Matches, Out, Side, changes_of, places_of_releases
from braid.plan.keyed import TwoClockJoin
from braid.plan.logical import How

WAITS = "_p"  # of a stored row of an outer side: it had met nothing at the end of its batch
ORIGIN = "_from"  # the place of its record, as bytes that sort


@dataclass(slots=True)
class _Rows:
    """A side with what this operator knows of it. `lone`: new rows that meet nothing, whatever comes; `over`: whose
    life is over on arrival."""

    side: Side
    lone: Flags
    over: Flags
    end: int  # the other side's clock at the end of the batch
    steps: tuple[pl.Series, Ints]  # the places where the other side's clock rises, and its values


@dataclass(slots=True)
class _Released:
    """Rows of one side whose life has ended: numbers among the parts of the side, and what orders them."""

    left: bool
    at: Ints
    t: Ints
    n: Ints
    pos: pl.Series  # of the step that ended it
    origin: pl.Series


@dataclass(frozen=True, slots=True)
class TwoClocks:
    """Times in ms. `width`: number of exchange key columns; `names`: the plan columns of the join key."""

    how: How
    before: int
    after: int
    grace: int
    pad: Literal["deferred", "eager"]
    width: int
    names: tuple[str, ...]
    left_clock: Clock
    right_clock: Clock
    left_if: Expr | None = None
    right_if: Expr | None = None

    @staticmethod
    def of(node: TwoClockJoin, left_clock: Clock, right_clock: Clock) -> TwoClocks:
        return TwoClocks(
            how=node.how,
            before=node.before,
            after=node.after,
            grace=node.grace,
            pad=node.pad,
            width=max(1, len(node.keys)),
            names=tuple(c.name for c in node.keys),
            left_clock=left_clock,
            right_clock=right_clock,
            left_if=node.left_if,
            right_if=node.right_if,
        )

    @property
    def _keys(self) -> list[str]:
        return [key_column(i) for i in range(self.width)]

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        batch = int(state.manifest.get("batches", 0))
        base = int(state.manifest.get("arrivals", 0))
        state.manifest["batches"] = batch + 1
        drops: list[pl.DataFrame] = []
        both = [
            self._rows(left, frame, place, clocks, state, drops)
            for left, frame, place in zip((True, False), inputs, in_arrival_order(*inputs), strict=True)
        ]
        agendas = [Agenda(state, f"{x.side.name} {name}") for x in both for name in ("waiting", "lone")]
        if not any(frame.height for frame in inputs) and not self._is_due(both, agendas):
            return self._quiet(inputs, both)
        left, right = (x.side for x in both)
        matches = Matches(left, right, self._keys, base)
        matches.settle()
        padded = {True: NONE, False: NONE}
        released: list[_Released] = []
        for x, waiting, lone in zip(both, agendas[::2], agendas[1::2], strict=True):
            self._judge(x, padded, clocks, drops)
            if x.side.outer and self.pad == "deferred":
                released += self._wait(x, matches, (waiting, lone), base, batch)
        freed = _freed(left, right, released) if released else None
        changes = changes_of(matches, padded, freed, self._keys, self.names)
        expired = sum(self._store(x, base, batch) for x in both)
        for agenda in agendas:
            if agenda.runs or agenda.name in state.manifest:
                agenda.close()
        state.manifest["arrivals"] = base + sum(frame.height for frame in inputs)
        return Result.of(changes, all_dropped(drops), {"expired": expired} if expired else {})

    def _is_due(self, both: Sequence[_Rows], agendas: Sequence[Agenda]) -> bool:
        ends = [x.end for x in both for _ in range(2)]
        return any(agenda.low < end for agenda, end in zip(agendas, ends, strict=True))

    def _quiet(self, inputs: Sequence[pl.DataFrame], both: Sequence[_Rows]) -> Result:
        """A batch without rows here, in which nothing falls due: what has expired is forgotten."""
        expired = 0
        for x in both:
            held = x.side.held
            if held.runs:
                held.forget(x.side.visible)
                held.close()
                expired += held.expired
        nothing = nothing_joined(inputs, self._keys, *self.names)
        return Result(nothing, None, {"expired": expired} if expired else {})

    # ---------------------------------------------------------------- the new rows

    def _rows(
        self, left: bool, frame: pl.DataFrame, place: Ints, clocks: Clocks, state: State, drops: list[pl.DataFrame]
    ) -> _Rows:
        """A side's new rows: what they may see, and which of them meet nothing."""
        name = "left" if left else "right"
        own, other = (self.left_clock, self.right_clock) if left else (self.right_clock, self.left_clock)
        back, ahead = (self.before, self.after) if left else (self.after, self.before)
        end, t = clocks.end(other), frame[TIME].to_numpy()
        side = Side(
            left=left,
            outer=self.how in (name, "full"),
            clock=own,
            back=back,
            ahead=ahead,
            visible=end - ahead - self.grace,
            held=Arrangement(state, name, self._keys),
            columns=payload_of(frame),
            frame=frame,
            place=place,
            t=t,
            parts=[frame],
            prior=prior(frame),
        )
        side.lo, side.hi = t - back, t + ahead
        behind = np.flatnonzero(t < clocks.end(own) - self.grace)
        if len(behind):
            floor = clocks.at(own, values_at(frame[POS], behind), side.prior_of(behind)) - self.grace - back
            side.clipped = bool((floor > side.lo[behind]).any())
            side.lo[behind] = np.maximum(side.lo[behind], floor)
        over = np.zeros(len(t), dtype=np.bool_)
        old = np.flatnonzero(t < side.visible)
        if len(old):
            seen = clocks.at(other, values_at(frame[POS], old), side.prior_of(old))
            over[old] = seen > t[old] + ahead + self.grace
        lone = self._lone(side, drops)
        at = np.flatnonzero(~lone)
        side.order = at[key_order(hashes_of(frame)[at], t[at])]
        side.keyed = keyed(hashes_of(frame)[side.order], rows_at(columns_of(frame, self._keys), side.order))
        side.matched = np.zeros(len(t), dtype=np.bool_)
        return _Rows(side, lone, over, end, clocks.moves(other))

    def _lone(self, side: Side, drops: list[pl.DataFrame]) -> Flags:
        """The rows that meet nothing: without a key, or failing the condition of their side."""
        lone = side.frame[HASH].is_null().to_numpy()
        condition = self.left_if if side.left else self.right_if
        if condition is not None and side.frame.height:
            made, failed = compile.evaluate(side.frame, [("_meets", condition)])
            if failed.any():
                drops.append(dropped_rows(side.frame.filter(failed), "expression", side.name))
            lone = lone | ~made["_meets"].fill_null(False).to_numpy()
        return lone

    # ---------------------------------------------------------------- rows without a match

    def _judge(self, x: _Rows, padded: dict[bool, Ints], clocks: Clocks, drops: list[pl.DataFrame]) -> None:
        """Who is padded at once, who is dropped: late are those that their own side's clock has left behind."""
        side = x.side
        alone = ~side.matched
        if side.outer:
            padded[side.left] = np.flatnonzero(alone if self.pad == "eager" else alone & x.over)
            return
        if x.lone.any():
            drops.append(dropped_rows(side.frame.filter(pl.Series(x.lone)), "null key", side.name))
        over = np.flatnonzero(alone & x.over & ~x.lone)
        if len(over):
            clock = clocks.at(side.clock, values_at(side.frame[POS], over), side.prior_of(over))
            behind = side.t[over] < clock
            if behind.any():
                drops.append(dropped_rows(rows_at(side.frame, over[behind]), "late", side.name, clock[behind]))

    def _wait(
        self,
        x: _Rows,
        matches: Matches,
        agendas: tuple[Agenda, Agenda],
        base: int,
        batch: int,
    ) -> list[_Released]:
        """Parks the new rows that have met nothing, unparks those that have, gives those whose life has ended."""
        side, (waiting, lone) = x.side, agendas
        waits = ~side.matched & ~x.over
        unparked, taken_back, new = [NONE], [], len(side.t)
        for left, right, pairs, _ in matches:
            mine = pairs.left if side.left else pairs.right
            stored = pairs.by_left != side.left  # pairs in which the row of this side was the earlier one
            waits[mine[stored & (mine < new)]] = False
            met = mine[stored & (mine >= new)] - new
            if len(met):  # these stored rows are the part after the new ones
                gone, back = self._unparked(x, rows_at((left if side.left else right).parts[1], np.unique(met)))
                unparked.append(gone)
                taken_back += back
        close = side.t + side.ahead + self.grace
        due = np.flatnonzero(waits & (close < x.end))
        released = []
        if len(due):
            origin = values_at(origins(batch, side.frame, side.left), due)
            released.append(self._released(x, due, close[due], side.t[due], base + side.place[due], origin))
        still = waits & (close >= x.end)
        side.still = np.flatnonzero(still & ~x.lone)
        entries = []
        if len(side.still):
            n, h = base + side.place[side.still], hashes_of(side.frame)[side.still]
            entries.append(_entries(close[side.still], n, h, side.t[side.still], 1))
        left_alone = np.flatnonzero(still & x.lone)
        if len(left_alone):
            lone.append(_whole(side, left_alone, close, base, batch))

        for entry in [*entries, *taken_back]:
            waiting.append(entry)
        due_now = waiting.prefix(x.end)
        if due_now is not None:
            due_now = due_now.filter(~pl.Series(np.isin(due_now[ARRIVAL].to_numpy(), np.concatenate(unparked))))
            if due_now.height:
                released.append(self._fetched(x, due_now))
        alone_now = lone.prefix(x.end)
        if alone_now is not None and alone_now.height:
            first = sum(p.height for p in side.parts)
            side.parts.append(alone_now)
            at = np.arange(first, first + alone_now.height)
            close, t, n = (alone_now[c].to_numpy() for c in (CLOSE, TIME, ARRIVAL))
            released.append(self._released(x, at, close, t, n, alone_now[ORIGIN]))
        return released

    def _unparked(self, x: _Rows, met: pl.DataFrame) -> tuple[Ints, list[pl.DataFrame]]:
        """Of the stored rows that were met, those that waited: their arrival numbers, and what takes their agenda
        entries back."""
        found = met.filter(pl.col(WAITS))
        n, t = found[ARRIVAL].to_numpy(), found[TIME].to_numpy()
        close = t + x.side.ahead + self.grace
        open_ = close >= x.end
        if not open_.any():
            return n, []
        return n, [_entries(close[open_], n[open_], hashes_of(found)[open_], t[open_], -1)]

    def _fetched(self, x: _Rows, due: pl.DataFrame) -> _Released:
        """The stored rows of agenda entries."""
        h, t, n, close = (due[c].to_numpy() for c in (HASH, TIME, ARRIVAL, CLOSE))
        found = x.side.held.fetch(h, t, n)
        if found.rows is None or len(found.looking) != len(h):
            raise AssertionError("a row that waits is not in the state")
        which = found.looking
        return self._released(x, x.side.add(found), close[which], t[which], n[which], found.rows[ORIGIN])

    def _released(self, x: _Rows, at: Ints, close: Ints, t: Ints, n: Ints, origin: pl.Series) -> _Released:
        places, values = x.steps
        return _Released(x.side.left, at, t, n, values_at(places, np.searchsorted(values, close, side="right")), origin)

    # ---------------------------------------------------------------- what stays

    def _store(self, x: _Rows, base: int, batch: int) -> int:
        """Adds the new rows that live; gives how many have expired."""
        side = x.side
        at = side.order[side.t[side.order] >= side.visible]
        expired = len(side.order) - len(at) - int(x.over[side.order].sum())
        side.held.forget(side.visible)
        if len(at):
            names = [c for c in side.frame.columns if c not in (POS, SUB, DIFF, HEADERS)]
            made = [pl.Series(ARRIVAL, base + side.place[at])]
            if side.outer and self.pad == "deferred":
                if HEADERS in side.frame.columns:
                    names.append(HEADERS)  # a released row goes out with its own
                waits = np.zeros(len(side.t), dtype=np.bool_)
                waits[side.still] = True
                origin = values_at(origins(batch, side.frame, side.left), at)
                made += [pl.Series(WAITS, waits[at]), origin.alias(ORIGIN)]
            side.held.append(rows_at(columns_of(side.frame, names), at).hstack(made), ordered=True)
        if side.held.runs or side.held.name in side.held.state.manifest:
            side.held.close()
        return expired + side.held.expired


def _entries(close: Ints, n: Ints, h: Hashes, t: Ints, diff: int) -> pl.DataFrame:
    """Agenda entries of rows that are stored."""
    return pl.DataFrame({CLOSE: close, ARRIVAL: n, DIFF: np.full(len(n), diff, dtype=np.int8), HASH: h, TIME: t})


def _whole(side: Side, at: Ints, close: Ints, base: int, batch: int) -> pl.DataFrame:
    """Agenda entries that hold the rows themselves: nobody looks them up."""
    rows = with_headers(rows_at(side.frame, at))
    made = [
        pl.Series(CLOSE, close[at]),
        pl.Series(ARRIVAL, base + side.place[at]),
        values_at(origins(batch, side.frame, side.left), at).alias(ORIGIN),
    ]
    return rows.drop(POS, SUB, HEADERS).hstack([*made, rows[HEADERS]])


def _freed(left: Side, right: Side, released: Sequence[_Released]) -> Freed:
    """Released rows of both sides in their order: by the step, then (time, place of the record)."""
    by_left = np.concatenate([np.full(len(r.at), r.left) for r in released])
    at, t, n = (np.concatenate([getattr(r, f) for r in released]) for f in ("at", "t", "n"))
    pos, origin = pl.concat([r.pos for r in released]), pl.concat([r.origin for r in released])
    places = pl.DataFrame([pos.alias("pos"), pl.Series("t", t), pl.Series("n", n)])
    order = places.select(pl.arg_sort_by("pos", "t", "n").alias("i"))["i"].to_numpy()
    at, by_left, t, pos = at[order], by_left[order], t[order], values_at(pos, order)
    place = places_of_releases((left, right), pos)
    step = pos.rle_id().to_numpy()
    first = np.flatnonzero(begins(step))
    numbers = np.arange(len(at)) - np.repeat(first, np.diff(np.append(first, len(step))))
    sub = released_from(pl.Series(t), values_at(origin, order), pl.Series(numbers))
    out = Out(np.where(by_left, at, MISSING), np.where(by_left, MISSING, at), by_left, place)
    return Freed(out, pos, sub)
