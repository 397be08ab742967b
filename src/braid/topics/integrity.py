"""Whether all of a topic is what its commits say.

In: a topic. Out: how much was looked at; an error for each segment that is another file than was committed.
Rule: every byte is read, and nothing is changed or given up: one bad segment does not hide the next.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from functools import partial

from braid.errors import BraidError
from braid.store.files import open_regular
from braid.topics.log import Topic
from braid.topics.reading import positions_of
from braid.topics.segments import Extent, TornError, check_size, check_sum

_BLOCK = 1 << 20


@dataclass(slots=True)
class Checked:
    """What was looked at: records, bytes, segments; and what is wrong."""

    records: int = 0
    size: int = 0
    segments: int = 0
    wrong: list[BraidError] = field(default_factory=list)


def look(topic: Topic) -> Checked:
    """All segments of a topic, and all commits as they are kept. One that is missing or cannot be read raises."""
    found = Checked()
    topic.check_commits()
    for segment in (s for part in topic.view().parts for s in part):
        found.records += segment.extent.records
        found.size += segment.extent.size
        found.segments += 1
        try:
            topic.unread(segment)
            topic.opened(segment, partial(_compare, segment.extent))
            positions_of(topic, segment)
        except TornError as e:
            found.wrong.append(e)
    return found


def _compare(extent: Extent, path: str) -> None:
    crc = 0
    with os.fdopen(open_regular(path), "rb") as f:
        check_size(f, path, extent)
        while block := f.read(_BLOCK):
            crc = zlib.crc32(block, crc)
    check_sum(crc, path, extent.crc32)
