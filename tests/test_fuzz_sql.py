"""Spoilt SQL: each statement is accepted, or refused with one message at its place; nothing else comes out, and soon.

`make fuzz N=10000` tries so many; `make test` a share of them. A seed gives the same text until a case page changes.
"""

from __future__ import annotations

import json
import random
import time
from functools import cache

import pytest

import effort
from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.bind.settings import Settings
from braid.errors import SqlError
from braid.explain.documents import explain_query, render_dot, render_mermaid, render_texts
from braid.plan.logical import Query
from effort import fuzzed
from fuzz_sql import DEEP, Page, mutated, pages

pytestmark = pytest.mark.heavy

CHUNKS = 10
SECONDS = 1.0  # of this process, for a text of 60,000 characters on a slow machine
DIALECTS = ("ksqldb", "lenses", "risingwave", "sqlstream")


@cache
def states(page: Page) -> list[tuple[Catalog, Settings, dict[str, Query]]]:
    """What is known before each statement of a page."""
    program = Program(page.dialect)
    found = []
    for statement in page.statements:
        found.append((program.catalog, program.settings, dict(program.queries)))
        try:
            for _ in program.statements(statement):
                pass
        except SqlError:
            pass  # a page shows what is refused, too
    return found


def carried_out(program: Program, text: str) -> SqlError | None:
    """Binds a text, explains its queries; gives the refusal, which must be in order."""
    try:
        for effect in program.statements(text):
            query = effect.query
            if query is not None:
                plan = explain_query(query, lambda _: None, None)
                json.dumps(plan, default=str)
                for render in (render_texts, render_mermaid, render_dot):
                    assert render([plan])
    except SqlError as e:
        assert e.message and "\n" not in e.message, e.message
        assert e.hint is None or e.hint.strip()
        assert e.span is not None, e.message
        assert 0 <= e.span.start <= e.span.end <= len(text)
        lines = text.splitlines() or [""]
        assert e.span.line <= len(lines) and e.span.column <= len(lines[e.span.line - 1]) + 1
        assert e.render().count("\n  at line ") == 1
        return e
    return None


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_spoilt_statement_is_accepted_or_refused_at_its_place(chunk: int) -> None:
    for i in range(fuzzed(200) // CHUNKS):
        r = random.Random(f"sql {chunk} {i}")
        page = r.choice(pages())
        at = r.randrange(len(page.statements))
        text = mutated(r, page.statements[at])
        catalog, settings, queries = states(page)[at]
        started = time.process_time()
        try:
            carried_out(Program(page.dialect, catalog, settings, dict(queries)), text)
        except Exception as e:
            raise AssertionError(f"{page.name}, {page.dialect}, {text[:2000]!r}") from e
        assert time.process_time() - started < SECONDS, (page.dialect, text[:2000])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_repeated_thousands_of_times_is_read_at_once(dialect: str) -> None:
    """Alone, where a value may stand, and where a stream may stand."""
    n = 3000 if effort.LAW else 400
    for before, middle, behind in DEEP:
        text = before * n + middle + behind * n
        for whole in (text, f"SELECT {text} FROM s;", f"SELECT 1 FROM a {text};", f"SELECT 1 FROM a WHERE {text};"):
            started = time.process_time()
            try:
                carried_out(Program(dialect), whole)
            except Exception as e:
                raise AssertionError(f"{dialect}, {n} times {before, middle, behind}, {whole[:60]!r}") from e
            assert time.process_time() - started < SECONDS, whole[:60]


INSERTED = {
    "ksqldb": (
        "CREATE STREAM s (k INT KEY, v STRING, t TIMESTAMP) WITH (kafka_topic='s', value_format='JSON');",
        "(1, 'a', '2019-03-30T05:02:10')",
    ),
    "sqlstream": ("CREATE STREAM s (k INT, v VARCHAR(9), t TIMESTAMP);", "(1, 'a', TIMESTAMP '2019-03-30 05:02:10')"),
    "risingwave": ("CREATE TABLE s (k INT, v VARCHAR, t TIMESTAMP);", "(1, 'a', '2019-03-30 05:02:10')"),
}


@pytest.mark.parametrize("dialect", INSERTED)
def test_many_rows_are_inserted_at_once(dialect: str) -> None:
    declared, row = INSERTED[dialect]
    program = Program(dialect)
    list(program.statements(declared))
    started = time.process_time()
    list(program.statements(f"INSERT INTO s VALUES {', '.join([row] * 300)};"))
    assert time.process_time() - started < 3 * SECONDS
