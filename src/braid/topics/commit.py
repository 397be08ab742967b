"""How records get into a topic: staged by tasks, published by the driver, whole batches only.

In: lines with times and partitions, and the (query, batch) they come from. Out: segments listed by a commit.
Rule: the commit file is the one step that counts. Before it nothing is in the topic, after it everything is; whatever a
crash leaves undone is finished or removed by whoever takes the topic's lock next.

Steps of `publish`, under the lock: finish the renames of the last commit, adopt a segment dropped in by hand, give
offsets, write the commit (temporary name, rename), rename the staged files, fold old commits. A reader that is faster
than the renames reads from the staged names.

Without `fsync` (the default) a crash of any process loses nothing. A loss of power may lose the last seconds of a topic
or leave a torn segment, which is noticed when it is read; with `fsync` segments and commits are on disk before
`publish` returns.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import polars as pl

from braid.errors import BraidError
from braid.records import texts
from braid.store.files import force, refuse_link, remove, scratch_name
from braid.store.reading import LONGEST
from braid.topics.envelope import parse_envelope
from braid.topics.files import check_name, open_for_writing, reach
from braid.topics.log import Topic, folders
from braid.topics.segments import COMPACTED, Meter, Segment, Staged, measure, positions_name, segment_name
from braid.topics.view import Origin, View

POSITIONS = {"seq": pl.Int64, "hops": pl.Int16, "n": pl.Int64}
ANONYMOUS = "put-"  # staged names of records that belong to no query

ROWS = 1 << 14  # lines joined to one piece of bytes: memory that is used again costs no page faults
_SETTLE = 0.05  # s; a file changed so lately may still be written
_PATIENCE = 1.0  # s
_ABANDONED = 3600.0  # s; age of staged files of a `put` that died


# -- in tasks ---------------------------------------------------------------------------------------------------------


def stage_path(staging: str, query: str, batch: int, partition: int, *, piece: int = 0) -> str:
    """Where in the folder `staging` a task stages its lines: a name of its own for each attempt. One that was given up
    may still run, and may have been cut off from half of its rows: only the files that the driver was told of are ever
    published."""
    check_name(query, "query")  # so no `~` is in it
    name = f"{query}~{batch:020d}~{partition:06d}~{piece:04d}~{uuid4().hex[:8]}.jsonl"
    return os.path.join(staging, name)


class StageWriter:
    """Writes one staged file, part by part; `close` gives it its name. Pieces of a partition follow each other."""

    def __init__(self, topic: Topic, query: str, batch: int, partition: int, *, piece: int = 0) -> None:
        self._topic, self._partition, self._piece = topic, partition, piece
        self._path = stage_path(topic.staging, query, batch, partition, piece=piece)
        self._scratch = scratch_name(self._path)
        self._meter = Meter()
        self._positions: list[pl.DataFrame] = []
        self._file = open(self._scratch, "xb")  # noqa: SIM115 (closed by `close` or `abort`)

    def write(self, lines: pl.Series, times: pl.Series | None = None, positions: pl.DataFrame | None = None) -> None:
        """Whole records in offset order; `times` where known, `positions` (`POSITIONS`) for the test driver."""
        if lines.null_count():
            raise ValueError("a record is a line, not null")
        times = parse_envelope(lines)["_t"] if times is None else times
        self.write_blocks(texts.lines(lines, ROWS), times)
        if positions is not None:
            self._positions.append(positions.select(pl.col(c).cast(t) for c, t in POSITIONS.items()))

    def write_blocks(self, blocks: Iterable[texts.Block], times: pl.Series) -> None:
        """Whole records, block by block; `times` of all."""
        written = 0
        for data, lengths in blocks:
            if (longest := int(lengths.max(initial=0))) > LONGEST:
                what = f"a record of {longest} bytes for the topic {self._topic.name!r}"
                raise BraidError(what, f"a record is a line of at most {LONGEST >> 20} MiB")
            self._file.write(data)
            self._meter.add(data, lengths, times.slice(written, len(lengths)))
            written += len(lengths)

    def close(self) -> Staged:
        beside, crc = None, None
        if self._positions:
            beside = os.path.basename(self._path).removesuffix("jsonl") + "pos"
            data = io.BytesIO()
            pl.concat(self._positions).write_ipc(data, compression="uncompressed")
            crc = zlib.crc32(data.getbuffer())
            Path(self._scratch + ".pos").write_bytes(data.getbuffer())
            os.replace(self._scratch + ".pos", os.path.join(self._topic.staging, beside))
        if self._topic.fsync:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._scratch, self._path)
        file, extent = os.path.basename(self._path), self._meter.extent()
        return Staged(self._partition, file, extent, beside, self._piece, positions_sum=crc)

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # a full disk takes no rest either
            self._file.close()
        remove(self._scratch)


class StageWriters:
    """All that a task stages of a batch: a file for each partition and piece, handed in together."""

    def __init__(self, topic: Topic, query: str, batch: int) -> None:
        self._topic, self._query, self._batch = topic, query, batch
        self._writers: dict[tuple[int, int], StageWriter] = {}

    def of(self, partition: int, piece: int) -> StageWriter:
        if (partition, piece) not in self._writers:
            made = StageWriter(self._topic, self._query, self._batch, partition, piece=piece)
            self._writers[partition, piece] = made
        return self._writers[partition, piece]

    def close(self) -> list[Staged]:
        staged = [writer.close() for _, writer in sorted(self._writers.items())]
        return self._topic.handed_in(staged, self._query, self._batch)

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()


def stage(
    topic: Topic,
    query: str,
    batch: int,
    partition: int,
    lines: pl.Series,
    *,
    times: pl.Series | None = None,
    positions: pl.DataFrame | None = None,
    piece: int = 0,
) -> Staged:
    """`StageWriter` for lines that are all there."""
    staged = _staged(topic, query, batch, partition, lines, times=times, positions=positions, piece=piece)
    return topic.handed_in([staged], query, batch)[0]


def _staged(
    topic: Topic,
    query: str,
    batch: int,
    partition: int,
    lines: pl.Series,
    *,
    times: pl.Series | None,
    positions: pl.DataFrame | None,
    piece: int = 0,
) -> Staged:
    writer = StageWriter(topic, query, batch, partition, piece=piece)
    try:
        writer.write(lines, times, positions)
        return writer.close()
    except OSError as e:
        writer.abort()
        if e.filename is not None:
            raise
        raise OSError(e.errno, e.strerror, topic.staging) from None
    except BaseException:
        writer.abort()
        raise


# -- in the driver ----------------------------------------------------------------------------------------------------


def publish(
    topic: Topic, query: str, batch: int, staged: Sequence[Staged], *, empty: bool = False, digest: str = ""
) -> bool:
    """Makes a batch part of the topic, once: False where (query, batch) has a commit already.

    `query` names one life of a query: after its checkpoint is deleted its batches start from 0 again, so the name must
    then be another one. A batch without rows leaves no commit, or with `empty` one without segments. `digest`: of what
    the batch reads; another batch of its number, and one before the last, are refused.
    """
    check_name(query, "query")
    with _recovered(topic) as view:
        new = _publish(topic, view, Origin(query, batch, digest), staged, empty)
        _remove_staged(topic, f"{query}~")  # of attempts that were given up
        return new


def _publish(topic: Topic, view: View, origin: Origin, staged: Sequence[Staged], empty: bool = False) -> bool:
    """False where it was there."""
    if any(s.of and s.of != view.identity for s in staged):  # it was deleted, and made anew: who has not noticed?
        view = topic.anew()
    while not view.has(origin, topic.name):
        segments = _placed(topic, view, staged)
        if topic.fsync and topic.in_folder and (segments or empty):
            force(topic.staging)
        if (segments or empty) and not topic.commit(view, origin, segments):
            view = topic.anew()  # somebody else came first
            continue
        if segments or empty:
            with left_to_others():
                finish(topic, view)
                topic.fold(view)
        reach("published")
        return True
    topic.anew().has(origin, topic.name)  # refused where others have gone on since
    return False


def _placed(topic: Topic, view: View, staged: Sequence[Staged]) -> list[Segment]:
    """What was staged, behind what is there."""
    segments: list[Segment] = []
    ends = view.ends()
    for s in sorted(staged, key=lambda s: (s.partition, s.piece, s.file)):
        if not 0 <= s.partition < len(ends):
            raise BraidError(f"the topic {topic.name!r} has {len(ends)} partitions, none with number {s.partition}")
        if s.of and s.of != view.identity:
            raise topic.missing()
        path = os.path.join(topic.staging, s.file)
        if s.at is None and os.path.getsize(path) != s.extent.size:
            raise BraidError(f"{path} has {os.path.getsize(path)} bytes, {s.extent.size} were written")
        if s.count:
            first = ends[s.partition]
            segments.append(Segment(s.partition, first, s.extent, s.file, s.positions, s.at, s.positions_sum))
            ends[s.partition] += s.count
        elif s.at is None:
            remove(path)
    return segments


def append(
    topic: Topic,
    lines: pl.Series,
    *,
    partitions: pl.Series | None = None,
    times: pl.Series | None = None,
    positions: pl.DataFrame | None = None,
    query: str | None = None,
    batch: int = 0,
) -> bool:
    """Stages and publishes in one go (`put`, INSERT … VALUES, the test driver): one commit for all lines.

    Without a `query` each call is new; with one, (query, batch) is published once, and known even without lines.
    """
    frame = pl.DataFrame({"line": lines}).with_columns(
        (pl.lit(0) if partitions is None else pl.lit(partitions)).cast(pl.Int64).alias("p"),
        pl.lit(parse_envelope(lines)["_t"] if times is None else times).alias("t"),
    )
    if positions is not None:
        frame = frame.hstack(positions.select(*POSITIONS))
    name = ANONYMOUS + uuid4().hex[:12] if query is None else check_name(query, "query")
    count = len(topic.view().parts)
    staged = []
    for (p,), part in sorted(frame.partition_by("p", as_dict=True, maintain_order=True).items()):
        if not 0 <= p < count:
            raise BraidError(f"the topic {topic.name!r} has {count} partitions, none with number {p}")
        beside = None if positions is None else part.select(*POSITIONS)
        os.makedirs(topic.staging, exist_ok=True)
        staged.append(_staged(topic, name, batch, p, part["line"], times=part["t"], positions=beside))
    staged = topic.handed_in(staged, name, batch)
    if query is not None:
        return publish(topic, query, batch, staged, empty=True)
    add(topic, staged)
    return True


def add(topic: Topic, staged: Sequence[Staged]) -> None:
    """Makes what was staged part of the topic, by one commit that is nobody's batch."""
    with _recovered(topic) as view:
        _publish(topic, view, Origin(), staged)


