"""What an object store does that is no folder of this disk: all that follows from a few calls.

In: `create`, `put`, `write`, `get`, `range`, `size`, `delete`, `list`, of a kind of store. Out: an `ObjectStore`.
Rule: objects do not grow. A document is its versions, `documents/NAME/NUMBER.json`, the last of which counts; they
stay, as a number that was free again would be taken by who has slept since he looked. Files to map are copies
(`cache.py`).
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Self
from uuid import uuid4

from braid.store.cache import cache_of
from braid.store.interface import LARGEST, Change, ObjectStore, named

DOCUMENTS = "documents"
VERSION = re.compile(r"/([0-9]{20})\.json$")  # ends the name of one of a document's


class RemoteStore(ObjectStore):
    """`prefix`: begins the names of its objects, without a `/` at its end."""

    __slots__ = ()

    prefix: str

    @abstractmethod
    def _below(self, prefix: str) -> Self:
        """The same store, of the objects whose names begin with another prefix."""

    @property
    def path(self) -> None:
        return None

    @property
    def parent(self) -> Self:
        return self._below(self.prefix.rpartition("/")[0])

    def at(self, name: str) -> Self:
        return self._below(self._key(name))

    def beside(self, end: str) -> Self:
        return self._below(self.prefix + end)

    def append(self, name: str, data: bytes, fsync: bool = False) -> bool:
        return False

    def local(self, name: str, fetch: Callable[[str], None]) -> str:
        return cache_of(self).held(name, fetch)

    def unread(self, name: str) -> None:
        cache_of(self).drop(name)

    def scratch(self, name: str, fsync: bool = False) -> str:
        return os.path.join(cache_of(self).scratch, uuid4().hex)

    def take(self, name: str, path: str, fsync: bool = False) -> None:
        try:
            self.put(name, path)
        finally:
            os.unlink(path)

    def version(self, name: str) -> object:
        return None

    def sizes(self) -> dict[str, int]:
        return dict(self.list(""))

    def names(self, folder: str) -> Sequence[str]:
        return [name.removeprefix(f"{folder}/") for name, _ in self.list(folder)]

    def folders(self) -> Sequence[str]:
        return sorted({name.partition("/")[0] for name, _ in self.list("") if "/" in name})

    def clear(self, last: str | None = None) -> None:
        self.delete(*(name for name, _ in self.list("") if name != last))
        if last is not None:
            self.delete(last)

    def clean(self, folder: str) -> None:
        """Nothing is seen of what was begun."""

    def sweep(self) -> None:
        """Nothing is: what was cleared in part is cleared again."""

    def latest(self, name: str, most: int = LARGEST) -> tuple[str, bytes] | None:
        number = self._newest(name)
        return (_version(name, number), self.get(_version(name, number), most)) if number else None

    def change(self, name: str, to: Change, most: int = LARGEST) -> None:
        """Each change is the *create* of the next version, and who comes second begins again."""
        while True:
            number = self._newest(name)
            version = _version(name, number)
            after = to((version, self.get(version, most)) if number else None, _version(name, number + 1))
            if after is None or self.create(_version(name, number + 1), after):
                return

    def documents(self, *folders: str) -> Sequence[str]:
        return sorted({name.rpartition("/")[0] for name in self.names(DOCUMENTS)})

    def _newest(self, name: str) -> int:
        """The number of the last version; 0 where there is none."""
        found = (VERSION.search(file) for file, _ in self.list(f"{DOCUMENTS}/{name}"))
        return max((int(m[1]) for m in found if m is not None), default=0)

    def _key(self, name: str) -> str:
        """The whole name of one of its objects."""
        return f"{self.prefix}/{named(name)}" if self.prefix else named(name)


def _version(name: str, number: int) -> str:
    return f"{DOCUMENTS}/{name}/{number:020d}.json"
