"""INSERT … VALUES into the topic store.

In: the records of a statement. Out: one commit in the topic. Rule: with a name a commit is made once for ever.
"""

from __future__ import annotations

import time

import polars as pl

from braid.bind.program import NewRecords
from braid.records.key import key_partition
from braid.topics.store import TopicStore


def append(store: TopicStore, inserted: NewRecords, once: str | None = None) -> bool:
    """Adds the records; False where the commit named `once` was made before."""
    if inserted.topic not in store.names():
        store.create(inserted.topic, 1)
    records = inserted.records
    now = int(time.time() * 1000)
    keys = pl.Series("_key", [r.key for r in records], dtype=pl.String)
    frame = pl.DataFrame(
        {
            "_key": keys,
            "_value": [r.value for r in records],
            "_t": [now if r.timestamp is None else r.timestamp for r in records],
            "_partition": key_partition(keys, store.partitions(inserted.topic)),
        },
        schema_overrides={"_value": pl.String, "_t": pl.Int64},
    )
    return store.append(inserted.topic, frame, query=once)
