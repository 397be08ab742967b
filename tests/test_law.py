"""The law on the local runtime, for every shape of query; `--law` for thousands of histories."""

from __future__ import annotations

import random

import pytest

from cuts import seq_cuts, some, time_cuts
from histories import SHAPES, random_history, random_query
from law import by_reference, difference, keeping, kept_lines, ran, standing_of


def check(shape: str, seed: int, whole: bool = True) -> None:
    """`whole`: cut at every record, too, else at a few in a row."""
    rng = random.Random(f"{shape} {seed}")
    query = keeping(random_query(rng, shape), rng)
    history = random_history(rng, query, explicit=rng.random() < 0.5)
    want = by_reference(query, history)
    standing = standing_of(want.lines, query.sink.retention) if query.sink.keeps else set()
    cuts = seq_cuts(rng, history) if history.explicit else time_cuts(rng, history)
    for i, cut in enumerate(cuts if whole else some(rng, cuts)):
        buckets = rng.choice([1, 2, 4, 8])
        got, local = ran(query, history, cut, buckets, rng)
        kept = kept_lines(local)
        of = f"{shape} {seed}: cut {i}, {buckets} buckets, {query.root}"
        assert got == want, difference(got.all, want.all, of)
        assert kept == standing, f"{of}\n  not kept {standing - kept}\n  kept {kept - standing}"


@pytest.mark.parametrize("shape", SHAPES)
def test_law(shape: str) -> None:
    check(shape, 0, whole=False)


@pytest.mark.parametrize(("shape", "seed"), [("aggregate", 1045), ("tt-aggregate", 1006)])
def test_a_group_that_was_empty_keeps_its_time(shape: str, seed: int) -> None:
    """HAVING COUNT(*) > 0 shows no empty group, but what comes to it later has its highest time."""
    check(shape, seed)


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_at_length(shape: str) -> None:
    for seed in (*range(6), *range(1000, 1018)):
        check(shape, seed)
