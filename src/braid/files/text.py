"""CSV and JSON lines, block by block: rows of text, and what is wrong with them.

In: a range of a file (plain, gzip or zstd) and the declared columns. Out: typed columns, errors, raw texts; a digest.
Rule: one row of the file is one row here, whatever is wrong with it; the memory needed does not grow with the file.
Blocks are parsed side by side, and given in order.
A field that is empty is null; with quotes around it (`""`) it is the empty text. Blank lines are no rows (in a CSV
file of one column they are nulls).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from braid.errors import BraidError, anew
from braid.expr.json_text import dumps
from braid.files.quotes import bare, fields, first_row, fit, outside, rows, unclosed, whole_rows
from braid.files.values import HAS_EMPTY, Fitted, from_text, typed
from braid.native import LINES
from braid.records import codec, compiled
from braid.store.reading import LONGEST
from braid.topics.segments import is_packed, split_lines
from braid.types import Column, Scalar, Type

BLOCK = 16 << 20  # bytes that are parsed at once
THREADS = min(8, os.cpu_count() or 1)  # that parse, each a block
T = TypeVar("T")
_NEAR = 1 << 12  # bytes in which most lines end
_BOM = b"\xef\xbb\xbf"
UNCLOSED = "quote "  # behind it, in `Text.tail`, where the row begins whose quote is not closed


@dataclass(frozen=True, slots=True)
class Options:
    """How files are written. `null_value`: a text that stands for null besides the empty field. `deleted`: the column
    that says of a row that its key is deleted."""

    null_value: str | None = None
    delimiter: str = ","
    deleted: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Typed columns in declared order; `error`: why a row is malformed, else null; `raw`: what such a row holds.
    `again`: where no row is malformed or holds a null, and some columns are not wanted, these are null, and this gives
    them, too."""

    columns: list[pl.Series]
    error: pl.Series
    raw: pl.Series
    again: Callable[[], Rows] | None = None


class Text:
    """One way through the content of a text file, from byte `start` to `limit` or to its present end.

    `last`: a last line without an end is taken, too; else it is left, and `rest` tells so. `most`: where so many bytes
    have been taken, the others are left, too. Afterwards `stop` and `digest` say what was taken, and `tail` how it ends
    (`log.Piece`). `like`: a digest of the kind that is wanted.
    """

    def __init__(
        self,
        path: str,
        start: int = 0,
        limit: int | None = None,
        last: bool = True,
        most: int | None = None,
        like: str = "",
    ) -> None:
        self.path, self.start, self.limit, self.last, self.most = path, start, limit, last, most
        self.stop, self.tail, self.rest = start, "", False
        self._hash = _hash(like)

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    def blocks(self, by: str | None = None, size: int | None = None) -> Iterator[bytes]:
        """Blocks of whole lines; of a CSV file delimited `by` something, of whole rows."""
        size = size or BLOCK
        parts, length, wanted = list[bytes](), 0, 0
        for part in content(self.path, self.start, self.limit, size):
            parts.append(part)
            length += len(part)
            if length < wanted:  # a row is longer than what was there: it is not looked through for each part of it
                continue
            data = b"".join(parts)
            cut = self._whole(data, by)
            if cut == 0 and len(data) > LONGEST + 4 * size:
                what = f"{self.path} has a line of more than {LONGEST >> 20} MiB"
                raise BraidError(what, "is it text? a row is a line")
            if cut:
                yield self._taken(data[:cut])
                if self.most is not None and self.stop - self.start >= self.most:
                    self.rest = True
                    return
            parts, length = [data[cut:]] if cut < len(data) else [], len(data) - cut
            wanted = 0 if cut else min(2 * length, LONGEST + 4 * size + 1)
        rest = b"".join(parts)
        if wanted and (cut := self._whole(rest, by)):
            yield self._taken(rest[:cut])
            rest = rest[cut:]
        self.rest = bool(rest) and not self.last
        if rest and self.last:
            at = None if by is None else unclosed(rest, by)
            self.tail = "" if rest.endswith(b"\n") else "line"
            self.tail += "" if at is None else f"{UNCLOSED}{self.stop + at}"
            yield self._taken(rest)

    def _whole(self, data: bytes, by: str | None) -> int:
        """So many bytes are whole lines, or rows of CSV."""
        mark = len(_BOM) if self.stop == 0 and data.startswith(_BOM) else 0
        found = data.rfind(b"\n") + 1 if by is None else whole_rows(data[mark:] if mark else data, by)
        return found and found + mark * (by is not None)

    def _taken(self, data: bytes) -> bytes:
        first, self.stop = self.stop == 0, self.stop + len(data)
        self._hash.update(data)
        return data.removeprefix(_BOM) if first else data


