"""The law on the local runtime, for joins over sliding windows; `--law` for thousands of histories."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from braid.plan.logical import Filter
from cuts import seq_cuts, some, time_cuts
from histories import random_history
from law import by_reference, difference, ran
from sliding_queries import SHAPES, random_query

pytestmark = pytest.mark.heavy


def check(shape: str, seed: int, whole: bool = True) -> None:
    """`whole`: cut at every record, too, else at a few in a row."""
    rng = random.Random(f"{shape} {seed}")
    query = random_query(rng, shape)
    history = random_history(rng, query, explicit=rng.random() < 0.5, calm=rng.random() < 0.8)
    want = by_reference(query, history)
    cuts = seq_cuts(rng, history) if history.explicit else time_cuts(rng, history)
    for i, cut in enumerate(cuts if whole else some(rng, cuts)):
        buckets = rng.choice([1, 2, 4])
        got, _ = ran(query, history, cut, buckets, rng)
        if any(isinstance(node, Filter) for node in query.root.walk()):  # late by definition, but nothing is lost
            assert not Counter(got.drops) - Counter(want.drops)
            got = got._replace(drops=want.drops)
        assert got == want, difference(got.all, want.all, f"{shape} {seed}: cut {i}, {buckets} buckets, {query.root}")


@pytest.mark.parametrize("shape", SHAPES)
def test_law(shape: str) -> None:
    check(shape, 0, whole=False)


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_at_length(shape: str) -> None:
    for seed in (*range(12), *range(1000, 1050)):
        check(shape, seed)
