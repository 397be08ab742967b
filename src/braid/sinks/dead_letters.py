"""Drops as records of a topic for dead letters.

In: drops of a batch, told with their places. Out: records: key, value and headers of the source's record as they came,
and why it was dropped in headers of our own.
Rule: what came from a broker is read again, byte by byte; what did not, or is not there any more, is the drop's JSON
texts. A letter that its topic does not take goes without its value, and then without its key.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from braid.errors import BraidError
from braid.topics.access import Takes
from braid.topics.broker import BrokerAway
from braid.topics.kafka import Found, KafkaTopics
from braid.topics.transactions import sizes_of

PREFIX = "__braid.errors."
LONGEST = 1000  # characters of a header
DEAD_LETTER = {"partition": pl.Int32, "key": pl.Binary, "value": pl.Binary, "time": pl.Int64, "headers": pl.String}


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The topic, and what records it takes."""

    topic: str
    partitions: int
    takes: Takes


def dead_letters_of(
    to: DeadLetters, query: str, topics: KafkaTopics, read: Sequence[str], drops: pl.DataFrame
) -> pl.DataFrame:
    """Columns of `DEAD_LETTER`, in the order of the drops. `read`: the topics of the broker that the query reads."""
    found = _found(topics, read, drops)
    rows = [_dead_letter(to, query, found, row) for row in drops.iter_rows(named=True)]
    made = pl.DataFrame(rows, schema=DEAD_LETTER, orient="row")
    for column in ("value", "key"):
        large = sizes_of(made) > to.takes.largest
        made = made.with_columns(pl.when(large).then(None).otherwise(pl.col(column)).alias(column))
    return made


def _found(topics: KafkaTopics, read: Sequence[str], drops: pl.DataFrame) -> dict[tuple[str, int, int], Found]:
    wanted: dict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, partition, offset in drops.select("topic", "partition", "offset").iter_rows():
        if topic in read and partition is not None and offset is not None:
            wanted[topic, partition].append(offset)
    return {
        (topic, partition, offset): record
        for (topic, partition), offsets in wanted.items()
        for offset, record in _still_there(topics, topic, partition, offsets)
    }


def _still_there(
    topics: KafkaTopics, topic: str, partition: int, offsets: Sequence[int]
) -> Iterator[tuple[int, Found]]:
    try:
        yield from topics.at(topic, partition, offsets)
    except BrokerAway:
        raise
    except BraidError:  # retention has taken it since it was read
        return


def _dead_letter(
    to: DeadLetters, query: str, found: Mapping[tuple[str, int, int], Found], row: Mapping[str, Any]
) -> tuple[Any, ...]:
    record = found.get((row["topic"], row["partition"], row["offset"]))
    if record is None:
        record = Found(row["timestamp"], _bytes(row["_key"]), _bytes(row["_value"]), None)
    told = {c: row[c] for c in ("reason", "operator", "topic", "partition", "offset", "message")} | {"query": query}
    why = [
        [PREFIX + name, base64.b64encode(str(x)[:LONGEST].encode()).decode()]
        for name, x in told.items()
        if x is not None
    ]
    headers = json.dumps([*json.loads(record.headers or "[]"), *why], separators=(",", ":"), ensure_ascii=False)
    time = record.time or 1  # a client takes 0 for now
    time = time if to.takes.early else max(time, 1)
    return (row["partition"] or 0) % to.partitions, record.key, record.value, time, headers


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
