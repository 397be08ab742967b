"""An order given from outside: how the test driver's calls become batches of a query.

In: what stands in the topics a query reads, each record with its place (seq, hops, n), and marks. Out: chunks, batch by
batch, each holding a stretch of the order.
Rule: the order is (seq, hops, topic rank, n), the same in every runtime and for every cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from braid.errors import BraidError
from braid.lower.physical import Leaf, Plan
from braid.operators.changes import DIFF, HOP_BITS, LEAF_BITS, LOW, MAX_RANKS, N_BITS, RANK_BITS
from braid.plan.epochs import in_epochs
from braid.stage.decode import Decoded, decode
from braid.stage.ingest import Chunk, Mark
from braid.topics.envelope import RAW

PART_BITS = 10  # of the `n` of a record that a query finds at its start
BATCH_BITS = 20  # of `n`: the batch, then the number within it
BEFORE_ALL = -1  # the number of what a captured table holds
ORDER = dict.fromkeys(("seq", "hops", "rank", "n"), pl.Int64)  # columns of `Chunk.order`
_LAST_HOP = (1 << HOP_BITS) - 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A record of a topic with its place in the order. Key, value and headers are JSON texts; `window`: bounds."""

    seq: int
    hops: int
    n: int
    partition: int
    offset: int
    key: str | None
    value: str | None
    timestamp: int
    headers: str | None
    window: tuple[int, int] | None = None


def window_of(record: Placed) -> dict[str, int] | None:
    """A record's window as columns have it."""
    return None if record.window is None else {"start": record.window[0], "end": record.window[1]}


def bounds_of(window: dict[str, int] | None) -> tuple[int, int] | None:
    """A window in a column as records have it."""
    return None if window is None else (window["start"], window["end"])


@dataclass(frozen=True, slots=True)
class Moment:
    """A clock call or an end: at `seq`, for every partition of the topic (`value`: the bound)."""

    seq: int
    kind: Literal["end", "bound"]
    value: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What one leaf has to process: records and moments of its topic, in topic order."""

    leaf: int
    records: Sequence[Placed]
    moments: Sequence[Moment]
    partitions: int


def since_of(plan: Plan, leaf: Leaf, number: int | None) -> int | None:
    """The number up to which a leaf of a query that starts at `number` reads a snapshot; None where it reads none."""
    return number if plan.query.snapshot or leaf.source.captured else None


def begun(records: Sequence[Placed], leaf: Leaf, number: int) -> Sequence[Placed]:
    """The records that a leaf of a query that starts at `number` reads: from where its source begins on."""
    begin = leaf.source.begin
    if begin == "earliest":
        return records
    made, reached = list[Placed](), set[int]()
    for r in records:
        if begin != "latest" and r.timestamp >= begin:
            reached.add(r.partition)
        if r.seq > number or r.partition in reached:
            made.append(r)
    return made


def at_start(records: Sequence[Placed], leaf: Leaf, since: int | None) -> list[Placed]:
    """The records of a leaf of a query that starts at number `since` with a snapshot: those before it come in one
    epoch, of that number, or of the one before where the leaf is ahead. None: as they stand. Of a captured table those
    before it come first of all, and no others."""
    if since is None:
        return list(records)
    if leaf.source.captured:
        return [_first(r, BEFORE_ALL) for r in records if r.seq <= since]
    epoch = since - 1 if leaf.ahead else since
    return [_first(r, epoch) if r.seq < since else r for r in records]


def _first(r: Placed, epoch: int) -> Placed:
    return replace(r, seq=epoch, hops=0, n=(r.offset << PART_BITS) + r.partition)


def standing(records: Sequence[Placed], leaf: Leaf, since: int | None) -> list[Placed]:
    """`at_start`, and of a table only what stands of its keys before the query started."""
    placed = at_start(records, leaf, since)
    if since is None or leaf.source.kind != "table" or leaf.source.captured:
        return placed
    last = {r.key: r for r in placed if r.seq <= since}
    return [r for r in placed if r.seq > since or (last[r.key] is r and r.value is not None)]


def without_replaced(decoded: Decoded, order: pl.DataFrame, since: int) -> tuple[Decoded, pl.DataFrame]:
    """The same for records that are decoded already; `order` is that of `at_start`."""
    rows = decoded.rows.with_columns(order["seq"].alias("_seq"))
    old = pl.col("_seq") <= since
    last = pl.struct(old, "_key").is_last_distinct() & (pl.col(DIFF) == 1)
    kept = rows.select((~old | last).alias("k"))["k"]
    return Decoded(decoded.rows.filter(kept), decoded.error.filter(kept)), order.filter(kept)


def topic_ranks(plan: Plan) -> dict[int, int]:
    """The rank of each leaf's topic: tables before streams, then by name."""
    order = sorted({(leaf.source.kind != "table", leaf.source.topic) for leaf in plan.leaves})
    return {leaf.number: order.index((leaf.source.kind != "table", leaf.source.topic)) for leaf in plan.leaves}


def partition_ranks(plan: Plan, partitions: dict[int, int]) -> dict[tuple[int, int], int]:
    """The rank of each source partition (by leaf and partition): tables before streams, topic, partition. Two leaves
    over one topic share theirs."""
    keys = {
        (leaf.number, p): (leaf.source.kind != "table", leaf.source.topic, p)
        for leaf in plan.leaves
        for p in range(partitions[leaf.number])
    }
    order = {key: i for i, key in enumerate(sorted(set(keys.values())))}
    return {place: order[key] for place, key in keys.items()}


