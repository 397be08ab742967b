"""Numbers of rows that have no key of their own: RisingWave's hidden `_row_id`.

In: the place of a row: of a statement's row its epoch and number in it, of any other record its partition and offset.
Out: its number; the record key that holds it.
Rule: RW-7: the same place gives the same number for ever. Numbers of statements in a store lie above 2^60 (their epochs
are times of day since 1979), those of partitions and offsets below.
"""

from __future__ import annotations

import re

import polars as pl

EPOCH_BITS = 22  # of the number of a statement's row: the row within its epoch
OFFSET_BITS = 44

_KEY = r'^\{"_row_id": ?([0-9]{1,19})\}$'
_GIVEN = re.compile(_KEY)


def key_of(epoch: int, n: int) -> str:
    """The record key of the n-th row of an epoch: numbers rise with epochs and places."""
    return f'{{"_row_id":{(epoch << EPOCH_BITS) + n}}}'


def key_at(partition: int, offset: int) -> str:
    """The record key that the row of another record would have."""
    return f'{{"_row_id":{(partition << OFFSET_BITS) + offset}}}'


def given(key: str | None) -> bool:
    """Whether a record key holds the number of a row."""
    return key is not None and _GIVEN.match(key) is not None


def row_ids(partition: int) -> pl.Expr:
    """The numbers of the records of a partition, of `_key` and `_offset`."""
    made = pl.col("_offset").cast(pl.Int64) + (partition << OFFSET_BITS)
    return pl.coalesce(pl.col("_key").str.extract(_KEY).cast(pl.Int64, strict=False), made)
