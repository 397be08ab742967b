"""Conditions over pairs of rows: which part decides first, how often it is told that one failed, and that a checkpoint
knows of it.

In: tables, sides of joins. Out: drops of both runtimes, canonical texts. Rule: `tests/cases` have what users see.
"""

from __future__ import annotations

import pytest

from braid.bind.program import Program
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.show import bare
from braid.expr.typing import all_of, call
from braid.plan import residuals
from braid.plan.canonical import canonical
from braid.testing.driver import Driver
from braid.types import Scalar

A, B = Col("a", Scalar.INT), Col("b", Scalar.INT)
TABLES = "CREATE TABLE l (id INT PRIMARY KEY, k INT, a INT); CREATE TABLE r (id INT PRIMARY KEY, k INT, b INT);"


def moved(e: Expr) -> Expr:
    return call("add", [e, Lit(3, Scalar.INT)])


def test_what_cannot_fail_decides_first() -> None:
    quotient = call("lt", [call("div", [A, B]), B])
    near = call("le", [moved(A), B])
    first, rest = residuals.parted(all_of([quotient, near, call("ne", [A, B])]))
    assert first is not None and rest is not None
    assert (bare(first), bare(rest)) == ("((a + 3) <= b) AND (a <> b)", "(a / b) < b")
    assert residuals.parted(near) == (near, None) and residuals.parted(quotient) == (None, quotient)
    assert residuals.parted(None) == (None, None)


@pytest.mark.parametrize("backend", ["reference", "local"])
@pytest.mark.parametrize("join", ["l LEFT JOIN r", "l JOIN r FOR SYSTEM_TIME AS OF PROCTIME()"])
def test_few_pairs_are_told(backend: str, join: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one key that come at once; of the other key all."""
    monkeypatch.setattr(residuals, "MOST", 20)
    on = "l.k = r.id" if "SYSTEM_TIME" in join else "l.k = r.k"
    with Driver("risingwave", backend) as driver:
        driver.execute(
            f"{TABLES} CREATE MATERIALIZED VIEW v AS SELECT l.id AS a FROM {join} ON {on} AND 1 / l.a < r.b;"
        )
        driver.execute("INSERT INTO r VALUES (1, 1, 1), (2, 2, 1);")
        rows = [f"({i}, {1 if i < 50 else 2}, 0)" for i in range(55)]
        driver.execute(f"INSERT INTO l VALUES {', '.join(rows)};")
        assert len(driver.drops("v")) == 20 + 5


@pytest.mark.parametrize("backend", ["reference", "local"])
def test_a_row_like_the_one_before_is_not_told_again(backend: str) -> None:
    joins = {"regular": "l JOIN r ON l.k = r.k", "temporal": "l JOIN r FOR SYSTEM_TIME AS OF PROCTIME() ON l.k = r.id"}
    with Driver("risingwave", backend) as driver:
        driver.execute(TABLES.replace("a INT)", "a INT, note VARCHAR)"))
        for name, join in joins.items():
            driver.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT l.id AS a, note FROM {join} AND 1 / a < b;")
        driver.execute("INSERT INTO r VALUES (1, 1, 1); INSERT INTO l VALUES (1, 1, 0, 'x'), (2, 1, 1, 'x');")
        driver.execute("UPDATE l SET note = 'y'; DELETE FROM l WHERE id = 2;")
        assert [len(driver.drops(name)) for name in joins] == [1, 1]
        driver.execute("UPDATE l SET a = 3; UPDATE l SET a = 0;")
        assert [len(driver.drops(name)) for name in joins] == [2, 2]


@pytest.mark.parametrize(("on", "marked"), [("coalesce(1 / l.a, 1) < r.b", True), ("l.a < r.b", False)])
def test_a_checkpoint_knows_of_a_condition_that_fails(on: str, marked: bool) -> None:
    """A part of it that fails is NULL since values have the number 2."""
    program = Program("risingwave")
    sql = f"{TABLES} CREATE MATERIALIZED VIEW v AS SELECT l.id AS a, r.id AS b FROM l JOIN r ON l.k = r.k AND {on};"
    list(program.statements(sql))
    assert ('"meaning":2' in canonical(program.queries["v"])) is marked
