"""Inputs: what a query reads, partition by partition, in ranges of offsets; a topic of the store as one.

In: a source's declaration and where its records lie. Out: decoded records of a range, end offsets, and the running
maximum of times that batches are cut by.
Rule: the same range gives the same records for ever. Maxima of blocks are asked for only as far as needed, times only
of the block in which an answer lies. A record without a readable time has `NEVER`: it never cuts and never raises a
maximum; a line whose envelope cannot be read is a record too, malformed, in its place.

Where times come from columns, whoever plans batches decodes the records ahead, once: as far as a batch may reach.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.errors import BraidError, anew
from braid.operators.changes import NEVER, TIME
from braid.plan.logical import Source
from braid.stage.decode import Decoded, decode, timed, wires_of
from braid.timing import spent
from braid.topics.interface import Topics
from braid.topics.reading import taken_away
from braid.topics.segments import CHUNK


class Readable(Protocol):
    """One source's records. Offsets of a partition count from 0; `first` is included, `last` is not."""

    @property
    def source(self) -> Source: ...

    @property
    def partitions(self) -> int: ...

    def ends(self) -> list[int]:
        """The present end offset of each partition."""
        ...

    def read(self, partition: int, first: int, last: int) -> Decoded: ...


def page_end(source: Readable, partition: int, first: int, last: int) -> int:
    """Where a page from `first` on ends: at `last`, or before, where records of a topic are large."""
    if not isinstance(source, TopicInput):
        return last
    return source.store.page_end(source.source.topic, partition, first, last)


Opened = Mapping[str, Callable[[Source], Readable]]  # what opens sources that are no topics, by name


class Input(Readable, Protocol):
    """Records that batches are cut of. One without a readable time never cuts: it counts as later than nothing. In
    `read` its time is the highest before it in the range, so that no time is null.
    """

    def cut(self, partition: int, first: int, time: int) -> int:
        """The offset up to which a batch that ends at `time` reads: that of the first record from `first` on whose time
        is later, else the present end."""
        ...

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        """The highest time among the `count` records from `first` on; None where fewer are there."""
        ...


@dataclass(frozen=True, slots=True)
class Until:
    """An input that ends where it ended at a certain moment."""

    input: Input
    limits: list[int]

    @property
    def source(self) -> Source:
        return self.input.source

    @property
    def partitions(self) -> int:
        return self.input.partitions

    def ends(self) -> list[int]:
        return list(self.limits)

    def cut(self, partition: int, first: int, time: int) -> int:
        return min(self.input.cut(partition, first, time), max(first, self.limits[partition]))

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        if first + count > self.limits[partition]:
            return None
        return self.input.time_after(partition, first, count)

    def read(self, partition: int, first: int, last: int) -> Decoded:
        return self.input.read(partition, first, last)


# ----------------------------------------------------------------- times ahead


Times = npt.NDArray[np.int64]
Block = tuple[int, int, int | None]  # first offset, end, highest time if that is known without reading


class Ahead:
    """The running maximum of the times from `first` to `end`, block by block.

    `blocks` covers [first, end) without gaps; `load(start, stop)` gives the times of one of its blocks.
    """

    def __init__(self, first: int, end: int, blocks: Iterator[Block], load: Callable[[int, int], Times]) -> None:
        self.first, self.end = first, end
        self._blocks, self._load = blocks, load
        self._next: Block | None = None
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._maxima: list[int] = []

    def cut(self, time: int) -> int:
        """The offset of the first record later than `time`, else the end."""
        at = bisect_right(self._maxima, time)
        while at == len(self._maxima):
            if not self._more():
                return self.end
            if self._maxima[at] <= time:
                at += 1
        start, stop = self._starts[at], self._stops[at]
        return start + int(np.argmax(self._load(start, stop) > time))

    def highest(self, count: int) -> int | None:
        """The highest of the first `count` times; None where fewer records are there."""
        last = self.first + count
        if last > self.end or count < 1:
            return None
        while not self._stops or self._stops[-1] < last:
            if not self._more():
                return None
        at = bisect_left(self._stops, last)
        start, stop = self._starts[at], self._stops[at]
        if stop == last:
            return self._maxima[at]
        within = int(self._load(start, stop)[: last - start].max())
        return max(within, self._maxima[at - 1]) if at else within

    def _more(self) -> bool:
        self._next = self._next or next(self._blocks, None)
        if self._next is None:
            return False
        start, stop, known = self._next
        top = int(self._load(start, stop).max()) if known is None else known
        self._next = None  # only now: what could not be read is asked for again
        self._starts.append(start)
        self._stops.append(stop)
        self._maxima.append(max(top, self._maxima[-1]) if self._maxima else top)
        return True


