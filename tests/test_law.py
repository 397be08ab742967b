"""The law on the local runtime, for every shape of query; `--law` for thousands of histories."""

from __future__ import annotations

import random

import pytest

from cuts import seq_cuts, time_cuts
from histories import SHAPES, random_history, random_query
from law import difference, local_lines, reference_lines


def check(shape: str, seed: int) -> None:
    rng = random.Random(f"{shape} {seed}")
    query = random_query(rng, shape)
    history = random_history(rng, query, explicit=rng.random() < 0.5)
    want = reference_lines(query, history)
    cuts = seq_cuts(rng, history) if history.explicit else time_cuts(rng, history)
    for i, cut in enumerate(cuts):
        buckets = rng.choice([1, 2, 4, 8])
        got = local_lines(query, history, cut, buckets, rng)
        assert got == want, difference(got, want, f"{shape} {seed}: cut {i}, {buckets} buckets, {query.root}")


@pytest.mark.parametrize("shape", SHAPES)
def test_law(shape: str) -> None:
    for seed in range(3):
        check(shape, seed)


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_at_length(shape: str) -> None:
    for seed in (*range(12), *range(1000, 1050)):
        check(shape, seed)
