"""Dead letters: what a query drops, as it came, in a topic of its own.

In: records that cannot be read, that are too large, that have no time. Out: letters beside the result, in one
transaction with it; the drops in the store as ever.
Rule: letters are read by a client that is not Braid's.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from braid.errors import BraidError
from braid.sinks.dead_letters import DEAD_LETTER, DeadLetters, dead_letters_of
from braid.store import opened
from braid.topics import access
from braid.topics.access import Takes
from braid.topics.broker import Broker as Address
from braid.topics.broker import broker_of
from braid.topics.kafka import KafkaTopics, _spans
from cli_help import spawned
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SQL = """
CREATE STREAM {s} (k VARCHAR KEY, v VARCHAR, t BIGINT)
  WITH (kafka_topic='{s}', value_format='JSON', partitions=2, timestamp='t');
CREATE STREAM {o} WITH (kafka_topic='{o}') AS SELECT k, v FROM {s};
"""


def value(v: str, t: int) -> bytes:
    return json.dumps({"V": v, "T": t}).encode()


def test_what_is_dropped_comes_as_it_came(broker: Broker, tmp_path: Path) -> None:
    s, o, d = (clients.fresh(x).upper().replace("-", "_") for x in "sod")
    (tmp_path / "q.sql").write_text(SQL.format(s=s, o=o))
    clients.make_topic(broker.address, s, 2)
    clients.make_topic(broker.address, o, 2, {"max.message.bytes": "2000"})
    bad = (
        Record(b"a", b"\xff no json \x00", 5, (("h", b"\x01\xff"), ("n", None)), 1),
        Record(b"b", value("x" * 3000, 7), 6, (), 0),
        Record(b"c", value("early", 0), 7, (), 1),
    )
    good = [Record(b"d", value("fine", 8), 8, (), p) for p in (0, 1)]
    clients.produce(broker.address, s, [good[0], *bad, good[1]])
    words = ("--store", "d", "--until-idle", "--master", "local[2]", "--kafka", broker.address, "--dead-letters", d)
    for _ in range(2):  # the second run has nothing to do
        said = spawned("run", "q.sql", *words, cwd=tmp_path)
        assert said.code == 0, said
    assert [r.value for r in clients.consume(broker.address, o)] == [b'{"V":"fine"}'] * 2
    letters = {r.key: r for r in clients.consume(broker.address, d)}
    assert len(clients.consume(broker.address, d)) == len(letters) == 3
    for record, reason in zip(bad, ("malformed", "too large", "timestamp"), strict=True):
        assert record.key is not None
        letter = letters[record.key]
        assert (letter.value, letter.time) == (record.value, record.time)
        own = {n: x for n, x in letter.headers if n.startswith("__braid.errors.")}
        assert tuple((n, x) for n, x in letter.headers if n not in own) == record.headers
        told = {n.removeprefix("__braid.errors."): (x or b"").decode() for n, x in own.items()}
        assert (told["reason"], told["topic"], told["query"]) == (reason, s, o)
        assert told["partition"] == str(record.partition)
        assert told["offset"].isdigit()
    shown = spawned("drops", o, "--store", "d", "--format", "jsonl", cwd=tmp_path)
    assert sorted(json.loads(x)["reason"] for x in shown.out.splitlines()) == ["malformed", "timestamp", "too large"]


def test_letters_that_do_not_fit_and_records_that_are_gone(broker: Broker, tmp_path: Path) -> None:
    topic = clients.make_topic(broker.address)
    clients.produce(broker.address, topic, [Record(b"k" * n, b"v" * n, 5) for n in (10, 500, 2_000)])
    clients.delete_records(broker.address, topic, {0: 1})
    drops = pl.DataFrame(
        {
            "reason": ["malformed"] * 4,
            "operator": ["read S"] * 4,
            "topic": [topic, topic, topic, "a file"],
            "partition": [0, 0, 0, None],
            "offset": [1, 2, None, 7],
            "timestamp": [5, 5, None, -3],
            "message": ["m" * 5_000, None, None, None],
            "_key": ["1", "2", "3", None],
            "_value": ["[1]", "[2]", "[3]", "[4]"],
        },
        schema_overrides={"partition": pl.Int32},
    )
    topics = KafkaTopics(opened(tmp_path), Address(broker.address), {topic: clients.topic_id(broker.address, topic)})
    to = DeadLetters("dead", 1, Takes(2_500, keyed=False, early=True))
    made = dead_letters_of(to, "Q", topics, [topic], drops)
    assert made.schema == DEAD_LETTER
    sizes = made.select(pl.col("key").bin.size().alias("k"), pl.col("value").bin.size().alias("v")).rows()
    assert sizes == [(500, 500), (2_000, None), (1, 3), (None, 3)]
    assert made["time"].to_list() == [5, 5, 1, -3]
    to = DeadLetters("dead", 1, Takes(2_500, keyed=False, early=False))
    assert dead_letters_of(to, "Q", topics, [topic], drops)["time"].to_list() == [5, 5, 1, 1]
    gone = drops.head(1).with_columns(pl.lit(0, pl.Int64).alias("offset"))
    assert dead_letters_of(to, "Q", topics, [topic], gone)["value"].to_list() == [b"[1]"]


def test_which_records_are_read_again() -> None:
    assert list(_spans([5])) == [(5, 6)]
    assert list(_spans([5, 6, 2_006, 9_000])) == [(5, 2_007), (9_000, 9_001)]


def test_letters_have_a_topic_of_their_own(broker: Broker, tmp_path: Path) -> None:
    s, o = clients.make_topic(broker.address), clients.make_topic(broker.address)

    def topics(letters: str) -> KafkaTopics:
        made = broker_of(broker.address, None, dead_letters=letters)
        assert made is not None
        return KafkaTopics(opened(tmp_path), made)

    for name, to, why in (
        (s, o, "reads or writes it"),
        (o, o, "reads or writes it"),
        ("d", None, "the result of Q does not go to a topic"),
        ("a b", o, "it has ' ' in it"),
    ):
        with pytest.raises(BraidError, match=why):
            access.check(topics(name), "Q", [s], to)
    access.check(topics(clients.fresh()), "Q", [s], o)
    compacted = clients.make_topic(broker.address, config={"cleanup.policy": "compact"})
    with pytest.raises(BraidError, match="compacted, and keeps the last dead letter of a key only"):
        access.check(topics(compacted), "Q", [s], o)
    with pytest.raises(BraidError, match="--dead-letters has no meaning without --kafka"):
        broker_of(None, None, dead_letters="d")