def content(path: str, start: int = 0, limit: int | None = None, size: int | None = None) -> Iterator[bytes]:
    """The content of a file from byte `start` to `limit`, in parts of at most `size` bytes; of a plain one they end
    with a line where they can, so that none of them is copied to be cut."""
    size = size or BLOCK
    try:
        with pa.input_stream(path, compression="detect") as stream:
            plain = stream.seekable()
            if plain:
                stream.seek(start)
            else:
                skipped = 0
                while skipped < start and (data := stream.read(min(size, start - skipped))):
                    skipped += len(data)
            left = None if limit is None else limit - start
            while True:
                most = size if left is None else min(size, left)
                data = stream.read(_to_a_line(stream, most) if plain else most)
                if not data:
                    break
                left = None if left is None else left - len(data)
                yield data
    except FileNotFoundError:
        raise BraidError(f"{path} is gone", PUT_BACK) from None
    except OSError as e:
        raise BraidError(f"{path} cannot be read: {e}", "is it complete, and compressed as its name says?") from None


def _to_a_line(stream: pa.NativeFile, size: int) -> int:
    """So many bytes, at most `size`, as end with a line, if one ends near there."""
    at, few = stream.tell(), min(size, _NEAR)
    stream.seek(at + size - few)
    behind = few - 1 - stream.read(few).rfind(b"\n")
    stream.seek(at)
    return size - behind if behind < few else size


PUT_BACK = f"what has been read is not read again: put the file back as it was; or {anew()}"


def digest_of(path: str, start: int = 0, limit: int | None = None, like: str = "") -> str:
    """What `Text.digest` says of these bytes. `like`: a digest of the kind that is wanted."""
    made = _hash(like)
    for data in content(path, start, limit):
        made.update(data)
    return str(made.hexdigest())


class _Crc32:
    """A checksum as `hashlib` has digests: files change by accident, and this takes a quarter of the time. Its name
    stands before it, as those that were written before have none."""

    NAME = "crc32:"

    def __init__(self) -> None:
        self._crc = 0

    def update(self, data: bytes) -> None:
        self._crc = zlib.crc32(data, self._crc)

    def hexdigest(self) -> str:
        return f"{self.NAME}{self._crc:08x}"


def _hash(like: str) -> Any:
    return hashlib.blake2b(digest_size=16) if like and not like.startswith(_Crc32.NAME) else _Crc32()


# ----------------------------------------------------------------------- CSV


def shown(path: str, options: Options) -> Options:
    """With the delimiter that the header shows: ; | or tab, where it has no comma and only that of the three."""
    line = _beginning(path)
    found = [d for d in ";|\t" if len(outside(line, ord(d)))]
    if options.delimiter != "," or len(found) != 1 or len(outside(line, ord(","))):
        return options
    return replace(options, delimiter=found[0])


def header(path: str, options: Options) -> list[str]:
    """The names in the first line."""
    names = _split_header(_beginning(path), options, path)[0]
    if not any(names):
        raise BraidError(f"{path} has no header", "the first line of a CSV file names its columns")
    return names


def _beginning(path: str) -> bytes:
    """The first line; of one whose quotes do not fit what stands in the first MiB."""
    data = b""
    for part in content(path, size=1 << 16):
        data += part
        ends = outside(data, ord("\n"))
        if len(ends):
            data = data[: int(ends[0]) + 1]
            break
        if len(data) > 1 << 20:
            break
    return data.removeprefix(_BOM)


def _split_header(data: bytes, options: Options, path: str) -> tuple[list[str], bytes]:
    """The names in the first line, and what stands behind it."""
    first = first_row(data, options.delimiter)
    line = data[: first.stop].decode(errors="replace").rstrip("\r\n")
    if "\r" in line:
        raise BraidError(f"{path} has a carriage return in its header", "end lines with \\n or \\r\\n")
    if first.error is not None:
        raise BraidError(f"the header of {path} cannot be read: {first.error}", "quote names whole, or not at all")
    return [(name or "").strip() for name in fields(line, options.delimiter)], data[first.stop :]


