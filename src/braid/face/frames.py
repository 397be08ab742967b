"""Registered DataFrames, as doors know them: what `register` is asked for and what is wrong with it, what they are
declared as.

In: a DataFrame and the names of its columns that mean something; a store. Out: the store's document and pieces
(`topics/registered.py`); declarations by dialect.
Rule: all that is wrong is reported at once, before anything is written. A name means all its pieces: rows of the same
shape are added, the same rows once. Another shape takes the place of what no query has read; else it is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from braid.bind.bound import Declared, SourceDeclared
from braid.bind.dialects import DIALECTS, dialect_named
from braid.bind.program import Program
from braid.errors import BraidError
from braid.face import infer
from braid.plan.logical import Kind, Timestamp
from braid.sql.declare import Declaring, declaration, nearest
from braid.sql.declare import typed as spelled
from braid.sql.dialects.base import Words
from braid.store import ObjectStore
from braid.topics import registered
from braid.topics.registered import PREFIX, Piece, Registered, Shape
from braid.types import TIMESTAMPS, Array, Column, Scalar, Struct, Type

MOST = 1 << 10  # partitions of a DataFrame
_WHOLE = (Scalar.SMALLINT, Scalar.INT, Scalar.BIGINT)
_TIMES = (*TIMESTAMPS, Scalar.BIGINT, Scalar.DATE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What `register` was asked for, in the user's words."""

    name: str
    kind: Kind
    key: str | None = None
    time: str | None = None
    partition: str | None = None
    offset: str | None = None
    deleted: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The columns that mean something, by what they mean."""
        options = {n: getattr(self, n) for n in ("key", "time", "partition", "offset", "deleted")}
        return {n: column for n, column in options.items() if column is not None}

    @property
    def hidden(self) -> set[str]:
        """Columns that no statement sees."""
        return {c for c in (self.partition, self.offset, self.deleted) if c is not None}

    def shape(self, columns: Sequence[Column], streams: bool) -> Shape:
        there = tuple((c.name, str(c.type)) for c in columns)
        return Shape(self.kind, there, streams=streams, **{n: self.named.get(n) for n in _OPTIONS})


_OPTIONS = ("key", "time", "partition", "offset", "deleted")


def check_texts(asked: Asked) -> None:
    """Refuses what is no text where a name belongs."""
    for option, value in (("name", asked.name), *asked.named.items()):
        if not isinstance(value, str):
            what = "a text" if option == "name" else "the name of one column"
            raise BraidError(f"{option}={value!r}: it takes {what}", f"register('t', df, {option}='…')")
    if asked.kind not in ("stream", "table"):
        what = f"kind={asked.kind!r} is neither a stream nor a table"
        raise BraidError(what, "write kind='stream' or kind='table'")


def columns_of(rows: pl.DataFrame) -> list[Column]:
    """The columns of a static DataFrame as ours; names as they stand."""
    return [Column(name, _type(t, name)) for name, t in rows.schema.items()]


def _type(t: Any, name: str) -> Type:
    match t:
        case pl.List(inner=inner):
            return Array(_type(inner, name))
        case pl.Struct(fields=fields):
            return Struct(tuple(Column(f.name, _type(f.dtype, name)) for f in fields))
    return infer.ours(t, name)


# --------------------------------------------------------------------- checks


def problems(
    asked: Asked, words: Words, names: Sequence[str], columns: Sequence[Column], rows: pl.DataFrame | None
) -> list[BraidError]:
    """What is wrong with what was asked for, over columns of these names; `columns`: those that have a type. `rows`: of
    a static DataFrame."""
    types = {c.name: c.type for c in columns}
    found = [
        BraidError(f"{asked.name} has no column {column}", f"{option}= takes one of {', '.join(names)}")
        for option, column in asked.named.items()
        if column not in names
    ]
    for option, (taken, hint) in _TAKES.items():
        column = asked.named.get(option)
        if column in types and types[column] not in taken:
            found.append(BraidError(f"{option}={column!r} is a column of {types[column]}", hint))
    if asked.deleted is not None and asked.kind != "table":
        hint = "write kind='table'; rows of a stream are never deleted"
        found.append(BraidError(f"deleted={asked.deleted!r} goes with a table, and this is a stream", hint))
    if (asked.partition is None) != (asked.offset is None):
        given, lacks = ("partition", "offset") if asked.offset is None else ("offset", "partition")
        found.append(BraidError(f"{given}= needs {lacks}=", "both say the place of a row; without them its time does"))
    if asked.kind == "table" and asked.key is None and words.keyed_tables:
        found.append(BraidError(f"table {asked.name} needs a key", "name the column by which its rows differ: key="))
    found += _unspelled(words, [c for c in columns if c.name not in asked.hidden])
    return found if found or rows is None else [*_unplaced(asked, rows)]


_TAKES: dict[str, tuple[Sequence[Type], str]] = {
    "time": (_TIMES, "cast it to TIMESTAMP, or to BIGINT in ms"),
    "deleted": ((Scalar.BOOLEAN,), "make it one of true and false: df[…] == 'd'"),
    "partition": (_WHOLE, "cast it to a whole number"),
    "offset": (_WHOLE, "cast it to a whole number"),
}


def _unspelled(words: Words, columns: Iterable[Column]) -> Iterator[BraidError]:
    """Columns of types for which the dialect has no word, or of one name."""
    names = Counter(words.fold(c.name) for c in columns)
    for name, n in names.items():
        if n > 1:
            yield BraidError(f"{n} columns are called {name} in {words.title}", "rename one of them")
    for c in columns:
        try:
            spelled(words, Column(c.name, nearest(words, c.type)))
        except BraidError as e:
            yield e


def _unplaced(asked: Asked, rows: pl.DataFrame) -> Iterator[BraidError]:
    """Rows that do not stand anywhere, or where another one does."""
    if asked.partition is None or asked.offset is None:
        return
    at = rows.select(p=pl.col(asked.partition), o=pl.col(asked.offset))
    for option, name, column in (("partition", "p", asked.partition), ("offset", "o", asked.offset)):
        if (n := at[name].null_count()) > 0:
            hint = "each row has a place: fill it, or leave the row out"
            yield BraidError(f"{option}={column!r} is null in {n} row{'s' * (n != 1)}", hint)
    if (odd := at.filter(~pl.col("p").is_between(0, MOST - 1))["p"]).len():
        yield BraidError(f"partition={asked.partition!r} holds {odd[0]}", f"a partition is a number below {MOST}")
    if (twice := at.drop_nulls().filter(pl.struct("p", "o").is_duplicated())).height:
        p, o = twice.row(0)
        yield BraidError(f"two rows are at partition {p}, offset {o}", "no two rows of a partition have one offset")


# ---------------------------------------------------------------- declarations


def statement(asked: Asked, words: Words, columns: Sequence[Column]) -> str:
    """What declares it in a dialect."""
    visible = [Column(words.fold(c.name), nearest(words, c.type)) for c in columns if c.name not in asked.hidden]
    name, key = words.fold(asked.name), None if asked.key is None else words.fold(asked.key)
    return declaration(words, Declaring(name, asked.kind, visible, key, "frame", name))


def statements(asked: Asked, columns: Sequence[Column]) -> dict[str, str]:
    """What declares it, by the dialects that can."""
    made = dict[str, str]()
    for dialect in DIALECTS:
        with contextlib.suppress(BraidError):
            sql = statement(asked, dialect_named(dialect).words, columns)
            list(Program(dialect).statements(sql))
            made[dialect] = sql
    return made


def asked_of(found: Registered) -> Asked:
    """As it was registered."""
    shape = found.shape
    return Asked(found.name, "table" if shape.kind == "table" else "stream", *(getattr(shape, n) for n in _OPTIONS))


def declared(found: Registered, dialect: str) -> Declared | None:
    """What it is in a dialect; None where that cannot declare it."""
    if found.hidden or (sql := found.declared.get(dialect)) is None:
        return None
    words = dialect_named(dialect).words
    (effect,) = Program(dialect).statements(sql)
    assert isinstance(effect.bound, SourceDeclared)
    time = found.shape.time
    return replace(
        effect.bound.declared,
        topic=f"{PREFIX}{found.name}",
        timestamp=None if time is None else Timestamp(words.fold(time), since_1970=words.since_1970),
        sql=f"register({found.name!r})",
        read_only=True,
    )


def all_declared(root: ObjectStore, dialect: str) -> Iterator[Declared]:
    """All that a store has registered, as a dialect declares it."""
    for name in registered.names(root):
        found = registered.read(root, name)
        if found is not None and (made := declared(found, dialect)) is not None:
            yield made


# ------------------------------------------------------------------ registered


@dataclass(frozen=True, slots=True)
class More:
    """Rows that were given, and their file, which is called by what is in it."""

    rows: pl.DataFrame
    piece: Piece
    content: bytes


def more(asked: Asked, columns: Sequence[Column], rows: pl.DataFrame) -> More:
    data = io.BytesIO()
    rows.write_parquet(data)
    content = data.getvalue()
    file = f"{hashlib.sha256(content).hexdigest()[:24]}.parquet"
    counts = {0: rows.height}
    if asked.partition is not None and asked.offset is not None:
        counts = {int(p): n for p, n in rows[asked.partition].value_counts(sort=True).rows()}
    times = _times(asked, columns, rows)
    low, high = (None, None) if times is None else (times.min(), times.max())
    assert isinstance(low, int | None) and isinstance(high, int | None)
    piece = Piece(file, len(content), zlib.crc32(content), dict(sorted(counts.items())), low, high)
    return More(rows, piece, content)


def _times(asked: Asked, columns: Sequence[Column], rows: pl.DataFrame) -> pl.Series | None:
    """The times of rows (ms)."""
    if asked.time is None:
        return None
    column = rows[asked.time]
    whole = next(c.type for c in columns if c.name == asked.time) is Scalar.BIGINT
    return column.cast(pl.Int64) if whole else column.cast(pl.Datetime("ms")).dt.timestamp("ms")


def keep(
    root: ObjectStore,
    asked: Asked,
    columns: Sequence[Column],
    given: More | None,
    read_by: Callable[[], Sequence[str]],
) -> Registered:
    """What is registered by the name from now on. `given`: rows, of a static DataFrame; `read_by`: the queries of the
    store that have read it."""
    shape, gone = asked.shape(columns, given is None), list[Piece]()

    def to(before: Registered | None) -> Registered:
        if given is not None:
            registered.keep(root, asked.name, given.piece.file, given.content)
        made = Registered(asked.name, shape, statements(asked, columns), () if given is None else (given.piece,))
        if before is None:
            return made
        if not shape.like(before.shape):
            if not before.shape.streams:
                _refuse_other(before, shape, read_by())
            gone[:] = before.pieces
            return made
        if before.hidden and not read_by():
            gone[:] = before.pieces
            return made
        if given is None or is_piece(root, before, given):
            return replace(before, hidden=False)
        return replace(before, pieces=(*before.pieces, given.piece), hidden=False)

    made = registered.change(root, asked.name, to)
    registered.discard(root, made, gone)
    return made


def is_piece(root: ObjectStore, found: Registered, given: More) -> bool:
    """Whether these rows are there: the same bytes, or the same rows in other ones, as another version of the library
    writes them, or with their columns in another order."""
    there = found.pieces
    if any(piece.file == given.piece.file for piece in there):
        return True
    alike = (p for p in there if (p.rows, p.low, p.high) == (given.piece.rows, given.piece.low, given.piece.high))
    frames = (pl.read_parquet(registered.path_of(root, found.name, piece)) for piece in alike)
    return any(
        {*x.columns} == {*given.rows.columns} and x.select(given.rows.columns).equals(given.rows) for x in frames
    )


def _refuse_other(before: Registered, shape: Shape, readers: Sequence[str]) -> None:
    if not readers:
        return
    was, now = dict(before.shape.columns), dict(shape.columns)
    names = [n for n in {**was, **now} if was.get(n) != now.get(n)]
    other = [f"{n} {was.get(n, 'was not there')}, now {now.get(n, 'not there')}" for n in names]
    said = [
        f"{n}={getattr(before.shape, n)!r}, now {getattr(shape, n)!r}"
        for n in ("kind", *_OPTIONS)
        if getattr(before.shape, n) != getattr(shape, n)
    ]
    one = len(readers) == 1
    what = f"{' and '.join(readers)} {'has' if one else 'have'} read {before.name} as it was registered before"
    first = f"session.reset({readers[0]!r}) lets it begin again" if one else "session.reset(…) lets each begin again"
    hint = f"register it under another name; or {first}, and then register it again"
    raise BraidError(what, hint, [f"  {line}" for line in (*other, *said)])
