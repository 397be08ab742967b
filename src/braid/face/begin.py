"""`--from`: where queries begin, as users write it.

In: texts, `[TOPIC:]WHERE`. Out: `Begins`.
Rule: WHERE is earliest, latest, a time, or offsets by partition (P=OFFSET, with commas), which need a topic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from braid.errors import BraidError
from braid.face.tabular import milliseconds
from braid.topics.begin import Begins, Where

_HINT = "it takes earliest, latest, a time, or TOPIC: and one of these, or TOPIC:0=15,1=20"


def begins_of(given: str | Sequence[str]) -> Begins:
    """What all the texts say."""
    streams: Where | None = None
    topics: dict[str, Where] = {}
    for text in [given] if isinstance(given, str) else given:
        where, topic = _where(text), ""
        if where is None:
            topic, _, rest = text.partition(":")
            where = _where(rest) or _offsets(rest)
            if where is None or not topic:
                raise BraidError(f"--from {text} is no place to begin at", _HINT)
        if topic in topics or (not topic and streams is not None):
            raise BraidError(f"--from {text}: that was said before", "say it once of streams, and once of a topic")
        if topic:
            topics[topic] = where
        else:
            streams = where
    return Begins(streams, topics)


def check_read(begins: Begins, read: Collection[str]) -> None:
    """Refuses a topic that nobody reads."""
    for topic in begins.topics:
        if topic not in read:
            raise BraidError(f"--from {topic}:…: no query reads that topic", f"read are {', '.join(sorted(read))}")


def _where(text: str) -> Where | None:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        return milliseconds(text)
    except (ValueError, OverflowError):
        return None


def _offsets(text: str) -> Where | None:
    pairs = [re.fullmatch(r"([0-9]{1,9})=([0-9]{1,18})", x.strip(), re.ASCII) for x in text.split(",")]
    made = {int(m[1]): int(m[2]) for m in pairs if m is not None}
    return tuple(sorted(made.items())) if len(made) == len(pairs) else None
