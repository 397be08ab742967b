"""Frames in files come back as they were: every kind of column, numbers of 128 bits, parts of frames, no rows.

In: frames. Out: the same frames, mapped.
Rule: none.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from braid.stage import frame_file

FRAME = pl.DataFrame(
    {
        "_pos": pl.Series([1, None, -(2**126)], dtype=pl.Int128),
        "other": pl.Series([10**38 - 1, 0, 7], dtype=pl.Int128),
        "decimal": pl.Series([Decimal("1.50"), None, Decimal("-2.25")], dtype=pl.Decimal(38, 2)),
        "whole": pl.Series([Decimal(3), None, Decimal(-4)], dtype=pl.Decimal(38, 0)),
        "text": ["a text that is longer than twelve bytes", None, ""],
        "bytes": [b"\x00\xff", None, b""],
        "list": [[1, 2], None, []],
        "struct": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
        "flag": [True, None, False],
        "nothing": [None, None, None],
        "number": [1.5, None, float("nan")],
    }
)


@pytest.mark.parametrize("frame", [FRAME, FRAME.slice(1, 1), FRAME.clear(), FRAME.filter(pl.col("flag"))])
def test_a_frame_comes_back_as_it_was(frame: pl.DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "a.arrow")
    size = frame_file.write_file(path, frame)
    assert_frame_equal(frame_file.mapped(path), frame)
    with open(path, "ab") as f:
        f.write(b"more")
    assert_frame_equal(frame_file.mapped(path, size), frame)
    assert size == (tmp_path / "a.arrow").stat().st_size - 4


def test_numbers_of_more_than_38_digits(tmp_path: Path) -> None:
    frame = pl.DataFrame({"_pos": pl.Series([2**127 - 1, 1], dtype=pl.Int128), "v": ["a", "b"]})
    frame_file.write_file(str(tmp_path / "a"), frame)
    assert_frame_equal(frame_file.mapped(str(tmp_path / "a")), frame)


def test_a_part_of_a_frame_does_not_bring_all_its_text(tmp_path: Path) -> None:
    frame = pl.DataFrame({"t": [f"a text that is longer than twelve bytes {i}" for i in range(10_000)]})
    assert frame_file.write_file(str(tmp_path / "a"), frame[pl.Series([5, 500])]) < 5_000


def test_a_mapped_file_may_go(tmp_path: Path) -> None:
    path = tmp_path / "a"
    frame_file.write_file(str(path), FRAME)
    frame = frame_file.mapped(str(path))
    path.unlink()
    assert_frame_equal(frame, FRAME)


def test_a_file_that_is_not_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ARROW1 and then nothing")
    with pytest.raises(pa.ArrowInvalid):
        frame_file.mapped(str(tmp_path / "a"))
