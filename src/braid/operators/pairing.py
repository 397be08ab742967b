"""What joins share: the order of arrival over two inputs, rows put together from both sides, dropped rows.

In: frames of changes. Out: the columns `_pos _sub _t _diff _h _k… [_headers]`, then both payloads and the join key.
Rule: payload moves by gather only, once; the number -1 stands for a missing row and gives nulls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from braid.operators.base import DROPPED
from braid.operators.changes import DIFF, HASH, HEADERS, POS, SUB, TIME
from braid.operators.ranges import Ints

MISSING = -1


def payload_of(frame: pl.DataFrame) -> list[str]:
    """The plan columns of a frame: internal ones begin with `_` and hold no dot."""
    return [c for c in frame.columns if not c.startswith("_") or "." in c]


def in_arrival_order(left: pl.DataFrame, right: pl.DataFrame) -> tuple[Ints, Ints]:
    """The place of each row of both inputs in their common processing order.

    A position belongs to one input; only rows with a `_sub` (released or derived ones, of a chain) may share it.
    """
    l, r = left[POS], right[POS]
    own_l, own_r = np.arange(len(l), dtype=np.int64), np.arange(len(r), dtype=np.int64)
    if not len(l) or not len(r):
        return own_l, own_r
    if left[SUB].null_count() == len(l) or right[SUB].null_count() == len(r):
        return own_l + r.search_sorted(l, side="left").to_numpy(), own_r + l.search_sorted(r, side="right").to_numpy()
    both = pl.concat([left.select(POS, SUB), right.select(POS, SUB)]).with_row_index("_i")
    order = both.sort(POS, SUB, nulls_last=True, maintain_order=True)["_i"].to_numpy()
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[: len(l)], place[len(l) :]


def gathered(parts: Sequence[pl.DataFrame], columns: Sequence[str], at: Ints) -> pl.DataFrame:
    """Rows of the parts, numbered one part after the other; nulls for `MISSING`."""
    frames = [p.select(columns) for p in parts if p.height] or [parts[0].select(columns)]
    missing = at == MISSING
    if missing.any():
        at = np.where(missing, sum(f.height for f in frames), at)
        frames.append(frames[0].clear(1))
    rows = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal", rechunk=True)
    return rows[at]


def joined(own: pl.DataFrame, left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str], key: str) -> pl.DataFrame:
    """`own` (internal columns of the results) with both payloads and the join key."""
    internal = [POS, SUB, TIME, DIFF, HASH, *keys, *([HEADERS] if HEADERS in own.columns else [])]
    return own.select(internal).with_columns(*left.get_columns(), *right.get_columns(), own[keys[0]].alias(key))


def dropped_rows(rows: pl.DataFrame, reason: str, side: str | None, clock: Ints | None = None) -> pl.DataFrame:
    """Rows in the form of `Result.dropped`."""
    kept = [c for c in rows.columns if c not in (SUB, DIFF, HASH, HEADERS, POS, TIME)]
    clocks = pl.lit(None, pl.Int64) if clock is None else pl.Series(clock, dtype=pl.Int64)
    made = {"reason": pl.lit(reason), "clock": clocks, "side": pl.lit(side, pl.String)}
    return rows.with_columns(**made).select(*DROPPED, *kept)
