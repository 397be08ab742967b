"""A query goes on in other buckets and tasks: what was asked for, and the one step in which it becomes so.

In: the folder of a checkpoint, other numbers; at the next start the plan, too. Out: the checkpoint in these.
Rule: what is asked for is written down (`rescale.json`) and done when the query starts next, since only its plan says
by what the rows of a state are spread. Until then nothing has changed. New runs get names that no state names. Then the
same file gets all that is to come: from this moment the old spread is gone, and whoever comes next writes the rest,
again and again, until it stands. It holds for the batch behind which it was made; behind another it is made anew. A
batch that was begun behind that is done again, as ever, now in the new spread: its offsets are the same, and so is what
it gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from braid.errors import BraidError
from braid.lower.physical import Plan
from braid.operators.base import RunStore
from braid.stage import batches, checkpoint, state_file
from braid.stage.bucket import BucketState
from braid.stage.checkpoint import RESCALE, Document
from braid.stage.checkpoint_runs import CheckpointRuns, packing_of, renamed
from braid.stage.epoch import Epoch, fence
from braid.stage.rescaled_state import rescaled
from braid.store import ObjectStore
from braid.topics.files import items, members, parsed, reach, whole, why
from braid.topics.sealed import sealed, unsealed

Ids = Callable[[int, int], Sequence[int]]  # Spark's keys of so many buckets, in so many tasks


@dataclass(frozen=True, slots=True)
class Spread:
    """`buckets`: of each stage with state, `tasks`: of each stage."""

    buckets: int
    tasks: int

    def __str__(self) -> str:
        buckets, tasks = self.buckets, self.tasks
        return f"{buckets} bucket{'s' * (buckets != 1)} and {tasks} task{'s' * (tasks != 1)} a stage"


def of(known: Document) -> Spread:
    return Spread(known.buckets, known.shuffle)


def check(folder: ObjectStore, known: Document, wanted: Spread) -> None:
    """Refuses what cannot be."""
    outputs = known.outputs
    if wanted.buckets % outputs:
        what = f"{wanted.buckets} buckets for {outputs} partitions of the output"
        raise BraidError(what, f"give a multiple of {outputs}: a partition is written from buckets of its own")
    if wanted.buckets < wanted.tasks:
        least = outputs * -(-wanted.tasks // outputs)
        what = f"{wanted.tasks} tasks for {wanted.buckets} buckets"
        raise BraidError(what, f"--buckets {least} at least: a bucket is one task's work")
    if "topics" not in known.settings or known.writes()[0] is None:
        return  # its output is not in Kafka
    if "delivery" not in known.settings and wanted.tasks > outputs:
        what = f"{wanted.tasks} tasks for {outputs} partitions of the output in Kafka: each marks one of its own"
        raise BraidError(what, f"--tasks {outputs} at most")
    if batches.begun(folder):
        what = f"{known.query} has begun a batch and not finished it, of which tasks may have written parts to Kafka"
        raise BraidError(what, "run it once more with --until-idle, then rescale it")


def asked(folder: ObjectStore, query: str) -> Spread | None:
    """What is to be, if that is not yet so."""
    said = _read(folder, query)
    return None if said is None else said.spread


def settled(folder: ObjectStore, known: Document, last: int | None) -> Document:
    """The document as it is behind a rescale that was decided; that is brought to its end."""
    said = _read(folder, known.query)
    if said is None or said.batch != _number(last):
        return known
    fence(folder)
    return _finish(folder, known, said)


def ask(folder: ObjectStore, known: Document, wanted: Spread) -> None:
    """From its next start on the query, which is `settled`, is spread so."""
    if wanted == of(known):
        _end(folder)
        return
    check(folder, known, wanted)
    said = {"query": known.query, "buckets": wanted.buckets, "tasks": wanted.tasks}
    folder.write(RESCALE, sealed(json.dumps(said, indent=1).encode()), fsync=True)
    reach("rescale asked for")


def carry_out(epoch: Epoch, plan: Plan, known: Document, last: int | None, ids: Ids) -> None:
    """What was asked for becomes so, if anything was. `last`: the last batch that was committed; `known` and it have
    been looked through."""
    folder = epoch.checkpoint
    said = _read(folder, known.query)
    if said is None:
        return
    wanted, batch = said.spread, _number(last)
    if said.batch != batch or not _whole(folder, said):
        check(folder, known, wanted)
        state: state_file.Documents | None = None
        if wanted.buckets != known.buckets:
            plan = replace(plan, numbers=dict(known.numbers))
            state = _spread_anew(epoch, plan, known.buckets, wanted.buckets, batch)
        reach("runs written")
        said = _Said(wanted, batch, ids(wanted.buckets, wanted.tasks), state)
        epoch.check()
        folder.write(RESCALE, said.dumps(known.query), fsync=True)
        reach("rescale decided")
    epoch.check()
    _finish(folder, known, said)


def _whole(folder: ObjectStore, said: _Said) -> bool:
    """Whether the objects are there that it names: not those of a driver that decided when another had taken over."""
    there = {name for name, _ in folder.list(state_file.RUNS)}
    return said.state is None or state_file.objects_in(said.state) <= there


def _number(last: int | None) -> int:
    return -1 if last is None else last


@dataclass(frozen=True, slots=True)
class _Said:
    """What stands in the file. `batch`: the one behind which all the rest was made; None: it is only asked for.
    `state`: of all buckets; None: it stays as it is."""

    spread: Spread
    batch: int | None = None
    ids: Sequence[int] = ()
    state: state_file.Documents | None = None

    def dumps(self, query: str) -> bytes:
        named = {"query": query, "buckets": self.spread.buckets, "tasks": self.spread.tasks, "batch": self.batch}
        data = json.dumps(named | {"ids": list(self.ids), "state": self.state}, separators=(",", ":"))
        return sealed(data.encode())


def _read(folder: ObjectStore, query: str) -> _Said | None:
    path = folder.called(RESCALE)
    try:
        x = members(parsed(unsealed(folder.get(RESCALE, state_file.MOST))))
        if x.get("query", query) != query:
            raise ValueError(f"it is of the query {x['query']!r:.100}")
        spread = Spread(whole(x["buckets"], "buckets", 1), whole(x["tasks"], "tasks", 1))
        if "batch" not in x:
            return _Said(spread)
        ids = [whole(i, "a bucket") for i in items(x["ids"], "ids")]
        state = None if x["state"] is None else members(x["state"], "state")
        return _Said(spread, whole(x["batch"], "batch", -1), ids, state)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as e:
        raise BraidError(f"{path} cannot be read: {why(e)}", "put it back from a copy") from e


def _spread_anew(epoch: Epoch, plan: Plan, before: int, buckets: int, batch: int) -> state_file.Documents:
    """The documents of all buckets, whose new runs are on the disk."""
    folder = epoch.checkpoint
    texts, packing = state_file.texts(folder, batch), packing_of(folder, epoch.number, max(0, batch))

    def runs(stage: int, bucket: int) -> RunStore:
        return CheckpointRuns(folder, state_file.place(stage, bucket), fsync=True, packing=packing)

    def state(stage: int, bucket: int) -> BucketState:
        return BucketState.loads(texts.get(state_file.place(stage, bucket)), runs(stage, bucket))

    old = [[state(s.number, b) for b in range(1 if s.single else before)] for s in plan.stages]
    made = rescaled(plan, old, buckets, runs, f"spread-{batch}-{uuid4().hex[:8]}")
    documents = {
        state_file.place(stage, bucket): x.document()
        for stage, states in enumerate(made)
        for bucket, x in enumerate(states)
        if x.clocks or x.manifests
    }
    return documents if packing is None else renamed(documents, packing.send())


def _finish(folder: ObjectStore, known: Document, said: _Said) -> Document:
    """What was decided is written, however far somebody has come with it."""
    assert said.batch is not None
    if said.state is not None:
        if said.batch >= 0:
            tie = state_file.tie(folder, said.batch)
            reads = state_file.reads(folder, said.batch)
            state_file.replace(folder, said.batch, said.state, tie, reads, said.spread.buckets)
        reach("state written")
        batches.keep_begun(folder, said.batch if said.batch >= 0 else None)
        state_file.forget_later(folder, said.batch)
        reach("later states removed")
    made = checkpoint.respread(folder, known, said.spread.buckets, said.spread.tasks, said.ids)
    reach("checkpoint written")
    _end(folder)  # what is old goes when the query begins (`RunObjects.begin`)
    return made


def _end(folder: ObjectStore) -> None:
    if folder.has(RESCALE):
        folder.delete(RESCALE, fsync=True)
    reach("rescale ended")
