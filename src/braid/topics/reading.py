"""Records of a topic by offset.

In: a topic, a partition, a range of offsets. Out: lines with their offsets; positions beside them.
Rule: the same range gives the same rows for ever. Only segments that overlap the range are opened.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import polars as pl

from braid.errors import BraidError, anew
from braid.topics.commit import POSITIONS
from braid.topics.envelope import parse_envelope
from braid.topics.files import read_small
from braid.topics.log import Topic
from braid.topics.segments import (
    HOLE,
    MOST,
    Segment,
    TornError,
    check_sum,
    positions_name,
    read_bytes,
    split_lines,
    too_much,
    torn,
)
from braid.topics.view import View

PAGE = 64 << 20  # bytes of a page, about


def read(topic: Topic, partition: int, first: int, last: int) -> pl.DataFrame:
    """`_offset` and `_line` of [first, last), as far as it exists.

    `_line` is null where a line is blank or not UTF-8, and `_raw` then has its bytes; elsewhere `_raw` is null.
    """
    view = topic.holding(partition, last)
    first, last = max(first, view.begins[partition].first), min(last, view.end(partition))
    data, segments = _data(topic, view, partition, first, last)
    offsets = pl.int_range(first, max(first, last), eager=True).alias("_offset")
    return _without_holes(pl.DataFrame([offsets]).hstack(split_lines(data)), segments)


def _without_holes(rows: pl.DataFrame, segments: Sequence[Segment]) -> pl.DataFrame:
    """Lines that stand for records which compaction has taken away are none."""
    compacted = [s for s in segments if s.extent.written is not None]
    if not compacted:
        return rows
    there = pl.any_horizontal(*(pl.col("_offset").is_between(s.first, s.end, closed="left") for s in compacted))
    return rows.filter((there & (pl.col("_line") == HOLE)).not_().fill_null(True))


def page_end(topic: Topic, partition: int, first: int, last: int) -> int:
    """Where a page from `first` on ends: at `last`, or before where the segments' sizes say that it would be large."""
    held = 0
    for s in topic.holding(partition, last).overlapping(partition, first, last):
        held += s.extent.size
        if held > PAGE:
            few = max(PAGE * s.extent.count // s.extent.size, 1)
            return min(last, first + few) if s.first <= first else s.first
    return last


def bytes_between(topic: Topic, partition: int, first: int, last: int) -> bytes:
    """The lines of [first, last), which are there, each with its line feed."""
    return _data(topic, topic.holding(partition, last), partition, first, last)[0]


def _data(topic: Topic, view: View, partition: int, first: int, last: int) -> tuple[bytes, list[Segment]]:
    """The lines of a range, and the segments that they are from. Where small segments were rolled up meanwhile, the
    same lines from the larger ones; where records were taken away, no lines for them."""
    segments = list(view.overlapping(partition, first, last))
    while True:
        parts: list[bytes] = []
        held = 0
        topic.prepare(segments)
        try:
            for s in segments:
                parts.append(_lines(topic, s, first, last))
                held += len(parts[-1])
                if held > MOST:
                    raise too_much(topic.partition_path(partition))
            return b"".join(parts), segments
        except TornError:
            view = topic.anew()
            now = list(view.overlapping(partition, first, last))
            if now == segments:
                raise
            if first < (start := view.begins[partition].first):
                raise taken_away(topic.name, partition, first, start) from None
            segments = now


def taken_away(topic: str, partition: int, wanted: int, start: int) -> BraidError:
    """That a record is not there any more."""
    what = (
        f"partition {partition} of the topic {topic} begins at {start}, and record {wanted} is to be read: it is gone"
    )
    return BraidError(what, f"the topic keeps its records for a time only (braid retain); {anew()}")


def _lines(topic: Topic, segment: Segment, first: int, last: int) -> bytes:
    """The part of a segment that is in the range. Its checksum is compared, until all of it was."""
    which = (segment.partition, segment.first)
    start, end = max(first, segment.first), min(last, segment.end)
    whole = (start, end) == (segment.first, segment.end)
    check = which not in topic.verified
    data = topic.opened(
        segment, lambda path: read_bytes(path, segment.extent, start - segment.first, end - segment.first, check)
    )
    if check and (whole or len(segment.extent.starts) < 2):
        topic.verified.add(which)
    return data


def read_positions(topic: Topic, partition: int, first: int, last: int) -> pl.DataFrame:
    """`_offset` and the positions (`POSITIONS`) of [first, last); null for records that were written without."""
    view = topic.view()
    first, last = max(first, view.begins[partition].first), min(last, view.end(partition))
    parts = []
    for s in view.overlapping(partition, first, last):
        parts.append(positions_of(topic, s))
        skip = max(first - s.first, 0)
        parts[-1] = parts[-1].slice(skip, min(last, s.end) - s.first - skip)
    rows = pl.concat(parts) if parts else pl.DataFrame(schema=POSITIONS)
    return pl.DataFrame([pl.int_range(first, max(first, last), eager=True).alias("_offset")]).hstack(rows)


def positions_of(topic: Topic, s: Segment) -> pl.DataFrame:
    """Of all records of a segment; of one without, nulls."""
    if s.positions is None:
        return pl.DataFrame({c: pl.Series([None] * s.extent.count, dtype=t) for c, t in POSITIONS.items()})
    path = os.path.join(topic.partition_path(s.partition), ".positions", positions_name(s.first))
    found = topic.either(path, s.positions, partial(_read_ipc, s.positions_sum))
    if found.height != s.extent.count:
        raise torn(path, f"it has {found.height} rows, its commit says {s.extent.count}")
    return found


def _read_ipc(crc: int | None, path: str) -> pl.DataFrame:
    data = read_small(path, MOST)
    if crc is not None:
        check_sum(zlib.crc32(data), path, crc)
    try:
        return pl.read_ipc(data).select(pl.col(c).cast(t) for c, t in POSITIONS.items())
    except pl.exceptions.PolarsError as e:
        raise torn(path, f"it holds no positions: {e}") from None


def read_parsed(topic: Topic, partition: int, first: int, last: int) -> pl.DataFrame:
    """`_offset`, `_line`, `_raw` and the columns of `ENVELOPE` of [first, last)."""
    lines = read(topic, partition, first, last)
    return lines.hstack(parse_envelope(lines["_line"]))


def records_of(name: str, partition: int, rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of `read_parsed` for people: what their JSON means, and `error` and `raw` where it means nothing.

    Numbers with a fraction are floats here; who needs their digits takes `read_parsed`.
    """
    return [_record(name, partition, row) for row in rows.iter_rows(named=True)]


def read_records(
    topic: Topic,
    first: list[int] | None = None,
    last: list[int] | None = None,
    keep: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows,
) -> list[dict[str, Any]]:
    """Records for people, partition by partition; of rows that `keep` keeps."""
    ends = topic.ends() if last is None else last
    found: list[dict[str, Any]] = []
    for p, end in enumerate(ends):
        found += records_of(topic.name, p, keep(read_parsed(topic, p, first[p] if first else 0, end)))
    return found


def _record(name: str, partition: int, row: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {"topic": name, "partition": partition, "offset": row["_offset"]}
    error = row["error"]
    try:
        record["key"] = _loads(row["_key"])
        record["value"] = _loads(row["_value"])
        record["timestamp"] = row["_t"]
        if row["_headers"] is not None:
            record["headers"] = _loads(row["_headers"])
    except ValueError as e:
        error = error or f"malformed JSON: {e}"
    except RecursionError:
        error = error or "malformed JSON: nested too deeply"
    if row["_window"] is not None:
        record["window"] = [row["_window"]["start"], row["_window"]["end"]]
    if error is not None:
        record |= {"error": error, "raw": row["_line"] if row["_raw"] is None else row["_raw"].decode(errors="replace")}
    return record


def _loads(text: str | None) -> Any:
    return None if text is None else json.loads(text)
