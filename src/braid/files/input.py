"""Files as an input: CSV, JSON lines and Parquet in place of a topic.

In: a source, the log of what is read of its files. Out: its rows by offset, typed as declared, and where a batch that
ends at a time ends.
Rule: one partition; pieces of files in the order of the log (`watch` says which); a row's offset is its number
over all pieces. The same offset gives the same row for ever: a piece is known by the digest of its bytes.

A piece of a text file is parsed once, when it is added to the log, into a Parquet copy in a cache folder; Parquet files
are read where they lie. Beside each stands a file of its rows' times (8 bytes a row), mapped into memory. Both are
named by what they were made from, so that whoever misses one (another node, a folder that was cleaned) makes the same
again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from braid.errors import BraidError, anew
from braid.expr.nodes import Col, columns
from braid.files import copies as file_copies
from braid.files import early
from braid.files import parquet as file_parquet
from braid.files.copies import GROUP
from braid.files.listing import Found, is_awaited, is_plain, kind_of, look, stat
from braid.files.log import LEFT, MORE, FileLog, Piece
from braid.files.text import PUT_BACK, Options, Rows, Text, csv_rows, digest_of, header, json_rows, shown
from braid.files.values import Typed, fits, from_column, typed
from braid.guess import meant
from braid.operators.changes import DIFF, HEADERS, NEVER, TIME
from braid.operators.ranges import repeated
from braid.plan.logical import Source, SourceColumn, Timestamp
from braid.records import codec
from braid.records.formats.delimited import delimiter_of
from braid.records.malformed import a
from braid.records.python import python_values
from braid.stage.decode import Decoded, times_of, with_pseudo
from braid.stage.inputs import Ahead, Block, Times, filled
from braid.store.files import remove
from braid.timing import spent
from braid.topics.files import read_small
from braid.types import Column, Scalar, Type, polars_type

DELETED = ("true", "t", "1", "d", "delete", "deleted")  # what says that a row is, in any case
_SAYS = " deleted"  # the column that tells it, by a name that no column of a plan has


def columns_of(source: Source) -> tuple[SourceColumn, ...]:
    """The columns that a file must have: those of the key and the value. Numbers of rows are made."""
    places = ("value",) if source.encoding.key == "ROW_ID" else ("key", "value")
    return tuple(c for c in source.columns if c.place in places)


def _is_facet(c: SourceColumn) -> bool:
    """The key as a whole, `_key`: a file may be without it, as a record may be without a key."""
    return c.place == "key" and c.field == "_key"


def needs_time(source: Source) -> None:
    """Refuses files without times under a windowed join."""
    if source.timestamp is not None or _time_of_watermark(source) is not None:
        return
    fields = [c.field for c in columns_of(source)]
    near = get_close_matches("TIMESTAMP", fields, n=1, cutoff=0.3) or ["column"]
    raise BraidError(
        f"{source.name} is read from files and has no times, but it is in a join WITHIN a time",
        f"name the column that holds them, such as {near[0]}: WITH (…, timestamp = '…') in ksqldb, "
        "OPTIONS (ROWTIME '…') in sqlstream, EVENTTIME BY … in lenses",
    )


def open_files(source: Source, pattern: str, cache: str | Path, options: Mapping[str, str] | None = None) -> FileInput:
    """The files that `pattern` matches now, whole, made ready to be read; nothing is logged."""
    root, present = look(pattern)
    made = FileInput(source, FileLog(None, root), reading(options or {}), str(cache))
    there = (f for f in present if not is_awaited(pattern, f))
    made.log.append([p for f in there if (p := made.piece(f)) is not None])
    return made


def clean(cache: str | Path, inputs: Iterable[FileInput]) -> None:
    """Removes from a cache folder what none of `inputs` needs."""
    needed = {name for x in inputs for p in x.log.pieces for name in x.cached(p)}
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(cache)):
            if (
                entry.name not in needed
                and entry.is_file(follow_symlinks=False)
                and entry.name.endswith(file_copies.ENDINGS)
            ):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)


def reading(options: Mapping[str, str]) -> Options:
    """How files are to be read, from the words of a declaration."""
    known = ("null_value", "delimiter", "deleted")
    for name in options:
        if name not in known:
            raise BraidError(f"files have no option {name}", f"there are {', '.join(known)}")
    delimiter = delimiter_of(options.get("delimiter", ","))
    if not delimiter.isascii():
        raise BraidError(f"{delimiter!r} is not a delimiter of files", "take an ASCII character")
    return Options(options.get("null_value"), delimiter, options.get("deleted"))


class FileInput:
    """Rows of files, one partition. Can be sent to other processes, which see what is added to its log. `needed`: the
    fields whose columns are given; None: all are."""

    def __init__(
        self, source: Source, log: FileLog, options: Options, cache: str, needed: frozenset[str] | None = None
    ) -> None:
        if (format := source.encoding.value_format).foreign:
            hint = f"put its records into the topic: braid put {source.topic} < FILE"
            raise BraidError(f"{source.name} has records of {format.name}: it is read from a topic, no file", hint)
        self.source, self.log, self.options, self.cache, self.needed = source, log, options, cache, needed
        self._columns = columns_of(source)
        if options.deleted is not None:
            says = Column(options.deleted, Scalar.VARCHAR)
            self._columns += (SourceColumn(_SAYS, options.deleted, says, "value"),)
        self._time = source.timestamp or _time_of_watermark(source)
        self._declared = tuple(Column(c.field, c.column.type) for c in self._columns)
        given = (i for i, c in enumerate(self._columns) if c.name != _SAYS and (needed is None or c.field in needed))
        self._given = tuple(given)
        times = (i for i, c in enumerate(self._columns) if self._time is not None and c.field == self._time.field)
        self._wanted = frozenset((*self._given, *times)) if options.deleted is None else None
        self._ahead: Ahead | None = None
        self._forgotten = 0  # so many pieces

    def __reduce__(self) -> tuple[type[FileInput], tuple[Any, ...]]:
        return FileInput, (self.source, self.log, self.options, self.cache, self.needed)

    @property
    def partitions(self) -> int:
        return 1

    @property
    def files(self) -> list[Piece]:
        return self.log.pieces

    def comes(self) -> bool:
        """Whether more of what was there at the start is being made ready. Asked before the end, which it explains."""
        return self.log.path is not None and os.path.exists(self.log.path + MORE)

    def is_left(self) -> bool:
        """Whether nobody makes it ready any more, since the run ends."""
        with contextlib.suppress(FileNotFoundError):
            return read_small(f"{self.log.path}{MORE}") == LEFT
        return False

    def highest(self, p: Piece) -> int:
        """The highest time of a piece; below all where there is none, or no time."""
        if self._time is None or not p.rows:
            return NEVER
        return int(file_copies.tops(self._made(p, ".times")).max())

    def ends(self) -> list[int]:
        self.log.refresh()
        return [self.log.end]

    # ------------------------------------------------------------- times

    def cut(self, partition: int, first: int, time: int) -> int:
        return self._ahead_of(first).cut(time)

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        return self._ahead_of(first, first + count).highest(count)

    def _ahead_of(self, first: int, upto: int = 0) -> Ahead:
        """The times from `first` on; where they must go further than is known here, as far as the log does now."""
        if upto > self.log.end:
            self.log.refresh()
        end = self.log.end
        if self._ahead is None or (self._ahead.first, self._ahead.end) != (first, end):
            if self._time is None:  # all at 0
                self._ahead = Ahead(first, end, iter([(first, end, 0)] if first < end else []), lambda x, y: _ZERO)
            else:
                self._ahead = Ahead(first, end, self._blocks(first, end), self._times)
        return self._ahead

    def _blocks(self, first: int, end: int) -> Iterator[Block]:
        for p in self.log.since(first):
            if p.first >= end:
                return
            tops = file_copies.tops(self._made(p, ".times"))
            for k in range(max(first - p.first, 0) // file_copies.CHUNK, len(tops)):
                start, stop = p.first + k * file_copies.CHUNK, min(p.first + (k + 1) * file_copies.CHUNK, p.end)
                if start < first:
                    yield first, stop, int(self._times(first, stop).max())
                else:
                    yield start, stop, int(tops[k])

    def _times(self, start: int, stop: int) -> Times:
        """Times of rows of one piece."""
        p = next(self.log.since(start))
        return file_copies.mapped(self._made(p, ".times"))[start - p.first : stop - p.first]

    def _made(self, p: Piece, ending: str) -> str:
        """The path of what is made for a piece; made again where it is not there, or not whole."""
        path = self._stem(p) + ending
        if not file_copies.is_whole(path, p.rows):
            self._again(p)
            if not file_copies.is_whole(path, p.rows):
                raise BraidError(f"{path} changes while it is read", "nothing but braid writes there")
        return path

    # -------------------------------------------------------------- rows

    def read(self, partition: int, first: int, last: int) -> Decoded:
        self.log.refresh()
        with spent("read"):
            pieces = itertools.takewhile(lambda p: p.first < last, self.log.since(first))
            parts = [self._part(p, max(first, p.first), min(last, p.end)) for p in pieces]
        if not parts:
            parts = [self._finished(self._kept(self._empty()), np.zeros(0, np.int64))]
        rows = filled(parts[0] if len(parts) == 1 else pl.concat(parts))
        start = self.log.end if not rows.height else max(first, 0)
        offsets = pl.int_range(start, start + rows.height, eager=True).alias("_offset")
        rows = rows.with_columns(offsets)
        error = rows.get_column("_error").rename("error")
        return Decoded(with_pseudo(self.source, rows.drop("_error"), 0), error)

    def _part(self, p: Piece, first: int, last: int) -> pl.DataFrame:
        start, count = first - p.first, last - first
        path = self._path(p.name)
        times = file_copies.mapped(self._made(p, ".times"))[start : start + count] if self._time else None
        if kind_of(p.name) == "parquet":
            self._check_same(p)
            rows = self._parquet_rows(path, start, count)
            if times is not None:
                rows = _with_time_errors(self.source, rows, times)
            kept = self._kept(rows)
        else:
            kept = file_copies.rows_of(self._made(p, ".rows"), start, count)
        if kept.height != count:
            raise BraidError(f"{path} has fewer rows than were counted", anew())
        return self._finished(kept, np.zeros(count, np.int64) if times is None else times)

    def _path(self, name: str) -> str:
        return os.path.join(self.log.root, name)

    def _check_same(self, p: Piece) -> None:
        """Refuses a Parquet file that is no longer the one that was logged; the time of its last change may differ."""
        found = stat(self.log.root, p.name)
        path = self._path(p.name)
        if found is None:
            raise BraidError(f"{path} is gone", PUT_BACK)
        touched = (found.size, found.mtime) != (p.size, p.mtime)
        if touched and _digest(path, found.size, found.mtime, p.digest) != p.digest:
            raise BraidError(f"{path} was changed since it was first seen", PUT_BACK)

    def _empty(self) -> Rows:
        columns = [pl.Series(str(i), [], dtype=polars_type(c.type)) for i, c in enumerate(self._declared)]
        return Rows(columns, pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.String))

    def _kept(self, rows: Rows) -> pl.DataFrame:
        """What is read of rows: the columns that are needed, by their numbers; whether a row is there or deleted, its
        key and value as text, and its error. Texts are made only for rows that may be dropped as they are: malformed
        ones, and those that hold a null in any column."""
        bad = rows.error.is_not_null()
        columns = [s.alias(c.name) for s, c in zip(rows.columns, self._columns, strict=True)]
        frame, live = _without_deleted(pl.DataFrame(columns), self._columns)
        if bad.any():
            frame = frame.select(pl.when(~bad).then(pl.all()))
        shown = pl.Series([], dtype=pl.UInt32)
        if columns and rows.again is None:
            shown = frame.select(pl.any_horizontal(pl.all().is_null())).to_series().arg_true()
        keys = [c for c in self._columns if c.place == "key"]
        values = [c for c in self._columns if c.place == "value" and c.name != _SAYS]
        key, value = (pl.repeat(None, len(bad), dtype=pl.String, eager=True) for _ in range(2))
        if len(shown):
            few = frame[shown]
            key.scatter(shown, _texts(few, keys, len(keys) == 1))
            value.scatter(shown, _texts(few, values, False))
            value = pl.select(pl.when(bad).then(rows.raw).when(live == 1).then(value)).to_series()
        given = [frame[self._columns[i].name].alias(str(i)) for i in self._given]
        told = [live.alias(DIFF), key.alias("_key"), value.alias("_value"), rows.error.alias("_error")]
        return pl.DataFrame([*given, *told])

    def _finished(self, kept: pl.DataFrame, times: Times) -> pl.DataFrame:
        """Rows in the form of `Decoded`, without their pseudo columns."""
        t = pl.Series(TIME, times, dtype=pl.Int64)
        if times.size and times.min() == NEVER:
            t = t.set(t == NEVER, None)
        columns = [kept[str(i)].alias(self._columns[i].name) for i in self._given]
        headers = repeated(HEADERS, None, pl.String, kept.height)
        return pl.DataFrame([*columns, t, kept[DIFF], headers, *(kept[c] for c in ("_key", "_value", "_error"))])

    # --------------------------------------------------- copies and times

    def check(self, f: Found) -> None:
        """Refuses a file that does not have the declared columns; its rows are not looked at."""
        path = self._path(f.name)
        match kind_of(f.name):
            case "csv":
                self._matched(path)
            case "parquet":
                _checked_parquet(self.source, self._columns, path)
            case "json":
                pass

    def piece(self, f: Found, start: int = 0, last: bool = True, most: int | None = None) -> Piece | None:
        """What a file has from byte `start` on, made ready to be read; None where there is nothing yet. `last`: a last
        line without an end is taken, too. `most`: of plain text no more than some blocks over so many bytes."""
        if (found := early.taken(self.asked(f, start, last, most))) is not None:
            made, folder = found
            with contextlib.suppress(FileNotFoundError):  # somebody has swept it away
                os.makedirs(self.cache, exist_ok=True)
                for name in reversed(self.cached(made)) if made is not None and made.rows else ():
                    os.replace(os.path.join(folder, name), os.path.join(self.cache, name))
                return made
        return self.parsed(f, start, last, most)

    def aside(self, folder: str) -> FileInput:
        """What reads the same, and has its copies in another folder."""
        return FileInput(self.source, FileLog(None, self.log.root), self.options, folder, self.needed)

    def asked(self, f: Found, start: int, last: bool, most: int | None) -> Hashable:
        """What is the same for two that ask for the same piece, to be read in the same way."""
        return self.cache, self.log.root, f, start, last, most, json.dumps(self._manner(f.name))

    def parsed(self, f: Found, start: int, last: bool, most: int | None) -> Piece | None:
        """The same, whether it was made early or not."""
        path, kind = self._path(f.name), kind_of(f.name)
        if kind == "parquet":
            rows = _checked_parquet(self.source, self._columns, path)
            made = Piece(f.name, 0, f.size, _digest(path, f.size, f.mtime), f.size, f.mtime, rows)
            if self._time is not None:
                self._write_times(f"{self._stem(made)}.times", self._parquet_times(path))
            return made
        by = shown(path, self.options).delimiter if kind == "csv" else None
        if not last and next(Text(path, start, last=False).blocks(by, 1 << 16), b"") == b"":
            return None
        text = Text(path, start, last=last, most=most if is_plain(f.name) else None)
        with self._copied(text, kind) as (rows, place):
            rest = text.rest and not (is_plain(f.name) and text.stop == f.size)
            made = Piece(f.name, start, text.stop, text.digest, f.size, f.mtime, rows, text.tail, rest)
            place(made)
        return made

    def _again(self, p: Piece) -> None:
        """Makes again what is missing of a piece."""
        path, kind = self._path(p.name), kind_of(p.name)
        if kind == "parquet":
            self._check_same(p)
            self._write_times(f"{self._stem(p)}.times", self._parquet_times(path))
            return
        text = Text(path, p.start, p.stop, like=p.digest)
        with self._copied(text, kind) as (rows, place):
            if (text.digest, rows) != (p.digest, p.rows):
                raise BraidError(f"{path} was changed since it was first seen", PUT_BACK)
            place(p)

    def forget(self, rows: int) -> None:
        """Removes what was made for pieces that end at `rows` or before: they are read for good. Whoever needs them all
        the same makes them again."""
        while self._forgotten < len(self.log.pieces) and (p := self.log.pieces[self._forgotten]).end <= rows:
            for name in self.cached(p) if p.rows else ():
                remove(os.path.join(self.cache, name))
            self._forgotten += 1

    def cached(self, p: Piece) -> list[str]:
        """The names of what is made for a piece."""
        ends = [".rows"] if kind_of(p.name) != "parquet" else []
        stem = os.path.basename(self._stem(p))
        return [stem + end for end in (*ends, *([".times"] if self._time else []))]

    def _stem(self, p: Piece) -> str:
        """The path of what is made for a piece, without its ending. The first piece of a file has its header."""
        known = self.log.of(p.name)
        what = [file_copies.FORMAT, p.name, p.start, p.stop, p.digest, known[0].digest if known else p.digest]
        what += self._manner(p.name)
        return os.path.join(self.cache, hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32])

    def _manner(self, name: str) -> list[Any]:
        """How a file is read, as far as its copies depend on it."""
        t = self._time
        return [
            [[c.name, str(c.type)] for c in self._declared], [self.options.null_value, self.options.delimiter],
            [t.field, t.format] if t else None, self._given, *filter(None, [self.options.deleted]),
            *(["since 1970"] if t and t.since_1970 else []),
            *(["lenient"] if self.source.encoding.lenient and kind_of(name) == "json" else []),
        ]  # fmt: skip

    def _matched(self, path: str) -> tuple[list[str], list[int | None]]:
        """The header of a CSV file, and where each declared column stands in it."""
        names = header(path, shown(path, self.options))
        return names, matched(self.source, self._columns, names, path)

    @contextlib.contextmanager
    def _copied(self, text: Text, kind: str) -> Iterator[tuple[int, Callable[[Piece], None]]]:
        """Parses text into a copy and a file of times; gives the number of rows, and what puts both in their places:
        the copy last, so that where it is, all is."""
        os.makedirs(self.cache, exist_ok=True)
        if kind == "csv":
            options = shown(text.path, self.options)
            parsed = csv_rows(text, *self._matched(text.path), self._declared, options)
        else:
            parsed = json_rows(text, self._declared, self.source.encoding.lenient, self._wanted)
        times: list[Times] = []
        with file_copies.copying(self.cache) as copy:
            for some in parsed:
                rows = some
                if self._time is not None:
                    times.append(self._times_of(some))
                    if rows.again is not None and self.source.timestamp is not None and times[-1].min() == NEVER:
                        rows = rows.again()
                    rows = _with_time_errors(self.source, rows, times[-1])
                copy.add(self._kept(rows))

            def place(piece: Piece) -> None:
                if piece.rows:
                    if self._time is not None:
                        self._write_times(f"{self._stem(piece)}.times", iter(times))
                    copy.place(f"{self._stem(piece)}.rows")

            yield copy.rows, place

    def _times_of(self, rows: Rows) -> Times:
        """The times that rows hold, `NEVER` where a row holds none."""
        t = self._time
        assert t is not None
        i = next(i for i, c in enumerate(self._columns) if c.field == t.field)
        return self._without_nulls(_times_in(rows.columns[i], self._declared[i].type, t)[0])

    def _without_nulls(self, times: pl.Series) -> Times:
        """What holds no time is malformed where times are declared; else it stands at 1970."""
        return times.fill_null(NEVER if self.source.timestamp else 0).to_numpy()

    def _write_times(self, path: str, times: Iterator[Times]) -> None:
        os.makedirs(self.cache, exist_ok=True)
        file_copies.write_times(path, times)

    # ----------------------------------------------------------- Parquet

    def _parquet_rows(self, path: str, start: int, count: int) -> Rows:
        names = list(file_parquet.schema_of(path)[0])
        at = matched(self.source, self._columns, names, path)
        theirs = [None if i is None else names[i] for i in at]
        frame = file_parquet.rows_of(path, [name for name in theirs if name is not None], start, count)
        columns, error = declared_columns(frame, theirs, self._declared)
        bad = error.is_not_null().arg_true()
        raw = pl.repeat(None, frame.height, dtype=pl.String, eager=True)
        if len(bad):
            raw = raw.scatter(bad, _as_json(frame[bad]))
        return Rows(columns, error, raw)

    def _parquet_times(self, path: str) -> Iterator[Times]:
        t = self._time
        assert t is not None
        column = next(c for c in self._columns if c.field == t.field)
        schema, total = file_parquet.schema_of(path)
        (at,) = matched(self.source, [column], list(schema), path)
        assert at is not None, "a time is in the value"
        name = list(schema)[at]
        for start in range(0, total, 8 * GROUP):
            values, _ = from_column(
                file_parquet.rows_of(path, [name], start, 8 * GROUP).to_series(), column.column.type
            )
            yield self._without_nulls(_times_in(values, column.column.type, t)[0])


def _time_of_watermark(source: Source) -> Timestamp | None:
    """The column that a watermark is made of: in a file, where nothing else says when a row came, it does."""
    read = set() if source.watermark is None else set(columns(source.watermark))
    found = [c.field for c in source.columns if c.name in read]
    return Timestamp(found[0]) if len(found) == 1 else None


def _times_in(values: pl.Series, type: Type, t: Timestamp) -> tuple[pl.Series, pl.Series]:
    """The times that the values of a column are, and why they are none."""
    return times_of(values.alias("v").to_frame(), Col("v", type), t)


def _with_time_errors(source: Source, rows: Rows, times: Times) -> Rows:
    """A row whose timestamp column gives no time is malformed."""
    if source.timestamp is None or not times.size or times.min() > NEVER:
        return rows
    at = (pl.Series(times == NEVER) & rows.error.is_null()).arg_true()
    if not len(at):
        return rows
    names = [c.field for c in columns_of(source)]
    i = names.index(source.timestamp.field)
    _, why = _times_in(rows.columns[i][at], columns_of(source)[i].column.type, source.timestamp)
    error = rows.error.clone().scatter(at, why)
    shown = pl.DataFrame([s.alias(name) for s, name in zip(rows.columns, names, strict=False)])[at]
    return Rows(rows.columns, error, rows.raw.clone().scatter(at, _as_json(shown)))


def _without_deleted(frame: pl.DataFrame, columns: Sequence[SourceColumn]) -> tuple[pl.DataFrame, pl.Series]:
    """The rows without the column that says which are deleted, and 1 or -1 of each; a deleted one has its key alone."""
    if _SAYS not in frame.columns:
        return frame, pl.repeat(1, frame.height, dtype=pl.Int8, eager=True)
    gone = frame[_SAYS].str.to_lowercase().is_in(DELETED).fill_null(False)
    values = [c.name for c in columns if c.place == "value" and c.name != _SAYS]
    made = frame.drop(_SAYS).with_columns(pl.when(~gone).then(pl.col(name)).alias(name) for name in values)
    return made, pl.select(pl.when(gone).then(-1).otherwise(1).cast(pl.Int8)).to_series()


def _texts(frame: pl.DataFrame, columns: Sequence[SourceColumn], unwrapped: bool) -> pl.Series:
    if not columns:
        return pl.repeat(None, frame.height, dtype=pl.String, eager=True)
    named = [(c.name, Column(c.field, c.column.type)) for c in columns]
    return codec.encode_values(frame, named, unwrapped=unwrapped)


def _as_json(frame: pl.DataFrame) -> pl.Series:
    """Rows of any types as JSON, for people."""
    rows = zip(*(python_values(s) for s in frame.get_columns()), strict=True)
    named = (dict(zip(frame.columns, row, strict=True)) for row in rows)
    texts = [json.dumps(row, ensure_ascii=False, default=str, separators=(",", ":")) for row in named]
    return pl.Series("raw", texts, dtype=pl.String)


def matched(source: Source, columns: Sequence[SourceColumn], names: Sequence[str], path: str) -> list[int | None]:
    """Where each declared column stands among `names`: an exact match first, then one without case. None: the file has
    no keys."""
    found: list[int | None] = []
    for c in columns:
        field = c.field
        exact = [i for i, name in enumerate(names) if name == field]
        same = exact or [i for i, name in enumerate(names) if name.lower() == field.lower()]
        if len(same) > 1:
            hint = "names are compared without case; rename one of them"
            raise BraidError(f"{path} has {len(same)} columns {field}", hint)
        if not same and _is_facet(c):
            if source.kind == "table":
                name, first = source.name, names[0]
                hint = (f"write its rows under a key: INSERT INTO {name}_by_{first} SELECT STREAM {first} AS _key, "
                        f"_value.* FROM {name}; and read that: SELECT TABLE * FROM {name}_by_{first}")  # fmt: skip
                raise BraidError(f"{path} has no column _key, which distinguishes the rows of a table", hint)
            found.append(None)
            continue
        if not same:
            hint = meant(field, names, f"it has {', '.join(names[:20])}", 3)
            raise BraidError(f"{path} has no column {field}", hint)
        found.append(same[0])
    return found


def declared_columns(frame: pl.DataFrame, theirs: Sequence[str | None], declared: Sequence[Column]) -> Typed:
    """The columns of a frame as declared; None: it has no such column."""
    nothing = pl.repeat(None, frame.height, eager=True)
    return typed([nothing if name is None else frame[name] for name in theirs], declared, from_column)


def _checked_parquet(source: Source, columns: Sequence[SourceColumn], path: str) -> int:
    """How many rows there are."""
    schema, rows = file_parquet.schema_of(path)
    file_parquet.check_pages(path)
    fitting(source, columns, schema, path)
    return rows


def fitting(
    source: Source, columns: Sequence[SourceColumn], schema: Mapping[str, pl.DataType], where: str
) -> list[int | None]:
    """As `matched`; refused where a column holds no values of the declared type."""
    names = list(schema)
    found = matched(source, columns, names, where)
    for c, i in zip(columns, found, strict=True):
        if i is not None and not fits(schema[names[i]], c.column.type):
            raise BraidError(
                f"{where}: column {names[i]} is {str(schema[names[i]])[:200]}, "
                f"but {source.name}.{c.field} is {a(c.column.type)}",
                "declare the type that is there",
            )
    return found


@lru_cache(maxsize=256)
def _digest(path: str, size: int, mtime: int, like: str = "") -> str:
    """Of a whole file, as it lies there; read once for each time of change."""
    return digest_of(path, like=like)


_ZERO: Times = np.zeros(1, np.int64)
