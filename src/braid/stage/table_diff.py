"""The current rows of a table's topic, and what has to be written so that others are current: a diff.

In: a topic as it is; a topic of the same name in a store of its own, with what it should come to. Out: the difference,
written in one commit.
Rule: of each key the last record counts, and a window is part of the key. A key that stands there and should not gets
a tombstone at the time of the record that goes; one that should stand otherwise, or does not stand yet, the record as
it was made. What is equal, time and headers too, is not written again. The commit bears the name of whoever made the
difference, so it is made once.
"""

from __future__ import annotations

import polars as pl

from braid.operators.changes import no_rows
from braid.store import ObjectStore
from braid.topics import publish, stage
from braid.topics.envelope import format_envelope
from braid.topics.files import reach
from braid.topics.interface import store_of
from braid.topics.store import TopicStore

RESULT = "result"  # folder in a checkpoint
_KEY = ("_key", "start", "end")
_STANDS = {"_key": pl.String(), "start": pl.Int64(), "end": pl.Int64(), "_t": pl.Int64(), "_line": pl.String()}


def shadow_topics(checkpoint: ObjectStore) -> TopicStore:
    """Where a table is worked out that stands elsewhere already."""
    return store_of(checkpoint.at(RESULT))


def apply_diff(there: TopicStore, wanted: TopicStore, name: str, run: str) -> int:
    """What stands in a topic is what stands in another afterwards; how many records that took."""
    if there.last_of(name, run) is not None:
        return 0
    staged, count = [], 0
    for partition in range(there.partitions(name)):
        made = _difference(_standing(there, name, partition), _standing(wanted, name, partition))
        if made.height:
            topic, lines, times = there.topic(name), made["_line"], made["_t"]
            staged.append(stage(topic, run, 0, partition, lines, times=times))
        count += made.height
    reach("difference staged")
    publish(there.topic(name), run, 0, staged, empty=True)
    reach("difference written")
    return count


def _standing(store: TopicStore, name: str, partition: int) -> pl.DataFrame:
    """The last record of each key, in the order in which they came; tombstones too."""
    found, at = list[pl.DataFrame](), 0
    end = store.end_offsets(name)[partition] if store.exists(name) else 0
    while at < end:
        upto = store.page_end(name, partition, at, end)
        page = store.parsed(name, partition, at, upto).filter(pl.col("error").is_null(), pl.col("_key").is_not_null())
        window, gone = pl.col("_window").struct, pl.col("_value").is_null()
        rows = page.select("_key", window.field("start"), window.field("end"), "_t", "_line", gone=gone)
        found, at = [pl.concat([*found, rows]).unique(_KEY, keep="last", maintain_order=True)], upto
    return found[0].filter(~pl.col("gone")) if found else no_rows(_STANDS)


def _difference(there: pl.DataFrame, wanted: pl.DataFrame) -> pl.DataFrame:
    """The records, as `_line` and `_t`."""
    gone = there.join(wanted, on=_KEY, how="anti", nulls_equal=True, maintain_order="left")
    new = wanted.join(there, on=(*_KEY, "_line"), how="anti", nulls_equal=True, maintain_order="left")
    nothing = pl.repeat(None, gone.height, dtype=pl.String, eager=True)
    windows = gone.select(pl.when(pl.col("start").is_not_null()).then(pl.struct("start", "end")).alias("w"))["w"]
    lines = format_envelope(gone["_key"], nothing, gone["_t"], None, windows).rename("_line")
    return pl.concat([pl.DataFrame([lines, gone["_t"]]), new.select("_line", "_t")])
