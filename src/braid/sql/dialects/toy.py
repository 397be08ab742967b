"""A toy, to see what a dialect takes: ksqlDB's grammar with names in lower case and durations such as `5s`.

In: the words of ksqlDB. Out: the words `TOY`.
Rule: what is not said here is read as ksqlDB reads it.
"""

from __future__ import annotations

from dataclasses import replace

from braid.sql.dialects.ksqldb import KSQLDB

TOY = replace(
    KSQLDB,
    name="toy",
    title="Toy SQL",
    fold=str.lower,
    units={"MS": 1, "S": 1000, "M": 60_000, "H": 3_600_000},
    glued_units=True,
)
