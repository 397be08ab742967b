"""Windows: each row once for each window that its time lies in, with the window's bounds as columns.

In: rows in processing order; those of `TimeWindows` are spread by a key. Out: the same rows, each with the bounds of
one window, in the order of windows; of `TimeWindows` they are parts of the key, too.
Rule: which windows hold a time is a matter of their kind, `holding`. A window of `TimeWindows` is closed from the step
on at which stream time reaches its end and a grace; what comes for it later is late. (docs/rules/ksqldb.md, "Windows")

*Matches* nothing. *Keeps* nothing. *Emits* at a row's own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Col, Expr
from braid.operators.base import Result, State
from braid.operators.changes import NEVER, POS, SUB, TIME, numbers_within, prior, result_sub, result_subs
from braid.operators.clocks import Clock, Clocks, Late
from braid.operators.in_windows import in_windows
from braid.operators.pairing import all_dropped, failed_rows, late_rows, without_nulls
from braid.operators.ranges import Flags, Ints, rows_at, values_at
from braid.plan import epochs, groups
from braid.plan.windows import Fixed, Hopping
from braid.types import polars_type


def holding(windows: Fixed, t: Ints, least: int | None = None) -> tuple[Ints, Ints, Ints]:
    """Each time as often as there are windows that hold it, and their begins and ends. `least`: the first begin of all
    windows, where there is one."""
    match windows:
        case Hopping(size, advance, offset):
            first = (t - (offset + size - advance)) // advance * advance + offset
            if least is None and size % advance == 0:
                which, at = np.divmod(np.arange(len(t) * (size // advance), dtype=np.int64), size // advance)
            else:
                first = first if least is None else np.maximum(first, least)
                which = np.repeat(np.arange(len(t), dtype=np.int64), np.maximum((t - first) // advance + 1, 0))
                at = numbers_within(which)
            start = first[which] + at * advance
            return which, start, start + size
    assert_never(windows)


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Fields as those of the node."""

    windows: Fixed
    grace: int
    bounds: tuple[str, str]
    clock: Clock

    @staticmethod
    def of(node: groups.TimeWindows, clock: Clock) -> TimeWindows:
        return TimeWindows(node.windows, node.grace, (node.start.name, node.end.name), clock)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops)
        which, start, end = holding(self.windows, rows[TIME].to_numpy(), 0)
        late = self._late(rows, which, end, clocks)
        lost = np.bincount(which, minlength=rows.height) == 0  # before 0 there is no window
        lost[which[late]] = True
        if lost.any():
            told, first = rows.filter(lost), np.full(rows.height, NEVER)
            first[which[::-1]] = end[::-1]
            now = clocks.at(self.clock, told[POS], prior(told))
            short = pl.Series(now - self.grace - first[lost] + 1).set(pl.Series(first[lost] == NEVER), None)
            drops.append(late_rows(told, None, Late(now, clocks.moved(self.clock, told[POS]), short)))
            which, start, end = which[~late], start[~late], end[~late]
        made = rows_at(rows, which).with_columns(result_subs(rows[SUB], which, numbers_within(which)))
        return Result(in_windows(made, start, end, self.bounds), all_dropped(drops))

    def _late(self, rows: pl.DataFrame, which: Ints, end: Ints, clocks: Clocks) -> Flags:
        """For which windows a row comes when they are closed, its own step included."""
        close = end + self.grace
        late = close <= clocks.end(self.clock)
        if late.any():
            at = which[late]
            now = clocks.at(self.clock, values_at(rows[POS], at), prior(rows, at))
            late[late] = close[late] <= now
        return late


@dataclass(frozen=True, slots=True)
class Windows:
    """Fields as those of the node."""

    time: Expr
    windows: Fixed
    start: Col
    end: Col
    keep_null: bool

    @staticmethod
    def of(node: epochs.Windows) -> Windows:
        return Windows(node.time, node.windows, node.start, node.end, node.null_time == "keep")

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        made, failed = compile.evaluate(rows, [("_time", self.time)])
        dropped = failed_rows(rows, failed, [self.time])
        time = made["_time"].cast(pl.Datetime("us")).to_physical()
        if time.null_count() and not self.keep_null:
            rows, time = rows.filter(time.is_not_null()), time.drop_nulls()
        which, *bounds = holding(self.windows, time.fill_null(0).to_numpy())
        unknown = None
        if time.null_count():  # a row without time is in one window, which has no bounds
            unknown = time.is_null().to_numpy()[which]
            once = ~unknown | (numbers_within(which) == 0)
            which, unknown, bounds = which[once], unknown[once], [b[once] for b in bounds]
        moments = [_moments(b, unknown, c) for b, c in zip(bounds, (self.start, self.end), strict=True)]
        out = rows_at(rows, which).with_columns(moments)
        if not self.windows.alone and rows[SUB].null_count() < rows.height:
            out = out.with_columns(result_sub(out[SUB], pl.Series(numbers_within(which))).alias(SUB))
        return Result(out, dropped)


def _moments(microseconds: Ints, unknown: Flags | None, column: Col) -> pl.Series:
    made = pl.Series(column.name, microseconds)
    made = made if unknown is None else made.set(pl.Series(unknown), None)
    return made.cast(pl.Datetime("us")).cast(polars_type(column.type))
