"""JSON lines by the compiled core (`native/`): whole numbers, times, DOUBLE, BOOLEAN and texts; lines of a topic.

In: whole lines, the declared columns. Out: the columns, which lines were read, and where each ends; None where the core
is not there, or does not take a column.
Rule: what is read is what the reader of single lines gives (`records.codec`); what is not certain is left to it. All
columns are looked at, whether their values are wanted or not. A column whose name the first lines have in other letters
(dialects write AUCTION where a file has auction) is looked for by these.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from braid.expr.json_text import loads
from braid.native import core
from braid.records.values import WHOLE
from braid.types import MAX_TIME, TIMESTAMPS, Column, Scalar, polars_type

_MOST = 64  # columns
_LINES, _SAMPLE = 4, 1 << 14  # lines, and about so many bytes, in which names are looked for
_WHOLE, _MOMENT, _DOUBLE, _BOOLEAN, _TEXT, _JSON = range(6)
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
        ("loose", ctypes.c_uint32),
        ("kept", ctypes.c_uint32),
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
    """`how`: of each line; the columns have a row for each line, null where it was not read, or where the column is not
    wanted; `full`: every line was read, and holds no null."""

    columns: list[pl.Series]
    how: Bytes
    ends: npt.NDArray[np.uint64]
    full: bool


def takes(columns: Sequence[Column]) -> bool:
    """Whether the core reads such columns: one name is of one of them."""
    names = {c.name.lower() for c in columns}
    return 0 < len(columns) <= _MOST and len(names) == len(columns) and all(c.type in _KINDS for c in columns)


def json_lines(
    data: bytes, columns: Sequence[Column], wanted: Collection[int] | None = None, *, iso: bool = True
) -> Found | None:
    """`wanted`: the numbers of the columns whose values are; None: of all. `iso`: times may be ISO text."""
    library = core()
    if library is None or not data or not takes(columns):
        return None
    rows, names = _lines_of(library, data), _spelled(data, [c.name for c in columns])
    buffers = [
        _Buffers(c, name, rows, len(data), wanted is None or i in wanted, _kind(c, iso))
        for i, (c, name) in enumerate(zip(columns, names, strict=True))
    ]
    return _found(library, data, rows, buffers)


def topic_lines(data: bytes) -> Found | None:
    """`key` and `value` as JSON texts, which are null only where there is none, and `timestamp`; a line with headers or
    a window is left, unless these are whole numbers, which the columns have."""
    library = core()
    if library is None or not data:
        return None
    rows = _lines_of(library, data)
    members = {"key": _JSON, "value": _JSON, "timestamp": _WHOLE, "headers": _WHOLE, "window": _WHOLE}
    buffers = [
        _Buffers(Column(name, Scalar.BIGINT if kind == _WHOLE else Scalar.VARCHAR), name, rows, len(data), True, kind)
        for name, kind in members.items()
    ]
    buffers[2].asked.low, buffers[2].asked.high = -MAX_TIME, MAX_TIME
    return _found(library, data, rows, buffers)


def _lines_of(library: ctypes.CDLL, data: bytes) -> int:
    return int(library.braid_lines(ctypes.c_char_p(data), ctypes.c_size_t(len(data)))) + (not data.endswith(b"\n"))


def _found(library: ctypes.CDLL, data: bytes, rows: int, buffers: Sequence[_Buffers]) -> Found | None:
    size = ctypes.c_size_t
    how, ends = np.zeros(rows, np.uint8), np.zeros(rows, np.uint64)
    asked = (_Column * len(buffers))(*(b.asked for b in buffers))
    found = library.braid_json_lines(
        ctypes.c_char_p(data),
        size(len(data)),
        asked,
        size(len(buffers)),
        size(rows),
        ctypes.c_void_p(how.ctypes.data),
        ctypes.c_void_p(ends.ctypes.data),
    )
    if found != rows:
        return None
    full = bool((how == READ).all()) and all(b.is_full(rows) for b in buffers)
    return Found([b.series(rows) for b in buffers], how, ends, full)


def _kind(column: Column, iso: bool) -> int:
    assert isinstance(column.type, Scalar)
    return _WHOLE if column.type in TIMESTAMPS and not iso else _KINDS[column.type]


def _spelled(data: bytes, names: Sequence[str]) -> list[str]:
    """The names as the first lines have them: exactly, else without case, as `values.find` looks for them."""
    exact, folded = set[str](), dict[str, str]()
    if all(n.isascii() for n in names):
        for line in data[: data.find(b"\n", _SAMPLE) + 1 or len(data)].split(b"\n")[:_LINES]:
            try:
                members = loads(line.decode())
            except ValueError:
                continue
            for name in members if isinstance(members, dict) else ():
                exact.add(name)
                folded.setdefault(name.lower(), name)
    return [n if n in exact else folded.get(n.lower(), n) for n in names]


class _Buffers:
    """The memory of a column, as Arrow lays it out; of one that is not `kept` there are no values. Pages of a text that
    are not written cost nothing."""

    def __init__(self, column: Column, spelled: str, rows: int, length: int, kept: bool, kind: int) -> None:
        assert isinstance(column.type, Scalar)
        self.column, self.kept, self.kind, whole = column, kept, kind, WHOLE.get(column.type)
        self.valid = np.zeros((rows + 7) // 8, np.uint8)
        is_text = kind in (_TEXT, _JSON)
        self.values = np.zeros(rows if kept and not is_text else 0, np.int64)
        self.offsets = np.zeros(rows + 1 if kept and is_text else 0, np.int64)
        self.text = np.empty(length if kept and is_text else 0, np.uint8)
        name, loose = spelled.encode(), spelled != column.name
        low, high, unit = (whole.low, min(whole.high, 2**63 - 1), whole.unit) if whole is not None else (0, 0, 1)
        places: list[Any] = [x.ctypes.data for x in (self.valid, self.values, self.offsets, self.text)]
        self.asked = _Column(name, len(name), self.kind, loose, kept, low, high, unit, *places, self.text.size)

    def is_full(self, rows: int) -> bool:
        """Whether no row is null."""
        whole = rows // 8
        return bool((self.valid[:whole] == 255).all()) and (not rows % 8 or self.valid[-1] == (1 << rows % 8) - 1)

    def series(self, rows: int) -> pl.Series:
        dtype = polars_type(self.column.type)
        if not self.kept:
            return pl.repeat(None, rows, dtype=dtype, eager=True).alias(self.column.name)
        valid = pa.py_buffer(self.valid)
        if self.kind in (_TEXT, _JSON):
            used = pa.py_buffer(self.text[: int(self.offsets[-1])])
            array = pa.Array.from_buffers(pa.large_utf8(), rows, [valid, pa.py_buffer(self.offsets), used])
        elif self.kind == _DOUBLE:
            array = pa.Array.from_buffers(pa.float64(), rows, [valid, pa.py_buffer(self.values)])
        else:
            array = pa.Array.from_buffers(pa.int64(), rows, [valid, pa.py_buffer(self.values)])
        return pl.Series(self.column.name, array).cast(dtype)
