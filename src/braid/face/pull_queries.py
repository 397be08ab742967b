"""Pull queries over a store: whose rows they read.

In: bound pull queries, a store. Out: the rows of their answers.
Rule: a table that a query keeps is read from the query's checkpoint, as of its last published batch, whether it runs
here, elsewhere or not at all. One that is not kept (a SOURCE TABLE, or a query that began before results were kept) is
read from its topic: once whole, and then what is new.
"""

from __future__ import annotations

import polars as pl

from braid.batch_sql.pull_queries import (
    Folded,
    LeftOut,
    Rows,
    hashes,
    header,
    of_stream,
    of_table,
    of_tables,
    pieces,
    values,
)
from braid.bind.bound import Pull, TablesAsked
from braid.plan.logical import Source
from braid.stage import checkpoint
from braid.stage.inputs import Opened, Readable
from braid.stage.materialized import Published, key_of, named
from braid.stage.registered import readable_of
from braid.store import ObjectStore
from braid.topics.interface import Topics
from braid.topics.registered import is_registered


class StorePullQueries:
    """Holds what it has opened, for the next one."""

    def __init__(self, store: Topics) -> None:
        self._store = store
        self._published: dict[ObjectStore, tuple[object, Published | None]] = {}
        self._folded: dict[str, tuple[Source, str, Folded]] = {}

    def answer(
        self, pull: Pull | TablesAsked, checkpoints: ObjectStore, ticks: bool, files: Opened | None = None
    ) -> tuple[list[str], Rows, list[str]]:
        """The names of the columns, the rows, and what to tell of records that were left out. `ticks`: dates and times
        are numbers."""
        if isinstance(pull, TablesAsked):
            answer, lost = of_tables(pull, lambda source: pieces(*self._opened(source, files)))
            return header(pull), values(pull, answer, ticks), lost
        left = LeftOut()
        if pull.declared.kind == "stream":
            answer = of_stream(pull, pieces(*self._opened(pull.source, files)), left)
        else:
            rows, left = self._rows(pull, checkpoints, files)
            answer = of_table(pull, rows)
        return header(pull), values(pull, answer, ticks), left.told(pull.declared.name)

    def _rows(self, pull: Pull, checkpoints: ObjectStore, files: Opened | None) -> tuple[pl.DataFrame, LeftOut]:
        """The rows that stand; what a query has left out of its result is among its drops."""
        source, h = pull.source, hashes(pull)
        by = pull.declared.created_by
        published = self._of(checkpoints.at(by), source) if by is not None else None
        if published is not None:
            return named(source, published.rows(h)), LeftOut()
        folded = self._fold(source, files)
        return named(source, folded.rows(h)), folded.left_out

    def _of(self, folder: ObjectStore, source: Source) -> Published | None:
        """The result in a checkpoint, if its query keeps it."""
        try:
            stamp = folder.version(checkpoint.NAME)
        except FileNotFoundError:
            return None
        if folder not in self._published or self._published[folder][0] != stamp:
            known = checkpoint.load(folder)
            keeps = known is not None and checkpoint.KEEPS in known.settings
            self._published[folder] = stamp, Published(folder, key_of(source)) if keeps else None
        return self._published[folder][1]

    def _fold(self, source: Source, files: Opened | None) -> Folded:
        """The rows of a topic, or of files, as they stand."""
        x, starts = self._opened(source, files)
        if (files is not None and source.name in files) or is_registered(source.topic):  # others may come
            made = Folded(source)
            made.read_on(x, starts)
            return made
        identity = self._store.identity(source.topic) if starts else ""
        known = self._folded.get(source.name)
        if known is None or known[:2] != (source, identity):
            known = self._folded[source.name] = source, identity, Folded(source)
        known[2].read_on(x, starts)
        return known[2]

    def _opened(self, source: Source, files: Opened | None) -> tuple[Readable, list[int]]:
        """What a source has, and where each partition begins; no partitions where there is no topic."""
        if files is not None and source.name in files:
            opened = files[source.name](source)
            return opened, [0] * opened.partitions
        topic = readable_of(self._store, source)
        if is_registered(source.topic):
            return topic, [0] * topic.partitions
        return topic, self._store.start_offsets(source.topic) if self._store.exists(source.topic) else []
