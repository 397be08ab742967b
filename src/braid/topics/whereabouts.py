"""Where the checkpoints of a store's queries lie, and which store a checkpoint belongs to: `store.json`.

In: the root of a store, a folder of checkpoints. Out: the store's id; all folders of checkpoints that it knows.
Rule: a checkpoint in the store's own folder belongs to it, wherever that is moved or copied to. One that lies elsewhere
(`--checkpoint`) is known by the store, and knows the store by its id: offsets and commits of two stores never meet.
"""

from __future__ import annotations

import json
import os
from uuid import uuid4

from braid.errors import BraidError
from braid.store import is_url
from braid.topics.documents import called, changed, document
from braid.topics.files import items, members, parsed, text, why

NAME = "store"


def own(root: str) -> str:
    """The folder of checkpoints in a store."""
    return os.path.join(root, "checkpoints")


def place(parent: str) -> str:
    """A folder of checkpoints as the user named it, wherever this process goes later."""
    return parent.rstrip("/") if is_url(parent) else os.path.abspath(parent)


def identity(root: str, folder: str) -> str:
    """The id by which a checkpoint outside of this store knows it; the empty text for one inside."""
    return "" if _inside(root, os.path.dirname(folder)) else _read(root)[0]


def parents(root: str) -> list[str]:
    """All folders in which queries of this store may have checkpoints, its own first."""
    return [own(root), *_read(root)[1]]


def note(root: str, parent: str) -> None:
    """The store knows of this folder of checkpoints from here on."""
    if _inside(root, parent):
        return

    def noted(before: bytes | None) -> bytes | None:
        known, elsewhere = _parsed(root, before)
        if known and parent in elsewhere:
            return None
        made = {"id": known or uuid4().hex, "checkpoints": sorted({*elsewhere, parent})}
        return json.dumps(made, indent=1).encode()

    changed(root, NAME, noted)


def refuse_other(root: str, folder: str, owner: str) -> None:
    """Refuses a checkpoint that knows another store (`owner`) than this one."""
    if not belongs(root, folder, owner):
        what = f"the checkpoint {folder} belongs to another store than {root}"
        raise BraidError(what, "name its store: --store DIR; or give this one a --checkpoint DIR of its own")


def belongs(root: str, folder: str, owner: str) -> bool:
    """Whether a checkpoint that knows the store `owner` is of this one; of old versions, that record none, it is."""
    return owner in ("", identity(root, folder)) or _inside(root, os.path.dirname(folder))


def _inside(root: str, parent: str) -> bool:
    return (place(parent) if is_url(parent) else os.path.realpath(parent)) == own(root)


def _read(root: str) -> tuple[str, list[str]]:
    return _parsed(root, document(root, NAME))


def _parsed(root: str, data: bytes | None) -> tuple[str, list[str]]:
    if data is None:
        return "", []
    try:
        x = members(parsed(data))
        return text(x["id"], "id"), [text(p, "a folder") for p in items(x["checkpoints"], "checkpoints")]
    except (ValueError, KeyError) as e:
        raise BraidError(f"{called(root, NAME)} cannot be read: {why(e)}", "put it back from a copy") from None
