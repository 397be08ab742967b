"""The formats.

In: a name, as declarations have it; a dialect. Out: the `Format`; the names that a dialect has.
Rule: a format is a row here, and a file beside this one. Hints name formats in the order of this list.
"""

from __future__ import annotations

from braid.records.formats.bytes import Bytes
from braid.records.formats.debezium import Debezium
from braid.records.formats.delimited import Delimited
from braid.records.formats.interface import Format
from braid.records.formats.json import Json, RowId
from braid.records.formats.kafka import Kafka
from braid.records.formats.nothing import Nothing
from braid.records.formats.raw import Raw, RowKey
from braid.records.formats.schemed import Schemed
from braid.records.schemas.named import AVRO, JSON, PROTOBUF

BYTES, CSV, DEBEZIUM, RAW = "BYTES", "CSV", "DEBEZIUM", "RAW"
KSQLDB, EVERYWHERE = ("ksqldb",), ("ksqldb", "risingwave", "lenses")
KAFKA, NONE, ROW_ID = Kafka("KAFKA", KSQLDB), Nothing("NONE", KSQLDB), RowId("ROW_ID", ())
ROW_KEY = RowKey("ROW_ID", ())

FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Json("JSON", EVERYWHERE),
        Delimited("DELIMITED", KSQLDB),
        KAFKA,
        NONE,
        ROW_ID,
        Schemed("AVRO", EVERYWHERE, AVRO),
        Schemed("JSON_SR", KSQLDB, JSON),
        Schemed("PROTOBUF", EVERYWHERE, PROTOBUF),
        Schemed("AVRO_NOSR", (), AVRO, framed=False),
        Schemed("PROTOBUF_NOSR", KSQLDB, PROTOBUF, framed=False),
        Delimited(CSV, ("lenses",)),
        Bytes(BYTES, ("risingwave",)),
        Debezium(DEBEZIUM, ()),
        Raw(RAW, ()),
    )
}


def named_in(dialect: str) -> tuple[str, ...]:
    """The formats that a dialect has."""
    return tuple(f.name for f in FORMATS.values() if dialect in f.dialects)


def records_in(dialect: str) -> tuple[str, ...]:
    """Those of them that hold records only."""
    return tuple(name for name in named_in(dialect) if FORMATS[name].single == "record")


def grouped() -> str:
    """Formats whose values may be joined and grouped, for hints."""
    return " or ".join([f"'{f.name}'" for f in FORMATS.values() if f.of_values and f.grouped][:2])


def registered() -> str:
    """A format whose schemas stand in a registry, for hints."""
    return next(f.name for f in FORMATS.values() if f.registered)
