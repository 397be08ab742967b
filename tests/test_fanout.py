"""Few rows that meet many: results come in pieces of bounded size, and pairs in rounds, with the same rows in the same
order."""

from __future__ import annotations

import pytest

import keyed_queries
import test_law
import test_law_keyed
from braid.operators import entries, pairing, windowed

STREAMS = ["ss", "ss-ss", "ss-ss-other", "ss-st", "ss-ss-right", "ss-aggregate"]


@pytest.mark.parametrize(("most", "piece"), [(1, 1), (3, 2), (1_000_000, 1)])
def test_pieces_and_rounds_change_nothing(monkeypatch: pytest.MonkeyPatch, most: int, piece: int) -> None:
    monkeypatch.setattr(windowed, "MOST", most)
    monkeypatch.setattr(entries, "MOST", most)
    monkeypatch.setattr(pairing, "PIECE_ROWS", piece)
    for shape in STREAMS:
        test_law.check(shape, 50 + most + piece)
    for shape in keyed_queries.SHAPES:
        test_law_keyed.check(shape, 60 + most + piece)
    for shape in ("regular", "regular-regular", "bounded"):
        test_law_epochs.check(shape, 70 + most + piece)
