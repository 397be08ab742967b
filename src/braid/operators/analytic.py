"""Analytic calls over the rows of a stream: each row with what calls give it of the rows before it.

In: rows of a stream, in the order of their times. Out: the same rows in the same order, each with a column a call.
Rule: a frame ends at its row or before it, and rows come in the order of their times, so that what a call gives is
known when the row comes. Of rows of one time it reads those that came first. (docs/rules/sqlstream.md, "Analytic
functions")

*Matches* nothing.
*Keeps* of the rows what calls read of them.
*Emits* each row at its own place.
*Forgets* rows that no frame will have: by the clock; of ROWS those that enough of their partition have followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.operators import over_calls
from braid.operators.arrangement import ARRIVAL, Run
from braid.operators.base import Result, State
from braid.operators.changes import HASH, NEVER
from braid.operators.clocks import Clock, Clocks
from braid.operators.frames import ENTER, LEAVE, with_lives
from braid.operators.in_order import InOrder
from braid.operators.lives import arrivals
from braid.operators.multiset import TICK, distinct_keys
from braid.operators.pairing import keys_of
from braid.operators.ranges import Ints, begins, grouped, narrow, rows_at
from braid.plan import analytic
from braid.plan.sliding import RangeFrame, RowsFrame
from braid.types import polars_type

_TIME = "_at"


@dataclass(frozen=True, slots=True)
class Analytic:
    """Spread by the partition; of NULLs there is one."""

    node: analytic.Analytic
    clock: Clock

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        keys = keys_of(rows)
        held = Recent(state, "rows", keys, self.node.most_rows)
        new = self._entries(rows, keys, arrivals(state, inputs))
        before = held.rows
        made = self._answers(held, new, keys)
        if new.height:
            held.add(self._with_openings(new, made))
        held.pass_by(clocks.end(self.clock))
        if new.height or held.rows < before:
            held.close()
        return Result(rows.hstack(made), counts={"expired": held.expired} if held.expired else {})

    def _entries(self, rows: pl.DataFrame, keys: Sequence[str], came: int) -> pl.DataFrame:
        """What is kept of rows. The tick: the last time at which a RANGE frame has the row."""
        names = [c.name for c in self.node.arguments]
        made = rows.select(
            HASH,
            *keys,
            pl.Series(ARRIVAL, came + np.arange(rows.height), dtype=pl.Int64),
            pl.col(self.node.rowtime.name).alias(_TIME),
            *names,
        )
        ends = [_lives(made, frame)[1] for frame in self.node.ranges]
        tick = np.maximum.reduce(ends) if ends else np.full(rows.height, NEVER)
        openings = (pl.lit(None, pl.Int64).alias(c.aggregation.output.name) for c in self._opening)
        return made.with_columns(pl.Series(TICK, tick, dtype=pl.Int64), *openings)

    @property
    def _opening(self) -> Sequence[analytic.Analyzed]:
        return [c for c in self.node.calls if c.function == analytic.OPENED]

    def _with_openings(self, new: pl.DataFrame, made: Sequence[pl.Series]) -> pl.DataFrame:
        """When the window of each was opened is kept with it: the next row may be in it."""
        names = {c.aggregation.output.name for c in self._opening}
        return new.with_columns(x for x in made if x.name in names) if names else new

    def _answers(self, held: Recent, new: pl.DataFrame, keys: Sequence[str]) -> list[pl.Series]:
        """What the calls give the new rows, in their order."""
        outputs = [c.aggregation.output for c in self.node.calls]
        if not new.height:
            return [pl.Series(c.name, [], dtype=polars_type(c.type)) for c in outputs]
        parts = [new]
        if held.runs:
            parts.insert(0, held.of(distinct_keys([new], keys)).select(new.columns))
        every = pl.concat(parts)
        order, group = grouped(every, keys)
        by_arrival = np.lexsort((every[ARRIVAL].to_numpy()[order], group))
        order, rows = order[by_arrival], rows_at(every, order[by_arrival])
        mine = np.flatnonzero(order >= every.height - new.height)
        back = np.empty(len(mine), dtype=np.int64)
        back[order[mine] - (every.height - new.height)] = np.arange(len(mine))
        heads = np.maximum.accumulate(np.where(begins(group), np.arange(len(group)), 0))
        frames = {f: _frame(f, rows, heads, mine) for f in dict.fromkeys(c.frame for c in self.node.calls)}
        made = [_answer(call, rows, *frames[call.frame], mine) for call in self.node.calls]
        return [x.cast(polars_type(c.type)).gather(back).alias(c.name) for x, c in zip(made, outputs, strict=True)]


class Recent(InOrder):
    """The last rows of partitions, in the order in which they came: of each `most`, and those whose tick has not
    passed."""

    __slots__ = ("_most",)

    def __init__(self, state: State, name: str, keys: Sequence[str], most: int) -> None:
        super().__init__(state, name, keys, pl.col(TICK))
        self._most = most

    def add(self, rows: pl.DataFrame) -> None:
        kept = self._left(rows)
        self.append(self._arranged(kept), ordered=True)

    def of(self, groups: pl.DataFrame) -> pl.DataFrame:
        """The rows of partitions (hash, key)."""
        rows, _ = self._seen(groups, np.arange(groups.height), None)
        return rows

    def _arranged(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.sort(HASH, ARRIVAL)

    def _left(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Without those that no frame will have."""
        open_ = rows[TICK].to_numpy() >= self._passed
        if open_.all():
            return rows
        order, group = grouped(rows, self.keys)
        order = order[np.lexsort((rows[ARRIVAL].to_numpy()[order], group))]
        ends = np.append(np.flatnonzero(begins(group))[1:], len(group))
        behind = np.repeat(ends, np.diff(ends, prepend=0)) - np.arange(len(group))
        open_[order[behind <= self._most]] = True
        return rows_at(rows, np.flatnonzero(open_))

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        rows = pl.concat([self._read(r) for r in runs])
        left = self._left(rows)
        self.expired += rows.height - left.height
        return self._run(self._arranged(left)) if left.height else None


