"""The words of the field: what pages, help and messages do without, and that each option's help is a sentence.

In: the pages, the texts in `src/braid`. Out: where a word of the list is written.
Rule: a word that an engineer would not search for has another one beside it here, which is the field's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from braid.face.cli import main

ROOT = Path(__file__).resolve().parent.parent
# What is not written, and what is.
WORDS = {
    "anew": "again",
    "for ever": "permanently",
    "whoever": "the reader, the writer, every …",
    "stands?|stood": "is, is current, is allowed",
    "told|tells?": "reported, shown, says",
    "look(?:s|ed|ing)? at|looks (?:once|every)": "read, checked, polled",
    "work(?:s|ed) out": "computed",
    "somebody": "another user, another process",
    "polite": "SIGTERM",
    "padded|pads": "null-extended",
    "busy or ill": "overloaded or failing",
    "spread anew": "a rescale of … is pending",
    "runs? of (?:the )?state": "state files",
    "does not stand": "cannot be resolved",
}
WRITTEN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
# Names of things that are called so, and what users write.
NAMES = re.compile(r"\]\([^)]*\)|`[^`]*`|docs/decisions/\S+|benchmarks")
VERBS = (
    "Accept Append Add Check Create Declare Delete End Find Force Give Keep Let Load Make Name Poll Print Read Replace"
    " Reset Run Serve Set Show Skip Split Take Use Wait Write"
)


def pages() -> list[Path]:
    """Those that users read; decisions are history, and figures are written by the benchmarks."""
    found = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
    return sorted(p for p in found if "decisions" not in p.parts and not p.name.startswith("benchmarks"))


def cases() -> list[Path]:
    return sorted((ROOT / "tests/cases").rglob("*.md"))


def test_cases_do_without() -> None:
    """In what they say, not in their blocks: there are names of topics."""
    found = []
    for page in cases():
        prose = re.sub(
            r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), page.read_text(encoding="utf-8"), flags=re.M | re.S
        )
        lines = enumerate(prose.splitlines(), 1)
        found += [f"{page}:{n}: {m[0]}" for n, line in lines for m in WRITTEN.finditer(NAMES.sub("", line))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_do_without(page: Path) -> None:
    found = [
        f"{number}: {m[0]} (write: {_other(m[0])})"
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        for m in WRITTEN.finditer(NAMES.sub("", line))
    ]
    assert not found, found


def test_messages_do_without() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}: {text!r}" for path, line, text in texts() if WRITTEN.search(text)]
    assert not found, "\n".join(found)


def test_help_does_without() -> None:
    for command in commands(main):
        assert not WRITTEN.search(command.help or ""), (command.name, command.help)


def test_each_help_of_an_option_is_a_sentence() -> None:
    for command in commands(main):
        assert (command.help or "").strip().split("\n")[0].endswith("."), command.name
        for option in (p for p in command.params if isinstance(p, click.Option)):
            text = (option.help or "").strip()
            assert re.fullmatch(r"[^\n]+\.(?: \[default.*\])?", text), (
                command.name,
                option.name,
                text,
            )
            assert text.split()[0].rstrip(",;") in VERBS.split(), (command.name, option.name, text)


def test_the_list_finds_its_words() -> None:
    """And leaves links, code and longer words alone."""
    for text in ("it is made anew", "kept for ever", "Whoever asks", "a row stands", "this is told", "looked at again"):
        assert WRITTEN.search(text), text
    for text in ("renewed", "standard", "standing", "[why](decisions/0050-a-changed-query-is-worked-out-beside.md)"):
        assert not WRITTEN.search(NAMES.sub("", text)), text


def _other(word: str) -> str:
    return next(other for pattern, other in WORDS.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def commands(group: click.Command) -> Iterator[click.Command]:
    yield group
    for command in getattr(group, "commands", {}).values():
        yield from commands(command)


def texts() -> Iterator[tuple[Path, int, str]]:
    """The sentences among the strings of `src/braid`, without what documents the code: messages, hints, notes."""
    for path in sorted((ROOT / "src/braid").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        code = {id(x) for node in ast.walk(tree) for x in _docstring(node)}
        for node in ast.walk(tree):
            written = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in code
            if written and " " in node.value.strip():
                yield path, node.lineno, node.value


def _docstring(node: ast.AST) -> Iterator[ast.Constant]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr):
        first = node.body[0].value
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first
