"""What is wanted of topics: that records are kept for a time, so many bytes of them, of each key the last.

In: a store. Out: the settings of its user.
Rule: they stand in one document of the store, by the names of topics, and so outlive a topic that is made anew.

    retention.json   {TOPIC: {"ms": …, "bytes": …, "compact": true, "tombstones": ms}}
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from braid.errors import BraidError
from braid.store import ObjectStore
from braid.topics.documents import called, changed, document
from braid.topics.files import members, parsed, whole, why

NAME = "retention"
DAY = 86_400_000  # ms


@dataclass(frozen=True, slots=True)
class Retention:
    """`ms`: records go that are older; `bytes`: of a partition, above which the oldest go; `compact`: of each key only
    the last record stays, and one without a value goes `tombstones` ms after the topic was compacted with it."""

    ms: int | None = None
    bytes: int | None = None
    compact: bool = False
    tombstones: int = DAY

    @property
    def limited(self) -> bool:
        return self.ms is not None or self.bytes is not None

    def __bool__(self) -> bool:
        return self.limited or self.compact


def all_of(root: ObjectStore) -> dict[str, Retention]:
    """What is wanted of the topics of a store."""
    return _read(root, document(root, NAME))


def want(root: ObjectStore, topic: str, retention: Retention) -> None:
    """From now on the topic keeps that; all, where nothing is said."""

    def put(before: bytes | None) -> bytes | None:
        found = _read(root, before)
        if found.get(topic, Retention()) == retention:
            return None
        found = {**found, topic: retention}
        return json.dumps({name: _json(x) for name, x in sorted(found.items()) if x}, indent=1).encode()

    changed(root, NAME, put)


def _json(x: Retention) -> dict[str, int | bool]:
    limits = {name: n for name, n in (("ms", x.ms), ("bytes", x.bytes)) if n is not None}
    return {**limits, **({"compact": True, "tombstones": x.tombstones} if x.compact else {})}


def _read(root: ObjectStore, data: bytes | None) -> dict[str, Retention]:
    if data is None:
        return {}
    try:
        return {name: _of(members(x, "a topic")) for name, x in members(parsed(data)).items()}
    except (ValueError, KeyError) as e:
        raise BraidError(f"{called(root, NAME)} cannot be read: {why(e)}", "put it back from a copy") from None


def _of(x: dict[str, object]) -> Retention:
    ms, size = (whole(x[name], name) if name in x else None for name in ("ms", "bytes"))
    return Retention(ms, size, x.get("compact") is True, whole(x.get("tombstones", DAY), "tombstones"))
