"""Times as most write them are read as every other form of them is."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.expr.dates import parse_iso, parse_timestamp
from braid.expr.plain_times import plain_times
from braid.types import Scalar
from effort import examples

TWO = st.integers(0, 99).map("{:02}".format)
YEARS = st.one_of(st.integers(0, 9999), st.integers(1890, 2110)).map("{:04}".format)
NEAR = st.builds("{:02}-{:02}".format, st.integers(0, 13), st.integers(0, 32))
FORM = st.builds("{}-{}{}{}:{}:{}".format, YEARS, NEAR, st.sampled_from("T T_x"), TWO, TWO, TWO)
DIGITS = st.integers(0, 9).flatmap(lambda n: st.tuples(*[st.sampled_from("0123456789")] * n).map("".join))


@st.composite
def columns(draw: st.DrawFn) -> list[str]:
    """Texts of one length, most of them times."""
    digits = draw(DIGITS)
    made = [f"{draw(FORM)}{'.' if digits else ''}{digits}" for _ in range(draw(st.integers(1, 6)))]
    if draw(st.booleans()):
        at, where = draw(st.integers(0, len(made) - 1)), draw(st.integers(0, len(made[0]) - 1))
        made[at] = made[at][:where] + draw(st.sampled_from("0 -:.Zx+")) + made[at][where + 1 :]
    return made


def the_long_way(texts: list[str]) -> list[object]:
    """Each alone, between texts of other lengths."""
    column = pl.col("t").str.replace(r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) ", "${1}T")
    return pl.DataFrame({"t": texts}).select(parse_timestamp(column)).to_series().to_physical().to_list()


@given(columns())
@settings(max_examples=examples(300))
def test_they_are_read_as_any_other(texts: list[str]) -> None:
    read = pl.DataFrame({"t": texts}).select(parse_iso(pl.col("t"), Scalar.TIMESTAMP)).to_series()
    assert read.to_physical().to_list() == the_long_way(texts)
    known = plain_times(pl.Series(texts))
    for at, made in enumerate([] if known is None else known.to_physical().to_list()):
        assert made is None or made == the_long_way(texts)[at]


def test_what_is_plain_is_read_at_once() -> None:
    texts = ["2024-02-29 23:59:59.987654", "1969-12-31T00:00:00.000001", "0000-01-01 00:00:00.999999"]
    known = plain_times(pl.Series(texts))
    assert known is not None and known.null_count() == 0 and known.to_physical().to_list() == the_long_way(texts)
    assert plain_times(pl.Series(["2024-02-30 00:00:00"])).null_count() == 1  # type: ignore[union-attr]
    assert plain_times(pl.Series(["2024-02-01 00:00:00", "2024-02-01"])) is None
    assert plain_times(pl.Series([], dtype=pl.String)) is None
