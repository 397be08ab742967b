"""Rows that a query dropped, and why: `drops/<query>/` of a store.

In: drops of a batch, staged by tasks. Out: one file of lines per batch, once that batch is committed.
Rule: a file begins with a line that has the checksum of its name and of all the lines behind it, which is compared
before the first of them is given. (Files of older versions have none.) A replayed batch replaces its own file. Call
`publish_drops` right after the batch's commit, also where `publish` says that the batch was there before: a crash
between the two is mended by the replay.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any
from uuid import uuid4

import polars as pl

from braid.errors import BraidError
from braid.store import ObjectStore
from braid.store.reading import blocks_in, lines_in
from braid.topics.files import (
    check_name,
    is_name,
    members,
    parsed,
    reach,
    text,
    why,
)

_BLOCK = 8 << 20  # bytes taken at once
_HEAD = re.compile(rb'\{"crc":"([0-9a-f]{8})"\}\n')
_LENGTH = len('{"crc":"00000000"}\n')
_BATCH = re.compile(r"(?P<run>.+)~(?P<batch>[0-9]{20})(~[0-9]+)?\.jsonl")

_BATCH_OF = re.compile(r"~([0-9]{20})~")  # in the name of what was staged

DROPS = {
    "reason": pl.String,
    "operator": pl.String,
    "topic": pl.String,
    "partition": pl.Int32,
    "offset": pl.Int64,
    "timestamp": pl.Int64,
    "clock": pl.Int64,
    "_key": pl.String,  # JSON text
    "_value": pl.String,  # JSON text
    "_raw": pl.Binary,  # the line, where key and value cannot be told
    "message": pl.String,
}


def format_drops(drops: pl.DataFrame) -> pl.Series:
    """Lines of drops; columns of `DROPS` that are missing are null."""
    frame = drops.select((pl.col(c) if c in drops.columns else pl.lit(None)).cast(t).alias(c) for c, t in DROPS.items())
    if not frame.height:
        return pl.Series("line", [], pl.String)
    head = pl.struct("reason", "operator", "topic", "partition", "offset", "timestamp", "clock").struct.json_encode()
    raw = pl.lit('"raw":"') + pl.col("_raw").bin.encode("base64") + pl.lit('"')
    value = pl.lit('"value":') + pl.col("_value").str.replace_all("\n", " ", literal=True).fill_null("null")
    message = pl.struct("message").struct.json_encode().str.strip_prefix("{")
    return frame.select(
        line=pl.concat_str(
            head.str.strip_suffix("}"),
            pl.lit(',"key":'),
            pl.col("_key").str.replace_all("\n", " ", literal=True).fill_null("null"),
            pl.lit(","),
            pl.coalesce(raw, value),
            pl.lit(","),
            message,
        )
    ).to_series()


def stage_drops(
    root: ObjectStore, query: str, batch: int, task: int, drops: pl.DataFrame, *, run: str = "run"
) -> str | None:
    """A task's drops of a batch; the name of what was staged, None where there are none."""
    if not drops.height:
        return None
    name = f"{_shown(run, batch)}~{task:06d}~{uuid4().hex[:8]}.jsonl"  # of this attempt only
    data: bytes = format_drops(drops).str.join("\n").cast(pl.Binary).item() + b"\n"
    _stage(root, query, name, data)
    return name


def write_drops(root: ObjectStore, query: str, batch: int, task: int, drops: pl.DataFrame, *, run: str) -> None:
    """A task's drops, shown at once: for results whose commit is not ours."""
    name = stage_drops(root, query, batch, task, drops, run=run)
    if name is not None:
        _show(root, query, f"{_shown(run, batch)}~{task:06d}.jsonl", [name])  # the same for each attempt


def publish_drops(root: ObjectStore, query: str, batch: int, staged: Sequence[str], *, run: str = "run") -> None:
    """Shows the drops of a committed batch. `run` is one life of the query's checkpoint; later runs sort later."""
    if staged:
        _show(root, query, f"{_shown(run, batch)}.jsonl", sorted(staged))


def clean_drops(root: ObjectStore, query: str, published: int) -> None:
    """Removes what was staged for batches up to the last that is `published`, and never shown. Call it when the query
    starts. What is staged for a later one may be that of a driver which has taken over meanwhile."""
    staged = ((_BATCH_OF.search(name), lies) for name, lies in _listed(root, query, staged=True).items())
    root.delete(*(lies for m, lies in staged if m is None or int(m[1]) <= published))


def forget_drops(root: ObjectStore, query: str) -> None:
    """All that a query has dropped goes."""
    root.at(_folder(query)).clear()


