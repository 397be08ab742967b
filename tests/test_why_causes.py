"""The law of causes: of each row, the records that are named give it alone, at its place; and none is named in vain.

In: random queries and histories of every operator (`histories.py`). Rule: by removal. Of what is in a group, or in a
frame, one record may change nothing; else the row is not there, or has other causes, once one of them is not.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

import keyed_queries
import sliding_queries
import test_law_epochs as epochs
from braid.expr.show import show
from braid.expr.typing import call
from braid.plan.analytic import Analytic
from braid.plan.groups import Aggregate
from braid.plan.logical import Output, Query
from braid.plan.over import Over
from braid.reference import Event, OutRecord, Record, Reference
from braid.why.causes import Causes, in_turn, thinned
from braid.why.slices import given_by
from effort import examples, some
from histories import (
    SHAPES,
    History,
    col,
    events,
    integer,
    query,
    random_history,
    random_query,
    source,
    stream_stream,
)
from test_why_slices import numbered

ROWS = 6  # of each history


def without(query: Query, placed: list[Event], gone: set[object]) -> list[OutRecord]:
    """The rows of a history in which some records do nothing but move clocks."""
    reference = Reference(query)
    some = (e if e.place not in gone or not isinstance(e, Record) else reference.clocked(e) for e in placed)
    return (
        [*in_turn(reference, [*some])] if logical_epochs(query) else [x for e in some for x in reference.process([e])]
    )


def logical_epochs(query: Query) -> bool:
    return Reference(query)._in_epochs


def checked(query: Query, history: History, name: str, rng: random.Random) -> Counter[str]:
    placed = numbered(query, events(query, history))
    causes = Causes(query, placed)
    assert [repr(r) for r in causes.rows] == [repr(r) for r in in_turn(Reference(query), placed)], name
    together = any(isinstance(x, Aggregate | Over | Analytic) for x in query.root.walk())
    records = {e.place for e in placed if isinstance(e, Record)}
    found = Counter[str]()
    for n in rng.sample(range(len(causes.rows)), min(ROWS, len(causes.rows))):
        row = causes.rows[n]
        made = causes.of(n)
        alone = [repr(x) for x in without(query, placed, records - made.named)]
        found["rows"] += 1
        found["unsure"] += not made.sure
        assert not made.sure or repr(row) in alone, (name, row)
        assert made.sure or len(records) > 400, (name, row)
        count = alone.count(repr(row))
        for place in () if together else sorted(made.named):
            found["named"] += 1
            rest = [repr(x) for x in without(query, placed, (records - made.named) | {place})]
            assert rest.count(repr(row)) < count, (name, row, place)
    return found


@pytest.mark.parametrize("shape", some(SHAPES))
def test_named_records_give_their_row(shape: str) -> None:
    for seed in range(examples(20, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = random_query(rng, shape)
        checked(query, random_history(rng, query, explicit=rng.random() < 0.5), f"{shape} {seed}", rng)


@pytest.mark.parametrize("shape", some(epochs.SHAPES))
def test_in_epochs(shape: str) -> None:
    for seed in range(examples(20, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = epochs.random_query(rng, shape)
        history = random_history(rng, query, explicit=True, length=rng.randint(10, 40))
        checked(query, epochs.in_epochs(history, rng.choice([1, 2, 5])), f"{shape} {seed}", rng)


@pytest.mark.parametrize("shape", some(keyed_queries.SHAPES))
def test_by_columns(shape: str) -> None:
    for seed in range(examples(20, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = keyed_queries.random_query(rng, shape)
        checked(query, random_history(rng, query, explicit=rng.random() < 0.5), f"{shape} {seed}", rng)


@pytest.mark.parametrize("shape", some(sliding_queries.SHAPES))
def test_in_sliding_windows(shape: str) -> None:
    for seed in range(examples(20, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = sliding_queries.random_query(rng, shape)
        checked(query, random_history(rng, query, explicit=rng.random() < 0.5, length=12), f"{shape} {seed}", rng)


@pytest.mark.parametrize("shape", some(SHAPES))
def test_steps_of_clocks_that_are_left_out_change_nothing(shape: str) -> None:
    for seed in range(examples(20, 3)):
        rng = random.Random(f"{shape} {seed}")
        query = random_query(rng, shape)
        placed = numbered(query, events(query, random_history(rng, query, explicit=rng.random() < 0.5)))
        reference = Reference(query)
        some: list[Event] = []
        rows: list[OutRecord] = []
        for e in placed:
            some.append(reference.clocked(e) if isinstance(e, Record) and rng.random() < 0.6 else e)
            rows += reference.process([some[-1]])
        for row in rng.sample(rows, min(4, len(rows))):
            again = [*in_turn(Reference(query), thinned(some, row.place))]
            assert [repr(x) for x in again if x.place == row.place] == [
                repr(x) for x in rows if x.place == row.place
            ], (shape, seed, row)


def test_a_row_is_looked_for_by_columns_that_come_of_one_source_alone() -> None:
    """COALESCE over a side that gave nothing has a value, too."""
    a, b = source("A"), source("B")
    made = call("COALESCE", [col(b, "B.N"), integer(0)])
    mine = query(stream_stream(a, b, "left"), "A.V", "B.V", Output("X", made))
    found = {show(e): [*part] for e, part in given_by(mine)}
    assert found == {"A.V": [0], "B.V": [1], show(mine.sink.written_key[0]): [0, 1]}
    both = query(stream_stream(a, b, "inner"), "A.V", Output("X", made))
    assert [1] in [[*part] for _, part in given_by(both)]
