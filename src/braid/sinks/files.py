"""A folder of files: CSV, JSON lines or Parquet, by the end of its name.

In: rows in order. Out: one file a task and batch: columns of key and value by name, `_rowtime`, and `_op` where rows
can be taken back.
Rule: files are written in a hidden folder, and get their names when the batch is published (`files/results.py`). A
folder belongs to one run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import polars as pl

from braid.files import results
from braid.files.values import csv_field, json_lines
from braid.plan import logical
from braid.plan.logical import BOUNDS
from braid.sinks.interface import Batch, Part, Sink, Wrote
from braid.sinks.rows import named, ours
from braid.stage.wire import bucket_of
from braid.store import on_disk
from braid.store.files import force
from braid.topics.interface import Topics
from braid.topics.view import Written
from braid.types import Column, Scalar


@dataclass(frozen=True)
class FileSink(Sink):
    """`format`: `csv`, `json` or `parquet`; `fsync`: files are forced to disk; `seen`: the owner that the last check
    has found."""

    format: str = "json"
    fsync: bool = False
    seen: list[str | None] = field(default_factory=list, repr=False, compare=False)

    recalls = True

    @staticmethod
    def of(text: str) -> FileSink:
        return FileSink(os.path.abspath(on_disk(text)), 1, results.kind_of(text))

    def described(self) -> str:
        return results.described(self.format, self.target)

    @property
    def folder(self) -> str:
        return self.target

    @property
    def uniform(self) -> bool:
        return self.format != "json"

    @property
    def staging(self) -> str:
        """The folder of what is not visible yet."""
        return os.path.join(self.target, results.STAGING)

    def written_to(self) -> str:
        return os.path.join(self.target, results.part_name(0, 0, self.format))

    def check(self, columns: logical.Sink, run: str | None, goes_on: bool, overwrite: bool) -> None:
        self.seen[:] = [results.check(self.target, run, goes_on, overwrite)]

    def last(self, topics: Topics, columns: logical.Sink, run: str) -> Written | None:
        return results.last(self.target, run)

    def opened(self, topics: Topics, columns: logical.Sink, read: Mapping[str, str], run: str) -> FileSink:
        return replace(self, fsync=topics.fsync)

    def claim(self, columns: logical.Sink, run: str) -> None:
        results.claim(self.target, run, *self.seen)

    def task(self, part: Part) -> _Outputs:
        return _Outputs(self, part)

    def publish(self, batch: Batch, columns: logical.Sink, staged: Sequence[str]) -> None:
        said = [json.loads(doc) for doc in staged]
        names, sums = [x["file"] for x in said], {x["file"]: x["sum"] for x in said if "sum" in x}
        digest = batch.digest()
        results.publish(self.target, batch.run, batch.number, names, digest, self.fsync, batch.after, sums)


class _Outputs:
    def __init__(self, sink: FileSink, part: Part) -> None:
        self._sink, self._part = sink, part
        self._frames: list[pl.DataFrame] = []
        self._number = -1

    def write(self, frame: pl.DataFrame, places: pl.DataFrame | None, at: int) -> Wrote:
        if self._number < 0 and frame.height:
            self._number = int(bucket_of(frame.head(1), self._sink.partitions)[0])
        self._frames.append(named(self._part.columns, frame))
        return Wrote(frame)

    def close(self, drops: pl.DataFrame) -> Iterator[str]:
        frame, columns = pl.concat(self._frames), self._part.columns
        folder = self._sink.staging
        os.makedirs(folder, exist_ok=True)
        final = results.part_name(self._part.batch.number, self._number, self._sink.format)
        name = f"{final}~{uuid4().hex[:8]}"  # of this attempt only
        types = {o.name: o.expr.type for o in (*columns.key, *columns.values)}
        rowtime, op, bounds = ours(columns)
        types |= {name: t for name, (_, t) in zip(bounds, BOUNDS.values(), strict=False)}
        types |= {rowtime: Scalar.BIGINT, op: Scalar.VARCHAR}
        made = [Column(n, types[n]) for n in frame.columns]
        _written(frame, made, self._sink.format, os.path.join(folder, name))
        if self._sink.fsync:
            force(os.path.join(folder, name))
        yield json.dumps({"rows": frame.height, "file": name, "sum": results.sum_of(os.path.join(folder, name))})

    def abort(self) -> None:
        self._frames.clear()


def _written(frame: pl.DataFrame, columns: Sequence[Column], format: str, path: str) -> None:
    match format:
        case "csv":
            pl.DataFrame([csv_field(frame[c.name], c.type).alias(c.name) for c in columns]).write_csv(path)
        case "parquet":
            frame.write_parquet(path)
        case _:
            with open(path, "w", encoding="utf-8") as f:
                f.writelines(f"{line}\n" for line in json_lines(frame, columns).to_list())
