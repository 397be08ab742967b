"""Wire: what of a source's rows and clock steps travels to the buckets. What follows from the rest stays behind.

In: a leaf, its rows or its steps. Out: fewer columns, and the same frame again.
Rule: bytes are the cost of an exchange. A row's hash follows from its key, a payload column may be a key column once
more, a source's rows have no order within a position, and a step's value is mostly the time in its position. A frame
that still has such a column (it is small, or comes from another stage) is left as it is.
"""

from __future__ import annotations

import polars as pl

from braid.expr.nodes import Col
from braid.lower.physical import Leaf, needs_all
from braid.operators.changes import HASH, HEADERS, POS, SUB, key_column, sequence_of
from braid.operators.clocks import STEPS
from braid.stage.ingest import hash_of_key, keys_of_values, leaf_schema

ENOUGH = 10_000  # rows: fewer travel as they are, the bytes are not worth the work


def _again(leaf: Leaf) -> dict[str, str]:
    """Payload columns that are key columns too: name and key column."""
    partly_null = keys_of_values(leaf)
    payload = {c.name for c in leaf.columns}
    found = {}
    for i, key in enumerate(leaf.keys):
        if isinstance(key, Col) and key.name in payload and i not in partly_null:
            found[key.name] = key_column(i)
    return found


def derived(leaf: Leaf, rows: int = ENOUGH, hashed: bool = False) -> tuple[str, ...]:
    """The columns of so many rows of a leaf that stay behind. `hashed`: bytes cost less than hashes, which go along."""
    return (*(() if hashed else (HASH,)), SUB, *_again(leaf)) if rows >= ENOUGH else ()


def full(leaf: Leaf, rows: pl.DataFrame) -> pl.DataFrame:
    """A leaf's rows with the columns that have stayed behind."""
    if SUB in rows.columns:
        return rows
    again = _again(leaf)
    made = {c.name: c for c in rows.get_columns()}
    if HASH not in made:
        made[HASH] = hash_of_key(rows, leaf.keys, needs_all(leaf.null_key))
    made[SUB] = pl.Series(SUB, [None], dtype=pl.Binary).new_from_index(0, rows.height)
    made |= {name: rows.get_column(key).alias(name) for name, key in again.items()}
    return pl.DataFrame([made[c] for c in (*leaf_schema(leaf), HEADERS) if c in made])


def slim_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps without their values, where these are the times in their positions."""
    timely = steps.select((pl.col("value") == sequence_of(pl.col(POS))).all())
    return steps.drop("value") if timely.item() else steps


def full_steps(steps: pl.DataFrame) -> pl.DataFrame:
    if "value" in steps.columns:
        return steps
    return steps.with_columns(sequence_of(pl.col(POS)).alias("value")).select(list(STEPS))
