"""Files that may be written anew: a table is what they hold now.

In: a path or pattern of CSV, JSON lines or Parquet. Out: their rows, file after file in the order of names.
Rule: what is half written is not looked at: a file that somebody has open to write, that has changed within a second or
while it was read, an empty one, one that does not end as its kind does.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass

import polars as pl

from braid.bind.bound import Declared
from braid.errors import BraidError
from braid.files.input import columns_of, open_files
from braid.files.listing import Found, is_plain, look
from braid.store import on_disk
from braid.tables.interface import Read, Table, Unready
from braid.topics.files import open_for_writing

REST = 1.0  # s that a file has been left alone
CALM = 10.0  # s, where its last line has no end


@dataclass(frozen=True)
class SnapshotTable(Table):
    whole = False
    pattern: str

    @staticmethod
    def of(text: str) -> SnapshotTable:
        if not text:
            raise BraidError("snapshot: names no file", "write snapshot:PATH, such as snapshot:customers.csv")
        return SnapshotTable(on_disk(text))

    def described(self) -> str:
        return f"snapshot:{self.pattern}"

    def version(self) -> str | None:
        root, found = look(self.pattern)
        return repr([(root, f.name, f.size, f.mtime) for f in found])

    def read(self, declared: Declared) -> Read:
        source, (root, found) = declared.read_as(declared.name), look(self.pattern)
        for f in found:
            _check_rest(os.path.join(root, f.name), f)
        with tempfile.TemporaryDirectory(prefix="braid-look-") as cache:
            there = open_files(source, self.pattern, cache, declared.in_files)
            (end,) = there.ends()
            made = there.read(0, 0, end)
        if look(self.pattern) != (root, found):
            raise Unready(f"{self.pattern} changed while it was read", "it is read again")
        return Read(made.rows.select(pl.col(c.name).alias(c.field) for c in columns_of(source)), made.error)


def _check_rest(path: str, f: Found) -> None:
    """Refuses a file that is being written, as far as can be seen."""
    again = "write under another name, then rename: a rename is seen whole"
    rested = time.time() - f.mtime / 1e9
    if rested < REST or open_for_writing(path):
        raise Unready(f"{path} is being written", again)
    if not f.size:
        raise Unready(f"{path} is empty", again)
    if is_plain(f.name) and rested < CALM and not _ends(path):
        raise Unready(f"{path} ends in the middle of a line", again)


def _ends(path: str) -> bool:
    with open(path, "rb") as f:
        f.seek(-1, os.SEEK_END)
        return f.read(1) == b"\n"
