"""Rows that a query dropped, and why: `drops/<query>/` of a store.

In: drops of a batch, staged by tasks. Out: one file of lines per batch, once that batch is committed.
Rule: a file begins with a line that has the checksum of its name and of all the lines behind it, which is compared
before the first of them is given. (Files of older versions have none.) A replayed batch replaces its own file. Call
`publish_drops` right after the batch's commit, also where `publish` says that the batch was there before: a crash
between the two is mended by the replay.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any
from uuid import uuid4

import polars as pl

from braid.errors import BraidError
from braid.store import is_url
from braid.topics.documents import room_of
from braid.topics.files import (
    check_name,
    is_name,
    lines_of,
    members,
    open_regular,
    parsed,
    reach,
    refuse_link,
    remove,
    scratch_name,
    text,
    why,
    write_atomic,
)

_BLOCK = 8 << 20  # bytes taken at once
_HEAD = re.compile(rb'\{"crc":"([0-9a-f]{8})"\}\n')
_LENGTH = len('{"crc":"00000000"}\n')
_BATCH = re.compile(r"(?P<run>.+)~(?P<batch>[0-9]{20})(~[0-9]+)?\.jsonl")

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


def stage_drops(root: str, query: str, batch: int, task: int, drops: pl.DataFrame, *, run: str = "run") -> str | None:
    """A task's drops of a batch; the name of what was staged, None where there are none."""
    if not drops.height:
        return None
    name = f"{_shown(run, batch)}~{task:06d}~{uuid4().hex[:8]}.jsonl"  # of this attempt only
    data: bytes = format_drops(drops).str.join("\n").cast(pl.Binary).item() + b"\n"
    _place(root, query).stage(name, data)
    return name


def write_drops(root: str, query: str, batch: int, task: int, drops: pl.DataFrame, *, run: str) -> None:
    """A task's drops, shown at once: for results whose commit is not ours."""
    name = stage_drops(root, query, batch, task, drops, run=run)
    if name is not None:
        _place(root, query).show(f"{_shown(run, batch)}~{task:06d}.jsonl", [name])  # the same for each attempt


def publish_drops(root: str, query: str, batch: int, staged: Sequence[str], *, run: str = "run") -> None:
    """Shows the drops of a committed batch. `run` is one life of the query's checkpoint; later runs sort later."""
    if staged:
        _place(root, query).show(f"{_shown(run, batch)}.jsonl", sorted(staged))


def clean_drops(root: str, query: str) -> None:
    """Removes what was staged and never shown. Call it when the query starts."""
    _place(root, query).clean()


def forget_drops(root: str, query: str) -> None:
    """All that a query has dropped goes."""
    _place(root, query).forget()


def copied(root: str, to: str, query: str) -> None:
    """All that a query has dropped, in another store."""
    target = _place(to, query)
    for called, path in _place(root, query).files():
        name = _name_of(called)
        data = b"".join(line + b"\n" for line in _lines(called, path))
        target.stage(f"copy-{name}", data)
        target.show(name, [f"copy-{name}"])


def batches(root: str, query: str, run: str) -> set[int]:
    """The batches of a life of a query that have dropped something."""
    found = (_BATCH.fullmatch(name) for name in _place(root, query).names())
    return {int(m["batch"]) for m in found if m is not None and m["run"] == run}


def check(root: str, query: str) -> None:
    """All that a query has dropped is as it was written, and can be read."""
    for _ in each_drop(root, query):
        pass


def with_drops(root: str) -> list[str]:
    """The queries that have dropped something."""
    if is_url(root):
        return sorted(filter(is_name, {file.split("/")[1] for file, _ in room_of(root).list("drops")}))
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(root, "drops")) as entries:
        return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and is_name(e.name))
    return []


def _shown(run: str, batch: int) -> str:
    return f"{check_name(run, 'run')}~{batch:020d}"


def drop_lines(root: str, query: str) -> Iterator[tuple[str, int, bytes]]:
    """The lines of all drops of a query, batch by batch: file, number, line."""
    for called, path in _place(root, query).files():
        for number, line in enumerate(_lines(called, path), 1):
            yield called, number, line


def _lines(called: str, path: str) -> Iterator[bytes]:
    """The lines of a file of drops, when all are what was written."""
    with os.fdopen(open_regular(path), "rb") as f:
        head = _HEAD.fullmatch(f.read(_LENGTH))
        size = os.fstat(f.fileno()).st_size
        if (head is None and not size) or (head is not None and int(head[1], 16) != _sum(_name_of(called), f.read)):
            raise BraidError(f"{called} is damaged: it is not what its checksum says", _AWAY)
    found = lines_of(path)
    if head is not None:
        next(found)
    return found


