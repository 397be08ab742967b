"""The one change of a key and epoch: by hash, and where two keys share one, by what they are."""

from __future__ import annotations

import random

import polars as pl
import pytest

from braid.operators import coalesce
from braid.operators.changes import DIFF, POS, POS_TYPE


def _changes(chance: random.Random, rows: int) -> pl.DataFrame:
    made = [(chance.randrange(4), f"k{chance.randrange(5)}", chance.choice([-1, 1]), n) for n in range(rows)]
    return pl.DataFrame(made, {POS: POS_TYPE, "_text": pl.String, DIFF: pl.Int8, "n": pl.Int64}, orient="row")


def _one_of_each(changes: pl.DataFrame) -> list[tuple[int, str, int, int]]:
    """The last of those that come, else the last."""
    found: dict[tuple[int, str], tuple[int, str, int, int]] = {}
    for pos, text, diff, n in changes.iter_rows():
        before = found.get((pos, text))
        if before is None or diff >= before[2]:
            found[pos, text] = (pos, text, diff, n)
    return sorted(found.values())


@pytest.mark.parametrize("shared", [False, True])
def test_one_change_of_a_key_and_epoch(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`shared`: keys have one hash, some of them."""
    chance = random.Random(1)
    if shared:
        monkeypatch.setattr(
            pl.DataFrame,
            "hash_rows",
            lambda self: self.select(pl.col("_text").str.slice(1).cast(pl.UInt64) % 2)["_text"],
        )
    for rows in (1, 2, 3, 10, 40):
        for _ in range(20):
            changes = _changes(chance, rows)
            assert sorted(coalesce._newest(changes).iter_rows()) == _one_of_each(changes)
