"""Rows that a query dropped, and why: `DIR/drops/<query>/`.

In: drops of a batch, staged by tasks. Out: one file of lines per batch, once that batch is committed.
Rule: a replayed batch replaces its own file. Call `publish_drops` right after the batch's commit, also where `publish`
says that the batch was there before: a crash between the two is mended by the replay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import polars as pl

from braid.errors import BraidError
from braid.topics.files import (
    check_name,
    lines_of,
    members,
    parsed,
    reach,
    refuse_link,
    remove,
    scratch_name,
    text,
    why,
    write_atomic,
)

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
    """A task's drops of a batch; the name of the staged file, None where there are none."""
    if not drops.height:
        return None
    folder = _folder(root, query)
    staging = os.path.join(folder, ".staging")
    os.makedirs(staging, exist_ok=True)
    name = f"{check_name(run, 'run')}~{batch:020d}~{task:06d}~{uuid4().hex[:8]}.jsonl"  # of this attempt only
    data: bytes = format_drops(drops).str.join("\n").cast(pl.Binary).item() + b"\n"
    write_atomic(os.path.join(staging, name), data, staging)
    return name


def write_drops(root: str, query: str, batch: int, task: int, drops: pl.DataFrame, *, run: str) -> None:
    """A task's drops, shown at once: for results whose commit is not ours."""
    if drops.height:
        name = stage_drops(root, query, batch, task, drops, run=run)
        assert name is not None
        folder = _folder(root, query)
        shown = f"{run}~{batch:020d}~{task:06d}.jsonl"  # the same for each attempt
        os.replace(os.path.join(folder, ".staging", name), os.path.join(folder, shown))


def publish_drops(root: str, query: str, batch: int, staged: Sequence[str], *, run: str = "run") -> None:
    """Shows the drops of a committed batch. `run` is one life of the query's checkpoint; later runs sort later."""
    if not staged:
        return
    folder = _folder(root, query)
    path = os.path.join(folder, f"{check_name(run, 'run')}~{batch:020d}.jsonl")
    sources = [os.path.join(folder, ".staging", os.path.basename(name)) for name in sorted(staged)]
    temporary = scratch_name(os.path.join(folder, ".staging", os.path.basename(path)))
    with open(temporary, "xb") as out:
        for source in sources:
            with open(source, "rb") as f:
                while block := f.read(1 << 20):
                    out.write(block)
    reach("drops joined")
    os.replace(temporary, path)
    reach("drops published")
    for source in sources:
        remove(source)


def clean_drops(root: str, query: str) -> None:
    """Removes what was staged and never shown. Call it when the query starts."""
    staging = os.path.join(_folder(root, query), ".staging")
    if os.path.isdir(staging):
        for name in os.listdir(staging):
            remove(os.path.join(staging, name))


def drop_lines(root: str, query: str) -> Iterator[tuple[str, int, bytes]]:
    """The lines of all drops of a query, batch by batch: file, number, line."""
    folder = _folder(root, query)
    if not os.path.isdir(folder):
        return
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".jsonl")):
        path = os.path.join(folder, name)
        for number, line in enumerate(lines_of(path), 1):
            yield path, number, line


def each_drop(root: str, query: str) -> Iterator[dict[str, Any]]:
    """The drops of a query, one by one."""
    for path, number, line in drop_lines(root, query):
        try:
            x = members(parsed(line))
            text(x["reason"], "reason")
        except (ValueError, KeyError) as e:
            raise BraidError(f"{path} is damaged in line {number}: {why(e)}", "take the file away") from None
        yield x


def read_drops(root: str, query: str) -> list[dict[str, Any]]:
    return list(each_drop(root, query))


def _folder(root: str, query: str) -> str:
    parent = os.path.join(root, "drops")
    folder = os.path.join(parent, check_name(query, "query"))
    refuse_link(parent)
    refuse_link(folder)
    return folder
