"""`braid` against a real broker: exactly once through kills, other clients, what is refused, what is told.

In: a broker, topics written by other clients, command lines. Out: what another client reads of the result.
Rule: what is read is read as others read it: committed records only.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from braid import connect
from braid.topics.broker import WAIT
from cli_help import braid as command
from cli_help import on_shared_spark
from kafka import clients, java
from kafka.broker import Broker
from kafka.clients import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOIN = """
CREATE STREAM {l} (k INT KEY, v INT) WITH (kafka_topic='{l}', value_format='JSON', partitions=3);
CREATE STREAM {r} (k INT KEY, w INT) WITH (kafka_topic='{r}', value_format='JSON', partitions=3);
CREATE STREAM {o} WITH (kafka_topic='{o}') AS SELECT {l}.k, v, w FROM {l} JOIN {r}
  WITHIN 1 HOUR GRACE PERIOD 1 HOUR ON {l}.k = {r}.k;
"""


def braid(folder: Path, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "braid", *words]
    return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, timeout=120, check=False)


def up(folder: Path, broker: Broker, file: str = "q.sql", *more: str) -> subprocess.Popen[str]:
    """`braid run`, until it is ended."""
    command = [sys.executable, "-m", "braid", "run", file, "--store", "d", "--kafka", broker.address, "--quiet", *more]
    log = (folder / "run.log").open("a")
    return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True, start_new_session=True)


def until(true: Callable[[], bool], seconds: float = 150) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True


def ended(run: subprocess.Popen[str], how: int = signal.SIGINT) -> int:
    run.send_signal(how)
    return run.wait(60)


def key(n: int) -> bytes:
    return struct.pack(">i", n)


def joined(broker: Broker, topic: str) -> Counter[tuple[int, int, int]]:
    """The rows that another client reads."""
    if not clients.topic_exists(broker.address, topic):
        return Counter()
    rows = [(struct.unpack(">i", r.key)[0], json.loads(r.value)) for r in clients.consume(broker.address, topic)]
    return Counter((k, v["V"], v["W"]) for k, v in rows)


def lag(broker: Broker, query: str, *topics: str) -> int:
    """What usual tools show."""
    told = clients.group_offsets(broker.address, f"braid.{query}")
    ends = {(t, p): end for t in topics for p, end in clients.ends(broker.address, t).items()}
    assert told.keys() <= ends.keys()
    return sum(end - told.get(place, 0) for place, end in ends.items())


class Feed:
    """Writes rows to both sides, and knows what the join of them is."""

    def __init__(self, broker: Broker, names: dict[str, str], seed: int) -> None:
        self.broker, self.names, self.rng, self.count = broker, names, random.Random(seed), 0
        self.rows: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))

    def more(self, rows: int) -> None:
        made: dict[str, list[Record]] = {"l": [], "r": []}
        for _ in range(rows):
            self.count += 1
            k, side = self.rng.randint(1, 9), self.rng.choice("lr")
            self.rows[k]["lr".index(side)].append(self.count)
            value = json.dumps({"V" if side == "l" else "W": self.count}).encode()
            made[side].append(Record(key(k), value, 1_000 + self.count))
        for side, records in made.items():
            clients.produce(self.broker.address, self.names[side], records)

    @property
    def join(self) -> Counter[tuple[int, int, int]]:
        return Counter((k, v, w) for k, (left, right) in self.rows.items() for v in left for w in right)


def prepared(broker: Broker, folder: Path) -> dict[str, str]:
    names = {x: clients.fresh(x).upper().replace("-", "_") for x in "lro"}
    (folder / "q.sql").write_text(JOIN.format(**names))
    for x in "lr":
        clients.make_topic(broker.address, names[x], 3)
    return names


def test_each_row_once_through_kills(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    feed = Feed(broker, names, 1)
    run = up(tmp_path, broker)
    assert until(lambda: clients.topic_exists(broker.address, names["o"]))
    for step in range(9):
        feed.more(12)
        if step in (3, 6):
            time.sleep(feed.rng.random())
            os.killpg(run.pid, signal.SIGKILL)  # the driver, its JVM and workers
            run.wait()
            run = up(tmp_path, broker)
        time.sleep(0.5)
    try:
        assert until(lambda: joined(broker, names["o"]) == feed.join), (tmp_path / "run.log").read_text()[-2000:]
        assert until(lambda: lag(broker, names["o"], names["l"], names["r"]) == 0)
    finally:
        assert ended(run) == 0
    assert joined(broker, names["o"]) == feed.join


def test_goes_on_when_the_broker_comes_back(fresh_broker: Broker, tmp_path: Path) -> None:
    names = prepared(fresh_broker, tmp_path)
    feed = Feed(fresh_broker, names, 2)
    run = up(tmp_path, fresh_broker)
    try:
        feed.more(30)
        assert until(lambda: joined(fresh_broker, names["o"]) == feed.join)
        fresh_broker.kill()
        assert until(lambda: "waits: " in (tmp_path / "run.log").read_text())
        fresh_broker.start()
        assert until(lambda: "goes on, after " in (tmp_path / "run.log").read_text())
        feed.more(30)
        assert until(lambda: joined(fresh_broker, names["o"]) == feed.join), (tmp_path / "run.log").read_text()[-2000:]
    finally:
        assert ended(run) == 0


@pytest.mark.law
def test_idle_is_what_has_read_all(fresh_broker: Broker, tmp_path: Path) -> None:
    """A broker that answers late, as under load: `await_idle` takes no silence for the end."""
    names = prepared(fresh_broker, tmp_path)
    feed = Feed(fresh_broker, names, 3)
    feed.more(20)
    with connect("ksqldb", str(tmp_path / "d"), kafka=fresh_broker.address) as session:
        (handle,) = session.execute((tmp_path / "q.sql").read_text())
        handle.await_idle()
        assert joined(fresh_broker, names["o"]) == feed.join
        feed.more(20)
        assert fresh_broker.pid is not None
        os.kill(fresh_broker.pid, signal.SIGSTOP)
        again = threading.Timer(4 * WAIT, os.kill, (fresh_broker.pid, signal.SIGCONT))
        again.start()
        handle.await_idle()
        assert not again.is_alive()
        assert joined(fresh_broker, names["o"]) == feed.join


@pytest.mark.law
def test_the_broker_is_away_for_two_minutes(fresh_broker: Broker, tmp_path: Path) -> None:
    """It is killed while rows are on their way; the run says once that it waits, and once that it goes on."""
    names = prepared(fresh_broker, tmp_path)
    feed = Feed(fresh_broker, names, 6)
    run = up(tmp_path, fresh_broker)
    try:
        feed.more(30)
        assert until(lambda: joined(fresh_broker, names["o"]) == feed.join)
        feed.more(30)
        fresh_broker.kill()
        time.sleep(120)
        assert run.poll() is None
        fresh_broker.start()
        feed.more(30)
        assert until(lambda: joined(fresh_broker, names["o"]) == feed.join), (tmp_path / "run.log").read_text()[-2000:]
    finally:
        assert ended(run) == 0
    said = " ".join((tmp_path / "run.log").read_text().split())
    assert said.count(f"note: {names['o']} waits: ") == 1
    assert said.count(f"note: {names['o']} goes on, after ") == 1


def test_a_java_client_reads_it_where_it_would_have_put_it(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    feed = Feed(broker, names, 3)
    feed.more(40)
    done = braid(tmp_path, "run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle")
    assert done.returncode == 0, done.stderr
    found = java.java_consume(broker.address, names["o"], sum(feed.join.values()))
    rows = [(struct.unpack(">i", r.key)[0], json.loads(r.value)) for r in found]
    assert Counter((k, v["V"], v["W"]) for k, v in rows) == feed.join
    hashes = java.java_murmur2([r.key for r in found])
    assert [r.partition for r in found] == [(h & 0x7FFFFFFF) % 3 for h in hashes]


def test_a_table_is_kept_with_its_deletes(broker: Broker, tmp_path: Path) -> None:
    t, u = (clients.fresh(x).upper().replace("-", "_") for x in "tu")
    (tmp_path / "q.sql").write_text(
        f"CREATE TABLE {t} (id VARCHAR PRIMARY KEY, n INT) WITH (kafka_topic='{t}', value_format='JSON', partitions=2);"
        f"CREATE TABLE {u} AS SELECT id, n FROM {t} WHERE n > 1;"
    )
    rows = [("a", 5), ("b", 1), ("c", 3), ("a", 1), ("c", None)]
    clients.make_topic(broker.address, t, 2)
    for at, (k, n) in enumerate(rows, 1):
        value = None if n is None else json.dumps({"N": n}).encode()
        clients.produce(broker.address, t, [Record(k.encode(), value, at * 1000)])
    done = braid(tmp_path, "run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle")
    assert done.returncode == 0, done.stderr
    last = {r.key: r.value for r in clients.consume(broker.address, u)}
    assert last == {b"a": None, b"c": None}
    shown = braid(tmp_path, "cat", u, "--store", "d", "--kafka", broker.address, "--latest", "--format", "jsonl")
    assert (shown.returncode, shown.stdout) == (0, "")


def test_commands_over_topics_of_others(broker: Broker, tmp_path: Path) -> None:
    t = clients.make_topic(broker.address, partitions=2)
    clients.produce(broker.address, t, [Record(b"k", b'{"a": 1}', 5_000, [("h", b"x")], 0)])
    clients.produce(broker.address, t, [Record(b"\xff\x00", b"plain", 6_000, [], 1)])
    clients.produce_transaction(broker.address, t, [Record(b"no", b"never", 7_000, [], 0)], commit=False)
    at = ("--kafka", broker.address, "--store", str(tmp_path / "none"))
    listed = braid(tmp_path, "topics", *at)
    head, *rows = (line.split() for line in listed.stdout.splitlines())
    assert head == ["topic", "partitions", "offsets"]  # two records; an aborted one and its end have offsets, too
    assert [row for row in rows if row[0] == t] == [[t, "2", "4"]]
    shown = [json.loads(x) for x in braid(tmp_path, "cat", t, *at, "--format", "jsonl").stdout.splitlines()]
    assert [(r["partition"], r["key"], r["value"], r["timestamp"]) for r in shown] == [
        (0, "k", {"a": 1}, 5_000),
        (1, "/wA=", "plain", 6_000),
    ]
    assert shown[0]["headers"] == [["h", "eA=="]]
    put = braid(tmp_path, "put", t, *at, text='{"key": "new", "value": {"b": 2}, "timestamp": 9000}\n')
    assert put.returncode == 0, put.stderr
    assert [r.value for r in clients.consume(broker.address, t) if r.key == b"new"] == [b'{"b":2}']
    now = braid(tmp_path, "put", t, *at, text='{"key": "new", "value": 1, "timestamp": 0}\n')
    assert now.returncode == 1
    assert "takes the time 0 for now" in now.stderr
    early = braid(tmp_path, "put", t, *at, text='{"key": "old", "value": 1, "timestamp": -9000}\n')
    assert early.returncode == 0, early.stderr
    assert [r.time for r in clients.consume(broker.address, t) if r.key == b"old"] == [-9_000]


@pytest.mark.parametrize("compressed", [False, True])
def test_times_that_a_broker_does_not_take_are_drops(broker: Broker, tmp_path: Path, compressed: bool) -> None:
    """The time 0; and those before 1970 where the broker compresses batches anew. Elsewhere they are times."""
    s, o = (clients.fresh(x).upper().replace("-", "_") for x in "so")
    (tmp_path / "q.sql").write_text(
        f"CREATE STREAM {s} (v INT, t BIGINT) WITH (kafka_topic='{s}', value_format='JSON', timestamp='t');"
        f"CREATE STREAM {o} AS SELECT v FROM {s};"
    )
    clients.make_topic(broker.address, s)
    if compressed:
        clients.make_topic(broker.address, o, config={"compression.type": "gzip"})
    times = [0, 7, -5000, -1]
    rows = [Record(None, json.dumps({"V": i, "T": t}).encode(), 1) for i, t in enumerate(times)]
    clients.produce(broker.address, s, rows)
    done = braid(tmp_path, "run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle")
    assert done.returncode == 0, done.stderr
    taken = [7] if compressed else [7, -5000, -1]
    assert [r.time for r in clients.consume(broker.address, o)] == taken
    assert "timestamp" in done.stderr
    told = [json.loads(x) for x in braid(tmp_path, "drops", o, "--store", "d", "--format", "jsonl").stdout.splitlines()]
    why = {x["timestamp"]: x["message"] for x in told}
    assert set(why) == set(times) - set(taken) and "the time 0" in why[0]
    assert not compressed or "compression.type" in why[-1]


def test_a_topic_made_anew_is_refused(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    feed = Feed(broker, names, 4)
    feed.more(20)
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle")
    assert braid(tmp_path, *words).returncode == 0
    clients.recreate_topic(broker.address, names["l"], 3)
    clients.produce(broker.address, names["l"], [Record(key(1), b'{"V": 1}', 1_000) for _ in range(50)])
    again = braid(tmp_path, *words)
    assert again.returncode == 1
    assert f"the topic {names['l']} was deleted and created again" in again.stderr
    assert "braid reset" in again.stderr


def test_records_that_retention_took_are_missed(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    feed = Feed(broker, names, 5)
    feed.more(20)
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle")
    assert braid(tmp_path, *words).returncode == 0
    feed.more(60)
    clients.delete_records(broker.address, names["l"], clients.ends(broker.address, names["l"]))
    feed.more(30)
    again = braid(tmp_path, *words)
    assert again.returncode in (1, 2)
    assert f"the topic '{names['l']}' has lost records from offset" in again.stderr.replace("\n", " ")


def test_mistakes_get_one_line(broker: Broker, tmp_path: Path) -> None:
    nobody = braid(tmp_path, "topics", "--kafka", "127.0.0.1:1")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "no broker answers at 127.0.0.1:1" in nobody.stderr
    assert len(nobody.stderr.splitlines()) == 2  # after one look: test_not_ready.py
    no_port = braid(tmp_path, "topics", "--kafka", "localhost")
    assert "is no HOST:PORT" in no_port.stderr
    (tmp_path / "k.conf").write_text("security.protocol=PLAINTEXT\nnonsense=1\n")
    unknown = braid(tmp_path, "topics", "--kafka", broker.address, "--kafka-config", "k.conf")
    assert 'No such configuration property: "nonsense"' in unknown.stderr
    (tmp_path / "k.conf").write_text("group.id=mine\n")
    own = braid(tmp_path, "topics", "--kafka", broker.address, "--kafka-config", "k.conf")
    assert "group.id is Braid's own to set" in own.stderr
    alone = braid(tmp_path, "topics", "--kafka-config", "k.conf")
    assert "without --kafka" in alone.stderr
    missing = braid(tmp_path, "cat", "nothing-here", "--kafka", broker.address, "--store", "x")
    assert "no topic nothing-here" in missing.stderr


def test_a_checkpoint_of_the_store_does_not_go_on_in_kafka(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    assert braid(tmp_path, "run", "q.sql", "--store", "d", "--until-idle").returncode == 0
    other = braid(tmp_path, "run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle")
    assert other.returncode == 1
    assert f"{names['o']} has run without --kafka" in other.stderr


def test_partitions_that_are_added_are_read(broker: Broker, tmp_path: Path) -> None:
    """While a query runs, and while it does not; again after a kill. Each row once."""
    names = prepared(broker, tmp_path)
    feed = Feed(broker, names, 6)
    feed.more(30)
    run = up(tmp_path, broker)
    try:
        assert until(lambda: joined(broker, names["o"]) == feed.join), (tmp_path / "run.log").read_text()[-2000:]
        clients.add_partitions(broker.address, names["l"], 5)
        feed.more(60)
        assert until(lambda: joined(broker, names["o"]) == feed.join), (tmp_path / "run.log").read_text()[-2000:]
        assert all(clients.ends(broker.address, names["l"]).values())
    finally:
        run.kill()
        run.wait()
    clients.add_partitions(broker.address, names["r"], 4)
    feed.more(60)
    clients.produce(broker.address, names["r"], [Record(None, b'{"W": 1}', 5_000, [], 3)])
    done = on_shared_spark("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle", cwd=tmp_path)
    assert done.code == 0, done.err
    assert joined(broker, names["o"]) == feed.join
    (lost,) = [
        json.loads(x)
        for x in command("drops", names["o"], "--store", tmp_path / "d", "--format", "jsonl").out.splitlines()
    ]
    assert (lost["topic"], lost["partition"], lost["reason"]) == (names["r"], 3, "null key")


def test_only_the_query_whose_output_has_more_partitions_stops(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    other = clients.fresh("other").upper().replace("-", "_")
    with (tmp_path / "q.sql").open("a") as f:
        f.write(f"CREATE STREAM {other} WITH (kafka_topic='{other}', partitions=1) AS SELECT * FROM {names['l']};\n")
    feed = Feed(broker, names, 6)
    feed.more(30)
    words = ("run", "q.sql", "--store", "d", "--kafka", broker.address, "--until-idle")
    done = on_shared_spark(*words, cwd=tmp_path)
    assert done.code == 0, done.err
    before, had = clients.ends(broker.address, names["o"]), sum(clients.ends(broker.address, other).values())
    clients.add_partitions(broker.address, names["o"], 7)
    feed.more(60)
    done = on_shared_spark(*words, cwd=tmp_path)
    assert done.code == 2
    assert f"the topic {names['o']} has 7 partitions, and had" in done.err and "braid reset" in done.err
    assert f"{names['o']} failed, for the reason above" in done.err
    assert sum(clients.ends(broker.address, other).values()) > had
    assert sum(clients.ends(broker.address, names["o"]).values()) == sum(before.values())
