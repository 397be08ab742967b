"""`braid rescale`: a query that has run goes on in other buckets and tasks.

In: a store that no run uses, a query, other numbers. Out: what is to be, in the checkpoint; a line that tells it.
Rule: what cannot be is refused here, in one line. The rest is done when the query starts (`stage/rescale.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from braid.errors import BraidError
from braid.face.reset import named, queries
from braid.face.show import open_store
from braid.stage import batches, checkpoint
from braid.stage import rescale as rescaling
from braid.stage.rescale import Spread
from braid.store import ObjectStore
from braid.topics.lock import StoreLock

EACH = 2  # buckets of a task, where only tasks are asked for


def rescale(
    store: ObjectStore,
    query: str,
    buckets: int | None = None,
    tasks: int | None = None,
    parent: ObjectStore | None = None,
) -> Iterator[str]:
    """`parent`: the folder of its checkpoint."""
    if buckets is None and tasks is None:
        raise BraidError("a rescale needs a number", "give --tasks N, --buckets N, or both")
    opened = open_store(store)
    with StoreLock(opened.root):
        found = named(query, queries(opened, parent), store, parent)
        if found.torn is not None:
            raise found.torn
        known = checkpoint.load(found.folder)
        assert known is not None
        known = rescaling.settled(found.folder, known, batches.last_batch(found.folder, known))
        is_ = rescaling.of(known)
        tasks = tasks or is_.tasks
        wanted = Spread(buckets or _enough(is_.buckets, known.outputs, tasks), tasks)
        rescaling.ask(found.folder, known, wanted)
    if wanted == is_:
        yield f"{found.name} stays as it is: {is_}"
    else:
        yield f"{found.name} goes on in {wanted} when it starts again; it has {is_}"


def _enough(now: int, outputs: int, tasks: int) -> int:
    """Buckets for so many tasks: as they are where they are enough, else as a query has that starts with so many."""
    return now if now >= EACH * tasks else outputs * -(-EACH * tasks // outputs)