def _lives(rows: pl.DataFrame, frame: RangeFrame) -> tuple[Ints, Ints]:
    """The first and the last time at which the frame of a row has each of these."""
    made = with_lives(rows.select(_TIME), frame, _TIME, _TIME)
    return made[ENTER].to_numpy(), made[LEAVE].to_numpy()


def _frame(frame: RangeFrame | RowsFrame, rows: pl.DataFrame, heads: Ints, mine: Ints) -> tuple[Ints, Ints]:
    """The frames of some rows: from, and up to without it."""
    start, behind = heads[mine], mine + 1
    if isinstance(frame, RowsFrame):
        high = np.maximum(behind - frame.upper, start)
        return np.minimum(np.maximum(mine - frame.lower, start), high), high
    (enter, leave), at = _lives(rows, frame), rows[_TIME].to_numpy()[mine]
    low = narrow(leave, start, behind, at, right=False)
    return low, narrow(enter, low, behind, at, right=True)


def _answer(call: analytic.Analyzed, rows: pl.DataFrame, low: Ints, high: Ints, mine: Ints) -> pl.Series:
    a = call.aggregation
    match call.function:
        case analytic.NTH:
            number, from_last, ignores = a.options
            values = over_calls.argument(a, rows)
            return over_calls.nth(
                values, low, high, number or 0, from_last=bool(from_last), ignores_nulls=bool(ignores)
            )
        case analytic.LAG:
            by, ignores = a.options
            values = over_calls.argument(a, rows)
            found, there = over_calls.lagged(values, low, high, mine, by or 0, ignores_nulls=bool(ignores))
            if call.default is None or there.all():
                return found
            other = rows_at(rows, mine)[call.default.name].cast(found.dtype)
            return pl.select(pl.when(pl.Series(there)).then(found).otherwise(other)).to_series()
        case analytic.OPENED:
            return _openings(call, rows, low, mine)
    return over_calls.of_frame(a, rows, low, high)


def _openings(call: analytic.Analyzed, rows: pl.DataFrame, low: Ints, mine: Ints) -> pl.Series:
    """When the windows of some rows were opened. One row after the other: each window says where the next may begin."""
    (length,) = call.aggregation.options
    assert length is not None
    times, known = rows[_TIME].to_numpy(), rows[call.aggregation.output.name].fill_null(NEVER).to_numpy().copy()
    for i, first in zip(mine.tolist(), low.tolist(), strict=True):
        before = known[i - 1] if first < i else NEVER
        known[i] = before if before > NEVER and times[i] < before + length else times[i]
    return pl.Series(known[mine])
