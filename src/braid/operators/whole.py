"""Whole: rows of an operator that every batch reads, all of them, and writes as they come.

In: new rows, and which rows are still needed. Out: all rows.
Rule: a batch adds one run. A run merges with the one before it where that is not more than twice as large, so that a
row is written again a few times only; when half of the rows are no longer needed, what is needed becomes one run.
"""

from __future__ import annotations

import polars as pl

from braid.operators.base import State
from braid.timing import spent, tally

FEW = 64  # so many rows more than needed do not matter


class Whole:
    """The rows under one name of a state."""

    __slots__ = ("_name", "_runs", "_state")

    def __init__(self, state: State, name: str) -> None:
        self._state, self._name = state, name
        self._runs: list[tuple[str, int, int]] = [(r, n, b) for r, n, b in state.manifest.get(name, {}).get("runs", ())]

    def with_new(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows kept, and new ones."""
        kept = [self._state.runs.get(run) for run, _, _ in self._runs]
        return pl.concat([*kept, rows], how="diagonal") if kept else rows

    def close(self, needed: pl.DataFrame, new: pl.DataFrame) -> None:
        """From now on at least the rows that are needed are kept; `new` are those of them that were not before."""
        kept = sum(n for _, n, _ in self._runs)
        if kept + new.height > 2 * needed.height + FEW:
            self._replace(0, needed)
        elif new.height:
            first = len(self._runs)
            with spent("merge"):
                while first and self._runs[first - 1][1] <= 2 * new.height:
                    first -= 1
                    new = pl.concat([self._state.runs.get(self._runs[first][0]), new], how="diagonal")
            if first < len(self._runs):
                tally("merges")
                tally("merged_rows", new.height)
            self._replace(first, new)
        else:
            return
        self._state.manifest[self._name] = {"runs": [list(r) for r in self._runs]}

    def _replace(self, first: int, rows: pl.DataFrame) -> None:
        """One run in place of those from number `first` on."""
        for run, _, _ in self._runs[first:]:
            self._state.runs.remove(run)
        del self._runs[first:]
        if rows.height:
            run, size = self._state.new_run(rows)
            self._runs.append((run, rows.height, size))
