"""Pieces: what one task, or one bucket of a stage, says of a batch to whoever adds it up (`measured.py`).

In: a watch, and what went in and out while it was open. Out: a small JSON object, which travels beside the counts.
Rule: figures only. Nothing is computed from a piece but figures, so two runs of a task may say different ones.

Piece: {"stage": number, or "source" or "write", "bucket": number, or null for a whole task, "at": [began, ended] (ms
since 1970), "rows": [in, out], "bytes": [in, out] (blobs), "us": {part: microseconds}, "tally": {name: count}, "steps":
{number: [rows in, rows out]}}.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from braid.timing import Watch

SOURCE, WRITE = "source", "write"


class Piece:
    """A piece in the making; it begins when it is made and ends when it is told."""

    __slots__ = ("_began", "_came", "_place", "_steps", "_went", "watch")

    def __init__(self, stage: int | str, bucket: int | None = None) -> None:
        self._place, self._began = (stage, bucket), time.time()
        self.watch = Watch()
        self._came = self._went = (0, 0)
        self._steps: Mapping[int, tuple[int, int]] = {}

    def came(self, rows: int, size: int = 0) -> None:
        self._came = (self._came[0] + rows, self._came[1] + size)

    def went(self, rows: int, size: int = 0, steps: Mapping[int, tuple[int, int]] | None = None) -> None:
        self._went = (self._went[0] + rows, self._went[1] + size)
        self._steps = steps or {}

    def told(self) -> dict[str, Any]:
        stage, bucket = self._place
        return {
            "stage": stage,
            "bucket": bucket,
            "at": [round(self._began * 1000, 2), round(time.time() * 1000, 2)],
            "rows": [self._came[0], self._went[0]],
            "bytes": [self._came[1], self._went[1]],
            "us": {name: ns // 1000 for name, ns in self.watch.ns.items()},
            "tally": self.watch.tallies,
            "steps": {str(n): list(rows) for n, rows in self._steps.items()},
        }