_AWAY = "put it back from a copy, or take it away"


def _name_of(called: str) -> str:
    return os.path.basename(called).replace("=", "~")


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


def each_drop(root: str, query: str) -> Iterator[dict[str, Any]]:
    """The drops of a query, one by one."""
    for path, number, line in drop_lines(root, query):
        try:
            x = members(parsed(line))
            text(x["reason"], "reason")
        except (ValueError, KeyError) as e:
            raise BraidError(f"{path} is damaged in line {number}: {why(e)}", _AWAY) from None
        yield x


def read_drops(root: str, query: str) -> list[dict[str, Any]]:
    return list(each_drop(root, query))


# --------------------------------------------------------------- where they lie


def _place(root: str, query: str) -> _InFolder | _InRoom:
    check_name(query, "query")
    return _InRoom(root, query) if is_url(root) else _InFolder(root, query)


class _InFolder:
    def __init__(self, root: str, query: str) -> None:
        parent = os.path.join(root, "drops")
        self._folder = os.path.join(parent, query)
        refuse_link(parent)
        refuse_link(self._folder)
        self._staging = os.path.join(self._folder, ".staging")

    def stage(self, name: str, data: bytes) -> None:
        os.makedirs(self._staging, exist_ok=True)
        write_atomic(os.path.join(self._staging, name), data, self._staging)

    def show(self, name: str, staged: Sequence[str]) -> None:
        sources = [os.path.join(self._staging, os.path.basename(file)) for file in staged]
        temporary = scratch_name(os.path.join(self._staging, name))
        with open(temporary, "x+b") as out:
            out.seek(_LENGTH)
            for source in sources:
                with open(source, "rb") as f:
                    shutil.copyfileobj(f, out, _BLOCK)
            _headed(out, name)
        reach("drops joined")
        os.replace(temporary, os.path.join(self._folder, name))
        reach("drops published")
        for source in sources:
            remove(source)

    def clean(self) -> None:
        if os.path.isdir(self._staging):
            for name in os.listdir(self._staging):
                remove(os.path.join(self._staging, name))

    def forget(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def names(self) -> list[str]:
        there = os.listdir(self._folder) if os.path.isdir(self._folder) else []
        return sorted(name for name in there if name.endswith(".jsonl"))

    def files(self) -> Iterator[tuple[str, str]]:
        for path in (os.path.join(self._folder, name) for name in self.names()):
            yield path, path


class _InRoom:
    """Names are those of a folder, with `=` for `~`."""

    def __init__(self, root: str, query: str) -> None:
        self._room, self._folder = room_of(root), f"drops/{query}"

    def stage(self, name: str, data: bytes) -> None:
        self._room.create(self._name("staged", name), data)

    def show(self, name: str, staged: Sequence[str]) -> None:
        sources = [self._name("staged", file) for file in staged]
        with tempfile.NamedTemporaryFile(prefix="braid-drops-") as out:
            out.seek(_LENGTH)
            for source in sources:
                self._fetch(source, out)
            _headed(out, name)
            self._room.put(self._name("shown", name), out.name)
        reach("drops published")
        self._room.delete(*sources)

    def clean(self) -> None:
        self._room.delete(*(name for name, _ in self._room.list(f"{self._folder}/staged")))

    def forget(self) -> None:
        self._room.delete(*(name for name, _ in self._room.list(self._folder)))

    def names(self) -> list[str]:
        return [_name_of(name) for name in self._shown()]

    def _shown(self) -> list[str]:
        return sorted(name for name, _ in self._room.list(f"{self._folder}/shown"))

    def files(self) -> Iterator[tuple[str, str]]:
        for name in self._shown():
            with tempfile.NamedTemporaryFile(prefix="braid-drops-") as copy:
                self._fetch(name, copy)
                copy.flush()
                yield f"{self._room.url}/{name}", copy.name

    def _name(self, where: str, name: str) -> str:
        return f"{self._folder}/{where}/{name.replace('~', '=')}"

    def _fetch(self, name: str, to: IO[bytes]) -> None:
        at = 0
        while data := self._room.range(name, at, _BLOCK):
            to.write(data)
            at += len(data)
