"""The current result of a table's query: its rows by key, kept beside what operators keep, for pull queries.

In: the rows that a bucket gives, batch by batch; the documents of all buckets. Out: one more arrangement in the
bucket's document; the rows that stand, of some keys or of all.
Rule: the last row of a key stands, until a tombstone. With a retention windows stand that end no earlier than that
before the end of the latest window that the table has shown. Who asks sees the last batch that was published, whole; it
maps the files that the query has written, and starts again where a later batch has removed some meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from braid.errors import BraidError
from braid.lower.physical import Plan, Stage
from braid.operators.arrangement import Newest, last_of_key
from braid.operators.base import RunStore, State
from braid.operators.changes import HASH, HEADERS, POS, SUB, TIME, key_column
from braid.operators.in_windows import MIX
from braid.operators.ranges import Hashes, columns_of, distinct, hashes_of, key_order, rows_at
from braid.plan.logical import Source
from braid.stage import state_file
from braid.stage.bucket import BucketState
from braid.stage.checkpoint_runs import CheckpointRuns
from braid.stage.emit import OF_WINDOW
from braid.stage.run_files import DAMAGED
from braid.store import ObjectStore
from braid.types import polars_type

RESULT = "result"  # the arrangement's name in a manifest
TRIES = 5  # as often as a batch may be published while one is read
_LOWER, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_PASSING = (POS, SUB, HEADERS)  # columns of a row on its way

Kept = Iterable[tuple[Mapping[str, Any], RunStore]]  # the manifest of each bucket's result, and its runs


def known_by(keys: int, windowed: bool) -> list[str]:
    """The columns by which the rows of a result with so many key columns are told apart."""
    return [*map(key_column, range(keys)), *(OF_WINDOW if windowed else ())]


def key_of(source: Source) -> list[str]:
    """The same, for who reads the result."""
    return known_by(1 if source.message_key is not None else len(source.key), bool(source.window))


def _newest(state: State, keys: Sequence[str]) -> Newest:
    return Newest(state, RESULT, keys, OF_WINDOW[1] if OF_WINDOW[1] in keys else None)


class Keeper:
    """Takes the rows of one bucket in one batch. `retention` (ms) None: windows stand for ever."""

    def __init__(self, state: State, keys: Sequence[str], retention: int | None = None) -> None:
        self._keys, self._retention = keys, retention
        self.rows = _newest(state, keys)

    def take(self, rows: pl.DataFrame) -> None:
        """The next rows of the result, projected, in processing order."""
        if not rows.height:
            return
        if OF_WINDOW[0] in self._keys:
            rows = rows.with_columns(_hash_with_window(rows))
        order = key_order(hashes_of(rows))
        keys = rows_at(columns_of(rows, [HASH, *self._keys]), order)
        kept = [c for c in rows.columns if c not in _PASSING]
        self.rows.append(rows_at(columns_of(rows, kept), order[last_of_key(keys, self._keys)]))
        if self._retention is not None:
            self.rows.forget(int(rows[OF_WINDOW[1]].max()) - self._retention)  # type: ignore[arg-type]


def _hash_with_window(rows: pl.DataFrame) -> pl.Series:
    """A hash whose upper half is the key's, so that its windows stand together, and whose lower half is the window's,
    so that hardly two rows share one."""
    start, end = (rows[name].to_numpy().view(np.uint64) for name in OF_WINDOW)
    window = start * MIX[0] + end * MIX[1]
    return pl.Series(HASH, (hashes_of(rows) & ~_LOWER) | (window >> _HALF))


def keeper(plan: Plan, stage: Stage, state: BucketState, prefix: str) -> Keeper | None:
    """None where nobody will ask for the rows of this stage."""
    if not stage.keeps:
        return None
    sink, number = plan.query.sink, plan.kept_as(plan.sink)
    manifest = state.manifests.setdefault(number, {})
    keys = known_by(len(sink.written_key), sink.window is not None)
    retention = None if sink.window is None else sink.retention
    return Keeper(State(state.runs, f"{prefix}-{number}", manifest), keys, retention)


class Materialized:
    """The rows of all buckets."""

    def __init__(self, kept: Kept, keys: Sequence[str]) -> None:
        self._windowed = OF_WINDOW[0] in keys
        self._parts = [_newest(State(runs, "", dict(manifest)), keys) for manifest, runs in kept]
        floor = max((part.floor for part in self._parts), default=0)
        for part in self._parts:
            part.floor = floor

    def rows(self, h: Hashes | None = None) -> pl.DataFrame | None:
        """Columns `_h _k… _w0 _w1 _diff _t v…`, in no order; `h`: of keys with these hashes, and maybe others. None:
        there never was one."""
        among = None
        if h is not None:
            low = distinct(h & ~_LOWER) if self._windowed else h
            among = low, low | _LOWER if self._windowed else h
        found = [rows for part in self._parts if (rows := part.standing(among)) is not None]
        return pl.concat(found, how="diagonal") if found else None


def of_bucket(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The manifest of a bucket's result, if it has one."""
    return [manifest for manifest in document["steps"].values() if RESULT in manifest]


