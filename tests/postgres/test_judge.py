"""A real PostgreSQL is the judge of risingwave's expressions: views, batch queries and PostgreSQL say the same.

In `make test` a part of the forms and few rows, in `make law` all of them, 60 rows each, and nested ones.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import psycopg
import pytest

from postgres import server
from postgres.forms import Form, all_forms, nested
from postgres.judge import Bench, Difference, judged

SEED = int(os.environ.get("SEED", "1"))


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection]:
    try:
        with server.running() as made:
            yield made
    except server.Missing as e:
        pytest.skip(f"no PostgreSQL to judge: {e}")


def _told(found: list[Difference]) -> str:
    return f"{len(found)} differ\n" + "\n".join(map(str, found[:40]))


def _some(forms: list[Form], count: int) -> list[Form]:
    """Each function and operator, and of those with many forms a few."""
    draw = random.Random(SEED)
    by_name: dict[str, list[Form]] = {}
    for f in forms:
        by_name.setdefault(f.name, []).append(f)
    return [f for fs in by_name.values() for f in draw.sample(fs, min(count, len(fs)))]


@pytest.mark.heavy
def test_a_part_of_all_forms(connection: psycopg.Connection) -> None:
    bench = Bench(connection, 12, SEED)
    found = list(judged(bench, _some(all_forms(), 2)))
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
    found = list(judged(Bench(connection, 8, SEED), nested(all_forms(), 40, random.Random(SEED)), placed=True))
    assert not found, _told(found)
