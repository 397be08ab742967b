"""Every file of a store spoilt in four ways: a bit of it, cut, gone, another of its kind in its place.

In: a store, and names of files. Out: the ways in which each can be spoilt, as (what, file, change).
Rule: exempt is what may be lost: locks, `state/published`, what is being written, copies. Draws come from a seed.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

WAYS = ("bit", "cut", "gone", "another")
EXEMPT = re.compile(r".*\.lock|(.*/)?state/published|(.*/)?\.staging/.*|.*\.more|(.*/)?\.scratch/.*|.*\.files/.*")

Change = Callable[[bytes], bytes | None]  # None: it is gone


def kind(name: str) -> str:
    """Files of one kind differ by numbers and by names of topics and queries only."""
    name = re.sub(r"(topics|drops|checkpoints|names|subjects|schemas|files|documents)/[^/]+", r"\1/X", name)
    return re.sub(r"[0-9a-f]{8,}|[0-9]+", "N", name)


def spoils(files: Mapping[str, bytes], seed: int) -> Iterator[tuple[str, str, bytes | None]]:
    """(way, file, what is in it then): each file in each way, where that makes a difference."""
    peers = defaultdict[str, list[str]](list)
    for name in sorted(files):
        peers[kind(name)].append(name)
    for name, data in sorted(files.items()):
        draw = random.Random(f"{seed} {name}")
        if EXEMPT.fullmatch(name):
            continue
        others = [x for x in peers[kind(name)] if files[x] != data]
        if data:
            yield "bit", name, flipped(data, draw.randrange(8 * len(data)))
            yield "cut", name, data[: draw.choice((draw.randrange(len(data)), data[:-1].rfind(b"\n") + 1))]
        yield "gone", name, None
        if others:
            yield "another", name, files[draw.choice(others)]


def flipped(data: bytes, bit: int) -> bytes:
    made = bytearray(data)
    made[bit // 8] ^= 1 << bit % 8
    return bytes(made)


def in_folder(root: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def put_in(path: Path, data: bytes | None) -> None:
    path.unlink()
    if data is not None:
        path.write_bytes(data)


def fresh(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
