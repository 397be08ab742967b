"""What joins share: the order of arrival over two inputs, rows put together from both sides, dropped rows.

In: frames of changes. Out: the columns `_pos _sub _t _diff _h _k… [_headers]`, then both payloads and the join key.
Rule: payload moves by gather only, once; the number -1 stands for a missing row and gives nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from braid.expr import compile, trace
from braid.expr.nodes import Expr
from braid.expr.show import NO_NAMES
from braid.operators.base import DROPPED, Result
from braid.operators.changes import (
    BY,
    DIFF,
    HASH,
    HEADERS,
    POS,
    SUB,
    TIME,
    causes,
    numbers_within,
    prior,
    result_sub,
)
from braid.operators.clocks import Late
from braid.operators.ranges import Flags, Ints, begins, columns_of, order_of, rising, rows_at, values_at
from braid.plan.drop_reasons import Reason

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
    if len(frames) == 1 and len(at) == frames[0].height and np.array_equal(at, np.arange(len(at))):
        return frames[0]  # all rows in their order
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


def pairs_at_once(*sides: Sequence[pl.DataFrame]) -> int | None:
    """How many wide pairs a join makes at once: a few pieces; None of narrow ones, of which more fit."""
    rows = piece_rows(*sides)
    return None if rows == PIECE_ROWS else 4 * rows


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


def joined_on(
    own: pl.DataFrame, left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str], names: Sequence[str]
) -> pl.DataFrame:
    """`own` (internal columns of the results) with both payloads and the join key, of any number of columns; with none,
    `keys` spread the rows and say nothing."""
    internal = [POS, SUB, TIME, DIFF, HASH, *keys, *([HEADERS] if HEADERS in own.columns else [])]
    columns = [own.get_column(c) for c in internal]
    named = [own.get_column(k).alias(name) for k, name in zip(keys, names, strict=False)]
    return pl.DataFrame([*columns, *left.get_columns(), *right.get_columns(), *named])


def nothing_joined(inputs: Sequence[pl.DataFrame], keys: Sequence[str], *names: str) -> pl.DataFrame:
    """The result of inputs without rows."""
    left, right = inputs
    return joined_on(left, columns_of(left, payload_of(left)), columns_of(right, payload_of(right)), keys, names)


@dataclass(frozen=True, slots=True)
class Results:
    """Rows that go out: numbers of rows among the parts of each side, or `MISSING`; `cause`: the new row that each
    comes from (numbered over both frames); `order`: by which results of one cause are sorted. Without one they are one
    a cause, and stand at its very place."""

    left: Ints
    right: Ints
    cause: Ints
    time: Ints
    diff: Ints
    order: tuple[Ints, ...] = ()

    @staticmethod
    def stacked(parts: Sequence[Results]) -> Results:
        """All have the same number of order keys."""
        if len(parts) == 1:
            return parts[0]
        rows = zip(*((p.left, p.right, p.cause, p.time, p.diff, *p.order) for p in parts), strict=True)
        left, right, cause, time, diff, *order = (np.concatenate(x) for x in rows)
        return Results(left, right, cause, time, diff, tuple(order))


@dataclass(frozen=True, slots=True)
class Sides:
    """What results are made of: the new rows of both inputs and their `places` in the common order; the `parts` of each
    side that results are made of, the new rows first; the columns of the exchange key, and what the join calls them."""

    inputs: Sequence[pl.DataFrame]
    places: Sequence[Ints]
    parts: tuple[Sequence[pl.DataFrame], Sequence[pl.DataFrame]]
    keys: Sequence[str]
    names: Sequence[str]

    def result(
        self,
        parts: Sequence[Results],
        drops: Sequence[pl.DataFrame],
        counts: dict[str, int] | None = None,
        own_headers: bool = False,
    ) -> Result:
        """The results as rows, in processing order; in pieces where a cause may have many. `own_headers`: those of the
        left row, not of the cause."""
        results, dropped = Results.stacked(parts), all_dropped(drops)
        place = np.concatenate(self.places)[results.cause]
        if not results.order:
            at = slice(None) if rising(place) else order_of(place)
            return Result(self._rows(results, at, None, own_headers), dropped, counts or {})
        order = np.lexsort((*reversed(results.order), place))
        number = numbers_within(place[order])
        size = piece_rows(*self.parts)
        made = (self._rows(results, order[x], number[x], own_headers) for x in pieces(len(order), size))
        return Result.of(made, dropped, counts)

    def _rows(self, results: Results, at: Ints | slice, number: Ints | None, own_headers: bool) -> pl.DataFrame:
        """`number`: of each result among those of its cause."""
        left, right = self.parts
        cause, l_at, r_at = results.cause[at], results.left[at], results.right[at]
        new = [pl.Series(TIME, results.time[at]), pl.Series(DIFF, results.diff[at].astype(np.int8))]
        made = gathered(self.inputs, [POS, SUB, HASH, *self.keys], cause).hstack(new)
        if number is not None and made[SUB].null_count() < made.height:
            made = made.with_columns(result_sub(made[SUB], pl.Series(number), cause >= left[0].height).alias(SUB))
        headed = left if own_headers else self.inputs
        if any(HEADERS in p.columns for p in headed):
            theirs = [with_headers(p) for p in headed]
            made = made.with_columns(gathered(theirs, [HEADERS], l_at if own_headers else cause))
        payloads = [gathered(p, payload_of(p[0]), x) for p, x in ((left, l_at), (right, r_at))]
        return joined_on(made, payloads[0], payloads[1], self.keys, self.names)


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


def dropped_rows(
    rows: pl.DataFrame, reason: Reason, side: str | None, message: pl.Series | None = None, late: Late | None = None
) -> pl.DataFrame:
    """Rows in the form of `Result.dropped`."""
    kept = [c for c in rows.columns if c not in (SUB, DIFF, HASH, HEADERS, POS, TIME)]
    told = {"clock": None, "_moved": None, "_short": None} if late is None else late.columns
    made: dict[str, pl.Expr | pl.Series] = {"reason": pl.lit(reason), "side": pl.lit(side, pl.String), BY: causes(rows)}
    made |= {c: pl.lit(None, DROPPED[c]) if x is None else pl.Series(x, dtype=DROPPED[c]) for c, x in told.items()}
    made["message"] = pl.lit(None, pl.String) if message is None else message
    return rows.with_columns(**made).select(*DROPPED, *kept)


def late_rows(rows: pl.DataFrame, side: str | None, late: Late) -> pl.DataFrame:
    """Rows that came too late, in that form."""
    return dropped_rows(rows, Reason.LATE, side, late=late)


BOTH = "both"  # the side of a row that is a pair


def failed_rows(
    rows: pl.DataFrame,
    failed: pl.Series,
    exprs: Sequence[Expr],
    side: str | None = None,
    names: Mapping[str, str] = NO_NAMES,
    otherwise: pl.Series | None = None,
) -> pl.DataFrame | None:
    """The rows for which one of these expressions failed, in that form, with the reason; None if there are none. One
    that goes was told when it came. `otherwise`: the reasons of rows for which something else did."""
    if DIFF in rows.columns and failed.any():
        failed = failed & (rows[DIFF] > 0).fill_null(True)
    if otherwise is not None:
        failed = failed | otherwise.is_not_null()
    if not failed.any():
        return None
    lost = rows.filter(failed)
    message = trace.messages(lost, exprs, names)
    if otherwise is not None:
        message = message.zip_with(message.is_not_null(), otherwise.filter(failed))
    return dropped_rows(lost, Reason.EXPRESSION, side, message=message)


def failing(pairs: pl.DataFrame, first: Expr | None, rest: Expr) -> pl.DataFrame:
    """The pairs for which `rest` fails and `first` is true: see `residuals.parted`."""
    lost = pairs.filter(compile.evaluate(pairs, [("_rest", rest)])[1])
    if first is None or not lost.height:
        return lost
    return lost.filter(compile.evaluate(lost, [("_first", first)])[0]["_first"].fill_null(False))


def meeting(rows: pl.DataFrame, side: str, condition: Expr | None, drops: list[pl.DataFrame]) -> Flags:
    """Which rows may meet others: they have a key, and the condition of their side is true for them."""
    meets = rows[HASH].is_not_null().to_numpy()
    if condition is None or not rows.height:
        return meets
    made, failed = compile.evaluate(rows, [("_meets", condition)])
    told = failed_rows(rows, failed, [condition], side)
    if told is not None:
        drops.append(told)
    true: Flags = made["_meets"].fill_null(False).to_numpy()
    return meets & true


def all_dropped(drops: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    """Rows dropped in several places as one frame."""
    return pl.concat(drops, how="diagonal") if drops else None


def without_nulls(
    rows: pl.DataFrame, side: str | None, drops: list[pl.DataFrame], retracting: bool = False
) -> pl.DataFrame:
    """The rows that have a key; the others are told. `retracting`: one that goes was told when it came."""
    if not rows[HASH].null_count():
        return rows
    lost = rows[HASH].is_null()
    told = lost & (rows[DIFF] == 1) if retracting else lost
    drops.append(dropped_rows(rows.filter(told), Reason.NULL_KEY, side))
    return rows.filter(~lost)


def with_headers(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with headers, null where it lacks them."""
    return frame if HEADERS in frame.columns else frame.with_columns(pl.lit(None, pl.String).alias(HEADERS))
