"""Few rows that meet many: results come in pieces of bounded size, and pairs in rounds, with the same rows in the same
order."""

from __future__ import annotations

import random

import pytest

from braid.operators import pairing, windowed
from test_law import check

JOINS = ["stream_stream", "stream_stream stream_stream", "stream_stream stream_table"]


@pytest.mark.parametrize("most", [1, 3, 1_000_000])
@pytest.mark.parametrize("piece", [1, 2])
def test_pieces_and_rounds_change_nothing(monkeypatch: pytest.MonkeyPatch, most: int, piece: int) -> None:
    monkeypatch.setattr(windowed, "MOST", most)
    monkeypatch.setattr(pairing, "PIECE_ROWS", piece)
    rng = random.Random(f"{most} {piece}")
    for shape in [s for s in SHAPES if "stream_stream" in s or "two_clocks" in s]:
        check(shape, rng.randrange(10_000))
