"""How records leave a topic: by one commit.

In: a topic under its lock, its view, what is to be kept of it. Out: the commit, and nothing left of what it took away.
Rule: before the commit all is there; after it, whoever looks finds the records gone. What still lies there then goes at
once, or with the next that takes the topic's lock, or, in an object store, with the next such commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from braid.topics import commit
from braid.topics.files import reach
from braid.topics.log import Topic
from braid.topics.segments import Segment
from braid.topics.view import Keep, Origin, View


@dataclass(slots=True)
class Gone:
    """What went of a topic: records, bytes. `held`: the first offset that a reader needs, by partition, where more
    would have gone."""

    records: int = 0
    size: int = 0
    held: dict[int, int] = field(default_factory=dict)

    def count(self, segments: Iterable[Segment]) -> None:
        """Whole segments that went."""
        for s in segments:
            self.records += s.extent.records
            self.size += s.extent.size


@contextlib.contextmanager
def ready(topic: Topic) -> Iterator[View]:
    """The topic's lock, and the view from which records may be taken away."""
    with topic.locked() as view:
        commit.recover(topic, view)
        yield topic.settled()


def taken(topic: Topic, view: View, keep: Keep) -> bool:
    """False where somebody else was faster: look again."""
    keep = topic.leaving(view, keep)
    before = view.left
    if not topic.commit(view, Origin(), [], keep):
        topic.anew()
        return False
    with commit.left_to_others():
        commit.finish(topic, topic.known())
        topic.discard([*before, *keep.left])
    reach("records taken away")
    return True
