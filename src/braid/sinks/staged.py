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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from braid.errors import BraidError, anew, printable
from braid.operators.changes import DIFF, POS, POS_TYPE, no_rows
from braid.plan import logical
from braid.plan.drop_reasons import Reason
from braid.sinks.files import FileSink
from braid.sinks.interface import Batch, Outputs, Part, Sink, Wrote
from braid.sinks.rows import free, ours
from braid.stage.drops import DROPS, drops_of
from braid.store import NOWHERE, ObjectStore
from braid.store.files import remove
from braid.topics.interface import Topics
from braid.topics.view import UNTOLD, Written
from braid.types import Column, Type

TRIES = 20  # commits of others that may come before one of ours


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check has found: whose the table is, and which it is; nothing of one that is not there."""

    owner: str | None
    identity: str


@dataclass(frozen=True)
class StagedSink(Sink):
    """`root`: of the store; `identity`: of the table when it was opened; `required`: columns of the result that take no
    NULL there; `full`: it has the parts of the key that nobody has selected, though others tell rows apart; `seen`:
    what the last check has found."""

    root: ObjectStore = NOWHERE
    identity: str = ""
    required: frozenset[str] = frozenset()
    full: bool = False
    seen: list[Seen] = field(default_factory=list, repr=False, compare=False)

    apart = True
    recalls = True

    def unstorable(self, values: pl.Series, t: Type) -> pl.Series | None:
        """Which values have no place there; None: all have one."""
        return None

    @property
    def place(self) -> str:
        """What has no place for them, and which those are, for people."""
        return "the table has no place for"

    def unkeyed(self, frame: pl.DataFrame, columns: logical.Sink) -> tuple[pl.Series, str] | None:
        """Rows whose key has no place there, and why; None: all have one."""
        return None

    def staged_in(self, topics: Topics) -> ObjectStore:
        """The root of the store, which is a folder."""
        if topics.root.path is None:
            what = f"{self.described()} takes rows that tasks stage in a folder, and {topics.root} has none"
            raise BraidError(what, "keep the store in a folder, or write to a topic")
        return topics.root

    def check_claim(self, table: str, now: Seen, run: str) -> None:
        """Compare and set: what is claimed is what the check has found, or this run's already."""
        then = self.seen[-1] if self.seen else now
        if now.owner not in (then.owner, run):
            what = f"another run ({now.owner}) has begun to write into the table {table} at the same moment"
            raise BraidError(what, "name another table, or write --overwrite to replace its rows")
        if now.owner == then.owner == run and now.identity != then.identity:
            what = f"the table {table} was made again while this run began: it is {now.identity}"
            raise BraidError(what, "start the run again: it is compared with the checkpoint then")

    def claim(self, columns: logical.Sink, run: str) -> None:
        folder = self._files(run).staging
        for entry in os.scandir(folder) if os.path.isdir(folder) else ():
            remove(entry.path)

    def task(self, part: Part) -> Outputs:
        return _Outputs(self, self._files(part.batch.run).task(part), part.columns)

    def _files(self, run: str) -> FileSink:
        return FileSink(self.root.called(f"sinks/{run}"), 1, "parquet")

    def paths(self, batch: Batch, staged: Sequence[str]) -> list[str]:
        """The files of a batch, in order; whoever has committed it removes them."""
        return [os.path.join(self._files(batch.run).staging, json.loads(doc)["file"]) for doc in staged]


