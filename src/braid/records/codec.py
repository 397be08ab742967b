"""Records' keys and values: JSON text into typed columns and back.

In: a String series of JSON texts (one per record, null where there is no value) and the declared columns; or typed
columns. Out: a frame with the columns' dtypes, which rows have a null value, why a row is malformed; or JSON texts.
Rule: values are those of docs/files-and-topics.md, "Values". The line-by-line reader is the meaning; blocks are read at
once only where that provably gives the same (`json_blocks`), so one bad record costs its neighbours nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from braid.expr.json_text import loads
from braid.records import compiled
from braid.records.facet import ISO, Manner
from braid.records.json_blocks import read_block, readable
from braid.records.malformed import Malformed, cut
from braid.records.texts import Piece, as_lines, joined
from braid.records.values import find, in_json, json_text, object_pieces, read_at, reader
from braid.types import Column, Scalar, physical_type, polars_type

S = Scalar
Decoded = tuple[pl.DataFrame, pl.Series, pl.Series]

_FEW = 64  # so few lines are read line by line
_SPLIT = 16  # a block that read_ndjson refuses is read in this many parts
_SMALLEST = 1024  # but in no smaller ones: they are read line by line


def decode_values(
    texts: pl.Series,
    columns: Sequence[Column],
    *,
    unwrapped: bool = False,
    manner: Manner = "plain",
    by_core: bool = True,
) -> Decoded:
    """Columns of JSON values, `is_null_value`, and `error` (null where the record is well formed).

    `unwrapped`: the text is the bare value of the only column, not an object. `manner`: see `Manner`. `by_core`: what
    the compiled core is sure of is read by it.
    """
    if unwrapped and len(columns) != 1:
        raise ValueError("an unwrapped value has exactly one column")
    if not unwrapped and columns and all(readable(c.type) for c in columns):
        return _decode_by_core(texts, columns, manner) if by_core else _decode_blocks(texts, columns, manner)
    return _decode_bare(texts, columns[0], manner) if unwrapped else _decode_slow(texts, columns, False, manner)


# ------------------------------------------------------------- line by line


def _decode_slow(texts: pl.Series, columns: Sequence[Column], unwrapped: bool, manner: Manner = "plain") -> Decoded:
    names = [c.name for c in columns]
    readers = [reader(c.type, manner) for c in columns]
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


def _decode_by_core(texts: pl.Series, columns: Sequence[Column], manner: Manner) -> Decoded:
    """What the compiled core reads of the texts, a line each, and the rest without it."""
    found = compiled.json_lines(as_lines(texts), columns, iso=manner in ISO) if compiled.takes(columns) else None
    if found is None or len(found.how) != len(texts):  # some text has a line break
        return _decode_blocks(texts, columns, manner)
    known, frame = pl.Series(found.how == compiled.READ), pl.DataFrame(found.columns)
    if known.all():
        return clean(frame)
    return in_place(known, clean(frame.filter(known)), _decode_blocks(texts.filter(~known), columns, manner))


def _decode_blocks(texts: pl.Series, columns: Sequence[Column], manner: Manner) -> Decoded:
    """Blocks that can be read at once; what cannot is halved down to lines."""
    if len(texts) < _FEW:
        return _decode_slow(texts, columns, False, manner)
    plain = texts.is_not_null() & (texts != "null")
    rest = (plain & ~texts.str.contains_any(["\\u", "\n"])).fill_null(False)
    if not rest.any():
        return _decode_slow(texts, columns, False, manner)
    if not rest.all():  # nulls, and lines with \u escapes or line breaks
        return _completed(_decode_blocks(texts.filter(rest), columns, manner), texts, columns, rest, False, manner)
    found = read_block(texts, columns, manner)
    if found is not None:
        frame, proven = found
        return _completed(clean(frame.filter(proven)), texts, columns, proven, False, manner)
    size = max(_SMALLEST, -(-len(texts) // _SPLIT))
    if size >= len(texts):
        return _decode_slow(texts, columns, False, manner)
    return stack([_decode_blocks(texts.slice(i, size), columns, manner) for i in range(0, len(texts), size)])


def _completed(
    made: Decoded, texts: pl.Series, columns: Sequence[Column], known: pl.Series, unwrapped: bool, manner: Manner
) -> Decoded:
    """`made` of the texts that are `known`; the others line by line, in their places."""
    if known.all():
        return made
    return in_place(known, made, _decode_slow(texts.filter(~known), columns, unwrapped, manner))


def _decode_bare(texts: pl.Series, column: Column, manner: Manner) -> Decoded:
    """Bare values: those in the form that everybody writes at once, the others line by line."""
    found = _bare(texts, column) if len(texts) >= _FEW else None
    if found is None:
        return _decode_slow(texts, [column], True, manner)
    values, proven = found
    nothing = texts.is_null() | (texts == "null").fill_null(True)
    known = proven | nothing
    frame, _, error = clean(values.set(~proven, None).alias(column.name).to_frame().filter(known))
    made = frame, nothing.filter(known).alias("is_null_value"), error
    return _completed(made, texts, [column], known, True, manner)


def _bare(texts: pl.Series, column: Column) -> tuple[pl.Series, pl.Series] | None:
    """Values of bare JSON texts, and where they are proven right; None for a type that is not read so.

    An integer is proven by its text being the one that would be written; a string by its quotes with nothing between
    them that an escape or another quote could be.
    """
    match column.type:
        case S.SMALLINT | S.INT | S.BIGINT:
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


# ------------------------------------------------------------------- writing


def encode_values(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], *, unwrapped: bool = False) -> pl.Series:
    """One JSON text per row. Each pair is a column of `frame` and the field it becomes.

    `unwrapped`: the bare value of the only column; a null value then is the text `null`.
    """
    if unwrapped:
        if len(columns) != 1:
            raise ValueError("an unwrapped value has exactly one column")
        name, column = columns[0]
        return json_text(frame.get_column(name), column.type).fill_null("null").rename("value")
    return joined(value_pieces(frame, columns), frame.height)


def value_pieces(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]]) -> list[Piece]:
    """The pieces of JSON texts that are not `unwrapped`."""
    return object_pieces([c.name for _, c in columns], [in_json(frame.get_column(name), c.type) for name, c in columns])
