"""Recorded: what the cause log of a query says of rows of its topic (`stage/cause_log.py`).

In: a query and all that it has read; rows of its topic. Out: the records that completed them; which of the rows that
the definitions give came where the log says.
Rule: the log is taken at its word by nobody: a row is looked for among those that its records give, and where it is not
among them the log counts for nothing. A row is known by how many there are behind it in its partition; so where another
writes the topic, too, or records are gone from it, the log may be of no use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from braid.errors import BraidError
from braid.operators.changes import END_OF_BATCH, LEAF_BITS, LOW, POS, sequence_of
from braid.plan.epochs import in_epochs
from braid.reference.rows import BEFORE
from braid.stage import batches, cause_log, state_file
from braid.stage.call_order import Ranks
from braid.stage.cause_log import Cause, Told
from braid.stage.row_causes import At
from braid.why.asking import Asked
from braid.why.output import Output, There
from braid.why.pages import Flags
from braid.why.reading import BATCH, OFFSET, PARTITION, Events, Place


@dataclass(slots=True)
class Recorded:
    """The log of one query."""

    _asked: Asked
    _output: Output
    _ranks: Ranks = field(init=False)
    _shift: int = field(
        init=False, default=0
    )  # a first batch that had nothing to read is not among those that were read
    _upto: int = field(init=False, default=-1)  # the last batch that can be seen
    told: Told = field(init=False, default_factory=Told)

    def __post_init__(self) -> None:
        if self._asked.left is None:
            self._ranks = Ranks({}, self._asked.plan, None)
            return
        known, folder = self._asked.left.known, self._asked.left.folder
        self._ranks = Ranks.recorded(known.sources, self._asked.plan, grows=True)
        try:
            self._upto = state_file.published(folder)
            if self._upto >= 0:
                self._shift = self._upto - int(batches.document_of(folder, self._upto).get("batch", self._upto))
            self.told = cause_log.read(folder, str(known.settings.get("run")))
        except BraidError:
            pass  # the query runs, and has gone on meanwhile

    def of(self, there: There) -> Sequence[Cause]:
        """What the log says of a row: a batch that is being shown may be in the topic, or not yet."""
        if not self.told.batches:
            return ()
        behind = self._output.behind(there)
        tried = {min(self._upto, self.told.batches[0]), self.told.batches[0]}
        found = (self.told.cause(there.partition, behind, upto) for upto in sorted(tried))
        return [*dict.fromkeys(x for x in found if x is not None)]

    def start(self, causes: Sequence[Sequence[Cause]]) -> Mapping[int, Flags] | None:
        """By source, which records completed some rows; None where it is not told of one of them."""
        rows = self._asked.heard.rows
        made = {n: x.all(False) for n, x in rows.items()}
        for some in causes:
            any_ = False
            for leaf, x in ((n, x) for x in some for n in rows):
                if (which := self._which(leaf, x.completed, x.batch)) is not None:
                    flags = rows[leaf].where(which)
                    made[leaf], any_ = made[leaf] | flags, any_ or bool(flags.any())
            if not any_:
                return None
        return made

    def _which(self, leaf: int, at: At, batch: int) -> pl.Expr | None:
        """The record at a place; all of an epoch, which is of the batch. None: of this source none."""
        if at.epoch is not None:
            return (pl.col(BATCH) == batch - self._shift) & (sequence_of(pl.col(POS)) == at.epoch)
        partition = None if at.rank is None else self._ranks.partition(leaf, at.rank)
        return None if partition is None else (pl.col(PARTITION) == partition) & (pl.col(OFFSET) == at.offset)

    def came_there(self, place: Place, causes: Sequence[Cause], placed: Events) -> bool:
        """Whether a row that the definitions give at a place is let go where the log says; of epochs in that one."""
        if place == BEFORE:
            return False
        epochs = in_epochs(self._asked.plan.query.root)
        batch, position = placed.position((place[0], placed.epoch(place[0])[0]) if epochs else place)
        wanted = position // LOW if epochs else position >> LEAF_BITS
        for cause in causes:
            at = cause.released
            if cause.batch - self._shift == batch and (
                (at.ends and position >= END_OF_BATCH)
                or (at.epoch is not None and at.epoch == position // LOW)
                or (at.rank is not None and wanted in self._moments(at, cause.batch, epochs))
            ):
                return True
        return False

    def _moments(self, at: At, batch: int, epochs: bool) -> set[int]:
        """When a record came in its batch, as each source reads it: its position without the reading, or its epoch."""
        found = set[int]()
        for leaf, rows in self._asked.heard.rows.items():
            if (which := self._which(leaf, at, batch)) is not None:
                here = rows.heads(rows.where(which & (pl.col(BATCH) == batch - self._shift)), [POS])[POS].to_list()
                found |= {x // LOW if epochs else x >> LEAF_BITS for x in here}
        return found