@contextlib.contextmanager
def _recovered(topic: Topic) -> Iterator[View]:
    """The topic's lock, for what was staged."""
    reach("staged")
    with topic.locked() as view:
        recover(topic, view)
        reach("recovered")
        yield view


def recover(topic: Topic, view: View) -> None:
    """What a dead publisher left undone, and what a hand dropped in. Under the lock."""
    if not topic.in_folder:
        return
    finish(topic, view)
    topic.finish_fold()
    adopt_locked(topic, view)


@contextlib.contextmanager
def left_to_others() -> Iterator[None]:
    """Behind a commit nothing is told that fails: its records are there. Whoever takes the topic's lock next does the
    rest, or is told."""
    with contextlib.suppress(OSError, BraidError):
        yield


def finish(topic: Topic, view: View) -> None:
    """The staged files of the last commit get their names. Earlier ones have them: each commit begins with this."""
    if topic.finished == view.last or not topic.in_folder:
        return
    for segment in view.newest:
        folder = topic.partition_path(segment.partition)
        os.makedirs(folder, exist_ok=True)
        if segment.positions is not None:
            os.makedirs(os.path.join(folder, ".positions"), exist_ok=True)
            _rename(topic, segment.positions, os.path.join(folder, ".positions", positions_name(segment.first)), None)
            reach("positions renamed")
        if segment.staged is not None:
            path = os.path.join(folder, segment_name(segment.first))
            _rename(topic, segment.staged, path, segment.extent.size)
            reach("renamed")
        if topic.fsync:
            force(folder)
    there = {(p, first) for p, firsts in enumerate(view.firsts) for first in firsts} if view.gone else set()
    for segment in view.gone:
        if (segment.partition, segment.first) not in there:
            folder = topic.partition_path(segment.partition)
            remove(os.path.join(folder, ".positions", positions_name(segment.first)))
            remove(topic.segment_path(segment.partition, segment.first))
            reach("taken away")
    topic.finished = view.last


