"""Spark's own checkpoint of a running query: laid out from ours at every start, gone with the process.

In: what the last batch reads, and one that was begun behind it (`stage/batches.py`). Out: a folder that Spark takes for
the checkpoint in which it has stopped there; and, while a batch runs, what that one reads.
Rule: nothing of it is needed again. Spark asks for the offsets of the last two batches, takes the later for where the
next one begins, and does a batch again whose offsets are there and whose commit is not. A query over DataFrames of
Spark's keeps Spark's checkpoint in its own, since the sources of those have their logs there.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from uuid import NAMESPACE_URL, uuid5

from braid.errors import BraidError
from braid.spark.job import Job
from braid.spark.private import own_folder
from braid.stage import batches
from braid.store import ObjectStore
from braid.topics.lock import Process


class Scratch:
    """`path`: the folder for Spark. `folder`: the query's checkpoint."""

    def __init__(self, job: Job, folder: ObjectStore) -> None:
        self._folder, self._run, self._tasks = folder, job.run, job.tasks
        self._kept = bool(job.frames)
        if self._kept:
            self.path = folder.called(batches.SPARK)
            return
        root = own_folder(batches.SPARK)
        _sweep(root)
        self.path = tempfile.mkdtemp(prefix=f"{job.run}~{os.getpid()}~", dir=root)
        self._clear = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @property
    def url(self) -> str:
        """Its address, whatever Spark's usual file system is."""
        return self.path if self._kept else f"file://{self.path}"

    def lay_out(self) -> None:
        """As it has to be for the next start."""
        last, done, begun = batches.laid_out(self._folder)
        if self._kept:
            return _check(self._folder, last)
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        for name in os.listdir(self.path):
            shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)
        for name in ("offsets", "commits"):
            os.makedirs(os.path.join(self.path, name))
        with open(os.path.join(self.path, "metadata"), "w", encoding="ascii") as f:
            f.write(json.dumps({"id": str(uuid5(NAMESPACE_URL, self._run))}))
        if last is not None and done is not None:
            for number in (last - 1, last) if last else (last,):
                self._offsets(number, done)
                self._write("commits", number, ['{"nextBatchWatermarkMs":0}'])
        if begun is not None:
            self._offsets(0 if last is None else last + 1, begun)

    def _offsets(self, batch: int, reads: Sequence[str]) -> None:
        known = {"spark.sql.shuffle.partitions": str(self._tasks)}
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": known}
        self._write("offsets", batch, [json.dumps(metadata), *reads])

    def _write(self, kind: str, batch: int, lines: Sequence[str]) -> None:
        with open(os.path.join(self.path, kind, str(batch)), "w", encoding="utf-8", newline="") as f:
            f.write("\n".join(["v1", *lines]))

    def reads(self, batch: int) -> list[str]:
        """What a batch reads, as Spark has written it down before the batch began; a line a source."""
        path = os.path.join(self.path, "offsets", str(batch))
        try:
            with open(path, encoding="utf-8", newline="") as f:
                return f.read().split("\n")[2:]
        except FileNotFoundError:
            hint = "the folder for temporary files was emptied; start the query again, nothing is lost"
            raise BraidError(f"{path} is gone", hint) from None

    def clear(self) -> None:
        if not self._kept:
            self._clear()


def _check(folder: ObjectStore, last: int | None) -> None:
    """Spark knows the last batch, too."""
    if last is not None and batches.of_spark(folder, last) is None:
        path = folder.called(batches.spark_offsets(last))
        raise BraidError(f"{path} is missing; batch {last} has run", "put it back from a copy")


def _sweep(root: str) -> None:
    """Those of processes that were killed go."""
    for name in os.listdir(root):
        pid = name.split("~")[1] if name.count("~") == 2 else ""
        if pid.isdecimal() and not Process.of(int(pid), "").alive():
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)
