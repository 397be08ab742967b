"""What tasks say of their time, on its way to the driver.

In: pieces. Out: the same, for the driver: beside the counts, or in a file of the checkpoint that these name.
Rule: where an executor may be lost, Spark compares what two attempts at a stage have shuffled, so nothing of time and
chance is shuffled: then a piece is a file. Its name is that of its place in the batch, and any attempt's will do.
Nothing depends on it: a file that is not there is a piece that was not measured. (Decision 32.)
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from pyspark import TaskContext

from braid.errors import BraidError
from braid.spark.job import Job
from braid.stage.measured import Piece
from braid.store import ObjectStore

FOLDER = "figures"
MOST = 1 << 24  # bytes of a piece


def report(job: Job, piece: Piece, to_driver: bool = False) -> dict[str, Any]:
    """What a task says of a piece that ends now. `to_driver`: it is not shuffled any more."""
    if job.wire is not None or to_driver:
        return {"spent": piece.told()}
    if job.checkpoint is None or job.checkpoint.path is None:  # nobody asks, or it would cost more than it tells
        return {}
    context = TaskContext.get()
    assert context is not None
    said = piece.told()
    place = f"{said['stage']}-{context.partitionId() if said['bucket'] is None else said['bucket']}"
    name = f"{context.getLocalProperty('streaming.sql.batchId')}-{place}.json"
    with contextlib.suppress(OSError):
        job.checkpoint.write(f"{FOLDER}/{name}", json.dumps(said).encode())
    return {"figures": name}


def reported(checkpoint: ObjectStore, said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What tasks say of a batch that is done, with what lies in files, which go."""
    made = [x | _read(checkpoint, x["figures"]) if "figures" in x else x for x in said]
    if any("figures" in x for x in said):
        with contextlib.suppress(OSError):
            checkpoint.delete(*(f"{FOLDER}/{name}" for name in checkpoint.names(FOLDER)))
    return made


def _read(checkpoint: ObjectStore, name: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, BraidError):
        return {"spent": json.loads(checkpoint.get(f"{FOLDER}/{name}", MOST))}
    return {}
