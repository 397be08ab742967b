"""Keys and values as bytes on a broker (records/wire.py)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.bind.program import Program
from braid.lower.lower import lower
from braid.plan.logical import Source
from braid.records.codec import decode_values
from braid.records.encoding import Encoding
from braid.records.facet import KeyWindow
from braid.records.formats.interface import Facet
from braid.records.formats.named import FORMATS
from braid.records.wire import (
    ANY,
    Wire,
    Wires,
    kafka_partition,
    murmur2,
    of_bytes,
    shown,
    to_bytes,
    wires,
    with_windows,
    without_windows,
)
from braid.stage.decode import decode, wires_of
from braid.stage.emit import on_wire
from braid.stage.ingest import Chunk
from braid.stage.local import LocalQuery
from braid.topics.broker import Broker as Address
from braid.topics.envelope import WINDOW
from braid.topics.kafka import KafkaTopics, Records
from braid.types import Column, Scalar

S = Scalar
KAFKA = [S.INT, S.BIGINT, S.DOUBLE, S.VARCHAR, S.BYTES]


def binary(*values: bytes | None) -> pl.Series:
    return pl.Series("b", values, dtype=pl.Binary)


def texts(*values: str | None) -> pl.Series:
    return pl.Series("t", values, dtype=pl.String)


def value(format: str, *columns: Column, bare: bool = False) -> Wire:
    """Of values in this format."""
    return Wire(Facet("value", FORMATS[format], bare), columns)


def one(format: str, t: Scalar) -> Wire:
    """Of one value."""
    return value(format, Column("x", t), bare=True)


@pytest.mark.parametrize(
    ("facet", "text", "data"),
    [
        (value("JSON"), '{"a":1}', b'{"a":1}'),
        (value("JSON"), "null", b"null"),
        (value("DELIMITED"), '"1,\\"x\\""', b'1,"x"'),
        (one("KAFKA", S.INT), "5", b"\x00\x00\x00\x05"),
        (one("KAFKA", S.BIGINT), "-1", b"\xff" * 8),
        (one("KAFKA", S.DOUBLE), "5.5", b"@\x16" + b"\x00" * 6),
        (one("KAFKA", S.VARCHAR), '"a\\nb"', b"a\nb"),
        (one("KAFKA", S.BYTES), '"AAE="', b"\x00\x01"),
        (ANY, '"x y"', b"x y"),
        (ANY, "17", b"17"),
    ],
)
def test_both_ways(facet: Wire, text: str, data: bytes) -> None:
    assert to_bytes(texts(text, None, text), facet).to_list() == [data, None, data]
    made, error = shown(binary(None, data, data), facet, None)
    assert made.to_list() == [None, text, text]
    assert error.null_count() == 3


def test_none_is_no_bytes() -> None:
    assert to_bytes(texts("1"), value("NONE")).to_list() == [None]
    assert of_bytes(binary(b"1"), value("NONE"))[0].to_list() == [None]


@pytest.mark.parametrize(
    ("facet", "text", "why"),
    [
        (value("JSON"), "1", "it is not UTF-8"),
        (value("DELIMITED"), '"1"', "it is not UTF-8"),
        (one("KAFKA", S.VARCHAR), '"1"', "it is not UTF-8"),
        (one("KAFKA", S.INT), "1", "it does not have the 4 bytes of INTEGER"),
    ],
)
def test_what_cannot_be_read_is_shown_and_costs_no_others(facet: Wire, text: str, why: str) -> None:
    good = to_bytes(texts(text), facet)[0]
    made, error = shown(binary(good, b"\xff\xfe", None, good), facet, None)
    assert error.to_list() == [None, why, None, None]
    assert made[1] == '"//4="'
    assert made[2] is None
    assert made[0] == made[3] != made[1]


def test_what_nobody_has_declared_is_shown_as_json_text_or_base64() -> None:
    made, _ = of_bytes(binary(b'{"a":[1]}', b"{oh", b"\xff", b"", None), ANY)
    assert made.to_list() == ['{"a":[1]}', '"{oh"', '"/w=="', '""', None]


@given(
    st.sampled_from(KAFKA), st.lists(st.none() | st.integers(-(2**31), 2**31 - 1) | st.floats() | st.text(), max_size=8)
)
def test_values_of_kafka_format_come_back(t: Scalar, given_: list[Any]) -> None:
    kinds = {S.INT: int, S.BIGINT: int, S.DOUBLE: float, S.VARCHAR: str, S.BYTES: str}
    values = [v for v in given_ if v is None or isinstance(v, kinds[t])]
    if t is S.BYTES:
        values = [None if v is None else v.encode("utf-8", "surrogatepass") for v in values]
    values = [v for v in values if not isinstance(v, str) or v.isprintable()]
    dtype = {S.INT: pl.Int32, S.BIGINT: pl.Int64, S.DOUBLE: pl.Float64, S.VARCHAR: pl.String, S.BYTES: pl.Binary}[t]
    frame = pl.DataFrame({"x": pl.Series(values, dtype=dtype)})
    how = one("KAFKA", t)
    assert how.facet is not None
    made = how.facet.format.encode(frame, [("x", Column("x", t))], how.facet)
    made = made.set(frame["x"].is_null(), None)
    back, error = shown(to_bytes(made, how), how, None)
    assert error.null_count() == len(values)
    assert back.to_list() == made.to_list()


FORMS = {S.INT: ">i", S.BIGINT: ">q", S.DOUBLE: ">d"}
NAN = struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")[0]  # not the NaN that Python has
BLOBS = st.one_of(
    st.none(),
    st.binary(max_size=9),
    st.integers(-(2**31), 2**31 - 1).map(lambda n: struct.pack(">i", n)),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: struct.pack(">q", n)),
    (st.floats() | st.sampled_from([-0.0, NAN, 5e-324, math.inf])).map(lambda x: struct.pack(">d", x)),
    st.text(max_size=3).map(str.encode),
)


def plainly(data: bytes | None, t: Scalar) -> Any:
    """What Python makes of bytes; `...` where they are no value."""
    if data is None or t is S.BYTES:
        return data
    try:
        return data.decode() if t is S.VARCHAR else struct.unpack(FORMS[t], data)[0]
    except (UnicodeDecodeError, struct.error):
        return ...


@given(st.sampled_from(KAFKA), st.lists(BLOBS, max_size=6))
def test_values_of_kafka_format_are_read_as_they_were_through_json(t: Scalar, blobs: list[bytes | None]) -> None:
    how, data = one("KAFKA", t), binary(*blobs)
    assert how.facet is not None
    taken, error = of_bytes(data, how)
    frame, null, why = how.facet.decode(taken, how.columns)
    expected = [plainly(x, t) for x in blobs]
    found = [... if e is not None else v for v, e in zip(frame["x"], error, strict=True)]
    assert repr(found) == repr(expected)  # NaN, and a 0 with its sign
    assert null.to_list() == data.is_null().to_list()
    assert why.to_list() == error.to_list()
    texts, told = shown(data, how, None)
    assert told.to_list() == error.to_list()
    through, _, _ = decode_values(texts.set(told.is_not_null(), None), how.columns, unwrapped=True)
    assert repr(through["x"].to_list()) == repr(frame["x"].to_list())
    made = how.facet.format.encode_bytes(frame, [("x", how.columns[0])], how.facet, None, "")
    json = how.facet.format.encode(frame, [("x", how.columns[0])], how.facet)
    assert made.to_list() == to_bytes(json, how).to_list()
    assert made.null_count() == len(blobs) - sum(x is not None and x is not ... for x in expected)


def came(folder: Any, source: Source, records: Sequence[tuple[bytes | None, bytes | None]]) -> pl.DataFrame:
    """Records as a query takes them from a broker."""
    topics, n = KafkaTopics(folder, Address("nowhere:1")), len(records)
    keys, values = zip(*records, strict=True)
    found = Records([*range(n)], [*range(n)], [*keys], [*values], [None] * n)
    topics._records = lambda *_: found  # type: ignore[method-assign]
    return topics.raw("s", 0, 0, n, wires_of(source))


def test_records_of_kafka_format_from_bytes_to_bytes(tmp_path: Any) -> None:
    """What is malformed, or null, is dropped with its key and value as people read them."""
    text = """CREATE STREAM s (k INT KEY, v DOUBLE) WITH (kafka_topic='s', format='KAFKA', partitions=1);
        CREATE STREAM o AS SELECT k, v FROM s PARTITION BY k;"""
    query = next(e.query for e in Program("ksqldb").statements(text) if e.query is not None)
    plan = lower(query)
    seven, half = struct.pack(">i", 7), struct.pack(">d", 0.5)
    nan, minus = struct.pack(">d", NAN), struct.pack(">d", -0.0)
    records = [(seven, half), (b"\0\0\7", half), (seven, b"\0"), (None, half), (seven, None), (seven, nan),
               (seven, minus), (b"", b"")]  # fmt: skip
    source = plan.leaves[0].source
    raw = came(tmp_path, source, records)
    assert raw.schema["_key"] == raw.schema["_value"] == pl.Binary
    frame, dropped = LocalQuery(plan, 1, 1).results([Chunk(0, 0, 0, decode(source, raw, 0))])
    told = dropped.sort("offset").select("reason", "offset", "key", "value", "message").rows()
    size = "it does not have the {} bytes of {}".format
    assert told == [
        ("malformed", 1, '"AAAH"', "0.5", f"the key: {size(4, 'INTEGER')}"),
        ("malformed", 2, "7", '"AA=="', f"the value: {size(8, 'DOUBLE')}"),
        ("malformed", 7, '""', '""', f"the key: {size(4, 'INTEGER')}"),
    ]
    made = on_wire(query.sink, frame, None)
    usual = struct.pack(">d", math.nan)
    assert made.select("key", "value", "time").rows() == [
        (seven, half, 0), (None, half, 3), (seven, None, 4), (seven, usual, 5), (seven, minus, 6),
    ]  # fmt: skip


def test_a_key_that_is_a_text_of_kafka_format_is_a_column_s(tmp_path: Any) -> None:
    text = """CREATE STREAM s (v STRING, w INT) WITH (kafka_topic='s', value_format='JSON', key='v', partitions=1);
        CREATE STREAM o AS SELECT v, w FROM s;"""
    query = next(e.query for e in Program("ksqldb").statements(text) if e.query is not None)
    source = lower(query).leaves[0].source
    value = b'{"V":"a","W":1}'
    raw = came(tmp_path, source, [(b"a", value), (b"b", value), (b"\xff", value), (None, value), (b"c", None)])
    decoded = decode(source, raw, 0)
    differs = "message key is not column V"
    assert decoded.error.to_list() == [None, differs, "the key: it is not UTF-8", differs, None]
    assert decoded.rows["S.V"].to_list() == ["a", "a", "a", "a", "c"]


def test_partitions_are_those_of_the_java_producer() -> None:
    """Vectors of the Java client's own hash."""
    known = {
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        "abc": 479470107,
    }
    keys = binary(*(k.encode() for k in known), None, b"")
    assert murmur2(keys).to_list()[:-2] == [h % 2**32 for h in known.values()]
    assert murmur2(keys)[-2] is None
    assert kafka_partition(keys, 7).to_list()[:-2] == [(h & 0x7FFFFFFF) % 7 for h in known.values()]


