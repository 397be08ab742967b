"""Names of plan columns: what is made twice is found, and refused before it runs."""

from __future__ import annotations

import pytest

from braid.bind.commands import checked
from braid.errors import SqlError
from braid.expr.nodes import Col
from braid.expr.typing import call
from braid.plan.epochs import Equalities, RegularJoin
from braid.plan.logical import Column, Encoding, Filter, Project, Query, Sink, Source, SourceColumn
from braid.plan.names import alike, column_of, level, level_of, own
from braid.types import Scalar

K = Col("t.K", Scalar.INT)
ON = Equalities((), (), ())


def source(alias: str) -> Source:
    column = SourceColumn(f"{alias}.K", "K", Column("K", Scalar.INT), "key")
    return Source(alias, "T", "T", "stream", (column,), Encoding())


def test_a_level_is_split_at_its_first_dot() -> None:
    assert level("a.b/c~%") == "a%2Eb%2Fc%7E%25"
    assert (level_of("x/y.K.L"), column_of("x/y.K.L")) == ("x/y", "K.L")
    assert level_of(f"{own('x')}.group_0") == "x~"


def test_what_is_passed_on_is_not_made_again() -> None:
    assert alike(Filter(Project(source("t"), ((K, K),)), call("eq", [K, K]))) == []
    assert alike(RegularJoin(source("t"), source("u"), "inner", ON)) == []


def test_a_name_of_two_columns_is_found() -> None:
    more = call("add", [K, K])
    assert alike(Project(source("t"), ((K, more),))) == ["t.K"]
    assert alike(Project(source("t"), ((Col("u.K", Scalar.INT), more), (Col("u.K", Scalar.INT), K)))) == ["u.K"]
    assert alike(RegularJoin(source("t"), source("t"), "inner", ON)) == ["t", "t.K"]


def test_such_a_plan_is_refused() -> None:
    root = Project(source("t"), ((K, call("add", [K, K])),))
    with pytest.raises(SqlError, match=r"two columns of the plan are called t\.K"):
        checked(Query("q", "risingwave", "", root, Sink("q", "q", "stream", (), (), Encoding())))
