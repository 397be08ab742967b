"""The interval join from Kafka to Kafka with Avro, see `kafka.py`: a benchmark of its own, since it needs a registry.

In: sizes. Out: the same table, with Avro in place of JSON on both sides.
Rule: none.
"""

from __future__ import annotations

from benchmarks import kafka
from benchmarks.harness import Sizes
from benchmarks.report import Report


def run(sizes: Sizes) -> Report:
    return kafka.run(sizes, avro=True)
