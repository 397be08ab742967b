"""The second oracle: DuckDB says the same over the whole inputs, for every shape that docs/semantics/batch.md lists as
equal; `--law` for thirty histories a shape, and a hundred of chains."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

import batch_ksqldb
import batch_lenses
import batch_risingwave
import batch_sqlstream
from batch_law import Shape, check, difference, given, smallest, wanted
from levels import met

pytestmark = pytest.mark.heavy

PAGE = Path(__file__).parents[1] / "docs" / "semantics" / "batch.md"
SHAPES = {**batch_lenses.SHAPES, **batch_ksqldb.SHAPES, **batch_sqlstream.SHAPES, **batch_risingwave.SHAPES}
ON_SPARK = ("lenses windowed chain", "ksqldb streams and tables", "sqlstream expiry FULL", "risingwave chain")


def renamed(shape: str) -> Shape:
    """The shape with names of levels that meet."""
    return lambda rng: met(random.Random(rng.getstate()[1][5]), SHAPES[shape](rng))


@pytest.mark.parametrize("shape", SHAPES)
def test_law(shape: str) -> None:
    check(renamed(shape), f"{shape} 0")


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_at_length(shape: str) -> None:
    for seed in range(1000, 1100 if "chain" in shape else 1030):
        check(renamed(shape) if seed % 2 else SHAPES[shape], f"{shape} {seed}")


@pytest.mark.spark
@pytest.mark.parametrize("shape", [*ON_SPARK[:-1], pytest.param(ON_SPARK[-1], marks=pytest.mark.law)])
def test_law_on_spark(shape: str) -> None:
    pytest.importorskip("pyspark")
    check(SHAPES[shape], f"{shape} spark", "spark")


def test_the_page_lists_what_is_run() -> None:
    listed: list[str] = []
    for line in PAGE.read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[1] not in ("now", "comparison"):
            named = re.findall(r"`([^`]+)`", cells[3])
            assert cells[1] in ("equal", "equal if", "never"), line
            assert bool(named) == (cells[1] != "never"), line
            listed += named
    assert sorted(listed) == sorted(SHAPES)


def test_a_difference_is_told_by_the_smallest_history() -> None:
    """DuckDB is asked for the pairs that lie closer together than the query says."""
    rng = random.Random("differs")
    question = batch_lenses.one_join(rng, "INNER")
    while "<= 40" not in question.duck or not wanted(question):
        question = batch_lenses.one_join(rng, "INNER")
    wrong = replace(question, duck=question.duck.replace("<= 40", "< 0"))

    def differs(asked: object) -> str | None:
        assert isinstance(asked, type(wrong))
        return difference(given(asked, random.Random(1)), wanted(asked), asked)

    found = differs(wrong)
    assert found is not None
    least, found = smallest(wrong, differs, found)
    assert len(least.calls) == 3 and found.count("too much") == 1  # two rows and the end
