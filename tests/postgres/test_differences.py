"""Where risingwave's expressions differ from PostgreSQL's: each row of the page's table is one, and as it says.

In: the tables of docs/dialects/risingwave.md, a real PostgreSQL, batch queries of Braid.
Rule: the last piece of code in a row's first cell is asked of both. A row that is none any more fails, as does one that
says something else than either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from braid.bind.bound import BatchAsked
from braid.bind.program import Program
from braid.bind.risingwave.expressions import usual_name
from braid.errors import BraidError
from braid.testing import Driver

PAGE = Path(__file__).parents[2] / "docs/dialects/risingwave.md"
FAILS = "fails"


@dataclass(frozen=True)
class Row:
    what: str
    expression: str
    postgres: str | None  # a value as text, None for NULL, or `FAILS`
    here: str | None
    source: str


def _section(title: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [[c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def _value(cell: str) -> str | None:
    found = re.fullmatch(r"`([^`]*)`", cell)
    assert found or cell in (FAILS, "NULL"), cell
    return found[1] if found else None if cell == "NULL" else FAILS


def _rows() -> Iterator[Row]:
    for what, postgres, here, source in _section("Differences from PostgreSQL"):
        yield Row(what, re.findall(r"`([^`]+)`", what)[-1], _value(postgres), _value(here), source)


ROWS = list(_rows())


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver(dialect="risingwave") as made:
        yield made


def _of_postgres(connection: psycopg.Connection, expression: str) -> str | None:
    try:
        found = connection.execute(f"SELECT ({expression})::text").fetchone()  # type: ignore[call-overload]
    except psycopg.Error:
        return FAILS
    assert found is not None
    return found[0] if found[0] is None else str(found[0])


def _of_braid(driver: Driver, expression: str) -> str | None:
    try:
        ((found,),) = driver.query(f"SELECT ({expression})::varchar")
    except BraidError:
        return FAILS
    assert found is None or isinstance(found, str)
    return found


def test_there_are_rows() -> None:
    assert len(ROWS) > 40
    assert len({r.expression for r in ROWS}) == len(ROWS)
    assert all(r.source for r in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.expression)
def test_what_braid_says(row: Row, driver: Driver) -> None:
    assert _of_braid(driver, row.expression) == row.here
    assert row.postgres != row.here, "no difference"


@pytest.mark.heavy
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.expression)
def test_what_postgresql_says(row: Row, connection: psycopg.Connection) -> None:
    assert _of_postgres(connection, row.expression) == row.postgres


@pytest.mark.parametrize("cells", _section("Digits of NUMERIC"), ids=lambda c: c[0])
def test_the_digits_of_a_result(cells: list[str]) -> None:
    expression, name = re.findall(r"`([^`]+)`", cells[3])
    (made,) = Program("risingwave").statements(f"SELECT {expression};")
    assert isinstance(made.bound, BatchAsked)
    assert list(map(usual_name, made.bound.query.types)) == [name]
