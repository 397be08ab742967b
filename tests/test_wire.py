"""Keys and values as bytes on a broker (records/wire.py)."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.records import formats
from braid.records.facet import Encoding, Facet, KeyWindow
from braid.records.wire import (
    ANY,
    Wire,
    Wires,
    kafka_partition,
    murmur2,
    of_bytes,
    to_bytes,
    wires,
    with_windows,
    without_windows,
)
from braid.topics.envelope import WINDOW
from braid.types import Column, Scalar

S = Scalar
KAFKA = [S.INT, S.BIGINT, S.DOUBLE, S.VARCHAR, S.BYTES]


def binary(*values: bytes | None) -> pl.Series:
    return pl.Series("b", values, dtype=pl.Binary)


def texts(*values: str | None) -> pl.Series:
    return pl.Series("t", values, dtype=pl.String)


@pytest.mark.parametrize(
    ("facet", "text", "data"),
    [
        (Wire("JSON"), '{"a":1}', b'{"a":1}'),
        (Wire("JSON"), "null", b"null"),
        (Wire("DELIMITED"), '"1,\\"x\\""', b'1,"x"'),
        (Wire("KAFKA", S.INT), "5", b"\x00\x00\x00\x05"),
        (Wire("KAFKA", S.BIGINT), "-1", b"\xff" * 8),
        (Wire("KAFKA", S.DOUBLE), "5.5", b"@\x16" + b"\x00" * 6),
        (Wire("KAFKA", S.VARCHAR), '"a\\nb"', b"a\nb"),
        (Wire("KAFKA", S.BYTES), '"AAE="', b"\x00\x01"),
        (ANY, '"x y"', b"x y"),
        (ANY, "17", b"17"),
    ],
)
def test_both_ways(facet: Wire, text: str, data: bytes) -> None:
    assert to_bytes(texts(text, None, text), facet).to_list() == [data, None, data]
    made, error = of_bytes(binary(None, data, data), facet)
    assert made.to_list() == [None, text, text]
    assert error.null_count() == 3


def test_none_is_no_bytes() -> None:
    assert to_bytes(texts("1"), Wire("NONE")).to_list() == [None]
    assert of_bytes(binary(b"1"), Wire("NONE"))[0].to_list() == [None]


@pytest.mark.parametrize(
    ("facet", "why"),
    [
        (Wire("JSON"), "it is not UTF-8"),
        (Wire("DELIMITED"), "it is not UTF-8"),
        (Wire("KAFKA", S.VARCHAR), "it is not UTF-8"),
        (Wire("KAFKA", S.INT), "it does not have the 4 bytes of INTEGER"),
    ],
)
def test_what_cannot_be_read_is_shown_and_costs_no_others(facet: Wire, why: str) -> None:
    good = to_bytes(texts('"1"' if facet.type is S.VARCHAR or facet.format == "DELIMITED" else "1"), facet)[0]
    made, error = of_bytes(binary(good, b"\xff\xfe", None, good), facet)
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
    made = formats.encode(frame, [("x", Column("x", t))], Facet("value", "KAFKA", bare=True))
    made = made.set(frame["x"].is_null(), None)
    back, error = of_bytes(to_bytes(made, Wire("KAFKA", t)), Wire("KAFKA", t))
    assert error.null_count() == len(values)
    assert back.to_list() == made.to_list()


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
    assert wires(Encoding("KAFKA", "JSON"), [k], [v, w]) == Wires(Wire("KAFKA", S.INT), Wire("JSON"))
    assert wires(Encoding("NONE", "DELIMITED"), [], [v, w]) == Wires(Wire("NONE"), Wire("DELIMITED"))
    assert wires(Encoding("KAFKA", "KAFKA"), [], [v]) == Wires(Wire("NONE"), Wire("KAFKA", S.INT))
    assert wires(Encoding("JSON", "JSON", binary=("key",)), [k], [v]) == Wires(Wire("KAFKA", S.INT), Wire("JSON"))
    assert wires(Encoding("KAFKA", "JSON"), [], [v], "v").key == Wire("KAFKA", S.VARCHAR)
    avro = wires(Encoding("JSON", "AVRO"), [], [v, w])
    assert avro == Wires(ANY, Wire("AVRO", facet=Facet("value", "AVRO", False), columns=(v, w)))


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
