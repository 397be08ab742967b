"""A record's line: key, value, time, headers, window.

In: lines of a topic, or columns of records. Out: columns of records, or lines.
Rule: `_key`, `_value` and `_headers` are pieces of the line, letter for letter: no digit of a number is touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import polars as pl

from braid.records.compiled import READ, topic_lines
from braid.records.texts import Column, Piece, as_lines, joined
from braid.types import are_times, is_time

WINDOW = pl.Struct({"start": pl.Int64, "end": pl.Int64})
ENVELOPE: dict[str, pl.DataType | type[pl.DataType]] = {
    "_t": pl.Int64,
    "_key": pl.String,
    "_value": pl.String,
    "_headers": pl.String,
    "_window": WINDOW,
    "error": pl.String,
}
# Raw records: what every source delivers. `_error`: why a record could not be read.
RAW: dict[str, pl.DataType] = {
    "_offset": pl.Int64(),
    "_t": pl.Int64(),
    "_key": pl.String(),
    "_value": pl.String(),
    "_headers": pl.String(),
    "_window": WINDOW,
    "_error": pl.String(),
}

_STRING = r'"(?:[^"\\]|\\.)*"'


def _nested(opening: str, closing: str, depth: int) -> str:
    """A text whose brackets balance, strings aside, down to `depth`."""
    inside = f'(?:[^{opening}{closing}"]|{_STRING})*'
    for _ in range(depth):
        inside = f'(?:[^{opening}{closing}"]|{_STRING}|{opening}{inside}{closing})*'
    return f"{opening}{inside}{closing}"


_OBJECT = _nested(r"\{", r"\}", 6)
_ARRAY = _nested(r"\[", r"\]", 6)
# One JSON value and nothing after it. What stands inside brackets is not judged here, only where they end.
_ONE_VALUE = (
    rf"^(?:null|true|false|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|{_STRING}"
    rf"|{_OBJECT}|{_ARRAY})$"
)
_HEADERS = rf"^\[\s*(?:\[\s*{_STRING}\s*,\s*(?:{_STRING}|null)\s*\]\s*,?\s*)*\]$"
_WINDOW = r"^\[\s*-?[0-9]{1,18}\s*,\s*(?:-?[0-9]{1,18}|null)\s*\]$"
_SHORT = 36  # bytes that hold `, "timestamp": ` with any 64-bit number and the last bracket


class _Style(NamedTuple):
    """How a writer spells the names."""

    key: str
    value: str
    time: str
    headers: str
    window: str


_STYLES = (
    _Style('{"key":', ',"value":', ',"timestamp":', ',"headers":', ',"window":'),
    _Style('{"key": ', ', "value": ', ', "timestamp": ', ', "headers": ', ', "window": '),
)


def parse_envelope(lines: pl.Series) -> pl.DataFrame:
    """The columns of `ENVELOPE`, a row a line. `error` is null where the envelope is fine; the value may still be bad.

    A line in the order key, value, timestamp (as `format_envelope` and `json.dumps` write it) is cut in columns: what
    stands before the first `"value":` must be one key, what stands between it and the tail one value. In valid JSON
    a tail that ends with the line's last bracket belongs to the record itself. Other lines are scanned one by one.
    What the compiled core is sure of is read by it.
    """
    rest = pl.DataFrame({"line": lines.cast(pl.String)}).with_row_index("row")
    done: list[pl.DataFrame] = []
    if (sure := _by_core(rest)) is not None:
        done, rest = [sure[0]], rest.filter(~sure[1])
    for style in _STYLES:
        for tail in (_short_tail, _long_tail):
            if rest.height:
                good, rest = _cut(rest, style, tail)
                if good.height:
                    done.append(good)
    if rest.height or not done:
        scanned = [_scan(line) for line in rest["line"].to_list()]
        frame = pl.DataFrame(scanned, schema=ENVELOPE, orient="row")
        done.append(frame.with_columns(rest["row"]).select("row", *ENVELOPE))
    whole = done[0] if len(done) == 1 else pl.concat(done)
    return (whole if whole["row"].is_sorted() else whole.sort("row")).drop("row")


def _by_core(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series] | None:
    """The rows that the compiled core has read, as columns of the envelope, and which these are; None where it is not
    there, or has read none."""
    found = topic_lines(as_lines(frame["line"]))
    if found is None or len(found.how) != frame.height:  # some text has a line break
        return None
    key, value, time, headers, window = found.columns
    known = (
        pl.Series(found.how == READ) & value.is_not_null() & time.is_not_null() & headers.is_null() & window.is_null()
    )
    if not known.any():
        return None
    columns = {
        "_t": time,
        "_key": key.set(key == "null", None),
        "_value": value.set(value == "null", None),
        "_headers": pl.repeat(None, frame.height, dtype=pl.String, eager=True),
        "_window": pl.repeat(None, frame.height, dtype=WINDOW, eager=True),
        "error": pl.repeat(None, frame.height, dtype=pl.String, eager=True),
    }
    made = pl.DataFrame({"row": frame["row"], **columns})
    return made if known.all() else made.filter(known), known


def _short_tail(frame: pl.DataFrame, style: _Style) -> pl.DataFrame:
    """`,"timestamp":N}`, searched in the last bytes of the line only."""
    ends = frame["line"].str.tail(_SHORT)  # in characters: a cut inside one would not be text
    at = ends.str.find(style.time, literal=True).cast(pl.Int64)
    size = ends.str.len_bytes().cast(pl.Int64)
    found = pl.DataFrame({"end": ends.cast(pl.Binary), "at": at + len(style.time), "tail": size - at})
    digits = (pl.col("at"), (pl.col("tail") - len(style.time) - 1).clip(0))
    return frame.hstack(
        found.select(
            pl.col("end").bin.slice(*digits).cast(pl.String).alias("time"),
            "tail",
            pl.lit(None, pl.String).alias("headers"),
            pl.lit(None, WINDOW).alias("window"),
        )
    )


def _long_tail(frame: pl.DataFrame, style: _Style) -> pl.DataFrame:
    """A tail that may hold headers, then window: what follows the last `"timestamp":`."""
    last = frame["line"].str.split(style.time).list.get(-1, null_on_oob=True)
    text = pl.col("last").cast(pl.Binary)
    size, headers, window = pl.col("size"), pl.col("h"), pl.col("w")

    def piece(start: pl.Expr | int, end: pl.Expr) -> pl.Expr:
        return text.bin.slice(start, (end - start).clip(0)).cast(pl.String)

    found = (
        pl.DataFrame({"last": last})
        .lazy()
        .with_columns(
            (text.bin.size().cast(pl.Int64) - 1).alias("size"),
            pl.col("last").str.find(style.headers, literal=True).cast(pl.Int64).alias("h"),
            pl.col("last").str.find(style.window, literal=True).cast(pl.Int64).alias("w"),
        )
        .with_columns(
            piece(0, pl.coalesce(headers, window, size)).alias("time"),
            piece(headers + len(style.headers), pl.coalesce(window, size)).alias("headers"),
            piece(window + len(style.window), size).alias("window"),
        )
        .with_columns(
            (
                (headers.is_null() | pl.col("headers").str.contains(_HEADERS))
                & (window.is_null() | pl.col("window").str.contains(_WINDOW))
            ).alias("good"),
            pl.col("window").str.strip_chars("[] ").str.split_exact(",", 1).alias("bounds"),
        )
        .with_columns(
            pl.col("bounds").struct[i].str.strip_chars(" ").cast(pl.Int64, strict=False).alias(f"b{i}") for i in (0, 1)
        )
        .select(
            pl.when("good").then("time").alias("time"),
            (size + 1 + len(style.time)).alias("tail"),
            "headers",
            pl.when(pl.col("b0").is_not_null()).then(pl.struct(start="b0", end="b1")).cast(WINDOW).alias("window"),
        )
        .collect()
    )
    return frame.hstack(found)


def _cut(
    frame: pl.DataFrame, style: _Style, tail: Callable[[pl.DataFrame, _Style], pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that could be cut, as columns of the envelope, and the rows that could not, as they were."""
    # Only such lines are cut: then every cut is at an ASCII character, and each piece is text.
    shaped = (frame["line"].str.starts_with(style.key) & frame["line"].str.ends_with("}")).fill_null(False)
    if not shaped.any():
        return frame.clear(), frame
    rest = frame.clear()
    if not shaped.all():
        frame, rest = frame.filter(shaped), frame.filter(~shaped)
    with_tail = tail(frame, style)
    times = with_tail["time"].cast(pl.Int64, strict=False)
    written = times.cast(pl.String) == with_tail["time"]  # as a number is written, not 007
    written = (written & are_times(times)).fill_null(False)
    if not written.any():
        return frame.clear(), pl.concat([frame, rest])
    with_tail = with_tail.with_columns(times.set(~written, None).alias("t"))
    line = pl.col("line").cast(pl.Binary)
    middle = pl.col("at") + len(style.value)
    cut = (
        with_tail.lazy()
        .with_columns(pl.col("line").str.find(style.value, literal=True).cast(pl.Int64).alias("at"))
        .with_columns(
            line.bin.slice(len(style.key), (pl.col("at") - len(style.key)).clip(0)).cast(pl.String).alias("key"),
            line.bin.slice(middle, (line.bin.size().cast(pl.Int64) - middle - pl.col("tail")).clip(0))
            .cast(pl.String)
            .alias("value"),
        )
        .with_columns(
            (
                pl.col("key").str.contains(_ONE_VALUE)
                & pl.col("value").str.contains(_ONE_VALUE)
                & pl.col("t").is_not_null()
            )
            .fill_null(False)
            .alias("good")
        )
        .select(
            "row",
            pl.col("t").alias("_t"),
            pl.when(pl.col("key") != "null").then(pl.col("key")).alias("_key"),
            pl.when(pl.col("value") != "null").then(pl.col("value")).alias("_value"),
            pl.col("headers").alias("_headers"),
            pl.col("window").alias("_window"),
            pl.lit(None, pl.String).alias("error"),
            "good",
        )
        .collect()
    )
    good = cut["good"]
    if good.all():
        return cut.drop("good"), rest
    return cut.filter(good).drop("good"), pl.concat([frame.filter(~good), rest])


