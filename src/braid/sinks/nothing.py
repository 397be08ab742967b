"""Nowhere: rows are counted (`--sink NAME=none`, `connector = 'blackhole'`).

In: rows. Out: how many they are.
Rule: for measuring what comes before, and where another process writes the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from braid.sinks.interface import Part, Sink, Wrote


@dataclass(frozen=True)
class NoSink(Sink):
    def described(self) -> str:
        return "none"

    def task(self, part: Part) -> _Outputs:
        return _Outputs()


class _Outputs:
    def __init__(self) -> None:
        self._rows = 0

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> Wrote:
        self._rows += frame.height
        return Wrote(frame)

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        yield json.dumps({"rows": self._rows})

    def abort(self) -> None:
        self._rows = 0
