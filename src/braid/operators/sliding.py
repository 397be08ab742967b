"""Sliding join: the results of a tree of windowed operands that the joined clock lets out.

In: changes of all operands. Out: results in the order of their times.
Rule: nothing is decided before the clock says that it is certain, so no result is ever changed. What goes out between
two values of the clock is worked out when the second is reached, from the rows that are alive in between. Where that is
much, it is worked out as if the clock had gone there in several steps, each when it is asked for.

*Matches* rows that are alive together (`frames`), have equal keys and a true residual. What of it fails is NULL, and
told of the pair when it would go out.
*Keeps* the rows of every operand; all of a captured table.
*Emits* at the place of the step that let a result out; order: `places`.
*Forgets* a row when nothing that is still open can depend on it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.arrangement import Whole
from braid.operators.base import Awaited, Result, State
from braid.operators.changes import DIFF, HASH, NEVER, PART, POS, POS_TYPE, SUB, TIME, no_rows
from braid.operators.clocks import FOREVER, Clock, Clocks, Late, LeafClock, leaves
from braid.operators.frames import ENTER, EXPIRES, LEAVE, OPEN, Together, hop_end, hop_ends, with_lives
from braid.operators.pairing import (
    BOTH,
    all_dropped,
    dropped_rows,
    failed_rows,
    failing,
    late_rows,
    payload_of,
    piece_rows,
)
from braid.operators.places import order_of_merged, order_of_results, places_of, positions_of, same_leaf
from braid.operators.ranges import Crowded, Ints, distinct, rows_at
from braid.operators.watermarks import ABOVE_ALL
from braid.plan import residuals, sliding
from braid.plan.drop_reasons import Reason
from braid.plan.sliding import Meeting, Merged, Operand, RangeFrame, RowsFrame, SlidingJoin, Tree
from braid.types import polars_type

DUE, NEW = "_due", "_new"  # when the clock lets a result out; position of the newest record of this batch in it
HOP, REACHED, PASSED = 0, 1, 2
AT = "_at"  # the time of a row
FEW_ROWS = 4096  # of a side, whose pairs are counted at once
ROWS = ("_i", "_j")  # numbers of the left and of the right rows of a meeting
Failing = tuple[pl.DataFrame, Expr]  # pairs, and what fails for them


def place(i: int) -> str:
    """The column of the places of operand i."""
    return f"_p{i}"


def operand(i: int) -> str:
    """The part of the state with the rows of operand i."""
    return f"operand {i + 1}"


@dataclass(frozen=True, slots=True)
class Sliding:
    """`clocks`: of the operands, None for a table; `clock`: the joined one; `width`: of the places of all rows; `by`:
    what the rows of each operand are spread by."""

    node: SlidingJoin
    clock: Clock
    clocks: tuple[Clock | None, ...]
    width: int
    by: tuple[tuple[Expr, ...], ...]
    waits_for: ClassVar[str] = "its instant"

    @property
    def awaits(self) -> tuple[str, ...]:
        """The parts of the state with rows of streams: some of these the clock has not come to."""
        return tuple(operand(i) for i, clock in enumerate(self.clocks) if clock is not None)

    def waiting(self, state: State, clocks: Clocks) -> Iterator[Awaited]:
        """Rows that nothing has met yet, as the clock must come to their instants first; and under `expiry` those whose
        instant, at which they go out alone, is the end of their life. (One that further rows must push out of its
        window waits for no clock.)"""
        now = clocks.end(self.clock)
        expires = self.node.emission == "expiry"
        asked = [i for i, clock in enumerate(self.clocks) if clock is not None or expires]  # a table may be large
        lives = {i: self._lives(i, self._kept(i, state), now, state) for i in asked}
        for i, rows in lives.items():
            passed = isinstance(self.node.operands[i].frame, RowsFrame)
            due = rows[ENTER].fill_null(ABOVE_ALL).to_numpy()
            ahead: Ints = np.flatnonzero((due >= now) if passed else (due > now))
            if self.clocks[i] is not None and len(ahead):
                some = functools.partial(rows_at, rows, ahead)
                yield Awaited(leaves(self.clock), now, due[ahead], some, reached=not passed)
        for alone in self._expiring(list(lives.values()), now) if expires else ():
            yield Awaited(
                leaves(self.clock), now, alone[ENTER].to_numpy(), functools.partial(pl.DataFrame.clone, alone)
            )

    def _kept(self, i: int, state: State) -> pl.DataFrame:
        rows = Whole(state, operand(i)).rows()
        if rows is None:
            columns = {c.name: polars_type(c.type) for c in self.node.operands[i].input.schema}
            rows = no_rows({AT: pl.Int64(), place(i): pl.Binary(), **columns})
        return rows.with_columns(pl.lit(None, POS_TYPE).alias(NEW))

    def _expiring(self, lives: Sequence[pl.DataFrame], now: int) -> Iterator[pl.DataFrame]:
        """Rows that are alive, and have met nothing, as they go out alone."""
        tree = self.node.tree
        if isinstance(tree, Meeting):
            left, right = self._sides(tree, lives, NEVER, None, [])
            for number, rows, other in _preserving(tree, left, right):
                ends = pl.col(EXPIRES).is_between(now, OPEN, closed="left") & (pl.col(ENTER) <= pl.col(LEAVE))
                alive = rows.filter(ends & (pl.col(ENTER) < now + (pl.col(DUE) != PASSED).cast(pl.Int64)))
                for own in alive.iter_slices(FEW_ROWS) if not sliding.is_table(other) else ():
                    pairs = _pairs(tree, own, right) if number == ROWS[0] else _pairs(tree, left, own)
                    if (alone := self._alone(own, pairs, number, other)).height:
                        yield alone

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        before, now = state.manifest.get("clock", NEVER), clocks.end(self.clock)
        drops: list[pl.DataFrame] = []
        kept = [Whole(state, operand(i)) for i in range(len(inputs))]
        arrived = [self._arrived(i, rows, clocks, drops) for i, rows in enumerate(inputs)]
        self._note(arrived, clocks, state)
        payload = [c for rows in inputs for c in payload_of(rows)]
        if now == before and not any(rows.height for rows in arrived):
            return Result(self._empty(inputs), all_dropped(drops))
        held = [whole.with_new(rows) for whole, rows in zip(kept, arrived, strict=True)]
        lives = [_by_enter(self._lives(i, rows, now, state)) for i, rows in enumerate(held)]
        del arrived, held
        if now >= FOREVER:
            drops += self._unreached(lives)
        for whole, rows in zip(kept, self._needed(lives, now), strict=True):
            left = rows.drop(ENTER, LEAVE, EXPIRES, DUE)
            whole.close(left.drop(NEW), left.filter(pl.col(NEW).is_not_null()).drop(NEW))
        state.manifest["clock"] = now
        lost: list[pl.DataFrame] = []
        changes = self._changes(lives, before, now, clocks, dict(state.manifest), payload, lost)
        return Result.of(changes, all_dropped(drops), lost=lost)

    # ---------------------------------------------------------------- rows

    def _arrived(self, i: int, rows: pl.DataFrame, clocks: Clocks, drops: list[pl.DataFrame]) -> pl.DataFrame:
        """New rows of operand i as they are kept; late ones are dropped."""
        clock = self.clocks[i]
        if isinstance(clock, LeafClock) and PART in rows.columns:  # rows of a sub-query were judged at its entry
            late = clocks.late(clock.leaf, rows[PART], rows[POS], rows[TIME].to_numpy())
            if late.any():
                lost = rows.filter(late)
                moved = clocks.late_by(clock.leaf, lost[PART][0], lost[POS].head(1))  # told of the first
                told = Late(None, moved.extend_constant(None, lost.height - 1))
                drops.append(late_rows(lost.drop(PART), str(i), told))
                rows = rows.filter(~late)
        made = rows.select(
            pl.col(TIME).alias(AT),
            places_of(rows, table=clock is None).alias(place(i)),
            same_leaf(pl.col(POS)).alias(NEW),
            *payload_of(rows),
        )
        return made

    def _note(self, arrived: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> None:
        """What is remembered of what was shown: the highest time; how far the stream of a preserved table came."""
        times = [rows[AT].to_numpy() for rows, c in zip(arrived, self.clocks, strict=True) if c is not None]
        shown = max(clocks.highest(self.clock), state.manifest.get("highest", NEVER))
        state.manifest["highest"] = int(np.concatenate(times).max(initial=shown))
        if sliding.preserved_table(self.node) is None:
            return
        (clock,) = (c for c in self.clocks if c is not None)
        first, last = _shown(clock, clocks)
        known = {int(p): t for p, t in state.manifest.get("first", {}).items()}
        state.manifest["first"] = {str(p): t for p, t in (first | known).items()}
        state.manifest["last"] = max(state.manifest.get("last", NEVER), last)

    def _lives(self, i: int, rows: pl.DataFrame, now: int, state: State) -> pl.DataFrame:
        frame = self.node.operands[i].frame
        if frame is None:
            always = (pl.lit(t, pl.Int64).alias(c) for c, t in ((ENTER, -OPEN), (LEAVE, OPEN), (EXPIRES, OPEN)))
            return rows.with_columns(*always, pl.lit(REACHED, pl.Int8).alias(DUE))
        rows = with_lives(rows, frame, AT, place(i))
        if isinstance(frame, RowsFrame) and now >= FOREVER:
            highest = pl.lit(state.manifest["highest"], pl.Int64)
            left = pl.when(pl.col(EXPIRES) == OPEN).then(highest).otherwise(EXPIRES)
            rows = rows.with_columns(left.alias(EXPIRES))
        due = PASSED if isinstance(frame, RowsFrame) else REACHED
        return rows.with_columns(pl.lit(due, pl.Int8).alias(DUE))

    def _unreached(self, lives: Sequence[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Rows of a preserved side whose window never came to them."""
        for i in _preserved(self.node.tree, iter(range(len(lives)))):
            lost = lives[i].filter(pl.col(ENTER).is_null())
            if lost.height:
                lost = lost.with_columns(positions_of(lost[place(i)]), pl.col(AT).alias(TIME))
                yield dropped_rows(lost.select(POS, TIME, *payload_of(lost)), Reason.UNREACHED, str(i))

    def _needed(self, lives: Sequence[pl.DataFrame], now: int) -> list[pl.DataFrame]:
        """The rows that something still open depends on: a row that may be alive later, a row that met it, …"""
        until = pl.max_horizontal(LEAVE, EXPIRES, ENTER)
        bound = now - 1
        needed = pl.col(ENTER).is_null() | (until >= bound)
        streams = [x for x, c in zip(lives, self.clocks, strict=True) if c is not None]
        if any(meeting.how != "inner" for meeting in sliding.meetings(self.node.tree)):
            for _ in streams[1:]:
                starts = np.concatenate([x.filter(needed)[AT].to_numpy() for x in streams])
                bound = int(starts.min(initial=bound)) - 1
                needed = pl.col(ENTER).is_null() | (until >= bound)
        return [x.filter(needed) for x in lives]

    # ---------------------------------------------------------------- steps of the clock

    def _changes(
        self,
        lives: Sequence[pl.DataFrame],
        before: int,
        now: int,
        clocks: Clocks,
        noted: Mapping[str, Any],
        payload: Sequence[str],
        lost: list[pl.DataFrame],
    ) -> Iterator[pl.DataFrame]:
        """What goes out while the clock goes from `before` to `now`, in as few steps as have no more than a piece of
        pairs each; one instant is never cut. `lives`: by their enters. `noted`: see `_note`. `lost`: gets
        what is told of pairs."""
        most = piece_rows(*([x] for x in lives))
        enters = [x[ENTER].drop_nulls().to_numpy() for x in lives]
        alive, ends, fresh = [x.clear() for x in lives], [now], True
        done, reporting = [0] * len(lives), sliding.preserved_table(self.node) is not None
        while ends:
            upto = [int(np.searchsorted(e, ends[-1], side="right")) for e in enters]
            new = [x.slice(a, b - a) for x, a, b in zip(lives, done, upto, strict=True)]
            rows = [pl.concat(x) for x in zip(alive, new, strict=True)]
            if reporting and before < ends[-1]:
                hops = self._hops(rows, before, ends[-1], noted)
                some = max(1, most // max(1, rows[self._table].height))
                if len(hops) > some:
                    ends.append(int(hops[some - 1]) + 1)
                    continue
            times = np.sort(np.concatenate([e[a:b] for e, a, b in zip(enters, done, upto, strict=True)]))
            times = times[(times > max(before - fresh, -OPEN)) & (times < ends[-1])]
            failures = list[Failing]()
            try:
                results = self._results(rows, before, ends[-1], most if len(times) else None, failures)
            except Crowded as crowd:
                share = len(times) * most // (2 * crowd.pairs) + 1
                ends += np.unique(times[::share])[::-1].tolist()
                continue
            end = ends.pop()
            results = pl.concat([results, *self._reports(rows, before, end, noted)], how="diagonal")
            due, since = _is_due(before, end, fresh), before if fresh else NEVER
            for pairs, e in failures:
                told = pl.concat([results.clear(), pairs], how="diagonal").filter(due)
                told = self._released(told, since, clocks, payload)
                lost += [
                    x for x in [failed_rows(told, pl.repeat(True, told.height, eager=True), [e], BOTH)] if x is not None
                ]
            yield self._released(results.filter(due), since, clocks, payload)
            alive, done, before, fresh = self._needed(rows, end), upto, end, False

    # ---------------------------------------------------------------- meeting

    def _results(
        self, lives: Sequence[pl.DataFrame], before: int, now: int, most: int | None, failures: list[Failing]
    ) -> pl.DataFrame:
        """Rows of the whole tree: all that the clock lets out on its way from `before` to `now`, and others. `Crowded`
        where somewhere more than `most` pairs come together on that way."""
        tree = self.node.tree
        if not isinstance(tree, Meeting) or self.node.emission == "istream":
            return self._evaluated(tree, lives, before, most, failures)
        # each result has a row that enters in between, or goes out alone in between
        left, right = self._sides(tree, lives, before, most, failures)
        if tree.gives != "pairs" and tree.residual is None:
            right = _one_of_each(right, [r for _, r in tree.keys])
        pairs = _pairs(tree, left, right, before, None if most is None else (before, most), failures)
        if tree.gives != "pairs":  # a table never changes
            own = left.filter(pl.col(ENTER) >= before)
            own = own.join(pairs.select(ROWS[0]), on=ROWS[0], how="semi" if tree.gives == "matched" else "anti")
            return pl.concat([pairs.clear().drop(ROWS), own.drop(ROWS[0])], how="diagonal")
        found = [pairs.drop(ROWS)]
        for number, rows, other in _preserving(tree, left, right):
            if self.node.emission == "arrival" or sliding.is_table(other):
                own, mine = rows.filter(pl.col(ENTER) >= before), pairs
            else:
                gone = pl.col(EXPIRES).is_between(before, now) | (
                    (pl.col(ENTER) > pl.col(LEAVE)) & (pl.col(ENTER) >= before)
                )
                own = rows.filter(gone)
                mine = _pairs(tree, own, right) if number == ROWS[0] else _pairs(tree, left, own)
            found.append(self._alone(own, mine, number, other))
        return pl.concat(found, how="diagonal")

    def _sides(
        self, tree: Meeting, lives: Sequence[pl.DataFrame], before: int, most: int | None, failures: list[Failing]
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What meets in a meeting, each side's rows numbered."""
        n = len(tuple(sliding.operands(tree.left)))
        left = self._evaluated(tree.left, lives[:n], before, most, failures)
        right = self._evaluated(tree.right, lives[n:], before, most, failures)
        return left.with_row_index(ROWS[0]), right.with_row_index(ROWS[1])

    def _evaluated(
        self, tree: Tree, lives: Sequence[pl.DataFrame], before: int, most: int | None, failures: list[Failing]
    ) -> pl.DataFrame:
        """The rows of a tree. `lives`: of its operands, from left to right."""
        if isinstance(tree, Operand):
            (rows,) = lives
            return rows.drop(AT)
        if isinstance(tree, Merged):
            return pl.concat([rows.drop(AT) for rows in lives], how="diagonal")
        left, right = self._sides(tree, lives, before, most, failures)
        pairs = _pairs(tree, left, right, NEVER, None if most is None else (before, most), failures)
        alone = [self._alone(rows, pairs, number, other) for number, rows, other in _preserving(tree, left, right)]
        return pl.concat([pairs.drop(ROWS), *alone], how="diagonal")

    def _alone(self, rows: pl.DataFrame, pairs: pl.DataFrame, number: str, other: Tree) -> pl.DataFrame:
        """What rows of a preserved side give without a partner. `pairs`: those that they are in, by `number`."""
        pairs = pairs.select(number, ENTER, LEAVE)
        if sliding.is_table(other):  # a table never changes: what it lacks now it lacks for ever
            return rows.join(pairs, on=number, how="anti").drop(number)
        dead = rows.filter(pl.col(ENTER) > pl.col(LEAVE)).with_columns(
            pl.col(ENTER).alias(LEAVE), pl.col(ENTER).alias(EXPIRES), pl.lit(PASSED, pl.Int8).alias(DUE)
        )
        rows = rows.filter(pl.col(ENTER) <= pl.col(LEAVE))
        match self.node.emission:
            case "arrival":
                alone = _until_met(rows, pairs, number)
            case "expiry":
                alone = _never_met(rows, pairs, number, hops=len(self.node.operands) == 2)
            case "istream":
                alone = _between(rows, pairs, number)
        return pl.concat([dead, alone], how="diagonal").drop(number)

    # ---------------------------------------------------------------- a preserved table

    def _reports(
        self, lives: Sequence[pl.DataFrame], before: int, now: int, noted: Mapping[str, Any]
    ) -> Iterator[pl.DataFrame]:
        """Rows of a preserved table that nothing met in a hop, at the end of each hop that ends in between."""
        if sliding.preserved_table(self.node) is None or now == NEVER:
            return
        table, tree = self._table, self.node.tree
        assert isinstance(tree, Meeting)
        ends = pl.DataFrame({"_end": self._hops(lives, before, now, noted)}, schema={"_end": pl.Int64})
        left, right = lives
        pairs = _pairs(tree, left, right)
        met = pairs.select(pl.col(LEAVE).alias("_end"), place(table))
        alone = lives[table].join(ends, how="cross").join(met, on=["_end", place(table)], how="anti")
        made = alone.with_columns((pl.col("_end") + 1).alias(ENTER), pl.lit(HOP, pl.Int8).alias(DUE))
        yield made.drop("_end", AT)

    @property
    def _table(self) -> int:
        return next(i for i, c in enumerate(self.clocks) if c is None)

    def _hops(self, lives: Sequence[pl.DataFrame], before: int, now: int, noted: Mapping[str, Any]) -> Ints:
        """The ends of the hops that are reported on while the clock goes from `before` to `now`."""
        frame = self.node.operands[1 - self._table].frame
        assert isinstance(frame, RangeFrame)
        first, last = max(min(noted["first"].values()), before), min(now - 1, noted["last"])
        if self.node.empty_buckets:
            return hop_ends(frame, first, last, now - 1)
        begin, end = hop_end(frame, pl.Series([first, last], dtype=pl.Int64)).to_list()
        held = distinct(lives[1 - self._table][LEAVE].to_numpy())
        return held[(held >= begin) & (held <= min(end, now - 1))] if first <= last else held[:0]

    # ---------------------------------------------------------------- results

    def _released(self, rows: pl.DataFrame, before: int, clocks: Clocks, payload: Sequence[str]) -> pl.DataFrame:
        """Results with their positions: of the step of the clock that let them out, or of a record that came later."""
        for i in range(len(self.clocks)):
            if place(i) not in rows.columns:
                rows = rows.with_columns(pl.lit(None, pl.Binary).alias(place(i)))
        positions, values = clocks.moves(self.clock)
        time, due = rows[ENTER].to_numpy(), rows[DUE].to_numpy()
        step = np.where(due == PASSED, np.searchsorted(values, time, "right"), np.searchsorted(values, time, "left"))
        stepped = np.where((due == PASSED) | (time > before), step, -1)
        steps = pl.concat([positions, pl.Series([None], dtype=POS_TYPE)]).rename("s").to_frame()
        at = steps.select(same_leaf(pl.col("s")).gather(pl.Series(np.where(stepped < 0, len(positions), stepped))))["s"]
        places = [place(i) for i in range(len(self.clocks))]
        order = order_of_merged if isinstance(self.node.tree, Merged) else order_of_results
        made = rows.select(
            pl.max_horizontal(at, NEW).alias(POS),
            order(rows, places, ENTER, DUE, self.width),
            pl.col(ENTER).alias(TIME),
            pl.lit(1, pl.Int8).alias(DIFF),
            pl.lit(None, pl.UInt64).alias(HASH),
            *payload,
            pl.col(ENTER).alias(self.node.rowtime.name),
        )
        return made.sort(POS, SUB)

    def _empty(self, inputs: Sequence[pl.DataFrame]) -> pl.DataFrame:
        schema: dict[str, pl.DataType] = {POS: POS_TYPE, SUB: pl.Binary(), TIME: pl.Int64(), DIFF: pl.Int8()}
        schema |= {HASH: pl.UInt64()}
        for rows in inputs:
            schema |= {c: rows.schema[c] for c in payload_of(rows)}
        return no_rows(schema | {self.node.rowtime.name: pl.Int64()})


def _by_enter(rows: pl.DataFrame) -> pl.DataFrame:
    """By the enters, rows without one last."""
    if rows[ENTER].is_sorted(nulls_last=True):
        return rows
    return rows.sort(ENTER, nulls_last=True, maintain_order=True)


def _is_due(before: int, now: int, fresh: bool) -> pl.Expr:
    """Results that the clock lets out on its way from `before` to `now`; `fresh`: and, of the time that it had reached
    before, those of new records."""
    time, due = pl.col(ENTER), pl.col(DUE)
    passed = (due == PASSED) & (time >= before) & (time < now)
    later = time > before
    if fresh:
        later |= (time == before) & (due == REACHED) & pl.col(NEW).is_not_null()
    return passed | ((due != PASSED) & later & (time <= now) & (time < FOREVER))


def _preserving(meeting: Meeting, left: pl.DataFrame, right: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame, Tree]]:
    """Of each preserved side the name of its rows' numbers, its rows (without those of a table that meets a stream: see
    `_reports`), and the other side."""
    whole = sliding.is_table(meeting)
    sides = (("left", ROWS[0], left, meeting.right), ("right", ROWS[1], right, meeting.left))
    for side, number, rows, other in sides:
        if meeting.how in (side, "full"):
            yield number, rows if whole else rows.filter(pl.col(ENTER) > -OPEN), other


def _pairs(
    meeting: Meeting,
    left: pl.DataFrame,
    right: pl.DataFrame,
    since: int = NEVER,
    crowd: tuple[int, int] | None = None,
    failures: list[Failing] | None = None,
) -> pl.DataFrame:
    """Pairs alive together with equal keys; `since`, `crowd`: see `Together.pairs`. `failures`: gets those for which
    the residual fails."""
    keys = None
    if meeting.keys:
        names = [f"_q{n}" for n in range(len(meeting.keys))]
        sides = zip((left, right), zip(*meeting.keys, strict=True), strict=True)
        l, r = (compile.evaluate(x, list(zip(names, exprs, strict=True)))[0] for x, exprs in sides)
        keys = l, r
    i, j = Together(left, right, keys).pairs(since, crowd)
    life = (ENTER, LEAVE, EXPIRES, DUE, NEW)
    l, r = rows_at(left, i), rows_at(right, j)
    own = pl.DataFrame([*(l[c].alias(f"_l{c}") for c in life), *(r[c].alias(f"_r{c}") for c in life)]).select(
        pl.max_horizontal("_l_e", "_r_e").alias(ENTER),
        *(pl.min_horizontal(f"_l{c}", f"_r{c}").alias(c) for c in (LEAVE, EXPIRES)),
        *(pl.max_horizontal(f"_l{c}", f"_r{c}").alias(c) for c in (DUE, NEW)),
    )
    both = pl.DataFrame([*own, *(x for side in (l, r) for x in side if x.name not in (AT, *life))])
    if meeting.residual is not None:
        first, rest = residuals.parted(meeting.residual)
        if failures is not None and rest is not None and both.height:
            failures.append((failing(both, first, rest).drop(ROWS), rest))
        fits, _ = compile.evaluate(both, [("_fits", meeting.residual)])
        both = both.filter(fits["_fits"].fill_null(False))
    return both


def _one_of_each(rows: pl.DataFrame, keys: Sequence[Expr]) -> pl.DataFrame:
    """One of the rows that are equal in some expressions."""
    if not keys or not rows.height:
        return rows.head(1)
    made, _ = compile.evaluate(rows, [(f"_q{n}", e) for n, e in enumerate(keys)])
    return rows.filter(made.select(pl.struct(pl.all()).is_first_distinct().alias("_first"))["_first"])


def _until_met(rows: pl.DataFrame, pairs: pl.DataFrame, number: str) -> pl.DataFrame:
    """Each row alone from its enter on, unless it meets another at that instant; until the first that it meets."""
    first = pairs.group_by(number).agg(pl.col(ENTER).min().alias("_first"))
    alone = rows.join(first, on=number, how="left").filter((pl.col("_first") > pl.col(ENTER)).fill_null(True))
    until = pl.min_horizontal(LEAVE, pl.col("_first") - 1)
    return alone.with_columns(until.alias(LEAVE), pl.lit(PASSED, pl.Int8).alias(DUE)).drop("_first")


def _never_met(rows: pl.DataFrame, pairs: pl.DataFrame, number: str, hops: bool) -> pl.DataFrame:
    """Each row that met nothing, for the instant at which it leaves."""
    alone = rows.join(pairs, on=number, how="anti")
    hop = (pl.col(EXPIRES) == pl.col(LEAVE) + 1) & (pl.col(DUE) == REACHED) & hops
    due = pl.when(hop).then(HOP).otherwise(PASSED).cast(pl.Int8)
    return alone.with_columns(due.alias(DUE), pl.col(EXPIRES).alias(ENTER), pl.col(EXPIRES).alias(LEAVE))


def _between(rows: pl.DataFrame, pairs: pl.DataFrame, number: str) -> pl.DataFrame:
    """Each row for every stretch of its life in which it meets nothing."""
    taken = pairs.join(rows.select(number), on=number, how="semi").select(number, ENTER, LEAVE)
    borders = [  # an instant before its life and one after it stand as pairs
        rows.select(number, (pl.col(ENTER) - 1).alias(ENTER), (pl.col(ENTER) - 1).alias(LEAVE)),
        rows.select(number, (pl.col(LEAVE) + 1).alias(ENTER), (pl.col(LEAVE) + 1).alias(LEAVE)),
    ]
    line = pl.concat([taken, *borders]).sort(number, ENTER, LEAVE)
    gaps = line.select(
        number,
        (pl.col(LEAVE).cum_max().shift(1).over(number) + 1).alias("_from"),
        (pl.col(ENTER) - 1).alias("_to"),
    ).filter(pl.col("_from") <= pl.col("_to"))
    alone = rows.join(gaps, on=number, how="inner")
    made = alone.with_columns(
        pl.col("_from").alias(ENTER), pl.col("_to").alias(LEAVE), pl.lit(PASSED, pl.Int8).alias(DUE)
    )
    return made.drop("_from", "_to")


def _shown(clock: Clock, clocks: Clocks) -> tuple[dict[int, int], int]:
    """The first time of each partition and the last of all, in this batch; of a join's output as if it had one."""
    if isinstance(clock, LeafClock):
        return clocks.shown(clock.leaf)
    values = clocks.moves(clock)[1]
    values = values[values < FOREVER]
    return ({0: int(values[0])}, int(values[-1])) if len(values) else ({}, NEVER)


def _preserved(tree: Tree, operand: Iterator[int]) -> Iterator[int]:
    """The operands that stand below a preserved side."""
    if isinstance(tree, Meeting):
        for side, how in ((tree.left, "left"), (tree.right, "right")):
            numbers = [next(operand) for _ in sliding.operands(side)]
            yield from numbers if tree.how in (how, "full") else _preserved(side, iter(numbers))
