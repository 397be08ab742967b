"""Data for the benchmarks: sides of rows with keys and times, as Parquet files or as JSON lines.

In: rows a side, files a side, number of keys, a folder. Out: `<side>/NNNN.parquet` with k, k2, t (ms), v, s and ts.
Rule: the same arguments give the same rows. Each file spans one minute of event time, rows in order of time, and the
files of all sides stand side by side. At last, the side `r` has two rows of their own key far in the future: clocks
pass everything, and an outer join pads all that is unmatched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from braid.store import opened
from braid.topics import TopicStore

START = 1_700_000_000_000
SPAN = 60_000  # ms of event time per file
LATER = 3_600_000
WRITTEN = 1_700_000_000  # Spark takes files in the order of the times they were written at


def make(rows: int, files: int, keys: int, folder: Path, sides: str = "lr") -> None:
    rng = np.random.default_rng(0)
    names = np.array([f"name{i}" for i in range(1000)])
    for side in sides:
        (folder / side).mkdir(parents=True, exist_ok=True)
        for f in range(files):
            n = rows // files
            t = np.sort(rng.integers(f * SPAN, (f + 1) * SPAN, n)) + START
            columns = {
                "k": rng.integers(0, keys, n),
                "k2": rng.integers(0, keys, n),
                "t": t,
                "v": rng.integers(0, 1000, n),
                "s": names[np.arange(n) % 1000],
            }
            _write(pl.DataFrame(columns), folder / side / f"{f:04d}.parquet", f)
    if "r" in sides:
        for i in range(2):
            last = {"k": [-1], "k2": [-1], "t": [START + files * SPAN + (i + 1) * LATER], "v": [0], "s": [""]}
            _write(pl.DataFrame(last), folder / "r" / f"9999-{i}.parquet", files + i)


def _write(frame: pl.DataFrame, path: Path, number: int) -> None:
    frame.with_columns(ts=pl.from_epoch("t", time_unit="ms").dt.replace_time_zone("UTC")).write_parquet(path)
    os.utime(path, (WRITTEN + number, WRITTEN + number))


def first_files(data: Path, count: int, folder: Path) -> None:
    """The first files of each side, and the rows at the end."""
    for side in sorted(p.name for p in data.iterdir() if p.is_dir()):
        (folder / side).mkdir(parents=True, exist_ok=True)
        for path in sorted((data / side).glob("*.parquet")):
            if path.name.startswith("9999") or int(path.stem) < count:
                os.link(path, folder / side / path.name)


def make_table(keys: int, folder: Path) -> None:
    """One row a key."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = pl.DataFrame({"k": np.arange(keys)}).with_columns(s=pl.format("name{}", pl.col("k") % 1000))
    frame.write_parquet(folder / "0000.parquet")


def json_lines(rows: int, files: int, keys: int, seed: int) -> Iterator[pl.Series]:
    """Records as the topic store has them, file by file: {"key":1,"value":{"V":2,"S":"name1"},"timestamp":…}."""
    rng = np.random.default_rng(seed)
    for f in range(files):
        n = rows // files
        made = pl.DataFrame(
            {
                "k": rng.integers(0, keys, n),
                "v": rng.integers(0, 1000, n),
                "s": rng.integers(0, 1000, n),
                "t": np.sort(rng.integers(f * SPAN, (f + 1) * SPAN, n)) + START,
            }
        )
        parts = ['{"key":', "k", ',"value":{"V":', "v", ',"S":"name', "s", '"},"timestamp":', "t", "}"]
        exprs = [pl.col(x) if x in made.columns else pl.lit(x) for x in parts]
        yield made.select(pl.concat_str(exprs)).to_series()


def write_topic(store: Path, name: str, rows: int, files: int, keys: int, seed: int) -> None:
    """The same as a topic of one partition, a segment a file."""
    topics = TopicStore(opened(store))
    topics.create(name, 1)
    for lines in json_lines(rows, files, keys, seed):
        topics.append_lines(name, lines)
