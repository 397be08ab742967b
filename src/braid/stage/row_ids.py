"""Numbers of rows that have no key of their own: RisingWave's hidden `_row_id`.

In: the place of a row: of a statement's row its epoch and number in it, of any other record its partition and offset.
Out: its number; the record key that holds it.
Rule: RW-7: the same place gives the same number for ever. Numbers of statements in a store lie above 2^60 (their epochs
are times of day since 1979), those of partitions and offsets below.
"""

from __future__ import annotations

import polars as pl

EPOCH_BITS = 22  # of the number of a statement's row: the row within its epoch
OFFSET_BITS = 44

_KEY = r'^\{"_row_id": ?([0-9]{1,19})\}$'


def key_of(epoch: int, n: int) -> str:
    """The record key of the n-th row of an epoch: numbers rise with epochs and places."""
    return f'{{"_row_id":{(epoch << EPOCH_BITS) + n}}}'


def row_ids(partition: pl.Expr) -> pl.Expr:
    """The numbers of records, of `_key`, `_offset` and their partition."""
    made = pl.col("_offset").cast(pl.Int64) + partition.cast(pl.Int64) * (1 << OFFSET_BITS)
    return pl.coalesce(pl.col("_key").str.extract(_KEY).cast(pl.Int64, strict=False), made)
