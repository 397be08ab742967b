"""`make demo-kafka`: the joins of `braid demo` from broker to broker, Avro with a schema registry.

In: the demo's data; a broker and a registry of the demo's own, which are fetched once. Out: results, what is left to
read, a dead letter; commands to go on with.
Rule: records are written by confluent-kafka's own Avro serializer, a few of them spoilt; what is shown is read from the
broker. Each time all begins anew; the servers end by themselves, half an hour after their last user.

    PYTHONPATH=tests python -m kafka.demo [stop] [FOLDER]
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from confluent_kafka import Producer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from rich.console import Console
from rich.table import Table

from braid.demo.show import demo_sql, show_results, sources
from braid.errors import BraidError
from braid.face.catalogue import written_as
from braid.face.metrics import summary_lines
from braid.face.request import Request
from braid.face.run import run_program
from braid.store import opened as store_in
from braid.topics.broker import broker_of
from braid.topics.interface import Topics, open_topics
from braid.topics.reading import records_of
from braid.topics.store_value import Store
from kafka import broker, clients, kept, registry
from kafka.fetch import Unavailable, cache

KEYS = {"flights": "tailnum", "weather": "origin", "planes": "tailnum"}
TIMES = {"flights": "departed", "weather": "hour"}
AVRO = {pl.String: "string", pl.Int64: "int", pl.Float64: "double", pl.Boolean: "boolean"}
ONE_MORE = {"key": "N14228", "value": {"carrier": "UA", "flight": 1545, "departed": 1359730800000}}
DEAD = "dead-letters"
SPOILT = 3  # flights that somebody writes without the serializer


def main(words: list[str]) -> int:
    out, err = Console(highlight=False), Console(stderr=True)
    end, folder = words[:1] == ["stop"], cache() / "demo"
    for word in words[end:]:
        folder = Path(word).resolve()
    if end:
        out.print("stopped" if all(stopped(folder)) else "does not run, or is in use")
        return 0
    try:
        with ExitStack() as stack:
            _run(folder, stack, out, err)
        return 0
    except Unavailable as reason:
        err.print(f"no Kafka on this machine: {reason}", style="red", markup=False)
    except BraidError as e:
        err.print(e.render(), style="red", markup=False)
    return 1


def stopped(folder: Path) -> list[bool]:
    return [kept.stop(broker.Broker, folder / "broker"), kept.stop(registry.Registry, folder / "registry")]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo runs."""

    kafka: str
    registry: str
    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def sql(self) -> Path:
        return self.folder / "demo.sql"


def _run(folder: Path, stack: ExitStack, out: Console, err: Console) -> None:
    began = time.monotonic()
    out.print("[bold]Flights from New York, over Kafka[/bold] (January 2013): `make demo`, topic to topic, as Avro.")
    with err.status("a broker and a schema registry start (the first time they are fetched, 300 MB) …"):
        at = _servers(folder, stack)
    out.print(f"A broker at {at.kafka}, a registry at {at.registry}", markup=False, soft_wrap=True)
    with err.status("flights, weather and planes are written …"):
        count = write_all(at)
    out.print(f"{count:,} records written by confluent-kafka's Avro serializer, {SPOILT} flights by none")
    sql = demo_sql().replace("value_format = 'JSON'", "value_format = 'AVRO'")
    at.sql.write_text(sql)
    address = broker_of(at.kafka, None, at.registry, dead_letters=DEAD)
    outcome = run_program(
        Request(sql, "ksqldb", Store(store_in(str(at.store)), address), until_idle=True, tell=False), err
    )
    if outcome.interrupted:
        out.print("stopped")
        return
    opened = open_topics(Store(store_in(str(at.store)), address))
    show_results(lambda topic: records(opened, topic), out)
    out.print("\n[bold]Read, written, kept and dropped[/bold]")
    for line in summary_lines(outcome.done, outcome.waits):
        out.print(line, markup=False)
    out.print("\n[bold]What is left to read[/bold] (the group of each query, as Kafka's own tools show it)")
    out.print(_lag(at.kafka, list(outcome.done)))
    out.print(
        f"\n[bold]A dead letter[/bold]: what a query cannot take goes to the topic {DEAD}, as it came, with the reason"
    )
    out.print(_dead(at.kafka), markup=False, soft_wrap=True)
    out.print(f"\n{time.monotonic() - began:.0f} s in all. [bold]Try next[/bold] (the servers stay for half an hour)")
    out.print(_next(at), markup=False, soft_wrap=True)


