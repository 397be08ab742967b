"""What the driver keeps of a query: the state behind each batch, saved before the batch is shown; and what goes then.

In: a checkpoint whose epoch this driver holds; of each batch what it reads and what its tasks have said. Out: the
documents of all buckets, their file, the offset log, the cause log; what only earlier batches needed is gone.
Rule: the state of a batch is there before the batch is published. A driver that finds it there, of an attempt of its
own or of the driver that it has taken over from, takes it; where that was made of other records the query is started
again (`overtaken`). Nothing is removed behind an epoch that was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from braid.errors import BraidError
from braid.stage import batches, state_file
from braid.stage.cause_log import CauseLog, Piece
from braid.stage.checkpoint_runs import RunObjects
from braid.stage.epoch import Epoch
from braid.stage.offset_log import OffsetLog
from braid.stage.state_file import Held, Tie
from braid.topics.files import reach
from braid.topics.view import UNTOLD, Written


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a batch wrote something, and whether it dropped something. `causes`: of the rows that it wrote."""

    wrote: bool
    dropped: bool = False
    causes: Sequence[Piece] = ()


class StateWriter:
    """`upto`: the batch behind which `state` stands, `tie`: what it belongs to, from `begin` on; `buckets`: of each
    stage; `identity`: of the table that is written, in words, empty where nothing tells; `run`: this life of it."""

    def __init__(self, epoch: Epoch, buckets: int, durable: bool = False, identity: str = "", run: str = "") -> None:
        self._folder, self._epoch, self._buckets, self._durable = epoch.checkpoint, epoch, buckets, durable
        self._identity, self._run = identity, run
        self._objects = RunObjects(self._folder)
        self._before: Sequence[int] = ()  # the files that held the state of the batch before
        self.upto, self.state, self._newest = -1, state_file.Documents(), -1

    def begin(self) -> None:
        """Before the first batch of a start: what is there now is where it goes on, what nobody needs goes."""
        self._epoch.check()
        self._newest = max(state_file.batches(self._folder), default=-1)  # its file may be torn
        self.upto, self.state = state_file.latest(self._folder)
        self._links = state_file.links_of(self._folder, self.upto)
        self.tie = state_file.tie(self._folder, self.upto)
        self._log = OffsetLog(self._folder, self._durable)
        self._causes = CauseLog(self._folder, self._run)
        self._objects.begin()

    def overtaken(self) -> bool:
        """Whether there is a batch that neither this driver has saved nor was there when it began."""
        return max(state_file.batches(self._folder), default=-1) > max(self.upto, self._newest)

    def keep(
        self,
        reads: Sequence[str],
        said: Sequence[dict[str, Any]],
        outcome: Outcome,
        batch: int,
        recalled: Callable[[], Written | None] = lambda: None,
    ) -> Written | None:
        """The state behind a batch is saved, by what its tasks have `said`. `recalled`: the last batch that the output
        holds, of a query whose checkpoint does not say it yet. Gives the last batch before it that wrote something."""
        folder, digest = self._folder, batches.digest_of(reads)
        state, tie, links = self.state, self.tie, self._links
        if self.upto != batch - 1:
            state, tie = state_file.load(folder, batch - 1), state_file.tie(folder, batch - 1)
            links = state_file.links_of(folder, batch - 1)
        after = (None if batch == 0 else UNTOLD) if tie is None else tie.written
        written = Written(batch, digest) if outcome.wrote else recalled() if tie is None else tie.written
        before = state_file.Before(state, links)
        dropped = _counted(tie, outcome.dropped)
        state, tie = state_file.changed(state, said), Tie(digest, written, self._identity, dropped)
        links, cuts = [*before.chain(), batch], self._log.add(batches.document_in(reads))
        causes = self._causes.add(batch, outcome.causes)
        reach("causes written")
        self._epoch.check()
        saved = state_file.save(
            folder, batch, state, tie, reads, self._buckets, self._durable, Held(cuts, causes), before
        )
        if not saved:
            state = state_file.load(folder, batch)  # of the attempt before this one
            links = state_file.links_of(folder, batch)
        self.upto, self.state, self.tie, self._links, self._before = batch, state, tie, links, before.links
        return after

    def shown(self, batch: int) -> None:
        """The batch is visible: what only those before it needed goes."""
        self._epoch.check()
        state_file.tell_published(self._folder, batch, self._durable)
        state_file.forget(self._folder, batch - 1, self._before)
        self._objects.keep(batch, self.state)
        self._log.send()

    def lost(self) -> BraidError | None:
        return self._epoch.lost()


def _counted(tie: Tie | None, more: bool) -> int | None:
    """How many batches have dropped something; None where older versions did not count."""
    return int(more) if tie is None else None if tie.dropped is None else tie.dropped + more
