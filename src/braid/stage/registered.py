"""A registered DataFrame as an input: its pieces, partition by partition, in the order in which its rows are read.

In: the root of a store, a source whose topic is a DataFrame's. Out: decoded rows of a range, ends, times; of a row its
place in the DataFrame that the user gave.
Rule: the same range gives the same rows for ever. Piece follows piece; in a piece rows stand by their offsets where the
user gave some, else by (time, row). An offset here counts the rows of a partition over all pieces; people are told the
user's partition and offset, or the number of the piece and the row in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from braid.errors import BraidError
from braid.operators.changes import DIFF, HEADERS, NEVER, TIME
from braid.plan.logical import Source, SourceColumn
from braid.stage.decode import Decoded, times_of, with_pseudo
from braid.stage.inputs import Input, Readable, TopicInput, filled
from braid.store import ObjectStore
from braid.timing import spent
from braid.topics import registered
from braid.topics.interface import Topics
from braid.topics.registered import Piece, Shape
from braid.types import polars_type

Numbers = npt.NDArray[np.int64]


def input_of(topics: Topics, source: Source) -> Input:
    """A source of the store: a topic, or a registered DataFrame."""
    return FrameInput(topics.root, source) if registered.is_registered(source.topic) else TopicInput(topics, source)


def readable_of(topics: Topics, source: Source) -> Readable:
    """The same for queries that are answered now."""
    return WholeFrame(topics.root, source) if registered.is_registered(source.topic) else TopicInput(topics, source)


def without_rows(source: Source) -> BraidError:
    """Why a streaming DataFrame is not asked now."""
    hint = "execute CREATE … AS SELECT over it, and query what that makes; or sql, which shows rows as they come"
    return BraidError(f"{source.name} is a streaming DataFrame, which has no current rows", hint)


class FrameInput:
    """Can be sent to other processes. It has the pieces that were there when it was made."""

    def __init__(self, root: ObjectStore, source: Source) -> None:
        self.root, self.source = root, source
        self.found = registered.needed(root, source.topic)
        if self.found.shape.streams:
            what = f"{source.name} is a streaming DataFrame, which is not registered in this session"
            raise BraidError(what, f"session.register({self.found.name!r}, …) as before, then execute the statement")
        self._numbers = self.found.partitions()
        self._held: dict[int, Numbers] = {}

    def __reduce__(self) -> tuple[type[FrameInput], tuple[ObjectStore, Source]]:
        return FrameInput, (self.root, self.source)

    @property
    def partitions(self) -> int:
        return len(self._numbers)

    def ends(self) -> list[int]:
        return registered.ends(self.found)

    # ------------------------------------------------------------- times

    def cut(self, partition: int, first: int, time: int) -> int:
        later = self._times(partition)[first:] > time
        return first + int(np.argmax(later)) if later.any() else first + len(later)

    def time_after(self, partition: int, first: int, count: int) -> int | None:
        times = self._times(partition)[first : first + count]
        return int(times.max()) if count and len(times) == count else None

    def _times(self, partition: int) -> Numbers:
        """Of all rows; `NEVER` where one has none."""
        if partition not in self._held:
            parts = [self._laid(piece, partition)[1] for piece in self.found.pieces]
            self._held[partition] = np.concatenate([np.empty(0, np.int64), *parts])
        return self._held[partition]

    # -------------------------------------------------------------- rows

    def read(self, partition: int, first: int, last: int) -> Decoded:
        with spent("read"):
            parts = [self._rows(piece, partition, a, b) for _, piece, a, b in self._in(partition, first, last)]
        if sum(part.height for part in parts) != last - first:
            what = f"the DataFrame {self.found.name} has no rows {first} to {last - 1} in partition {partition}"
            raise BraidError(what, "it was registered again since they were planned to be read; braid reset QUERY")
        with spent("decode"):
            rows = pl.concat(parts) if parts else self._none()
            return self._decoded(rows, partition, first)

    def places(self, partition: int, offsets: Numbers) -> tuple[Numbers, Numbers]:
        """Where the user finds rows: partitions and offsets as given; else numbers of pieces, and rows in them."""
        found, at, start = np.full_like(offsets, partition), offsets.copy(), 0
        for number, piece in enumerate(self.found.pieces):
            stop = start + piece.rows.get(self._numbers[partition], 0)
            mine = (offsets >= start) & (offsets < stop)
            if mine.any():
                rows = self._laid(piece, partition)[0][offsets[mine] - start]
                placed = self.found.shape.placed and self.found.shape.offset is not None
                found[mine] = self._numbers[partition] if placed else number
                at[mine] = self._given(piece)[rows] if placed else rows
            start = stop
        return found, at

    def _given(self, piece: Piece) -> Numbers:
        """The offsets that the user gave, row by row."""
        column = pl.col(self.found.shape.offset or "").cast(pl.Int64)
        return self._frame(piece).select(column).collect().to_series().to_numpy()

    def _in(self, partition: int, first: int, last: int) -> Iterator[tuple[int, Piece, int, int]]:
        """The pieces that a range lies in, each with its number and what of it is asked for."""
        counts = [piece.rows.get(self._numbers[partition], 0) for piece in self.found.pieces]
        bounds = [0, *np.cumsum(counts, dtype=np.int64).tolist()]
        for number, (piece, (start, stop)) in enumerate(zip(self.found.pieces, pairwise(bounds), strict=True)):
            a, b = max(first, start) - start, min(last, stop) - start
            if a < b:
                yield number, piece, a, b

    def _rows(self, piece: Piece, partition: int, first: int, last: int) -> pl.DataFrame:
        """Rows of a piece, in the order in which they are read, by the names of the source's fields."""
        rows = self._laid(piece, partition)[0][first:last]
        low, high = int(rows.min()), int(rows.max()) + 1
        found = self._frame(piece).slice(low, high - low).select(self._columns()).collect()
        return found[rows - low] if (np.diff(rows) != 1).any() else found

    def _columns(self) -> list[pl.Expr]:
        shape = self.found.shape
        theirs = {name.lower(): name for name, _ in shape.columns}
        fields = [c.field for c in self.source.columns if is_given(self.source, c)]
        made = {field: theirs.get(field.lower(), shape.key) for field in fields}
        columns = [(pl.lit(None) if name is None else pl.col(name)).alias(field) for field, name in made.items()]
        return [*columns, *([pl.col(shape.deleted).alias(_GONE)] if shape.deleted else []), *_offsets(shape)]

    def _frame(self, piece: Piece) -> pl.LazyFrame:
        return pl.scan_parquet(registered.path_of(self.root, self.found.name, piece))

    def _none(self) -> pl.DataFrame:
        pieces = self.found.pieces[:1]
        return next((self._frame(p).select(self._columns()).head(0).collect() for p in pieces), pl.DataFrame())

    def _laid(self, piece: Piece, partition: int) -> tuple[Numbers, Numbers]:
        """The rows of a piece that stand in a partition, in order, and their times."""
        path, number = registered.path_of(self.root, self.found.name, piece), self._numbers[partition]
        return _laid_out(path, piece.crc, self.source, self.found.shape, number)

    def _decoded(self, rows: pl.DataFrame, partition: int, first: int) -> Decoded:
        shape, number = self.found.shape, self._numbers[partition]
        index = pl.int_range(first, first + rows.height, dtype=pl.Int64, eager=True).alias("_offset")
        placed = _AT in rows.columns
        offsets = rows[_AT].cast(pl.Int64).alias("_offset") if placed else index
        made, error = typed(self.source, rows.with_columns(offsets), _GONE if shape.deleted else None)
        return Decoded(with_pseudo(self.source, made, number).with_columns(index), error)


