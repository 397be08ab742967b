"""Where the checkpoints of a store's queries are, and which store a checkpoint belongs to: `store.json`.

In: a store, a store of checkpoints. Out: the store's id; all stores of checkpoints that it knows.
Rule: a checkpoint in the store's own folder belongs to it, wherever that is moved or copied to. One that lies elsewhere
(`--checkpoint`) is known by the store, and knows the store by its id: offsets and commits of two stores never meet.
"""

from __future__ import annotations

import json
from uuid import uuid4

from braid.errors import BraidError
from braid.store import ObjectStore, opened
from braid.topics.documents import called, changed, document
from braid.topics.files import items, members, parsed, text, why

NAME = "store"
OWN = "checkpoints"


def own(root: ObjectStore) -> ObjectStore:
    """The checkpoints in a store."""
    return root.at(OWN)


def identity(root: ObjectStore, checkpoint: ObjectStore) -> str:
    """The id by which a checkpoint outside of this store knows it; the empty text for one inside."""
    return "" if checkpoint.parent == own(root) else _read(root)[0]


def parents(root: ObjectStore) -> list[ObjectStore]:
    """All places in which queries of this store may have checkpoints, its own first."""
    return [own(root), *map(opened, _read(root)[1])]


def note(root: ObjectStore, parent: ObjectStore) -> None:
    """The store knows of these checkpoints from here on."""
    if parent == own(root):
        return

    def noted(before: bytes | None) -> bytes | None:
        known, elsewhere = _parsed(root, before)
        if known and parent.given in elsewhere:
            return None
        made = {"id": known or uuid4().hex, "checkpoints": sorted({*elsewhere, parent.given})}
        return json.dumps(made, indent=1).encode()

    changed(root, NAME, noted)


def refuse_other(root: ObjectStore, checkpoint: ObjectStore, owner: str) -> None:
    """Refuses a checkpoint that knows another store (`owner`) than this one."""
    if not belongs(root, checkpoint, owner):
        what = f"the checkpoint {checkpoint} belongs to another store than {root.url}"
        raise BraidError(what, "name its store: --store DIR; or give this one a --checkpoint DIR of its own")


def belongs(root: ObjectStore, checkpoint: ObjectStore, owner: str) -> bool:
    """Whether a checkpoint that knows the store `owner` is of this one; of old versions, that record none, it is."""
    return owner in ("", identity(root, checkpoint)) or checkpoint.parent == own(root)


def _read(root: ObjectStore) -> tuple[str, list[str]]:
    return _parsed(root, document(root, NAME))


def _parsed(root: ObjectStore, data: bytes | None) -> tuple[str, list[str]]:
    if data is None:
        return "", []
    try:
        x = members(parsed(data))
        return text(x["id"], "id"), [text(p, "a folder") for p in items(x["checkpoints"], "checkpoints")]
    except (ValueError, KeyError) as e:
        raise BraidError(f"{called(root, NAME)} cannot be read: {why(e)}", "put it back from a copy") from None
