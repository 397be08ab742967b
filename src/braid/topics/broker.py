"""A Kafka broker, and the clients that talk to it.

In: its address, and a file of librdkafka's settings (security, timeouts). Out: clients, one of a kind for each process;
errors that say what to do.
Rule: a broker travels to tasks as its address and the path of the file: what stands in the file, secrets among it, is
read where a client is made and is in no plan, log, error or checkpoint. Clients are made in the process that uses them,
never before a fork.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from braid.errors import Away, BraidError
from braid.topics.registries import Address, address_of
from braid.topics.settings import read_settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")
WAIT = 6.0  # s that a broker has to answer before a run starts
PATIENCE = 600.0  # s that it may be away while one runs
SETTLE = 30.0  # s that one which answers has to become ready: leaders and coordinators are found anew now and then
FRESH = 3.0  # s until all brokers know of a topic that was just made
IDLE = 60.0  # s after which a client that nobody uses is given up
# s that the client gives a request about groups. Who asks waits less, and keeps the client: librdkafka (2.16) aborts
# the process where the coordinator is found after such a request has run out of time.
ENDLESS = 3600.0
GROUPS = "groups"  # the kind of client that they are asked by
SMALLEST, BATCH = 1000, 1_000_000  # bytes: what librdkafka takes for a limit, and batches at once
# Settings that Braid gives itself: another value would lose or double records.
OWN = (
    "bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store", "isolation.level",
    "auto.offset.reset", "transactional.id", "enable.idempotence", "enable.partition.eof", "partitioner", "acks",
    "max.in.flight.requests.per.connection", "message.max.bytes", "batch.size",
)  # fmt: skip
_SECRET = re.compile(r"password|secret|key\.pem|oauthbearer\.config|jaas|token", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Broker:
    """`address`: HOST:PORT, several with commas. `config`: the path of a file of settings, a line each: name=value.
    `registry`: where the schemas of its records are. `exactly_once`: by transactions; else what a task
    wrote is there twice where it had to be done again. `dead_letters`: a topic that gets what queries drop."""

    address: str
    config: str | None = None
    registry: Address | None = None
    exactly_once: bool = True
    dead_letters: str | None = None

    def settings(self) -> dict[str, str]:
        """librdkafka's settings, those of the file among them."""
        found = read_settings(self.config, "--kafka-config", OWN, "sasl.mechanism=PLAIN")
        return {**found, "bootstrap.servers": self.address}


def broker_of(
    address: str | None,
    config: str | None,
    registry: str | None = None,
    registry_config: str | None = None,
    at_least_once: bool = False,
    dead_letters: str | None = None,
) -> Broker | None:
    """The broker that a user names, and its registry; their settings are looked at."""
    if address is None:
        given = {"--kafka-config": config, "--registry": registry, "--registry-config": registry_config}
        given |= {"--dead-letters": dead_letters}
        for option in (n for n, x in {**given, "--at-least-once": at_least_once}.items() if x):
            raise BraidError(f"{option} has no meaning without --kafka", "name the broker: --kafka HOST:PORT")
        return None
    for one in address.split(","):
        if not re.fullmatch(r"\[?[A-Za-z0-9._:-]+\]?:[0-9]{1,5}", one.strip()):
            raise BraidError(f"--kafka {address}: {one!r} is no HOST:PORT", "--kafka localhost:9092")
    schemas = address_of(registry, registry_config)
    file = None if config is None else os.path.abspath(config)
    broker = Broker(address, file, schemas, not at_least_once, dead_letters)
    broker.settings()
    return broker


def delivery(broker: Broker) -> str:
    """How often a record is written, for people."""
    return "exactly once" if broker.exactly_once else "at least once: rows may be there twice where a run ended badly"


# --------------------------------------------------------------------- clients


