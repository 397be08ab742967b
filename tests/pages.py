"""The pages of the documentation, their blocks, and the commands that they show.

In: README, CHANGELOG, docs/ and the examples. Out: pages by path, their fenced blocks, commands and
what these print.
Rule: a line `…` stands for any lines, `…` in a line for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from braid.testing.cases import Block, blocks

ROOT = Path(__file__).parent.parent
PAGES = {
    p.relative_to(ROOT).as_posix(): p
    for p in [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]
}


def page_blocks(name: str) -> list[Block]:
    return list(blocks(PAGES[name].read_text(encoding="utf-8")))


def has(name: str, kind: str, argument: str | None = None) -> bool:
    return any(b.kind == kind and argument in (None, b.argument) for b in page_blocks(name))


@dataclass(frozen=True)
class Said:
    """A command of a page, the lines below it, and the line it stands on."""

    command: str
    output: list[str]
    line: int


def commands(block: Block) -> Iterator[Said]:
    lines = block.text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    assert starts and starts[0] == 0, "a console block begins with a command"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield Said(lines[start][2:], lines[start + 1 : end], block.line + start)


def matches(want: list[str], got: list[str]) -> bool:
    parts = [".*" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", "[^\n]*") for line in want]
    pattern = "\n".join(parts)
    return re.fullmatch(pattern, "\n".join(got), re.DOTALL) is not None