def test_how_records_are_written_follows_from_their_declaration() -> None:
    k, v, w = Column("k", S.INT), Column("v", S.INT), Column("w", S.VARCHAR)
    json, kafka = value("JSON", v, w), value("KAFKA", v, bare=True)
    key = Wire(Facet("key", FORMATS["KAFKA"], True), (k,))
    assert wires(Encoding("KAFKA", "JSON"), [k], [v, w]) == Wires(key, json)
    none = Wire(Facet("key", FORMATS["NONE"], False))
    assert wires(Encoding("NONE", "DELIMITED"), [], [v, w]) == Wires(none, value("DELIMITED", v, w))
    assert wires(Encoding("KAFKA", "KAFKA"), [], [v]) == Wires(none, kafka)
    assert wires(Encoding("JSON", "JSON", binary=("key",)), [k], [v, w]) == Wires(key, json)
    text = wires(Encoding("KAFKA", "JSON"), [], [v], "v").key
    assert text.facet == key.facet and text.columns == (Column("v", S.VARCHAR),)
    assert wires(Encoding("JSON", "AVRO"), [], [v, w]) == Wires(ANY, value("AVRO", v, w))
    number = wires(Encoding("JSON", "JSON", key_in_value=True), [k], [v]).key
    assert number.facet is not None and number.facet.format == FORMATS["ROW_ID"]


@pytest.mark.parametrize("kind", ["time", "session"])
def test_windows_stand_behind_keys_as_kafka_streams_writes_them(kind: KeyWindow) -> None:
    keys = pl.Series([b"a", b"", b"b"], dtype=pl.Binary)
    windows = pl.Series([{"start": 1, "end": 258}, {"start": 2**40, "end": 2**40}, None], dtype=WINDOW)
    written = with_windows(keys, windows, kind)
    start, end = (1).to_bytes(8, "big"), (258).to_bytes(8, "big")
    assert written[0] == (b"a" + start if kind == "time" else b"a" + end + start)
    key, window, why = without_windows(written, kind)
    assert key.to_list() == keys.to_list()
    assert [w and w["start"] for w in window] == [1, 2**40, None]
    assert [w and w["end"] for w in window] == ([258, 2**40, None] if kind == "session" else [None] * 3)
    assert why.to_list() == [None, None, "no window follows it"]
