"""The room for durable things: a folder, or an object store (docs/decisions/0048-one-room-for-durable-things.md)."""

from braid.store.interface import Room
from braid.store.opening import is_url, on_disk, opened

__all__ = ["Room", "is_url", "on_disk", "opened"]
