"""Files as an input: CSV, JSON lines and Parquet in place of a topic.

In: a source, a path or glob. Out: its rows by offset, typed as declared, and where a batch that ends at a time ends.
Rule: one partition; files in name order; a row's offset is its number over all files. The same offset gives the same
row for ever: a file that changes is refused.

A text file is parsed once, when the query starts, into a Parquet copy in a cache folder; Parquet files are read where
they lie. Beside each stands a file of its rows' times (8 bytes a row), mapped into memory. Both are named by what they
were made from, so that whoever misses one (another node, a folder that was cleaned) makes the same again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from braid.errors import BraidError
from braid.expr import codec
from braid.expr.codec_delimited import delimiter_of
from braid.expr.codec_values import python_values
from braid.expr.nodes import Col
from braid.operators.changes import DIFF, HEADERS, NEVER, TIME
from braid.plan.logical import Source, SourceColumn
from braid.runtime.decode import Decoded, time_of, with_pseudo
from braid.runtime.file_list import FileEntry, Found, check_continues, check_unchanged, look
from braid.runtime.file_text import Options, Rows, csv_rows, header, json_rows
from braid.runtime.file_values import a, fits, from_column, typed
from braid.runtime.times import Ahead, Block, Times, filled
from braid.spent import spent
from braid.types import Column, polars_type

FORMAT = 2  # of copies and times; part of their names
GROUP = 1 << 17  # rows of a copy's row group
CHUNK = 8192  # rows between two entries of an index of times

_ZIPS = ("", ".gz", ".zst")
_CSV = tuple(f".csv{z}" for z in _ZIPS)
_JSON = tuple(f"{e}{z}" for e in (".jsonl", ".ndjson") for z in _ZIPS)
_PARQUET = (".parquet",)


def columns_of(source: Source) -> tuple[SourceColumn, ...]:
    """The columns that a file must have: those of the key and the value. Numbers of rows are made."""
    places = ("value",) if source.encoding.key == "ROW_ID" else ("key", "value")
    return tuple(c for c in source.columns if c.place in places)


def needs_time(source: Source) -> None:
    """Refuses files without times under a windowed join."""
    if source.timestamp is not None:
        return
    columns = [c.field for c in columns_of(source)]
    near = get_close_matches("TIMESTAMP", columns, n=1, cutoff=0.3) or ["column"]
    raise BraidError(
        f"{source.name} is read from files and has no times, but it stands in a join WITHIN a time",
        f"name the column that holds them, such as {near[0]}: WITH (…, timestamp = '…') in ksqldb, "
        "OPTIONS (ROWTIME '…') in sqlstream, EVENTTIME BY … in lenses",
    )


def open_files(
    source: Source,
    pattern: str,
    cache: str | Path,
    options: Mapping[str, str] | None = None,
    known: Sequence[FileEntry] = (),
    end_lifts: bool = False,
) -> FileInput:
    """The files that `pattern` matches, checked against those `known` from the checkpoint and made ready to be read.

    `end_lifts`: the end of the known files was processed and lifted clocks; then no file may come behind it.
    """
    read = _options(options or {})
    root, present = look(pattern)
    for f in present:
        _format(f.name)
    check_continues(source.name, [k.found for k in known], present, end_lifts)
    entries: list[FileEntry] = []
    made = FileInput(source, root, (), read, str(cache))
    for f in present:
        first = entries[-1].end if entries else 0
        entries.append(FileEntry(f.name, f.size, f.mtime, first, made.prepare(f)))
    if tuple(entries[: len(known)]) != tuple(known):
        raise BraidError(
            f"{source.name}: its files give other rows than the checkpoint says",
            "the rows of a file were counted otherwise in the last run; delete the checkpoint to start anew",
        )
    return FileInput(source, root, tuple(entries), read, str(cache))


def clean(cache: str | Path, inputs: Iterable[FileInput]) -> None:
    """Removes from a cache folder what none of `inputs` needs."""
    needed = {name for x in inputs for f in x.files for name in x.cached(f.found)}
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(cache)):
            if entry.name not in needed and entry.is_file(follow_symlinks=False) and entry.name.endswith(_MADE):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)


_MADE = (".rows", ".times", ".part")


def _options(options: Mapping[str, str]) -> Options:
    known = ("null_value", "delimiter")
    for name in options:
        if name not in known:
            raise BraidError(f"files have no option {name}", f"there are {' and '.join(known)}")
    delimiter = delimiter_of(options.get("delimiter", ","))
    if not delimiter.isascii():
        raise BraidError(f"{delimiter!r} is not a delimiter of files", "take an ASCII character")
    return Options(options.get("null_value"), delimiter)


def _format(name: str) -> str:
    lower = name.lower()
    for ends, found in ((_CSV, "csv"), (_JSON, "json"), (_PARQUET, "parquet")):
        if lower.endswith(ends):
            return found
    raise BraidError(
        f"{name}: what kind of file is this?",
        f"the name's end tells; braid reads {', '.join((*_CSV, *_JSON, *_PARQUET))}",
    )


class FileInput:
    """Rows of files, one partition. Made by `open_files`; can be sent to other processes."""

    def __init__(self, source: Source, root: str, files: tuple[FileEntry, ...], options: Options, cache: str) -> None:
        self.source, self.root, self.files, self.options, self.cache = source, root, files, options, cache
        self._columns = columns_of(source)
        self._declared = tuple(Column(c.field, c.column.type) for c in self._columns)
        self._firsts = [f.first for f in files]
        self._ahead: Ahead | None = None

    def __reduce__(self) -> tuple[type[FileInput], tuple[Source, str, tuple[FileEntry, ...], Options, str]]:
        return FileInput, (self.source, self.root, self.files, self.options, self.cache)

    @property
    def partitions(self) -> int:
        return 1

    @property
    def finite(self) -> bool:
        return True

    def ends(self) -> list[int]:
        return [self.files[-1].end if self.files else 0]

    # ------------------------------------------------------------- times

    def cut(self, partition: int, first: int, time: int) -> int:
        return self._ahead_of(first).cut(time)

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        return self._ahead_of(first).highest(count)

    def _ahead_of(self, first: int) -> Ahead:
        end = self.ends()[0]
        if self._ahead is None or self._ahead.first != first:
            if self.source.timestamp is None:  # all at 0
                self._ahead = Ahead(first, end, iter([(first, end, 0)] if first < end else []), lambda x, y: _ZERO)
            else:
                self._ahead = Ahead(first, end, self._blocks(first), self._times)
        return self._ahead

    def _blocks(self, first: int) -> Iterator[Block]:
        for f in self._from(first):
            tops = _tops(self._times_path(f.found))
            for k in range(max(first - f.first, 0) // CHUNK, len(tops)):
                start, stop = f.first + k * CHUNK, min(f.first + (k + 1) * CHUNK, f.end)
                if start < first:
                    yield first, stop, int(self._times(first, stop).max())
                else:
                    yield start, stop, int(tops[k])

    def _times(self, start: int, stop: int) -> Times:
        """Times of rows of one file."""
        f = next(self._from(start))
        return _mapped(self._times_path(f.found))[start - f.first : stop - f.first]

    def _from(self, first: int) -> Iterator[FileEntry]:
        for f in self.files[max(bisect_right(self._firsts, first) - 1, 0) :]:
            if f.end > first:
                yield f

    def _times_path(self, f: Found) -> str:
        path = os.path.join(self.cache, f"{self._digest(f)}.times")
        if not os.path.exists(path):
            self.prepare(f)
        return path

    # -------------------------------------------------------------- rows

    def read(self, partition: int, first: int, last: int) -> Decoded:
        with spent("read"):
            parts = [self._part(f, max(first, f.first), min(last, f.end)) for f in self._from(first) if f.first < last]
        if not parts:
            parts = [self._finished(self._empty(), np.zeros(0, np.int64))]
        rows = filled(parts[0] if len(parts) == 1 else pl.concat(parts))
        start = self.ends()[0] if not rows.height else max(first, 0)
        offsets = pl.int_range(start, start + rows.height, eager=True).alias("_offset")
        rows = rows.with_columns(offsets)
        error = rows.get_column("_error").rename("error")
        return Decoded(with_pseudo(self.source, rows.drop("_error"), 0), error)

    def _part(self, f: FileEntry, first: int, last: int) -> pl.DataFrame:
        start, count = first - f.first, last - first
        path = os.path.join(self.root, f.name)
        times = _mapped(self._times_path(f.found))[start : start + count] if self.source.timestamp else None
        if _format(f.name) == "parquet":
            check_unchanged(path, f.found)
            rows = self._parquet_rows(path, start, count)
            if times is not None:
                rows = _with_time_errors(self.source, rows, times)
        else:
            copy = os.path.join(self.cache, f"{self._digest(f.found)}.rows")
            if not os.path.exists(copy):
                self.prepare(f.found)
            frame = pl.scan_parquet(copy).slice(start, count).collect()
            rows = Rows([frame[str(i)] for i in range(len(self._columns))], frame["error"], frame["raw"])
        if len(rows.error) != count:
            raise BraidError(f"{path} has fewer rows than were counted", "delete the checkpoint to read it anew")
        return self._finished(rows, np.zeros(count, np.int64) if times is None else times)

    def _empty(self) -> Rows:
        columns = [pl.Series(str(i), [], dtype=polars_type(c.type)) for i, c in enumerate(self._declared)]
        return Rows(columns, pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.String))

    def _finished(self, rows: Rows, times: Times) -> pl.DataFrame:
        """Rows in the form of `Decoded`, without their pseudo columns. Texts are made only for rows that may be dropped
        as they are: malformed ones, and those that hold a null."""
        bad = rows.error.is_not_null()
        columns = [s.alias(c.name) for s, c in zip(rows.columns, self._columns, strict=True)]
        frame = pl.DataFrame(columns)
        if bad.any():
            frame = frame.select(pl.when(~bad).then(pl.all()))
        shown = frame.select(pl.any_horizontal(pl.all().is_null())).to_series().arg_true() if columns else pl.Series([])
        keys = [c for c in self._columns if c.place == "key"]
        values = [c for c in self._columns if c.place == "value"]
        key, value = (pl.repeat(None, len(bad), dtype=pl.String, eager=True) for _ in range(2))
        if len(shown):
            few = frame[shown]
            key.scatter(shown, _texts(few, keys, len(keys) == 1))
            value.scatter(shown, _texts(few, values, False))
            value = pl.select(pl.when(bad).then(rows.raw).otherwise(value)).to_series()
        t = pl.Series(TIME, times, dtype=pl.Int64)
        if times.size and times.min() == NEVER:
            t = t.set(t == NEVER, None)
        return frame.with_columns(
            t,
            pl.lit(1, pl.Int8).alias(DIFF),
            pl.lit(None, pl.String).alias(HEADERS),
            key.alias("_key"),
            value.alias("_value"),
            rows.error.alias("_error"),
        )

    # --------------------------------------------------- copies and times

    def prepare(self, f: Found) -> int:
        """Makes the copy and the times of a file where they are missing; the number of its rows."""
        path = os.path.join(self.root, f.name)
        stem = os.path.join(self.cache, self._digest(f))
        kind = _format(f.name)
        original = path if kind == "parquet" else f"{stem}.rows"
        wanted = [os.path.join(self.cache, name) for name in self.cached(f)]
        if kind == "parquet":
            _checked_parquet(self.source, self._columns, path)
        if not all(map(os.path.exists, wanted)):
            check_unchanged(path, f)
            os.makedirs(self.cache, exist_ok=True)
            if kind == "parquet":
                self._write_times(f"{stem}.times", self._parquet_times(path))
            else:
                self._copy(path, kind, stem)
            check_unchanged(path, f)
        return int(pq.ParquetFile(original).metadata.num_rows)

    def cached(self, f: Found) -> list[str]:
        """The names of what is made for a file."""
        ends = [".rows"] if _format(f.name) != "parquet" else []
        return [self._digest(f) + end for end in (*ends, *([".times"] if self.source.timestamp else []))]

    def _digest(self, f: Found) -> str:
        t = self.source.timestamp
        what = [
            FORMAT, self.root, f.name, f.size, f.mtime, [[c.name, str(c.type)] for c in self._declared],
            [self.options.null_value, self.options.delimiter], [t.field, t.format] if t else None,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]

    def _copy(self, path: str, kind: str, stem: str) -> None:
        """Parses a text file into its copy and its times. Both appear at once, or a later run makes them again."""
        if kind == "csv":
            at = _matched([c.field for c in self._columns], header(path, self.options), path)
            parsed = csv_rows(path, at, self._declared, self.options)
        else:
            parsed = json_rows(path, self._declared)
        times: list[Times] = []
        part = _scratch(stem)
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(_forget, part)
            writer = None
            for some in parsed:
                rows = some
                if self.source.timestamp is not None:
                    times.append(self._times_of(some))
                    rows = _with_time_errors(self.source, some, times[-1])
                table = _frame(rows).to_arrow(compat_level=pl.CompatLevel.oldest())
                if writer is None:
                    writer = cleanup.enter_context(pq.ParquetWriter(part, table.schema, compression="lz4"))
                writer.write_table(table, row_group_size=GROUP)
            if writer is None:
                _frame(self._empty()).write_parquet(part)
            else:
                writer.close()
            if self.source.timestamp is not None:
                self._write_times(f"{stem}.times", iter(times))
            os.replace(part, f"{stem}.rows")

    def _times_of(self, rows: Rows) -> Times:
        """The times that rows hold, `NEVER` where a row holds none."""
        t = self.source.timestamp
        assert t is not None
        i = next(i for i, c in enumerate(self._columns) if c.field == t.field)
        frame = pl.DataFrame([rows.columns[i].alias("v")])
        times = time_of(frame, Col("v", self._declared[i].type), t.format)
        return times.fill_null(NEVER).to_numpy()

    def _write_times(self, path: str, times: Iterator[Times]) -> None:
        part = _scratch(path)
        try:
            with open(part, "wb") as f:
                for some in times:
                    f.write(some.astype("<i8", copy=False).tobytes())
            os.replace(part, path)
        finally:
            _forget(part)

    # ----------------------------------------------------------- Parquet

    def _parquet_rows(self, path: str, start: int, count: int) -> Rows:
        names = list(pl.read_parquet_schema(path))
        at = _matched([c.field for c in self._columns], names, path)
        frame = pl.scan_parquet(path, glob=False).select([names[i] for i in at]).slice(start, count).collect()
        columns, error = typed(frame.get_columns(), self._declared, from_column)
        bad = error.is_not_null().arg_true()
        raw = pl.repeat(None, frame.height, dtype=pl.String, eager=True)
        if len(bad):
            raw = raw.scatter(bad, _as_json(frame[bad]))
        return Rows(columns, error, raw)

    def _parquet_times(self, path: str) -> Iterator[Times]:
        t = self.source.timestamp
        assert t is not None
        column = next(c for c in self._columns if c.field == t.field)
        names = list(pl.read_parquet_schema(path))
        name = names[_matched([column.field], names, path)[0]]
        scan = pl.scan_parquet(path, glob=False).select(name)
        total = int(pq.ParquetFile(path).metadata.num_rows)
        for start in range(0, total, 8 * GROUP):
            values, _ = from_column(scan.slice(start, 8 * GROUP).collect().to_series(), column.column.type)
            times = time_of(values.alias("v").to_frame(), Col("v", column.column.type), t.format)
            yield times.fill_null(NEVER).to_numpy()


def _with_time_errors(source: Source, rows: Rows, times: Times) -> Rows:
    """A row whose timestamp column gives no time is malformed."""
    assert source.timestamp is not None
    if not times.size or times.min() > NEVER:
        return rows
    at = (pl.Series(times == NEVER) & rows.error.is_null()).arg_true()
    if not len(at):
        return rows
    error = rows.error.clone().scatter(at, f"timestamp column {source.timestamp.field} holds no time")
    names = [c.field for c in columns_of(source)]
    shown = pl.DataFrame([s.alias(name) for s, name in zip(rows.columns, names, strict=True)])[at]
    return Rows(rows.columns, error, rows.raw.clone().scatter(at, _as_json(shown)))


def _frame(rows: Rows) -> pl.DataFrame:
    columns = [s.alias(str(i)) for i, s in enumerate(rows.columns)]
    return pl.DataFrame([*columns, rows.error.alias("error"), rows.raw.alias("raw")])


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


def _matched(fields: Sequence[str], names: Sequence[str], path: str) -> list[int]:
    """Where each declared column stands among `names`: an exact match first, then one without case."""
    found = []
    for field in fields:
        exact = [i for i, name in enumerate(names) if name == field]
        same = exact or [i for i, name in enumerate(names) if name.lower() == field.lower()]
        if len(same) > 1:
            hint = "names are compared without case; rename one of them"
            raise BraidError(f"{path} has {len(same)} columns {field}", hint)
        if not same:
            close = get_close_matches(field.lower(), [n.lower() for n in names], n=3, cutoff=0.6)
            shown = [n for n in names if n.lower() in close] or list(names[:20])
            hint = f"did you mean {' or '.join(shown)}?" if close else f"it has {', '.join(shown)}"
            raise BraidError(f"{path} has no column {field}", hint)
        found.append(same[0])
    return found


def _checked_parquet(source: Source, columns: Sequence[SourceColumn], path: str) -> None:
    try:
        schema = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as e:
        raise BraidError(f"{path} is not a Parquet file: {e}", "is it complete?") from None
    names = list(schema)
    for c, i in zip(columns, _matched([c.field for c in columns], names, path), strict=True):
        if not fits(schema[names[i]], c.column.type):
            raise BraidError(
                f"{path}: column {names[i]} is {schema[names[i]]}, but {source.name}.{c.field} is {a(c.column.type)}",
                "declare the type that the file has",
            )


def _scratch(path: str) -> str:
    return f"{path}~{uuid4().hex[:8]}.part"


def _forget(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


_ZERO: Times = np.zeros(1, np.int64)


@lru_cache(maxsize=256)
def _mapped(path: str) -> Times:
    """The times in a file, mapped: what is not looked at is not read."""
    if os.path.getsize(path) == 0:
        return np.zeros(0, np.int64)
    return np.memmap(path, dtype="<i8", mode="r")


@lru_cache(maxsize=256)
def _tops(path: str) -> Times:
    """The highest time of each chunk."""
    times = _mapped(path)
    return np.maximum.reduceat(times, np.arange(0, len(times), CHUNK)) if len(times) else times
