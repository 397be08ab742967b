"""What is refused before anything starts: rights that lack, topics and brokers that cannot keep what Braid promises.

In: brokers with permissions, without transactions; topics with settings of their own. Out: one clear line, within ten
seconds, without Spark; or the drops.
Rule: every test of a refusal has its counterpart, in which the same goes through.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from braid.errors import BraidError
from braid.store import opened
from braid.topics import access
from braid.topics.broker import broker_of
from braid.topics.kafka import KafkaTopics
from cli_help import Said, braid, spawned
from kafka import clients
from kafka.broker import Broker, own_broker
from kafka.clients import Record
from kafka.conftest import had
from kafka.secured import allow, login, secured_broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COPY = """
CREATE STREAM {s} (k VARCHAR KEY, v VARCHAR) WITH (kafka_topic='{s}', value_format='JSON', partitions=1);
CREATE STREAM {o} WITH (kafka_topic='{o}') AS SELECT k, v FROM {s};
"""


def prepared(broker: Broker, folder: Path, **settings: str) -> tuple[str, str]:
    """A query that copies a topic to another, which has these settings."""
    s, o = (clients.fresh(x).upper().replace("-", "_") for x in "so")
    (folder / "q.sql").write_text(COPY.format(s=s, o=o))
    clients.make_topic(broker.address, s)
    if settings:
        clients.make_topic(broker.address, o, config={n.replace("_", "."): x for n, x in settings.items()})
    return s, o


def run(folder: Path, broker: Broker | str, *more: str) -> Said:
    address = broker if isinstance(broker, str) else broker.address
    words = ("run", "q.sql", "--store", "d", "--until-idle", "--master", "local[1]", "--kafka", address, *more)
    return spawned(*words, cwd=folder)


def refused(folder: Path, broker: Broker | str, *more: str) -> str:
    """The line of a run that is refused."""
    said = run(folder, broker, *more)
    assert (said.code, said.out) == (1, ""), said
    lines = [x for x in said.err.splitlines() if not x.startswith("note: ")]
    assert len(lines) == 2, said.err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("  hint: ")
    assert not (folder / "d" / "checkpoints").exists()
    return lines[0]


# ----------------------------------------------------------------------- topics


def test_append_time(broker: Broker, tmp_path: Path) -> None:
    s, o = prepared(broker, tmp_path, message_timestamp_type="LogAppendTime")
    told = refused(tmp_path, broker)
    assert f"the topic {o} has times of the broker's own (message.timestamp.type=LogAppendTime)" in told
    source = clients.make_topic(broker.address, config={"message.timestamp.type": "LogAppendTime"})
    (tmp_path / "q.sql").write_text((tmp_path / "q.sql").read_text().replace(f"='{s}'", f"='{source}'").replace(o, "P"))
    clients.produce(broker.address, source, [Record(b"k", b'{"V": "x"}', 5)])
    sink = clients.fresh("P").upper().replace("-", "_")
    (tmp_path / "q.sql").write_text((tmp_path / "q.sql").read_text().replace("'P'", f"'{sink}'"))
    assert run(tmp_path, broker).code == 0
    (read,) = clients.consume(broker.address, sink)
    assert read.time > 1_700_000_000_000


def test_names_and_addresses(broker: Broker, tmp_path: Path) -> None:
    s, o = prepared(broker, tmp_path)
    assert "no broker answers at 127.0.0.1:1" in refused(tmp_path, "127.0.0.1:1")
    told = refused(tmp_path, broker, "--conf", "spark.speculation=true")
    assert "spark.speculation does not go with --kafka" in told
    (tmp_path / "q.sql").write_text(COPY.format(s=s, o=o).replace(f"='{o}'", "='a b'"))
    named = run(tmp_path, broker)
    assert (named.code, "topic name 'a b': ' ' in it" in named.err) == (1, True)
    alone = spawned("run", "q.sql", "--at-least-once", cwd=tmp_path)
    assert "--at-least-once has no meaning without --kafka" in alone.err


def test_a_record_that_is_too_large_is_a_drop(broker: Broker, tmp_path: Path) -> None:
    """Others go through, though all of them together are larger."""
    s, o = prepared(broker, tmp_path, max_message_bytes="4000")
    fits = 4000 - 61 - 22 - 2 - len('{"V":""}')
    sizes = [10, fits, fits + 1, *([900] * 30), 100_000, 7]
    rows = [Record(b"%02d" % i, json.dumps({"V": "x" * n}).encode(), i + 1) for i, n in enumerate(sizes)]
    clients.produce(broker.address, s, rows)
    said = run(tmp_path, broker)
    assert said.code == 0, said
    found = [(r.key, len(json.loads(r.value or b"")["V"])) for r in clients.consume(broker.address, o)]
    assert found == [(b"%02d" % i, n) for i, n in enumerate(sizes) if n <= fits]
    shown = spawned("drops", o, "--store", "d", "--format", "jsonl", cwd=tmp_path)
    drops = [json.loads(x) for x in shown.out.splitlines()]
    assert [(d["reason"], d["key"], d["topic"], d["offset"], d["value"]) for d in drops] == [
        ("too large", "02", s, 2, None),
        ("too large", "33", s, 33, None),
    ]
    assert drops[0]["message"] == f"4001 bytes as a record; {o} takes 4000 (max.message.bytes)"


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_record_without_a_key_is_a_drop_of_a_compacted_topic(broker: Broker, tmp_path: Path, policy: str) -> None:
    s, o = prepared(broker, tmp_path, cleanup_policy=policy)
    rows = [Record(k, b'{"V": "x"}', i + 1) for i, k in enumerate((b"a", None, b"b", None))]
    clients.produce(broker.address, s, rows)
    said = run(tmp_path, broker)
    assert said.code == 0, said
    assert [r.key for r in clients.consume(broker.address, o)] == [b"a", b"b"]
    shown = spawned("drops", o, "--store", "d", "--format", "jsonl", cwd=tmp_path)
    drops = [json.loads(x) for x in shown.out.splitlines()]
    assert [(d["reason"], d["operator"], d["topic"], d["offset"]) for d in drops] == [
        ("null key", "write", s, 1),
        ("null key", "write", s, 3),
    ]
    assert drops[0]["message"] == f"{o} is compacted: it takes no record without a key"
    assert drops[0]["value"]["V"] == "x"
    put = braid("put", o, "--kafka", broker.address, stdin='{"value": {"V": 1}}\n')
    assert (put.code, put.out) == (1, "")
    assert "a record has no key, and the topic is compacted" in put.err


# ------------------------------------------------------------------------ rights

RIGHTS = (
    ("READ", "TOPIC", "s"),
    ("WRITE", "TOPIC", "o"),
    ("READ", "TOPIC", "o"),
    ("DESCRIBE_CONFIGS", "TOPIC", "o"),
    ("WRITE", "TRANSACTIONAL_ID", "braid."),
    ("READ", "GROUP", "braid."),
)


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with had(secured_broker({f"u{i}": "right" for i in range(len(RIGHTS) + 2)})) as server:
        yield server


def as_user(secured: Broker, folder: Path, user: str, password: str = "right") -> KafkaTopics:
    (folder / "k.conf").write_text("".join(f"{n}={x}\n" for n, x in login(user, password).items()))
    made = broker_of(secured.address, str(folder / "k.conf"))
    assert made is not None
    return KafkaTopics(opened(folder / "d"), made)


def granted(secured: Broker, user: str, names: dict[str, str], but: tuple[str, str, str] | None = None) -> None:
    for right in RIGHTS:
        if right != but:
            operation, kind, name = right
            allow(secured.address, user, operation, kind, names.get(name, name), prefixed=kind != "TOPIC")
    allow(secured.address, user, "DESCRIBE", "TOPIC", names["s"])
    allow(secured.address, user, "DESCRIBE", "TOPIC", names["o"])


@pytest.mark.parametrize("number", range(len(RIGHTS)))
def test_each_right_is_asked_for(secured: Broker, tmp_path: Path, number: int) -> None:
    names = {x: clients.make_topic(secured.address) for x in "so"}
    user = f"u{number}"
    granted(secured, user, names, but=RIGHTS[number])
    topics = as_user(secured, tmp_path, user)
    with pytest.raises(BraidError) as e:
        access.check(topics, "q", [names["s"]], names["o"])
    operation, kind, name = RIGHTS[number]
    assert "does not permit" in e.value.message
    told = {"TOPIC": names.get(name, ""), "GROUP": "group", "TRANSACTIONAL_ID": "transaction"}[kind]
    assert told in e.value.message.lower()
    assert "right" in (e.value.hint or "")
    if operation == "WRITE" and kind == "TOPIC":
        allow(secured.address, user, operation, kind, names[name])
        access.check(topics, "q", [names["s"]], names["o"])


def test_a_topic_to_be_made(secured: Broker, tmp_path: Path) -> None:
    source, sink = clients.make_topic(secured.address), clients.fresh("made")
    user = f"u{len(RIGHTS)}"
    topics = as_user(secured, tmp_path, user)
    granted(secured, user, {"s": source, "o": sink})
    with pytest.raises(BraidError, match=f"create the topic {sink}: the broker does not permit it"):
        access.check(topics, "q", [source], sink)
    allow(secured.address, user, "CREATE", "TOPIC", sink)
    access.check(topics, "q", [source], sink)
    assert not clients.topic_exists(secured.address, sink)


def test_a_run_without_rights_ends_at_once(secured: Broker, tmp_path: Path) -> None:
    _, o = prepared(secured, tmp_path)
    clients.make_topic(secured.address, o)
    as_user(secured, tmp_path, f"u{len(RIGHTS) + 1}")
    assert "the broker does not permit" in refused(tmp_path, secured, "--kafka-config", "k.conf")
    as_user(secured, tmp_path, "u0", "wrong")
    told = refused(tmp_path, secured, "--kafka-config", "k.conf")
    assert "refuses the connection" in told
    assert "wrong" not in told


# -------------------------------------------------------------- at least once


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    """A broker that takes no transactions: it has not the copies that it wants of their log."""
    with had(own_broker({"transaction.state.log.replication.factor": "3"})) as server:
        yield server


def test_a_broker_without_transactions(plain: Broker, tmp_path: Path) -> None:
    s, o = prepared(plain, tmp_path)
    clients.produce(plain.address, s, [Record(b"k", b'{"V": "x"}', 5), Record(b"l", b'{"V": "y"}', 6)])
    assert "takes no transactions" in refused(tmp_path, plain)
    shown = spawned("doctor", "--kafka", plain.address, cwd=tmp_path)
    assert "takes no transactions" in shown.out
    assert "with --at-least-once" in shown.out
    assert shown.code == 1
    told = spawned("explain", "q.sql", "--kafka", plain.address, "--at-least-once", cwd=tmp_path)
    assert f"results go to Kafka at {plain.address} at least once" in told.out
    said = run(tmp_path, plain, "--at-least-once")
    assert said.code == 0, said
    assert "results go to Kafka at least once" in said.err
    clients.produce(plain.address, s, [Record(b"m", b'{"V": "z"}', 7)])
    assert run(tmp_path, plain, "--at-least-once").code == 0
    found = [(r.key, r.value, r.time) for r in clients.consume(plain.address, o)]
    assert found == [(b"k", b'{"V":"x"}', 5), (b"l", b'{"V":"y"}', 6), (b"m", b'{"V":"z"}', 7)]


def test_a_query_keeps_its_delivery(broker: Broker, tmp_path: Path) -> None:
    _, o = prepared(broker, tmp_path)
    assert run(tmp_path, broker, "--at-least-once").code == 0
    said = run(tmp_path, broker)
    assert (said.code, f"the query {o} has run with --at-least-once" in said.err) == (1, True)
    good = spawned("doctor", "--kafka", broker.address, cwd=tmp_path)
    assert "ok    results go there exactly once" in good.out
