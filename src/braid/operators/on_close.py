"""Emit on close: rows wait until their watermark has passed them; then what stands of them goes out for good.

In: changes of a multiset, with epochs. Out: its net rows, when the watermark is above their value.
Rule: a watermark is read as it stands after an epoch. A row whose value has none waits for ever.
(docs/rules/risingwave.md, RW-44)

*Matches* nothing.
*Keeps* the entries that wait, and the last epoch.
*Emits* at the end of the first epoch, its own or a later one, after which the watermark is above the row's value; in no
earlier epoch than batches before this one have shown.
*Forgets* what it has emitted, and entries that cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from braid.expr.nodes import Expr
from braid.operators.base import Awaited, Result, State
from braid.operators.changes import DIFF, END_OF_BATCH, HASH, LOW, NEVER, sequence_of
from braid.operators.clocks import FOREVER, Clocks, LeafClock
from braid.operators.multiset import EPOCH, TICK, Bag, at_first, changes_of, end_of, entries_of
from braid.operators.pairing import keys_of, payload_of
from braid.operators.ranges import Ints, rows_at
from braid.operators.watermarks import ABOVE_ALL, Watermark, after, lowest, ticks_of
from braid.plan import epochs
from braid.types import WHOLE_NUMBERS

ENDED = int(END_OF_BATCH // LOW)  # the high part of the place where input ends


@dataclass(frozen=True, slots=True)
class EmitOnClose:
    """Fields as those of the node."""

    value: Expr
    watermarks: tuple[Watermark, ...]
    awaits: ClassVar[tuple[str, ...]] = ("waiting",)
    waits_for: ClassVar[str] = "its watermark"

    @staticmethod
    def of(node: epochs.EmitOnClose, watermark: Callable[[epochs.Bound], Watermark]) -> EmitOnClose:
        return EmitOnClose(node.value, tuple(map(watermark, node.bounds)))

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        keys, payload = keys_of(rows), payload_of(rows)
        waiting = Bag(state, "waiting", keys)
        new = entries_of(rows, keys, ticks_of(self.value))
        places, limits = self._limits(clocks)
        earlier = state.manifest.get("last", NEVER)
        places = self._within(places, new[EPOCH].to_numpy(), clocks, state)
        before = waiting.floor
        limit = max(before, int(limits[-1])) if len(limits) else before
        due = new.filter(pl.col(TICK) < limit)
        if limit > before and (old := waiting.below(limit)).height:
            due = pl.concat([at_first(old).select(due.columns), due])
        # first the watermark before the batch, then those after its epochs
        steps = np.append(before, limits)
        first = np.searchsorted(steps, due[TICK].to_numpy(), side="right")
        released = np.append(np.iinfo(np.int64).min, places)[first]
        epoch = np.maximum(np.maximum(released, due[EPOCH].to_numpy()), earlier)
        out = due.with_columns(pl.Series(EPOCH, epoch)).select(EPOCH, DIFF, HASH, *keys, *payload)
        waiting.add(new.filter(pl.col(TICK) >= limit), payload)
        waiting.forget(limit)
        waiting.close()
        return Result(changes_of(out, keys, payload))

    def waiting(self, state: State, clocks: Clocks) -> Iterator[Awaited]:
        """The rows that stand, by the lowest of their watermarks."""
        rows = Bag(state, "waiting", ()).below(ABOVE_ALL + 1)
        if rows.height:
            number = self.value.type in WHOLE_NUMBERS
            now = after(self.watermarks, clocks)
            ticks = np.repeat(rows[TICK].to_numpy(), rows[DIFF].clip(lower_bound=0).to_numpy())
            if not number:  # told in ms
                ticks = np.where(ticks == ABOVE_ALL, ticks, ticks // 1000)
                now = now // 1000 if NEVER < now < FOREVER else now
            each = lambda: rows_at(rows, np.repeat(np.arange(rows.height), rows[DIFF].clip(lower_bound=0).to_numpy()))  # noqa: E731
            yield Awaited(tuple(w.leaf for w in self.watermarks), now, ticks, each, moments=not number)

    def _limits(self, clocks: Clocks) -> tuple[Ints, Ints]:
        """The epochs that move a clock, and the watermark after each."""
        moved = [clocks.moves(LeafClock(w.leaf))[0] for w in self.watermarks]
        epochs = pl.concat(moved).to_frame("p").select(sequence_of(pl.col("p")).unique().sort().alias(EPOCH))
        ends = epochs.select(end_of(pl.col(EPOCH)).alias("p"))["p"]
        values = [clocks.at(LeafClock(w.leaf), ends) for w in self.watermarks]
        return epochs[EPOCH].to_numpy(), lowest(self.watermarks, values)

    def _within(self, places: Ints, epochs: Ints, clocks: Clocks, state: State) -> Ints:
        """The epochs that move a clock. The end of all input has none of its own: it belongs to the last there was,
        whose number is kept."""
        known = [clocks.last(w.leaf) for w in self.watermarks]
        known += [int(x.max(initial=NEVER)) for x in (places[places < ENDED], epochs)]
        last = state.manifest["last"] = max(state.manifest.get("last", NEVER), *known)
        return np.where(places < ENDED, places, last if last > NEVER else 0)
