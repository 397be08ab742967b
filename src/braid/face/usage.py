"""`braid usage`: what a store holds, who needs it, and what may be deleted.

In: a store, also while queries run on it. Out: a row for each topic, each query, and each thing that nobody needs, with
the command that deletes it.
Rule: nothing is changed. Records, times and rows are those that commits and states tell; bytes are those of the files,
by one look through the store's folder, or one listing of an object store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import click

from braid.errors import BraidError
from braid.face.orphans import Listing, listed, orphans
from braid.face.reset import queries, unknown
from braid.face.retain import kept
from braid.face.show import open_store
from braid.face.tabular import json_line, print_table, time_text
from braid.face.verify import amount
from braid.stage import offset_log, state_file
from braid.stage.readers import Reader, holding, readers
from braid.stage.reset_marker import Known
from braid.store import ObjectStore
from braid.topics import checkpoint_paths, registered, retention
from braid.topics.retention import Retention
from braid.topics.store import TopicStore


@dataclass(frozen=True, slots=True)
class TopicUsed:
    """`bytes`: of all its files; `first`, `last`: the lowest and the highest time of its records (ms); `needed`: by
    the queries that read it, how many of its records each has behind it."""

    topic: str
    records: int
    bytes: int
    first: int | None
    last: int | None
    keeps: Retention
    written_by: Sequence[str]
    read_by: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FrameUsed:
    """A registered DataFrame: its rows in all pieces, and as `TopicUsed` has it."""

    frame: str
    pieces: int
    rows: int
    bytes: int
    first: int | None
    last: int | None
    read_by: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QueryUsed:
    """`rows`, `state`, `runs`: of its state, in memory's format, and how many files or parts hold it; `files`,
    `bytes`: of its checkpoint; `cuts`, `drops`: bytes of these."""

    query: str
    rows: int
    state: int
    runs: int
    files: int
    bytes: int
    cuts: int
    drops: int


@dataclass(frozen=True, slots=True)
class Spare:
    """What may be deleted: why, and by which command."""

    what: str
    bytes: int
    why: str
    command: str


@dataclass(frozen=True, slots=True)
class Usage:
    """`unknown`: why it cannot be told what is read."""

    topics: Sequence[TopicUsed]
    queries: Sequence[QueryUsed]
    spare: Sequence[Spare]
    unknown: Sequence[str] = ()
    frames: Sequence[FrameUsed] = ()


def usage(store: ObjectStore, parent: ObjectStore | None = None) -> Usage:
    """`parent`: one more folder of checkpoints than the store knows."""
    opened = open_store(store)
    lies, known = listed(opened.root), queries(opened, parent)
    found = readers(known)
    keeps = retention.all_of(opened.root)
    topics = [
        t
        for name in opened.names()
        if (t := _topic(opened, name, known, found, lies, keeps.get(name, Retention()))) is not None
    ]
    frames = [_frame(opened.root, name, found, lies) for name in registered.names(opened.root)]
    own = checkpoint_paths.own(opened.root)
    mine = {q.folder: _of_checkpoint(q, own, lies) for q in known}
    made = [_query(q, mine[q.folder], lies) for q in known]
    left = [Spare(r.what, r.bytes, r.why, r.command) for r in orphans(opened, known, lies, parent)]
    why = [e.message for e in unknown(opened, known, parent)]
    return Usage(topics, made, [*(() if why else _idle(topics, frames)), *left], why, frames)


def _topic(
    store: TopicStore, name: str, known: Iterable[Known], found: Iterable[Reader], lies: Listing, keeps: Retention
) -> TopicUsed | None:
    try:
        view = store.topic(name).view()
    except BraidError:
        if store.exists(name):
            raise
        return None  # it was removed meanwhile
    extents = [s.extent for part in view.parts for s in part]
    lows, highs = [e.low for e in extents if e.low is not None], [e.high for e in extents if e.high is not None]
    return TopicUsed(
        topic=name,
        records=sum(e.records for e in extents),
        bytes=lies.below(f"topics/{name}").bytes,
        first=min(lows, default=None),
        last=max(highs, default=None),
        keeps=keeps,
        written_by=sorted(q.name for q in known if q.writes == name and not q.on_broker),
        read_by={r.query: r.has_read(name, len(view.parts)) for r in holding(found, name)},
    )


def _frame(root: ObjectStore, name: str, found: Iterable[Reader], lies: Listing) -> FrameUsed:
    known, topic = registered.read(root, name), f"{registered.PREFIX}{name}"
    pieces = () if known is None else known.pieces
    lows, highs = [p.low for p in pieces if p.low is not None], [p.high for p in pieces if p.high is not None]
    partitions = 1 if known is None else len(known.partitions())
    return FrameUsed(
        frame=name,
        pieces=len(pieces),
        rows=sum(piece.count for piece in pieces),
        bytes=lies.below(f"{registered.FOLDER}/{name}").bytes + lies.sizes.get(f"{registered.FOLDER}/{name}.json", 0),
        first=min(lows, default=None),
        last=max(highs, default=None),
        read_by={r.query: r.has_read(topic, partitions) for r in holding(found, topic)},
    )


def _of_checkpoint(q: Known, own: ObjectStore, lies: Listing) -> Listing:
    """The files of a checkpoint, wherever it lies."""
    if q.folder.parent == own:
        return lies.below(f"{own.name}/{q.name}")
    return listed(q.folder)


def _query(q: Known, mine: Listing, lies: Listing) -> QueryUsed:
    runs = [run for _, text in _state(q) for run in state_file.runs_in(text)]
    return QueryUsed(
        query=q.name,
        rows=sum(rows for _, rows, _ in runs),
        state=sum(size for *_, size in runs),
        runs=len(runs),
        files=len(mine),
        bytes=mine.bytes,
        cuts=mine.sizes.get(offset_log.NAME, 0) + mine.below(offset_log.FOLDER).bytes,
        drops=lies.below(f"drops/{q.name}").bytes,
    )


def _state(q: Known) -> list[tuple[str, dict[str, object]]]:
    """The state behind the newest batch, by bucket."""
    try:
        return list(state_file.latest(q.folder)[1].items())
    except (BraidError, OSError):
        return []


# ------------------------------------------------------------ what nobody needs


def _idle(topics: Iterable[TopicUsed], frames: Iterable[FrameUsed]) -> Iterator[Spare]:
    for f in frames:
        if not f.read_by:
            yield Spare(f"DataFrame {f.frame}", f.bytes, "no query has read it", f"braid rm {f.frame}")
    for t in topics:
        if not t.read_by and not t.written_by:
            yield Spare(f"topic {t.topic}", t.bytes, "no query has read or written it", f"braid rm {t.topic}")


# ------------------------------------------------------------------------ shown


def print_usage(store: ObjectStore, parent: ObjectStore | None, as_json: bool) -> None:
    found = usage(store, parent)
    if as_json:
        click.echo(json_line(asdict(found)))
        return
    for why in found.unknown:
        click.echo(f"it is not known which query reads what: {why}")
    if not (found.topics or found.frames or found.queries or found.spare):
        click.echo(f"{store} holds nothing")
    if found.topics:
        print_table(TOPICS, map(_topic_row, found.topics))
    if found.frames:
        click.echo()
        print_table(FRAMES, map(_frame_row, found.frames))
    if found.queries:
        click.echo()
        print_table(QUERIES, map(_query_row, found.queries))
    if found.spare:
        click.echo()
        print_table(("may be deleted", "bytes", "why", "by"), map(_spare_row, found.spare))


TOPICS = ("topic", "records", "bytes", "from", "to", "keeps", "written by", "read by")
FRAMES = ("DataFrame", "pieces", "rows", "bytes", "from", "to", "read by")
QUERIES = ("query", "state rows", "state", "runs", "checkpoint", "cuts", "drops")


def _topic_row(t: TopicUsed) -> Sequence[object]:
    return (
        *(t.topic, f"{t.records:,}", amount(t.bytes), *_times(t)),
        *(kept(t.keeps), ", ".join(t.written_by), _read_by(t)),
    )


def _frame_row(f: FrameUsed) -> Sequence[object]:
    return f.frame, f.pieces, f"{f.rows:,}", amount(f.bytes), *_times(f), _read_by(f)


def _times(x: TopicUsed | FrameUsed) -> Sequence[str]:
    return ["" if at is None else time_text(at) for at in (x.first, x.last)]


def _read_by(x: TopicUsed | FrameUsed) -> str:
    return ", ".join(f"{query} up to {n:,}" for query, n in sorted(x.read_by.items()))


def _query_row(q: QueryUsed) -> Sequence[object]:
    return q.query, f"{q.rows:,}", amount(q.state), q.runs, amount(q.bytes), amount(q.cuts), amount(q.drops)


def _spare_row(s: Spare) -> Sequence[object]:
    return s.what, amount(s.bytes), s.why, s.command
