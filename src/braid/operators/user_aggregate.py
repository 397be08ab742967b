"""Aggregates of users: what a class makes of the values of a group, one after the other.

In: the groups of a batch, the arguments as a structure, what stood before. Out: the fields of the class after each row,
its result there, and whether it failed.
Rule: the n-th rows of all groups are one call, so the values of a group come in their order whatever the batches are. A
row at which the class raises leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from braid.expr import user
from braid.expr.nodes import Code
from braid.operators.accumulation import Accumulation, Groups
from braid.operators.ranges import Ints, rows_at, values_at
from braid.types import Type, polars_type


def accumulation_of(code: Code, result: Type) -> Accumulation:
    """How a user's aggregate runs: its fields, its result, and whether that is none."""
    made = _Class(code, result)
    return Accumulation(made.columns, made.running, lambda held, t: held[-2], made.merged)


class _Class:
    def __init__(self, code: Code, result: Type) -> None:
        self._definition, self._result = user.definition_of(code), result
        self._state = user.state_of(code)

    def columns(self, t: Type) -> tuple[pl.DataType, ...]:
        return (*(polars_type(f.type) for f in self._state), polars_type(self._result), pl.Boolean())

    def running(self, groups: Groups, value: pl.Series, held: Sequence[pl.Series]) -> list[pl.Series]:
        rank = np.arange(len(groups.group)) - groups.first[groups.group]
        order = np.argsort(rank, kind="stable")
        ends = np.cumsum(np.bincount(rank)) if len(rank) else np.zeros(1, dtype=np.int64)
        args = pl.DataFrame(value.struct.unnest())
        number = np.cumsum(~groups.start) - 1  # of the value at a place
        at, state = order[: ends[0]], self._begun(held)
        known, failed = [state], np.zeros(len(order), dtype=np.bool_)
        for start, end in pairwise(ends.tolist()):
            places = order[start:end]
            if len(places) < len(at):  # some groups have no more rows
                state = rows_at(state, np.searchsorted(at, places - 1))
            which = number[places]
            values = args.slice(int(which[0]), 1) if len(which) == 1 else rows_at(args, which)
            state, bad = self._changed(state, values, groups.diff[places])
            known.append(state)
            if bad is not None:
                failed[places] = bad.to_numpy()
            at = places
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        after = rows_at(pl.concat(known, rechunk=True), back)
        result, bad = user.called_on(self._definition, after, self._of_state, self._result)
        return [*after.get_columns(), result, pl.Series(failed) | bad]

    def merged(self, first: Sequence[pl.Series], second: Sequence[pl.Series]) -> list[pl.Series]:
        """There is no result yet: the row that has brought them together comes behind them."""
        state = user.merged(self._definition, self._state, self._begun(first), self._begun(second))
        none = pl.repeat(None, state.height, dtype=polars_type(self._result), eager=True)
        return [*state.get_columns(), none, pl.repeat(False, state.height, eager=True)]

    def _begun(self, held: Sequence[pl.Series]) -> pl.DataFrame:
        """What stands of each group; the class's own beginning of those that are new."""
        new = held[-1].is_null()
        fields = zip(self._state, held, strict=False)
        return pl.DataFrame([h.zip_with(~new, user.beginning(f, len(h))).alias(f.name) for f, h in fields])

    def _changed(self, state: pl.DataFrame, args: pl.DataFrame, diff: Ints) -> tuple[pl.DataFrame, pl.Series | None]:
        """The state when each has got its values, or given them back."""
        gone = diff < 0
        if gone.any() and not gone.all():
            parts = [np.flatnonzero(~gone), np.flatnonzero(gone)]
            made = [self._changed(rows_at(state, at), rows_at(args, at), diff[at]) for at in parts]
            back = np.argsort(np.concatenate(parts), kind="stable")
            bad = [pl.repeat(False, s.height, eager=True) if f is None else f for s, f in made]
            return rows_at(pl.concat([s for s, _ in made]), back), values_at(pl.concat(bad), back)
        method = "retract" if gone.any() else "accumulate"
        return user.changed(self._definition, method, self._state, state, args)

    def _of_state(self, rows: pl.DataFrame) -> Any:
        return user.instance(self._definition, rows).result()