class _Row(NamedTuple):
    time: int | None = None
    key: str | None = None
    value: str | None = None
    headers: str | None = None
    window: dict[str, int | None] | None = None
    error: str | None = None


def _no_constant(name: str) -> str:
    raise ValueError(f"{name} is not JSON")


# Numbers stay text while scanning: only where a value ends is asked, and no number is too long to be read.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)
_BLANKS = re.compile(r"[ \t\r\n]*")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_LAST_TIME = re.compile(
    r'\s*,\s*"timestamp"\s*:\s*(-?[0-9]{1,19})\s*(?:,\s*"headers"\s*:.*)?(?:,\s*"window"\s*:.*)?\}\s*$', re.DOTALL
)


def _scan(line: str | None) -> _Row:
    """One line, in any order of names and with any blanks."""
    if line is None or not line.strip():
        return _Row(error="a blank line, or not UTF-8")
    members: dict[str, str] = {}
    at = _skip(line, 0)
    try:
        if line[at] != "{":
            return _Row(error="a record is a JSON object")
        at = _skip(line, at + 1)
        more = line[at] != "}"
        while more:
            name, at = _SCANNER.raw_decode(line, at)
            at = _skip(line, at)
            if line[at] != ":" or not isinstance(name, str):
                return _Row(error=f"malformed JSON at character {at + 1}")
            start = _skip(line, at + 1)
            try:
                at = _SCANNER.raw_decode(line, start)[1]
            except (ValueError, RecursionError):
                return _rescue(line, start, members) if name == "value" else _Row(error=f"malformed {name}")
            members[name] = line[start:at]
            at = _skip(line, at)
            more = line[at] == ","
            if not more and line[at] != "}":
                return _Row(error=f"malformed JSON at character {at + 1}")
            at = _skip(line, at + 1) if more else at
        if _skip(line, at + 1) != len(line):
            return _Row(error="more than one JSON value in the line")
    except IndexError:
        return _Row(error="the line ends too early")
    except (ValueError, RecursionError):
        return _Row(error=f"malformed JSON at character {at + 1}")
    return _row(members)


