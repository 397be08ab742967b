"""A real Kafka broker: one node, KRaft, on loopback.

In: a folder, settings on top of ours. Out: a broker that can be stopped, killed and started again on the same data.
Rule: transactions and groups work on one node; nothing is deleted by age; topics are made by name only.

    python -m kafka.broker [stop]      the kept broker's address; with `stop` it ends (run in tests/)
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import subprocess
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka import kept
from kafka.fetch import KAFKA, cache, java, kafka_jars
from kafka.server import Server, listens

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # One node holds the only copy of everything.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Soon up after kill -9, soon compacted, no wait for members of a group that do not exist.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
    # Small.
    "log.cleaner.dedupe.buffer.size": "10485760",
    "log.segment.bytes": "16777216",
    "log.retention.ms": "-1",
    "num.network.threads": "2",
    "num.io.threads": "2",
}

# For one that nobody kills: a busy machine may keep it from telling its controller that it lives.
PATIENT = {"broker.session.timeout.ms": "20000"}

LOGGING = """status=error
rootLogger.level=WARN
rootLogger.appenderRef.c.ref=C
appender.c.type=Console
appender.c.name=C
appender.c.target=SYSTEM_ERR
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %c{1}: %m%n
logger.k.name=kafka.server.KafkaRaftServer
logger.k.level=INFO
"""

SMALL = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]


class Broker(Server):
    """A broker of one's own, or (by `kept_broker`) the one that is shared."""

    name = "broker"
    ports = 2

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self.settings = dict(settings or {})
        self.admin_settings: dict[str, str] = {}  # how `ready` talks to a broker with security

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.numbers[0]}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def prepare(self) -> None:
        port, controller = self.numbers
        listen = f"PLAINTEXT://127.0.0.1:{port}"
        settings = {
            **SETTINGS,
            "listeners": f"{listen},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listen,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.data),
            **self.settings,
        }
        (self.folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        (self.folder / "log4j2.properties").write_text(LOGGING)
        (self.folder / "server.properties").chmod(0o600)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        made = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", "server.properties"],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"the broker's folder cannot be made: {made.stdout[-500:]}{made.stderr[-2000:]}")

    def command(self) -> list[str]:
        return [*self._java("-Xms128m", "-Xmx384m"), "kafka.Kafka", "server.properties"]

    def ready(self) -> bool:
        if not listens(self.numbers[0]):
            return False
        admin = AdminClient(
            {
                "bootstrap.servers": self.address,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **self.admin_settings,
            }
        )
        with contextlib.suppress(KafkaException):
            return len(admin.describe_cluster(request_timeout=10).result(15).nodes) == 1
        return False

    def _java(self, *options: str) -> list[str]:
        logging = "-Dlog4j2.configurationFile=log4j2.properties"
        return [java(), *options, *SMALL, logging, "-cp", str(kafka_jars() / "*")]


def fetch() -> None:
    """Before any lock is taken that others wait for."""
    java()
    kafka_jars()


def _folder() -> Path:
    """Another version or other settings are another broker."""
    told = hashlib.sha256(repr(sorted((SETTINGS | PATIENT).items())).encode()).hexdigest()[:8]
    return cache() / f"kafka-{KAFKA}" / f"broker-{told}"


def kept_broker() -> AbstractContextManager[Broker]:
    """The shared broker, started if it does not run; `Unavailable` where it cannot be had."""
    fetch()
    return kept.kept(lambda folder: Broker(folder, PATIENT), _folder())


def own_broker(settings: Mapping[str, str] | None = None) -> AbstractContextManager[Broker]:
    """A broker for one test alone, to be stopped and killed; nothing of it is left behind."""
    fetch()
    return kept.own(lambda folder: Broker(folder, settings))


if __name__ == "__main__":
    kept.command("broker", Broker, _folder(), kept_broker, lambda found: found.address)
