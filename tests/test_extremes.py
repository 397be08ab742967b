"""Every function and every cast at the ends of its types: a value is a value or a failure, never an exception.

A record may hold any value of its type, so what raises for one would end the query. A row gives the same alone and
among others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal as D
from itertools import islice, product
from typing import Any

import polars as pl
import pytest

import effort
from braid.errors import BraidError
from braid.expr import casts, typing
from braid.expr.compile import evaluate
from braid.expr.functions import FUNCTIONS
from braid.expr.nodes import Cast, Col, Expr, Lit
from braid.records.codec import encode_values
from braid.types import MAX_DAY, MAX_TIME, Array, Column, Decimal, Scalar, Type, physical_type, polars_type

pytestmark = pytest.mark.heavy

S = Scalar
TEXTS = (
    *("", "a", " ", "ab,c", "0", "-1", "é😀", "\x00", "%_\\", "(", '{"a":1}', "[1,2]", "2024-02-30", "null"),
    *("x" * 300, "9" * 40, "1e400", "٣", "2024-01-02T03:04:05", "12:30", "true"),
)
VALUES: dict[Type, Sequence[Any]] = {
    S.BOOLEAN: (True, False),
    S.INT: (0, 1, -1, 2, 31, 2**31 - 1, -(2**31)),
    S.BIGINT: (0, 1, -1, 1000, 2**53, 2**63 - 1, -(2**63), MAX_TIME, -MAX_TIME - 1),
    S.DOUBLE: (0.0, -0.0, 1.5, -2.5, 0.1, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf),
    Decimal(10, 2): (D("0.00"), D("99999999.99"), D("-99999999.99"), D("0.01"), D("-1.50")),
    Decimal(38, 0): (D(0), D(10**38 - 1), D(-(10**38) + 1)),
    S.VARCHAR: TEXTS,
    S.BYTES: (b"", b"\xff\x00", b"abc"),
    S.DATE: (0, 1, 19_000, MAX_DAY - 1, -MAX_DAY),
    S.TIME: (0, 1_000_000, 86_399_999_000_000),
    S.TIMESTAMP: (0, 1000, 1_700_000_000_000_000, (MAX_TIME - 1) * 1000, -MAX_TIME * 1000),
    Array(S.INT): ([], [1, None], [3, 3]),
    Array(S.VARCHAR): ([], ["a", None]),
}
LITERALS = (
    *(Lit(x, S.VARCHAR) for x in ("yyyy-MM-dd HH:mm", "UTC", "Europe/London", "$.a", "x")),
    *(Lit(x, S.INT) for x in (2, -(2**31), 2**31 - 1)),
)
ROWS = 40


def column(name: str, t: Type, values: Sequence[Any]) -> pl.Series:
    return pl.Series(name, values, dtype=physical_type(t)).cast(polars_type(t))


def calls(name: str, arity: int) -> Iterator[tuple[Expr, list[Type]]]:
    """Calls of a function that its signature allows, and the types of their columns."""
    choices = (*VALUES, *LITERALS) if arity < 3 else (S.VARCHAR, S.INT, S.DOUBLE, S.TIMESTAMP, *LITERALS)
    for chosen in product(choices, repeat=arity):
        types = [x for x in chosen if not isinstance(x, Lit)]
        left = iter(range(len(types)))
        args = [x if isinstance(x, Lit) else Col(f"c{next(left)}", x) for x in chosen]
        try:
            yield typing.call(name, args), types
        except BraidError:
            continue


def rows_of(types: Sequence[Type], r: random.Random) -> pl.DataFrame:
    all_rows = list(product(*((*VALUES[t], None) for t in types)))
    rows = all_rows if len(all_rows) <= ROWS else r.sample(all_rows, ROWS)
    columns = [column(f"c{i}", t, [row[i] for row in rows]) for i, t in enumerate(types)]
    return pl.DataFrame([pl.Series("z", [0] * len(rows)), *columns])


def judged(e: Expr, frame: pl.DataFrame, r: random.Random) -> None:
    out, failed = evaluate(frame, [("v", e)])
    assert out.schema == {"v": polars_type(e.type)} and failed.null_count() == 0
    n = r.randrange(frame.height)
    alone, mark = evaluate(frame.slice(n, 1), [("v", e)])
    assert alone.equals(out.slice(n, 1), null_equal=True) and mark[0] == failed[n], (e, frame.row(n))
    if e.type is not S.INTERVAL:  # no column has it
        encode_values(out, [("v", Column("V", e.type))])


ARITIES = {"make_map": (2,), "flatten": (), "is_null": (1,), "is_not_null": (1,), "in": (2, 3), "like": (2,)}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions(name: str) -> None:
    r = random.Random(name)
    for arity in ARITIES.get(name, (1, 2, 3)):
        for e, types in islice(calls(name, arity), 100 if effort.LAW else 8):
            judged(e, rows_of(types, r), r)


@pytest.mark.parametrize("source", VALUES, ids=str)
def test_casts(source: Type) -> None:
    r = random.Random(str(source))
    for target in VALUES:
        if casts.can_cast(source, target):
            judged(Cast(Col("c0", source), target), rows_of([source], r), r)


def test_parts_of_a_constant_are_replaced_as_each_row_says() -> None:
    e = typing.call("REPLACE", [Lit("a-b", S.VARCHAR), Col("c0", S.VARCHAR), Col("c1", S.VARCHAR)])
    frame = pl.DataFrame({"c0": ["a", "b", "", None], "c1": ["x", "yy", "z", "z"]})
    assert evaluate(frame, [("v", e)])[0]["v"].to_list() == ["x-b", "a-yy", "zaz-zbz", None]
