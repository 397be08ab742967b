"""Table filter: the rows of a table for which a condition is true, as a table.

In: upserts and tombstones, in processing order. Out: upserts of the rows that pass; a tombstone for one that no longer
does.
Rule: a key that neither passed nor passes says nothing. (docs/rules/ksqldb.md, KR-32)

*Matches* nothing.
*Keeps* the keys that pass.
*Emits* at the change's place and time.
*Forgets* a key when it no longer passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Col, Expr
from braid.operators.arrangement import Newest
from braid.operators.base import Result, State
from braid.operators.changes import DIFF, HASH
from braid.operators.clocks import Clocks
from braid.operators.lives import timeline
from braid.operators.pairing import MISSING, all_dropped, dropped_rows, gathered, keys_of, payload_of, without_nulls
from braid.operators.ranges import columns_of, rows_at
from braid.plan import logical


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Spread by the table's primary key. `kept`: payload columns that a tombstone keeps, those of the key."""

    predicate: Expr
    kept: tuple[str, ...]

    @staticmethod
    def of(node: logical.Filter) -> TableFilter:
        return TableFilter(node.predicate, tuple(e.name for e in node.row_key if isinstance(e, Col)))

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        drops: list[pl.DataFrame] = []
        rows = without_nulls(inputs[0], None, drops)
        if not rows.height:
            return Result(rows, all_dropped(drops))
        keys = keys_of(rows)
        held = Newest(state, "passing", keys)
        alive = rows[DIFF].to_numpy() == 1
        made, failed = compile.evaluate(rows, [("_passes", self.predicate)])
        told = np.flatnonzero(failed.to_numpy() & alive)
        if len(told):
            drops.append(dropped_rows(rows_at(rows, told), "expression", None))
        passes = made["_passes"].fill_null(False).to_numpy() & alive
        diff = pl.Series(DIFF, np.where(passes, 1, -1).astype(np.int8))
        verdicts = columns_of(rows, [HASH, *keys]).hstack([diff])
        line = timeline([verdicts], None, keys)
        passed = line.seen(0, 0, held).at != MISSING
        line.keep(0, held)

        at = np.flatnonzero(passes | passed)
        names = [c for c in payload_of(rows) if c not in self.kept]
        values = gathered([rows], names, np.where(passes[at], at, MISSING))
        return Result(rows_at(rows, at).with_columns(diff[at], *values.get_columns()), all_dropped(drops))
