"""Kafka's own clients in Java: a second, independent reader and writer.

In: a broker's address, a topic. Out: what the console consumer prints, as records; what the console producer was given.
Rule: nothing of librdkafka or Braid takes part in reading or writing; only a lookup of partitions afterwards does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from kafka.clients import Read, consume
from kafka.fetch import java, kafka_jars

SECONDS = 60
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
SMALL = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]

# What parts fields and records in what is printed: bytes that no test writes.
FIELD, RECORD, HEADER, NULL = "\x1f~\x1f", "\x1e~\x1e", "\x1d~\x1d", "\x1c~null~\x1c"
KINDS = {"CreateTime": 1, "LogAppendTime": 2}


def java_consume(
    address: str,
    topic: str,
    n: int,
    *,
    committed: bool = True,
    seconds: float = 20,
    config: Mapping[str, str] | None = None,
    deserializers: Mapping[str, str] | None = None,
) -> list[Read]:
    """The first n records of a topic (fewer, if no other comes for so long), by partition and offset.

    `config` are settings of the client; `deserializers` name a class of Java for `key` or `value`, whose text comes as
    bytes then ("org.apache.kafka.common.serialization.LongDeserializer"). A header's name has no colon in it.
    """
    shown = {f"print.{part}": "true" for part in ("timestamp", "partition", "offset", "headers", "key", "value")}
    parts = {"key.separator": FIELD, "line.separator": RECORD, "headers.separator": HEADER, "null.literal": NULL}
    more = {f"{part}.deserializer": name for part, name in (deserializers or {}).items()}
    level = "read_committed" if committed else "read_uncommitted"
    arguments = ["--from-beginning", "--max-messages", str(n), "--timeout-ms", str(int(seconds * 1000))]
    arguments += ["--isolation-level", level, *_options("--formatter-property", {**shown, **parts, **more})]
    arguments += _options("--command-property", config or {})
    if n == 0:
        return []
    printed = _run(CONSUMER, address, topic, arguments, b"", fine=b"TimeoutException")
    found = [_read(line) for line in printed.split(RECORD.encode())[:-1]]
    return sorted(found, key=lambda r: (r.partition, r.offset))


def java_produce(
    address: str, topic: str, records: Iterable[tuple[str | None, str | None]], config: Mapping[str, str] | None = None
) -> None:
    """Writes keys and values (texts without line ends; None is null) by the console producer, in this order."""
    lines = [(NULL if k is None else k) + FIELD + (NULL if v is None else v) for k, v in records]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("the console producer reads lines: no line ends in keys or values")
    reader = {"parse.key": "true", "key.separator": FIELD, "null.marker": NULL}
    client = {"linger.ms": "0", **(config or {})}
    # --sync: else the producer ends well although it could not write.
    arguments = ["--sync", *_options("--reader-property", reader), *_options("--command-property", client)]
    _run(PRODUCER, address, topic, arguments, "".join(f"{line}\n" for line in lines).encode())


def java_partitions(address: str, topic: str, keys: Iterable[str]) -> dict[str, int]:
    """Writes a record of each key by Java's producer into an empty topic; gives the partition it chose for each."""
    wanted = list(dict.fromkeys(keys))
    java_produce(address, topic, [(key, "") for key in wanted])
    found = {(r.key or b"").decode(): r.partition for r in consume(address, topic)}
    if set(found) != set(wanted):
        raise RuntimeError(f"{topic} has other keys than were written: was it empty?")
    return found


def java_murmur2(keys: Iterable[bytes]) -> list[int]:
    """Java's own hash of any bytes: partition = (hash & 0x7fffffff) % partitions. Starts a JVM, so ask in bulk."""
    from py4j.java_gateway import JavaGateway
    from pyspark import __file__ as pyspark

    gateway = JavaGateway.launch_gateway(
        jarpath=str(next((Path(pyspark).parent / "jars").glob("py4j-*.jar"))),
        classpath=":".join(str(jar) for jar in sorted(kafka_jars().glob("*.jar"))),
        java_path=java(),
        javaopts=SMALL,
        die_on_exit=True,
    )
    try:
        murmur2 = gateway.jvm.org.apache.kafka.common.utils.Utils.murmur2
        return [murmur2(key) for key in keys]
    finally:
        gateway.shutdown()


def _options(name: str, values: Mapping[str, str]) -> list[str]:
    return [part for key, value in values.items() for part in (name, f"{key}={value}")]


def _run(program: str, address: str, topic: str, arguments: list[str], given: bytes, fine: bytes = b"\0") -> bytes:
    """Runs a console client; it printed `fine` where its failure is none."""
    command = [java(), *SMALL, "-cp", str(kafka_jars() / "*"), program, "--bootstrap-server", address, "--topic", topic]
    done = subprocess.run([*command, *arguments], input=given, capture_output=True, timeout=SECONDS, check=False)
    if done.returncode and fine not in done.stderr + done.stdout:
        told = (done.stdout + done.stderr)[:2000].decode(errors="replace")
        raise RuntimeError(f"{program.rsplit('.', 1)[1]}: {told}")
    return done.stdout


def _read(line: bytes) -> Read:
    """One record as DefaultMessageFormatter prints it: time, partition, offset, headers, key, value."""
    time, partition, offset, headers, key, value = line.split(FIELD.encode())
    kind, stamp = time.decode().split(":")
    return Read(
        int(partition.decode().removeprefix("Partition:")),
        int(offset.decode().removeprefix("Offset:")),
        int(stamp),
        _bytes(key),
        _bytes(value),
        () if headers == b"NO_HEADERS" else tuple(_header(h) for h in headers.split(HEADER.encode())),
        KINDS[kind],
    )


def _header(text: bytes) -> tuple[str, bytes | None]:
    name, _, value = text.partition(b":")
    return name.decode(), _bytes(value)


def _bytes(text: bytes) -> bytes | None:
    return None if text == NULL.encode() else text
