"""Whole: rows of an operator that are read and written as one run.

In: the rows to keep. Out: the rows kept.
Rule: for what is small or is read whole in every batch anyway; the run is written only where it changes.
"""

from __future__ import annotations

import polars as pl

from braid.operators.base import State


class Whole:
    """The rows under one name of a state."""

    __slots__ = ("_fresh", "_name", "_rows", "_run", "_state")

    def __init__(self, state: State, name: str) -> None:
        self._state, self._name = state, name
        self._run: str | None = next((r[0] for r in state.manifest.get(name, {}).get("runs", ())), None)
        self._rows = 0
        self._fresh = False

    def with_new(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The kept rows and new ones."""
        old = self._state.runs.get(self._run) if self._run is not None else rows.clear()
        self._rows, self._fresh = old.height, bool(rows.height)
        return pl.concat([old, rows], how="diagonal") if old.height else rows

    def close(self, rows: pl.DataFrame) -> None:
        """What is kept from now on: a part of the rows that `with_new` gave."""
        if not self._fresh and rows.height == self._rows:
            return
        runs = []
        if rows.height:
            run, size = self._state.new_run(rows)
            runs = [[run, rows.height, size]]
        if self._run is not None:
            self._state.runs.remove(self._run)
        self._state.manifest[self._name] = {"runs": runs}
