"""Records on a broker: sides of a join written there, results read back and compared.

In: a broker's address, frames with `k` and `t` (ms) beside the columns of a value. Out: topics; what one holds, as a
number that does not depend on order.
Rule: neither Braid's nor Spark's clients are used here. A record goes where Java's producer would put it, with `t` as
its time; what is read back was committed. `tests/` lies on the path: the servers are those of the tests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.data import SPAN, START

PATIENCE = 120.0  # s
Encode = Callable[[pl.DataFrame], pl.Series]


def side(rows: int, files: int, keys: int, seed: int) -> pl.DataFrame:
    """`k t v s`, in order of time: `files` minutes of it."""
    rng = np.random.default_rng(seed)
    made = {
        "k": rng.integers(0, keys, rows),
        "t": np.sort(rng.integers(0, files * SPAN, rows)) + START,
        "v": rng.integers(0, 1000, rows),
        "s": rng.integers(0, 1000, rows),
    }
    return pl.DataFrame(made).with_columns(pl.format("name{}", "s").alias("s"))


def table(keys: int) -> pl.DataFrame:
    """A row a key, all of them from before the first row of a side."""
    frame = pl.DataFrame({"k": np.arange(keys)})
    return frame.with_columns(t=pl.lit(START - 1), v=pl.col("k"), s=pl.format("name{}", pl.col("k") % 1000))


def as_json(*columns: str) -> Encode:
    """Values as JSON objects of these columns, names in capitals as ksqlDB has them."""

    def encode(frame: pl.DataFrame) -> pl.Series:
        return frame.select(pl.struct(pl.col(c).alias(c.upper()) for c in columns).struct.json_encode()).to_series()

    return encode


def as_avro(id: int, *columns: str) -> Encode:
    """Values as Avro behind a schema's id, as Confluent's serializers write them."""

    def encode(frame: pl.DataFrame) -> pl.Series:
        import pyruhvro

        named = frame.select(pl.col(c).alias(c.upper()) for c in columns)
        text = avro_schema(dict(zip(named.columns, (AVRO[t] for t in named.dtypes), strict=True)))
        (batch,) = (
            named.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks().cast(_plain(named)).to_batches()
        )
        (bodies,) = pyruhvro.serialize_record_batch(batch, text, 1)
        return pl.Series([head(id) + body for body in bodies.to_pylist()], dtype=pl.Binary)

    return encode


def from_avro(values: list[bytes], text: str) -> pl.DataFrame:
    """Values by the schema whose id they all have."""
    import pyruhvro

    assert len({v[:HEAD] for v in values}) == 1
    return pl.DataFrame(pyruhvro.deserialize_array([v[HEAD:] for v in values], text))


HEAD = 5  # bytes before an Avro body
AVRO = {pl.Int64: "long", pl.String: "string"}


def head(id: int) -> bytes:
    return b"\0" + id.to_bytes(4, "big")


def id_of(value: bytes) -> int:
    return int.from_bytes(value[1:HEAD], "big")


def avro_schema(fields: Mapping[str, str]) -> str:
    made = [{"name": name, "type": ["null", t], "default": None} for name, t in fields.items()]
    return json.dumps({"type": "record", "name": "value", "fields": made})


def _plain(frame: pl.DataFrame) -> pa.Schema:
    """The types that the encoder takes: no large strings."""
    return pa.schema([(c, pa.string() if t == pl.String else pa.int64()) for c, t in frame.schema.items()])


def make(address: str, *names: str, partitions: int) -> None:
    config = {"message.timestamp.before.max.ms": str(2**63 - 1), "retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(n, partitions, config=config) for n in names], operation_timeout=30)
    for done in made.values():
        done.result(30)


def fill(address: str, name: str, frame: pl.DataFrame, encode: Encode, partitions: int) -> None:
    """Makes the topic and writes all rows."""
    make(address, name, partitions=partitions)
    settings = {"linger.ms": 50, "compression.type": "lz4", "enable.idempotence": True, "log_level": 0}
    producer = Producer({"bootstrap.servers": address, "partitioner": "murmur2_random", **settings})
    keys = frame["k"].cast(pl.String).cast(pl.Binary).to_list()
    for key, value, at in zip(keys, encode(frame).cast(pl.Binary).to_list(), frame["t"].to_list(), strict=True):
        while True:
            try:
                producer.produce(name, value, key, timestamp=at)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(PATIENCE):
        raise RuntimeError(f"{name}: not all records were written")


@dataclass(frozen=True, slots=True)
class Held:
    """Records of a topic: how many, and the sum of their hashes."""

    rows: int
    sum: int


def held(frame: pl.DataFrame, columns: Sequence[str]) -> Held:
    hashes = frame.select(pl.struct(columns).hash(seed=0).alias("h"))["h"]
    return Held(frame.height, int(hashes.to_numpy().sum(dtype=np.uint64)))


def records(address: str, name: str) -> tuple[list[bytes], list[bytes]]:
    """Keys and values of all that is committed now."""
    settings = {"group.id": "benchmark", "isolation.level": "read_committed", "enable.partition.eof": True}
    settings |= {"enable.auto.commit": False, "fetch.queue.backoff.ms": 5, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": address, **settings})
    try:
        partitions = consumer.list_topics(name, timeout=10).topics[name].partitions
        consumer.assign([TopicPartition(name, p, 0) for p in partitions])
        keys, values, left, end = list[bytes](), list[bytes](), set(partitions), time.monotonic() + PATIENCE
        while left:
            found = consumer.consume(20_000, 0.05)
            left -= {m.partition() for m in found if m.error() and m.error().code() == KafkaError._PARTITION_EOF}
            good = [m for m in found if not m.error()]
            keys += [m.key() for m in good]
            values += [m.value() for m in good]
            if time.monotonic() > end:
                raise RuntimeError(f"{name} cannot be read to its end")
        return keys, values
    finally:
        consumer.close()