def _servers(folder: Path, stack: ExitStack) -> Place:
    broker.fetch()
    registry.fetch()
    stopped(folder)  # topics of the last time go with it
    one = stack.enter_context(kept.kept(broker.Broker, folder / "broker"))
    other = stack.enter_context(kept.kept(registry.Registry, folder / "registry"))
    made = Place(one.address, other.url, folder)
    shutil.rmtree(made.store, ignore_errors=True)
    return made


# --------------------------------------------------------------------- records


def write_all(at: Place) -> int:
    """The three topics, from the files of the demo; gives how many records. Planes are there before all flights."""
    client, count = clients.schemas(at.registry), 0
    frames = {name: pl.read_csv(path, infer_schema_length=None) for name, path in sources(None).items()}
    first = min(frames[name][column].min() for name, column in TIMES.items())
    for name, frame in frames.items():
        clients.make_topic(at.kafka, name)
        encode = AvroSerializer(client, json.dumps(_schema(name, frame.drop(KEYS[name]))))
        context = SerializationContext(name, MessageField.VALUE)
        producer = Producer(clients.settings(at.kafka, linger_ms=50, enable_idempotence=True))
        spoil = frame.height // (SPOILT + 1) if name == "flights" else frame.height
        for number, row in enumerate(frame.iter_rows(named=True), 1):
            key, when = row.pop(KEYS[name]), row[TIMES[name]] if name in TIMES else first - 1
            _send(producer, name, encode(row, context), key, when)
            if number % spoil == 0 and number // spoil <= SPOILT and name == "flights":
                _send(producer, name, json.dumps(row).encode(), key, when)
        if producer.flush(60):
            raise Unavailable(f"the broker does not take all records of {name}")
        count += frame.height
    return count


def _send(producer: Producer, topic: str, value: bytes, key: str | None, when: int) -> None:
    while True:
        try:
            producer.produce(topic, value, key, timestamp=when)
            return
        except BufferError:
            producer.poll(0.1)


def _schema(name: str, frame: pl.DataFrame) -> dict[str, Any]:
    types = {c: "long" if c == TIMES.get(name) else AVRO[type(t)] for c, t in frame.schema.items()}
    fields = [{"name": c, "type": ["null", t], "default": None} for c, t in types.items()]
    return {"type": "record", "name": name, "namespace": "demo", "fields": fields}


def records(opened: Topics, topic: str) -> Iterator[dict[str, Any]]:
    """The records of a topic, as they were declared."""
    how = written_as(opened, topic)
    for p, (first, end) in enumerate(zip(opened.start_offsets(topic), opened.end_offsets(topic), strict=True)):
        yield from records_of(topic, p, opened.parsed(topic, p, first, end, how))


# --------------------------------------------------------------------- telling


def _lag(address: str, queries: list[str]) -> Table:
    table = Table("query", "topic", "read up to", "end", "lag", box=None, header_style="dim", pad_edge=False)
    for query in queries:
        ends: dict[str, dict[int, int]] = {}
        for (topic, p), offset in sorted(clients.group_offsets(address, f"braid.{query}").items()):
            end = ends.setdefault(topic, clients.ends(address, topic))[p]
            table.add_row(f"braid.{query}", topic, f"{offset:,}", f"{end:,}", f"{end - offset:,}")
    return table


def _dead(address: str) -> str:
    """The first that is no Avro."""
    letters = [r for r in clients.consume(address, DEAD) if not (r.value or b"").startswith(b"\0")]
    shown = [f"{name.rsplit('.', 1)[-1]}: {(x or b'').decode()}" for name, x in letters[0].headers]
    return f"{(letters[0].value or b'').decode()[:70]} …\n" + ", ".join(shown)


def _next(at: Place) -> str:
    braid, store = shlex.quote(str(Path(sys.executable).with_name("braid"))), shlex.quote(str(at.store))
    lines = [
        f'demo() {{ {braid} "$@" --kafka {at.kafka} --registry {at.registry} --store {store}; }}',
        "demo topics",
        "demo cat FLEET --latest --limit 5",
        f"demo cat {DEAD} --limit 5",
        f"{braid} drops FLIGHTS_WITH_PLANE --store {store}",
        f"demo run {shlex.quote(str(at.sql))} &       # goes on from here, until you end it: kill %1",
        f"echo '{json.dumps(ONE_MORE)}' | demo put flights",
        "demo cat FLIGHTS_WITH_PLANE --tail 1",
    ]
    return "\n".join(f"  {line}" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
