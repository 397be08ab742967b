"""Which room a URL names.

In: what the user wrote. Out: a folder or an object store, not touched yet.
Rule: a URL holds no credentials: one that may is refused, and is not shown.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from braid.errors import BraidError
from braid.store.folder import FolderRoom
from braid.store.interface import Room
from braid.store.objects import KINDS, ObjectRoom

_OBJECTS = re.compile(
    r"(?P<kind>[a-z0-9]+)://(?P<bucket>[a-z0-9][a-z0-9._-]{2,221})(?P<path>(?:/[A-Za-z0-9._=-]{1,200})*)/?"
)
_LIKE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az", "wasbs": "az"}


def is_url(place: str) -> bool:
    return "://" in place


def opened(place: str) -> Room:
    """The room at a URL, or at the path of a folder."""
    if not is_url(place):
        return FolderRoom(os.path.realpath(place))
    kind = place.split("://", 1)[0]
    if kind == "file":
        return _local(place)
    if kind not in KINDS:
        meant = _LIKE.get(kind.lower(), kind.lower())
        kinds = ", ".join(f"{k}://" for k in (*KINDS, "file"))
        hint = f"write {meant}://…" if meant in KINDS else f"there are {kinds}"
        raise BraidError(f"braid keeps nothing at {kind[:20]}://", hint)
    found = _OBJECTS.fullmatch(place)
    if found is None or {".", ".."} & {*found["path"].split("/")}:
        what = KINDS[kind].bucket.upper()
        hint = "letters, digits, '.', '_', '=' and '-'; credentials are read from the environment, never from the URL"
        raise BraidError(f"that is not the URL of an object store: write {kind}://{what}/PATH", hint)
    return ObjectRoom(kind, found["bucket"], found["path"].strip("/"))


def _local(place: str) -> FolderRoom:
    path = unquote(place.removeprefix("file://").removeprefix("localhost"))
    if not path.startswith("/"):
        raise BraidError("the URL of a folder has three slashes", f"write file://{os.path.abspath('PATH')}")
    return FolderRoom(os.path.realpath(path))
