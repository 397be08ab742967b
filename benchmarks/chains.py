"""Chains of interval joins: see `joins.py`.

In: three streams as Parquet files. Out: Braid beside Spark's chain and beside its own operators in a loop.
Rule: every variant gives the same number of rows.
"""

from __future__ import annotations

from benchmarks.harness import Sizes
from benchmarks.joins import chains
from benchmarks.report import Report


def run(sizes: Sizes) -> Report:
    return chains(sizes)
