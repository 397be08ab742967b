"""Folders that several tests begin from, or compare with, made once a process.

In: what is done to a folder, step by step. Out: the folder after so many steps.
Rule: each step is done to a copy of the folder after the one before, so that no folder changes once it is there; a test
that changes one takes a copy, since processes know what they have read by its path.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path

_FOLDERS: dict[tuple[Hashable, int], Path] = {}


def after(steps: int, what: Hashable, step: Callable[[Path, int], object]) -> Path:
    """The folder after so many steps; `what`: by which it is known that they are the same."""
    if (what, steps) not in _FOLDERS:
        parent = tempfile.mkdtemp(prefix="braid-made-")
        atexit.register(shutil.rmtree, parent, ignore_errors=True)
        folder = Path(parent) / "it"
        if steps:
            shutil.copytree(after(steps - 1, what, step), folder)
            step(folder, steps - 1)
        else:
            folder.mkdir()
        _FOLDERS[what, steps] = folder
    return _FOLDERS[what, steps]
