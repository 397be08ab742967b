"""Table filter: the rows of a table for which a condition is true, as a table.

In: upserts and tombstones, in processing order. Out: upserts of the rows that pass; a tombstone for a row that no longer
does. Rule: a key that neither passed nor passes says nothing. (specs/ksqldb.md 3.4)

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
from braid.operators.pairing import MISSING, dropped_rows
from braid.operators.versions import as_of, keep
from braid.plan import logical


@dataclass(frozen=True, slots=True)
class TableFilter:
    predicate: Expr
    kept: tuple[str, ...]  # payload columns that a tombstone keeps: those of the key

    @staticmethod
    def of(node: logical.Filter) -> TableFilter:
        return TableFilter(node.predicate, tuple(e.name for e in logical.row_key(node) if isinstance(e, Col)))

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        keys = [c for c in rows.columns if c.startswith("_k") and c[2:].isdigit()]
        held = Newest(state, "passing", keys)
        made, failed = compile.evaluate(rows, [("_passes", self.predicate)])
        alive = (rows[DIFF] == 1).to_numpy()
        failed_alive = failed.to_numpy() & alive
        dropped = dropped_rows(rows.filter(pl.Series(failed_alive)), "expression", None) if failed_alive.any() else None
        passes = made["_passes"].fill_null(False).to_numpy() & alive
        diff = pl.Series(DIFF, np.where(passes, 1, -1).astype(np.int8))
        verdicts = rows.select(HASH, *keys).with_columns(diff)
        place = np.arange(rows.height, dtype=np.int64)
        passed = as_of(rows, place, verdicts, place, held).at != MISSING
        keep(held, verdicts)
        payload = [c for c in rows.columns if not c.startswith("_") and c not in self.kept]
        changes = rows.with_columns(
            diff, *(pl.when(pl.Series(passes)).then(pl.col(c)).otherwise(None).alias(c) for c in payload)
        ).filter(pl.Series(passes | passed))
        return Result(changes, dropped)
