"""The law of changes: what is named would have made a row, by the definitions of the whole history, and with one unit
less it would not.

In: random queries and histories of every operator (`histories.py`), in which records gave no row. Rule: by trial. A
change is put into the query or the record, all of the history is judged again, and the record has a row that it had
not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Any

import polars as pl
import pytest

import keyed_queries
import sliding_queries
import test_law_epochs as epochs
from braid.operators.changes import POS, POS_TYPE, TIME
from braid.plan.logical import Query, sources
from braid.reference import Event, Fact, Record, Reference
from braid.why.notes import Notes
from braid.why.reading import BATCH, OFFSET, PARTITION, Heard
from braid.why.reasons import At, Case, Verdict
from braid.why.slices import Slices, sliced
from braid.why.what_if import ALONE, sought
from effort import examples
from histories import SHAPES, events, random_history, random_query
from test_why_slices import frames, numbered

MOST = 6  # records of a history
SECONDS = 60.0


class Known(list[Event]):
    """Events, and the records among them."""

    @property
    def records(self) -> dict[Any, Record]:
        return {e.place: e for e in self if isinstance(e, Record)}


def case_of(query: Query, placed: Known) -> Case:
    """All of a history as if it had been read in one batch."""
    rows, which = frames(query, placed)
    steps = pl.DataFrame(schema={BATCH: pl.Int32, POS: POS_TYPE, "leaf": pl.Int16, "time": pl.Int64})
    made = {}
    for n, frame in rows.items():
        mine = [placed[i] for i in which[n]]
        made[n] = frame.with_columns(
            pl.Series(BATCH, [0] * len(mine), dtype=pl.Int32),
            pl.Series(POS, which[n], dtype=POS_TYPE),
            pl.Series(PARTITION, [e.partition for e in mine], dtype=pl.Int32),
            pl.Series(OFFSET, [e.offset for e in mine], dtype=pl.Int64),
            pl.Series(TIME, [e.time for e in mine], dtype=pl.Int64),
        )
    heard, how, records = Heard(made, steps, [], 1, {}, {}), sliced(query), placed.records
    topics = [s.topic for s in sources(query.root)]
    at = {p: At(topics[e.leaf], e.partition, e.offset, e.time) for p, e in records.items()}
    notes, positions = Notes(query, placed, records), {p: (e.leaf, 0, p[1]) for p, e in records.items()}
    return Case(query, notes, heard, Slices(how.mets, made), how, at, positions, str)


def made_of(query: Query, placed: Sequence[Event], place: Any) -> list[frozenset[Any]]:
    """Of which records the rows are made that a record is in."""
    found: list[Fact] = []
    reference = Reference(query)
    records = {e.place for e in placed if isinstance(e, Record)}
    reference.listen(found.append, records)
    reference.process(placed)
    gave = [f for f in found if f.what == "gave" and f.detail["written"].values is not None]
    return [f.origin for f in gave if place in f.origin]


def same(a: Record, b: Record) -> bool:
    return (a.leaf, a.partition, a.offset) == (b.leaf, b.partition, b.offset)


def checked(query: Query, placed: Known, name: str, rng: random.Random) -> Counter[str]:
    case = case_of(query, placed)
    records = placed.records
    verdicts: dict[Any, Verdict] = {p: case.verdict(p) for p in records}
    mine = [p for p, v in verdicts.items() if v.outcome == "missing" or v.reason == ALONE]
    mine = rng.sample(mine, min(MOST, len(mine)))
    some = {p: verdicts[p] for p in mine}
    answers = sought(case, placed, some, lambda *_: placed, monotonic() + SECONDS)
    found = Counter[str]()
    for place, answer in answers.items():
        had = {records[p].leaf for origin in made_of(query, placed, place) for p in origin}
        assert not answer.cut, name
        found["none"] += not answer.changes
        for change in answer.changes:
            found[change.kind] += 1
            for trial, is_more in ((change.made, True), (change.less, False)):
                if trial is None:
                    continue
                after = Known(trial.over(placed))
                leaves = {p: e.leaf for p, e in after.records.items()}
                (there,) = (p for p, e in after.records.items() if same(e, records[place]))
                rows = made_of(trial.changed.query, after, there)
                assert bool({leaves[p] for origin in rows for p in origin} - had) == is_more, (name, place, change)
    return found


def history_of(rng: random.Random, query: Query) -> Known:
    return Known(numbered(query, events(query, random_history(rng, query, explicit=rng.random() < 0.5))))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_change_that_is_named_makes_the_row(shape: str) -> None:
    for seed in range(examples(12, 2)):
        rng = random.Random(f"{shape} {seed}")
        query = random_query(rng, shape)
        checked(query, history_of(rng, query), f"{shape} {seed}", rng)


@pytest.mark.parametrize("shape", epochs.SHAPES)
def test_in_epochs(shape: str) -> None:
    for seed in range(examples(12, 2)):
        rng = random.Random(f"{shape} {seed}")
        query = epochs.random_query(rng, shape)
        history = random_history(rng, query, explicit=True, length=rng.randint(10, 40))
        placed = events(query, epochs.in_epochs(history, rng.choice([1, 2, 5])))
        checked(query, Known(numbered(query, placed)), f"{shape} {seed}", rng)


@pytest.mark.parametrize("shape", keyed_queries.SHAPES)
def test_by_columns(shape: str) -> None:
    for seed in range(examples(12, 2)):
        rng = random.Random(f"{shape} {seed}")
        query = keyed_queries.random_query(rng, shape)
        checked(query, history_of(rng, query), f"{shape} {seed}", rng)


@pytest.mark.parametrize("shape", sliding_queries.SHAPES)
def test_in_sliding_windows(shape: str) -> None:
    for seed in range(examples(12, 2)):
        rng = random.Random(f"{shape} {seed}")
        query = sliding_queries.random_query(rng, shape)
        history = random_history(rng, query, explicit=rng.random() < 0.5, length=12)
        checked(query, Known(numbered(query, events(query, history))), f"{shape} {seed}", rng)
