"""Tables of a store: statements that change their rows, queries over what stands.

In: a topic store, bound statements. Out: records in its topics, one epoch a statement; rows.
Rule: the epoch of a record is its timestamp: the time of day in ms, or one more than the last epoch of any table of the
store. With a name a statement is done once for ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from braid.batch_sql.snapshots import Snapshots, Written
from braid.bind.bound import BatchQuery, Declared, Read, RowsChanged
from braid.errors import BraidError
from braid.operators.changes import TIME
from braid.plan.logical import Source
from braid.stage.call_order import Placed
from braid.stage.inputs import Input
from braid.stage.row_ids import key_of
from braid.topics.drops import publish_drops, stage_drops
from braid.topics.envelope import parse_envelope
from braid.topics.store import TopicStore


class StoreTables:
    """The tables of one store, read as they stand at each call."""

    def __init__(self, store: TopicStore, files: Mapping[str, Callable[[Source], Input]] | None = None) -> None:
        """`files`: what opens the files of a table that is read from some, by its name."""
        self._store = store
        self._files, self._read = files or {}, dict[str, pl.DataFrame]()
        self._torn: dict[str, int] = {}  # lines that are no records, by topic
        self._snapshots = Snapshots(self._records, self._rows_of_files)

    def rows(self, query: BatchQuery) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of a query's columns, and its rows."""
        return [n for n, _ in query.columns], self._snapshots.answer(query, self._epoch)

    def left_out(self, query: BatchQuery) -> list[str]:
        """What to tell of records that the last `rows` of this query could not read."""
        read = {r.declared.name: r.declared.topic for r in query.reads}
        counts = {n: self._snapshots.unread.get(n, 0) + self._torn.get(t, 0) for n, t in read.items()}
        late = {n: self._snapshots.late.get(n, 0) for n in read}
        return [
            *(f"{_count(n)} of {name} cannot be read as it is declared: left out" for name, n in counts.items() if n),
            *(f"{_count(n)} of {name} came later than its watermark: left out" for name, n in late.items() if n),
        ]

    def change(self, change: RowsChanged, once: str | None = None) -> tuple[bool, Written]:
        """Carries out INSERT, UPDATE or DELETE, and what it wrote. False where the statement named `once` was done
        before."""
        topic = change.target.topic
        if topic not in self._store.names():
            self._store.create(topic, change.target.partitions or 1)
        written = self._snapshots.change(change, self._epoch)
        epoch = max(int(time.time() * 1000), self._last() + 1)
        keys = [key_of(epoch, n) if key is None else key for n, (key, _) in enumerate(written.records)]
        frame = pl.DataFrame(
            {
                "_key": keys,
                "_value": [value for _, value in written.records],
                "_t": [epoch] * len(keys),
                "_partition": [0] * len(keys),
            },
            schema={"_key": pl.String, "_value": pl.String, "_t": pl.Int64, "_partition": pl.Int64},
        )
        done = self._store.append(topic, frame, query=once)
        if done and written.late:
            self._drop(change.target.name, epoch, written.late)
        return done, written

    def _drop(self, table: str, epoch: int, late: list[dict[str, Any]]) -> None:
        """Late rows can be read with `braid drops TABLE`."""
        values = [json.dumps(row["value"], default=str, ensure_ascii=False) for row in late]
        frame = pl.DataFrame([{n: v for n, v in row.items() if n != "value"} for row in late])
        frame = frame.with_columns(pl.Series("_value", values), pl.lit(epoch).alias("timestamp"))
        staged = stage_drops(self._store.root, table, epoch, 0, frame)
        assert staged is not None
        publish_drops(self._store.root, table, epoch, [staged])

    def _rows_of_files(self, declared: Declared) -> pl.DataFrame | None:
        """The rows that are well formed, each with its epoch."""
        if declared.name not in self._files:
            return None
        if declared.name not in self._read:
            source = declared.read_as(declared.name)
            opened = self._files[declared.name](source)
            found = [opened.read(p, 0, end) for p, end in enumerate(opened.ends())]
            self._snapshots.unread[declared.name] = sum(len(x.error) - x.error.null_count() for x in found)
            columns = [pl.col(c.name).alias(c.field) for c in source.columns if c.place in ("key", "value")]
            epoch = pl.col(TIME).cum_max()
            self._read[declared.name] = pl.concat(
                x.rows.with_columns(epoch).filter(x.error.is_null()).select(*columns, TIME) for x in found
            )
        return self._read[declared.name]

    def _records(self, topic: str, start: int) -> list[Placed]:
        """The records of a topic from the `start`-th on, in the order of their epochs; `seq` is the epoch."""
        if topic not in self._store.names():
            return []
        found: list[Placed] = []
        self._torn[topic] = 0
        for partition, end in enumerate(self._store.end_offsets(topic)):
            read = parse_envelope(self._store.read(topic, partition, 0, end)["_line"])
            good = read.with_row_index("n").filter(pl.col("error").is_null())
            self._torn[topic] += read.height - good.height
            columns = good.select("n", "_t", pl.col("_t").cum_max().alias("epoch"), "_key", "_value").iter_rows()
            found += [Placed(e, 0, 0, partition, n, key, value, t, None) for n, t, e, key, value in columns]
        found.sort(key=lambda r: (r.seq, r.partition, r.offset))
        return found[start:]

    def _last(self) -> int:
        """The last epoch of the store."""
        last = 0
        for name in self._store.names():
            for partition, end in enumerate(self._store.end_offsets(name)):
                if end:
                    line = self._store.read(name, partition, end - 1, end)["_line"]
                    last = max(last, parse_envelope(line)["_t"].max() or 0)  # type: ignore[assignment]
        return last

    def _epoch(self, read: Read) -> int | None:
        if read.at is not None:
            raise BraidError("time travel to a time of day is not supported in a store", "write now() - INTERVAL …")
        return int(time.time() * 1000) - read.back if read.back else None


def _count(n: int) -> str:
    return f"{n} record{'s' * (n != 1)}"