_GONE, _AT = "_gone of the user's", "_offset of the user's"  # no column is called so: fields are names of SQL


def _offsets(shape: Shape) -> list[pl.Expr]:
    return [pl.col(shape.offset).alias(_AT)] if shape.placed and shape.offset is not None else []


@lru_cache(maxsize=64)
def _laid_out(path: str, crc: int, source: Source, shape: Shape, partition: int) -> tuple[Numbers, Numbers]:
    """See `FrameInput._laid`."""
    row, frame = "_row", pl.scan_parquet(path).with_row_index("_row")
    if shape.placed:
        assert shape.partition is not None and shape.offset is not None
        frame = frame.filter(pl.col(shape.partition) == partition).sort(shape.offset, maintain_order=True)
    times, timed = pl.lit(0, pl.Int64).alias(TIME), source.timestamp
    if timed is None or shape.time is None:
        found = frame.select(row, times).collect()
    else:
        column = next(c for c in source.columns if c.field == timed.field)
        rows = frame.select(row, pl.col(shape.time).cast(polars_type(column.column.type)).alias(column.name)).collect()
        found = rows.with_columns(times_of(rows, column.col, timed)[0].alias(TIME))
        if not shape.placed:
            at = filled(found).with_row_index("_at").sort(TIME, "_at")["_at"]
            found = found[at]
    return found[row].cast(pl.Int64).to_numpy(), found[TIME].fill_null(NEVER).to_numpy()


