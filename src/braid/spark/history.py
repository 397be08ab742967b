"""What a running query leaves behind of its last hour: what each batch was like, and how the query ended.

In: a job and its checkpoint; what tasks say of batches, what each has read; faults. Out: `Around`, a batch; records of
`metrics.ring`.
Rule: where topics end is looked up once a second at most, and a broker that is away is no error here. How the query has
ended is told once. A query that is computed beside another leaves nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from braid.errors import BraidError
from braid.files.watch import Note
from braid.spark.job import Job, inputs_of
from braid.stage import batches, state_file
from braid.stage.event_times import Come, event_times
from braid.stage.measured import Around, Fault
from braid.stage.ring import Ring
from braid.store import ObjectStore

LOOK = 1.0  # s between two looks where topics end


Lost = Callable[[], BraidError | None]


class History:
    """Of one query of this process, and all its starts. `lost`: why its checkpoint is another driver's, or gone."""

    def __init__(self, job: Job, text: str, folder: ObjectStore, note: Note, lost: Lost) -> None:
        self._job, self._text, self._lost = job, text, lost
        self._ring = Ring(folder, lambda why: note(f"{job.name}: {why}")) if job.replay is None else None
        self._began = round(time.time() * 1000)
        self._fault: Fault | None = None
        self._over = False
        self._ends: Mapping[str, int] = {}  # of partitions, by leaf/partition, when that was last looked up
        self._looked = -LOOK
        self._shown: dict[tuple[str, int], int] = {}  # the highest time, by topic and partition

    def fault(self, why: str) -> None:
        """It has ended, or is started again: the batches that come say so."""
        self._fault = Fault(round(time.time() * 1000), why)

    def around(
        self,
        said: Sequence[Mapping[str, Any]],
        reads: Sequence[str],
        state: state_file.Documents,
        restarts: int,
    ) -> Around:
        """What a batch stands in that has read this, and whose tasks have `said` so much."""
        for topic, parts in (x for told in said for x in told.get("moved", {}).items()):
            for part in parts:
                if (highest := part["highest"]) is not None:
                    place = topic, part["partition"]
                    self._shown[place] = max(highest, self._shown.get(place, highest))
        if time.monotonic() - self._looked >= LOOK:
            with contextlib.suppress(BraidError):
                self._ends = ends_now(self._text)
            self._looked = time.monotonic()
        come = Come(batches.document_in(reads)["next"], self._ends, self._shown)
        sources = event_times(self._job.plan, self._job.ranks, state.values(), come)
        return Around(self._began, restarts, self._fault, sources)

    def tell(self, document: Mapping[str, Any]) -> None:
        """A batch."""
        if self._ring is not None:
            self._ring.add(document)

    def end(self, why: str, restarts: int) -> None:
        """How the query has ended: `why` it failed, empty where it was stopped. Nothing of a checkpoint that is not
        this driver's any more."""
        if self._ring is None or self._over:
            return
        self._over = True
        with contextlib.suppress(BraidError, OSError):
            if self._lost() is not None:
                return
        if why:
            self.fault(why)
        how = {"query": self._job.name, "at": round(time.time() * 1000), "ended": "failed" if why else "stopped"}
        self._ring.add(how | Around(self._began, restarts, self._fault).document())
        self._ring.rest()

    def rest(self) -> None:
        """Nothing may come for long: what was held goes out."""
        if self._ring is not None:
            self._ring.rest(over=False)


def ends_now(text: str) -> dict[str, int]:
    """Where the partitions end that a job reads, by leaf/partition."""
    return {f"{leaf}/{p}": end for leaf, x in inputs_of(text).items() for p, end in enumerate(x.ends())}
