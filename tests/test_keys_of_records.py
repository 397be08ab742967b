"""INCLUDE KEY: bytes of a broker as keys of rows."""

from __future__ import annotations

import polars as pl

from braid.bind.bound import Declared, SourceDeclared
from braid.bind.program import Program
from braid.records.wire import of_bytes, to_bytes
from braid.stage.decode import decode

KEYS = [b"s1", b'"s1"', b'{"id": 7}', b"\xff\x00", b"", None, b'{"base64": "QQ=="}']


def declared(sql: str) -> Declared:
    program = Program("risingwave")
    (statement,) = program.statements(sql)
    found = statement.bound
    assert isinstance(found, SourceDeclared)
    return found.declared


def decoded(of: Declared) -> list[bytes | None]:
    texts, why = of_bytes(pl.Series("_key", KEYS, dtype=pl.Binary), of.wires.key)
    assert why.null_count() == len(KEYS)
    n = len(KEYS)
    raw = pl.DataFrame(
        {"_offset": range(n), "_t": [0] * n, "_key": texts, "_value": ['{"a":1}'] * n},
    ).with_columns(_headers=pl.lit(None, pl.String), _error=pl.lit(None, pl.String))
    source = of.read_as("T")
    column = next(c.name for c in source.columns if c.column.type.name == "BYTES")
    return decode(source, raw, 0).rows[column].to_list()


def test_the_key_of_an_upsert_table_is_its_bytes() -> None:
    of = declared("CREATE TABLE t (a INT) INCLUDE KEY AS k WITH (connector = 'kafka') FORMAT UPSERT ENCODE JSON;")
    assert decoded(of) == KEYS
    texts, _ = of_bytes(pl.Series("_key", KEYS, dtype=pl.Binary), of.wires.key)
    assert to_bytes(texts, of.wires.key).to_list() == KEYS


def test_a_source_has_the_bytes_of_its_keys() -> None:
    of = declared("CREATE SOURCE t (a INT) INCLUDE KEY AS k WITH (connector = 'kafka') FORMAT PLAIN ENCODE JSON;")
    assert decoded(of) == KEYS


def test_a_row_that_a_statement_has_written_has_none() -> None:
    of = declared("CREATE TABLE t (a INT) INCLUDE KEY AS k WITH (connector = 'kafka') FORMAT PLAIN ENCODE JSON;")
    texts, _ = of_bytes(pl.Series("_key", [b'{"_row_id":5}']), of.wires.key)
    assert texts.to_list() == ['{"_row_id":5}']
