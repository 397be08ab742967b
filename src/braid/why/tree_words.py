"""A derivation, as people and programs read it.

In: a derivation. Out: lines; or what becomes one JSON object.
Rule: the row first, then what it came of, a step a line, its numbers below it, records last. What was not looked at to
the end is said.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from braid.errors import BraidError
from braid.face.tabular import cell, time_text
from braid.why.reasons import At
from braid.why.tree import ENDS, Leaf, Tree
from braid.why.words import WIDTH, judged


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the result. `batch`: which made it; `completed`: the record that it was complete with; `released`: what
    let it go, if that was another; `twice`: where it is once more; `before`: the offset of the row that it replaces;
    `sure`: its records give it alone."""

    at: At
    key: str | None
    values: Mapping[str, object] | None
    gone: bool
    batch: int
    completed: At | None
    released: str | None
    tree: Tree
    sure: bool
    twice: Sequence[str] = ()
    before: int | None = None


@dataclass(frozen=True, slots=True)
class Derivation:
    """`left`: earlier rows of the key that are not shown."""

    topic: str
    query: str
    rows: Sequence[Row]
    judged: int
    read: int
    batches: int
    whole: str | None
    left: int = 0
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def document(self) -> dict[str, Any]:
        """What `braid why --json` prints."""
        return document(self)


# ------------------------------------------------------------------- as a program reads it


def document(found: Derivation) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "query": found.query,
        "rows": [_row(x) for x in found.rows],
        "more": found.left,
        "judged": found.judged,
        "read": found.read,
        "batches": found.batches,
        "whole": found.whole,
        "notes": found.notes,
    }


def _row(x: Row) -> dict[str, Any]:
    return {
        **x.at.document(),
        "key": x.key,
        "value": x.values,
        "deletes": x.gone,
        "batch": x.batch,
        "completed_by": None if x.completed is None else str(x.completed),
        "released_by": x.released,
        "same_at": [*x.twice],
        "replaces": x.before,
        "checked": x.sure,
        "tree": _tree(x.tree),
    }


def _tree(x: Tree) -> dict[str, Any]:
    made: dict[str, Any] = {"step": x.step, "says": [*x.says]}
    if x.inputs:
        made["inputs"] = [_tree(y) for y in x.inputs]
    if x.leaves:
        made |= {"count": x.count, "records": [_leaf(y, x.deeper.get(n)) for n, y in enumerate(x.leaves)]}
    return made


def _leaf(x: Leaf, deeper: object) -> dict[str, Any]:
    made = {
        **x.at.document(),
        "key": x.key,
        "value": x.values,
        "deletes": x.gone,
        "written_by": x.written,
    }
    if isinstance(deeper, Derivation):
        made["why"] = document(deeper)
    elif isinstance(deeper, BraidError):
        made["why"] = {"error": deeper.message}
    return made


# ------------------------------------------------------------------- as people read it


def _lines(found: Derivation) -> Iterator[str]:
    for i, x in enumerate(found.rows):
        if i:
            yield ""
        yield from _lines_of(x, found.query)
    yield ""
    yield from (f"note: {note}" for note in found.notes)
    if found.left:
        yield f"… and {found.left:,} earlier rows of this key; --offset asks for one of them"
    yield judged(found)


def _lines_of(x: Row, query: str) -> Iterator[str]:
    key = f", key {x.key}" if x.key is not None else ""
    yield f"{x.at} at {time_text(x.at.time)}{key}"
    if x.values:
        yield f"  {_values(x.values, WIDTH - 4)}"
    elif x.gone:
        yield "  it deletes the row of its key"
    if x.before is not None:
        yield f"  it replaces {x.at.topic}:{x.at.partition}:{x.before}"
    if x.twice:
        yield f"  the same row is there again, for causes of its own: {', '.join(x.twice[:ENDS])}"
    by = "" if x.completed is None else f", complete with {x.completed}"
    yield f"  made by {query} in batch {x.batch}{by}"
    if x.released is not None:
        yield f"  let go by {x.released}"
    yield from _branch(x.tree, "  ", "  ")
    if not x.sure:
        yield "  (the records above are those it is made of; that they alone give it was not checked: too many)"


def _branch(x: Tree, first: str, rest: str) -> Iterator[str]:
    """A step, what it says, and what it was given. `first`, `rest`: what stands before its lines."""
    yield f"{first}{x.step}"
    below = [*x.inputs]
    bar = "│ " if below else "  "
    for said in x.says:
        yield from textwrap.wrap(
            said, WIDTH, initial_indent=f"{rest}{bar} ", subsequent_indent=f"{rest}{bar}   ", drop_whitespace=True
        )
    yield from _records(x, rest)
    for i, y in enumerate(below):
        last = i == len(below) - 1
        yield from _branch(y, f"{rest}{'└─' if last else '├─'} ", f"{rest}{'   ' if last else '│  '}")


def _records(x: Tree, rest: str) -> Iterator[str]:
    for n, leaf in enumerate(x.leaves):
        if n == ENDS and x.count > 2 * ENDS:
            yield f"{rest}   … {x.count - 2 * ENDS:,} more …"
        key = f", key {leaf.key}" if leaf.key is not None else ""
        gone = ", deletes" if leaf.gone else ""
        value = f": {_values(leaf.values, WIDTH)}" if leaf.values else ""
        line = f"{leaf.at} at {time_text(leaf.at.time)}{key}{gone}{value}"
        yield f"{rest}   {textwrap.shorten(line, WIDTH, placeholder=' …')}"
        deeper = x.deeper.get(n)
        if isinstance(deeper, Derivation):
            yield from (f"{rest}      {y}" for y in _lines_of(deeper.rows[0], deeper.query))
        elif isinstance(deeper, BraidError):
            yield f"{rest}      {deeper.message}"
        elif leaf.written is not None:
            at = leaf.at
            yield f"{rest}      written by {leaf.written}: braid why {at.topic} --offset {at.offset} -p {at.partition}"


def _values(values: Mapping[str, object], width: int) -> str:
    shown: Sequence[str] = [f"{name}={cell(v)}" for name, v in values.items()]
    return textwrap.shorten(" ".join(shown), width, placeholder=" …")
