"""Closed: what belongs to a period of a stream goes out when the period is over.

In: rows of a stream in the order of their times, or changes of groups that close with their period. Out: each once, as
rows of a stream, at the step of the clock that ends their period.
Rule: all of a period is here when the clock has reached its end, so nothing is taken back. (docs/rules/sqlstream.md,
"Groups")

*Matches* nothing.
*Keeps* the rows of periods that are not over; of a group the row that was written last.
*Emits* at the place of the step that ends the period, ordered by (time, what they are sorted by, `_sub` as they came).
*Forgets* what it has emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.arrangement import ARRIVAL, CLOSE, Agenda
from braid.operators.base import Awaited, Result, State
from braid.operators.changes import DIFF, HASH, POS, SUB, TIME, key_column, ordered_sub
from braid.operators.clocks import Clock, Clocks, leaves, of_slowest
from braid.operators.final import Waiting, last
from braid.operators.pairing import all_dropped, failed_rows, payload_of
from braid.operators.places import same_leaf
from braid.plan import groups


@dataclass(frozen=True, slots=True)
class Closed:
    """Fields as those of the node; `keys`: how many parts the key of a group has; 0: the rows are those of a stream."""

    until: Expr
    rowtime: str
    early: int
    order: tuple[groups.Order, ...]
    clock: Clock
    keys: int
    awaits: ClassVar[tuple[str, ...]] = ("waiting",)
    waits_for: ClassVar[str] = "its period to end"

    @staticmethod
    def of(node: groups.Closed, clock: Clock) -> Closed:
        keys = 0 if node.input.mode == "append" else len(node.input.row_key)
        return Closed(node.until, node.rowtime.name, node.early, node.order, clock, keys)

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        waiting, now, dropped = self._waiting(state), clocks.end(self.clock), None
        close, failed = compile.evaluate(rows, [(CLOSE, self.until)])
        came = int(state.manifest.get("arrivals", 0))
        new = rows.select(
            close[CLOSE],
            pl.Series(ARRIVAL, came + np.arange(rows.height), dtype=pl.Int64),
            pl.lit(1, pl.Int8).alias(DIFF),
            *(POS, SUB, TIME, HASH, *self._keys, *payload_of(rows)),
        )
        if rows.height:
            state.manifest["arrivals"] = came + rows.height
            dropped = failed_rows(rows, failed, [self.until])
            waiting.append(last(new, self._keys) if self.keys else new)
        due = waiting.prefix(now + 1) if waiting.low <= now else None
        waiting.close()
        released, unsorted = self._released(new.clear() if due is None else due, clocks)
        return Result(released, all_dropped([x for x in (dropped, unsorted) if x is not None]))

    def waiting(self, state: State, clocks: Clocks) -> Iterator[Awaited]:
        """What belongs to periods that are not over."""
        open_ = self._waiting(state).standing()
        if open_ is not None and open_.height:
            due = open_[CLOSE].to_numpy()
            slowest = of_slowest(self.clock)
            yield Awaited(leaves(self.clock), clocks.end(self.clock), due, lambda: open_, reached=True, slowest=slowest)

    @property
    def _keys(self) -> list[str]:
        return [key_column(i) for i in range(self.keys)]

    def _waiting(self, state: State) -> Agenda:
        return Waiting(state, self._keys) if self.keys else Agenda(state, "waiting")

    def _released(self, due: pl.DataFrame, clocks: Clocks) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows in their order, each in the place of the step that ends its period; and what is told of them."""
        if self.keys and due.height:
            due = last(due, self._keys)
        names, dropped = [f"_by{i}" for i in range(len(self.order))], None
        if self.order:
            exprs = [o.by for o in self.order]
            by, failed = compile.evaluate(due, list(zip(names, exprs, strict=True)))
            dropped = failed_rows(due, failed, exprs)
            due = due.hstack(by.get_columns())
        due = due.sort(
            [CLOSE, *names, SUB],
            descending=[False, *(o.descending for o in self.order), False],
            nulls_last=[False, *(not o.begins_with_null for o in self.order), False],
            maintain_order=True,
        )
        time = (due[CLOSE] - self.early).alias(self.rowtime)
        positions, values = clocks.moves(self.clock)
        steps = pl.concat([positions, due[POS].clear().extend_constant(None, 1)])
        step = steps.gather(pl.Series(np.searchsorted(values, due[CLOSE].to_numpy(), side="left")))
        at = pl.DataFrame([step.alias("step"), due[POS]])
        made = [
            at.select(same_leaf(pl.max_horizontal("step", POS)).alias(POS))[POS],
            ordered_sub(time, due[SUB], bool(self.order)),
            time.alias(TIME),
            due[DIFF],
            pl.Series(HASH, [None], dtype=pl.UInt64).new_from_index(0, due.height),
            *(due[c] for c in payload_of(due)),
            time,
        ]
        return pl.DataFrame(made), dropped
