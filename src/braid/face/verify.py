"""`braid verify`: whether a store is whole, and all parts of it are of one history.

In: a store that no run uses, or a copy of one. Out: a line for each topic and query; what is wrong, all of it.
Rule: nothing is changed, and one fault does not hide the next. Looked at is what a run looks at before it starts
(`stage/ties.py`), for every query, and besides every byte that has a checksum: records of topics, runs of state. Topics
in Kafka and tables of other systems are not looked at, which is told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial

from braid.errors import BraidError
from braid.face.reset import folders_of_checkpoints
from braid.face.show import open_store
from braid.files import results
from braid.stage import batches, checkpoint, state_file, ties
from braid.stage.checkpoint import Document
from braid.stage.room_runs import runs_at
from braid.stage.ties import Held
from braid.topics import whereabouts
from braid.topics.lock import holder
from braid.topics.store import TopicStore
from braid.topics.wholeness import look

Told = Iterator[str | BraidError]


def verify(store: str, parent: str | None = None) -> Told:
    """What is there, as lines, and what is wrong with it. `parent`: one more folder of checkpoints."""
    opened = open_store(store)
    if (process := holder(opened.root)) is not None:
        hint = "stop it first, or look at a copy of it"
        raise BraidError(f"process {process} runs queries on the store {store}", hint)
    looks = [partial(_topic, opened, name) for name in opened.names()]
    looks += [partial(_query, opened, folder) for folder in folders_of_checkpoints(opened, parent)]
    for told in looks:
        try:
            yield from told()
        except BraidError as e:
            yield e
        except OSError as e:
            yield BraidError(f"{e.filename} cannot be read: {e.strerror}")


def _topic(store: TopicStore, name: str) -> Told:
    found = look(store.topic(name))
    many = f"{_count(found.records, 'record')} in {_count(found.segments, 'segment')}"
    yield f"topic {name}: {many}, {amount(found.size)}"
    yield from found.wrong


def _query(store: TopicStore, folder: str) -> Told:
    known = checkpoint.load(folder)
    if known is None or not whereabouts.belongs(store.root, folder, known.store):
        return
    last = batches.last_batch(folder, known)
    yield f"query {os.path.basename(folder)}: {_reached(folder, last)}"
    yield from _torn(folder, last)
    if "topics" in known.settings:
        yield "  its topics in Kafka are not looked at"
        return
    if known.writes() == (None, None):
        yield f"  {known.settings['sink']} is not looked at"
    for check in (_inputs, _output):
        try:
            check(store, folder, known, last)
        except BraidError as e:
            yield e


def _runs(folder: str, last: int | None) -> Iterator[tuple[str, str, int]]:
    """The runs of the state after a batch: their places and names, and how many rows each has."""
    for place, text in state_file.texts(folder, -1 if last is None else last).items():
        for run, rows, _ in state_file.runs_in(json.loads(text)):
            yield place, run, rows


def _reached(folder: str, last: int | None) -> str:
    if last is None:
        return "no batch is finished"
    return f"finished batch {last}, keeps {_count(sum(rows for *_, rows in _runs(folder, last)), 'row')}"


def _torn(folder: str, last: int | None) -> Iterator[BraidError]:
    for place, run, _ in _runs(folder, last):
        try:
            runs_at(folder, place).check(run)
        except BraidError as e:
            yield e


def held_of(store: TopicStore, known: Document) -> Held | None:
    """What the output of a checkpoint holds, where it is a topic of the store or a folder."""
    topic, files = known.writes()
    run = str(known.settings.get("run"))
    if topic is not None:
        return Held(f"the topic {topic}", store.last_of(topic, run))
    return None if files is None else Held(files, results.last(files, run))


def _inputs(store: TopicStore, folder: str, known: Document, last: int | None) -> None:
    held = held_of(store, known)
    ties.check_inputs(folder, known.query, store, held is None or ties.behind(last, held))


def _output(store: TopicStore, folder: str, known: Document, last: int | None) -> None:
    _, files = known.writes()
    if files is not None and (wrong := results.spoilt(files, str(known.settings.get("run")))) is not None:
        raise BraidError(wrong, "put it back from a copy")
    if (held := held_of(store, known)) is not None:
        ties.check_output(folder, last, held, lambda: None)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def amount(n: int) -> str:
    if n >= 1e10:
        return f"{n / 1e9:,.1f} GB"
    return f"{n / 1e6:,.1f} MB" if n >= 1e5 else _count(n, "byte")