class _Outputs:
    """Rows that the table can hold go to a file; the others are drops."""

    def __init__(self, sink: StagedSink, files: Outputs, columns: logical.Sink) -> None:
        self._sink, self._files, self._columns = sink, files, columns

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> Wrote:
        lost = [no_rows(DROPS)]
        for n, o in enumerate(self._columns.key):
            frame = self._without(frame, f"_k{n}", o, lost, True)
        if (long := self._sink.unkeyed(frame, self._columns)) is not None:
            frame = self._told(frame, *long, lost).filter(~long[0])
        for n, o in enumerate(self._columns.values):
            whole = self._columns.kind != "table" or o.name in self._columns.shown_key
            frame = self._without(frame, f"v{n}", o, lost, whole)
        self._files.write(frame, places, at)
        return Wrote(frame, lost=pl.concat(lost) if len(lost) > 1 else None)

    def _without(
        self, frame: pl.DataFrame, name: str, o: logical.Output, lost: list[pl.DataFrame], whole: bool
    ) -> pl.DataFrame:
        """The rows that can be written. Of a table's row with another value than it can hold its key is left, which has
        no row from then on; else the one before would stand for ever."""
        bad = self._sink.unstorable(frame[name], o.expr.type)
        if bad is not None and bad.any():
            frame = self._told(frame, bad, f"{o.name} holds what {self._sink.place}", lost)
            frame = frame.filter(~bad) if whole else _ended(frame, bad, name)
        if o.name not in self._sink.required or not (none := frame[name].is_null()).any():
            return frame
        frame = self._told(frame, none, f"{o.name} is NULL, and the table takes none there", lost)
        return frame.filter(~none) if whole else _ended(frame, none, name)

    def _told(self, frame: pl.DataFrame, bad: pl.Series, why: str, lost: list[pl.DataFrame]) -> pl.DataFrame:
        """As drops, but for rows that go."""
        called = {f"v{i}": o.name for i, o in enumerate(self._columns.values)}
        rows = frame.filter(bad & (frame[DIFF] > 0)).rename(called)
        if POS not in rows.columns:  # rows of no record
            rows = rows.with_columns(pl.lit(None, POS_TYPE).alias(POS))
        if rows.height:
            lost.append(drops_of(rows, Reason.UNSTORABLE, "write", (), pl.repeat(why, rows.height, eager=True)))
        return frame

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        return self._files.close(drops)

    def abort(self) -> None:
        self._files.abort()


def _ended(frame: pl.DataFrame, bad: pl.Series, name: str) -> pl.DataFrame:
    """These rows go, without the value."""
    value, sign = pl.col(name), pl.col(DIFF)
    return frame.with_columns(
        pl.when(bad).then(None).otherwise(value).alias(name),
        pl.when(bad).then(-1).otherwise(sign).cast(pl.Int8).alias(DIFF),
    )


@dataclass(frozen=True)
class Shape:
    """The table that a result needs. `columns`: under their names there; `own`: those that staged rows have them under;
    `keys`: the columns of the key of a table, the bounds of a window among them; of a stream none. `op`: beside them
    what says whether a row comes or goes."""

    columns: tuple[Column, ...]
    own: tuple[str, ...]
    keys: tuple[str, ...]
    op: str

    @staticmethod
    def of(sink: logical.Sink, lower: bool = False) -> Shape:
        """`lower`: names in lower case. A key that nobody has selected is called by letters, digits and `_`."""
        outputs = {o.name: o.expr.type for o in (*sink.key, *sink.values)}
        added = ours(sink)
        outputs |= {name: t for name, (_, t) in zip(added.bounds, logical.BOUNDS.values(), strict=False)}
        hidden = _hidden(sink)
        names = [name.lower() if lower else name for name in outputs if name not in hidden]
        at = [n for n, name in enumerate(outputs) if name in hidden]
        for n, name in zip(at, (name for name in outputs if name in hidden), strict=True):
            called = re.sub(r"\W+", "_", name)
            names.insert(n, free(called.lower() if lower else called, names))
        if len({name.lower() for name in names}) < len(names):
            raise BraidError(f"{sink.name} has columns that differ only by case", "give one another name: AS …")
        keyed = len(sink.key) if sink.kind == "table" else 0
        if sink.kind == "table" and not keyed:
            raise BraidError(f"{sink.name} has no key: its rows cannot be found again in a table", "select its key")
        bounds = names[len(names) - len(added.bounds) :] if keyed else []
        made = tuple(Column(name, t) for name, t in zip(names, outputs.values(), strict=True))
        return Shape(made, tuple(outputs), (*names[:keyed], *bounds), added.op)

    def without_hidden(self, sink: logical.Sink) -> Shape:
        """The same without the parts of the key that were not selected, where those that were tell rows apart."""
        if not sink.shown_key:
            return self
        spare = _hidden(sink) - {*sink.shown_key}
        made = [(x, own) for x, own in zip(self.columns, self.own, strict=True) if own not in spare]
        keys = tuple(x.name for x, own in made if own in sink.shown_key)
        return Shape(tuple(x for x, _ in made), tuple(own for _, own in made), keys, self.op)

    def among(self, names: Iterable[str]) -> frozenset[str]:
        """The columns of the result that the table has under these names, in whatever case."""
        known = {name.lower() for name in names}
        return frozenset(own for own, x in zip(self.own, self.columns, strict=True) if x.name.lower() in known)

    def named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Staged rows under the table's names."""
        return frame.rename({own: x.name for own, x in zip(self.own, self.columns, strict=True) if own != x.name})


