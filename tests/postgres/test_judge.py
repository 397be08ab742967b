"""A real PostgreSQL is the judge of risingwave's expressions: views, batch queries and PostgreSQL say the same.

In `make test` a part of the forms and few rows, in `make law` all of them, 60 rows each, and nested ones.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import psycopg
import pytest

from braid.expr.functions import by_name
from postgres.forms import Form, all_forms, coverage, is_own, nested
from postgres.judge import Bench, Difference, columns_of, judged
from test_function_pages import called

SEED = int(os.environ.get("SEED", "1"))
PAGE = Path(__file__).parents[2] / "docs/dialects/risingwave.md"
JUDGED = ("<!-- judged -->", "<!-- until here: tests/postgres/test_judge.py -->")


def _told(found: list[Difference]) -> str:
    return f"{len(found)} differ\n" + "\n".join(map(str, found[:40]))


def _some(forms: list[Form], count: int) -> list[Form]:
    """Each function and operator, of those with many forms so many."""
    draw = random.Random(SEED)
    by_name: dict[str, list[Form]] = {}
    for f in forms:
        by_name.setdefault(f.name, []).append(f)
    return [f for fs in by_name.values() for f in draw.sample(fs, min(count, len(fs)))]


@pytest.mark.heavy
def test_a_part_of_all_forms(connection: psycopg.Connection) -> None:
    bench = Bench(connection, 12, SEED)
    found = list(judged(bench, _some(all_forms(), 1)))
    assert not found, _told(found)


@pytest.mark.law
@pytest.mark.timeout(3600)
def test_all_forms(connection: psycopg.Connection) -> None:
    found = list(judged(Bench(connection, 60, SEED), all_forms()))
    assert not found, _told(found)


@pytest.mark.law
@pytest.mark.timeout(3600)
def test_nested_and_where_values_decide(connection: psycopg.Connection) -> None:
    """As key of a join, in WHERE, inside aggregates."""
    forms = all_forms()
    bench = Bench(connection, 20, SEED)
    found = list(judged(bench, _some(forms, 3), placed=True))
    found += judged(bench, nested(forms, 600, random.Random(SEED)), placed=True)
    assert not found, _told(found)


@pytest.mark.heavy
def test_a_few_of_them_nested(connection: psycopg.Connection) -> None:
    found = list(judged(Bench(connection, 8, SEED), nested(all_forms(), 20, random.Random(SEED)), placed=True))
    assert not found, _told(found)


@pytest.mark.heavy
def test_the_page_tells_what_is_judged() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(JUDGED[0])[2].partition(JUDGED[1])[0].split() == coverage().split()


@pytest.mark.heavy
def test_no_function_is_left_out() -> None:
    """Each has a form that PostgreSQL judges; what is RisingWave's own is called on a case page."""
    forms = all_forms()
    own = (by_name("risingwave").keys() - {f.name for f in forms if not is_own(f)}) | {
        f.name for f in forms if is_own(f)
    }
    assert own - called("risingwave/functions") == set()


@pytest.mark.heavy
def test_what_postgresql_does_not_have(connection: psycopg.Connection) -> None:
    """It is asked for nothing else: a form that it does not know would be judged by nobody."""
    bench = Bench(connection, 1, SEED)
    wrong = [f for f in all_forms() if is_own(f) == _knows(bench, f)]
    assert wrong == []


def _knows(bench: Bench, form: Form) -> bool:
    try:
        bench.pg.execute(f"SELECT {form.over(*columns_of(form))} FROM t LIMIT 0")  # type: ignore[call-overload]
    except psycopg.errors.UndefinedFunction:
        return False
    except psycopg.Error:  # a constant that it refuses
        return True
    return True