def csv_rows(
    text: Text, names: Sequence[str], at: Sequence[int | None], declared: Sequence[Column], options: Options
) -> Iterator[Rows]:
    """The rows of a CSV file whose header has these names; declared column i stands in field `at[i]`, or is null."""
    parse = functools.partial(_of_csv, names=names, at=at, declared=declared, options=options)
    return ahead(parse, _without_header(text, options))


def _without_header(text: Text, options: Options) -> Iterator[bytes]:
    """The blocks of a CSV file."""
    begins = text.start == 0
    for block in text.blocks(options.delimiter):
        data = _split_header(block, options, text.path)[1] if begins else block
        begins = False
        if data:
            yield data


def _of_csv(
    data: bytes, names: Sequence[str], at: Sequence[int | None], declared: Sequence[Column], options: Options
) -> Rows:
    """The rows of a block."""
    found = _parse(data, len(names), options)
    if found is None:
        return _slow(data, names, at, declared, options)
    nothing = pl.repeat(None, found.height, dtype=pl.String, eager=True)
    columns, error = typed([nothing if i is None else found[str(i)] for i in at], declared, _field)
    bad = error.is_not_null().arg_true()
    shown = [(str(i), Column(name, Scalar.VARCHAR)) for i, name in enumerate(names)]
    raw = pl.repeat(None, found.height, dtype=pl.String, eager=True)
    if len(bad):
        raw = raw.scatter(bad, codec.encode_values(found[bad], shown))
    return Rows(columns, error, raw)


def _field(texts: pl.Series, t: Type) -> Fitted:
    """Values of fields; the empty text is one where the type has it, else it is null."""
    if t not in HAS_EMPTY:
        texts = texts.set((texts == "").fill_null(False), None)
    return from_text(texts, t)


def _parse(data: bytes, width: int, options: Options) -> pl.DataFrame | None:
    """All fields as text, columns "0", "1" …; None where quotes do not fit, some line has too many or too few of them,
    or is no text."""
    plain = bare(data, options.delimiter)
    if is_packed(data) or not (plain or fit(data, options.delimiter, last=True)):
        return None
    nulls = None if options.null_value is None else [options.null_value]
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            schema={str(i): pl.String for i in range(width)},
            separator=options.delimiter,
            quote_char=None if plain else '"',
            null_values=nulls,
        )
    except (pl.exceptions.PolarsError, ValueError):
        return None
    last = frame[str(width - 1)]
    if width > 1 and last.null_count() and _delimiters(data, options, plain) != frame.height * (width - 1):
        return None  # a line that is too short has its last fields null: where none is, none is short
    return frame


def _delimiters(data: bytes, options: Options, plain: bool) -> int:
    by = options.delimiter.encode()
    return data.count(by) if plain else len(outside(data, by[0]))


def _slow(
    data: bytes, names: Sequence[str], at: Sequence[int | None], declared: Sequence[Column], options: Options
) -> Rows:
    """Row by row, so that one bad line costs its neighbours nothing."""
    width, by = len(names), options.delimiter
    found: list[list[str | None]] = []
    errors: list[str | None] = []
    for start, stop, odd in rows(data, by):
        line = data[start:stop].decode(errors="surrogateescape").removesuffix("\n").removesuffix("\r")
        row: list[str | None] = [line] if odd else fields(line, by)
        if not row and width > 1:
            continue
        fine = len(row) == width or not row  # a line without fields is the null of a file of one column
        error = odd or (None if fine else f"{len(row)} fields, the header has {width}")
        found.append(row)
        errors.append("the line is not UTF-8" if error is None and not _is_text(line) else error)
    null = {None, options.null_value}
    whole = [row if row and error is None else [None] * width for row, error in zip(found, errors, strict=True)]
    texts = [
        pl.Series(str(n), [None if i is None or row[i] in null else row[i] for row in whole], dtype=pl.String)
        for n, i in enumerate(at)
    ]
    columns, bad = typed(texts, declared, _field)
    why = pl.select(pl.coalesce(pl.Series("e", errors, dtype=pl.String), bad)).to_series()
    raw = [
        None if e is None else _shown(row, names if len(row) == width > 1 else None)
        for row, e in zip(found, why.to_list(), strict=True)
    ]
    return Rows(columns, why, pl.Series("raw", raw, dtype=pl.String))


def _is_text(field: str) -> bool:
    return field.isascii() or not any("\ud800" <= c <= "\udfff" for c in field)


def _shown(row: Sequence[str | None], names: Sequence[str] | None) -> str:
    clean = [f and f.encode(errors="surrogateescape").decode(errors="replace") for f in row]
    shown: Any = clean if names is None else dict(zip(names, clean, strict=True))
    return dumps(shown)


