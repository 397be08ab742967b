"""The console: rows are printed as they come.

In: rows in order. Out: lines of JSON on standard output.
Rule: a console cannot know what it has shown: a batch that is done again is shown again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from braid.plan import logical
from braid.sinks.interface import Batch, Part, Sink, Wrote
from braid.sinks.rows import shown


@dataclass(frozen=True)
class ConsoleSink(Sink):
    def described(self) -> str:
        return "console"

    def task(self, part: Part) -> _Outputs:
        return _Outputs(part)

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        for doc in staged:
            print(json.loads(doc)["text"], flush=True)


class _Outputs:
    def __init__(self, part: Part) -> None:
        self._part = part
        self._lines: list[str] = []

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> Wrote:
        self._lines += shown(self._part.columns, frame)
        return Wrote(frame)

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        yield json.dumps({"rows": len(self._lines), "text": "\n".join(self._lines)})

    def abort(self) -> None:
        self._lines.clear()