def _skip(line: str, at: int) -> int:
    blanks = _BLANKS.match(line, at)
    return blanks.end() if blanks else at


def _rescue(line: str, start: int, members: dict[str, str]) -> _Row:
    """The value is not JSON. Where the rest of the envelope can be told from it, the record still has its time."""
    last = _LAST_TIME.search(line, start)
    if last is not None:
        row = _row({**members, "timestamp": last[1], "value": line[start : last.start()]})
    else:
        row = _row({**members, "value": line[start:]})
    return row._replace(error="malformed value")


def _row(members: dict[str, str]) -> _Row:
    """The members of an object, as text, to a row. A second member of one name has replaced the first."""
    time = members.get("timestamp")
    if time is None or time == "null":
        return _Row(error="the record has no timestamp")
    t = _int64(time)
    if t is None:
        return _Row(error=f"the timestamp {time[:40]} is not a whole number of milliseconds")
    if not is_time(t):
        return _Row(error=out_of_range(t))
    key = members.get("key", "null")
    key_text = None if key == "null" else key
    if "value" not in members:
        return _Row(t, key_text, error='the record has no "value"')
    value = members["value"]
    headers = members.get("headers", "null")
    window = _window(members["window"]) if members.get("window", "null") != "null" else None
    error = None
    if headers != "null" and not headers.startswith("["):
        error = "headers are a list of [name, base64]"
    elif members.get("window", "null") != "null" and window is None:
        error = "a window is [start, end], in milliseconds"
    return _Row(t, key_text, None if value == "null" else value, None if headers == "null" else headers, window, error)