class _Log(logging.Handler):
    """Keeps the last line of librdkafka, for errors that say only that time was up; nothing of it is printed."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        _Log.last = record.getMessage()


_LOGGER = logging.getLogger("braid.kafka")
_LOGGER.propagate = False
_LOGGER.addHandler(_Log())
_MADE: dict[tuple[int, str, Broker, str], tuple[Any, float]] = {}  # clients, and when they were asked for last
_OPEN: dict[Broker, list[Future[Any]]] = {}  # requests about groups that whoever asked has not waited for
_GUARD = threading.Lock()
_LAST: dict[Broker, str] = {}  # what a broker's clients complained of last


def kept(kind: str, broker: Broker, name: str, make: Callable[[], T]) -> T:
    """This process's client of a kind and name. What nobody has asked for in a while is given up: a process outlives
    its queries, and a client has four threads, which try for ever to reach a broker that has gone."""
    now, process = time.monotonic(), os.getpid()
    which = (process, kind, broker, name)
    with _GUARD:
        made: T = _MADE[which][0] if which in _MADE else make()
        _MADE[which] = made, now
        # those of the process that this one was forked from have no threads here, and could not end
        idle = [x for x, (_, used) in _MADE.items() if x[0] == process and now - used > IDLE]
        old = [_MADE.pop(x) for x in idle if x[1] != GROUPS or all(f.done() for f in _OPEN.get(x[2], ()))]
    del old  # not while others wait
    return made


def forget(kind: str, broker: Broker, name: str) -> None:
    with _GUARD:
        _MADE.pop((os.getpid(), kind, broker, name), None)


def _complained(broker: Broker, error: KafkaError) -> None:
    """That all brokers are down says less than what came before it."""
    if error.name() != "_ALL_BROKERS_DOWN" or broker not in _LAST:
        _LAST[broker] = error.str()


def _common(broker: Broker, pause: int) -> dict[str, Any]:
    return {
        "reconnect.backoff.ms": str(pause),
        "reconnect.backoff.max.ms": "1000",
        **broker.settings(),
        "logger": _LOGGER,
        "error_cb": partial(_complained, broker),
    }


def _made(broker: Broker, of: Callable[[dict[str, Any]], T], more: Mapping[str, Any], pause: int = 20) -> T:
    """A client; a setting that librdkafka does not take is refused, without its value. `pause`: ms before it connects
    again; half of it is before its second connection, too."""
    from confluent_kafka import KafkaException

    try:
        return of(_common(broker, pause) | dict(more))
    except KafkaException as e:
        text = e.args[0].str() if hasattr(e.args[0], "str") else str(e.args[0])
        for name, value in broker.settings().items():
            if _SECRET.search(name):
                text = text.replace(value, "***")
        raise BraidError(f"Kafka's client refuses its settings: {text}", "check the file of --kafka-config") from None


def admin(broker: Broker) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return kept("admin", broker, "", lambda: _made(broker, AdminClient, {}))


def group_admin(broker: Broker) -> AdminClient:
    """A client for requests about groups alone: it is not given up while one is open (see `ENDLESS`)."""
    from confluent_kafka.admin import AdminClient

    return kept(GROUPS, broker, "", lambda: _made(broker, AdminClient, {}))


def consumer(broker: Broker, group: str = "braid.reader") -> Consumer:
    """A new consumer, to be assigned partitions."""
    from confluent_kafka import Consumer

    more = {
        "group.id": group,
        "enable.auto.commit": "false",
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "fetch.queue.backoff.ms": "5",
        "fetch.wait.max.ms": "100",
        "queued.max.messages.kbytes": "16384",
    }
    # it reads over its first connection; and while all brokers are away, its pauses do not grow (librdkafka 2.16)
    return _made(broker, Consumer, more, pause=100)


def producer(broker: Broker, transactional: str, lost: Callable[[], None], most: Sequence[int] = ()) -> Producer:
    """A new producer, of transactions if the broker takes any. `lost` is called when it has lost its broker, while it
    is polled. `most`: the bytes of the largest batch of each topic that it writes."""
    from confluent_kafka import Producer

    most = [max(x, SMALLEST) for x in most] or [SMALLEST]
    more: dict[str, Any] = {
        "compression.type": "lz4",
        "linger.ms": "5",
        "queue.buffering.max.messages": "1000000",
        "queue.buffering.max.kbytes": "262144",
        "message.max.bytes": str(max(most)),
        "batch.size": str(min(BATCH, *most)),  # of one record it is the topic that says how large
    }
    if broker.exactly_once:
        more |= {
            "transactional.id": transactional,
            "enable.idempotence": "true",
            "transaction.timeout.ms": "300000",  # of one task's part of a batch; a new start ends an older one at once
        }
    else:
        more["max.in.flight.requests.per.connection"] = "1"  # records that are sent again stay in their order

    def failed(error: KafkaError) -> None:
        _complained(broker, error)
        lost()

    return _made(broker, Producer, more | {"error_cb": failed})


# ---------------------------------------------------------------------- errors


_LATER = "try again when it has settled"
_PASSES = (  # of which the client itself does not say that one may try again
    "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "GROUP_LOAD_IN_PROGRESS",
    "GROUP_COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR_FOR_GROUP", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION",
    "NOT_LEADER_OR_FOLLOWER", "REPLICA_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH", "_NOENT", "KAFKA_STORAGE_ERROR", "UNSTABLE_OFFSET_COMMIT", "CONCURRENT_TRANSACTIONS",
)  # fmt: skip
_ENDED = (  # the transaction was ended by the broker, or by another start of this query
    "INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED",
    "_FENCED", "_STATE",
    "_DESTROY",  # another thread has given this client up
)  # fmt: skip


class BrokerAway(Away):
    """It does not answer, or is not ready, or what was begun there has ended meanwhile. Later it may be otherwise: a
    query that runs waits."""


class NotReady(BrokerAway):
    """It answers, and cannot do it just now."""


class TopicGone(BraidError):
    """There is no such topic, or not every broker knows of it yet."""


class NotPermitted(BraidError):
    """The user lacks a right."""


def patiently(ask: Callable[[], T], seconds: float = PATIENCE) -> T:
    """The answer of a server that may be away while something runs."""
    deadline, pause = time.monotonic() + seconds, 0.02
    while True:
        try:
            return ask()
        except Away:
            if time.monotonic() > deadline:
                raise
            time.sleep(pause)
            pause = min(2 * pause, 1.0)


def asked(broker: Broker, what: str, call: Callable[[], T]) -> T:
    """The answer of a broker, or why there is none. What passes is waited for: each `call` makes the request anew, of
    a client that is asked for anew."""
    from confluent_kafka import KafkaException

    began, pause = time.monotonic(), 0.02
    while True:
        try:
            return call()
        except KafkaException as e:
            why = refused(broker, what, e.args[0])
        except TimeoutError:
            why = _silent(broker, what)
        except (NotReady, TopicGone) as e:
            why = e
        if isinstance(why, BrokerAway):
            forget("admin", broker, "")  # it may remember a leader of before, and not ask anew
        if time.monotonic() - began >= _settles(why):
            raise why
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def _settles(why: BraidError) -> float:
    """s in which it may pass, where the broker answers."""
    return SETTLE if isinstance(why, NotReady) else FRESH if isinstance(why, TopicGone) else 0.0


def told(broker: Broker, what: str, answer: Future[T]) -> T:
    """The answer to a request about a group (see `ENDLESS`). The client stays: one that is given up with open requests
    crashes the process."""
    try:
        return answer.result(WAIT)
    except TimeoutError:
        left_open(broker, [answer])
        raise _silent(broker, what) from None


def left_open(broker: Broker, answers: Iterable[Future[Any]]) -> None:
    """Nobody waits for these answers to requests about groups; until they come the client stays."""
    with _GUARD:
        _OPEN[broker] = [f for f in (*_OPEN.get(broker, ()), *answers) if not f.done()]


def refused(broker: Broker, what: str, error: KafkaError) -> BraidError:
    """One clear line for an error of Kafka's."""
    from confluent_kafka import KafkaError as Codes

    code = error.code()
    if code in (Codes._TRANSPORT, Codes._TIMED_OUT, Codes._ALL_BROKERS_DOWN, Codes._RESOLVE, Codes.REQUEST_TIMED_OUT):
        return _silent(broker, what)
    if code in (
        Codes.TOPIC_AUTHORIZATION_FAILED,
        Codes.GROUP_AUTHORIZATION_FAILED,
        Codes.CLUSTER_AUTHORIZATION_FAILED,
        Codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        hint = "give this user the right: topics, the group and the transactional ids, which begin with braid."
        return NotPermitted(f"{what}: the broker does not permit it ({error.str()})", hint)
    if code in (Codes.UNKNOWN_TOPIC_OR_PART, Codes._UNKNOWN_TOPIC, Codes._UNKNOWN_PARTITION):
        return TopicGone(f"{what}: the topic is not there any more", "make it again, or leave the statement out")
    if code in (Codes.MSG_SIZE_TOO_LARGE,):
        return BraidError(f"{what}: a record is larger than is allowed", "raise max.message.bytes of the topic")
    if code == Codes.INVALID_TIMESTAMP:
        hint = "raise message.timestamp.after.max.ms and .before.max.ms of the topic, or let Braid make the topic"
        return BraidError(f"{what}: the topic takes no times so far ahead, or so old", hint)
    if code == Codes.INVALID_RECORD:
        return BraidError(f"{what}: a record has no key, and the topic is compacted", "give it a key")
    if code == Codes.UNKNOWN:
        hint = "its log says why; to a topic with a compression.type of its own it takes no time before 1970"
        return BraidError(f"{what}: the broker does not say what is wrong", hint)
    away = f"{what}: the broker at {broker.address} is not ready: {error.str()}"
    if error.txn_requires_abort() or error.name() in _ENDED:
        return BrokerAway(away, _LATER)
    if error.retriable() or error.name() in _PASSES:
        return NotReady(away, _LATER)
    return BraidError(f"{what}: {error.str()}", f"Kafka's code is {error.name()}")


def _silent(broker: Broker, what: str) -> BraidError:
    admin(broker).poll(0)  # what its client complains of is told then
    said = _LAST.get(broker) or _Log.last
    text = said.split(": ", 1)[-1] if said else ""
    if re.search(r"authenticat|SASL|SSL|certificate", said, re.IGNORECASE):
        hint = "check security.protocol and sasl.* in the file of --kafka-config"
        return BraidError(f"{what}: the broker at {broker.address} refuses the connection: {text}", hint)
    return BrokerAway(f"{what}: no broker answers at {broker.address}", "name a broker that runs: --kafka HOST:PORT")
