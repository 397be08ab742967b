"""The same statements over the same records give the same, broker to broker and on the store.

In: case pages, their statements and records (not what they expect: their times are moved, as Kafka takes 0 for
now). Out: every result record by record, in order, with its time and headers.
Rule: every page is run whose topics have one partition: then both have one order. What a page holds back (an end, a
declared bound) is not told to either. Pages of tables that statements change are asked what their queries give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import braid
from braid.bind.program import Program, first_match
from braid.errors import BraidError
from braid.face.catalogue import written_as
from braid.face.session import Handle, Session
from braid.lower.lower import lower
from braid.stage.emit import wires_of
from braid.store import opened
from braid.testing.cases import Block, _feed, blocks
from braid.topics.broker import Broker as Address
from braid.topics.interface import Topics, open_topics
from braid.topics.reading import records_of
from braid.topics.store_value import Store
from kafka.broker import PATIENT, Broker, own_broker
from kafka.clients import delete_topic
from kafka.conftest import had

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.filterwarnings("ignore::UserWarning")]

CASES = Path(__file__).parent.parent / "cases"
NOT_HERE = re.compile(r"UPDATE |DELETE |VALUES|LIMIT|ROWPARTITION|ROWOFFSET|PARTITIONS *= *[2-9]", re.IGNORECASE)
SHOWN = ("reason", "operator", "topic", "key", "value", "timestamp")  # of a drop; offsets have gaps on a broker
LATER = 1_000_000_000_000  # ms that times of records are moved by


@dataclass(frozen=True)
class Page:
    path: Path
    dialect: str
    sql: str
    records: tuple[dict[str, Any], ...]
    standing: tuple[str, ...]  # topics of which only the last record of each key is told: order is the moment's


def page_of(path: Path) -> Page | None:
    """The page, where it can be fed to a run that only reads what is there."""
    found = list(blocks(path.read_text(encoding="utf-8")))
    sql = [b for b in found if b.kind == "sql"]
    text = "\n".join(b.text for b in sql)
    if not sql or any(b.kind in ("refused", "query", "explain", "functions") for b in found) or NOT_HERE.search(text):
        return None
    if "SELECT" not in text.upper():
        return None
    dialect = next((b.argument for b in sql if b.argument), "ksqldb")
    records = tuple(r for b in found if b.kind == "input" for r in records_in(b))
    if not records or any(r["partition"] for r in records):
        return None
    standing = tuple(b.argument.upper() for b in found if b.kind == "standing")
    return Page(path, dialect, text, records, standing)


class Recorder:
    """Takes what a page writes."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def write(self, topic: str, **record: Any) -> None:
        self.records.append({"topic": topic, **record})

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None  # clock, restart, finish


def records_in(block: Block) -> list[dict[str, Any]]:
    recorder = Recorder()
    _feed(recorder, block)  # type: ignore[arg-type]
    return recorder.records


OF_A_DIALECT = 12
ALWAYS = ("semantic_table.md", "final.md", "session_final.md", "windowed_sources.md")
# In these is every operator once: `make test` runs them, too.
SHORT = (
    "lenses/lateral/keys.md",
    "lenses/joins/composite.md",
    "ksqldb/aggregates/final.md",
    "ksqldb/aggregates/session_final.md",
    "sqlstream/windows/offset_alone.md",
)
KAFKA_CANNOT = ("malformed.md",)  # has keys that no serializer writes


