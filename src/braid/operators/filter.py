"""Filter: rows for which a condition is true.

In: changes in processing order. Out: those that pass, in the same order; rows whose condition failed.
Rule: NULL counts as not true; a failed expression is NULL and is told. A stream's null value never passes.

*Matches* nothing. *Keeps* nothing. *Emits* a row at its own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import DIFF
from braid.operators.clocks import Clocks
from braid.operators.pairing import failed_rows
from braid.plan import groups, logical


@dataclass(frozen=True, slots=True)
class Filter:
    """`retract`: -1 rows take rows back and are judged by their own values; else they are null values and go; `names`:
    what to call columns that only the plan has."""

    predicate: Expr
    retract: bool = False
    names: Mapping[str, str] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(node: logical.Filter) -> Filter:
        return Filter(node.predicate, node.mode == "retract", groups.names(node.input))

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        if not self.retract and rows.height and (rows[DIFF] == -1).any():
            rows = rows.filter(pl.col(DIFF) == 1)
        if not rows.height:
            return Result(rows)
        made, failed = compile.evaluate(rows, [("_passes", self.predicate)])
        dropped = failed_rows(rows, failed, [self.predicate], names=self.names)
        return Result(rows.filter(made["_passes"].fill_null(False)), dropped)
