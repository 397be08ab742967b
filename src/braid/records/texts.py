"""Rows of text: literals, whole numbers and texts, one behind the other.

In: pieces. Out: the text of each row; or its bytes, some rows at a time.
Rule: a null is `null`. By the compiled core (`native/`), which writes each byte once; without it by Polars, the same.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from braid.native import core

_LITERAL, _WHOLE, _TEXT, _STRING = range(4)
_NUMBERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
_DIGITS, _NULL, _LONGEST = 20, 4, 6  # bytes: of a number, of a null, of a character of a JSON string
FEW = 100  # rows: fewer are not worth a call

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Block = tuple[bytes | memoryview, Ints]  # rows, and the bytes of each


@dataclass(frozen=True, slots=True)
class Column:
    """Whole numbers, or texts. `quoted`: texts as JSON strings."""

    values: pl.Series
    quoted: bool = False


Piece = str | Column


class _Piece(ctypes.Structure):
    """As `native/src/lib.rs` has it."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("values", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("first_bit", ctypes.c_size_t),
    )


class Written:
    """Rows that the core writes. `longest`: no row has more bytes."""

    def __init__(self, pieces: Sequence[Piece], rows: int, library: ctypes.CDLL) -> None:
        self._library, self._rows, self._held = library, rows, list[object]()
        self._fixed, self._texts = 0, list[tuple[Ints, int]]()
        self._out = np.empty(0, np.uint8)
        self._asked = (_Piece * len(pieces))(*map(self._of, pieces))

    def _of(self, piece: Piece) -> _Piece:
        if isinstance(piece, str):
            data = piece.encode()
            self._held.append(data)
            self._fixed += len(data)
            return _Piece(_LITERAL, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data), None, None, 0)
        column = piece.values if piece.values.dtype == pl.String else piece.values.cast(pl.Int64)
        array = column.to_arrow(compat_level=pl.CompatLevel.oldest())
        self._held.append(array)
        valid, values, *text = array.buffers()
        bits = valid.address if valid is not None and array.null_count else None
        at = values.address + 8 * array.offset
        if not text:
            self._fixed += _DIGITS
            return _Piece(_WHOLE, None, 0, at, bits, array.offset)
        offsets = np.frombuffer(values, np.int64, self._rows + 1, 8 * array.offset)
        self._fixed += _NULL
        self._texts.append((offsets, _LONGEST if piece.quoted else 1))
        begin, size = (at, 0) if text[0] is None else (text[0].address, text[0].size)
        return _Piece(_STRING if piece.quoted else _TEXT, begin, size, at, bits, array.offset)

    @property
    def longest(self) -> int:
        return self._fixed + sum(int(np.diff(offsets).max()) * most for offsets, most in self._texts)

    def part(self, first: int, count: int) -> tuple[Bytes, Ints]:
        """The bytes of some rows, which stay until the next are asked for, and where each ends."""
        room = self._fixed * count
        room += sum(int(offsets[first + count] - offsets[first]) * most for offsets, most in self._texts)
        if room > len(self._out):
            self._out = np.empty(room, np.uint8)
        out, ends, size = self._out, np.empty(count, np.int64), ctypes.c_size_t
        used = self._library.braid_texts(
            self._asked,
            size(len(self._asked)),
            size(self._rows),
            size(first),
            size(count),
            ctypes.c_void_p(out.ctypes.data),
            size(len(out)),
            ctypes.c_void_p(ends.ctypes.data),
        )
        assert used >= 0, "the core has written all rows"
        return out[:used], ends

    def blocks(self, most: int) -> Iterator[Block]:
        """`most` rows at a time. Those of some stay until the next are asked for."""
        for start in range(0, self._rows, most):
            data, ends = self.part(start, min(most, self._rows - start))
            yield data.data, np.diff(ends, prepend=0)


def written(pieces: Sequence[Piece], rows: int) -> Written | None:
    """None where the core is not there, or the rows are few."""
    library = core() if rows >= FEW else None
    return None if library is None else Written(pieces, rows, library)


def as_lines(texts: pl.Series) -> bytes:
    """The texts, a line each; none where the core is not there, or they are few."""
    made = written([Column(texts), "\n"], len(texts))
    return b"" if made is None else made.part(0, len(texts))[0].tobytes()


def joined(pieces: Sequence[Piece], rows: int) -> pl.Series:
    """The text of each row."""
    if (made := written(pieces, rows)) is None:
        return _by_polars(pieces, rows)
    data, ends = made.part(0, rows)
    buffers = [None, pa.py_buffer(np.append(np.int64(0), ends)), pa.py_buffer(data)]
    return pl.Series("value", pa.Array.from_buffers(pa.large_utf8(), rows, buffers))


def _by_polars(pieces: Sequence[Piece], rows: int) -> pl.Series:
    fields, parts = dict[str, pl.Series](), list[pl.Expr]()
    for i, piece in enumerate(pieces):
        if isinstance(piece, str):
            parts.append(pl.lit(piece))
            continue
        text = json_string(piece.values) if piece.quoted else piece.values.cast(pl.String)
        fields[str(i)] = text
        parts.append(pl.col(str(i)).fill_null("null") if text.null_count() else pl.col(str(i)))
    made = pl.DataFrame(fields).select(pl.concat_str(parts).alias("value")).to_series()
    return made if fields else made.new_from_index(0, rows)


_ESCAPES = {chr(c): json.dumps(chr(c))[1:-1] for c in (*range(32), 34, 92)}
_ODD = r'["\\\x00-\x1f]'


def json_string(s: pl.Series) -> pl.Series:
    """Texts as JSON strings, null as null."""
    if s.str.contains(_ODD).any():
        s = s.str.replace_many(list(_ESCAPES), list(_ESCAPES.values()))
    return s.to_frame("s").select(pl.concat_str([pl.lit('"'), pl.col("s"), pl.lit('"')])).to_series().rename(s.name)


def lines(texts: pl.Series, most: int) -> Iterator[Block]:
    """The bytes of texts with a line feed behind each, `most` at a time; see `Written.blocks`."""
    if (made := written([Column(texts), "\n"], len(texts))) is not None:
        yield from made.blocks(most)
        return
    for start in range(0, len(texts), most):
        part = texts.slice(start, most)
        data: bytes = part.str.join("\n").cast(pl.Binary).item() + b"\n"
        yield data, (part.str.len_bytes().cast(pl.Int64) + 1).to_numpy()
