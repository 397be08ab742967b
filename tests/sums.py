"""Documents of a store as a hand changes them that knows of their checksums: so tests reach what is checked behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from braid.topics.sealed import sealed, unsealed


def loaded(path: Path, name: str = "") -> Any:
    """A document without its checksum."""
    return json.loads(unsealed(path.read_bytes(), name))


def with_sum(x: Any, name: str = "") -> bytes:
    """A document with the checksum that it should have; what is no object has none."""
    data = json.dumps(x).encode()
    return sealed(data, name) if isinstance(x, dict) else data
