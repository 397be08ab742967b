"""Windows that rows bring with them, as parts of the key by which they meet.

In: changes that are spread by a key, whose records have a window beside it. Out: the same, by key and window.
Rule: the bounds stand behind the key's columns and are in the hash; a row without a key has none by a window either.
(docs/rules/ksqldb.md, KR-53)

*Matches* nothing. *Keeps* nothing. *Emits* at a row's own place. *Forgets* nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile
from braid.expr.nodes import Expr
from braid.operators.base import Behind, Result, State
from braid.operators.changes import HASH, key_column
from braid.operators.clocks import Clocks
from braid.operators.pairing import keys_of
from braid.operators.ranges import hashes_of
from braid.plan.node import Mode
from braid.plan.told import Told

MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


@dataclass(frozen=True, slots=True)
class InWindows(Behind):
    """`bounds`: of the window of a row; `mode`: that of its input."""

    bounds: tuple[Expr, Expr]
    mode: Mode
    called = "windows"

    @property
    def told(self) -> Told:
        return Told((), notes=["the window of a row is part of its key"])

    def process(self, inputs: Sequence[pl.DataFrame], clocks: Clocks, state: State) -> Result:
        (rows,) = inputs
        n = len(keys_of(rows))
        made, _ = compile.evaluate(rows, [(key_column(n + i), e) for i, e in enumerate(self.bounds)])
        h = hashes_of(rows)
        for bound, factor in zip(made, MIX, strict=True):
            h = h ^ (bound.to_numpy().view(np.uint64) + np.uint64(1)) * factor
        mixed = pl.when(pl.col(HASH).is_not_null()).then(pl.Series(h))
        return Result(rows.with_columns(mixed.alias(HASH), *made))
