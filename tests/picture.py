"""The picture of README: the first example in a terminal. `make picture` makes it anew.

In: docs/start.md. Out: docs/first-example.svg, with the statement, `braid run` and `braid cat` and what they print now.
Rule: what is shown is what the commands print; tests/test_picture.py holds it against the page, which the tests run.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.syntax import Syntax
from rich.terminal_theme import MONOKAI
from rich.text import Text

from braid.testing.cases import Block
from cli_help import shown
from pages import ROOT, Said, commands, page_blocks

PAGE = "docs/start.md"
PICTURE = ROOT / "docs" / "first-example.svg"
WIDTH = 96
# As rich's own, but for the fonts, which it would fetch from elsewhere.
FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<style>text {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
line-height: {line_height}px; white-space: pre }}
{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def files() -> list[Block]:
    """The example's files: their blocks end with a name."""
    return [b for b in page_blocks(PAGE) if b.kind == "csv" or (b.kind == "sql" and b.argument.endswith(".sql"))]


def said() -> list[Said]:
    """The commands that the picture shows."""
    (block,) = [b for b in page_blocks(PAGE) if b.kind == "console" and b.argument == "spark"]
    return list(commands(block))


def carried_out() -> list[list[str]]:
    """What the commands print, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in files():
            Path(block.argument.split()[-1]).write_text(block.text + "\n", encoding="utf-8")
        return [shown(*shlex.split(x.command)[1:]) for x in said()]


def drawn(printed: list[list[str]]) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    (sql,) = [b for b in files() if b.kind == "sql"]
    console.print(Text(f"$ cat {sql.argument.split()[-1]}", "bold green"))
    console.print(Syntax(sql.text, "sql", theme="monokai", background_color="default"))
    for x, lines in zip(said(), printed, strict=True):
        console.print(Text(f"$ {x.command}", "bold green"))
        console.print(Text("\n".join(lines)), overflow="fold")
    svg = console.export_svg(title="braid", theme=MONOKAI, code_format=FORMAT, unique_id="braid")
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def text_of(svg: str) -> str:
    """What a picture says, line by line, without blanks, of which a picture has none."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if "clip-path" in text.attrib:
            rows.setdefault(float(text.attrib["y"]), []).append((float(text.attrib["x"]), text.text or ""))
    return bare("".join(t for y in sorted(rows) for _, t in sorted(rows[y])))


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


if __name__ == "__main__":
    PICTURE.write_text(drawn(carried_out()), encoding="utf-8")