def _hidden(sink: logical.Sink) -> set[str]:
    """The parts of the key that were not selected."""
    return {o.name for o in sink.key} - {*sink.columns} if sink.columns else set()


def has_hidden(sink: logical.Sink, there: Iterable[str], lower: bool = False) -> bool:
    """Whether a table with these columns was made with the hidden parts of the key, as they all were once."""
    full, known = Shape.of(sink, lower), {name.lower() for name in there}
    return bool(sink.shown_key) and all(x.name.lower() in known for x in full.columns)


def shape_of(sink: logical.Sink, hidden: bool, lower: bool = False) -> Shape:
    full = Shape.of(sink, lower)
    return full if hidden else full.without_hidden(sink)


# ------------------------------------------------------------------- refusals


def check_required(table: str, shape: Shape, sink: logical.Sink, required: Iterable[str], hint: str) -> None:
    """Refuses a table that takes no NULL where an outer join gives some."""
    lacks = next((name for name in sink.padded if name in shape.among(required)), None)
    if lacks is not None:
        what = f"{table} takes no NULL in {lacks}, and {sink.name} has some: {lacks} is NULL in rows that met none"
        raise BraidError(what, hint)


def line_of(e: Exception) -> str:
    """What a library says, in a line."""
    return printable(" ".join(str(e).split()))[:300]


def check_owner(table: str, owner: str | None, run: str | None, goes_on: bool, overwrite: bool) -> None:
    """Refuses a table that is not this run's to write; `owner`: the run that its marker names."""
    if goes_on and owner != run:
        gone = f"the table {table} is not as this query left it: it has written there, and its marker is gone"
        what = gone if owner is None else f"another run ({owner}) has written into {table} since"
        raise BraidError(what, f"put it back as it was; or {anew()}, with --overwrite")
    if owner is not None and owner != run and not overwrite:
        hint = "name another table, or write --overwrite to replace its rows"
        raise BraidError(f"the table {table} holds the results of another run ({owner})", hint)


def is_written(
    table: str, batch: Batch, owner: str | None, last: Written | None, identity: str = "", known: str = ""
) -> bool:
    """Whether a batch is there, by the table's marker: whose it is, its last batch and that one's digest, which may not
    be known any more. Another run, an older batch and a second writer of the same one are refused; so is a table that
    is not as the last batch left it, by its marker or by its `identity`, which was `known` as another."""
    if owner is None:
        raise unlike(table, "its marker is gone", batch)
    if owner != batch.run:
        raise BraidError(f"another run writes into the table {table} now ({owner})", "name another table")
    if known and identity != known:
        raise unlike(table, f"it is {identity}, and was {known}", batch)
    if last is not None and last.batch >= batch.number:
        return last.is_there(batch.number, batch.digest(), batch.query, table)
    after = batch.after
    if after not in (UNTOLD, last) and not (last and after and last == (after.batch, "")):
        holds = "none of its batches" if last is None else f"batch {last.batch}" + _other(last, after)
        wrote = "none was written" if after is None else f"batch {after.batch} was written last"
        raise unlike(table, f"it holds {holds}, and {wrote}", batch)
    return False


def _other(last: Written, after: Written | None) -> str:
    return " of another history" if after is not None and last.batch == after.batch else ""


def unlike(table: str, why: str, batch: Batch) -> BraidError:
    """A table is not what was written there."""
    hint = "put store, checkpoint and table back from one copy; if its database has moved, the next start takes it with"
    what = f"the table {table} is not as the last batch of {batch.query} left it: {why}"
    return BraidError(what, f"{hint} --adopt-table; or {anew(batch.query)}, with --overwrite")


def commit(
    table: str,
    batch: Batch,
    conflict: type[Exception],
    other: tuple[type[Exception], ...],
    go: Callable[[], None],
) -> None:
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
