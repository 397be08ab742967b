"""Tests in SQL, as ksqlDB's testing tool runs them: a file of tests, each of statements and ASSERTs.

In: a file with `--@test: name` lines; a runtime. Out: failures by line.
Rule: each test starts with nothing and runs statement by statement. With `--@expected.error` or `--@expected.message`
it must be refused; which class and message ksqlDB has for it is not compared. (docs/case-pages.md, "Tests in SQL")
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from braid.errors import BraidError, SqlError
from braid.testing.driver import Driver

DIRECTIVE = re.compile(r"[ \t]*--@(test|expected\.error|expected\.message)[ \t]*:(.*)")


@dataclass(frozen=True, slots=True)
class SqlTest:
    """`text`: its statements, at the lines where they stand in the file; `fails`: it must be refused."""

    name: str
    line: int
    text: str
    fails: bool


def is_sql_test(text: str) -> bool:
    return any(m[1] == "test" for line in text.splitlines() if (m := DIRECTIVE.match(line)))


def sql_tests(text: str) -> Iterator[SqlTest]:
    """What stands before the first test belongs to none."""
    lines = text.splitlines()
    found = [(i, m) for i, line in enumerate(lines) if (m := DIRECTIVE.match(line))]
    starts = [(i, m[2].strip()) for i, m in found if m[1] == "test"]
    ends = [*(i for i, _ in starts[1:]), len(lines)]
    for (start, name), end in zip(starts, ends, strict=True):
        fails = any(start < i < end for i, m in found if m[1] != "test")
        yield SqlTest(name, start + 1, "\n" * start + "\n".join(lines[start:end]), fails)


def failure(test: SqlTest, runtime: str, batch: int | None, buckets: int | None) -> tuple[int, str] | None:
    """Where a test fails, and why."""
    with Driver(runtime=runtime, batch=batch, buckets=buckets) as driver:  # type: ignore[arg-type]
        try:
            driver.execute(test.text)
        except BraidError as e:
            line = e.line if isinstance(e, SqlError) and e.line is not None else test.line
            return None if test.fails else (line, f"{test.name}: {e}")
    return (test.line, f"{test.name}: it was to be refused") if test.fails else None
