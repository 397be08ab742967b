"""Places: byte strings that name a record of an operand, and the order of results that is made of them.

In: positions of records. Out: bytes that sort as the records were processed, of fixed width; `_sub` of results.
Rule: a result is ordered by its time, then by when the clock lets it out, then by the places of its records, latest
first, then by operand. A missing record (zeros) comes before all others, rows of a captured table before all of
streams. Two operands that read one record know it by one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from braid.operators.changes import LEAF_BITS, LOW, POS, POS_TYPE, SUB
from braid.plan.groups import Closed
from braid.plan.logical import Filter, Node, Project
from braid.plan.sliding import Merged, SlidingJoin

WIDTH = 16  # of a source record's place
TIME_WIDTH = 8  # of what `ordered_sub` puts before it
TOP = np.uint64(1 << 63)
Bytes = npt.NDArray[np.uint8]


def width_of_result(operands: int, width: int) -> int:
    """The width of the places of a join's results, for a join above it."""
    return WIDTH + 9 + 2 * operands * width


def place_width(node: Node) -> int:
    """The width of the places of a node's rows."""
    match node:
        case SlidingJoin(operands=operands):
            return width_of_result(len(operands), max(place_width(x.input) for x in operands))
        case Closed(input=x):
            return place_width(x) + TIME_WIDTH
    return max((place_width(x) for x in node.inputs), default=WIDTH)


def same_leaf(positions: pl.Expr) -> pl.Expr:
    """The positions without the number of the leaf."""
    step = pl.lit(1 << LEAF_BITS, POS_TYPE)
    return positions // step * step


def places_of(rows: pl.DataFrame, table: bool) -> pl.Series:
    """The place of each row: its position, and (of a row that a clock released) its order at that position."""
    pos = rows.select(same_leaf(pl.col(POS)).alias("p"))["p"].to_frame()
    low = pl.lit(LOW, POS_TYPE)
    parts = pos.select((pl.col("p") // low).cast(pl.Int64).alias("hi"), (pl.col("p") % low).cast(pl.UInt64).alias("lo"))
    hi = parts["hi"].to_numpy().view(np.uint64) ^ TOP
    lo = (parts["lo"].to_numpy() >> np.uint64(1)) | (hi << np.uint64(63))
    made = np.empty((rows.height, 2), dtype=">u8")  # one bit less, for a first one that tells streams from tables
    made[:, 0], made[:, 1] = (hi >> np.uint64(1)) | (np.uint64(0) if table else TOP), lo
    fixed = _series(made.view(np.uint8).reshape(rows.height, WIDTH))
    if rows[SUB].null_count() == rows.height:
        return fixed.alias("p")
    return pl.select(pl.concat_str([_text(fixed), _text(rows[SUB].fill_null(b""))]).str.decode("hex").alias("p"))["p"]


def completing(results: pl.Series, join: SlidingJoin) -> pl.Series | None:
    """The positions of the records that completed results, from their `_sub` (`order_of_results`, `order_of_merged`):
    the latest; of one that is itself a result the latest of that. None: only some operands are results."""
    at = _latest_in(join)
    return None if at is None else positions_of(results.bin.slice(at, WIDTH))


def _latest_in(join: SlidingJoin) -> int | None:
    """Where in the `_sub` of a result the position of its latest record begins."""
    head, inner = TIME_WIDTH + (2 if isinstance(join.tree, Merged) else 1), set[int | None]()
    for x in join.operands:
        node = x.input
        while isinstance(node, Filter | Project):
            node = node.input
        if isinstance(node, SlidingJoin):
            within = _latest_in(node)
            inner.add(None if within is None else WIDTH + within)
        else:
            inner.add(0 if place_width(node) == WIDTH else None)
    (only, *others) = inner
    return None if others or only is None else head + only


def positions_of(places: pl.Series) -> pl.Series:
    """The positions in places, without the number of the leaf (`same_leaf`)."""
    two = _fixed(places.bin.slice(0, WIDTH), WIDTH).view(">u8").reshape(len(places), 2).astype(np.uint64)
    hi = (((two[:, 0] & ~TOP) << np.uint64(1)) | (two[:, 1] >> np.uint64(63))) ^ TOP
    parts = pl.DataFrame({"hi": hi.view(np.int64), "lo": two[:, 1] << np.uint64(1)})
    low = pl.lit(LOW, POS_TYPE)
    return parts.select((pl.col("hi").cast(POS_TYPE) * low + pl.col("lo").cast(POS_TYPE)).alias(POS))[POS]


def _text(column: pl.Series) -> pl.Expr:
    return pl.lit(column.bin.encode("hex"))


def order_of_results(rows: pl.DataFrame, places: Sequence[str], time: str, due: str, width: int) -> pl.Series:
    """`_sub` of results."""
    head = np.zeros(rows.height, dtype=[("time", ">u8"), ("due", "u1")])
    head["time"] = rows[time].to_numpy().view(np.uint64) ^ TOP
    head["due"] = rows[due].to_numpy()
    each = np.stack([_fixed(rows[p], width) for p in places], axis=1)  # rows x operands
    latest = np.sort(each, axis=1)[:, ::-1]
    parts = [head.view(np.uint8).reshape(rows.height, 9), _bytes(latest), _bytes(each)]
    return _series(np.concatenate(parts, axis=1)).alias(SUB)


def order_of_merged(rows: pl.DataFrame, places: Sequence[str], time: str, due: str, width: int) -> pl.Series:
    """`_sub` of rows of several streams that are put together: those of the first before those of the next."""
    head = np.zeros(rows.height, dtype=[("time", ">u8"), ("due", "u1"), ("operand", "u1")])
    head["time"] = rows[time].to_numpy().view(np.uint64) ^ TOP
    head["due"] = rows[due].to_numpy()
    for i, p in enumerate(places):
        head["operand"][rows[p].is_not_null().to_numpy()] = i
    own = _fixed(rows.select(pl.coalesce(places).alias("p"))["p"], width)
    parts = [head.view(np.uint8).reshape(rows.height, 10), _bytes(own[:, None])]
    return _series(np.concatenate(parts, axis=1)).alias(SUB)


def _fixed(column: pl.Series, width: int) -> npt.NDArray[np.bytes_]:
    """Byte strings as an array of one width, filled up with zeros; zeros for null."""
    if len(column) and column.null_count() == 0 and (column.bin.size() == width).all():
        flat = column.to_arrow().cast(pa.binary()).cast(pa.binary(width))
        return np.frombuffer(flat.buffers()[1], dtype=f"S{width}", count=len(flat), offset=flat.offset * width)
    return np.array(column.fill_null(b"").to_list(), dtype=f"S{width}")


def _bytes(each: npt.NDArray[np.bytes_]) -> Bytes:
    each = np.ascontiguousarray(each)
    return each.view(np.uint8).reshape(each.shape[0], each.shape[1] * each.dtype.itemsize)


def _series(rows: Bytes) -> pl.Series:
    """Rows of bytes as one column."""
    rows = np.ascontiguousarray(rows)
    width = rows.shape[1]
    column = pa.Array.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows.tobytes())])
    return cast(pl.Series, pl.from_arrow(column.cast(pa.large_binary())))
