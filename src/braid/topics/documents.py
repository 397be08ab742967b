"""Small documents of a store beside its topics: its id, its catalogue, its schemas, notes of its tables.

In: a store, the name of a document. Out: its bytes as they are; a change of it.
Rule: each stands under a checksum of its bytes and of what it was written as (`sealed.py`), which nobody else sees. Of
two that change a document at once the second changes what the first has left (`ObjectStore.change`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from braid.errors import BraidError
from braid.store import ObjectStore
from braid.store.remote import DOCUMENTS, VERSION
from braid.topics.sealed import sealed, unsealed

MOST = 64 << 20  # bytes of a document
_FOLDERS = ("catalogue", "frames", "tables")  # of a store in a folder, that have nothing but documents
_RECENT = 10  # versions of a document that stay as they are: somebody may just have listed them

Change = Callable[[bytes | None], bytes | None]


def document(root: ObjectStore, name: str) -> bytes | None:
    """As it is; None where there is none."""
    return _checked(root, name, root.latest(name, MOST))


def changed(root: ObjectStore, name: str, change: Change) -> None:
    """`change` gives the document that follows, or None to leave it as it is. It may be asked more than once."""

    def to(found: tuple[str, bytes] | None, written: str) -> bytes | None:
        after = change(_checked(root, name, found))
        return None if after is None else sealed(after, written)

    root.change(name, to, MOST)


def old_versions(sizes: Mapping[str, int]) -> dict[str, int]:
    """Of all that lies in a bucket the versions of documents that nobody reads any more, and their bytes."""
    found = defaultdict[str, list[str]](list)
    for file in sorted(sizes):
        if file.startswith(f"{DOCUMENTS}/") and VERSION.search(file):
            found[VERSION.sub("", file)].append(file)
    return {file: sizes[file] for files in found.values() for file in files[:-_RECENT] if sizes[file]}


def emptied(root: ObjectStore, files: Iterable[str]) -> None:
    """Old versions lose what is in them. Their numbers stay taken."""
    for file in files:
        root.write(file, b"")


def called(root: ObjectStore, name: str) -> str:
    """The document, for people."""
    found = root.latest(name, MOST)
    return root.called(f"{name}.json" if found is None or found[0] == name else f"{DOCUMENTS}/{name}")


def _checked(root: ObjectStore, name: str, found: tuple[str, bytes] | None) -> bytes | None:
    if found is None:
        return None
    written, data = found
    try:
        return unsealed(data, written)
    except ValueError as e:
        raise BraidError(f"{called(root, name)} is damaged: {e}", "put it back from a copy") from None


def all_of(root: ObjectStore) -> list[str]:
    """The names of all documents that there are."""
    return [*root.documents(*_FOLDERS)]
