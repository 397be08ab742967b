"""`braid infer`: what it prints binds, to columns of the file's types."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.face.infer import columns_of, statement
from braid.types import Array, Column, Decimal, Map, Scalar, Struct
from cli_help import braid

CSV = """order_id,Customer,placed,amount,day,ok,note,zip
1,ann,2024-03-01T08:00:00Z,1.50,2024-03-01,true,,01
2,"b, o",2024-03-01T08:00:01.5+01:00,2,2024-03-02,false,,x2
"""

pytestmark = pytest.mark.usefixtures("folder")


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
    schema = {"k": pl.Int16, "m": entries, "p": pl.Decimal(10, 2), "b": pl.Binary, "n": pl.Time, "r": pl.Float32}
    pl.DataFrame(schema=schema).write_parquet("x.parquet")
    assert columns_of("x.parquet") == [
        Column("k", Scalar.SMALLINT),
        Column("m", Map(Scalar.VARCHAR, Scalar.INT)),
        Column("p", Decimal(10, 2)),
        Column("b", Scalar.BYTES),
        Column("n", Scalar.TIME),
        Column("r", Scalar.REAL),
    ]
    assert "K INT," in statement("x.parquet", "ksqldb") and "R DOUBLE)" in statement("x.parquet", "ksqldb")
    pl.DataFrame(schema={"k": pl.Int16, "r": pl.Float32}).write_parquet("y.parquet")
    assert "(k SMALLINT, r REAL)" in statement("y.parquet", "risingwave")


GUESSED = [  # a file, and what is guessed of it
    ("zip,phone\n01234,+4912\n00501,+3344\n", "zip VARCHAR, phone VARCHAR"),
    ("d,t\n31.12.2024,10:15\n01.02.2023,23:59:59\n", "d VARCHAR, t TIME"),
    ("d,t\n12/31/2024,2024-05\n", "d VARCHAR, t VARCHAR"),
    ("a,b\n9223372036854775808,1e3\n1,.5\n", "a DECIMAL(38, 0), b DOUBLE"),
    ("a,t\n1,2024-01-01\n2,2024-01-01T08:00:00+02:00\n3,2024-01-01 08:00:00.5\n", "a BIGINT, t TIMESTAMP"),
    ("id,name,,note,\n1,a,,x,\n", "id BIGINT, name VARCHAR, note VARCHAR"),
    ("id, name , n\n1, a , 2.5\n", "id BIGINT, name VARCHAR, n DOUBLE"),
    ("id;name;n\n1;a;1,5\n2;b,c;2\n", "id BIGINT, name VARCHAR, n VARCHAR"),
    ("id\tn\n1\t2.5\n", "id BIGINT, n DOUBLE"),
    ("id|n\n1|true\n", "id BIGINT, n BOOLEAN"),
    ("id,n\n1,2\n2\n3,4,5\n", "id BIGINT, n BIGINT"),
    ("id,n\n" + "1,2\n" * 12_000 + "1,x\n", "id BIGINT, n VARCHAR"),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("text", "guessed"), GUESSED)
def test_what_is_guessed_can_be_read(text: str, guessed: str, folder: Path) -> None:
    (folder / "x.csv").write_text(text)
    assert ", ".join(f"{c.name} {c.type}" for c in columns_of("x.csv")) == guessed
    said = braid("sql", "--dialect", "ksqldb", "--source", "x=x.csv", stdin="SELECT * FROM x EMIT CHANGES;")
    whole = [line for line in text.splitlines() if line not in ("2", "3,4,5")]
    assert f"{len(whole) - 1} row" in said.err, said.err


def test_large_numbers_categories_and_maps(folder: Path) -> None:
    schema = {"u": pl.UInt64, "c": pl.Categorical, "e": pl.Enum(["a"])}
    pl.DataFrame(schema=schema).write_parquet("x.parquet")
    assert [str(c.type) for c in columns_of("x.parquet")] == ["DECIMAL(20, 0)", "VARCHAR", "VARCHAR"]
    made = pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    pq.write_table(made, "y.parquet")
    assert columns_of("y.parquet") == [Column("m", Map(Scalar.VARCHAR, Scalar.BIGINT))]
    (folder / "x.jsonl").write_text('\ufeff{"a":12345678901234567890,"d":"31.12.2024"}\n')
    assert [str(c.type) for c in columns_of("x.jsonl")] == ["DECIMAL(38, 0)", "VARCHAR"]


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
    (folder / "list.jsonl").write_text('[{"a": 1}]\n')
    assert "one JSON object" in braid("infer", "list.jsonl").err
    (folder / "bad.jsonl").write_text('{"a": 1}\n{"a": 1,}\n')
    assert "bad.jsonl cannot be read: line 2, column " in braid("infer", "bad.jsonl").err
    (folder / "list.jsonl").write_text('{"a": 1}\n[1]\n')
    assert "list.jsonl cannot be read: line 2 is no JSON object" in braid("infer", "list.jsonl").err
    for name in ("wide.csv", "wide.jsonl"):
        for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
            (folder / name).write_bytes('{"a": 1}\n{"a": 2}\n'.encode(encoding))
            said = braid("infer", name)
            assert said.code == 1 and f"{name} is not UTF-8 text, but UTF-16" in said.err and "iconv" in said.err
    (folder / "note.csv").write_text("# of May\na,b\n1,2\n")
    assert "2 fields, the header has 1" in braid("infer", "note.csv").err
    (folder / "same.csv").write_text("a,b,a\n1,2,3\n")
    assert "has 2 columns a" in braid("infer", "same.csv").err
    (folder / "t.csv").write_text("a\n1\n")
    assert (
        "needs a key" in braid("infer", "t.csv", "--table").err
        and "no column" in braid("infer", "t.csv", "--key", "b").err
    )


@pytest.mark.parametrize("dialect", ["ksqldb", "sqlstream", "lenses"])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_column_of_milliseconds_is_the_time(dialect: str, ending: str, folder: Path) -> None:
    frame = pl.DataFrame({"id": [1, 2], "at": [1_709_251_200_000, 1_709_251_300_000], "paid": [1_709_251_200, 2]})
    _write(frame, folder / f"x.{ending}")
    said = braid("infer", f"x.{ending}", "--dialect", dialect, "--key", "id").out
    assert {"ksqldb": "timestamp = 'AT'", "sqlstream": "ROWTIME 'AT'", "lenses": "EVENTTIME BY at"}[dialect] in said
    checked = braid("check", "-e", said, "--dialect", dialect)
    assert "no problem" in checked.out, said + checked.err


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(("unit", "by", "rate"), [("seconds", "* 1000", 1), ("microseconds", "/ 1000", 10**6)])
def test_other_units_are_told(ending: str, unit: str, by: str, rate: int, folder: Path) -> None:
    frame = pl.DataFrame({"id": [1, 2], "at": [1_709_251_200 * rate, 1_709_251_300 * rate], "n": [None, 5]})
    _write(frame, folder / f"x.{ending}")
    first, *rest = braid("infer", f"x.{ending}").out.splitlines()
    assert first.startswith("-- at looks like " + unit) and first.endswith(f"(at {by})")
    assert "timestamp" not in "".join(rest)


def test_names_and_columns_of_a_parquet_file_are_taken_as_they_are(folder: Path) -> None:
    """A column without a number in it, a file whose name looks like a glob, a name that would end the line."""
    schema = {"none": pl.Int64, "at": pl.Int64, "s\nDROP": pl.Int64}
    frame = pl.DataFrame({"none": [None], "at": [1_709_251_200_000], "s\nDROP": [1_709_251_200]}, schema=schema)
    frame.write_parquet(folder / "x[1].parquet")
    said = braid("infer", "x[1].parquet", "--name", "x")
    assert said.code == 0, said.err
    assert said.out.startswith(r"-- s\nDROP looks like seconds since 1970") and "timestamp = 'AT'" in said.out


def test_two_columns_of_times_are_for_the_reader_to_choose(folder: Path) -> None:
    frame = pl.DataFrame({"made": [1_709_251_200_000], "paid": [1_709_251_300_000]})
    _write(frame, folder / "x.csv")
    assert "timestamp" not in braid("infer", "x.csv").out


def _write(frame: pl.DataFrame, path: Path) -> None:
    match path.suffix:
        case ".csv":
            frame.write_csv(path)
        case ".parquet":
            frame.write_parquet(path)
        case _:
            frame.write_ndjson(path)