class Ranks(dict[str, int]):
    """The rank of each `leaf/partition` that was there when a query first started. `behind`: the first rank behind all
    of these. A partition that is added stands behind them, by its number, then its topic: so no old record changes its
    place, and every start counts alike. None: none may be added."""

    def __init__(self, known: Mapping[str, int], plan: Plan, behind: int | None) -> None:
        super().__init__(known)
        self.behind = behind
        self._topics = topic_ranks(plan)
        self._count = len(set(self._topics.values()))

    @staticmethod
    def recorded(sources: Sequence[tuple[str, int]], plan: Plan, grows: bool) -> Ranks:
        """As a checkpoint has recorded the partitions. `grows`: some may have been added since."""
        places = {f"{x.number}/{p}": n for n, (t, p) in enumerate(sources) for x in plan.leaves if x.source.topic == t}
        return Ranks(places, plan, len(sources) if grows else None)

    def __missing__(self, place: str) -> int:
        leaf, partition = map(int, place.split("/"))
        if self.behind is None:
            raise BraidError("a topic has got partitions since the query began", "start it with another checkpoint")
        rank = self.behind + partition * self._count + self._topics[leaf]
        if rank >= MAX_RANKS:
            raise BraidError(f"a topic has {partition + 1} partitions, which is too many", "read fewer topics at once")
        return rank

    def partition(self, leaf: int, rank: int) -> int | None:
        """The number of the leaf's partition that has this rank; None where it has none, or is of a DataFrame."""
        known = (int(place.split("/")[1]) for place, n in self.items() if n == rank and place.startswith(f"{leaf}/"))
        found = next(known, None)
        if found is not None or self.behind is None or rank < self.behind:
            return found
        partition, topic = divmod(rank - self.behind, self._count)
        return partition if self._topics[leaf] == topic else None

    def added(self, rank: int) -> tuple[int, int]:
        """A leaf, and the partition that was added, of a rank."""
        assert self.behind is not None
        partition, topic = divmod(rank - self.behind, self._count)
        return next(leaf for leaf, n in self._topics.items() if n == topic), partition


def cut(plan: Plan, readings: Sequence[Reading], size: int | None) -> Iterator[list[Reading]]:
    """The readings in batches of `size` records (None: all in one), or of `size` epochs where the query looks at whole
    ones. Moments go with the records before them."""
    if size is None:
        yield list(readings)
        return
    ranks = topic_ranks(plan)
    events = sorted(
        [((r.seq, r.hops, ranks[x.leaf], r.n), 0, i, r) for i, x in enumerate(readings) for r in x.records]
        + [((m.seq, _LAST_HOP, 0, 0), 1, i, m) for i, x in enumerate(readings) for m in x.moments],
        key=lambda e: (e[0], e[1], e[2]),
    )
    width = 1 if in_epochs(plan.query.root) else None
    places = sorted({e[0][:width] for e in events})
    for start in range(0, len(places), size):
        mine = set(places[start : start + size])
        taken = [e for e in events if e[0][:width] in mine]
        yield [
            Reading(
                x.leaf,
                [e[3] for e in taken if e[2] == i and isinstance(e[3], Placed)],
                [e[3] for e in taken if e[2] == i and isinstance(e[3], Moment)],
                x.partitions,
            )
            for i, x in enumerate(readings)
        ]


def chunks(plan: Plan, readings: Sequence[Reading]) -> list[Chunk]:
    """One batch's chunks."""
    topics = topic_ranks(plan)
    parts = partition_ranks(plan, {r.leaf: r.partitions for r in readings})
    made = []
    for reading in readings:
        for partition in range(reading.partitions):
            records = [r for r in reading.records if r.partition == partition]
            if not records and not reading.moments:
                continue
            rank = topics[reading.leaf]
            marks = tuple(Mark(moment_position(m.seq), m.kind, m.value) for m in reading.moments)
            order = pl.DataFrame([(r.seq, r.hops, rank, r.n) for r in records], schema=ORDER, orient="row")
            decoded = decode(plan.leaves[reading.leaf].source, raw_frame(records), partition)
            made.append(Chunk(reading.leaf, partition, parts[reading.leaf, partition], decoded, order, marks))
    return made


def raw_frame(records: Sequence[Placed]) -> pl.DataFrame:
    """Placed records as raw ones (columns of `decode.RAW`)."""
    rows = [(r.offset, r.timestamp, r.key, r.value, r.headers, window_of(r), None) for r in records]
    return pl.DataFrame(rows, schema=RAW, orient="row")


def moment_position(seq: int) -> int:
    """The place of a clock call or an end: one for all sources, after whatever else its number caused."""
    return seq * LOW + (_LAST_HOP << RANK_BITS - 1 + N_BITS + LEAF_BITS)


def place_of(position: int) -> tuple[int, int, int, int]:
    """(seq, hops, topic rank, n) of an explicit position."""
    low = position % LOW >> LEAF_BITS
    n, low = low % (1 << N_BITS), low >> N_BITS
    return position // LOW, low >> (RANK_BITS - 1), low % (1 << (RANK_BITS - 1)), n


assert HOP_BITS + RANK_BITS - 1 + N_BITS + LEAF_BITS <= 63
