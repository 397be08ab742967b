"""State that is split and merged: what the law does not show (`tests/test_law_spread.py`)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from braid.errors import BraidError
from braid.lower.lower import lower
from braid.operators.arrangement import Held, held
from braid.stage.bucket import BucketState
from braid.stage.local import LocalQuery
from cuts import batches, time_cuts
from histories import query, random_history, source, stream_stream
from law import chunks_of

QUERY = query(stream_stream(source("A"), source("B"), "full", grace=1000))


@pytest.fixture
def local() -> LocalQuery:
    """A join in the midst of its history, rows waiting on both sides."""
    rng = random.Random(3)
    history = random_history(rng, QUERY, explicit=False, length=60)
    made = LocalQuery(lower(QUERY), 1, 4)
    for batch in batches(history, time_cuts(rng, history)[2])[:-1]:
        made.run(chunks_of(made.plan, history, batch))
    assert sum(x.rows for x in sizes(made)) > 20
    return made


def manifests(local: LocalQuery) -> list[dict[str, Any]]:
    return [m for state in local._states[0] for m in state.manifests.values()]


def sizes(local: LocalQuery) -> list[Held]:
    return [x for manifest in manifests(local) for x in held(manifest).values()]


def test_nothing_grows_with_it(local: LocalQuery) -> None:
    """Neither rows nor runs nor the numbers of arrivals, however often the buckets change."""
    rows, runs = sum(x.rows for x in sizes(local)), sum(x.runs for x in sizes(local))
    arrivals = sum(m.get("arrivals", 0) for m in manifests(local))
    for buckets in (7, 1, 64, 3, 64, 1, 5, 4):
        local.rescale(buckets)
        assert sum(x.rows for x in sizes(local)) <= rows
        assert max(m.get("arrivals", 0) for m in manifests(local)) <= arrivals
    assert sum(x.runs for x in sizes(local)) <= runs


def test_rows_of_several_buckets_are_told_apart(local: LocalQuery) -> None:
    """By their arrival numbers, by which those that wait are taken back."""
    before = [n for state in local._states[0] for n in numbers(state)]
    assert len(set(before)) < len(before), "each bucket counts for itself"
    local.rescale(1)
    (state,) = local._states[0]
    after = numbers(state)
    assert len(set(after)) == len(after) == len(before)


def numbers(state: BucketState) -> list[int]:
    """The arrival numbers of the rows of both sides."""
    kept = [m[side]["runs"] for m in state.manifests.values() for side in ("left", "right") if side in m]
    return [n for runs in kept for run, *_ in runs for n in state.runs.get(run)["_n"]]


def test_rows_that_lie_elsewhere_are_refused(local: LocalQuery) -> None:
    local._states[0].reverse()
    with pytest.raises(BraidError, match=r"a row of the state lies in bucket . of 4, and not there"):
        local.rescale(8)


def test_buckets_of_several_batches_are_refused(local: LocalQuery) -> None:
    clocks = local._states[0][2].clocks
    local._states[0][2].clocks = clocks | {"now": [[0, 0, 5]]}
    with pytest.raises(BraidError, match="the buckets of stage 0 are not after the same batch"):
        local.rescale(8)
