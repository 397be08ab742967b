"""Where durable things are kept: a folder, or an object store (docs/decisions/0076-a-store-is-a-value.md)."""

from braid.store.interface import ObjectStore
from braid.store.opening import NOWHERE, is_url, on_disk, opened

__all__ = ["NOWHERE", "ObjectStore", "is_url", "on_disk", "opened"]