def out_of_range(time: int) -> str:
    """What is wrong with a time that no TIMESTAMP can hold."""
    return f"the timestamp {time} is out of range"


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _window(text: str) -> dict[str, int | None] | None:
    bounds = re.fullmatch(r"\[\s*(-?[0-9]+)\s*,\s*(-?[0-9]+|null)\s*\]", text)
    if bounds is None:
        return None
    start, end = _int64(bounds[1]), _int64(bounds[2])
    if start is None or (end is None and bounds[2] != "null"):
        return None
    return {"start": start, "end": end}


def envelope_pieces(key: Sequence[Piece], value: Sequence[Piece], times: pl.Series) -> list[Piece]:
    """The pieces of lines of records without headers and windows."""
    if times.null_count():
        raise ValueError("a record needs a time")
    parts: list[Piece] = ['{"key":', *key, ',"value":', *value, ',"timestamp":', Column(times), "}"]
    return [_in_a_line(x) for x in parts]


def format_envelope(
    keys: pl.Series,
    values: pl.Series,
    times: pl.Series,
    headers: pl.Series | None = None,
    windows: pl.Series | None = None,
) -> pl.Series:
    """Lines of records. Keys, values and headers are JSON texts or null; windows are of type `WINDOW`."""
    if times.null_count():
        raise ValueError("a record needs a time")
    no_headers = headers is None or headers.null_count() == len(headers)
    if no_headers and (windows is None or windows.null_count() == len(windows)):
        return joined(envelope_pieces([Column(keys)], [Column(values)], times), len(times)).rename("line")
    columns = [_one_line(keys).alias("key"), _one_line(values).alias("value"), times.cast(pl.Int64).alias("time")]
    null = pl.lit("null")
    pieces = [
        pl.lit('{"key":'),
        pl.col("key").fill_null(null),
        pl.lit(',"value":'),
        pl.col("value").fill_null(null),
        pl.lit(',"timestamp":'),
        pl.col("time").cast(pl.String),
    ]
    if headers is not None and headers.null_count() < len(headers):
        columns.append(_one_line(headers).alias("headers"))
        pieces.append((pl.lit(',"headers":') + pl.col("headers")).fill_null(""))
    if windows is not None and windows.null_count() < len(windows):
        columns.append(windows.alias("window"))
        window = pl.col("window").struct
        start, end = window.field("start").cast(pl.String), window.field("end").cast(pl.String).fill_null(null)
        pieces.append(pl.concat_str(pl.lit(',"window":['), start, pl.lit(","), end, pl.lit("]")).fill_null(""))
    return pl.DataFrame(columns).select(pl.concat_str(*pieces, pl.lit("}")).alias("line")).to_series()


def _in_a_line(piece: Piece) -> Piece:
    if isinstance(piece, str) or piece.quoted or piece.values.dtype != pl.String:
        return piece
    return Column(_one_line(piece.values))


def _one_line(texts: pl.Series) -> pl.Series:
    """Line feeds inside a JSON text stand between its tokens only, so blanks do as well."""
    texts = texts.cast(pl.String)
    if texts.str.contains("\n", literal=True).any():
        texts = texts.str.replace_all("\n", " ", literal=True)
    return texts
