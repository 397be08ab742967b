"""Protobuf: bodies and columns, judged by Google's own messages; .proto texts; records of a broker."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from typing import Any

import polars as pl
import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from braid.errors import BraidError
from braid.records import avro, framed, protobuf
from braid.records.facet import RecordSchema
from braid.records.proto_schema import file_of, schema_of, type_of
from braid.records.registry import Incompatible, Schema
from braid.records.schemas.named import PROTOBUF
from braid.topics.registries import StoreRegistry
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

S = Scalar
TEXT = """
syntax = "proto3";
package shop; /* comments, */ // and more
import public "google/protobuf/wrappers.proto";
import "google/type/date.proto";
option java_package = "a.b";
message Order {
  option deprecated = true;
  reserved 90 to 99, 100;
  int32 a = 1; uint32 u = 2; sint64 s = 3; fixed32 f = 4; uint64 big = 5; float r = 6;
  optional int32 o = 7 [deprecated = true, json_name = "x{"];
  repeated Part parts = 8;
  map<string, .shop.Order.Part> named = 9;
  oneof choice { string left = 10; int64 right = 11; }
  google.protobuf.Int32Value w = 12;
  google.type.Date d = 13;
  Kind kind = 14;
  Order inner = 15;
  bytes raw = 16;
  message Part { string name = 1; repeated Kind kinds = 2; }
}
enum Kind { option allow_alias = true; ZERO = 0; ONE = 1; EINS = 1; }
message Other { bool yes = 1; }
service Nothing { rpc Go (Order) returns (Other) { option x = "}"; } }
"""
PART = Struct((Column("NAME", S.VARCHAR), Column("KINDS", Array(S.VARCHAR))))
COLUMNS = [
    Column("A", S.INT), Column("U", S.BIGINT), Column("S", S.BIGINT), Column("F", S.BIGINT), Column("BIG", S.BIGINT),
    Column("R", S.DOUBLE), Column("O", S.INT), Column("PARTS", Array(PART)), Column("NAMED", Map(S.VARCHAR, PART)),
    Column("LEFT", S.VARCHAR), Column("RIGHT", S.BIGINT), Column("W", S.INT), Column("D", S.DATE),
    Column("KIND", S.VARCHAR), Column("RAW", S.BYTES),
]  # fmt: skip


def classes(text: str) -> dict[str, Any]:
    file = file_of(text)
    return {m.name: message_factory.GetMessageClass(m) for m in file.messages()}


def order() -> Any:
    made = classes(TEXT)["Order"](a=-1, u=2**32 - 1, s=-5, f=7, big=2**63, r=0.5, o=0, right=0, kind=1, raw=b"\xff")
    made.parts.add(name="p", kinds=[1, 0])
    made.named["k"].name = "q"
    made.w.value = 0
    made.d.year, made.d.month, made.d.day = 2024, 2, 29
    made.inner.a = 3
    return made


ROW = (-1, 2**32 - 1, -5, 7, -(2**63), 0.5, 0, [{"NAME": "p", "KINDS": ["ONE", "ZERO"]}],
       [{"key": "k", "value": {"NAME": "q", "KINDS": []}}], None, 0, 0, dt.date(2024, 2, 29), "ONE",
       b"\xff")  # fmt: skip
EMPTY = (0, 0, 0, 0, 0, 0.0, None, [], [], None, None, None, None, "ZERO", b"")


def test_a_text_and_its_types() -> None:
    file = file_of(TEXT)
    assert type_of(file, file.message(), True) == Struct(tuple(COLUMNS))
    other = file.message("shop.Other")
    assert type_of(file, other, False) == Struct((Column("yes", S.BOOLEAN),))
    plain = descriptor_pb2.FileDescriptorProto()
    file.descriptor.CopyToProto(plain)
    again = file_of(base64.b64encode(plain.SerializeToString()).decode())
    assert type_of(again, again.message(), True) == Struct(tuple(COLUMNS))


def test_columns_of_messages() -> None:
    bodies = pl.Series([order().SerializeToString(), b""] * 10)
    frame, null, error = protobuf.decode_bodies(bodies, COLUMNS, file_of(TEXT), "shop.Order")
    assert error.null_count() == 20 and not null.any()
    assert frame.rows()[:2] == [ROW, EMPTY]


def test_bad_records_cost_no_others() -> None:
    bodies = [order().SerializeToString()] * 50
    for i, bad in enumerate((b"\xff", b"\x08", b"\x52\x01\xff", b"\x52\x05a")):
        bodies[7 * i] = bad
    frame, null, error = protobuf.decode_bodies(pl.Series(bodies), COLUMNS, file_of(TEXT), "shop.Order")
    assert error.is_not_null().arg_true().to_list() == [0, 7, 14, 21] and not null.any()
    assert frame["A"].drop_nulls().to_list() == [-1] * 46
    assert "failed to decode Protobuf message" in error[0]


@pytest.mark.parametrize(
    ("name", "t"),
    [("A", S.VARCHAR), ("U", S.INT), ("PARTS", PART), ("A", Array(S.INT)), ("NAMED", Array(PART)), ("D", S.TIME),
     ("KIND", S.INT), ("W", S.BOOLEAN), ("RAW", S.VARCHAR), ("A", Decimal(4, 2)), ("PARTS", Array(S.INT))],
)  # fmt: skip
def test_other_types_are_malformed(name: str, t: Type) -> None:
    bodies = pl.Series([b"", b""])
    _, _, error = protobuf.decode_bodies(bodies, [Column(name, t)], file_of(TEXT), "shop.Order")
    if (name, t) == ("A", S.VARCHAR):  # numbers have texts
        assert error.null_count() == 2
    else:
        assert error[0].startswith(f"field {name}") and (f"is no {t}" in error[1] or "[]" in error[1])


BAD_TEXTS = ["message", "message M { int32 a = ; }", "message M { Nobody a = 1; }", 'import "x.proto";', "{", "QQ==",
             "message M { int32 a = 1; int32 b = 1; }", "message M { int32 a = 0; }"]  # fmt: skip


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_bad_texts(text: str) -> None:
    with pytest.raises(BraidError):
        file_of(text).message()


# --------------------------------------------------------- round trips

scalars = st.sampled_from(
    [S.BOOLEAN, S.INT, S.BIGINT, S.REAL, S.DOUBLE, S.VARCHAR, S.BYTES, S.DATE, S.TIME, S.TIMESTAMP, Decimal(9, 3)]
)
names = st.lists(st.sampled_from("ABCDEFG"), min_size=1, max_size=3, unique=True)


def struct_of(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return names.flatmap(
        lambda n: st.tuples(*(inner for _ in n)).map(
            lambda ts: Struct(tuple(Column(x, t) for x, t in zip(n, ts, strict=True)))
        )
    )


ones = st.recursive(scalars, lambda inner: struct_of(st.one_of(inner, inner.map(Array))), max_leaves=3)
types = st.one_of(ones, ones.map(Array), ones.map(lambda t: Map(S.VARCHAR, t)))


def values(t: Type) -> st.SearchStrategy[Any]:
    match t:
        case Array(element):
            return st.lists(values(element), max_size=3)
        case Map(_, value):
            made = st.dictionaries(st.text(max_size=2), values(value), max_size=3)
            return made.map(lambda d: [{"key": k, "value": v} for k, v in d.items()])
        case Struct(fields):
            return st.fixed_dictionaries({f.name: values(f.type) for f in fields})
        case Decimal(precision, scale):
            most = 10**precision - 1
            return st.integers(-most, most).map(lambda n: decimal.Decimal(f"{n}e-{scale}"))
    return {
        S.SMALLINT: st.integers(-(2**15), 2**15 - 1),
        S.REAL: st.floats(width=32, allow_nan=False),
        S.TIMESTAMPTZ: st.integers(-(10**13), 10**14).map(lambda n: n * 1000),
        S.BOOLEAN: st.booleans(),
        S.INT: st.integers(-(2**31), 2**31 - 1),
        S.BIGINT: st.integers(-(2**63), 2**63 - 1),
        S.DOUBLE: st.floats(allow_nan=False),
        S.VARCHAR: st.text(max_size=4),
        S.BYTES: st.binary(max_size=4),
        S.DATE: st.integers(-719_162, 2_932_896),
        S.TIME: st.integers(0, 86_399_999).map(lambda n: n * 1_000_000),
        S.TIMESTAMP: st.integers(-(10**13), 10**14).map(lambda n: n * 1000),
    }[t]  # type: ignore[index]


@pytest.mark.heavy
@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(["", "OPTIONAL", "WRAPPER"]))
def test_round_trip(data: st.DataObject, nulls: str) -> None:
    columns = [Column(n, data.draw(types)) for n in data.draw(names)]
    rows = [[data.draw(values(c.type)) for c in columns] for _ in range(3)]
    frame = pl.DataFrame([avro._series(c, [r[i] for r in rows]) for i, c in enumerate(columns)])
    text = schema_of(columns, "a.b.M", nulls)
    file = file_of(text)
    assert type_of(file, file.message(), False, S.REAL) == Struct(tuple(columns))
    bodies, errors = protobuf.encode_bodies(frame, [(c.name, c) for c in columns], file)
    assert errors.null_count() == 3
    back, _, error = protobuf.decode_bodies(bodies, columns, file, "a.b.M")
    assert error.null_count() == 3
    assert_frame_equal(back, frame)
    made = classes(text)["M"]
    for b in bodies:
        assert made.FromString(b).SerializeToString(deterministic=True) is not None


@pytest.mark.parametrize("nulls", ["", "OPTIONAL", "WRAPPER"])
def test_types_that_are_wider_in_a_message(nulls: str) -> None:
    """SMALLINT is an int32, TIMESTAMPTZ a Timestamp; what is out of range costs no others."""
    columns = [Column("I", S.SMALLINT), Column("R", S.REAL), Column("Z", S.TIMESTAMPTZ)]
    wide = [Column("I", S.INT), Column("R", S.DOUBLE), Column("Z", S.TIMESTAMP)]
    file = file_of(schema_of(columns, "a.b.M", nulls))
    assert type_of(file, file.message(), False) == Struct(tuple(wide))
    rows = [[-32768, 0.10000000149011612, 5000], [32767, float("inf"), -1000]]
    frame = pl.DataFrame([avro._series(c, [r[i] for r in rows]) for i, c in enumerate(columns)])
    bodies, _ = protobuf.encode_bodies(frame, [(c.name, c) for c in columns], file)
    back, _, error = protobuf.decode_bodies(bodies, columns, file, "a.b.M")
    assert error.null_count() == 2
    assert_frame_equal(back, frame)
    double = file_of(schema_of(wide, "a.b.M", nulls))
    rows = [[1, 0.1, 0], [40000, 0.5, 0], [2, 1e39, 0], [3, float("inf"), 0]]
    frame = pl.DataFrame([avro._series(c, [r[i] for r in rows]) for i, c in enumerate(wide)])
    bodies, _ = protobuf.encode_bodies(frame, [(c.name, c) for c in wide], double)
    back, _, error = protobuf.decode_bodies(bodies, columns, double, "a.b.M")
    assert error.is_not_null().to_list() == [False, True, True, False]
    assert back["R"].to_list() == [0.10000000149011612, None, None, float("inf")]


def test_nulls() -> None:
    columns = [Column("A", S.INT), Column("B", S.VARCHAR), Column("L", Array(S.INT)), Column("D", S.DATE)]
    frame = pl.DataFrame([avro._series(c, [None]) for c in columns])
    for nulls, want in (
        ("", (0, "", [], None)),
        ("OPTIONAL", (None, None, [], None)),
        ("WRAPPER", (None, None, [], None)),
    ):
        file = file_of(schema_of(columns, "", nulls))
        bodies, _ = protobuf.encode_bodies(frame, [(c.name, c) for c in columns], file)
        assert protobuf.decode_bodies(bodies, columns, file, "ConnectDefault1")[0].rows() == [want]


# ------------------------------------------------------- records of a broker


def test_records_of_a_broker() -> None:
    registry = StoreRegistry()
    id = registry.register("t-value", Schema("PROTOBUF", TEXT))
    head = b"\0" + id.to_bytes(4, "big")
    body, other = order().SerializeToString(), classes(TEXT)["Other"](yes=True).SerializeToString()
    column = [Column("A", S.INT), Column("YES", S.BOOLEAN)]
    raw = pl.Series(
        [head + b"\0" + body, None, head + b"\2\2" + other, head + b"\2\0" + body, head + b"\2\x08", head, body,
         head + b"\0" + body]
    )  # fmt: skip
    frame, null, error = framed.decode(raw, column, registry, PROTOBUF, bare=False)
    assert frame.rows() == [(-1, None), (None, None), (None, True), (-1, None), (None, None), (None, None),
                            (None, None), (-1, None)]  # fmt: skip
    assert null.to_list() == [False, True] + [False] * 6
    assert error.is_not_null().arg_true().to_list() == [4, 5, 6]


def test_bytes_with_and_without_a_registry() -> None:
    columns = [("a", Column("A", S.INT))]
    frame = pl.DataFrame({"a": pl.Series([5, None], dtype=pl.Int32)})
    schema = Schema("PROTOBUF", schema_of([columns[0][1]]))
    made, _ = framed.encode(frame, columns, schema, (), 3, bare=False)
    assert made.to_list() == [b"\0\0\0\0\x03\0\x08\x05", b"\0\0\0\0\x03\0"]
    alone, _ = framed.encode(frame, columns, schema, (), None, bare=False)
    assert alone.to_list() == [b"\x08\x05", b""]
    raw = pl.Series([b"\x08\x05", None, b""])
    found, null, _ = framed.decode_alone(raw, [Column("A", S.INT)], PROTOBUF, bare=False, schema=RecordSchema(""))
    assert found["A"].to_list() == [5, None, 0] and null.to_list() == [False, True, False]


def test_a_message_that_is_not_the_first() -> None:
    """As Confluent's clients write it: how many places, the place, both zigzag, then what Google's Protobuf writes."""
    column = Column("yes", S.BOOLEAN)
    schema = Schema("PROTOBUF", TEXT, message="Other")
    made, errors = framed.encode(pl.DataFrame({"a": [True]}), [("a", column)], schema, (), 7, bare=False)
    assert errors.to_list() == [None]
    assert made.to_list() == [b"\0\0\0\0\7\2\2" + classes(TEXT)["Other"](yes=True).SerializeToString()]
    many = file_of('syntax = "proto3";' + "".join(f"message M{i} {{}}" for i in range(200)))
    for i in (1, 63, 64, 199):
        assert protobuf.split_indexes(protobuf.indexes(many, f"M{i}")) == ((i,), 3 if i > 63 else 2)


def test_imports_and_compatibility() -> None:
    registry = StoreRegistry()
    part = 'syntax = "proto3"; package x; message Part { int32 n = 1; }'
    registry.register("part", Schema("PROTOBUF", part))
    text = 'syntax = "proto3"; import "part.proto"; message M { x.Part p = 1; }'
    schema = Schema("PROTOBUF", text, (("part.proto", "part", 1),))
    registry.register("t-value", schema)
    found, _ = framed.kind_of(schema).type_of(schema, framed.others_of(registry, schema), fold=True)
    assert found == Struct((Column("P", Struct((Column("N", S.INT),))),))
    registry.register("u-value", Schema("PROTOBUF", schema_of([Column("A", S.INT), Column("B", S.VARCHAR)])))
    registry.register("u-value", Schema("PROTOBUF", schema_of([Column("A", S.BIGINT)])))
    with pytest.raises(Incompatible, match="field A: the type of number 1 has changed"):
        registry.register("u-value", Schema("PROTOBUF", schema_of([Column("A", S.VARCHAR)])))
