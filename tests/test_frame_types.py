"""Which types of DataFrames are taken, what rows are as DataFrames: no value changes, and what has no type is named."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from braid.errors import BraidError
from braid.face.cells import Rows
from braid.spark.dataframes import _rows_of
from braid.spark.frame_types import readable
from braid.types import Array, Scalar

BIG = [1, None, 2**53 + 1, 2**63 - 1, -(2**63)]


def taken(frame: Any) -> list[Any]:
    return list(readable(_rows_of(frame))["v"].to_list())


def test_what_is_taken_keeps_its_values() -> None:
    assert taken(pd.DataFrame({"v": pd.array(BIG, dtype="Int64")})) == BIG
    assert taken(pl.DataFrame({"v": pl.Series([1, -(2**100), None], dtype=pl.Int128)})) == [1, -(2**100), None]
    assert taken(pd.DataFrame({"v": pd.Series([1.5, 2], dtype="float16")})) == [1.5, 2.0]
    assert taken(pd.DataFrame({"v": pd.Categorical(["b", None, "a"])})) == ["b", None, "a"]
    assert taken(pa.table({"v": pa.array([Decimal("1.50")], pa.decimal128(9, 2))})) == [Decimal("1.50")]
    assert taken(pl.DataFrame({"v": [[1, None], []]})) == [[1, None], []]
    when = dt.datetime(2024, 7, 1, 12)
    assert taken(pl.DataFrame({"v": pl.Series([when], dtype=pl.Datetime("ns"))})) == [when]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"v": pd.to_timedelta(["1 day"])}), r"column v has the type Duration"),
        (pl.DataFrame({"v": [dt.timedelta(days=1)]}), r"column v has the type Duration"),
        (pl.DataFrame({"v": [[dt.timedelta(days=1)]]}), r"column v has the type Duration"),
        (pl.DataFrame({"v": [{"a": dt.time(8)}]}), r"column v has the type Time"),
        (pd.DataFrame({"v": [dt.time(8), None]}), r"column v has the type Time"),
        (pd.DataFrame({"v": pd.PeriodIndex(["2024-01"], freq="M")}), r"column v has the type period\[M\]"),
        (pd.DataFrame({"v": pd.interval_range(0, 1)}), r"column v has the type interval"),
        (pd.DataFrame({"v": pd.Series([2**70], dtype=object)}), "column v has whole numbers beyond 64 bits"),
        (pd.DataFrame([[1, 2]], columns=["v", "v"]), "two columns of the DataFrame are called v"),
        (pl.DataFrame({"v": [1], "V": [1]}), "differ only by case"),
        (pl.DataFrame({"v": [{"a": 1, "A": 2}]}), "fields of column v differ only by case"),
        (pl.DataFrame({"v": pl.Series([2**127 - 1], dtype=pl.Int128)}), "column v has the type Int128"),
        (pl.DataFrame({"v": pl.Series([object()], dtype=pl.Object)}), "column v has the type Object"),
        (pa.table({"v": pa.array([Decimal(1)], pa.decimal256(50, 2))}), r"column v has the type decimal256"),
        (
            pa.table({"v": pa.array([[Decimal(1)]], pa.list_(pa.decimal256(50, 2)))}),
            r"column v has the type decimal256",
        ),
        (pa.table({"v": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), r"column v has the type month_day_nano"),
        (pa.table([pa.array([1]), pa.array([2])], names=["v", "v"]), "two columns of the DataFrame are called v"),
    ],
)
def test_what_has_no_type_is_named(frame: Any, said: str) -> None:
    with pytest.raises(BraidError, match=said) as e:
        readable(_rows_of(frame))
    assert e.value.hint


def test_rows_are_the_same_in_every_library() -> None:
    lists = [[1, None], [2**53 + 1], None, [], [None]]
    rows = Rows(("v", "l", "b"), zip(BIG, lists, [True, None] * 2 + [False], strict=False))
    rows = Rows(rows.columns, rows, [Scalar.BIGINT, Array(Scalar.BIGINT), Scalar.BOOLEAN])
    found = rows.to_pandas()
    assert [None if pd.isna(x) else int(x) for x in found["v"]] == BIG
    assert [x if isinstance(x, list) else None for x in found["l"]] == lists
    assert [None if pd.isna(x) else bool(x) for x in found["b"]] == [True, None, True, None, False]
    assert rows.to_polars()["v"].to_list() == rows.to_arrow()["v"].to_pylist() == BIG
    assert str(Rows(("n",), [(1,), (2,)], [Scalar.BIGINT]).to_pandas()["n"].dtype) == "int64"
    assert Rows(("a", "a"), [(1, 2)]).to_pandas().columns.tolist() == ["a", "a_2"]
