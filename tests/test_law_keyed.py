"""The law for joins over any number of equalities: stream-stream by two clocks, stream-table with memory, tables."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from braid.expr.typing import call
from braid.plan.joins import StreamStreamJoin
from braid.plan.logical import Filter, How, Query
from braid.plan.pushdown import pushed
from cuts import seq_cuts, some, time_cuts
from effort import examples
from histories import History, query, random_history, source
from keyed_queries import SHAPES, equalities, predicate, random_query
from law import by_reference, difference, local_lines, ran, reference_lines

pytestmark = pytest.mark.heavy


def check(shape: str, seed: int, whole: bool = True) -> None:
    """`whole`: cut at every record, too, else at a few in a row."""
    rng = random.Random(f"{shape} {seed}")
    made = random_query(rng, shape)
    history = random_history(rng, made, explicit=rng.random() < 0.5)
    want = by_reference(made, history)
    cuts = seq_cuts(rng, history) if history.explicit else time_cuts(rng, history)
    for i, cut in enumerate(cuts if whole else some(rng, cuts)):
        buckets = rng.choice([1, 2, 4])
        got, _ = ran(made, history, cut, buckets, rng)
        assert got == want, difference(got.all, want.all, f"{shape} {seed}: cut {i}, {buckets} buckets, {made.root}")


@pytest.mark.parametrize("shape", SHAPES)
def test_law(shape: str) -> None:
    check(shape, 0, whole=False)


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_at_length(shape: str) -> None:
    for seed in range(1000, 1050):
        check(shape, seed)


def test_a_row_without_a_group_is_told_when_it_comes_only() -> None:
    check("combines-grouped", 1034)  # its group is what it is joined by: no exchange lies between


# ------------------------------------------------------------- properties


def joined(seed: int, how: How) -> tuple[Query, History]:
    """A join of two streams of a random kind with the same history for every `how`."""
    rng = random.Random(f"kinds {seed}")
    a, b = source("A", "za", partitions=1), source("B", "pb", partitions=1)
    left_keys, right_keys, keys = equalities(rng, a, b, 1)
    join = StreamStreamJoin(a, b, how, left_keys, right_keys, keys, 5, 10, rng.choice([0, 3]), None, null_key="pad")
    made = query(join, key=[])
    return made, random_history(rng, made, explicit=True)


def values(query: Query, history: History) -> list[tuple[str | None, int]]:
    return [(value, time) for _, value, time, *_ in reference_lines(query, history)]


@pytest.mark.parametrize("seed", range(examples(15)))
def test_right_mirrors_left(seed: int) -> None:
    left, history = joined(seed, "left")
    assert isinstance(left.root, StreamStreamJoin)
    j = left.root
    mirror = replace(
        j, left=j.right, right=j.left, how="right", left_keys=j.right_keys, right_keys=j.left_keys,
        before=j.after, after=j.before,
    )  # fmt: skip
    assert values(replace(left, root=mirror), history) == values(left, history)


@pytest.mark.parametrize("seed", range(examples(15)))
def test_outer_is_left_and_right(seed: int) -> None:
    """The pairs of both once, and what either pads."""
    rows = {how: Counter(values(*joined(seed, how))) for how in ("inner", "left", "right", "full")}
    assert rows["full"] + rows["inner"] == rows["left"] + rows["right"]


@pytest.mark.parametrize("shape", ["clocks", "remembers", "combines", "combines-combines"])
def test_filters_may_run_below(shape: str) -> None:
    """Rows, their order and their times are the same."""
    moved = 0
    for seed in range(10):
        rng = random.Random(f"below {shape} {seed}")
        made = random_query(rng, shape)
        condition = call("and", [predicate(rng, made.root), predicate(rng, made.root)])
        above = replace(made, root=Filter(made.root, condition))
        below = pushed(above)
        moved += below.root != above.root
        history = random_history(rng, above, explicit=True)
        want = reference_lines(above, history)
        assert reference_lines(below, history) == want, (seed, above.root)
        if seed < 2:
            cuts = seq_cuts(rng, history)
            assert local_lines(below, history, cuts[1], 2, rng) == want
    assert moved > 2


def test_a_row_that_stands_alone_has_a_part_of_its_key() -> None:
    """No key to the join, but one to the table that it is written to."""
    check("combines-combines", 1006)
