"""The cause log: what was written is read; whatever was torn, spoilt, put back or done again; its bounds."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.changes import (
    EARLY,
    END_OF_BATCH,
    LEAF_BITS,
    LOW,
    NEVER,
    OFFSET_BITS,
    POS,
    POS_TYPE,
    SUB,
    released_sub,
)
from braid.stage import cause_log, state_file
from braid.stage.cause_log import FOLDER, CauseLog, Gathered, Piece, read
from braid.stage.row_causes import At, packed, unpacked
from braid.store import opened

ANY: Any = None  # the node of a result whose rows have their positions in the plain way
RUN = "O-0123456789abcd"


def position(rank: int, offset: int, time: int = 0, leaf: int = 0) -> int:
    return time * LOW + ((rank << OFFSET_BITS) + offset << LEAF_BITS) + leaf


def frame(positions: Sequence[int], subs: Sequence[bytes | None] | None = None) -> pl.DataFrame:
    given = subs or [None] * len(positions)
    return pl.DataFrame({POS: positions, SUB: given}, schema={POS: POS_TYPE, SUB: pl.Binary()})


places = st.tuples(st.integers(0, 5) | st.integers(0, 2**15 - 1), st.integers(0, 40) | st.integers(0, 2**44 - 1))


@given(st.lists(places, max_size=300), st.integers(0, 15))
def test_places_come_back(there: list[tuple[int, int]], leaf: int) -> None:
    rows = frame([position(rank, offset, n, leaf) for n, (rank, offset) in enumerate(there)])
    found = unpacked(packed(rows, ANY))
    assert [At.of(x) for x in found.completed.tolist()] == [At(rank, offset) for rank, offset in there]
    assert (found.completed == found.released).all()


@given(st.lists(st.tuples(places, st.booleans()), min_size=1, max_size=100))
def test_a_row_that_was_let_go_by_another_has_both(rows: list[tuple[tuple[int, int], bool]]) -> None:
    step, count = position(7, 99, 5), len(rows)
    came = pl.Series([position(*place) for place, _ in rows], dtype=POS_TYPE)
    subs = released_sub(*(pl.Series([x] * count) for x in (3, True, "k")), pl.Series(range(count)), came)
    at = [step if waited else position(*place) for place, waited in rows]
    given = [sub if waited else None for sub, (_, waited) in zip(subs, rows, strict=True)]
    found = unpacked(packed(frame(at, given), ANY))
    assert [At.of(x) for x in found.completed.tolist()] == [At(*place) for place, _ in rows]
    assert [At.of(x) for x in found.released.tolist()] == [At(7, 99) if w else At(*place) for place, w in rows]


@pytest.mark.parametrize(
    ("at", "place"),
    [
        (END_OF_BATCH, At(ends=True)),
        (END_OF_BATCH + 1, At(ends=True)),
        (NEVER * LOW, At()),
        ((1_700_000_000_123 + 1) * LOW - 1, At(epoch=1_700_000_000_123)),
        ((-62_000_000_000_000 // 10 + 1) * LOW - 1, At(epoch=-6_200_000_000_000)),
        ((5 - EARLY + 1) * LOW - 1, At(epoch=5 - EARLY)),
        (position(3, 8, -4), At(3, 8)),
    ],
)
def test_places_that_are_no_record(at: int, place: At) -> None:
    found = unpacked(packed(frame([position(1, 2), at]), ANY))
    assert [At.of(x) for x in found.completed.tolist()] == [At(1, 2), place]


def test_three_bytes_a_row_at_most() -> None:
    made = np.random.default_rng(5)
    there = zip(made.integers(0, 64, 20_000).tolist(), made.integers(0, 2_000, 20_000).cumsum().tolist(), strict=True)
    rows = frame([position(rank, offset, n) for n, (rank, offset) in enumerate(there)])
    assert len(packed(rows, ANY)) < 3.5 * rows.height  # 64 partitions, and a row a thousand records
    near = frame([position(n % 2, n // 2, n) for n in range(20_000)])
    assert len(packed(near, ANY)) < 0.1 * near.height


def test_what_is_no_causes_is_refused() -> None:
    data = packed(frame([position(n % 3, n) for n in range(40)]), ANY)
    for wrong in (b"", data[:3], data[:-1], data[:1] + bytes(4) + data[5:], data[:20] + bytes(20)):
        with pytest.raises(ValueError):
            unpacked(wrong)