# ---------------------------------------------------------------- JSON lines


def json_rows(
    text: Text, declared: Sequence[Column], lenient: bool = False, wanted: frozenset[int] | None = None
) -> Iterator[Rows]:
    """The rows of a file with one JSON object a line; a member that is missing is null. `lenient`: numbers are read as
    ksqlDB reads those of a topic. `wanted`: the numbers of the columns that are; None: all are."""
    parse = functools.partial(_of_json, declared=declared, lenient=lenient)
    odd = threading.Event()  # a block had a null: so will others, which are not tried in vain

    def parsed(data: bytes) -> Rows:
        if wanted is not None and len(wanted) < len(declared) and not odd.is_set():
            found = compiled.json_lines(data, declared, wanted)
            if found is not None and found.full:
                LINES.add(len(found.how), 0)
                no = pl.repeat(None, len(found.how), dtype=pl.String, eager=True)
                return Rows(found.columns, no.alias("error"), no.alias("raw"), functools.partial(parse, data))
            odd.set()
        return parse(data)

    return ahead(parsed, text.blocks())


def _of_json(data: bytes, declared: Sequence[Column], lenient: bool) -> Rows:
    """The rows of a block: by the compiled core, and by Python what that leaves."""
    found = compiled.json_lines(data, declared)
    if found is None:
        rows = _of_json_by_python(data, declared, lenient)
        LINES.add(0, len(rows.error))
        return rows
    left = np.flatnonzero(found.how == compiled.LEFT)
    LINES.add(int((found.how == compiled.READ).sum()), len(left))
    kept = found.how != compiled.BLANK
    columns = found.columns if kept.all() else [c.filter(pl.Series(kept)) for c in found.columns]
    no = pl.repeat(None, int(kept.sum()), dtype=pl.String, eager=True)
    if not len(left):
        return Rows(columns, no.alias("error"), no.alias("raw"))
    starts = np.concatenate([[0], found.ends[:-1]]).astype(np.int64)
    rest = b"".join(data[starts[i] : int(found.ends[i])] for i in left)
    made = _of_json_by_python(rest, declared, lenient)
    if len(made.error) != len(left):
        return _of_json_by_python(data, declared, lenient)
    order = np.arange(len(no))
    order[(np.cumsum(kept) - 1)[left]] = len(no) + np.arange(len(left))
    both = [pl.concat([a, b]).gather(order) for a, b in zip(columns, made.columns, strict=True)]
    error, raw = (pl.concat([no, x]).gather(order) for x in (made.error, made.raw))
    return Rows(both, error.alias("error"), raw.alias("raw"))


def _of_json_by_python(data: bytes, declared: Sequence[Column], lenient: bool) -> Rows:
    lines = split_lines(data)
    if lines["_raw"].null_count() < lines.height:
        blank = [x is not None and not x.strip() for x in lines["_raw"].to_list()]
        lines = lines.filter(~pl.Series(blank, dtype=pl.Boolean))
    texts = lines["_line"]
    frame, nothing, error = codec.decode_values(
        texts, declared, manner="lenient iso" if lenient else "iso", by_core=False
    )
    why = (
        pl.when(pl.lit(texts.is_null()))
        .then(pl.lit("the line is not UTF-8"))
        .when(pl.lit(nothing))
        .then(pl.lit("null is not a JSON object"))
        .otherwise(pl.lit(error))
    )
    error = pl.DataFrame({"e": error}).select(why.alias("e")).to_series()
    bad = error.is_not_null()
    raw = texts.set(~bad, None)
    if lines["_raw"].null_count() < len(raw):
        odd = lines["_raw"].is_not_null().arg_true()
        raw = raw.scatter(odd, [x.decode(errors="replace") for x in lines["_raw"].gather(odd).to_list()])
    return Rows([frame.get_column(c.name) for c in declared], error, raw)


# ------------------------------------------------------------- side by side


def ahead(parse: Callable[[bytes], T], blocks: Iterator[bytes]) -> Iterator[T]:
    """What is made of blocks, in their order: several at once, in threads, where there is more than one."""
    first = list(itertools.islice(blocks, 2))
    if len(first) < 2:
        yield from map(parse, first)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[Future[T]] = deque()
        for block in itertools.chain(first, blocks):
            waiting.append(pool.submit(parse, block))
            if len(waiting) > THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
