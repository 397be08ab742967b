"""The files that RUN SCRIPT reads.

In: the folder of the file that was named on the command line, or the present one; a path of a statement. Out: text.
Rule: a statement reads nothing outside that folder, wherever links lead: who is given a file of statements gives it no
right to look elsewhere. (docs/security.md, "Scripts")
"""

from __future__ import annotations

import os

from braid.errors import BraidError
from braid.sql.parser import Scripts
from braid.topics.files import read_small

MOST = 16 << 20  # bytes of a script


def scripts_in(folder: str) -> Scripts:
    """What reads a script of this folder."""
    root = os.path.realpath(folder)

    def read(path: str) -> str:
        try:
            full = os.path.realpath(os.path.join(root, path))
            inside = os.path.commonpath([root, full]) == root
        except ValueError:  # a null byte, or another drive
            inside = False
        if not inside:
            hint = f"scripts lie in {root}: the folder of the file that is run, or the present one"
            raise BraidError(f"{path} is outside of the folder of scripts", hint)
        try:
            return read_small(full, MOST).decode()
        except BraidError as e:
            raise BraidError(e.message) from None
        except UnicodeDecodeError:
            raise BraidError(f"{path} is not UTF-8 text") from None
        except OSError as e:
            raise BraidError(f"cannot read {path}: {e.strerror}") from None

    return read
