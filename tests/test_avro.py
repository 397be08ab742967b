"""Avro bytes: columns to bodies and back, judged by fastavro; bad records; records of a broker; registries."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import struct
from typing import Any

import fastavro
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from braid.bind.catalog import Catalog
from braid.bind.program import Program
from braid.errors import BraidError, SqlError
from braid.lower.lower import lower
from braid.operators.changes import HEADERS, TIME
from braid.plan.logical import Source, SourceColumn
from braid.records import avro, avro_write, framed
from braid.records.avro_schema import VALUE_NAME, BadSchema, parsed, schema_of, type_of, unreadable
from braid.records.encoding import Encoding
from braid.records.facet import RecordSchema
from braid.records.registry import Incompatible, Schema, UnknownSchema
from braid.records.schemas.named import AVRO
from braid.stage.decode import decode
from braid.stage.drops import DROPS, too_large
from braid.stage.emit import key_texts, on_wire, written
from braid.stage.ingest import Chunk
from braid.stage.local import LocalQuery
from braid.testing import Driver
from braid.topics.envelope import RAW
from braid.topics.registries import Address, Folder, StoreRegistry, address_of, opened
from braid.types import FLOATS, WHOLE_NUMBERS, Array, Column, Decimal, Map, Scalar, Struct, Type

S = Scalar


def body(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields]}


def read(schema: Any, bodies: list[bytes], columns: list[Column], bare: bool = False) -> list[tuple[Any, ...]]:
    """Values, or errors; the same whether read one by one or at once."""
    writer = parsed(json.dumps(schema))
    slow = (
        avro._one_by_one(bodies, columns, writer, bare, None) if avro._misread(writer, columns, bare) is None else None
    )
    many = avro.decode_bodies(pl.Series(bodies * 40, dtype=pl.Binary), columns, writer, bare=bare)
    frame, _, errors = avro.decode_bodies(pl.Series(bodies, dtype=pl.Binary), columns, writer, bare=bare)
    assert_frame_equal(many[0].head(len(bodies)), frame)
    assert many[2].head(len(bodies)).to_list() == errors.to_list()
    if slow is not None:
        assert_frame_equal(slow[0], frame)
    return [(e,) if e is not None else row for row, e in zip(frame.rows(), errors, strict=True)]


UUID = "0e0c2f3e-0000-4000-8000-000000000000"
FIXED = {"type": "fixed", "name": "F", "size": 12}
TWELVE = b"\x00\x01\x02\xff\xff\xff\xff\xf0\x7f\xf8\x00\x01"
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
VALUES: list[tuple[Any, Any, Type, Any]] = [
    ("boolean", True, S.BOOLEAN, True),
    ("int", -5, S.INT, -5),
    ("int", 5, S.BIGINT, 5),
    ("int", 5, S.DOUBLE, 5.0),
    ("int", 5, S.VARCHAR, "5"),
    ("long", 2**62, S.BIGINT, 2**62),
    ("long", 7, S.VARCHAR, "7"),
    ("boolean", False, S.VARCHAR, "false"),
    ("int", -32768, S.SMALLINT, -32768),
    ("int", 5, S.REAL, 5.0),
    ("float", 0.10000000149011612, S.REAL, 0.10000000149011612),
    ("double", 0.1, S.REAL, 0.10000000149011612),
    ("double", float("inf"), S.REAL, float("inf")),
    ("float", 0.5, S.DOUBLE, 0.5),
    ("double", 1e300, S.DOUBLE, 1e300),
    ("double", 1.5, S.VARCHAR, "1.5"),
    ("string", "é", S.VARCHAR, "é"),
    ({"type": "string", "logicalType": "uuid"}, UUID, S.VARCHAR, UUID),
    ("bytes", b"\xff\x00", S.BYTES, b"\xff\x00"),
    (FIXED, TWELVE, S.BYTES, TWELVE),
    ({"type": "fixed", "name": "G", "size": 3}, b"abc", S.BYTES, b"abc"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", S.VARCHAR, "B"),
    ({"type": "int", "logicalType": "date"}, 20000, S.DATE, dt.date(2024, 10, 4)),
    ({"type": "int", "logicalType": "time-millis"}, 3_600_001, S.TIME, dt.time(1, 0, 0, 1000)),
    ({"type": "long", "logicalType": "time-micros"}, 3_600_000_001, S.TIME, dt.time(1, 0, 0, 1)),
    (MILLIS, -1, S.TIMESTAMP, dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ({"type": "long", "logicalType": "timestamp-micros"}, 1, S.TIMESTAMP, dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
    (MILLIS | {"logicalType": "timestamp-nanos"}, -1, S.TIMESTAMP, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 1, S.TIMESTAMP, dt.datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (MILLIS, -1, S.TIMESTAMPTZ, dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ({"type": "long", "logicalType": "timestamp-millis"}, 5, S.BIGINT, 5),
    ("long", 5, S.TIMESTAMP, dt.datetime(1970, 1, 1, 0, 0, 0, 5000)),
    ({"type": "array", "items": ["null", "int"]}, [1, None], Array(S.INT), [1, None]),
    ({"type": "array", "items": {"type": "array", "items": "string"}}, [["a"], []],
     Array(Array(S.VARCHAR)), [["a"], []]),
    ({"type": "map", "values": "long"}, {"a": 1}, Map(S.VARCHAR, S.BIGINT), [{"key": "a", "value": 1}]),
    (record(("x", "int"), ("Y", "string")) | {"name": "N"}, {"x": 1, "Y": "s"},
     Struct((Column("X", S.INT), Column("z", S.DATE), Column("y", S.VARCHAR))), {"X": 1, "z": None, "y": "s"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given_", "t", "want"), VALUES, ids=[f"{v[0]}-{v[2]}"[:60] for v in VALUES])
@pytest.mark.parametrize("nullable", [False, True])
def test_each_type(kind: Any, given_: Any, t: Type, want: Any, nullable: bool) -> None:
    raw = given_
    plain = json.loads(json.dumps(kind).replace('"logicalType"', '"was"'))  # fastavro would take Python's dates
    schema = record(("first", "string"), ("v", ["null", plain] if nullable else plain), ("last", "int"))
    bodies = [body(schema, {"first": "a", "v": raw, "last": 3})]
    with_logical = record(("first", "string"), ("v", ["null", kind] if nullable else kind), ("last", "int"))
    if nullable:
        bodies.append(body(schema, {"first": "a", "v": None, "last": 3}))
    columns = [Column("LAST", S.INT), Column("V", t), Column("MISSING", t)]
    got = read(with_logical, bodies, columns)
    assert got == [(3, want, None), (3, None, None)][: len(bodies)]
    bare = [body(plain, raw)]
    assert read(kind, bare, [Column("V", t)], bare=True) == [(want,)]


@pytest.mark.parametrize(
    ("kind", "value", "t", "why"),
    [("int", 40000, S.SMALLINT, "40000 is out of range for SMALLINT"),
     ("int", -32769, S.SMALLINT, "-32769 is out of range for SMALLINT"),
     ("double", 1e39, S.REAL, "1e+39 is out of range for REAL")],
)  # fmt: skip
def test_what_is_out_of_range_costs_no_others(kind: str, value: Any, t: Type, why: str) -> None:
    schema = record(("v", kind))
    got = read(schema, [body(schema, {"v": v}) for v in (1, value, 2)], [Column("V", t)])
    assert got == [(1,), (why,), (2,)]


def test_what_a_float_is_is_told() -> None:
    schema = parsed(json.dumps(record(("v", "float"), ("l", {"type": "array", "items": "float"}), ("d", "double"))))
    for t in (S.DOUBLE, S.REAL):
        columns = (Column("v", t), Column("l", Array(t)), Column("d", S.DOUBLE))
        assert type_of(schema, False, t) == Struct(columns)


@pytest.mark.parametrize("size", [None, 5, 16, 20])
def test_decimals(size: int | None) -> None:
    kind = {"type": "bytes"} if size is None else {"type": "fixed", "name": "D", "size": size}
    schema = record(("v", ["null", kind | {"logicalType": "decimal", "precision": 10, "scale": 2}]))
    values = [decimal.Decimal(n).scaleb(-2) for n in (0, 1, -1, 127, 128, -128, -129, 9_999_999_999, -9_999_999_999)]
    bodies = [body(schema, {"v": v}) for v in values] + [body(schema, {"v": None})]
    assert read(schema, bodies, [Column("V", Decimal(10, 2))]) == [(v,) for v in [*values, None]]
    assert read(schema, bodies[:2], [Column("V", Decimal(12, 4))]) == [(v,) for v in values[:2]]
    too_long = read(schema, bodies[7:8], [Column("V", Decimal(4, 2))])
    assert too_long == [("9999999999e-2 has too many digits for DECIMAL(4, 2)",)] or "too many digits" in too_long[0][0]


def test_what_pyruhvro_has_not() -> None:
    tree: dict[str, Any] = record(("v", "int"), ("next", ["null", "R"]))
    bodies = [body(tree, {"v": 1, "next": {"v": 2, "next": None}})]
    inner = Struct((Column("V", S.INT),))
    assert read(tree, bodies, [Column("V", S.INT), Column("NEXT", inner)]) == [(1, {"V": 2})]
    wide = record(("u", ["null", "int", "string"]), ("v", "int"))
    bodies = [body(wide, {"u": u, "v": 1}) for u in (5, "x", None)]
    union = Struct((Column("INT", S.INT), Column("STRING", S.VARCHAR)))
    assert type_of(parsed(json.dumps(wide)), True) == Struct((Column("U", union), Column("V", S.INT)))
    want = [({"INT": 5, "STRING": None}, 1), ({"INT": None, "STRING": "x"}, 1), (None, 1)]
    assert read(wide, bodies, [Column("U", union), Column("V", S.INT)]) == want
    assert read(wide, bodies, [Column("V", S.INT)]) == [(1,)] * 3
    empty = record(("e", record() | {"name": "E"}), ("v", "int"))
    assert read(empty, [body(empty, {"e": {}, "v": 1})], [Column("V", S.INT)]) == [(1,)]


def test_bad_records_cost_no_others() -> None:
    schema = record(("v", "string"), ("n", "int"), ("d", {"type": "int", "logicalType": "time-millis"}))
    good = body(schema | {}, {"v": "x", "n": 1, "d": dt.time(0, 0, 1)})
    bad = {
        b"": "the record ends before its schema does",
        b"\x02": "the record ends before its schema does",
        b"\xfe\xff\xff\xff\xff\xff\x01a": "the record ends before its schema does",
        b"\x02\xff\x02\x02": "b'\\xff' is not UTF-8",
        b"\x02x\x80\x80\x80\x80\x80\x80\x01\x02": "2199023255552 is out of range",
        b"\x02x\x02\x01": "-1 is out of range for TIME",
        b"\x02x" + b"\xff" * 11: "a number has more than 64 bits",
    }
    bodies = [good] * 100
    for i, b in enumerate(bad):
        bodies[10 * i + 5] = b
    columns = [Column("V", S.VARCHAR), Column("N", S.INT), Column("D", S.TIME)]
    frame, null, error = avro.decode_bodies(pl.Series(bodies), columns, parsed(json.dumps(schema)), bare=False)
    found = {i: e for i, e in enumerate(error) if e is not None}
    assert list(found) == [5, 15, 25, 35, 45, 55, 65] and not null.any()
    assert all(why in e for why, e in zip(bad.values(), found.values(), strict=True)), found
    assert frame["V"].null_count() == 7 and frame["N"].drop_nulls().to_list() == [1] * 93
    assert frame["D"].drop_nulls().unique().to_list() == [dt.time(0, 0, 1)]


@pytest.mark.parametrize(
    ("kind", "t"),
    [("long", S.INT), ("string", S.INT), ("string", S.BYTES), ("int", S.BOOLEAN), ("bytes", Decimal(4, 2)),
     ("string", Array(S.INT)), ({"type": "array", "items": "string"}, Array(S.INT)), ("double", S.BIGINT)],
)  # fmt: skip
def test_other_types_are_malformed(kind: Any, t: Type) -> None:
    """Every record of such a writer is malformed, and says why."""
    schema = record(("v", ["null", kind]))
    ((why,),) = read(schema, [body(schema, {"v": None})], [Column("V", t)])
    assert why.startswith("field V") and " is no " in why
    assert read(schema, [body(schema, {"v": None})], [Column("W", t)]) == [(None,)]


def test_bombs() -> None:
    """A few bytes that claim to be millions of values are refused at once."""
    nulls = record(("l", {"type": "array", "items": "null"}), ("v", "int"))
    (why,) = read(nulls, [b"\xfe\xff\xff\xff\x0f\x00\x02"], [Column("V", S.INT)])[0]
    assert why == "the record ends before its schema does"
    with pytest.raises(BadSchema):
        parsed("[" * 5000 + "]" * 5000)
    with pytest.raises(BadSchema):
        parsed(json.dumps(record(("v", "nobody"))))


# --------------------------------------------------------- round trips

scalars = st.sampled_from(
    [*(s for s in Scalar if s not in (S.NULL, S.INTERVAL, S.JSONB)), Decimal(9, 3), Decimal(38, 10)]
)
names = st.lists(st.sampled_from("ABCDEFG"), min_size=1, max_size=3, unique=True)
types = st.recursive(
    scalars,
    lambda inner: st.one_of(
        inner.map(Array),
        st.tuples(st.just(S.VARCHAR), inner).map(lambda p: Map(*p)),
        names.flatmap(lambda n: st.tuples(*(inner for _ in n)).map(
            lambda ts: Struct(tuple(Column(x, t) for x, t in zip(n, ts, strict=True))))),
    ),
    max_leaves=4,
)  # fmt: skip


def values(t: Type) -> st.SearchStrategy[Any]:
    match t:
        case Array(element):
            return st.lists(st.none() | values(element), max_size=3)
        case Map(_, value):
            made = st.dictionaries(st.text(max_size=2), st.none() | values(value), max_size=3)
            return made.map(lambda d: [{"key": k, "value": v} for k, v in d.items()])
        case Struct(fields):
            return st.fixed_dictionaries({f.name: st.none() | values(f.type) for f in fields})
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


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], pl.DataFrame]:
    columns = [Column(n, draw(types)) for n in draw(names)]
    height = draw(st.sampled_from([1, 3, 40]))
    some = [draw(st.lists(st.none() | values(c.type), min_size=1, max_size=5)) for c in columns]
    return columns, pl.DataFrame(
        [avro._series(c, [v[i % len(v)] for i in range(height)]) for c, v in zip(columns, some, strict=True)]
    )


def as_python(v: Any, t: Type) -> Any:
    """What fastavro gives for a physical value."""
    if v is None:
        return None
    match t:
        case Array(element):
            return [as_python(x, element) for x in v]
        case Map(_, value):
            return [{"key": e["key"], "value": as_python(e["value"], value)} for e in v]
        case Struct(fields):
            return {f.name: as_python(v[f.name], f.type) for f in fields}
    return v


@pytest.mark.heavy
@settings(max_examples=150, deadline=None)
@given(tables())
def test_round_trip_against_fastavro(table: tuple[list[Column], pl.DataFrame]) -> None:
    columns, frame = table
    text = schema_of(columns, VALUE_NAME, bare=False)
    schema, theirs = parsed(text), fastavro.parse_schema(json.loads(text))
    bodies, errors = avro_write.encode_bodies(frame, [(c.name, c) for c in columns], schema, bare=False)
    assert errors.null_count() == frame.height
    one_by_one, _ = avro_write._one_by_one(frame, tuple(columns), schema, False, frame.height)
    assert bodies.to_list() == one_by_one.to_list()
    back, null, error = avro.decode_bodies(bodies, columns, schema, bare=False)
    assert error.null_count() == frame.height and not null.any()
    assert_frame_equal(back, frame)
    physical = [frame[c.name].to_list() for c in columns]
    for i, b in enumerate(bodies.to_list()[:5]):
        found = fastavro.schemaless_reader(io.BytesIO(b), theirs)
        assert body(theirs, found) == b
        for c, v in zip(columns, physical, strict=True):
            if c.type in (*WHOLE_NUMBERS, *FLOATS, S.VARCHAR, S.BYTES, S.BOOLEAN, S.DATE) or isinstance(
                c.type, Decimal
            ):
                assert found[c.name] == v[i]


# --------------------------------------------------------------- writing


def write(schema: Any, columns: list[Column], rows: list[list[Any]]) -> list[Any]:
    frame = pl.DataFrame([avro._series(c, [r[i] for r in rows]) for i, c in enumerate(columns)])
    pairs = [(c.name, c) for c in columns]
    bodies, errors = avro_write.encode_bodies(frame, pairs, parsed(json.dumps(schema)), bare=False)
    theirs = fastavro.parse_schema(json.loads(json.dumps(schema)))
    return [
        e if e is not None else fastavro.schemaless_reader(io.BytesIO(b), theirs)
        for b, e in zip(bodies.to_list(), errors, strict=True)
    ]


def test_writing_by_a_schema_of_others() -> None:
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": ["null", {"type": "fixed", "name": "F", "size": 2}]},
        {"name": "g", "type": "float"},
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "more", "type": "string", "default": "d"},
        {"name": "opt", "type": ["null", "string"], "default": None},
        {"name": "first", "type": ["int", "null"], "default": 4},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "deep", "type": record(("x", "int")) | {"name": "D"}, "default": {"x": 1}},
        {"name": "many", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
    ]}  # fmt: skip
    columns = [Column("A", S.INT), Column("E", S.VARCHAR), Column("F", S.BYTES), Column("G", S.DOUBLE),
               Column("M", Map(S.VARCHAR, S.BIGINT))]  # fmt: skip
    rest = {"more": "d", "opt": None, "first": 4, "raw": b"\xff", "deep": {"x": 1}, "many": [1, 2]}
    entry = [{"key": "k", "value": 1}]
    got = write(schema, columns, [[1, "X", b"ab", 0.5, entry], [2, "Z", None, 0.5, []], [None, "X", None, 1.0, []],
                                  [3, "Y", b"abc", 0.5, []], [4, "Y", None, 0.5, []]])  # fmt: skip
    assert got[0] == {"a": 1, "e": "X", "f": b"ab", "g": 0.5, "m": {"k": 1}} | rest
    assert got[1:4] == ["field e: 'Z' is no symbol of the enum E", "field a: null is no int",
                        "field f: 3 bytes for fixed(2)"]  # fmt: skip
    assert got[4] == {"a": 4, "e": "Y", "f": None, "g": 0.5, "m": {}} | rest
    required = record(("a", "int"), ("b", "string"))
    assert write(required, [Column("A", S.INT)], [[1]] * 20) == ["field b has no value and no default"] * 20


# ------------------------------------------------------- records of a broker


def head(id: int) -> bytes:
    return b"\0" + struct.pack(">I", id)


def raw_records(*records: tuple[Any, Any]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "_offset": range(len(records)), TIME: range(len(records)), "_key": [k for k, _ in records],
            "_value": [v for _, v in records], HEADERS: [None] * len(records), "_window": [None] * len(records),
            "_error": [None] * len(records),
        },
        schema={**RAW, "_key": pl.Binary(), "_value": pl.Binary()},
    )  # fmt: skip


def test_records_of_a_broker() -> None:
    registry = StoreRegistry()
    key = registry.register("t-key", Schema("AVRO", '"int"'))
    old = registry.register("t-value", Schema("AVRO", json.dumps(record(("v", "int")))))
    other: Any = record(("v", "long"), ("w", ["null", "string"]))
    new = registry.register("t-value", Schema("AVRO", json.dumps(other)), checked=False)
    columns = (
        SourceColumn("T.K", "K", Column("K", S.INT), "key"),
        SourceColumn("T.V", "V", Column("V", S.BIGINT), "value"),
        SourceColumn("T.W", "W", Column("W", S.VARCHAR), "value"),
    )
    source = Source("T", "T", "t", "stream", columns, Encoding("AVRO", "AVRO"))
    k = head(key) + b"\x02"
    raw = raw_records(
        (k, head(new) + body(other, {"v": 7, "w": "x"})),
        (k, head(old) + body(record(("v", "int")), {"v": 8})),
        (None, None),
        (k, head(99) + b"\x02"),
        (k, b"{}"),
        (head(99) + b"\x02", head(old) + b"\x02"),
        (k, head(key) + b"\x02"),
        (k, head(new) + body(other, {"v": 9, "w": None})),
    )
    decoded = decode(source, raw, 0, registry)
    assert decoded.rows.select("T.K", "T.V", "T.W").rows() == [
        (1, 7, "x"), (1, 8, None), (None, None, None), (1, None, None), (1, None, None), (None, 1, None),
        (1, None, None), (1, 9, None),
    ]  # fmt: skip
    assert decoded.error.to_list() == [
        None, None, None, "schema 99: no schema has the id 99", "there is no schema id in front of the record",
        "key: schema 99: no schema has the id 99", "an int is no record", None,
    ]  # fmt: skip
    assert decoded.rows["_diff"].to_list()[2] == -1


def test_a_query_from_bytes_to_bytes() -> None:
    """What the border of a broker does: bytes in, bytes out, ids of the registry in front."""
    registry = StoreRegistry()
    program = Program("ksqldb", Catalog(registry=registry))
    text = """CREATE STREAM s (k INT KEY, v STRING, n DECIMAL(5, 1))
        WITH (kafka_topic='s', format='AVRO', partitions=1);
        CREATE STREAM o WITH (wrap_single_value=false) AS SELECT k, v FROM s WHERE n > 1;"""
    query = next(e.query for e in program.statements(text) if e.query is not None)
    k, v = registry.register("s-key", Schema("AVRO", '"int"')), record(("v", "string"), ("n", "bytes"))
    v["fields"][1]["type"] = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}
    id = registry.register("s-value", Schema("AVRO", json.dumps(v)))
    rows = [(head(k) + b"\x02", head(id) + body(v, {"v": f"x{i}", "n": decimal.Decimal(i)})) for i in range(50)]
    plan = lower(query)
    local = LocalQuery(plan, 1, 1)
    decoded = decode(plan.leaves[0].source, raw_records(*rows), 0, registry)
    frame, _ = local.results([Chunk(0, 0, 0, decoded)])
    made = on_wire(query.sink, frame, registry)
    assert made.schema["key"] == made.schema["value"] == pl.Binary
    out, keys = registry.latest("O-value"), registry.latest("O-key")
    assert out is not None and keys is not None and out[1].text == '"string"'
    assert keys[0] == k, "one schema has one id"
    assert made["value"].to_list()[:2] == [head(out[0]) + b"\x04x2", head(out[0]) + b"\x04x3"]
    assert set(made["key"].to_list()) == {head(k) + b"\x02"}
    assert written(query.sink, frame, 1)["value"].to_list()[:2] == ['"x2"', '"x3"']
    lost = too_large(frame, key_texts(query.sink, frame), pl.repeat(9, frame.height, eager=True), "o takes 8")
    assert lost.schema == pl.Schema(DROPS)  # bytes of keys did not fit beside other drops
    assert lost["key"].to_list()[0] == "1"


def test_tombstones_and_bare_nulls_have_no_bytes() -> None:
    schema = Schema("AVRO", '"int"')
    frame = pl.DataFrame({"v": pl.Series([1, None], dtype=pl.Int32)})
    made, errors = framed.encode(frame, [("v", Column("V", S.INT))], schema, (), 3, bare=True)
    assert made.to_list() == [head(3) + b"\x02", None] and errors.null_count() == 2


def test_a_chosen_schema_gives_defaults() -> None:
    registry = StoreRegistry()
    old = registry.register("t-value", Schema("AVRO", json.dumps(record(("v", "int")))))
    chosen = {"type": "record", "name": "R", "fields": [
        {"name": "v", "type": "int"}, {"name": "n", "type": "bytes", "default": "\u00ff"},
        {"name": "d", "default": "\u0001",
         "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}, "default": "A"}]}  # fmt: skip
    columns = [Column("v", S.INT), Column("n", S.BYTES), Column("d", Decimal(4, 2)), Column("e", S.VARCHAR)]
    for n in (1, 40):
        raw = pl.Series([head(old) + b"\x02"] * n)
        how = RecordSchema("R", 9, json.dumps(chosen))
        frame, _, _ = framed.decode(raw, columns, registry, AVRO, bare=False, chosen=how)
        assert frame.rows() == [(1, b"\xff", decimal.Decimal("0.01"), "A")] * n


# -------------------------------------------------------------- registries


def test_folder_registry(tmp_path: Any) -> None:
    folder = str(tmp_path / "registry")
    one, two = opened(Address(folder)), StoreRegistry(Folder(folder))
    first = Schema("AVRO", json.dumps(record(("v", "int"))))
    assert one.latest("t-value") is None
    id = one.register("t-value", first)
    assert two.latest("t-value") == (id, first) and two.by_id(id) == first
    assert two.register("t-value", first) == id and two.register("a/b c-value", first) == id
    grown = record(("v", "int"))
    grown["fields"].append({"name": "w", "type": ["null", "int"], "default": None})
    second = two.register("t-value", Schema("AVRO", json.dumps(grown)))
    assert second != id and one.version("t-value", 1) == first and one.latest("t-value") == (second, one.by_id(second))
    two.register("x-value", Schema("AVRO", json.dumps(record(("v", "long")))))
    with pytest.raises(Incompatible, match="field v: a long has become an int"):
        two.register("x-value", first)
    with pytest.raises(UnknownSchema, match="no schema has the id 99"):
        two.by_id(99)
    refers = Schema("AVRO", json.dumps(record(("x", "R2"))), (("R2", "r2", 1),))
    two.register("r2", Schema("AVRO", json.dumps(record(("y", "int")) | {"name": "R2"})))
    third = two.register("u-value", refers)
    t, _ = framed.kind_of(refers).type_of(refers, framed.others_of(one, one.by_id(third)), True)
    assert t == Struct((Column("X", Struct((Column("Y", S.INT),))),))


@pytest.mark.parametrize(
    ("new", "old", "why"),
    [
        (record(("v", "long")), record(("v", "int")), None),
        (record(("v", "int")), record(("v", "long")), "field v: a long has become an int"),
        (record(("v", ["null", "int"])), record(("v", "int")), None),
        (record(("v", "int")), record(("v", ["null", "int"])), "field v: null has become an int"),
        (record(("v", "int"), ("w", "int")), record(("v", "int")), "the new field w has no default"),
        (record(("v", "int")), record(("v", "int"), ("w", "int")), None),
        (record(("v", "string")), record(("v", "bytes")), None),
        (record(("v", {"type": "array", "items": "int"})), record(("v", {"type": "array", "items": "long"})),
         "field v[]: a long has become an int"),
    ],
)  # fmt: skip
def test_compatibility(new: Any, old: Any, why: str | None) -> None:
    assert unreadable(parsed(json.dumps(new)), parsed(json.dumps(old))) == why


def test_no_secret_is_told() -> None:
    with pytest.raises(BraidError, match="without name and password") as refused:
        address_of("https://me:secret@host:8081/x", None)
    assert "secret" not in str(refused.value)


def test_a_declaration_without_a_registry() -> None:
    with pytest.raises(SqlError, match="AVRO needs a schema registry"):
        list(Program("ksqldb").statements("CREATE STREAM s WITH (kafka_topic='s', value_format='AVRO');"))


def test_the_schemas_of_lenses() -> None:
    with Driver(dialect="lenses") as d:
        d.execute("""SET defaults.topic.autocreate=true;
            CREATE TABLE a(_key.id INT, name STRING, s.x INT) FORMAT (AVRO, AVRO);
            INSERT INTO o SELECT STREAM name, s FROM a;
            INSERT INTO w STORE VALUE AS AVRO SELECT STREAM name AS _value FROM a;""")
        d.write("a", key={"id": 1}, value={"name": "n", "s": {"x": 2}}, timestamp=1)
        d.write("a", key={"id": 2}, value={"name": None}, timestamp=2)
        assert [(r.key, r.value) for r in d.read("o")] == [
            ({"id": 1}, {"name": "n", "s": {"x": 2}}), ({"id": 2}, {"name": None, "s": None}),
        ]  # fmt: skip
        assert [r.value for r in d.read("w")] == ["n", None]
        found = {s: d._registry.latest(s) for s in ("a-key", "a-value", "o-key", "o-value", "w-value")}
        types = {s: type_of(parsed(x[1].text), False) for s, x in found.items() if x is not None}
        key, x = Struct((Column("id", S.INT),)), Struct((Column("x", S.INT),))
        value = Struct((Column("name", S.VARCHAR), Column("s", x)))
        assert types == {"a-key": key, "o-key": key, "a-value": value, "o-value": value, "w-value": S.VARCHAR}
