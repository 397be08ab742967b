"""Data for the benchmarks: two sides of rows with keys and times, as Parquet files.

In: rows a side, files a side, number of keys, a folder. Out: `l/NNNN.parquet`, `r/NNNN.parquet` with k, t (ms), v.
Rule: the same arguments give the same rows; each file spans one minute of event time, rows in order of time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

START = 1_700_000_000_000
SPAN = 60_000  # ms of event time per file


def make(rows: int, files: int, keys: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    for side in ("l", "r"):
        (folder / side).mkdir(parents=True, exist_ok=True)
        for f in range(files):
            n = rows // files
            t = np.sort(rng.integers(f * SPAN, (f + 1) * SPAN, n)) + START
            frame = pl.DataFrame({"k": rng.integers(0, keys, n), "t": t, "v": rng.integers(0, 1000, n)})
            frame.with_columns(ts=pl.from_epoch("t", time_unit="ms").dt.replace_time_zone("UTC")).write_parquet(
                folder / side / f"{f:04d}.parquet"
            )
