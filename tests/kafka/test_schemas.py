"""Formats with schemas over a real broker and a real registry: read as other clients write them, written as they read.

In: records that confluent-kafka's own serializers write. Out: what its own deserializers read of what Braid wrote.
Rule: nothing of Braid's writes what it reads here, or reads what it writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import braid
from braid.face.session import Session
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record
from kafka.guarded import USER, guarded
from kafka.registry import Registry
from kafka.test_run import ended, until, up

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.filterwarnings("ignore::UserWarning")]

T0 = 1_700_000_000_000
Row = dict[str, Any]


@dataclass(frozen=True)
class Format:
    """A format as confluent-kafka has it: what writes and reads keys `k` (a text) and values."""

    properties: str
    writes: Callable[[SchemaRegistryClient, str, Row], tuple[bytes, bytes]]
    reads: Callable[[SchemaRegistryClient, str, bytes | None, bytes], tuple[Any, Row]]


def at(topic: str, facet: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.KEY if facet == "key" else MessageField.VALUE)


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
JSON_KEY = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": "K", "type": "string"})
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "item": {"type": ["string", "null"]},
            "price": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
)


def _message(name: str, **fields: int) -> Any:
    """The class of a message, alone in its file."""
    F = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{name.lower()}.proto", package="shop", syntax="proto3")
    made = file.message_type.add(name=name)
    for number, (n, t) in enumerate(fields.items(), 1):
        made.field.add(name=n, number=number, type=t, label=F.LABEL_REPEATED if n == "tags" else F.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


INT, DOUBLE, TEXT = 5, 1, 9  # as Protobuf numbers its types
KEY, ORDER = _message("Key", k=TEXT), _message("Order", id=INT, item=TEXT, price=DOUBLE, tags=TEXT)
PLAIN = {"use.deprecated.format": False}


def _avro_writes(c: SchemaRegistryClient, topic: str, row: Row) -> tuple[bytes, bytes]:
    value = {n: x for n, x in row.items() if n != "k"}
    return (
        AvroSerializer(c, '"string"')(row["k"], at(topic, "key")),
        AvroSerializer(c, json.dumps(AVRO))(value, at(topic, "value")),
    )


def _avro_reads(c: SchemaRegistryClient, topic: str, key: bytes | None, value: bytes) -> tuple[Any, Row]:
    return AvroDeserializer(c)(key, at(topic, "key")), AvroDeserializer(c)(value, at(topic, "value"))


def _json_writes(c: SchemaRegistryClient, topic: str, row: Row) -> tuple[bytes, bytes]:
    value = {n: x for n, x in row.items() if n != "k"}
    return JSONSerializer(JSON_KEY, c)(row["k"], at(topic, "key")), JSONSerializer(JSON, c)(value, at(topic, "value"))


def _json_reads(c: SchemaRegistryClient, topic: str, key: bytes | None, value: bytes) -> tuple[Any, Row]:
    read = JSONDeserializer(None, schema_registry_client=c)
    return read(key, at(topic, "key")), read(value, at(topic, "value"))


def _order(row: Row) -> Any:
    return ORDER(id=row["id"], item=row["item"], price=row["price"], tags=row["tags"])


def _proto_writes(c: SchemaRegistryClient, topic: str, row: Row) -> tuple[bytes, bytes]:
    return (
        ProtobufSerializer(KEY, c, PLAIN)(KEY(k=row["k"]), at(topic, "key")),
        ProtobufSerializer(ORDER, c, PLAIN)(_order(row), at(topic, "value")),
    )


def _proto_reads(c: SchemaRegistryClient, topic: str, key: bytes | None, value: bytes) -> tuple[Any, Row]:
    """Fields are known by their numbers, which are those of the columns. Without the registry: Apicurio gives a text
    where the deserializer asks for a descriptor."""
    assert key is not None
    for data in (key, value):
        assert c.get_schema(int.from_bytes(data[1:5])).schema_type == "PROTOBUF"
    found = ProtobufDeserializer(ORDER, PLAIN)(value, at(topic, "value"))
    return ProtobufDeserializer(KEY, PLAIN)(key, at(topic, "key")).k, _row(found)


def _row(found: Any) -> Row:
    return {"id": found.id, "item": found.item, "price": found.price, "tags": list(found.tags)}


def _bare_writes(c: SchemaRegistryClient, topic: str, row: Row) -> tuple[bytes, bytes]:
    return row["k"].encode(), _order(row).SerializeToString()


def _bare_reads(c: SchemaRegistryClient, topic: str, key: bytes | None, value: bytes) -> tuple[Any, Row]:
    assert key is not None
    return key.decode(), _row(ORDER.FromString(value))


FORMATS = {
    "AVRO": Format("key_format='AVRO', value_format='AVRO'", _avro_writes, _avro_reads),
    "JSON_SR": Format("key_format='JSON_SR', value_format='JSON_SR'", _json_writes, _json_reads),
    "PROTOBUF": Format("key_format='PROTOBUF', value_format='PROTOBUF'", _proto_writes, _proto_reads),
    "PROTOBUF_NOSR": Format("key_format='KAFKA', value_format='PROTOBUF_NOSR'", _bare_writes, _bare_reads),
}


@pytest.fixture(scope="module")
def client(registry: Registry) -> SchemaRegistryClient:
    return clients.schemas(registry.url)


@pytest.fixture
def session(broker: Broker, registry: Registry, tmp_path: Path) -> Iterator[Session]:
    with braid.connect("ksqldb", str(tmp_path / "d"), kafka=broker.address, registry=registry.url) as made:
        yield made


def name_of(prefix: str) -> str:
    return clients.fresh(prefix).replace("-", "_")


def rows(count: int) -> list[Row]:
    made = ((f"key {i % 5}", i - 2, f"é{i}", i / 4, ["a"] * (i % 3)) for i in range(count))
    return [dict(zip(("k", "id", "item", "price", "tags"), row, strict=True)) for row in made]


@pytest.mark.parametrize("format", FORMATS)
def test_read_as_others_write_it_and_written_as_they_read_it(
    format: str, session: Session, broker: Broker, client: SchemaRegistryClient
) -> None:
    f, name, out = FORMATS[format], name_of("s"), name_of("o").upper()
    clients.make_topic(broker.address, name)
    given = rows(40)
    records = [Record(*f.writes(client, name, row), T0 + i) for i, row in enumerate(given)]
    bad = Record(records[0].key, b"\x00\x00\x00\x00\x00no such id" if "NOSR" not in format else b"\xff", T0 + 50)
    records = [*records[:20], bad, Record(records[0].key, None, T0 + 51), *records[20:]]
    clients.produce(broker.address, name, records)
    columns, key = "", "k" if format == "PROTOBUF" else "rowkey"
    if format == "PROTOBUF_NOSR":
        columns, key = "(k STRING KEY, id INT, item STRING, price DOUBLE, tags ARRAY<STRING>)", "k"
    statements = f"""
        CREATE STREAM s {columns} WITH (kafka_topic='{name}', {f.properties});
        CREATE STREAM {out} WITH (partitions=3) AS SELECT {key}, id, item, price, tags FROM s PARTITION BY {key};
    """
    (handle,) = session.execute(statements)
    handle.await_idle()
    written = clients.consume(broker.address, out)
    assert sum(r.value is None for r in written) == 1
    found = [(r.partition, *f.reads(client, out, r.key, r.value)) for r in written if r.value is not None]
    expected = [(r["k"], {n: x for n, x in r.items() if n != "k"}) for r in given]
    got = sorted(((k, lower(v)) for _, k, v in found), key=lambda x: x[1]["id"])
    assert got == expected
    assert [r.time for r in sorted(written, key=lambda r: r.time)] == sorted(r.time for r in records if r is not bad)
    (drop,) = handle.drops()
    assert drop["reason"] == "malformed" and drop["offset"] == 20
    # where the Java producer puts keys of these bytes
    other = clients.make_topic(broker.address, None, 3)
    placed = clients.produce(broker.address, other, [Record(r.key, b"") for r in written])
    assert [p for p, _ in placed] == [r.partition for r in written]
    handle.stop()


def test_waits_for_a_registry_that_is_away(
    broker: Broker, registry: Registry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    """The second record's schema is asked for while the registry does not answer: nothing is lost, and it is told."""
    name, out = name_of("s"), name_of("o").upper()
    clients.make_topic(broker.address, name)
    later = {**AVRO, "fields": [*AVRO["fields"], {"name": "more", "type": "int", "default": 0}]}  # type: ignore[misc]
    row = {n: x for n, x in rows(1)[0].items() if n != "k"}
    first = AvroSerializer(client, json.dumps(AVRO))(row, at(name, "value"))
    second = AvroSerializer(client, json.dumps(later))(row | {"id": 77, "more": 1}, at(name, "value"))
    clients.produce(broker.address, name, [Record(b"a", first, T0)])
    (tmp_path / "q.sql").write_text(f"""
        CREATE STREAM s WITH (kafka_topic='{name}', key_format='NONE', value_format='AVRO');
        CREATE STREAM {out} WITH (kafka_topic='{out}') AS SELECT id FROM s;
    """)
    (tmp_path / "r.properties").write_text(f"basic.auth.user.info={USER}\n")

    def there() -> list[int]:
        found = clients.consume(broker.address, out) if clients.topic_exists(broker.address, out) else []
        return [AvroDeserializer(client)(r.value, at(out, "value"))["ID"] for r in found]

    with guarded(registry) as door:
        run = up(tmp_path, broker, "q.sql", "--registry", door.url, "--registry-config", "r.properties")
        try:
            assert until(lambda: there() == [-2], 240), (tmp_path / "run.log").read_text()[-2000:]
            door.shut = True
            clients.produce(broker.address, name, [Record(b"a", second, T0 + 1)])
            assert until(lambda: f"{out} waits: " in told(tmp_path), 120)
            assert f"waits: {door.url} does not give schema" in told(tmp_path)
            assert there() == [-2]
            door.shut = False
            assert until(lambda: there() == [-2, 77], 120), told(tmp_path)
        finally:
            assert ended(run) == 0
    assert "very-secret" not in told(tmp_path)


def told(folder: Path) -> str:
    return (folder / "run.log").read_text()[-4000:]


def lower(row: Row) -> Row:
    return {n.lower(): x for n, x in row.items()}
