"""Temporal filter: rows that are there until the time of now has passed their value, or from then on.

In: changes of a multiset, with epochs. Out: its net rows for which the condition is true after each epoch.
Rule: now is the highest time of a record that was read, as it stands after an epoch; it never falls.
(docs/rules/risingwave.md, RW-103)

*Matches* nothing.
*Keeps* the rows whose condition will be another one: those that will go, or will come.
*Emits* in the epoch of a change what of it passes; in the first epoch after which now has passed a row's value the row,
or that it is gone.
*Forgets* what now has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH, NEVER, sequence_of
from braid.operators.clocks import Clocks, Newest
from braid.operators.multiset import EPOCH, TICK, Bag, at_first, changes_of, entries_of
from braid.operators.pairing import keys_of, payload_of
from braid.operators.ranges import Ints
from braid.operators.watermarks import ABOVE_ALL, Watermark, ticks_of
from braid.plan import epochs

NOT_YET = np.iinfo(np.int64).max
MS = 1000  # ticks


@dataclass(frozen=True, slots=True)
class TemporalFilter:
    """`goes`: rows are there until now has passed `value`; `reached`: a value that is equal to it is passed. `now`: of
    a clock, which is that of `leaves`."""

    value: Expr
    goes: bool
    reached: bool
    now: Watermark
    leaves: tuple[int, ...]

    @staticmethod
    def of(node: epochs.TemporalFilter, watermark: Callable[[epochs.Bound], Watermark]) -> TemporalFilter:
        each = [watermark(bound) for bound in node.watermarks]
        reached = node.compare in ("gt", "le")
        return TemporalFilter(node.value, node.goes, reached, each[0], tuple(w.leaf for w in each))

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        keys, payload = keys_of(rows), payload_of(rows)
        waiting = Bag(state, "waiting", keys)
        new = entries_of(rows, keys, ticks_of(self.value)).filter(pl.col(TICK) < ABOVE_ALL)
        places, limits = self._limits(clocks)
        steps = np.maximum.accumulate(np.append(waiting.floor, limits))
        limit, last = int(steps[-1]), state.manifest.get("last", NEVER)
        old = waiting.below(limit) if limit > waiting.floor else new.clear()
        old = at_first(old).select(new.columns) if old.height else new.clear()
        passed = np.append(places, NOT_YET)  # in which epoch, of those that were passed before NEVER

        def epochs_of(entries: pl.DataFrame) -> Ints:
            first = np.searchsorted(steps, entries[TICK].to_numpy(), side="right")
            return np.append(NEVER, passed)[first]

        names = [EPOCH, DIFF, HASH, *keys, *payload]
        both = pl.concat([new, old])
        at, own = epochs_of(both), both[EPOCH].to_numpy()
        due = at < NOT_YET
        if self.goes:
            comes, leaves = (own > NEVER) & (at > own), due & (at > own)
            out = [both.filter(comes), _in(both, leaves, np.maximum(at, last), gone=True)]
        else:
            out = [_in(both, due, np.maximum(np.maximum(at, own), np.where(own > NEVER, NEVER, last)))]
        waiting.add(new.filter(pl.col(TICK) >= limit), payload)
        waiting.forget(limit)
        waiting.close()
        state.manifest["last"] = max(int(x.max(initial=NEVER)) for x in (places, own, np.array([last])))
        return Result(changes_of(pl.concat([x.select(names) for x in out]), keys, payload))

    def _limits(self, clocks: Clocks) -> tuple[Ints, Ints]:
        """The epochs in which the time of now rises, and what is below is passed after each."""
        rises, times = clocks.moves(Newest(self.leaves))
        each = pl.DataFrame({"p": rises, "t": times}).select(sequence_of(pl.col("p")).alias(EPOCH), "t")
        each = each.group_by(EPOCH, maintain_order=True).agg(pl.col("t").last())
        return each[EPOCH].to_numpy(), self.now.of(each["t"].to_numpy() * MS) + self.reached


def _in(entries: pl.DataFrame, which: np.ndarray, epoch: Ints, gone: bool = False) -> pl.DataFrame:
    """Some entries, in other epochs; `gone`: taken back."""
    made = entries.with_columns(pl.Series(EPOCH, epoch), (-pl.col(DIFF) if gone else pl.col(DIFF)).alias(DIFF))
    return made.filter(pl.Series(which))
