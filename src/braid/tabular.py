"""Tables on a terminal and in a pipe.

In: a header and rows. Out: aligned columns, as wide as the screen, or as the rows where nobody looks.
Rule: one look for all commands; whoever reads them with a program asks for JSON lines or CSV.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

from rich.console import Console
from rich.table import Table

WIDE = 4000  # columns of a pipe


def cell(value: Any) -> str:
    """A value as text: objects, lists and booleans as JSON, all others plainly."""
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float, list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]], file: IO[str] | None = None) -> None:
    """Prints a table to a file, stdout by default."""
    file = sys.stdout if file is None else file
    table = Table(*header, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*map(cell, row))
    if file.isatty():
        Console(file=file, highlight=False, markup=False).print(table)
        return
    console = Console(file=file, highlight=False, markup=False, width=WIDE)
    with console.capture() as made:
        console.print(table)
    file.writelines(f"{line.rstrip()}\n" for line in made.get().splitlines())