def pages() -> Iterator[Page]:
    """Some of each dialect, from all over its folders; the semantic tables among them."""
    found = [p for path in sorted(CASES.rglob("*.md")) if (p := page_of(path)) is not None]
    found = [p for p in found if p.path.name not in KAFKA_CANNOT]
    for dialect in sorted({p.dialect for p in found}):
        mine = [p for p in found if p.dialect == dialect]
        tables = [p for p in mine if p.path.name in ALWAYS or called(p) in SHORT]
        step = max(1, len(mine) // OF_A_DIALECT)
        yield from tables
        yield from [p for p in mine[::step] if p not in tables][: OF_A_DIALECT - len(tables)]


def called(page: Page) -> str:
    return page.path.relative_to(CASES).as_posix()


PAGES = list(pages())


def fed(topics: Topics, page: Page) -> None:
    """The page's records, in the order of the page."""
    for r in page.records:
        topic = first_match(r["topic"], topics.names()) or r["topic"]
        headers = [list(h) for h in r["headers"]] or None
        record = r | {"timestamp": LATER + r["timestamp"], "headers": headers}
        topics.append(topic, [record], how=written_as(topics, topic))


def made(session: Session, topics: Topics, page: Page) -> dict[str, list[Any]]:
    """What the page's queries write. All records are there before the first query starts, so all have one order."""
    for r in page.records:  # not compacted: a record without a key is one, too
        if page.dialect != "sqlstream" and not topics.exists(r["topic"]):
            topics.create(r["topic"])
    session.execute(";".join(x for x in page.sql.split(";") if "SELECT" not in x.upper()) + ";")
    fed(topics, page)
    return results(list(one_by_one(session, page)), topics)


def one_by_one(session: Session, page: Page) -> Iterator[Handle]:
    """Each query begins when those before it are idle: one that joins another's result with rows that lie there meets
    it whole, or it would be a race of the two that decides what matches, as in the systems themselves."""
    others: list[str] = []
    for statement in page.sql.split(";"):
        if "SELECT" not in statement.upper():
            others.append(statement)
            continue
        for handle in session.execute(";".join([*others, statement]) + ";"):
            handle.await_idle()
            yield handle


def at_the_end(page: Page, topic: str, rows: list[Any]) -> Any:
    """What is compared of a topic."""
    if topic.upper() not in page.standing:
        return rows
    return {(partition, key): value for partition, key, value, *_ in rows}


def results(handles: Sequence[Handle], topics: Topics) -> dict[str, list[Any]]:
    """What queries write of all that is there, record by record; and what they drop."""
    for handle in handles:
        handle.await_idle()
    found: dict[str, list[Any]] = {}
    for handle in handles:
        sink = handle._running.job.output.target
        how, rows = wires_of(handle._running.job.plan.query.sink), []
        for p, end in enumerate(topics.end_offsets(sink)):
            parsed: pl.DataFrame = topics.parsed(sink, p, 0, end, how)
            rows += [
                (p, json.dumps(r["key"]), json.dumps(r["value"]), r["timestamp"], *map(json.dumps, besides(r)))
                for r in records_of(sink, p, parsed)
            ]
        found[handle.name] = rows
        found[f"drops of {handle.name}"] = sorted(json.dumps({c: d[c] for c in SHOWN}) for d in handle.drops())
    return found


def besides(record: dict[str, Any]) -> tuple[Any, Any]:
    """Headers, and where the window begins: of windows of a size a broker's keys hold no more."""
    return record.get("headers"), record.get("window", [None])[0]


@pytest.fixture(scope="module")
def plain_broker() -> Iterator[Broker]:
    """One that never compacts: all that was written can be seen."""
    with had(own_broker(PATIENT | {"log.cleaner.enable": "false"})) as server:
        yield server


def test_every_operator_is_in_a_short_page() -> None:
    """Of those that any page shows that is run here."""
    shown: dict[str, set[str]] = {}
    for page in PAGES:
        queries = [e.query for e in Program(page.dialect).statements(page.sql) if e.query is not None]
        steps = (step for q in queries for stage in lower(q).stages for step in stage.steps)
        shown[called(page)] = {type(step.operator).__name__ for step in steps}
    assert set().union(*shown.values()) == set().union(*(shown[name] for name in SHORT))


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.kafka_short if called(p) in SHORT else ()) for p in PAGES], ids=called
)
def test_a_broker_gives_what_the_store_gives(page: Page, plain_broker: Broker, tmp_path: Path) -> None:
    there = open_topics(Store(opened(str(tmp_path / "there")), Address(plain_broker.address)))
    before = set(there.names())
    outcomes = []
    try:
        for folder, kafka in (("here", None), ("there", plain_broker.address)):
            with braid.connect(page.dialect, str(tmp_path / folder), kafka=kafka) as session:
                try:
                    topics = session._store
                    outcomes.append(made(session, topics, page))
                except BraidError as e:
                    outcomes.append({"refused": [e.message]})
    finally:
        for name in set(there.names()) - before:
            delete_topic(plain_broker.address, name)
    here, on_broker = ({topic: at_the_end(page, topic, rows) for topic, rows in x.items()} for x in outcomes)
    if "refused" in here:
        pytest.skip(f"the store refuses it: {here['refused'][0]}")
    assert on_broker == here
    assert here


# ------------------------------------------------- tables that statements change

ROWS = ("sql", "query", "refused")  # blocks of a page that asks for rows; what is refused needs no broker
CHANGING = [
    path
    for path in sorted((CASES / "risingwave").rglob("*.md"))
    if {b.kind for b in blocks(path.read_text(encoding="utf-8"))} <= set(ROWS)
    and "query" in {b.kind for b in blocks(path.read_text(encoding="utf-8"))}
    and not re.search("PROCTIME|AVRO|connector", path.read_text(encoding="utf-8"))  # of the moment; of a registry
][:OF_A_DIALECT]


def answered(session: Session, path: Path) -> list[list[str]]:
    """The rows of each query of a page, as texts (NaN is itself there), when all that was changed before it has been
    worked off."""
    found = []
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.kind == "sql":
            session.execute(block.text)
        elif block.kind == "query":
            for handle in session._handles.values():
                handle.await_idle()
            found.append(sorted(map(repr, session.query(block.text.partition("\n----")[0]))))
    return found


@pytest.mark.parametrize("path", CHANGING, ids=lambda p: str(p.relative_to(CASES)))
def test_tables_on_a_broker_are_those_of_the_store(path: Path, plain_broker: Broker, tmp_path: Path) -> None:
    there = open_topics(Store(opened(str(tmp_path / "there")), Address(plain_broker.address)))
    before = set(there.names())
    outcomes = []
    try:
        for folder, kafka in (("here", None), ("there", plain_broker.address)):
            with braid.connect("risingwave", str(tmp_path / folder), kafka=kafka) as session:
                outcomes.append(answered(session, path))
    finally:
        for name in set(there.names()) - before:
            delete_topic(plain_broker.address, name)
    here, on_broker = outcomes
    assert on_broker == here
    assert any(here)
