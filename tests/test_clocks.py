"""Clocks against a clock that sees one event at a time: partitions, late rows, idle marks, wake-ups, any cut."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.changes import END_OF_BATCH, LOW, NEVER, POS, POS_TYPE
from braid.operators.clocks import CLOCK, IDLE, STEPS, Clock, Clocks, JoinClock, LeafClock, leaves
from effort import examples
from operator_models import Event, Idle, NaiveClocks, Row, steps_of

CASES = settings(max_examples=examples(120))
CLOCKS: list[Clock] = [
    LeafClock(0),
    LeafClock(1),
    JoinClock(LeafClock(0), LeafClock(1), 0),
    JoinClock(JoinClock(LeafClock(0), LeafClock(1), 5), LeafClock(2), 3),
]
EVENT = st.one_of(
    st.builds(
        lambda leaf, part, t, null: Row(leaf, None if null else "k", t, (), part),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 60),
        st.booleans(),
    ),
    st.builds(
        lambda parts: Idle(tuple(parts)),
        st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4),
    ),
)


def at_each(history: list[Event]) -> list[list[tuple[int, int]]]:
    """After each event: (clock, stored clock before it) of each of CLOCKS."""
    naive, out = NaiveClocks(), []
    for event in history:
        naive.move(event)
        out.append([(naive.at(c), naive.stored(c)) for c in CLOCKS])
    return out


@CASES
@given(st.lists(EVENT, max_size=40), st.lists(st.integers(0, 40), max_size=5), st.booleans())
def test_clocks(history: list[Event], cuts: list[int], compact: bool) -> None:
    want = at_each(history)
    events, kept = list(enumerate(history)), {}
    start, before = 0, [(NEVER, NEVER)] * len(CLOCKS)
    for end in [*sorted(c for c in set(cuts) if c <= len(history)), len(history)]:
        steps = steps_of(events[start:end])
        clocks = Clocks(rises(steps) if compact else steps, json.loads(json.dumps(kept)))
        positions = pl.Series(
            [i * LOW + (e.leaf if isinstance(e, Row) else 0) for i, e in events[start:end]], dtype=POS_TYPE
        )
        for c, clock in enumerate(CLOCKS):
            assert clocks.at(clock, positions).tolist() == [w[c][0] for w in want[start:end]]
            if isinstance(clock, LeafClock):
                rows = [i for i, e in enumerate(history[start:end]) if isinstance(e, Row)]
                stored = clocks.stored(clock, positions)[rows].tolist()
                assert stored == [want[start + i][c][1] for i in rows]
            now = want[end - 1][c][0] if end else NEVER
            assert clocks.end(clock) == now
            places, values = clocks.moves(clock)
            assert (np.diff(values, prepend=before[c][0]) > 0).all()
            assert clocks.at(clock, places).tolist() == values.tolist()
            if len(values):
                assert values[-1] == now
            before[c] = (now, 0)
        # out of order, and many positions for few steps
        if len(positions):
            some = pl.concat([positions.reverse()] * 3)
            assert clocks.at(CLOCKS[3], some).tolist() == [w[3][0] for w in want[start:end]][::-1] * 3
            assert (clocks.above(positions) >= clocks.at(clock, positions)).all()
            assert (clocks.above(positions) >= clocks.stored(clock, positions)).all()
        kept = clocks.state()
        start = end


@CASES
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 60)), max_size=12), max_size=4))
def test_no_clock_passes_the_time_of_its_position(batches: list[list[tuple[int, int, int]]]) -> None:
    """Positions made of times, as sources make them: the bound is that time, or what earlier batches have shown."""
    kept: dict[str, Any] = {}
    before = NEVER
    for rows in batches:
        m: dict[tuple[int, int], int] = {}
        places = []
        for n, (leaf, part, t) in enumerate(rows):
            m[leaf, part] = max(t, m.get((leaf, part), NEVER))
            places.append((m[leaf, part] * LOW + part * 64 + n, leaf, part, CLOCK, t))
        clocks = Clocks(pl.DataFrame(sorted(places), schema=STEPS, orient="row"), kept)
        positions = pl.Series(sorted(p for p, *_ in places), dtype=POS_TYPE)
        bound = clocks.above(positions)
        assert bound.tolist() == [max(before, int(p) // LOW) for p in positions]
        for clock in CLOCKS:
            assert (bound >= clocks.at(clock, positions)).all()
        before = max([before, *(t for _, _, t in rows)])
        kept = clocks.state()


def rises(steps: pl.DataFrame) -> pl.DataFrame:
    """Only the steps a source sends: the rises of each partition, and the first record after a mark."""
    keep, high, woken = [], {}, set()
    for i, (_, leaf, part, kind, value) in enumerate(steps.rows()):
        if kind == IDLE:
            woken -= {(leaf, part, 0), (leaf, part, 1)}
            keep.append(i)
            continue
        k = (leaf, part, kind)
        if value > high.get(k, NEVER) or k not in woken:
            keep.append(i)
        high[k] = max(value, high.get(k, NEVER))
        woken.add(k)
    return steps[keep]


def made(rows: list[Any], kept: dict[str, Any] | None = None) -> Clocks:
    return Clocks(pl.DataFrame(rows, schema=STEPS, orient="row"), kept or {})


def test_marks_at_one_place_are_applied_together() -> None:
    """Two partitions at 100 and 50 fall idle: the clock goes to 100, whichever is named first."""
    rows = [(1 * LOW, 0, 0, CLOCK, 100), (2 * LOW, 0, 1, CLOCK, 50)]
    for order in ((0, 1), (1, 0)):
        clocks = made([*rows, *((END_OF_BATCH, 0, p, IDLE, 0) for p in order)])
        assert clocks.end(LeafClock(0)) == 100
        assert clocks.at(LeafClock(0), pl.Series([2 * LOW], dtype=POS_TYPE)).tolist() == [100]  # it never falls
    clocks = made([(1 * LOW, 0, 0, CLOCK, 50), (2 * LOW, 0, 1, CLOCK, 100)])
    assert clocks.end(LeafClock(0)) == 50
    clocks = made([(END_OF_BATCH, 0, 0, IDLE, 0)], clocks.state())
    assert clocks.end(LeafClock(0)) == 100


def test_a_partition_that_wakes_behind_the_clock_does_not_move_it() -> None:
    kept = made([(1 * LOW, 0, 0, CLOCK, 10), (2 * LOW, 0, 1, CLOCK, 90), (3 * LOW, 0, 0, IDLE, 0)]).state()
    clocks = made([(1 * LOW, 0, 0, CLOCK, 20), (2 * LOW, 0, 1, CLOCK, 200)], kept)
    assert clocks.at(LeafClock(0), pl.Series([0, LOW, 2 * LOW], dtype=POS_TYPE)).tolist() == [90, 90, 90]
    assert made([], clocks.state()).end(LeafClock(0)) == 90


def test_nothing_known() -> None:
    clocks = made([])
    assert clocks.end(CLOCKS[3]) == clocks.stored_end(CLOCKS[3]) == NEVER
    assert clocks.at(CLOCKS[0], pl.Series([1], dtype=POS_TYPE)).tolist() == [NEVER]
    assert len(clocks.moves(CLOCKS[2])[0]) == 0
    assert clocks.state() == {"high": [], "idle": [], "now": []}
    assert leaves(CLOCKS[3]) == (0, 1, 2)


def test_steps_may_come_unsorted() -> None:
    steps = steps_of(list(enumerate([Row(0, "k", 5, ()), Row(1, "k", 7, ()), Row(0, "k", 9, ())])))
    a, b = Clocks(steps, {}), Clocks(steps.sort(POS, descending=True), {})
    positions = pl.Series([0, LOW + 1, 2 * LOW, 3 * LOW], dtype=POS_TYPE)
    assert a.at(CLOCKS[2], positions).tolist() == b.at(CLOCKS[2], positions).tolist() == [5, 7, 9, 9]