def _rename(topic: Topic, staged: str, path: str, size: int | None) -> None:
    source = os.path.join(topic.staging, staged)
    if not os.path.exists(source):
        return  # done before
    if staged.startswith(COMPACTED):  # what it stands for has its name
        os.replace(source, path)
    elif os.path.exists(path) and os.path.getsize(path):
        if size is not None and os.path.getsize(path) != size:
            raise BraidError(
                f"{path} is where a committed segment belongs", f"move it away; the segment is still in {source}"
            )
        remove(source)  # staged again by a task that did not know
    else:
        os.replace(source, path)


def adopt(topic: Topic) -> int:
    """Gives a commit to each segment dropped in by hand that starts at its partition's end; how many there were.

    A first call looks through the folders: a segment that neither is committed nor starts there is an error. Later
    calls only ask for the one name that could be adopted. Drop files in by rename, so that they appear whole.
    """
    view = topic.view()
    if not topic.in_folder:
        return 0
    stray = topic.swept or _sweep(topic, view)
    if stray is True and not any(_candidate(topic, view, p) for p in range(len(view.parts))):
        return 0
    with topic.locked() as view:
        finish(topic, view)
        topic.finish_fold()
        found = adopt_locked(topic, view, patient=False)
        _sweep(topic, view, refuse=True)
        return found


