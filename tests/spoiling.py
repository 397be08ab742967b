"""Every file of a store spoilt in four ways: a bit of it, cut, gone, another of its kind in its place.

In: what lies in a store, by name. Out: (way, name, what is in it then).
Rule: exempt is what may be lost: locks, `state/published`, what is being written, copies. Draws come from a seed.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

EXEMPT = re.compile(r".*\.lock|(.*/)?(state/published|\.staging/.*|\.scratch/.*)|.*\.more|.*\.files/.*")
_NAMED = re.compile(r"(topics|drops|checkpoints|names|subjects|schemas|files|documents)/[^/]+")
_NUMBERED = re.compile(r"[0-9a-f]{8,}|[0-9]+")

Spoilt = tuple[str, str, bytes | None]  # None: it is gone


def kind(name: str) -> str:
    """Files of one kind differ by numbers, and by names of topics and queries."""
    return _NUMBERED.sub("N", _NAMED.sub(r"\1/X", name))


def spoils(files: Mapping[str, bytes], seed: int, each: int | None = None) -> Iterator[Spoilt]:
    """Each file in each way, where that makes a difference; `each`: of a kind so many files."""
    peers = defaultdict[str, list[str]](list)
    for name in sorted(files):
        peers[kind(name)].append(name)
    for names in peers.values():
        draw = random.Random(f"{seed} {names[0]}")
        for name in sorted(draw.sample(names, min(len(names), each or len(names)))):
            if not EXEMPT.fullmatch(name):
                yield from _of(name, files[name], [x for n in names if (x := files[n]) != files[name]], draw)


def _of(name: str, data: bytes, others: list[bytes], draw: random.Random) -> Iterator[Spoilt]:
    if data:
        yield "bit", name, flipped(data, draw.randrange(8 * len(data)))
        yield "cut", name, data[: draw.choice((draw.randrange(len(data)), data[:-1].rfind(b"\n") + 1))]
    yield "gone", name, None
    if others:
        yield "another", name, draw.choice(others)


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


def anew(source: Path, target: Path) -> Path:
    """A copy in place of what was there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def named(name: str, wrong: str) -> bool:
    """Whether what is said to be wrong is said of this file: of it, or of the topic or query that lacks it."""
    parts = name.split("/")
    whose = re.search(rf"\b{re.escape(parts[1])}\b", wrong) if parts[1:] else None
    return parts[-1].split("~")[0] in wrong or whose is not None
