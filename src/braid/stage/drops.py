"""Dropped rows as users read them.

In: frames of `ingest.DROPS`. Out: dicts `{reason, operator, topic, partition, offset, timestamp, clock, key, value,
message}` (docs/semantics/drops.md, "What a drop shows").
Rule: where a row comes from follows from the position of its record; nothing is dropped without a line here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl

from braid.lower.physical import Plan
from braid.operators.changes import BY, POS

Find = Callable[[int], tuple[str | None, int | None, int | None]]

FIELDS = ("reason", "operator", "topic", "partition", "offset", "timestamp", "clock", "key", "value", "message")


def located(dropped: pl.DataFrame, plan: Plan, find: Find) -> list[dict[str, Any]]:
    """The drops in position order, each with topic, partition and offset."""
    made = []
    for row in dropped.sort(POS, maintain_order=True).iter_rows(named=True):
        if row["topic"] is None:
            row["topic"], row["partition"], row["offset"] = find(row[BY])
        made.append({f: row[f] for f in FIELDS} | {"key": as_json(row["key"]), "value": as_json(row["value"])})
    return made


def as_json(text: str | None) -> Any:
    """The text's meaning, or the text where it is no JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
