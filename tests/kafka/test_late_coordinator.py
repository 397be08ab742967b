"""A broker that stands still, and names the coordinator of a group late.

In: a broker of the test's own. Out: requests that give up, and one that is answered.
Rule: the process lives.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from braid.topics import broker as clients
from braid.topics import broker_leftovers
from braid.topics.broker import Broker as Kafka
from braid.topics.broker import BrokerAway
from braid.topics.kafka import commit_offsets
from braid.topics.transactions import Transaction, writing
from kafka.broker import Broker
from kafka.clients import fresh, make_topic

pytestmark = pytest.mark.kafka


def test_a_coordinator_that_is_found_late_ends_no_process(
    fresh_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka aborts where a request has run out of time before."""
    config = tmp_path / "kafka.properties"
    config.write_text("socket.timeout.ms=1000\n")
    address = Kafka(fresh_broker.address, str(config))
    topic, pid, look = make_topic(fresh_broker.address), fresh_broker.pid, Transaction._look
    run = fresh("run")
    assert pid is not None
    monkeypatch.setattr(clients, "WAIT", 1.0)

    def late(self: Transaction) -> bool:
        os.kill(pid, signal.SIGSTOP)
        Timer(2.5, os.kill, [pid, signal.SIGCONT]).start()
        commit_offsets(address, fresh("g"), {(topic, 0): 1})
        with pytest.raises(BrokerAway):
            broker_leftovers.remove(replace(address, exactly_once=False), "q", fresh("run"), 1)
        return look(self)

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "_look", late)
        made = writing(address, {topic: 1_000_000}, run, 0, 0, "digest")
    assert not made.done
    made.commit()
    assert broker_leftovers.remove(replace(address, exactly_once=False), "q", run, 1) == [f"braid.{run}"]
