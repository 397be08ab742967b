"""BYTES: one column of bytes, as they are on a broker.

In: bytes; their column. Out: see `Format`.
Rule: every value is well formed, the empty one, too; a record without one is no row.
"""

from __future__ import annotations

from braid.records.formats.kafka import Kafka
from braid.types import Scalar, Type


class Bytes(Kafka):
    def holds(self, t: Type) -> bool:
        return t is Scalar.BYTES
