"""Which object store a URL or a path names.

In: what the user wrote. Out: a folder or an object store, not touched yet.
Rule: a URL holds no credentials: one that may is refused, and is not shown. What was meant as a URL and is none, as
`s3:/bucket/x`, is never taken for a folder of that name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from urllib.parse import unquote

from braid.errors import BraidError, printable
from braid.store.folder import FolderStore
from braid.store.interface import ObjectStore
from braid.store.objects import KINDS, BucketStore

_OBJECTS = re.compile(
    r"(?P<kind>[a-z0-9]+)://(?P<bucket>[a-z0-9][a-z0-9._-]{2,221})(?P<path>(?:/[A-Za-z0-9._=-]{1,200})*)/?"
)
_LIKE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az", "wasbs": "az"}


NOWHERE: ObjectStore = FolderStore("")  # of what has not been opened yet

_NEARLY = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/*)")


def is_url(place: str) -> bool:
    """Whether it is a URL, and no path."""
    if "://" in place:
        return True
    nearly = _NEARLY.match(place)
    if nearly is not None and (nearly[2] or nearly[1].lower() in _SCHEMES):
        kind = nearly[1].lower()[:20]
        meant = _LIKE.get(kind, kind)
        write = "topics in Kafka are named by --kafka HOST:PORT" if kind == "kafka" else f"a URL begins with {meant}://"
        what = f"{nearly[1][:20]}:{nearly[2][:1]}… is neither a URL nor a path"
        raise BraidError(what, f"{write}; a path that begins so is written ./{nearly[1][:20]}:{nearly[2][:1]}…")
    return False


def on_disk(path: str) -> str:
    """A path, as it was written; a URL is refused where only files of this machine do."""
    if is_url(path):
        what = (
            f"{printable(path.split('://', 1)[0][:20])}://… is no path: such files are read and written on disks only"
        )
        raise BraidError(what, "name a path that this machine sees; an object store is for --store and backups")
    return path


def opened(place: str | os.PathLike[str]) -> ObjectStore:
    """The store at a URL, or at the path of a folder."""
    place = os.fspath(place)
    if not is_url(place):
        return FolderStore(os.path.realpath(place), said=place)
    kind = place.split("://", 1)[0]
    if kind in _OPENED:
        return _OPENED[kind](place)
    meant = _LIKE.get(kind.lower(), kind.lower())
    hint = f"write {meant}://…" if meant in _OPENED else f"there are {', '.join(f'{k}://' for k in _OPENED)}"
    raise BraidError(f"braid keeps nothing at {kind[:20]}://", hint)


def _bucket(place: str) -> BucketStore:
    kind = place.split("://", 1)[0]
    found = _OBJECTS.fullmatch(place)
    if found is None or {".", ".."} & {*found["path"].split("/")}:
        what = KINDS[kind].bucket.upper()
        hint = "letters, digits, '.', '_', '=' and '-'; credentials are read from the environment, never from the URL"
        raise BraidError(f"that is not the URL of an object store: write {kind}://{what}/PATH", hint)
    return BucketStore(kind, found["bucket"], found["path"].strip("/"))


def _local(place: str) -> FolderStore:
    path = unquote(place.removeprefix("file://").removeprefix("localhost"))
    if not path.startswith("/"):
        raise BraidError("the URL of a folder has three slashes", f"write file://{os.path.abspath('PATH')}")
    return FolderStore(os.path.realpath(path))


_OPENED: dict[str, Callable[[str], ObjectStore]] = {**dict.fromkeys(KINDS, _bucket), "file": _local}
_SCHEMES = frozenset({*_OPENED, *_LIKE, "kafka", "http", "https", "hdfs", "dbfs"})