def typed(source: Source, rows: pl.DataFrame, deleted: str | None) -> tuple[pl.DataFrame, pl.Series]:
    """Rows of a DataFrame, by the names of the source's fields and with `_offset`, as decoded records; and why one has
    no time. `deleted`: the column that says which rows are."""
    gone = pl.col(deleted).fill_null(False) if deleted is not None else pl.lit(False)
    given = (c for c in source.columns if is_given(source, c))
    made = rows.select(
        pl.col("_offset").cast(pl.Int64),
        pl.lit(0, pl.Int64).alias(TIME),
        pl.lit(None, pl.String).alias(HEADERS),
        pl.lit(None, pl.String).alias("_key"),
        pl.lit(None, pl.String).alias("_value"),
        pl.when(gone).then(-1).otherwise(1).cast(pl.Int8).alias(DIFF),
        *(pl.col(c.field).cast(polars_type(c.column.type)).alias(c.name) for c in given),
    )
    error = pl.Series("e", [None] * made.height, dtype=pl.String)
    if source.timestamp is not None:
        column = next(c for c in source.columns if c.field == source.timestamp.field)
        time, error = times_of(made, column.col, source.timestamp)
        made = filled(made.with_columns(time.alias(TIME)))
    return made, error


def is_given(source: Source, c: SourceColumn) -> bool:
    """Whether the DataFrame has the column."""
    return c.place == "value" or (c.place == "key" and source.encoding.key != "ROW_ID")


class WholeFrame:
    """All rows of a registered DataFrame as an input that is read whole, for queries that are answered now: one
    partition, in which those of all partitions stand in processing order."""

    partitions = 1

    def __init__(self, root: ObjectStore, source: Source) -> None:
        self.source = source
        if registered.needed(root, source.topic).shape.streams:
            raise without_rows(source)
        frame = FrameInput(root, source)
        parts = [frame.read(p, 0, end) for p, end in enumerate(frame.ends())]
        place = pl.concat(part.rows[TIME].cum_max() for part in parts)
        order = place.to_frame().select(pl.arg_sort_by(TIME, maintain_order=True)).to_series()
        self._rows = pl.concat(part.rows for part in parts)[order]
        self._error = pl.concat(part.error for part in parts)[order]

    def ends(self) -> list[int]:
        return [self._rows.height]

    def read(self, partition: int, first: int, last: int) -> Decoded:
        return Decoded(self._rows.slice(first, last - first), self._error.slice(first, last - first))
