"""Records' keys and values: JSON text into typed columns and back.

In: a String series of JSON texts (one per record, null where there is no value) and the declared columns; or typed
columns. Out: a frame with the columns' dtypes, which rows have a null value, why a row is malformed; or JSON texts.
Rule: values are those of docs/files-and-topics.md, "Values". The line-by-line reader is the meaning; the columnar one
is used for a line only where it provably gives the same (`_fast`), so one bad record costs its neighbours nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from braid.expr import dates
from braid.expr.json_text import MAX_DEPTH, dumps, loads
from braid.records.values import WHOLE, Malformed, cut, find, json_object, json_text, read_at, reader
from braid.types import Column, Scalar, physical_type, polars_type

S = Scalar
Decoded = tuple[pl.DataFrame, pl.Series, pl.Series]

_FAST_TYPES = (S.BOOLEAN, S.INT, S.BIGINT, S.DOUBLE, S.VARCHAR, S.DATE, S.TIMESTAMP)  # read_ndjson is strict about them
_FEW = 64  # so few lines are read line by line
_SPLIT = 16  # a block that read_ndjson refuses is read in this many parts
_SMALLEST = 1024  # but in no smaller ones: they are read line by line
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$-]+")


def decode_values(
    texts: pl.Series, columns: Sequence[Column], *, unwrapped: bool = False, iso: bool = False
) -> Decoded:
    """Columns of JSON values, `is_null_value`, and `error` (null where the record is well formed).

    `unwrapped`: the text is the bare value of the only column, not an object. `iso`: dates and times may be ISO text,
    besides numbers.
    """
    if unwrapped and len(columns) != 1:
        raise ValueError("an unwrapped value has exactly one column")
    if not unwrapped and columns and all(c.type in _FAST_TYPES for c in columns):
        return _decode_blocks(texts, columns, iso)
    return _decode_bare(texts, columns[0], iso) if unwrapped else _decode_slow(texts, columns, False, iso)


# ------------------------------------------------------------- line by line


def _decode_slow(texts: pl.Series, columns: Sequence[Column], unwrapped: bool, iso: bool = False) -> Decoded:
    names = [c.name for c in columns]
    readers = [reader(c.type, iso) for c in columns]
    values: list[list[Any]] = [[] for _ in columns]
    nulls: list[bool] = []
    errors: list[str | None] = []
    empty = [None] * len(columns)
    fields = list(zip(names, readers, strict=True))
    exact = frozenset(names).issubset
    for text in texts.to_list():
        row: list[Any] = empty
        error: str | None = None
        parsed = None
        try:
            parsed = None if text is None else loads(text)
            if unwrapped:
                row = [read_at(names[0], readers[0], parsed)]
            elif parsed is not None:
                if type(parsed) is not dict:
                    raise Malformed(f"{cut(text)!r} is not a JSON object")
                if exact(parsed):
                    row = [read_at(n, r, parsed[n]) for n, r in fields]
                else:
                    folded: dict[str, str] = {}
                    row = [read_at(n, r, find(parsed, n, folded)) for n, r in fields]
        except Malformed as e:
            error, row = str(e), empty
        except (ValueError, RecursionError) as e:
            error, row = f"{cut(text)!r} is not JSON: {e}", empty
        for column, value in zip(values, row, strict=True):
            column.append(value)
        nulls.append(error is None and parsed is None)
        errors.append(error)
    frame = pl.DataFrame([_series(c, v) for c, v in zip(columns, values, strict=True)])
    return frame, pl.Series("is_null_value", nulls, pl.Boolean), pl.Series("error", errors, pl.String)


def _series(column: Column, values: list[Any]) -> pl.Series:
    series = pl.Series(column.name, values, dtype=physical_type(column.type), strict=True)
    dtype = polars_type(column.type)
    return series if series.dtype == dtype else series.cast(dtype)


# ------------------------------------------------------------------ columnar


def _decode_blocks(texts: pl.Series, columns: Sequence[Column], iso: bool) -> Decoded:
    """Blocks that can be read at once; what cannot is halved down to lines."""
    plain = texts.is_not_null() & (texts != "null")
    rest = (plain & ~texts.str.contains_any(["\\u", "\n"])).fill_null(False)
    if len(texts) < _FEW or not rest.any():
        return _decode_slow(texts, columns, False, iso)
    if not rest.all():  # nulls, and lines with \u escapes or line breaks
        return _completed(_decode_blocks(texts.filter(rest), columns, iso), texts, columns, rest, False, iso)
    found = _fast(texts, columns, iso)
    if found is not None:
        frame, proven = found
        return _completed(clean(frame.filter(proven)), texts, columns, proven, False, iso)
    size = max(_SMALLEST, -(-len(texts) // _SPLIT))
    if size >= len(texts):
        return _decode_slow(texts, columns, False, iso)
    return stack([_decode_blocks(texts.slice(i, size), columns, iso) for i in range(0, len(texts), size)])


def _completed(
    made: Decoded, texts: pl.Series, columns: Sequence[Column], known: pl.Series, unwrapped: bool, iso: bool
) -> Decoded:
    """`made` of the texts that are `known`; the others line by line, in their places."""
    if known.all():
        return made
    return in_place(known, made, _decode_slow(texts.filter(~known), columns, unwrapped, iso))


def _decode_bare(texts: pl.Series, column: Column, iso: bool) -> Decoded:
    """Bare values: those in the form that everybody writes at once, the others line by line."""
    found = _bare(texts, column) if len(texts) >= _FEW else None
    if found is None:
        return _decode_slow(texts, [column], True, iso)
    values, proven = found
    nothing = texts.is_null() | (texts == "null").fill_null(True)
    known = proven | nothing
    frame, _, error = clean(values.set(~proven, None).alias(column.name).to_frame().filter(known))
    made = frame, nothing.filter(known).alias("is_null_value"), error
    return _completed(made, texts, [column], known, True, iso)


def _bare(texts: pl.Series, column: Column) -> tuple[pl.Series, pl.Series] | None:
    """Values of bare JSON texts, and where they are proven right; None for a type that is not read so.

    An integer is proven by its text being the one that would be written; a string by its quotes with nothing between
    them that an escape or another quote could be.
    """
    match column.type:
        case S.INT | S.BIGINT:
            values = texts.cast(polars_type(column.type), strict=False)
            proven = values.cast(pl.String) == texts
        case S.VARCHAR:
            inner = texts.str.strip_prefix('"').str.strip_suffix('"')
            values = inner
            proven = (texts.str.len_bytes() == inner.str.len_bytes() + 2) & ~inner.str.contains(r'["\\\x00-\x1f]')
        case _:
            return None
    return values, proven.fill_null(False)


def stack(parts: Sequence[Decoded]) -> Decoded:
    """Parts that follow each other as one."""
    frames, nulls, errors = zip(*parts, strict=True)
    return pl.concat(frames), pl.concat(nulls), pl.concat(errors)


def in_place(known: pl.Series, made: Decoded, rest: Decoded) -> Decoded:
    """`made` where it is `known`, the `rest` elsewhere."""
    order = pl.concat([known.arg_true(), (~known).arg_true()]).arg_sort()
    frame, nulls, errors = stack([made, rest])
    return frame[order], nulls.gather(order), errors.gather(order)


def nothing(columns: Sequence[Column], height: int, error: str | None) -> Decoded:
    """Records that give no columns: those that are null, or are malformed."""
    frame = pl.DataFrame([pl.Series(c.name, [None] * height, dtype=polars_type(c.type)) for c in columns])
    null = pl.Series("is_null_value", [error is None] * height, dtype=pl.Boolean)
    return frame, null, pl.Series("error", [error] * height, dtype=pl.String)


def utf8(data: pl.Series) -> pl.Series:
    """The texts that bytes are, null where they are none."""
    try:
        return data.cast(pl.String)
    except pl.exceptions.PolarsError:  # one bad byte refuses all
        return pl.Series(data.name, [_utf8(x) for x in data.to_list()], dtype=pl.String)


def _utf8(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def clean(frame: pl.DataFrame) -> Decoded:
    """Columns of records that are all well."""
    no = pl.repeat(False, frame.height, dtype=pl.Boolean, eager=True).rename("is_null_value")
    return frame, no, pl.repeat(None, frame.height, dtype=pl.String, eager=True).rename("error")


def _fast(texts: pl.Series, columns: Sequence[Column], iso: bool = False) -> tuple[pl.DataFrame, pl.Series] | None:
    """The columns as `read_ndjson` reads them, and on which lines that is proven right; None if it refuses the block.

    Lines hold no escape of a code point (so names of plain letters are not hidden) and no line break. `read_ndjson` is
    strict about types, as the slow reader is, but differs: names are matched exactly, of a name that stands twice the
    first counts, and VARCHAR takes other values in a form of its own. A line is proven if for every column
    - its quoted name stands once in the line, and the value is not null (then that name is the field's), or
    - the value is null, the name stands once, followed by null, in a line without nested objects and backslashes; or it
      does not stand there in any case, and is missing;
    and for VARCHAR if the name is followed by a quote. With `iso`, dates and times are read as VARCHAR is in a block
    where one is text; the line is proven if all of them can be read.
    """
    schema = {c.name: physical_type(c.type) for c in columns}
    data = texts.str.join("\n").item().encode()
    dated = {c.name: c.type for c in columns if iso and c.type in (S.DATE, S.TIMESTAMP) and _quoted_in(data, c.name)}
    schema |= {name: pl.String() for name in dated}
    if data.startswith(b"x"):  # no JSON; `read_ndjson` takes some of it for zlib, and would unfold it
        return None
    try:
        frame = pl.read_ndjson(data, schema=schema)
    except (pl.exceptions.PolarsError, ValueError):
        return None
    if frame.height != len(texts):
        return None
    n = len(texts)
    proven: pl.Series | None = None
    flat = data.count(b"{") == n
    escaped = b"\\" in data
    if not flat or b"[" in data:
        proven = texts.str.count_matches(r"[\[{]") <= MAX_DEPTH
    for c in columns:
        column = frame.get_column(c.name)
        name = dumps(c.name)
        if not _PLAIN_NAME.fullmatch(c.name) and (escaped or "\\" in name):
            return None
        quoted = name.encode()
        is_text = c.type is S.VARCHAR or c.name in dated
        once = data.count(quoted) == n  # with no nulls below: at least one in each line, so exactly one
        if once and is_text:
            once = _quoted_in(data, c.name) == n
        if once and not column.null_count():
            continue
        missing = column.null_count() == n and name.isascii() and data.isascii()
        if missing and quoted.lower() not in data.lower():
            continue
        here = _proven(texts, column, name, is_text, flat and not escaped)
        proven = here if proven is None else proven & here
    casts: list[pl.Expr | pl.Series] = []
    for c in columns:
        if c.name in dated and isinstance(c.type, Scalar):
            made = frame.select(dates.parse_iso(pl.col(c.name), c.type)).to_series()
            read = made.is_not_null() | frame.get_column(c.name).is_null()
            proven = read if proven is None else proven & read
            casts.append(made)
        elif c.type is S.TIMESTAMP or c.type is S.DATE:
            fits = frame.get_column(c.name).is_between(WHOLE[c.type].low, WHOLE[c.type].high - 1).fill_null(True)
            proven = fits if proven is None else proven & fits
            casts.append(dates.OF_NUMBER[c.type](pl.col(c.name)))
    if proven is None:
        proven = pl.repeat(True, n, dtype=pl.Boolean, eager=True)
    return (frame.with_columns(casts) if casts else frame), proven


def _quoted_in(data: bytes, name: str) -> int:
    """How often a name stands before a text."""
    quoted = dumps(name).encode()
    return data.count(quoted + b':"') + data.count(quoted + b': "')


def _proven(texts: pl.Series, column: pl.Series, name: str, is_text: bool, flat: bool) -> pl.Series:
    """`_fast`'s proof for one column, line by line."""
    frame = pl.DataFrame({"t": texts, "v": column.is_null()})
    t, null = pl.col("t"), pl.col("v")
    count = t.str.count_matches(name, literal=True)
    nested = pl.lit(False) if flat else t.str.contains(r"\\|\{.*\{")
    valued = count == 1
    if is_text:
        valued = valued & (t.str.contains(name + ':"', literal=True) | t.str.contains(name + ': "', literal=True))
    is_null = (count == 1) & ~nested
    is_null = is_null & (t.str.contains(name + ":null", literal=True) | t.str.contains(name + ": null", literal=True))
    proof = pl.when(null).then(is_null).otherwise(valued)
    out = frame.select(proof.alias("p")).to_series()
    missing = frame.with_columns(p=out).select(pl.col("v") & ~pl.col("p")).to_series()
    if missing.any():
        at = missing.arg_true()
        # a name of any case would be quoted too; lower() is what the slow reader folds with
        absent = name.isascii() & ~texts.gather(at).str.to_lowercase().str.contains(name.lower(), literal=True)
        out = out.scatter(at, absent)
    return out


# ------------------------------------------------------------------- writing


def encode_values(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], *, unwrapped: bool = False) -> pl.Series:
    """One JSON text per row. Each pair is a column of `frame` and the field it becomes.

    `unwrapped`: the bare value of the only column; a null value then is the text `null`.
    """
    texts = [json_text(frame.get_column(name), c.type) for name, c in columns]
    if unwrapped:
        if len(texts) != 1:
            raise ValueError("an unwrapped value has exactly one column")
        return texts[0].fill_null("null").rename("value")
    return json_object([c.name for _, c in columns], texts, frame.height)
