"""Union: the rows of several inputs as one.

In: the changes of each, in processing order, with the same columns. Out: all of them, in processing order.
Rule: at one place the rows of the inputs stand in their order.

*Matches* nothing. *Keeps* nothing. *Emits* every row at its own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from braid.operators.base import Result, State
from braid.operators.changes import in_order
from braid.operators.clocks import Clocks


@dataclass(frozen=True, slots=True)
class Union:
    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        there = [x for x in inputs if x.height] or [inputs[0]]
        return Result(there[0] if len(there) == 1 else in_order(pl.concat(there, how="diagonal")))
