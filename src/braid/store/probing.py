"""Whether a place in an object store can be used from a machine, before anything of a user's is written there.

In: its URL. Out: an object that others are to find; why they cannot read it, or write and delete beside it.
Rule: nothing stays. A server that does not answer is not waited for longer than where a command begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from uuid import uuid4

from braid.errors import BraidError
from braid.store import objects
from braid.store.interface import ObjectStore
from braid.store.opening import opened

FOLDER = "probes"
_SIZE = 64


@contextlib.contextmanager
def probe(url: str) -> Iterator[tuple[str, bytes]]:
    """An object and what is in it, as long as others look for it."""
    store, name, token = opened(url), f"{FOLDER}/{uuid4().hex}", uuid4().bytes
    store.create(name, token)
    try:
        yield name, token
    finally:
        with contextlib.suppress(BraidError):
            store.delete(name)


def unusable(url: str, name: str, token: bytes) -> str:
    """Why this machine cannot use it; empty where it can. `name`, `token`: of another's `probe`."""
    objects.at_start(lambda text: None)
    try:
        return _tried(opened(url), name, token)
    except BraidError as e:
        return e.message.removeprefix(url).removeprefix(": ")
    finally:
        objects.at_start(None)


def _tried(store: ObjectStore, name: str, token: bytes) -> str:
    try:
        if store.get(name, _SIZE) != token:
            return "what others have written there is not what is found"
    except FileNotFoundError:
        return "what others have written there is not found: is it the same server?"
    own = f"{FOLDER}/{uuid4().hex}"
    store.create(own, token)
    store.delete(own)
    return ""


def check(url: str) -> None:
    """Refuses a place that cannot be used from here."""
    with probe(url) as (name, token):
        if why := _tried(opened(url), name, token):
            raise BraidError(f"{url}: {why}")
