"""JSON lines by the compiled core (`native/`): whole numbers, times, DOUBLE, BOOLEAN and texts.

In: whole lines, the declared columns. Out: the columns, which lines were read, and where each ends; None where the core
is not there, or does not take a column.
Rule: what is read is what the reader of single lines gives (`records.codec`); what is not certain is left to it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from braid.native import core
from braid.records.values import WHOLE
from braid.types import TIMESTAMPS, Column, Scalar, polars_type

_MOST = 64  # columns
_WHOLE, _MOMENT, _DOUBLE, _BOOLEAN, _TEXT = range(5)
_KINDS = {
    Scalar.SMALLINT: _WHOLE,
    Scalar.INT: _WHOLE,
    Scalar.BIGINT: _WHOLE,
    **dict.fromkeys(TIMESTAMPS, _MOMENT),
    Scalar.DOUBLE: _DOUBLE,
    Scalar.BOOLEAN: _BOOLEAN,
    Scalar.VARCHAR: _TEXT,
}
LEFT, READ, BLANK = 0, 1, 2  # of a line

Bytes = npt.NDArray[np.uint8]


class _Column(ctypes.Structure):
    """As `native/src/lib.rs` has it."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("name_len", ctypes.c_size_t),
        ("kind", ctypes.c_uint32),
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
        ("unit", ctypes.c_int64),
        ("valid", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("text", ctypes.c_void_p),
        ("text_len", ctypes.c_size_t),
    )


@dataclass(frozen=True, slots=True)
class Found:
    """`how`: of each line; the columns have a row for each line, null where it was not read."""

    columns: list[pl.Series]
    how: Bytes
    ends: npt.NDArray[np.uint64]


def json_lines(data: bytes, columns: Sequence[Column]) -> Found | None:
    library = core()
    if library is None or not data or not 0 < len(columns) <= _MOST or any(c.type not in _KINDS for c in columns):
        return None
    rows = data.count(b"\n") + (not data.endswith(b"\n"))
    buffers = [_Buffers(c, rows, len(data)) for c in columns]
    how, ends = np.zeros(rows, np.uint8), np.zeros(rows, np.uint64)
    asked = (_Column * len(columns))(*(b.asked for b in buffers))
    size = ctypes.c_size_t
    found = library.braid_json_lines(
        ctypes.c_char_p(data),
        size(len(data)),
        asked,
        size(len(columns)),
        size(rows),
        ctypes.c_void_p(how.ctypes.data),
        ctypes.c_void_p(ends.ctypes.data),
    )
    return Found([b.series(rows) for b in buffers], how, ends) if found == rows else None


class _Buffers:
    """The memory of a column, as Arrow lays it out. Pages of a text that are not written cost nothing."""

    def __init__(self, column: Column, rows: int, length: int) -> None:
        assert isinstance(column.type, Scalar)
        self.column, self.kind, whole = column, _KINDS[column.type], WHOLE.get(column.type)
        self.valid = np.zeros((rows + 7) // 8, np.uint8)
        is_text = self.kind == _TEXT
        self.values = np.zeros(0 if is_text else rows, np.int64)
        self.offsets = np.zeros(rows + 1 if is_text else 0, np.int64)
        self.text = np.empty(length if is_text else 0, np.uint8)
        name = column.name.encode()
        low, high, unit = (whole.low, min(whole.high, 2**63 - 1), whole.unit) if whole is not None else (0, 0, 1)
        places: list[Any] = [x.ctypes.data for x in (self.valid, self.values, self.offsets, self.text)]
        self.asked = _Column(name, len(name), self.kind, low, high, unit, *places, self.text.size)

    def series(self, rows: int) -> pl.Series:
        valid = pa.py_buffer(self.valid)
        if self.kind == _TEXT:
            used = pa.py_buffer(self.text[: int(self.offsets[-1])])
            array = pa.Array.from_buffers(pa.large_utf8(), rows, [valid, pa.py_buffer(self.offsets), used])
        elif self.kind == _DOUBLE:
            array = pa.Array.from_buffers(pa.float64(), rows, [valid, pa.py_buffer(self.values)])
        else:
            array = pa.Array.from_buffers(pa.int64(), rows, [valid, pa.py_buffer(self.values)])
        made = pl.Series(self.column.name, array)
        return made.cast(polars_type(self.column.type))
