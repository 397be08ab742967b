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
from braid.operators.ranges import Ints, hashes_of
from braid.plan.node import Mode
from braid.plan.told import Told

MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # odd, of many bits: for ever the same


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
        if not rows.height:
            return Result(rows.hstack(made))
        h = pl.when(pl.col(HASH).is_not_null()).then(hashes_in(rows, [bound.to_numpy() for bound in made]))
        return Result(rows.with_columns(h.alias(HASH), *made))


def hashes_in(rows: pl.DataFrame, bounds: Sequence[Ints]) -> pl.Series:
    """The hashes of rows by key and window."""
    h = hashes_of(rows)
    for bound, factor in zip(bounds, MIX, strict=True):
        h = h ^ (bound.view(np.uint64) + np.uint64(1)) * factor
    return pl.Series(HASH, h)


def in_windows(rows: pl.DataFrame, start: Ints, end: Ints, names: tuple[str, str]) -> pl.DataFrame:
    """Rows in windows that an operator has found for them. `names`: of the bounds."""
    count, values = len(keys_of(rows)), (pl.Series(start), pl.Series(end))
    return rows.with_columns(
        hashes_in(rows, (start, end)),
        *(x.alias(name) for x, name in zip(values, names, strict=True)),
        *(x.alias(key_column(count + i)) for i, x in enumerate(values)),
    )
