"""The compiled core: whether it is there, and what it is asked.

In: `braid_native.so` beside this module (`native/build.py`). Out: its functions; why it is not used; how many lines it
has read, and how many were left to Python.
Rule: nothing depends on it. It is taken only if it is as it was built, of the sources that are there; `BRAID_NATIVE=0`
leaves it out. It keeps nothing: all memory is the caller's.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = "braid_native.so"
OFF = "BRAID_NATIVE"


@functools.cache
def core() -> ctypes.CDLL | None:
    return loaded()[0]


@functools.cache
def loaded() -> tuple[ctypes.CDLL | None, str]:
    """The core, or why there is none."""
    path = HERE / LIBRARY
    if os.environ.get(OFF) == "0":
        return None, f"{OFF} is 0"
    if not path.exists():
        return None, "it was not built: that needs cargo, and `make install` or a wheel of this platform"
    recorded = _recorded()
    try:
        if hashlib.sha256(path.read_bytes()).hexdigest() not in recorded[1:]:
            return None, f"{path} is not as it was built: remove it and build it again, python native/build.py"
        made = ctypes.CDLL(str(path))
        made.braid_source.restype = ctypes.c_char_p
        made.braid_lines.restype = ctypes.c_size_t
        made.braid_json_lines.restype = ctypes.c_int64
        made.braid_texts.restype = ctypes.c_int64
        of = made.braid_source().decode()
    except (OSError, AttributeError, UnicodeDecodeError) as e:
        return None, f"it cannot be loaded: {e}"
    if of != (expected() or recorded[0]):
        return None, "it was built of other sources: make install builds it again"
    return made, ""


def _recorded() -> list[str]:
    """The digest of the sources and the checksum of the core, as they were when it was built."""
    try:
        return (HERE / LIBRARY).with_suffix(".source").read_text().split() or [""]
    except (OSError, UnicodeDecodeError):
        return [""]


def expected() -> str:
    """The digest of the sources; empty where they are not there."""
    folder = HERE.parent.parent / "native"
    if not (folder / "Cargo.toml").exists():
        return ""
    found = hashlib.sha256()
    for path in [folder / "Cargo.toml", folder / "Cargo.lock", *sorted((folder / "src").glob("*.rs"))]:
        found.update(f"{path.name}\n{path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()[:32]


class Lines:
    """How many lines each path has read in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.compiled = self.python = 0

    def add(self, compiled: int, python: int) -> None:
        with self._lock:
            self.compiled, self.python = self.compiled + compiled, self.python + python


LINES = Lines()
