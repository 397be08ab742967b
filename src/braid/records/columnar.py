"""What the formats with schemas do alike: whole columns of Arrow, and batches whose bad records are found by halving.

In: a batch of bodies, what reads it at once, what tells of the records that are left; columns of Polars or Arrow. Out:
`codec.Decoded` part by part; columns of the other of the two.
Rule: a bad record costs no others. Readers in Rust panic with what is no `Exception`: here, and nowhere else, all of
that is caught.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from braid.records.codec import Decoded
from braid.types import Column, Type, physical_type, polars_type

ENDS = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)  # what no batch of records is to blame for


class NotAtOnce(Exception):
    """Columns that are not read at once, whichever records come."""


def halved(
    batch: Any,
    at_once: Callable[[Any], Decoded],
    alone: Callable[[Any, BaseException | None], Decoded],
    few: int = 0,
) -> list[Decoded]:
    """`at_once` of a batch; of one that it refuses, of its halves. `alone` has what is left: batches of fewer than
    `few` records, of one that is refused, and all of a batch that is `NotAtOnce`."""
    if len(batch) < few:
        return [alone(batch, None)]
    try:
        return [at_once(batch)]
    except ENDS:
        raise
    except BaseException as e:
        if len(batch) == 1 or isinstance(e, NotAtOnce):
            return [alone(batch, e)]
    half = len(batch) // 2
    return [x for part in (batch[:half], batch[half:]) for x in halved(part, at_once, alone, few)]


def zigzag(b: bytes, p: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it. `ValueError`: it has more than 64 bits."""
    n = shift = 0
    while True:
        byte = b[p]
        p += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (n >> 1) ^ -(n & 1), p
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


# ----------------------------------------------------------------------- Arrow


def finished(x: pa.Array, c: Column) -> pl.Series:
    """A column in the physical form of its type, as the type has it."""
    made = pl.Series(c.name, x)
    return made if made.dtype == polars_type(c.type) else made.cast(physical_type(c.type)).cast(polars_type(c.type))


def plain(s: pl.Series, t: Type) -> pa.Array:
    """A column in its physical form, in one piece, without the views that other libraries do not know."""
    made = s.cast(physical_type(t)).to_arrow(compat_level=pl.CompatLevel.oldest())
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


@lru_cache(maxsize=256)
def arrow_type(t: Type) -> pa.DataType:
    """The physical form of a type."""
    return plain(pl.Series([], dtype=physical_type(t)), t).type


def singles(x: pa.Array) -> pa.Array:
    """Numbers as singles. `ValueError`: one is too large."""
    made = x.cast(pa.float32(), safe=False)
    if pc.any(pc.is_inf(made)).as_py() and not pc.is_inf(made).equals(pc.is_inf(x.cast(pa.float64(), safe=False))):
        raise ValueError("a number is out of range for REAL")
    return made


def listed(x: pa.Array, values: pa.Array) -> pa.Array:
    """The lists of `x`, with other values in them."""
    return pa.ListArray.from_arrays(x.offsets, values, mask=x.is_null() if x.null_count else None)
