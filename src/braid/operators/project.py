"""Project: computed columns under new names.

In: changes in processing order. Out: the same rows with other columns.
Rule: a failed expression is NULL and is told; of a tombstone, or a stream's null value, nothing can fail.

*Matches* nothing. *Keeps* nothing. *Emits* every row at its own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Result, State
from braid.operators.changes import no_rows
from braid.operators.clocks import Clocks
from braid.operators.pairing import failed_rows, payload_of
from braid.operators.ranges import columns_of
from braid.plan import groups, logical
from braid.types import polars_type


@dataclass(frozen=True, slots=True)
class Project:
    """`outputs`: plan name of the new column, and what gives it; `names`: what to call columns that only the plan
    has."""

    outputs: tuple[tuple[str, Expr], ...]
    names: Mapping[str, str] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(node: logical.Project) -> Project:
        return Project(tuple((c.name, e) for c, e in node.outputs), groups.names(node.input))

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        payload = set(payload_of(rows))
        own = columns_of(rows, [c for c in rows.columns if c not in payload])
        if not rows.height:
            return Result(own.hstack(no_rows({name: polars_type(e.type) for name, e in self.outputs})))
        made, failed = compile.evaluate(rows, list(self.outputs))
        changes = own.hstack(made)
        return Result(changes, failed_rows(rows, failed, [e for _, e in self.outputs], names=self.names))