def copied(root: ObjectStore, to: ObjectStore, query: str) -> None:
    """All that a query has dropped, in another store."""
    for name, lies in sorted(_listed(root, query).items()):
        data = b"".join(line + b"\n" for line in _lines(root, lies))
        _stage(to, query, f"copy-{name}", data)
        _show(to, query, name, [f"copy-{name}"])


def batches(root: ObjectStore, query: str, run: str) -> set[int]:
    """The batches of a life of a query that have dropped something."""
    found = (_BATCH.fullmatch(name) for name in _listed(root, query))
    return {int(m["batch"]) for m in found if m is not None and m["run"] == run}


def check(root: ObjectStore, query: str) -> None:
    """All that a query has dropped is as it was written, and can be read."""
    for _ in each_drop(root, query):
        pass


def with_drops(root: ObjectStore) -> list[str]:
    """The queries that have dropped something."""
    return sorted(filter(is_name, {name.split("/")[0] for name in root.names("drops")}))


def _shown(run: str, batch: int) -> str:
    return f"{check_name(run, 'run')}~{batch:020d}"


def drop_lines(root: ObjectStore, query: str) -> Iterator[tuple[str, int, bytes]]:
    """The lines of all drops of a query, batch by batch: file, number, line."""
    for _, name in sorted(_listed(root, query).items()):
        for number, line in enumerate(_lines(root, name), 1):
            yield root.called(name), number, line


def _lines(root: ObjectStore, name: str) -> Iterator[bytes]:
    """The lines of a file of drops, when all are what was written."""
    blocks = blocks_in(root, name)
    first = next(blocks, b"")
    head = _HEAD.fullmatch(first[:_LENGTH])
    if head is not None:
        crc = zlib.crc32(first[_LENGTH:], zlib.crc32(os.path.basename(name).replace("=", "~").encode()))
        for data in blocks:
            crc = zlib.crc32(data, crc)
    if not first or (head is not None and int(head[1], 16) != crc):
        raise BraidError(f"{root.called(name)} is damaged: it is not what its checksum says", _AWAY)
    found = lines_in(root, name)
    if head is not None:
        next(found)
    return found


_AWAY = "put it back from a copy, or take it away"


def _sum(name: str, read: Callable[[int], bytes]) -> int:
    crc = zlib.crc32(name.encode())
    while data := read(_BLOCK):
        crc = zlib.crc32(data, crc)
    return crc


def _headed(out: IO[bytes], name: str) -> None:
    """What was written behind room for it gets its first line."""
    out.seek(_LENGTH)
    crc = _sum(name, out.read)
    out.seek(0)
    out.write(b'{"crc":"%08x"}\n' % crc)
    out.flush()


def each_drop(root: ObjectStore, query: str) -> Iterator[dict[str, Any]]:
    """The drops of a query, one by one."""
    for path, number, line in drop_lines(root, query):
        try:
            x = members(parsed(line))
            text(x["reason"], "reason")
        except (ValueError, KeyError) as e:
            raise BraidError(f"{path} is damaged in line {number}: {why(e)}", _AWAY) from None
        yield x


def read_drops(root: ObjectStore, query: str) -> list[dict[str, Any]]:
    return list(each_drop(root, query))


# --------------------------------------------------------------- where they lie

_STAGING = (".staging", "staged")  # the second: of older versions, in a bucket


def _folder(query: str) -> str:
    return f"drops/{check_name(query, 'query')}"


def _stage(root: ObjectStore, query: str, name: str, data: bytes) -> None:
    root.write(f"{_folder(query)}/{_STAGING[0]}/{name}", data)


def _show(root: ObjectStore, query: str, name: str, staged: Sequence[str]) -> None:
    folder = _folder(query)
    sources = [f"{folder}/{_STAGING[0]}/{os.path.basename(file)}" for file in staged]
    written = root.scratch(f"{folder}/{name}")
    with open(written, "x+b") as out:
        out.seek(_LENGTH)
        for source in sources:
            for data in blocks_in(root, source):
                out.write(data)
        _headed(out, name)
    reach("drops joined")
    root.take(f"{folder}/{name}", written)
    reach("drops published")
    root.delete(*sources)


def _listed(root: ObjectStore, query: str, staged: bool = False) -> dict[str, str]:
    """What is shown of a query, or `staged`: by its name where it lies. In a bucket older versions wrote `=` for `~`,
    and what is shown into a folder of its own."""
    found = [name for name, _ in root.list(_folder(query))]
    mine = [name for name in found if (name.split("/")[2] in _STAGING) is staged]
    return {os.path.basename(name).replace("=", "~"): name for name in sorted(mine, reverse=True)}
