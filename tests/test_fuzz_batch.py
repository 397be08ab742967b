"""Hostile batch queries: nothing that is written reaches DuckDB but as a value, and nothing but rows comes back.

`make fuzz N=10000` tries so many; `make test` a share of them.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import polars as pl
import pytest

import fuzz_batch
from braid.batch_sql.duck import Tables
from braid.batch_sql.duck_text import literal, name, token, untoken
from braid.bind.bound import BatchAsked, BatchQuery
from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.bind.risingwave.batch_values import DUCK_NAMES
from braid.errors import SqlError
from braid.testing.driver import Driver
from effort import fuzzed
from fuzz_batch import OUTSIDE, QUOTED, TOKEN, WORDS

pytestmark = pytest.mark.heavy

CHUNKS = 4
COMPUTED = re.compile("f__[0-9a-f]{24}")
DECLARED = """CREATE TABLE t (k INT PRIMARY KEY, g INT, n INT, name VARCHAR);
CREATE TABLE u (k INT, v INT);
CREATE VIEW vv AS SELECT g, sum(n) AS total FROM t GROUP BY g;
"""
ROWS = "INSERT INTO t VALUES (1, 1, 10, 'a'), (2, 1, 20, NULL); INSERT INTO u VALUES (1, 100), (2, 200);"


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver(dialect="risingwave") as made:
        made.execute(DECLARED + ROWS)
        yield made


@cache
def declared() -> Catalog:
    program = Program("risingwave")
    list(program.statements(DECLARED))
    return program.catalog


def bound(text: str) -> BatchQuery | None:
    """The query of the last statement; None where it is none."""
    *_, last = Program("risingwave", declared()).statements(text)
    return last.bound.query if isinstance(last.bound, BatchAsked) else None


def check_made_anew(sql: str) -> None:
    """Names are tokens, words are those of our lists; what the user wrote is in strings."""
    for piece in QUOTED.findall(sql):
        assert piece[0] == "'" or TOKEN.fullmatch(piece), piece
    outside = QUOTED.sub(" ", sql)
    for word in OUTSIDE.findall(outside):
        assert word.upper() in WORDS or word in DUCK_NAMES or COMPUTED.fullmatch(word), (word, sql)
    assert ";" not in outside
    assert "--" not in outside
    assert "/*" not in outside


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_hostile_query_gives_rows_or_one_refusal(
    chunk: int, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("nobody reads this\n")
    monkeypatch.chdir(tmp_path)
    frame = pl.DataFrame({"a": [1]})
    for i in range(-(-fuzzed(120) // CHUNKS)):
        r = random.Random(f"batch {chunk} {i}")
        text = fuzz_batch.query(r).replace("FILE", str(canary))
        try:
            query = bound(text)
            if query is not None:
                for sql in (query.sql, *(v for _, v in query.views)):
                    check_made_anew(sql)
            assert "nobody" not in repr(driver.query(text)), text
        except SqlError as e:
            assert e.span is not None, text
            assert e.message and "\n" not in e.message, text
            assert "__" not in e.message or "__" in text or "\\" in text, (text, e.message)  # an escape may make one
        except Exception as e:
            raise AssertionError(text) from e
    assert os.listdir(tmp_path) == ["canary"]
    assert canary.read_text() == "nobody reads this\n"
    assert frame.height == 1


def test_constants_are_what_they_were(driver: Driver) -> None:
    for i in range(fuzzed(100) // 5 + 1):
        r = random.Random(f"constants {i}")
        written, values = zip(*(fuzz_batch.constant(r) for _ in range(5)), strict=True)
        assert driver.query(f"SELECT {', '.join(written)}") == [values], written


def test_names_are_what_they_were() -> None:
    """Of tables, columns, aliases, WITH: names that differ in anything, case too, are not the same."""
    for i in range(fuzzed(40) // 10 + 1):
        r = random.Random(f"names {i}")
        table, alias, cte = (fuzz_batch.name(r)[0] for _ in range(3))
        columns = list(dict.fromkeys(fuzz_batch.name(r)[0] for _ in range(4)))
        declared = ", ".join(f"{c} INT" for c in columns)
        numbers = ", ".join(map(str, range(len(columns))))
        with Driver(dialect="risingwave") as made:
            made.execute(f"CREATE TABLE {table} ({declared}); INSERT INTO {table} VALUES ({numbers});")
            for n, c in enumerate(columns):
                sql = f"WITH {cte} AS (SELECT * FROM {table}) SELECT x.{c} AS {alias} FROM {cte} AS x ORDER BY {alias}"
                assert made.query(sql) == [(n,)], sql


def test_one_function_quotes() -> None:
    tables = Tables(bound("SELECT 1"))  # type: ignore[arg-type]
    for i in range(200):
        value = fuzz_batch.text(random.Random(f"quoted {i}"))
        assert tables.rows(f"SELECT {literal(value)} AS {name(value or 'x')}") == [(value,)]
        assert untoken(f'no column "{token("c7", value)}" here') == f"no column {value} here"
    with pytest.raises(SqlError, match="half a character") as refused:
        bound("SELECT 1, '\ud800'")
    assert refused.value.column == 11
    tables.close()
    assert token("c", "a_b") != token("c", "a") + "_b"
    assert len({token("c", n).lower() for n in ("a", "A", "_41_", "a_", "é", "É")}) == 6


@pytest.mark.parametrize("value", [0, -5, -(2**63), 2**63 - 1, 1.5, -2.5e-7, 1e300, True, None, "a'b\\"])
def test_numbers_keep_type_and_sign(value: object) -> None:
    tables = Tables(bound("SELECT 1"))  # type: ignore[arg-type]
    assert tables.rows(f"SELECT {literal(value)}") == [(value,)]
    tables.close()
