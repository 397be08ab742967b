"""Commands over formats with schemas, without Spark: what they read, write, refuse and tell.

In: the real broker and registry, command lines. Out: what another client reads; one clear line for each mistake.
Rule: a mistake is told before anything is made, a server that is not there after two tries.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

import cli_help
from cli_help import Said
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record
from kafka.guarded import USER, guarded
from kafka.registry import Registry
from kafka.server import free_ports
from kafka.test_schemas import T0, at, name_of

pytestmark = pytest.mark.kafka

ONE = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
TWO = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "none"}],
}
Braid = Callable[..., Said]


@pytest.fixture
def braid(broker: Broker, registry: Registry, tmp_path: Path) -> Braid:
    """Runs a command over both."""

    def run(*words: str, text: str = "", at: str = registry.url) -> Said:
        there = ["--kafka", broker.address, "--registry", at, "--store", str(tmp_path / "d")]
        return cli_help.braid(*words, *there, stdin=text)

    return run


@pytest.fixture
def client(registry: Registry) -> SchemaRegistryClient:
    return clients.schemas(registry.url)


def refused(result: Said) -> str:
    assert result.code == 1
    return result.err


def lines(result: Said) -> list[dict[str, object]]:
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_a_schema_evolves_in_the_middle_of_a_topic(braid: Braid, broker: Broker, client: SchemaRegistryClient) -> None:
    """A promoted int, a new field, a record of a schema that nobody knows, and one without: each by its own schema."""
    name = clients.make_topic(broker.address, name_of("e"))
    made = [
        Record(None, AvroSerializer(client, json.dumps(schema))(row, at(name, "value")), T0 + i)
        for i, (schema, row) in enumerate([(ONE, {"id": 1}), (TWO, {"id": 2**40, "note": "x"}), (ONE, {"id": 3})])
    ]
    bad = Record(None, b"\0\x7f\xff\xff\xffzz", T0 + 9), Record(None, b"{}", T0 + 10)
    clients.produce(broker.address, name, [*made[:2], *bad, made[2]])
    sql = f"CREATE STREAM s WITH (kafka_topic='{name}', value_format='AVRO', key_format='NONE'); "
    shown = braid("sql", "-e", sql + "SELECT id, note FROM s EMIT CHANGES;")
    assert shown.out.split("\n")[1:4] == ["1              null", "1099511627776  x", "3              null"]
    rows = lines(braid("cat", name, "--format", "jsonl"))
    assert [r["value"] for r in rows[:2]] == [{"id": 1}, {"id": 2**40, "note": "x"}]
    assert "no schema has the id 2147483647" in str(rows[2]["error"])
    assert "no schema id in front" in str(rows[3]["error"])
    chosen = client.get_latest_version(f"{name}-value").schema_id
    properties = f"kafka_topic='{name}', value_format='AVRO', value_schema_id={chosen}, key_format='NONE'"
    shown = braid("sql", "-e", f"CREATE STREAM c WITH ({properties}); SELECT * FROM c EMIT CHANGES;")
    assert "1              none" in shown.out, shown.out + shown.err


def test_put_and_insert_write_by_the_schema_of_the_subject(
    braid: Braid, broker: Broker, client: SchemaRegistryClient, registry: Registry
) -> None:
    name = clients.make_topic(broker.address, name_of("p"), 3)
    registry.register(f"{name}-value", json.dumps(TWO))
    registry.register(f"{name}-key", '"string"')
    before = client.get_latest_version(f"{name}-value").schema_id
    sql = f"CREATE STREAM s WITH (kafka_topic='{name}', format='AVRO'); INSERT INTO s VALUES ('a', 7, 'x');"
    assert braid("sql", "-e", sql).code == 0
    put = "\n".join(json.dumps({"key": k, "value": v}) for k, v in (("b", {"id": 8, "note": "y"}), ("a", None)))
    assert braid("put", name, text=put).code == 0
    found = clients.consume(broker.address, name)
    of = AvroDeserializer(client)
    read = {(r.key[5:], None if r.value is None else of(r.value, at(name, "value"))["id"]) for r in found}
    assert read == {(b"\x02a", 7), (b"\x02b", 8), (b"\x02a", None)}
    assert all(r.value is None or int.from_bytes(r.value[1:5]) == before for r in found)
    other = clients.make_topic(broker.address, None, 3)
    assert [p for p, _ in clients.produce(broker.address, other, [Record(r.key, b"") for r in found])] == [
        r.partition for r in found
    ]
    wrong = braid("put", name, text='{"key": "a", "value": {"id": "seven"}}')
    assert "does not fit its schema" in refused(wrong)


def test_what_a_declaration_gives_the_registry(braid: Braid, registry: Registry) -> None:
    name = name_of("n")
    sql = f"CREATE STREAM s (k INT KEY, v STRING) WITH (kafka_topic='{name}', format='AVRO', partitions=1);"
    assert braid("sql", "-e", sql).code == 0
    assert json.loads(registry.latest(f"{name}-key")["schema"]) == "int"
    assert json.loads(registry.latest(f"{name}-value")["schema"])["name"] == "KsqlDataSourceSchema"


def test_an_incompatible_result_is_refused_before_anything_starts(
    braid: Braid, broker: Broker, registry: Registry
) -> None:
    source, result = name_of("s"), name_of("o").upper()
    registry.register(f"{result}-value", json.dumps({"type": "record", "name": "Old", "fields": []}))
    registry.compatibility(f"{result}-value", "BACKWARD")
    sql = f"""
        CREATE STREAM s (v STRING) WITH (kafka_topic='{source}', value_format='AVRO', key_format='NONE', partitions=1);
        CREATE STREAM {result} AS SELECT v FROM s;
    """
    for command in ("check", "run", "explain"):
        told = refused(braid(command, "-e", sql))
        assert f"refuses the schema of {result}-value: incompatible with an earlier one" in told, told
    assert not clients.topic_exists(broker.address, source)


@pytest.mark.parametrize(
    ("with_", "why"),
    [
        ("value_format='AVRO', value_schema_id=2000000000", "no schema has the id 2000000000"),
        ("value_format='AVRO'", "the registry has no schema for subject"),
    ],
)
def test_what_the_registry_does_not_have(braid: Braid, with_: str, why: str) -> None:
    sql = f"CREATE STREAM s WITH (kafka_topic='{name_of('x')}', {with_});"
    told = refused(braid("check", "-e", sql))
    assert why in told and "at line 1" in told and "Traceback" not in told


def connections(server: socket.socket) -> Iterator[None]:
    """Those that clients have made so far."""
    server.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            yield


def test_no_registry_is_told_after_two_tries(braid: Braid, broker: Broker, tmp_path: Path) -> None:
    sql = f"CREATE STREAM s WITH (kafka_topic='{name_of('x')}', value_format='AVRO');"
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert f"no registry answers at {nobody}" in refused(braid("run", "-e", sql, at=nobody))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert f"no registry answers at {address}" in refused(braid("check", "-e", sql, at=address))
        assert len([*connections(silent)]) == 2
    words = ["run", "-e", sql, "--store", str(tmp_path / "d")]
    told = refused(cli_help.braid(*words, "--kafka", broker.address))
    assert "AVRO needs a schema registry" in told and "--registry URL" in told
    told = refused(cli_help.braid(*words, "--registry", nobody))
    assert "--registry has no meaning without --kafka" in told
    told = refused(cli_help.braid(*words, "--kafka", broker.address, "--registry", f"http://{USER}@h"))
    assert "without name and password" in told and "secret" not in told


def test_a_registry_that_asks_for_a_password(
    braid: Braid, broker: Broker, registry: Registry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    name = clients.make_topic(broker.address, name_of("g"))
    value = AvroSerializer(client, json.dumps(ONE))({"id": 5}, at(name, "value"))
    clients.produce(broker.address, name, [Record(None, value, T0 + i) for i in range(3)])
    file = tmp_path / "registry.properties"
    sql = f"CREATE STREAM s WITH (kafka_topic='{name}', value_format='AVRO', key_format='NONE');"
    sql += "SELECT * FROM s EMIT CHANGES;"
    with guarded(registry) as door:
        file.write_text(f"# the user\nbasic.auth.user.info={USER}\n")
        shown = braid("sql", "-e", sql, "--registry-config", str(file), at=door.url)
        assert shown.code == 0 and shown.out.count("5") == 3, shown.err
        assert sum("schemas/ids" in x for x in door.asked) == 1, "an id is asked for once"
        wrong = tmp_path / "wrong.properties"
        wrong.write_text("basic.auth.user.info=ann:other-word\n")
        told = refused(braid("check", "-e", sql, "--registry-config", str(wrong), at=door.url))
        assert "refuses access" in told and "401" in told and "other-word" not in told
        assert "401" in refused(braid("check", "-e", sql, at=door.url))
    file.write_text("url=http://elsewhere\n")
    assert "url is Braid's own to set" in refused(braid("check", "-e", sql, "--registry-config", str(file)))
    kept = [f for f in (tmp_path / "d").rglob("*") if f.is_file()]
    assert kept and all(b"very-secret" not in f.read_bytes() for f in kept)


def test_risingwave_by_its_words(braid: Braid, broker: Broker, client: SchemaRegistryClient, tmp_path: Path) -> None:
    """Keys of any bytes, columns of the registry or of a file, a table of Braid's own; bodies without an id."""
    name, alone, own = (clients.make_topic(broker.address, name_of(x)) for x in "ral")
    rows = [{"id": i, "note": f"n{i}"} for i in range(3)]
    of = AvroSerializer(client, json.dumps(TWO))
    clients.produce(broker.address, name, [Record(b"\0\xff", of(r, at(name, "value")), T0 + r["id"]) for r in rows])
    (tmp_path / "two.avsc").write_text(json.dumps(TWO))
    bodies = [fastavro_body(TWO, r) for r in rows]
    clients.produce(broker.address, alone, [Record(b"\xfe", b, T0 + i) for i, b in enumerate([*bodies, b"\x05"])])
    sql = f"""
        CREATE SOURCE s WITH (connector = 'kafka', topic = '{name}')
          FORMAT PLAIN ENCODE AVRO (schema.registry = 'http://elsewhere');
        CREATE TABLE t (PRIMARY KEY (id)) WITH (connector = 'kafka', topic = '{name}') FORMAT PLAIN ENCODE AVRO;
        CREATE SOURCE a WITH (connector = 'kafka', topic = '{alone}')
          FORMAT PLAIN ENCODE AVRO (schema.location = 'file://{tmp_path}/two.avsc');
        CREATE TABLE {own} (id INT PRIMARY KEY, item VARCHAR) FORMAT PLAIN ENCODE AVRO;
        INSERT INTO {own} VALUES (1, 'one'), (2, NULL);
        SELECT COUNT(*) AS n, MAX(note) AS note FROM s;
        SELECT COUNT(*) AS n, MAX(note) AS note FROM t;
        SELECT COUNT(*) AS n, MAX(note) AS note FROM a;
        SELECT COUNT(item) AS n, MAX(item) AS note FROM {own};
    """
    shown = braid("sql", "--dialect", "risingwave", "-e", sql)
    assert shown.code == 0, shown.err
    found = [x.split() for x in shown.out.splitlines() if x[:1].isdigit() and "rows" not in x]
    assert found == [["3", "n2"], ["3", "n2"], ["3", "n2"], ["1", "one"]], shown.out
    assert "1 record of a cannot be read as it is declared: left out" in shown.err
    read = AvroDeserializer(client)
    made = [(r.key, read(r.value, at(own, "value"))["item"]) for r in clients.consume(broker.address, own)]
    assert made == [(b"1", "one"), (b"2", None)]


def fastavro_body(schema: dict[str, object], row: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def test_what_a_registry_takes_but_cannot_compare(braid: Braid, registry: Registry) -> None:
    """Apicurio, where a message imports what it does not know: as any run after the first one finds it."""
    imports = 'syntax = "proto3"; import "confluent/type/decimal.proto"; message M { confluent.type.Decimal A = 1; }'
    name = name_of("imports")
    registry.register(f"{name}-value", imports, "PROTOBUF")
    source = "CREATE STREAM s (k INT KEY, a DECIMAL(9, 2), b DATE) WITH (kafka_topic='s', value_format='JSON');"
    sink = f"CREATE STREAM o WITH (kafka_topic='{name}', value_format='PROTOBUF') AS SELECT * FROM s;"
    said = braid("sql", "-e", f"{source} EXPLAIN {sink}")
    assert said.code == 0, said.err
