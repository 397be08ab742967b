"""Declarations that Braid writes bind in their dialect, to just the columns they are of."""

from __future__ import annotations

from typing import Any

import pytest

from braid.bind.bound import SourceDeclared
from braid.bind.dialects import DIALECTS, dialect_named
from braid.bind.program import Program
from braid.errors import BraidError
from braid.sql.declare import Declaring, declaration
from braid.sql.dialects.ksqldb import KSQLDB
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

TYPES: list[Type] = [
    *(s for s in Scalar if s is not Scalar.NULL),
    Decimal(10, 2),
    Array(Scalar.INT),
    Array(Array(Scalar.VARCHAR)),
    Map(Scalar.VARCHAR, Decimal(5, 1)),
    Struct((Column("x", Scalar.INT), Column("a {b}", Array(Scalar.DOUBLE)))),
    Array(Struct((Column("x", Scalar.INT),))),
]
RARE = ["SMALLINT", "REAL", "JSONB", "TIMESTAMPTZ"]
MISSING = {  # what a dialect has no word for
    "ksqldb": [*RARE, "INTERVAL"],
    "risingwave": ["INTERVAL", "MAP"],
    "sqlstream": [*RARE, "INTERVAL", "ARRAY<INTEGER", "ARRAY<ARRAY", "MAP", "STRUCT", "ARRAY<STRUCT"],
    "lenses": [*RARE[:3], "TIME", *RARE[3:], "INTERVAL", "MAP", "ARRAY<STRUCT"],
}
NAMES = ["v", "Order", "select", "value", "a b", '"q"', "`t`", "key", "user", "timestamp", "é", "1st"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["stream", "table"])
def test_what_is_written_binds_to_the_same_columns(dialect: str, kind: Any) -> None:
    words = dialect_named(dialect).words
    id_, name = Column(words.fold("id"), Scalar.BIGINT), words.fold("t_1")
    refused = []
    for c in [*(Column("v", t) for t in TYPES), *(Column(n, Scalar.INT) for n in NAMES)]:
        try:
            sql = declaration(words, Declaring(name, kind, [id_, c], id_.name, topic="t"))
        except BraidError as e:
            assert "has no type for" in e.message
            refused.append(c.type)
            continue
        (effect,) = Program(dialect).statements(sql)
        assert isinstance(effect.bound, SourceDeclared)
        made = effect.bound.declared
        assert [Column(x.name, x.type) for x in made.columns if not x.hidden and x.name != "_key"] == [id_, c], sql
        assert made.name == name
    assert len(refused) == len(MISSING.get(dialect, []))
    assert all(str(t).startswith(word) for t, word in zip(refused, MISSING.get(dialect, []), strict=True)), refused


def test_what_cannot_be_declared() -> None:
    with pytest.raises(BraidError, match="needs a key"):
        declaration(KSQLDB, Declaring("t", "table", [Column("A", Scalar.INT)]))
    for dialect in ("risingwave", "sqlstream"):  # these have tables without
        made = declaration(dialect_named(dialect).words, Declaring("T", "table", [Column("A", Scalar.INT)]))
        assert made.startswith("CREATE TABLE ")
    with pytest.raises(BraidError, match="has no column B"):
        declaration(KSQLDB, Declaring("t", "stream", [Column("A", Scalar.INT)], "B"))
