"""What joins share: the order of arrival over two inputs, rows put together from both sides, dropped rows.

In: frames of changes. Out: the columns `_pos _sub _t _diff _h _k… [_headers]`, then both payloads and the join key.
Rule: payload moves by gather only, once; the number -1 stands for a missing row and gives nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from braid.operators.base import DROPPED
from braid.operators.changes import BY, DIFF, HASH, HEADERS, POS, SUB, TIME, causes, prior
from braid.operators.ranges import Flags, Ints, begins, columns_of, order_of, rows_at, values_at

MISSING = -1
PIECE_BYTES = 32 << 20  # of results that leave an operator at once
PIECE_ROWS = 250_000
MOST = 2_000_000  # pairs made at once, where more than one row looks


def payload_of(frame: pl.DataFrame) -> list[str]:
    """The plan columns of a frame: internal ones begin with `_` and hold no dot."""
    return [c for c in frame.columns if not c.startswith("_") or "." in c]


def keys_of(frame: pl.DataFrame) -> list[str]:
    """The exchange key columns."""
    return [c for c in frame.columns if c.startswith("_k") and c[2:].isdigit()]


def in_arrival_order(left: pl.DataFrame, right: pl.DataFrame) -> tuple[Ints, Ints]:
    """The place of each row of both inputs in their common processing order: at one position the prior rows first,
    those of the left input before those of the right one.

    What is not prior belongs to one input, the one that the record of that position came by.
    """
    l, r = left[POS], right[POS]
    own_l, own_r = np.arange(len(l), dtype=np.int64), np.arange(len(r), dtype=np.int64)
    if not len(l) or not len(r):
        return own_l, own_r
    prior_l, prior_r = prior(left), prior(right)
    if prior_l is None or prior_r is None:
        before = prior_r is None  # the left rows of a position stand before the right ones
        few_left = len(l) < len(r)
        if few_left:
            place = own_l + r.search_sorted(l, side="left" if before else "right").to_numpy()
        else:
            place = own_r + l.search_sorted(r, side="right" if before else "left").to_numpy()
        others = np.ones(len(l) + len(r), dtype=np.bool_)
        others[place] = False
        rest = np.flatnonzero(others)
        return (place, rest) if few_left else (rest, place)
    late = np.concatenate([~prior_l, ~prior_r])
    both = pl.concat([left.select(POS), right.select(POS)]).with_columns(pl.Series("_late", late)).with_row_index("_i")
    order = both.sort(POS, "_late", maintain_order=True)["_i"].to_numpy()
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[: len(l)], place[len(l) :]


def gathered(parts: Sequence[pl.DataFrame], columns: Sequence[str], at: Ints) -> pl.DataFrame:
    """Rows of the parts, numbered one part after the other; nulls for `MISSING`."""
    if not columns:
        return pl.DataFrame()
    frames = [columns_of(p, columns) for p in parts if p.height] or [columns_of(parts[0], columns)]
    missing = at == MISSING
    if missing.any():
        at = np.where(missing, sum(f.height for f in frames), at)
        frames.append(nulls_like(frames[0]))
    return rows_at(stacked(frames), at)


def piece_rows(*sides: Sequence[pl.DataFrame]) -> int:
    """How many results make a piece: rows put together from rows of both sides."""
    width = 0.0
    for parts in sides:
        rows = sum(p.height for p in parts)
        width += sum(p.estimated_size() for p in parts) / rows if rows else 0.0
    return max(1, min(PIECE_ROWS, int(PIECE_BYTES / max(width, 1.0))))


def pieces(count: int, size: int) -> Iterator[slice]:
    """`count` rows in pieces; one at least."""
    yield from (slice(start, min(start + size, count)) for start in range(0, max(count, 1), size))


def nulls_like(frame: pl.DataFrame) -> pl.DataFrame:
    """One row of nulls."""
    return pl.DataFrame([pl.Series(c.name, [None], dtype=c.dtype) for c in frame.get_columns()])


def stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames of the same columns one after the other, in one piece."""
    out = frames[0]
    for frame in frames[1:]:
        out = out.vstack(frame)
    return out.rechunk() if len(frames) > 1 else out


def joined(own: pl.DataFrame, left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str], key: str) -> pl.DataFrame:
    """`own` (internal columns of the results) with both payloads and the join key."""
    return joined_on(own, left, right, keys, [key])


def joined_on(
    own: pl.DataFrame, left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str], names: Sequence[str]
) -> pl.DataFrame:
    """The same with a join key of any number of columns; with none, `keys` spread the rows and say nothing."""
    internal = [POS, SUB, TIME, DIFF, HASH, *keys, *([HEADERS] if HEADERS in own.columns else [])]
    columns = [own.get_column(c) for c in internal]
    named = [own.get_column(k).alias(name) for k, name in zip(keys, names, strict=False)]
    return pl.DataFrame([*columns, *left.get_columns(), *right.get_columns(), *named])


def nothing_joined(inputs: Sequence[pl.DataFrame], keys: Sequence[str], *names: str) -> pl.DataFrame:
    """The result of inputs without rows."""
    left, right = inputs
    return joined_on(left, columns_of(left, payload_of(left)), columns_of(right, payload_of(right)), keys, names)


def release_order(step: Ints, t: Ints, by_left: Flags, text: pl.Series, n: Ints) -> Ints:
    """Order of released rows: by (step, time, right before left, key, arrival)."""
    order = order_of(2 * t + by_left)
    order = order[order_of(step[order])]
    tied = ~(begins(step[order]) | begins(t[order]) | begins(by_left[order]))  # with the row before
    some = np.flatnonzero(tied | np.append(tied[1:], False))
    if len(some):  # only where all else is equal the key is looked at
        at = order[some]
        group = np.cumsum(~tied[some])
        keys = pl.DataFrame({"group": group, "key": values_at(text, at), "n": n[at]})
        order[some] = at[keys.select(pl.arg_sort_by("group", "key", "n").alias("i"))["i"].to_numpy()]
    return order


def dropped_rows(rows: pl.DataFrame, reason: str, side: str | None, clock: Ints | None = None) -> pl.DataFrame:
    """Rows in the form of `Result.dropped`."""
    kept = [c for c in rows.columns if c not in (SUB, DIFF, HASH, HEADERS, POS, TIME)]
    clocks = pl.lit(None, pl.Int64) if clock is None else pl.Series(clock, dtype=pl.Int64)
    made = {"reason": pl.lit(reason), "clock": clocks, "side": pl.lit(side, pl.String), BY: causes(rows)}
    return rows.with_columns(**made).select(*DROPPED, *kept)


def all_dropped(drops: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    """Rows dropped in several places as one frame."""
    return pl.concat(drops, how="diagonal") if drops else None


def without_nulls(rows: pl.DataFrame, side: str | None, drops: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows that have a key; the others are told."""
    if not rows[HASH].null_count():
        return rows
    lost = rows[HASH].is_null()
    drops.append(dropped_rows(rows.filter(lost), "null key", side))
    return rows.filter(~lost)


def with_headers(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with headers, null where it lacks them."""
    return frame if HEADERS in frame.columns else frame.with_columns(pl.lit(None, pl.String).alias(HEADERS))