def filled(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with every `_t` that is null replaced by the highest before it, `NEVER` where there is none.

    Within the range that is read, as `m` is: a record without a time stands right behind the one before it, and where
    it comes first, before all others, in every cut.
    """
    if not rows[TIME].null_count():
        return rows
    so_far = pl.col(TIME).cum_max().forward_fill()
    return rows.with_columns(pl.coalesce(TIME, so_far, pl.lit(NEVER, pl.Int64)).alias(TIME))


# ---------------------------------------------------------------------- topics


NONE = np.empty(0, np.int64)
CACHED = 1024  # chunks of times kept in memory: 64 MB


class TopicInput:
    """Topics of the store, or of a broker. Can be sent to other processes. Not for several threads at once."""

    def __init__(self, store: Topics, source: Source) -> None:
        self.store, self.source = store, source
        self._how = wires_of(source)
        self._ahead: dict[int, Ahead] = {}
        self._held: dict[int, tuple[int, Times]] = {}  # what was read ahead of a partition, from an offset on
        self._times: OrderedDict[tuple[int, int, int], Times] = OrderedDict()

    def __reduce__(self) -> tuple[type[TopicInput], tuple[Topics, Source]]:
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
        end = self.store.known_end(self.source.topic, partition)
        ahead = self._ahead.get(partition)
        if ahead is None or (ahead.first, ahead.end) != (first, end):
            known = (
                self.store.highs(self.source.topic, partition, first, end) if self.source.timestamp is None else None
            )
            if known is None:
                self._forget(partition, first)
                ahead = Ahead(first, end, _chunks(first, end), partial(self._read_ahead, partition))
            else:
                ahead = Ahead(first, end, _known_chunks(first, known), partial(self._chunk, partition))
            self._ahead[partition] = ahead
        return ahead

    def _read_ahead(self, partition: int, start: int, stop: int) -> Times:
        """Times of records behind those that were read ahead before: each is read once."""
        at, times = self._held.get(partition, (start, NONE))
        if not at <= start <= at + len(times):
            at, times = start, NONE
        if stop > at + len(times):
            times = np.concatenate([times, self._times_of(partition, at + len(times), stop)])
            self._held[partition] = at, times
        return times[start - at : stop - at]

    def _forget(self, partition: int, first: int) -> None:
        """What was read ahead and lies before `first`."""
        at, times = self._held.pop(partition, (first, NONE))
        if at <= first <= at + len(times):
            self._held[partition] = first, times[first - at :].copy()

    def _chunk(self, partition: int, start: int, stop: int) -> Times:
        """Times of a chunk whose highest is known."""
        which = (partition, start, stop)
        found = self._times.get(which)
        if found is None:
            found = self._times[which] = self._times_of(partition, start, stop)
            if len(self._times) > CACHED:
                self._times.popitem(last=False)
        self._times.move_to_end(which)
        return found

    def _times_of(self, partition: int, start: int, stop: int) -> Times:
        """Times of records, `NEVER` where one has none, or where there is none at an offset."""
        topic, at = self.source.topic, (partition, start, stop)
        by = self.source.timed_by
        if by is None:
            rows = self.store.times(topic, *at)
        elif by.place == "value":
            rows = timed(self.source, self.store.times(topic, *at, self._how.value), self.store.registry)
        else:
            rows = decode(self.source, self._raw(*at), partition, self.store.registry).rows
        found = np.full(stop - start, NEVER, np.int64)
        found[rows["_offset"].to_numpy() - start] = rows[TIME].fill_null(NEVER).to_numpy()
        return found

    # -------------------------------------------------------------- rows

    def read(self, partition: int, first: int, last: int) -> Decoded:
        with spent("read"):
            raw = self._raw(partition, first, last)
        if raw.height != last - first and self.store.dense:
            self._check_there(partition, first, last)
        with spent("decode"):
            decoded = decode(self.source, raw, partition, self.store.registry)
        if not decoded.rows[TIME].null_count():
            return decoded
        return Decoded(filled(decoded.rows), decoded.error)

    def _check_there(self, partition: int, first: int, last: int) -> None:
        """Refuses a range of which not all is in the topic. (What was compacted is.)"""
        topic, start = self.source.topic, self.store.known_start(self.source.topic, partition)
        if first < start:
            raise taken_away(topic, partition, first, start)
        if self.store.known_end(topic, partition) < last:
            raise BraidError(
                f"the topic {topic!r} has no records {first} to {last - 1} in partition {partition}",
                f"it was deleted or replaced since they were planned to be read; {anew()}",
            )

    def _raw(self, partition: int, first: int, last: int) -> pl.DataFrame:
        return self.store.raw(self.source.topic, partition, first, last, self._how)


def _known_chunks(first: int, known: Iterable[tuple[int, int, int | None]]) -> Iterator[Block]:
    """Of the one in which `first` lies nobody knows the highest of the rest."""
    for start, stop, high in known:
        if start >= first:
            yield start, stop, NEVER if high is None else high
        elif stop > first:
            yield first, stop, None


def _chunks(first: int, end: int) -> Iterator[Block]:
    while first < end:
        stop = min(first + CHUNK - first % CHUNK, end)
        yield first, stop, None
        first = stop
