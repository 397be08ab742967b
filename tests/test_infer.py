"""`braid infer`: what it prints binds, to columns of the file's types."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from braid.infer import columns_of
from braid.types import Array, Column, Decimal, Map, Scalar, Struct
from cli_help import braid

CSV = """order_id,Customer,placed,amount,day,ok,note,zip
1,ann,2024-03-01T08:00:00Z,1.50,2024-03-01,true,,01
2,"b, o",2024-03-01T08:00:01.5+01:00,2,2024-03-02,false,,x2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_csv(folder: Path) -> None:
    (folder / "my orders.csv").write_text(CSV)
    (folder / "packed.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    for path in ("my orders.csv", "packed.csv.gz"):
        assert columns_of(path) == [
            Column("order_id", Scalar.BIGINT),
            Column("Customer", Scalar.VARCHAR),
            Column("placed", Scalar.TIMESTAMP),
            Column("amount", Scalar.DOUBLE),
            Column("day", Scalar.DATE),
            Column("ok", Scalar.BOOLEAN),
            Column("note", Scalar.VARCHAR),
            Column("zip", Scalar.VARCHAR),
        ]
    said = braid("infer", "my orders.csv", "--key", "order_id").out
    assert said.startswith("CREATE STREAM MY_ORDERS (ORDER_ID BIGINT KEY, CUSTOMER STRING, PLACED TIMESTAMP,")
    assert "timestamp = 'PLACED'" in said and "kafka_topic = 'my_orders'" in said


def test_json_and_parquet(folder: Path) -> None:
    (folder / "x.jsonl").write_text('{"a":1,"b":{"c":[1.5]},"t":"2024-01-01T00:00:00Z","d":"2024-01-01","s":"2024"}\n')
    assert columns_of("x.jsonl") == [
        Column("a", Scalar.BIGINT),
        Column("b", Struct((Column("c", Array(Scalar.DOUBLE)),))),
        Column("t", Scalar.TIMESTAMP),
        Column("d", Scalar.DATE),
        Column("s", Scalar.VARCHAR),
    ]
    entries = pl.List(pl.Struct({"key": pl.String, "value": pl.Int32}))
    schema = {"k": pl.Int16, "m": entries, "p": pl.Decimal(10, 2), "b": pl.Binary, "n": pl.Time}
    pl.DataFrame(schema=schema).write_parquet("x.parquet")
    assert columns_of("x.parquet") == [
        Column("k", Scalar.INT),
        Column("m", Map(Scalar.VARCHAR, Scalar.INT)),
        Column("p", Decimal(10, 2)),
        Column("b", Scalar.BYTES),
        Column("n", Scalar.TIME),
    ]


@pytest.mark.parametrize("dialect", ["ksqldb", "risingwave", "sqlstream", "lenses"])
@pytest.mark.parametrize(
    "more", [(), ("--key", "Order_Id"), ("--key", "order_id", "--table"), ("--name", "shop_orders")]
)
def test_what_is_printed_binds(dialect: str, more: tuple[str, ...], folder: Path) -> None:
    (folder / "orders.csv").write_text(CSV if dialect != "lenses" else CSV.replace("zip", "_key"))
    said = braid("infer", "orders.csv", "--dialect", dialect, *more)
    assert said.code == 0, said.err
    checked = braid("check", "-e", said.out, "--dialect", dialect)
    assert "1 statement, no problem" in checked.out, said.out + checked.err


@pytest.mark.parametrize(
    ("more", "count"), [((), 1), (("--key", "Order_Id"), 2), (("--key", "order_id", "--table"), 3)]
)
def test_lenses_without_a_column_of_keys(more: tuple[str, ...], count: int, folder: Path) -> None:
    (folder / "my orders.csv").write_text(CSV)
    said = braid("infer", "my orders.csv", "--dialect", "lenses", *more)
    assert "_key STRING, order_id LONG" in said.out
    assert count == 1 or "SELECT STREAM order_id AS _key, _value.* FROM my_orders" in said.out
    checked = braid("check", "-e", said.out, "--dialect", "lenses")
    assert f"{count} statement{'s' * (count > 1)}, no problem" in checked.out, said.out + checked.err


def test_what_cannot_be_read(folder: Path) -> None:
    (folder / "x.xml").write_text("<a/>")
    (folder / "x.parquet").write_text("nonsense")
    (folder / "x.csv.gz").write_text("nonsense")
    (folder / "x.jsonl").write_text("nonsense\n")
    (folder / "twice.csv").write_text("a,A\n1,2\n")
    assert "its ending is not known" in braid("infer", "x.xml").err
    assert "there is no file none.csv" in braid("infer", "none.csv").err
    for name in ("x.parquet", "x.csv.gz", "x.jsonl"):
        said = braid("infer", name)
        what = "is not a Parquet file" if name == "x.parquet" else "cannot be read"
        assert said.code == 1 and f"{name} {what}" in said.err and len(said.err.splitlines()) <= 2
    (folder / "y.csv").write_text("a\n1\n")
    assert "needs a key" in braid("infer", "y.csv", "--dialect", "lenses", "--table").err
    assert "y has no column b" in braid("infer", "y.csv", "--dialect", "lenses", "--key", "b").err
    assert "differ only by case" in braid("infer", "twice.csv").err
    (folder / "t.csv").write_text("a\n1\n")
    assert (
        "needs a key" in braid("infer", "t.csv", "--table").err
        and "no column" in braid("infer", "t.csv", "--key", "b").err
    )
