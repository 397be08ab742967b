"""Pages of formats with schemas: broker and registry give what the store and its folder of schemas give.

In: case pages with such formats, their schemas, statements and records. Out: every result record by record, as in
`test_pages`.
Rule: ids of schemas are the registry's to give, so a page's are replaced by those. A record that no serializer writes
by its schema is left out of both runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import braid
from braid.bind.program import first_match
from braid.errors import BraidError
from braid.face.catalogue import written_as
from braid.face.session import Session
from braid.records import framed
from braid.records.formats.named import FORMATS
from braid.records.given import produced
from braid.records.json_sr import DRAFT
from braid.records.registry import Schema, subject_of
from braid.testing.cases import SCHEMA, USES, Block, blocks
from braid.topics.interface import Topics
from braid.topics.registries import StoreRegistry
from kafka.broker import PATIENT, Broker, own_broker
from kafka.clients import delete_topic, topics_of
from kafka.fetch import Unavailable
from kafka.registry import Registry, own_registry
from kafka.test_pages import CASES, LATER, records_in, results

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.filterwarnings("ignore::UserWarning")]

SCHEMED = re.compile("AVRO|JSON_SR|PROTOBUF", re.IGNORECASE)
NOT_HERE = re.compile(r"UPDATE |DELETE |VALUES \(|LIMIT|PARTITIONS *= *[2-9]", re.IGNORECASE)
KAFKA_CANNOT = ("formats.md",)  # has a result without keys in a topic that is a table's: brokers refuse it there


@dataclass(frozen=True)
class Page:
    path: Path
    dialect: str
    sql: str
    schemas: tuple[Block, ...]
    records: tuple[dict[str, Any], ...]


def pages() -> Iterator[Page]:
    for path in sorted(CASES.rglob("*.md")):
        found = list(blocks(path.read_text(encoding="utf-8")))
        sql = [b for b in found if b.kind == "sql"]
        text = "\n".join(b.text for b in sql)
        fits = path.name not in KAFKA_CANNOT and not NOT_HERE.search(text)
        if fits and SCHEMED.search(text) and "SELECT" in text.upper():
            dialect = next((b.argument for b in sql if b.argument), "ksqldb")
            records = tuple(r for b in found if b.kind == "input" for r in records_in(b))
            yield Page(path, dialect, text, tuple(b for b in found if b.kind == "schema"), records)


PAGES = list(pages())


def registered(page: Page, registry: Registry | StoreRegistry) -> dict[str, int]:
    """The ids that a registry gives the page's schemas, by those of the page."""
    made = {}
    for block in page.schemas:
        found = SCHEMA.match(block.argument)
        assert found is not None
        subject, of = subject_of(found["topic"], found["facet"]), FORMATS[found["format"]].schemas
        assert of is not None
        kind = of.name
        uses = tuple((n, s, int(v)) for n, s, v in USES.findall(found["uses"]))
        if isinstance(registry, StoreRegistry):
            id = registry.register(subject, Schema(kind, block.text, uses), checked=False)
        else:
            text = block.text
            if kind == "JSON":  # Apicurio knows it by this
                text = json.dumps({"$schema": DRAFT} | json.loads(text))
            references = [{"name": n, "subject": s, "version": v} for n, s, v in uses]
            id = registry.register(subject, text, kind, references)
        made[found["id"]] = id
    return made


def fed(topics: Topics, page: Page, unfit: set[int]) -> None:
    """The page's records, in the order of the page, each as a producer by the topic's schema writes it."""
    for number, r in enumerate(page.records):
        topic = first_match(r["topic"], topics.names()) or r["topic"]
        record = r | {"timestamp": LATER + r["timestamp"], "headers": [list(h) for h in r["headers"]] or None}
        if topics.dense:
            record |= {facet: by_schema(topics, topic, facet, r[facet]) for facet in ("key", "value")}
        if number not in unfit:
            try:
                topics.append(topic, [record], how=written_as(topics, topic))
            except BraidError as e:
                assert "does not fit" in e.message, e
                unfit.add(number)


def by_schema(topics: Topics, topic: str, facet: str, value: Any) -> Any:
    registry = topics.registry
    latest = None if registry is None else registry.latest(subject_of(topic, facet))
    if registry is None or latest is None or value is None:
        return value
    text = produced(json.dumps(value), latest[1], framed.others_of(registry, latest[1]))
    return json.loads(text)


def made(session: Session, page: Page, sql: str, unfit: set[int]) -> dict[str, list[Any]]:
    topics = session._store
    for r in page.records:  # not compacted: a record without a key is one, too
        if not topics.exists(r["topic"]):
            topics.create(r["topic"])
    session.execute(";".join(x for x in sql.split(";") if "SELECT" not in x.upper()) + ";")
    fed(topics, page, unfit)
    return results(session.execute(sql), topics)


@pytest.fixture(scope="module")
def plain_broker() -> Iterator[Broker]:
    """One that never compacts: all that was written can be seen."""
    try:
        with own_broker(PATIENT | {"log.cleaner.enable": "false"}) as server:
            yield server
    except Unavailable as reason:
        pytest.skip(f"no Kafka broker: {reason}")


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """One whose subjects are those of one page after the other."""
    try:
        with own_registry() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(f"no schema registry: {reason}")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.path.relative_to(CASES)))
def test_a_registry_gives_what_the_store_gives(
    page: Page, plain_broker: Broker, registry: Registry, tmp_path: Path
) -> None:
    before, unfit = topics_of(plain_broker.address), set[int]()
    outcomes = []
    try:
        for folder, kafka in (("there", plain_broker.address), ("here", None)):
            there = {} if kafka is None else {"kafka": kafka, "registry": registry.url}
            with braid.connect(page.dialect, str(tmp_path / folder), **there) as session:
                schemas = session._store.registry if kafka is None else registry
                assert isinstance(schemas, Registry | StoreRegistry)
                ids, sql = registered(page, schemas), page.sql
                for written, id in ids.items():
                    sql = re.sub(rf"schema_id *= *{written}\b", f"schema_id={id}", sql)
                outcomes.append(made(session, page, sql, unfit))
    finally:
        for name in topics_of(plain_broker.address) - before:
            delete_topic(plain_broker.address, name)
        for subject in registry.call("GET", "/subjects"):
            registry.call("DELETE", f"/subjects/{subject}")
            registry.call("DELETE", f"/subjects/{subject}?permanent=true")
    on_broker, here = outcomes
    assert on_broker == here
    assert any(here.values())