def adopt_locked(topic: Topic, view: View, patient: bool = True) -> int:
    count = 0
    while True:
        found = []
        for p in range(len(view.parts)):
            path = _candidate(topic, view, p)
            if path is None:
                continue
            refuse_link(topic.partition_path(p))
            refuse_link(path)
            if _settled(path):
                found.append(Segment(p, view.end(p), measure(path), None, None))
            elif patient:
                raise BraidError(f"{path} is still being written", "move segments in when they are complete")
        if not found:
            return count
        count += len(found)
        topic.commit(view, Origin(), found)
        topic.finished = view.last


def _candidate(topic: Topic, view: View, partition: int) -> str | None:
    """The file that starts at the partition's end, where it has something in it."""
    path = topic.segment_path(partition, view.end(partition))
    try:
        return path if os.lstat(path).st_size else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def _settled(path: str) -> bool:
    """The file is not being written any more, as far as can be seen."""
    deadline = time.monotonic() + _PATIENCE
    before = os.stat(path)
    settled = time.time() - before.st_mtime >= _SETTLE
    while time.monotonic() < deadline:
        if settled and not open_for_writing(path):
            return True
        time.sleep(_SETTLE)
        after = os.stat(path)
        settled = (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        before = after
    return False


def _sweep(topic: Topic, view: View, refuse: bool = False) -> bool:
    """True where every segment in the folders is committed. `refuse`: an error otherwise."""
    for p in folders(topic.path):
        folder = topic.partition_path(p)
        refuse_link(folder)
        known = {segment_name(first) for first in view.firsts[p]} if p < len(view.parts) else set()
        stray = [n for n in os.listdir(folder) if n.endswith(".jsonl") and n not in known and not n.startswith(".")]
        stray = [n for n in stray if os.lstat(os.path.join(folder, n)).st_size]
        if stray and not refuse:
            return False
        if not stray:
            continue
        path = os.path.join(folder, min(stray))
        if p >= len(view.parts):
            raise BraidError(f"{path}: the topic {topic.name!r} has only {len(view.parts)} partitions")
        end = view.end(p)
        if stray != [segment_name(end)]:
            raise BraidError(
                f"{path} is not a segment of the topic {topic.name!r}: partition {p} ends at {end}",
                f"a segment dropped in by hand is named by its first offset: {segment_name(end)}",
            )
    topic.swept = True
    return True


def clean_staging(topic: Topic, query: str) -> int:
    """Removes what `query` staged and never published; how many files. Call it when the query starts."""
    with topic.locked() as view:
        recover(topic, view)
        topic.clear(view, query)
        removed = _remove_staged(topic, f"{query}~")
        for name in os.listdir(topic.staging):
            path = os.path.join(topic.staging, name)
            if (is_put(name) or name.startswith(COMPACTED)) and time.time() - os.path.getmtime(path) > _ABANDONED:
                remove(path)
                removed += 1
        return removed


def is_put(name: str) -> bool:
    """Whether a staged file is of a `put` that may still be under way."""
    return name.startswith(ANONYMOUS)


def _remove_staged(topic: Topic, prefix: str) -> int:
    """After `finish` no commit needs a staged file any more."""
    names = [name for name in os.listdir(topic.staging) if name.startswith(prefix)]
    for name in names:
        remove(os.path.join(topic.staging, name))
    return len(names)
