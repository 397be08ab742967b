"""JSON_SR: bodies and columns, JSON Schema and types."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import polars as pl
import pytest

from braid.records import framed, json_sr
from braid.records.registry import Incompatible, Schema
from braid.topics.registries import StoreRegistry
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

S = Scalar


@pytest.mark.parametrize(
    ("t", "value", "text"),
    [
        (S.INT, 5, "5"),
        (S.BIGINT, 2**62, str(2**62)),
        (S.DOUBLE, 1.5, "1.5"),
        (S.REAL, 1.100000023841858, "1.1"),
        (S.SMALLINT, -32768, "-32768"),
        (S.TIMESTAMPTZ, dt.datetime(1970, 1, 1, 0, 0, 1), "1000"),
        (S.BOOLEAN, True, "true"),
        (S.VARCHAR, 'é"', '"é\\""'),
        (S.BYTES, b"\xff", '"/w=="'),
        (S.DATE, dt.date(1970, 1, 3), "2"),
        (S.TIME, dt.time(0, 0, 1), "1000"),
        (S.TIMESTAMP, dt.datetime(1970, 1, 1, 0, 0, 1), "1000"),
        (Decimal(6, 2), decimal.Decimal("-1.50"), "-1.50"),
        (Array(Decimal(4, 1)), [decimal.Decimal("1.5"), None], "[1.5,null]"),
        (Map(S.VARCHAR, S.INT), [{"key": "a", "value": 1}], '[{"key":"a","value":1}]'),
        (Struct((Column("X", Map(S.VARCHAR, S.INT)),)), {"X": []}, '{"X":[]}'),
    ],
    ids=str,
)
def test_each_type(t: Type, value: Any, text: str) -> None:
    column = Column("V", t)
    frame, _, _ = json_sr.decode_bodies(pl.Series([f'{{"v":{text}}}'.encode(), b'{"V":null}']), [column], bare=False)
    assert frame["V"].to_list() == [value, None]
    assert json_sr.encode_bodies(frame, [("V", column)], bare=False).to_list() == [
        f'{{"V":{text}}}'.encode(),
        b'{"V":null}',
    ]
    assert json_sr.encode_bodies(frame.head(1), [("V", column)], bare=True).to_list() == [text.encode()]
    for bare in (False, True):
        found, is_record = json_sr.type_of(json_sr.schema_of([column], bare=bare), (), False)
        wide = {S.SMALLINT: S.INT, S.REAL: S.DOUBLE, S.TIMESTAMPTZ: S.TIMESTAMP}.get(t, t)  # type: ignore[call-overload]
        assert found == (wide if bare else Struct((Column("V", wide),)))
        assert is_record == (not bare or isinstance(t, Struct))


def test_bad_bodies() -> None:
    columns = [Column("V", S.INT), Column("M", Map(S.VARCHAR, S.INT))]
    bodies = pl.Series([b'{"V":1}', b"\xff", b"{", b'{"V":"x"}', b'{"V":2,"M":{"a":1}}'] * 20)
    frame, null, error = json_sr.decode_bodies(bodies, columns, bare=False)
    assert frame["V"].to_list()[:5] == [1, None, None, None, 2] and not null.any()
    assert frame["M"].to_list()[4] == [{"key": "a", "value": 1}]
    found = error.to_list()[:5]
    assert found[0] is None and found[4] is None and found[1] == "it is not UTF-8"
    assert "is not JSON" in found[2] and found[3] == "field V: 'x' is not an INTEGER"


def test_what_there_is_no_type_for_is_left_out() -> None:
    properties = {"a": {"type": "null"}, "b": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                  "c": {"enum": ["x"]},
                  "d": {"anyOf": [{"type": "null"}, {"type": "number"}]}, "e": {"type": "array"}}  # fmt: skip
    text = json.dumps({"type": "object", "properties": properties})
    assert json_sr.type_of(text, (), True) == (Struct((Column("C", S.VARCHAR), Column("D", S.DOUBLE))), True)


def test_references() -> None:
    registry = StoreRegistry()
    registry.register("place", Schema("JSON", '{"type": "object", "properties": {"city": {"type": "string"}}}'))
    text = '{"type": "object", "properties": {"at": {"$ref": "place.json"}}}'
    schema = Schema("JSON", text, (("place.json", "place", 1),))
    registry.register("t-value", schema)
    found, _ = framed.kind_of(schema).type_of(schema, framed.others_of(registry, schema), fold=True)
    assert found == Struct((Column("AT", Struct((Column("CITY", S.VARCHAR),))),))


def test_compatibility() -> None:
    registry = StoreRegistry()

    def schema(*columns: Column) -> Schema:
        return Schema("JSON", json_sr.schema_of(columns, bare=False))

    registry.register("t-value", schema(Column("A", S.INT), Column("B", S.VARCHAR)))
    registry.register("t-value", schema(Column("A", S.BIGINT), Column("C", S.VARCHAR)))
    with pytest.raises(Incompatible, match="field C: VARCHAR has become INTEGER"):
        registry.register("t-value", schema(Column("C", S.INT)))
    with pytest.raises(Incompatible, match="it was JSON"):
        registry.register("t-value", Schema("AVRO", '"int"'))