def named(source: Source, kept: pl.DataFrame | None) -> pl.DataFrame:
    """Rows of a result (`Materialized.rows`) by the plan names of their columns."""
    values = [c for c in source.columns if c.place == "value"]
    keys = [] if source.message_key is not None else list(source.key)
    of = {key_column(i): c for i, c in enumerate(keys)} | {f"v{i}": c for i, c in enumerate(values)}
    of |= {name: c for name, c in zip(OF_WINDOW, source.window, strict=False)}
    of[TIME] = next(c for c in source.columns if c.place == "rowtime")
    if kept is None:
        return pl.DataFrame(schema={c.name: polars_type(c.column.type) for c in of.values()})
    return kept.select(
        (pl.col(name) if name in kept.columns else pl.lit(None, polars_type(c.column.type))).alias(c.name)
        for name, c in of.items()  # a query whose place was taken gave fewer columns
    )


# ------------------------------------------------------------ of a checkpoint


class Published:
    """The result as of the last published batch of a checkpoint."""

    def __init__(self, checkpoint: ObjectStore, keys: Sequence[str]) -> None:
        self._checkpoint, self._keys = checkpoint, keys
        self._batch, self._standing = -1, Materialized((), keys)
        self._frames: dict[str, pl.DataFrame] = {}

    def rows(self, h: Hashes | None = None) -> pl.DataFrame | None:
        """As `Materialized.rows`; None: no batch has been published, or none had rows."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(BraidError):
                return self._rows(h)
            self._batch = -1  # a later batch, or this one done again, has taken its place
        return self._rows(h)

    def _rows(self, h: Hashes | None) -> pl.DataFrame | None:
        try:
            self._look()
            return self._standing.rows(h)
        except (ValueError, TypeError, AttributeError, pl.exceptions.PolarsError) as e:
            raise BraidError(f"the result kept in {self._checkpoint} cannot be read: {e}", DAMAGED) from e

    def _look(self) -> None:
        """Opens what the last published batch names, if that is another one than before."""
        batch = state_file.published(self._checkpoint)
        if batch == self._batch:
            return
        documents = state_file.load(self._checkpoint, batch)
        kept = [(place, manifest) for place, document in documents.items() for manifest in of_bucket(document)]
        named = {run for _, manifest in kept for run, *_ in state_file.runs_in(manifest)}
        self._frames = {run: frame for run, frame in self._frames.items() if run in named}
        runs = {place: self._runs(place) for place, _ in kept}
        self._standing = Materialized([(manifest, runs[place]) for place, manifest in kept], self._keys)
        self._batch = batch

    def _runs(self, place: str) -> RunStore:
        return _Mapped(CheckpointRuns(self._checkpoint, place), self._frames)


class _Mapped:
    """The runs of a bucket, to be read only. `frames`: those that are open."""

    def __init__(self, runs: CheckpointRuns, frames: dict[str, pl.DataFrame]) -> None:
        self._runs, self._frames = runs, frames

    def get(self, run: str) -> pl.DataFrame:
        if run not in self._frames:
            self._frames[run] = self._runs.read(run)
        return self._frames[run]

    def put(self, run: str, frame: pl.DataFrame) -> int:
        raise AssertionError("who asks writes nothing")

    def remove(self, run: str) -> None:
        raise AssertionError("who asks removes nothing")
