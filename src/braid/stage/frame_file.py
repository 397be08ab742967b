"""Frames in files: Arrow, not compressed, so that they are mapped and not read.

In: frames. Out: the same frames, mapped.
Rule: a file is whole before anybody else hears of it, and never changes. Mapped pages can be taken back by the system
at any time, so a frame that was written is better mapped than kept. The file may go while it is mapped. Arrow has no
numbers of 128 bits, which positions are, but decimals of so many: in a file they are such decimals, under a marked
name. Those that have too many digits make the file one that is read, not mapped.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import polars as pl
import pyarrow as pa

_DECIMAL = pl.Decimal(38, 0)
_MARK = "\0"  # ends the name of a column that was a number of 128 bits


def write_file(path: str, frame: pl.DataFrame) -> int:
    """The bytes of the file. (Polars writes it: Arrow would write all of a text that the frame has a part of.)"""
    with contextlib.suppress(pl.exceptions.InvalidOperationError):  # of more than 38 digits
        frame = pl.DataFrame(
            [c.cast(_DECIMAL).alias(c.name + _MARK) if c.dtype == pl.Int128 else c for c in frame.get_columns()]
        )
    frame.write_ipc(path, compression="uncompressed", record_batch_size=max(frame.height, 1))
    return os.path.getsize(path)


def mapped(path: str, size: int | None = None) -> pl.DataFrame:
    """The frame in the first `size` bytes of a file; `pa.ArrowInvalid` where there is none."""
    whole = pa.memory_map(path).read_buffer()
    buffer = whole if size is None else whole[:size]
    try:
        table = pa.ipc.open_file(buffer).read_all()
    except pa.ArrowNotImplementedError:
        return pl.read_ipc(buffer.to_pybytes())
    made: Any = pl.from_arrow(table, rechunk=False)
    assert isinstance(made, pl.DataFrame)
    return pl.DataFrame(
        [c.to_physical().alias(c.name[:-1]) if c.name.endswith(_MARK) else c for c in made.get_columns()]
    )
