"""Limit: the first rows of a result.

In: all changes of a query, in one bucket. Out: the first `count` of them.
Rule: first in processing order, over all batches.

*Matches* nothing. *Keeps* how many have gone out. *Emits* a row at its own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from braid.operators.base import Result, State
from braid.operators.clocks import Clocks


@dataclass(frozen=True, slots=True)
class Limit:
    count: int

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        given = int(state.manifest.get("given", 0))
        rows = inputs[0].head(self.count - given)
        state.manifest["given"] = given + rows.height
        return Result(rows)
