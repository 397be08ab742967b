"""What sinks have in common whose batches the driver commits: tasks stage rows in the store.

In: rows in order. Out: files of the batch, which the driver reads and writes elsewhere in one step; the shape of the
table that holds them.
Rule: a staged file has a name of its own for each attempt, and is gone when its batch is committed. What the table has
no place for is a drop, with the column that holds it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from braid.errors import BraidError, printable
from braid.operators.changes import no_rows
from braid.plan import logical
from braid.sinks.files import FileSink
from braid.sinks.interface import Batch, Outputs, Part, Sink
from braid.stage.drops import DROPS, drops_of
from braid.store import is_url
from braid.topics.files import remove
from braid.topics.interface import Topics
from braid.topics.view import Written
from braid.types import Column, Type

UNSTORABLE = "value"  # the reason of a drop
TRIES = 20  # commits of others that may come before one of ours


@dataclass(frozen=True)
class StagedSink(Sink):
    """`root`: of the store."""

    root: str = ""

    apart = True
    recalls = True

    def unstorable(self, values: pl.Series, t: Type) -> pl.Series | None:
        """Which values have no place there; None: all have one."""
        return None

    @property
    def place(self) -> str:
        """What has no place for them, and which those are, for people."""
        return "the table has no place for"

    def staged_in(self, topics: Topics) -> str:
        """The root of the store, which is a folder."""
        if is_url(topics.root):
            what = f"{self.described()} takes rows that tasks stage in a folder, and {topics.root} has none"
            raise BraidError(what, "keep the store in a folder, or write to a topic")
        return topics.root

    def claim(self, columns: logical.Sink, run: str) -> None:
        folder = self._files(run).staging
        for entry in os.scandir(folder) if os.path.isdir(folder) else ():
            remove(entry.path)

    def task(self, part: Part) -> Outputs:
        return _Outputs(self, self._files(part.batch.run).task(part), part.columns)

    def _files(self, run: str) -> FileSink:
        return FileSink(os.path.join(self.root, "sinks", run), 1, "parquet")

    def paths(self, batch: Batch, staged: Sequence[str]) -> list[str]:
        """The files of a batch, in order; whoever has committed it removes them."""
        return [os.path.join(self._files(batch.run).staging, json.loads(doc)["file"]) for doc in staged]


class _Outputs:
    """Rows that the table can hold go to a file; the others are drops."""

    def __init__(self, sink: StagedSink, files: Outputs, columns: logical.Sink) -> None:
        self._sink, self._files, self._columns = sink, files, columns

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> pl.DataFrame | None:
        lost = [no_rows(DROPS)]
        called = {f"v{i}": o.name for i, o in enumerate(self._columns.values)}
        keys = [(f"_k{i}", o) for i, o in enumerate(self._columns.key)]
        for name, o in (*keys, *((f"v{i}", o) for i, o in enumerate(self._columns.values))):
            bad = self._sink.unstorable(frame[name], o.expr.type)
            if bad is None or not bad.any():
                continue
            rows, why = frame.filter(bad).rename(called), f"{o.name} holds what {self._sink.place}"
            lost.append(drops_of(rows, UNSTORABLE, "write", (), pl.repeat(why, rows.height, eager=True)))
            frame = frame.filter(~bad)
        self._files.write(frame, places, at)
        return pl.concat(lost) if len(lost) > 1 else None

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        return self._files.close(drops)

    def abort(self) -> None:
        self._files.abort()


@dataclass(frozen=True)
class Shape:
    """The table that a result needs. `columns`: under their names there; `own`: those that staged rows have them under;
    `keys`: the columns of the key of a table, the bounds of a window among them; of a stream none."""

    columns: tuple[Column, ...]
    own: tuple[str, ...]
    keys: tuple[str, ...]

    @staticmethod
    def of(sink: logical.Sink, lower: bool = False) -> Shape:
        """`lower`: names in lower case. A key that nobody has selected is called by letters, digits and `_`."""
        outputs = {o.name: o.expr.type for o in (*sink.key, *sink.values)}
        if sink.window is not None:
            outputs |= {name: t for name, (_, t) in logical.BOUNDS.items()}
        hidden = {o.name for o in sink.key} - {*sink.columns} if sink.columns else set[str]()
        names = [re.sub(r"\W+", "_", name) if name in hidden else name for name in outputs]
        names = [name.lower() for name in names] if lower else names
        if len({name.lower() for name in names}) < len(names):
            raise BraidError(f"{sink.name} has columns that differ only by case", "give one another name: AS …")
        keyed = len(sink.key) if sink.kind == "table" else 0
        if sink.kind == "table" and not keyed:
            raise BraidError(f"{sink.name} has no key: its rows cannot be found again in a table", "select its key")
        bounds = names[len(names) - len(logical.BOUNDS) :] if keyed and sink.window is not None else []
        made = tuple(Column(name, t) for name, t in zip(names, outputs.values(), strict=True))
        return Shape(made, tuple(outputs), (*names[:keyed], *bounds))

    def named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Staged rows under the table's names."""
        return frame.rename({own: x.name for own, x in zip(self.own, self.columns, strict=True) if own != x.name})


# ------------------------------------------------------------------- refusals


def line_of(e: Exception) -> str:
    """What a library says, in a line."""
    return printable(" ".join(str(e).split()))[:300]


def check_owner(table: str, owner: str | None, run: str | None, goes_on: bool, overwrite: bool) -> None:
    """Refuses a table that is not this run's to write; `owner`: the run that its marker names."""
    if goes_on and owner != run:
        gone = f"the table {table} is not as this query left it: it has written there, and its marker is gone"
        raise BraidError(gone if owner is None else f"another run ({owner}) has written into {table} since")
    if owner is not None and owner != run and not overwrite:
        hint = "name another table, or write --overwrite to replace its rows"
        raise BraidError(f"the table {table} holds the results of another run ({owner})", hint)


def is_written(table: str, batch: Batch, owner: str | None, last: Written | None) -> bool:
    """Whether a batch is there, by the table's marker: whose it is, its last batch and that one's digest, which may not
    be known any more. Another run, an older batch and a second writer of the same one are refused."""
    if owner != batch.run:
        raise BraidError(f"another run writes into the table {table} now", "name another table")
    return last is not None and last.is_there(batch.number, batch.digest(), batch.query, table)


def commit(table: str, batch: Batch, conflict: type[Exception], other: type[Exception], go: Callable[[], None]) -> None:
    """Commits once on top of what `go` has looked at, and lets it look again where somebody else came first."""
    for left in reversed(range(TRIES)):
        try:
            return go()
        except conflict as e:
            if not left:
                raise BraidError(f"{table} does not take batch {batch.number}: {line_of(e)}") from None
            time.sleep(0.1)
        except other as e:
            raise BraidError(f"{table} does not take batch {batch.number}: {line_of(e)}") from None
