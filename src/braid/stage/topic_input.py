"""A topic of the store as an input.

In: the store, a source. Out: decoded records of a range, and where a batch that ends at a time ends.
Rule: a record's time is what `read` gives it: that of the timestamp column where the source has one, else the record's
own. A line whose envelope cannot be read is a record too: malformed, without a time, in its place.

Where times come from columns, whoever plans batches decodes the records ahead, once: as far as a batch may reach.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import polars as pl

from braid.errors import BraidError
from braid.operators.changes import HEADERS, NEVER, TIME
from braid.plan.logical import Source
from braid.stage.decode import RAW, Decoded, decode
from braid.stage.times import Ahead, Block, Times, filled
from braid.timing import spent
from braid.topics.envelope import parse_envelope
from braid.topics.segments import CHUNK
from braid.topics.store import TopicStore

CACHED = 1024  # chunks of times kept in memory: 64 MB


class TopicInput:
    """Can be sent to other processes. Not for several threads at once."""

    def __init__(self, store: TopicStore, source: Source) -> None:
        self.store, self.source = store, source
        self._ahead: dict[int, Ahead] = {}
        self._times: OrderedDict[tuple[int, int, int], Times] = OrderedDict()

    def __reduce__(self) -> tuple[type[TopicInput], tuple[TopicStore, Source]]:
        return TopicInput, (self.store, self.source)

    @property
    def partitions(self) -> int:
        return self.store.partitions(self.source.topic)

    def ends(self) -> list[int]:
        return self.store.end_offsets(self.source.topic)

    # ------------------------------------------------------------- times

    def cut(self, partition: int, first: int, time: int) -> int:
        return self._ahead_of(partition, first).cut(time)

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        return self._ahead_of(partition, first).highest(count)

    def _ahead_of(self, partition: int, first: int) -> Ahead:
        end = self.store.topic(self.source.topic).view().end(partition)
        ahead = self._ahead.get(partition)
        if ahead is None or (ahead.first, ahead.end) != (first, end):
            blocks = self._chunks if self.source.timestamp is None else self._decoded_chunks
            ahead = Ahead(first, end, blocks(partition, first, end), lambda a, b: self._chunk(partition, a, b))
            self._ahead[partition] = ahead
        return ahead

    def _chunks(self, partition: int, first: int, end: int) -> Iterator[Block]:
        """What the index of the segments says; only the chunk in which `first` lies is read."""
        for segment in self.store.topic(self.source.topic).view().overlapping(partition, first, end):
            for k, high in enumerate(segment.extent.highs):
                start, stop = segment.first + k * CHUNK, min(segment.first + (k + 1) * CHUNK, segment.end)
                if start >= first:
                    yield start, stop, NEVER if high is None else high
                elif stop > first:
                    yield first, stop, int(self._chunk(partition, first, stop).max())

    def _decoded_chunks(self, partition: int, first: int, end: int) -> Iterator[Block]:
        start = first
        while start < end:
            stop = min(start + CHUNK - start % CHUNK, end)
            yield start, stop, int(self._chunk(partition, start, stop).max())
            start = stop

    def _chunk(self, partition: int, start: int, stop: int) -> Times:
        """Times of records, `NEVER` where one has none."""
        which = (partition, start, stop)
        found = self._times.get(which)
        if found is None:
            raw = self._raw(partition, start, stop)
            times = raw[TIME]
            if self.source.timestamp is not None:
                times = decode(self.source, raw, partition).rows[TIME]
            found = self._times[which] = times.fill_null(NEVER).to_numpy()
            if len(self._times) > CACHED:
                self._times.popitem(last=False)
        self._times.move_to_end(which)
        return found

    # -------------------------------------------------------------- rows

    def read(self, partition: int, first: int, last: int) -> Decoded:
        with spent("read"):
            raw = self._raw(partition, first, last)
        if raw.height != last - first:
            raise BraidError(
                f"the topic {self.source.topic!r} has no records {first} to {last - 1} in partition {partition}",
                "it was deleted or replaced since they were planned to be read; delete the checkpoint to start anew",
            )
        with spent("decode"):
            decoded = decode(self.source, raw, partition)
        if not decoded.rows[TIME].null_count():
            return decoded
        return Decoded(filled(decoded.rows), decoded.error)

    def _raw(self, partition: int, first: int, last: int) -> pl.DataFrame:
        """Columns of `decode.RAW`. A line that holds no record is shown whole in place of its value."""
        lines = self.store.read(self.source.topic, partition, first, last)
        envelope = parse_envelope(lines["_line"]).rename({"error": "_error", "_headers": HEADERS})
        rows = lines.select("_offset").hstack(envelope)
        if envelope["_error"].null_count() == rows.height:
            return rows.select(list(RAW))
        shown = pl.coalesce(lines["_line"], lines["_raw"].bin.encode("base64"))
        lost = pl.col("_error").is_not_null() & pl.col("_key").is_null() & pl.col("_value").is_null()
        rows = rows.with_columns(pl.when(lost).then(shown).otherwise(pl.col("_value")).alias("_value"))
        return rows.select(list(RAW))
