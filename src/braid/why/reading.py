"""What a query has read, in the order in which it has processed it.

In: a checkpoint, the plan of its query, its inputs. Out: the records of each source, page by page, each with its batch
and its position there, and what it did to clocks; of chosen records the events that the definitions are asked about.
Rule: nothing is written, and a query that runs is not disturbed: what counts is up to its last batch that can be seen.
The order is that of the batches (`stage/parts.py`, `stage/ingest.py`). Of records that are not chosen only what moves a
clock is an event.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from braid.errors import BraidError
from braid.lower.physical import Leaf, Plan
from braid.operators.changes import (
    DIFF,
    EARLY,
    END_OF_BATCH,
    HEADERS,
    POS,
    POS_TYPE,
    TIME,
    explicit_position,
    partitioned_position,
    sequence_of,
)
from braid.operators.clocks import BOTH, CLOCK, FOREVER, STORED
from braid.plan.logical import Source
from braid.records.python import python_values
from braid.reference import Bound, Clocked, End, Event, Idle, Record, Steps
from braid.stage import batches, offset_log, state_file
from braid.stage.call_order import Ranks
from braid.stage.checkpoint import Document
from braid.stage.decode import Decoded
from braid.stage.ingest import Chunk, above, ingested
from braid.stage.inputs import Readable, page_end
from braid.stage.parts import Part, early_leaves, parts_of
from braid.store import ObjectStore
from braid.types import polars_type
from braid.why.pages import AT_ONCE, Folder, Kept, Page, Rows

BATCH, PARTITION, OFFSET, ERROR, KEY = "_batch", "_partition", "_offset", "_error", "_key"
Place = tuple[int, int]  # of an event: its epoch, its number

# Of a head: what a record does to clocks, if anything; the texts of the keys by which it meets others are beside it.
SHOWN, STORES = "_shown", "_stores"
_PLACES: dict[str, pl.DataType] = {
    BATCH: pl.Int32(),
    POS: POS_TYPE,
    PARTITION: pl.Int32(),
    OFFSET: pl.Int64(),
    TIME: pl.Int64(),
}
_TOLD: dict[str, pl.DataType] = {DIFF: pl.Int8(), HEADERS: pl.String(), ERROR: pl.String(), KEY: pl.String()}
_MOVED: dict[str, pl.DataType] = {SHOWN: pl.Int64(), STORES: pl.Int64()}


Ends = Sequence[tuple[int, Event]]  # what partitions do besides, each at its position in the batch: idle, closed, ended


@dataclass(frozen=True, slots=True)
class Heard:
    """All that a query has read. `rows`: by source, its records: `_batch _pos _partition _offset _t _diff _headers
    _error _key` and the columns, heads `_batch _pos _partition _offset _t _diff _key`, the keys by which they meet
    others, and what each of them means for the clocks, where that is anything; `ends`: by batch; `next`, `begin`: up to
    where and from where each `leaf/partition` was read; `folder`: for what is not kept in memory."""

    rows: Mapping[int, Rows]
    ends: Mapping[int, Ends]
    batches: int
    next: Mapping[str, int]
    begin: Mapping[str, int]
    folder: Folder

    @property
    def count(self) -> int:
        return sum(x.height for x in self.rows.values())


Keyed = Callable[[int, pl.DataFrame], pl.DataFrame]  # of a source, its records: the keys by which these meet others


def heard(
    folder: ObjectStore, known: Document, plan: Plan, inputs: Mapping[int, Readable], keyed: Keyed, into: Folder
) -> Heard:
    """All that was read up to the last batch of a query."""
    files = {n for n, leaf in enumerate(plan.leaves) if leaf.source.name in known.files}
    early = early_leaves(plan, files)
    start: Mapping[str, Any] = _beginning(known)
    rows = {n: Rows(_nothing(plan.leaves[n].source, partial(keyed, n))) for n in inputs}
    ends = dict[int, Ends]()
    ranks = Ranks.recorded(known.sources, plan, grows=True)
    documents = _documents(folder)
    for batch, end in enumerate(documents):
        first = early if batch == 0 or start.get("early") else []
        if batch == 0 and "begin" in end:
            start = {**start, "next": end["begin"]}
        parts = parts_of(start, end, first)
        for part in parts:
            rank = ranks[f"{part.leaf}/{part.partition}"]
            rows[part.leaf].pages += _pages(plan, part, batch, inputs[part.leaf], rank, keyed, into)
        ends[batch] = _ends(parts)
        start = end
    return Heard(rows, ends, len(documents), start["next"], _beginning(known)["next"], into)


def _documents(folder: ObjectStore) -> Sequence[Mapping[str, Any]]:
    """Where each batch ended that can be seen. (A batch before the first cut had nothing to read.)"""
    for again in (True, True, False):
        last = state_file.published(folder)
        try:
            upto = -1 if last < 0 else batches.document_of(folder, last).get("batch", -1)
            break
        except BraidError:  # the query runs, and has gone on meanwhile
            if not again:
                raise
    found = [*offset_log.read(folder, upto)]
    if any("seq" in x for x in found):
        raise BraidError("its batches follow the calls of a test, which have an order of their own")
    return found


def _beginning(known: Document) -> dict[str, Any]:
    return {"next": dict(known.settings.get("begin", {})), "ended": [], "idle": []}


def _pages(
    plan: Plan,
    part: Part,
    batch: int,
    source: Readable,
    rank: int,
    keyed: Keyed,
    into: Folder,
) -> Iterator[Page]:
    """The records of a part. One without a time has the highest before it, of its page or of all of these."""
    first = part.first
    while first < part.last:
        last = page_end(source, part.partition, first, min(first + AT_ONCE, part.last))
        page = replace(part, first=first, last=last)
        whole = partial(_whole, plan, page, batch, source, rank)
        decoded, rows = whole()
        if rows.height:
            chunk = Chunk(part.leaf, part.partition, rank, decoded, early=part.early, floor=part.floor)
            held = into.in_memory(rows)
            again = partial(_again, whole, rows.height) if held is None else held.read
            yield _kept(plan, chunk, rows, batch, again, keyed, into)
            part = replace(part, floor=max(part.floor, int(rows[TIME].max())))  # type: ignore[arg-type]
        first = last


def _whole(plan: Plan, part: Part, batch: int, source: Readable, rank: int) -> tuple[Decoded, pl.DataFrame]:
    """The records of a page: as they are decoded, and with their places."""
    decoded = above(source.read(part.partition, part.first, part.last), part.floor)
    leaf = plan.leaves[part.leaf]
    highest = pl.max_horizontal(pl.col(TIME).cum_max(), pl.lit(part.floor, pl.Int64)) - (EARLY if part.early else 0)
    place = partitioned_position(highest, rank, pl.col(OFFSET), leaf.reading)
    return decoded, _placed(leaf, decoded, decoded.rows.select(place.alias(POS))[POS], batch, part.partition)


def _placed(leaf: Leaf, decoded: Decoded, positions: pl.Series, batch: int, partition: int) -> pl.DataFrame:
    return decoded.rows.with_columns(
        positions,
        pl.lit(batch, pl.Int32).alias(BATCH),
        pl.lit(partition, pl.Int32).alias(PARTITION),
        decoded.error.alias(ERROR),
        pl.col(KEY).cast(pl.String, strict=False),
    ).select(*_PLACES, *_TOLD, *(c.name for c in leaf.source.columns))


def _kept(
    plan: Plan,
    chunk: Chunk,
    rows: pl.DataFrame,
    batch: int,
    whole: Callable[[], pl.DataFrame],
    keyed: Keyed,
    into: Folder,
) -> Page:
    """A page, its heads in a file."""
    heads = rows.select(*_PLACES, DIFF, KEY, *(keyed(chunk.leaf, rows).get_columns()))
    head = into.kept(heads.join(_moved(plan, chunk), on=POS, how="left", maintain_order="left"))
    return Page(batch, chunk.partition, rows.height, head.read, whole)


def _again(whole: Callable[[], tuple[Decoded, pl.DataFrame]], height: int) -> pl.DataFrame:
    """The same records, decoded once more."""
    _, rows = whole()
    if rows.height != height:
        raise BraidError("records that were read are not in their topic any more", "ask again")
    return rows


def _moved(plan: Plan, chunk: Chunk) -> pl.DataFrame:
    """What records do to clocks, by their positions."""
    steps = ingested(plan, chunk).steps
    steps = steps.filter(pl.col("kind").is_in([BOTH, CLOCK, STORED]) & (pl.col(POS) < pl.lit(END_OF_BATCH, POS_TYPE)))
    return steps.group_by(POS, maintain_order=True).agg(
        pl.col("value").filter(pl.col("kind") != STORED).last().alias(SHOWN),
        pl.col("value").filter(pl.col("kind") != CLOCK).last().alias(STORES),
    )


def _nothing(source: Source, keyed: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.DataFrame:
    columns = {c.name: polars_type(c.column.type) for c in source.columns}
    none = pl.DataFrame(schema=_PLACES | _TOLD | columns)
    return none.hstack(keyed(none)).hstack(pl.DataFrame(schema=_MOVED))


def _ends(parts: Sequence[Part]) -> Ends:
    """The end of a batch, where partitions fall idle or are closed."""
    closed = tuple((p.leaf, p.partition) for p in parts if p.ended)
    idle = tuple((p.leaf, p.partition) for p in parts if p.idle and not p.ended)
    made: list[tuple[int, Event]] = [(END_OF_BATCH, Idle(idle))] if idle else []
    return made + ([(END_OF_BATCH + 1, Bound(closed, FOREVER))] if closed else [])


def heard_in_order(plan: Plan, chunks: Iterable[Chunk], begin: Mapping[str, int], keyed: Keyed, into: Folder) -> Heard:
    """All that a query has read whose records have an order given from outside, as one batch."""
    rows = {x.number: Rows(_nothing(x.source, partial(keyed, x.number))) for x in plan.leaves}
    ends, next_ = dict[tuple[int, str, int], list[tuple[int, int]]](), dict[str, int]()
    for chunk in chunks:
        leaf, where = plan.leaves[chunk.leaf], (chunk.leaf, chunk.partition)
        for mark in chunk.marks:
            ends.setdefault((mark.position, mark.kind, mark.value), []).append(where)
        if chunk.order is not None and chunk.order.height:
            place = explicit_position(pl.col("seq"), pl.col("hops"), pl.col("rank"), pl.col("n"), leaf.reading)
            some = _placed(leaf, chunk.decoded, chunk.order.select(place.alias(POS))[POS], 0, chunk.partition)
            rows[leaf.number].pages.append(_kept(plan, chunk, some, 0, into.kept(some).read, keyed, into))
            next_[f"{leaf.number}/{chunk.partition}"] = int(some[OFFSET].max()) + 1  # type: ignore[arg-type]
    made = [(p, End(tuple(w)) if kind == "end" else Bound(tuple(w), to)) for (p, kind, to), w in sorted(ends.items())]
    return Heard(rows, {0: made}, 1, next_, begin, into)


# --------------------------------------------------------------------- events


_FRAME: dict[str, pl.DataType] = {
    BATCH: pl.Int32(),
    POS: POS_TYPE,
    "leaf": pl.Int16(),
    PARTITION: pl.Int32(),
    SHOWN: pl.Int64(),
    STORES: pl.Int64(),
    "made": pl.Int64(),
}


class Events(Sequence[Event]):
    """The events of a query, in order, each with a place: its epoch, its number. `records`: those that are looked at,
    by their places. Steps of clocks, of which there are as many as records were read, are made as they are come to."""

    def __init__(self, frames: Iterable[pl.DataFrame], made: Sequence[Event], folder: Folder) -> None:
        """`frames`: in order, columns of `_FRAME`: a step of a clock, or the number of one of `made`."""
        self._frames, self._starts, self._epochs = list[Kept](), list[int](), list[int]()
        self._made, self._last, self._held = dict[int, Event](), (-1, -1), (-1, pl.DataFrame())
        self._height, epoch, before = 0, -1, pl.DataFrame()
        for frame in frames:
            at = frame.select(BATCH, sequence_of(pl.col(POS)).alias("at"))  # rows of one time come at once
            numbers = pl.struct(BATCH, "at").rle_id().cast(pl.Int64)
            epochs = at.select(numbers + (epoch if before.equals(at.head(1)) else epoch + 1)).to_series()
            before, epoch = at.tail(1), int(epochs[-1])
            some = frame.with_columns(epochs.alias("epoch")).with_row_index("i", self._height)
            for i, e, n in some.drop_nulls("made").select("i", "epoch", "made").iter_rows():
                self._made[i] = replace(made[n], place=(e, i))
            self._starts.append(self._height)
            self._epochs.append(epoch)
            self._frames.append(folder.kept(some.drop("i", "made")))
            self._height += frame.height
        self.records = {e.place: e for e in self._made.values() if isinstance(e, Record)}

    def __len__(self) -> int:
        return self._height

    def __iter__(self) -> Iterator[Event]:
        for n, first in enumerate(self._starts):
            yield from self._each(self._frame(n), first)

    def _each(self, frame: pl.DataFrame, first: int) -> Iterator[Event]:
        steps = frame.select("epoch", "leaf", PARTITION, SHOWN, STORES).iter_rows()
        for i, (epoch, leaf, partition, time, stored) in enumerate(steps, first):
            yield self._made[i] if leaf is None else Clocked(leaf, partition, time, stored, (epoch, i))

    def blocks(self, most: int) -> Iterator[tuple[Steps | None, Iterator[Event]]]:
        """The events in order, in pieces of at most so many: steps of clocks together, and what these come to."""
        for n, first in enumerate(self._starts):
            frame = self._frame(n)
            begin = 0
            for end in (*frame["leaf"].is_null().arg_true(), frame.height):
                for start in range(begin, end, most):
                    some = frame.slice(start, min(end - start, most))
                    yield _steps(some, first + start), self._each(some, first + start)
                if end < frame.height:
                    yield None, iter([self._made[first + end]])
                begin = end + 1

    def __getitem__(self, i: Any) -> Any:
        if i in self._made:
            return self._made[i]
        epoch, leaf, partition, time, stored = self._row(i, "epoch", "leaf", PARTITION, SHOWN, STORES)
        return Clocked(leaf, partition, time, stored, (epoch, i))

    def position(self, place: Place) -> tuple[int, int]:
        """The batch of an event, and its position there."""
        batch, position = self._row(place[1], BATCH, POS)
        return batch, position

    def epoch(self, number: int) -> tuple[int, int]:
        """The numbers of the first and the last event of an epoch."""
        n = bisect_left(self._epochs, number)
        first = self._starts[n] + int(self._frame(n)["epoch"].search_sorted(number, side="left"))
        while n + 1 < len(self._starts) and self._frame(n + 1)["epoch"][0] == number:
            n += 1
        return first, self._starts[n] + int(self._frame(n)["epoch"].search_sorted(number, side="right")) - 1

    def _row(self, i: int, *names: str) -> tuple[Any, ...]:
        n = bisect_right(self._starts, i) - 1
        return self._frame(n).select(names).row(i - self._starts[n])

    def _frame(self, n: int) -> pl.DataFrame:
        if self._held[0] != n:
            self._held = n, self._frames[n].read()
        return self._held[1]


def _steps(frame: pl.DataFrame, first: int) -> Steps:
    """What steps of clocks come to."""
    last = frame.height - 1
    place = (int(frame["epoch"][last]), first + last)
    highest = frame.group_by("leaf", PARTITION, maintain_order=True).agg(pl.col(SHOWN, STORES).max())
    made = [Clocked(leaf, p, time, stored, place) for leaf, p, time, stored in highest.iter_rows()]
    return Steps(made, frame.height, place)


def events(heard: Heard, plan: Plan, taken: Mapping[int, pl.Series]) -> Events:
    """The events of a query in which nothing but the records `taken` (flags, by source) is looked at."""
    made = list[Event]()
    runs: dict[int, dict[tuple[int, int], list[tuple[Page, pl.Series | None]]]] = {}
    for n, rows in heard.rows.items():
        for page, mine in rows.flags_of(taken.get(n, rows.all(False))):
            numbers = None
            if mine.any():
                numbers = pl.repeat(None, page.height, dtype=pl.Int64, eager=True)
                some = [*_records(plan, n, page.whole().filter(mine))]
                numbers = numbers.scatter(mine.arg_true(), [*range(len(made), len(made) + len(some))])
                made += some
            runs.setdefault(page.batch, {}).setdefault((n, page.partition), []).append((page, numbers))
    ends = dict[int, list[tuple[int, int]]]()
    for batch, some_ends in heard.ends.items():
        for position, e in some_ends:
            ends.setdefault(batch, []).append((position, len(made)))
            made.append(e)
    return Events(_in_order(runs, ends), made, heard.folder)


def _in_order(
    runs: Mapping[int, Mapping[tuple[int, int], Sequence[tuple[Page, pl.Series | None]]]],
    ends: Mapping[int, Sequence[tuple[int, int]]],
) -> Iterator[pl.DataFrame]:
    """Records that are looked at, steps of clocks, and what else partitions do, in order."""
    for batch in sorted({*runs, *ends}):
        besides = pl.DataFrame(ends.get(batch, []), {POS: POS_TYPE, "made": pl.Int64}, orient="row").with_columns(
            pl.lit(batch if c == BATCH else None, t).alias(c) for c, t in _FRAME.items() if c not in (POS, "made")
        )
        records = [_of_run(*where, pages) for where, pages in runs.get(batch, {}).items()]
        yield from _merged([*records, iter([besides.select(*_FRAME)] if besides.height else [])])


def _of_run(leaf: int, partition: int, pages: Iterable[tuple[Page, pl.Series | None]]) -> Iterator[pl.DataFrame]:
    """What matters of the records of a partition in a batch, in order."""
    step = pl.col("made").is_null()
    for page, numbers in pages:
        frame = page.head([BATCH, POS, SHOWN, STORES]).with_columns(
            pl.lit(None, pl.Int64).alias("made") if numbers is None else numbers.alias("made")
        )
        frame = frame.filter(~step | pl.col(SHOWN).is_not_null() | pl.col(STORES).is_not_null())
        if frame.height:
            where = {"leaf": leaf, PARTITION: partition}
            of_steps = (pl.when(step).then(pl.lit(x, _FRAME[c])).alias(c) for c, x in where.items())
            yield frame.with_columns(of_steps).select(*_FRAME)


def _merged(runs: Iterable[Iterator[pl.DataFrame]]) -> Iterator[pl.DataFrame]:
    """Frames, each of several runs in the order of their positions, as one run."""
    held = [(frame, run) for run in runs if (frame := next(run, None)) is not None]
    while held:
        bound = pl.lit(min(frame[POS][-1] for frame, _ in held), POS_TYPE)
        yield pl.concat([frame.filter(pl.col(POS) <= bound) for frame, _ in held]).sort(POS, maintain_order=True)
        rest = [(frame.filter(pl.col(POS) > bound), run) for frame, run in held]
        held = [(f, run) for frame, run in rest if (f := frame if frame.height else next(run, None)) is not None]


def _records(plan: Plan, leaf: int, rows: pl.DataFrame) -> Iterator[Record]:
    source = plan.leaves[leaf].source
    values = {c.name: python_values(rows[c.name]) for c in source.columns}
    own = next((c.name for c in source.columns if c.field == source.message_key and c.place == "value"), None)
    facts = rows.select(PARTITION, OFFSET, TIME, DIFF, HEADERS, ERROR)
    for i, (partition, offset, time, diff, headers, error) in enumerate(facts.iter_rows()):
        mine = {name: column[i] for name, column in values.items()}
        key = None if own is None else mine[own]
        yield Record(leaf, partition, offset, time, mine, diff == -1, headers, None, key, error)
