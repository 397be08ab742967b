"""The law of slices: records that have to do with each other, judged without all others, give what they give in the
whole run: rows, their order, and drops.

In: random queries and histories of every operator (`histories.py`). Rule: all slices together are the whole run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import polars as pl
import pytest

import keyed_queries
import sliding_queries
import test_law_epochs as epochs
from braid.plan import logical
from braid.plan.logical import Query
from braid.reference import Clocked, Event, Fact, Idle, Record, Reference, Steps
from braid.reference.rows import series_of
from braid.testing import Driver
from braid.why.pages import Page, Rows
from braid.why.slices import Met, Slices, keyed, sliced
from effort import examples, some
from histories import SHAPES, History, events, random_history, random_query


def frames(query: Query, placed: Sequence[Event]) -> tuple[dict[int, pl.DataFrame], dict[int, list[int]]]:
    """The records of each source as a frame, and which event each is of."""
    made, which = {}, {}
    for n, s in enumerate(logical.sources(query.root)):
        which[n] = [i for i, e in enumerate(placed) if isinstance(e, Record) and e.leaf == n]
        rows = [Reference(query)._sources[n].values(placed[i]) for i in which[n]]
        made[n] = pl.DataFrame([series_of(c.name, [r[c.name] for r in rows], c.column.type) for c in s.columns])
    return made, which


def paged(mets: Sequence[Met], leaf: int, frame: pl.DataFrame, size: int = 3) -> Rows:
    """The same records, a few a page."""
    whole = frame.hstack(keyed(mets, leaf, frame))

    def page(some: pl.DataFrame) -> Page:
        return Page(0, 0, some.height, lambda names: some if names is None else some.select(names), lambda: some)

    return Rows(whole.clear(), [page(whole.slice(i, size)) for i in range(0, whole.height, size)])


def numbered(query: Query, placed: Sequence[Event]) -> list[Event]:
    """Each event at a place of its own; those of one record, or of one epoch, at one."""
    known: dict[Any, int] = {}
    return [replace(e, place=(known.setdefault(e.place[0], len(known)), i)) for i, e in enumerate(placed)]


def judged(query: Query, placed: Sequence[Event], mine: set[int] | None) -> tuple[list[Any], list[Any]]:
    """Rows and drops, with places; of the slice `mine`."""
    reference = Reference(query)
    out = []
    in_epochs = reference._in_epochs
    if mine is None:
        out = reference.process(placed)
    else:
        some = []
        for i, e in enumerate(placed):
            event = e if i in mine or not isinstance(e, Record) else reference.clocked(e)
            some.append(event)
            if not in_epochs:
                out += reference.process([event])
        if in_epochs:
            out += reference.process(some)
        else:
            assert passed_by(query, some) == [repr(x) for x in (*out, *reference.drops)]
    return [(r.place, repr(r)) for r in out], [(d.place, repr(d)) for d in reference.drops]


def passed_by(query: Query, some: Sequence[Event]) -> list[str]:
    """Rows and drops, with places, where steps of clocks are passed by at once."""
    reference, out = Reference(query), []
    for is_step, run in groupby(some, lambda e: isinstance(e, Clocked)):
        left = [*run]
        while left:
            piece, left = (left[:4], left[4:]) if is_step else (left, [])
            if not is_step or not reference.pass_by(steps_of(piece)):
                out += reference.process(piece)
    return [repr(x) for x in (*out, *reference.drops)]


def steps_of(piece: Sequence[Event]) -> Steps:
    """What steps of clocks come to."""
    highest: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for e in piece:
        assert isinstance(e, Clocked)
        times, stored = highest.setdefault((e.leaf, e.partition), ([], []))
        times += [] if e.time is None else [e.time]
        stored += [] if e.stored is None else [e.stored]
    place = piece[-1].place
    return Steps(
        [Clocked(*w, max(a, default=None), max(b, default=None), place) for w, (a, b) in highest.items()],
        len(piece),
        place,
    )


def checked(query: Query, history: History, name: str) -> None:
    placed = numbered(query, events(query, history))
    how = sliced(query)
    rows, which = frames(query, placed)
    slices = Slices(how.mets, {n: paged(how.mets, n, x) for n, x in rows.items()})
    left = {n: pl.repeat(True, len(x), dtype=pl.Boolean, eager=True) for n, x in which.items()}
    want_rows, want_drops = judged(query, placed, None)
    got_rows, got_drops = [], []
    while (leaf := next((n for n in left if left[n].any()), None)) is not None:
        first = left[leaf].arg_true()[0]
        start = {
            n: pl.Series([n == leaf and i == first for i in range(len(x))], dtype=pl.Boolean) for n, x in left.items()
        }
        if how.whole is None:
            taken = slices.closed(start, 10**6)
            assert taken is not None
        else:
            taken = {n: pl.repeat(True, len(x), dtype=pl.Boolean, eager=True) for n, x in left.items()}
        mine = {which[n][i] for n, flags in taken.items() for i in flags.arg_true()}
        r, d = judged(query, placed, mine)
        whole = iter(want_rows)
        assert how.whole is not None or all(row in whole for row in r), f"{name}: in another order"
        got_rows += r
        got_drops += d
        left = {n: flags & ~taken[n] for n, flags in left.items()}
    assert sorted(set(got_rows)) == sorted(set(want_rows)), name
    assert sorted(set(got_drops)) == sorted(set(want_drops)), name


@pytest.mark.parametrize("shape", some(SHAPES))
def test_all_slices_together_are_the_whole_run(shape: str) -> None:
    for seed in range(examples(30, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = random_query(rng, shape)
        checked(query, random_history(rng, query, explicit=rng.random() < 0.5), f"{shape} {seed}")


@pytest.mark.parametrize("shape", some(epochs.SHAPES))
def test_in_epochs(shape: str) -> None:
    for seed in range(examples(30, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = epochs.random_query(rng, shape)
        history = random_history(rng, query, explicit=True, length=rng.randint(10, 40))
        checked(query, epochs.in_epochs(history, rng.choice([1, 2, 5])), f"{shape} {seed}")


@pytest.mark.parametrize("seed", [5, 24, 29])
def test_groups_by_what_was_looked_up(seed: int) -> None:
    """Rows of a stream have to do with each other then, though each looks by itself."""
    rng = random.Random(f"st-aggregate {seed}")
    query = random_query(rng, "st-aggregate")
    checked(query, random_history(rng, query, explicit=rng.random() < 0.5), f"st-aggregate {seed}")


@pytest.mark.parametrize("seed", [13, 20])
def test_the_key_of_a_side_that_is_missing(seed: int) -> None:
    """It is NULL, and a join by IS NOT DISTINCT FROM meets others with it."""
    rng = random.Random(f"regular-temporal {seed}")
    query = epochs.random_query(rng, "regular-temporal")
    history = random_history(rng, query, explicit=True, length=rng.randint(10, 40))
    checked(query, epochs.in_epochs(history, rng.choice([1, 2, 5])), f"regular-temporal {seed}")


@pytest.mark.parametrize("shape", some(keyed_queries.SHAPES))
def test_by_columns(shape: str) -> None:
    for seed in range(examples(30, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = keyed_queries.random_query(rng, shape)
        checked(query, random_history(rng, query, explicit=rng.random() < 0.5), f"{shape} {seed}")


@pytest.mark.parametrize("shape", some(sliding_queries.SHAPES))
def test_in_sliding_windows(shape: str) -> None:
    for seed in range(examples(30, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = sliding_queries.random_query(rng, shape)
        checked(query, random_history(rng, query, explicit=rng.random() < 0.5, length=12), f"{shape} {seed}")


@pytest.mark.parametrize("shape", ["ss", "st", "tt", "ft", "sessions"])
def test_who_listens_changes_nothing(shape: str) -> None:
    for seed in range(3):
        rng = random.Random(f"{shape} {seed}")
        query = random_query(rng, shape)
        placed = numbered(query, events(query, random_history(rng, query, explicit=False)))
        heard: list[Fact] = []
        listening, alone = Reference(query), Reference(query)
        listening.listen(heard.append, [e.place for e in placed])
        rows, want = listening.process(placed), alone.process(placed)
        assert [repr(r) for r in rows] == [repr(r) for r in want]
        assert [repr(d) for d in listening.drops] == [repr(d) for d in alone.drops]
        made = {place for f in heard if f.what == "gave" for place in f.origin}
        assert {f.detail["written"].place for f in heard if f.what == "gave"} == {r.place for r in rows}
        assert bool(made) == bool(rows)


def test_steps_of_an_idle_partition_are_not_passed_by() -> None:
    """Before it is live again the clock has gone on without it."""
    with Driver("ksqldb") as driver:
        driver.execute("""
        CREATE STREAM l (k INT KEY, v INT) WITH (kafka_topic='l', value_format='JSON', partitions=2);
        CREATE STREAM r (k INT KEY, w INT) WITH (kafka_topic='r', value_format='JSON', partitions=2);
        CREATE STREAM o AS SELECT l.k AS k, v, w FROM l JOIN r WITHIN 1 SECOND GRACE PERIOD 1 SECOND ON l.k = r.k;
        """)
        (query,) = driver._program.queries.values()
    reference = Reference(query)

    def step(partition: int, time: int, number: int) -> Clocked:
        return Clocked(0, partition, time, None, (number, number))

    reference.process([step(0, 100, 0), step(1, 50, 1), Idle(((0, 1),), (2, 2))])
    assert reference.clock_of(0) == 100
    assert not reference.pass_by(steps_of([step(0, 200, 3), step(1, 150, 4)])) and reference.clock_of(0) == 100
    reference.process([step(0, 200, 3), step(1, 150, 4)])
    assert reference.clock_of(0) == 200, "what both have shown is less"
    assert reference.pass_by(steps_of([step(0, 300, 5), step(1, 250, 6), step(0, 400, 7)]))
    assert reference.clock_of(0) == 250
