"""Parquet files that somebody else wrote: what they hold, and rows of them by number.

In: a path. Out: its schema and number of rows; a part of its rows, as they stand there.
Rule: what cannot be read is refused with the file's name, whatever its bytes are. Rows are taken where they lie: what
is asked for is unfolded, with the page (of 2 GiB at most) in which it stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from braid.errors import BraidError

COLUMNS = 10_000  # of a file; those within structures count, too
FOOTER = 256 << 20  # bytes

_BAD = (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError, ValueError)


@contextmanager
def _refused(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except _BAD as e:
        what = " ".join(str(e).split())[:200]
        raise BraidError(f"{path} is not a Parquet file: {what}", "is it complete?") from None


def schema_of(path: str) -> tuple[dict[str, pl.DataType], int]:
    """The columns, and how many rows there are."""
    with _refused(path), open(path, "rb") as f:
        f.seek(max(os.fstat(f.fileno()).st_size - 8, 0))
        footer, end = int.from_bytes(f.read(4), "little"), f.read(4)
        if end == b"PAR1" and footer > FOOTER:
            raise ValueError(f"its footer claims {footer} bytes, {FOOTER} are the most")
        if end != b"PAR1":
            raise ValueError("it does not end with PAR1")
        found = pq.read_metadata(f)
        if found.num_columns > COLUMNS:
            raise ValueError(f"it has {found.num_columns} columns, {COLUMNS} are the most")
        groups = [found.row_group(i).num_rows for i in range(found.num_row_groups)]
        if min(groups, default=0) < 0 or sum(groups) != found.num_rows:
            raise ValueError(f"it claims {found.num_rows} rows, and its row groups have others")
        return dict(pl.read_parquet_schema(path)), int(found.num_rows)


def rows_of(path: str, columns: Sequence[str], start: int, count: int) -> pl.DataFrame:
    """Rows `start` to `start + count - 1`, or as many as there are."""
    with _refused(path):
        return pl.scan_parquet(path, glob=False).select(columns).slice(start, count).collect()
