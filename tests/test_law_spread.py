"""The law of rescaling: whatever the buckets are from one batch to the next, what comes is the same.

In: the pages of cases, one an operator; views of which rows stay in their bucket under another key. Out: what they say.
Rule: before each batch the state is spread over other buckets, or not. The other laws do so now and then, too
(`law.ran`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import polars as pl
import pytest

import test_in_place
from braid.stage.ingest import Chunk
from braid.stage.local import LocalQuery
from braid.testing.cases import run_case
from effort import some
from test_cases import FED, OPERATORS, PAGES, check

BUCKETS = (1, 2, 3, 4, 6, 7)

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def _spread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, results = random.Random(request.node.name), LocalQuery.results

    def anew(self: LocalQuery, chunks: Iterable[Chunk]) -> tuple[pl.DataFrame, pl.DataFrame]:
        if chance.random() < 0.5:
            self.rescale(chance.choice(BUCKETS))
        return results(self, chunks)

    monkeypatch.setattr(LocalQuery, "results", anew)


@pytest.mark.parametrize("page", OPERATORS)
def test_operators(page: str) -> None:
    check(run_case(PAGES[page], "local", batch=1, buckets=2))


@pytest.mark.law
@pytest.mark.parametrize("page", FED)
def test_pages(page: str) -> None:
    for batch in (1, 3):
        check(run_case(PAGES[page], "local", batch=batch, buckets=2))


@pytest.mark.parametrize("name", some(test_in_place.VIEWS, 3))
def test_rows_under_another_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    test_in_place.test_both_plans_give_the_same(name, monkeypatch)
